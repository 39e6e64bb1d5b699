"""Looks in an SQLite file, and offset files in a folder."""

from __future__ import annotations

import re
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from zkgroup.errors import UsageError, ZkgroupError
from zkgroup.groups.group_model import GroupPartition, GroupSnapshot, StoredOffset
from zkgroup.groups.monitoring.lag_history import MAX_AGE, MIN_INTERVAL, LagHistory, Sample
from zkgroup.groups.offset_files.file_formats import Series
from zkgroup.protocol.names import TopicPartition

ORDERS = TopicPartition("orders", 0)


def snapshot_at(taken_at: int, offset: int | None = 5, end: int | None = 9, group: str = "g") -> GroupSnapshot:
    """A group with one partition."""
    stored = None if offset is None else StoredOffset(offset, 0, 0, 0, 77)
    partition = GroupPartition("orders", 0, stored=stored, log_start=0, log_end=end)
    return GroupSnapshot(group, (), (partition,), frozenset(), taken_at=taken_at)


def test_a_window_has_the_last_snapshots_in_their_order(tmp_path: Path) -> None:
    """Of this cluster, group and store alone; not from the moment on that is asked for."""
    with LagHistory(tmp_path / "made" / "h.sqlite3") as history:
        for number in range(6):
            history.keep(
                "zk:1",
                [snapshot_at(number * MIN_INTERVAL, number), snapshot_at(number * MIN_INTERVAL, 50, group="other")],
            )
        history.keep("zk:2", [snapshot_at(3 * MIN_INTERVAL, 99)])
        assert history.window("zk:1", "g", "zookeeper", 3, 5 * MIN_INTERVAL) == {
            ORDERS: [Sample(number * MIN_INTERVAL, number, 9, 77) for number in (2, 3, 4)]
        }
        assert history.window("zk:1", "g", "kafka", 3, 5 * MIN_INTERVAL) == {}


def test_snapshots_that_follow_each_other_closely_count_once(tmp_path: Path) -> None:
    """Ten snapshots within a second are no window."""
    with LagHistory(tmp_path / "h.sqlite3") as history:
        for number in range(20):
            history.keep("zk:1", [snapshot_at(number * MIN_INTERVAL // 5, number)])
        (samples,) = history.window("zk:1", "g", "zookeeper", 9, 4 * MIN_INTERVAL).values()
        assert [sample.taken_at for sample in samples] == [0, MIN_INTERVAL, 2 * MIN_INTERVAL, 3 * MIN_INTERVAL]


def test_old_snapshots_go(tmp_path: Path) -> None:
    """The file does not grow for ever."""
    path = tmp_path / "h.sqlite3"
    with LagHistory(path) as history:
        history.keep("zk:1", [snapshot_at(0)])
        history.keep("zk:1", [snapshot_at(MAX_AGE + 1)])
    with sqlite3.connect(path) as connection:
        assert connection.execute("SELECT count(*) FROM snapshot").fetchone() == (1,)
        assert connection.execute("SELECT count(*) FROM sample").fetchone() == (1,)
    connection.close()


def test_many_processes_use_one_file(tmp_path: Path) -> None:
    """Checks of many groups run at the same minute: each snapshot is kept, also where the file is only being made."""
    program = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[3])
from test_lag_history import snapshot_at
from zkgroup.groups.monitoring.lag_history import LagHistory
for number in range(20):
    with LagHistory(Path(sys.argv[1])) as history:
        history.keep("zk:1", [snapshot_at(number, group=sys.argv[2])])
"""
    path = tmp_path / "h.sqlite3"
    arguments = [sys.executable, "-c", program, str(path)]
    processes = [
        subprocess.Popen([*arguments, f"g{number}", str(Path(__file__).parent)], stderr=subprocess.PIPE, text=True)
        for number in range(4)
    ]
    assert [process.communicate(timeout=60)[1] for process in processes] == [""] * 4
    with sqlite3.connect(path) as connection:
        assert connection.execute("SELECT name, count(*) FROM snapshot GROUP BY name").fetchall() == [
            (f"g{number}", 20) for number in range(4)
        ]
    connection.close()


def test_a_file_that_is_something_else_is_left_alone(tmp_path: Path) -> None:
    """Not a database, another program's database, another release's, a folder that may not be: one line each."""
    text, other, newer = tmp_path / "notes.txt", tmp_path / "other.sqlite3", tmp_path / "newer.sqlite3"
    text.write_text("no database, and longer than the header of one" * 10)
    with sqlite3.connect(other) as connection:
        connection.execute("CREATE TABLE theirs (x)")
    connection.close()
    with sqlite3.connect(newer) as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    before = [path.read_bytes() for path in (text, other, newer)]
    for path in (text, other, newer):
        with pytest.raises(UsageError, match=path.name), LagHistory(path):
            pass
    with pytest.raises(ZkgroupError, match=r"h\.sqlite3"), LagHistory(text / "h.sqlite3"):
        pass
    assert [path.read_bytes() for path in (text, other, newer)] == before


@pytest.mark.parametrize(
    "statement",
    [
        "DROP TABLE sample",
        "DROP INDEX snapshots_of_group; ALTER TABLE snapshot DROP COLUMN store",
        "UPDATE sample SET committed = 'x'",
        "PRAGMA user_version = 1",
        None,
    ],
)
def test_what_is_damaged_is_to_be_moved_away(tmp_path: Path, statement: str | None) -> None:
    """One line, with the file: the next check makes a new one."""
    path = tmp_path / "h.sqlite3"
    with LagHistory(path) as history:
        history.keep("zk:1", [snapshot_at(0)])
    if statement is None:
        path.write_bytes(b"\0" * 20_000)
    else:
        with sqlite3.connect(path) as connection:
            connection.executescript(statement)
        connection.close()

    def use() -> None:
        with LagHistory(path) as history:
            history.keep("zk:1", [snapshot_at(MIN_INTERVAL)])
            history.window("zk:1", "g", "zookeeper", 9, 2 * MIN_INTERVAL)

    with pytest.raises(ZkgroupError) as damaged:
        use()
    assert str(path) in damaged.value.message
    assert damaged.value.remedy is not None
    path.rename(tmp_path / "away")
    use()


# --- checkpoints in a folder ----------------------------------------------------------------------------------------


def test_the_newest_files_stay(tmp_path: Path) -> None:
    """Each run adds one, also within a second; others' files are not touched."""
    theirs = [tmp_path / name for name in ("h.2026-11-21T220351Z.txt", "g.txt", "g.2026.txt", "g.csv", "xg.txt")]
    for path in theirs:
        path.write_text("theirs")
    series = Series(tmp_path, "g", None)
    written = [series.add(str(number), 3) for number in range(7)]
    assert series.files() == written[-3:]
    assert [path.read_text() for path in written[-3:]] == ["4", "5", "6"]
    assert all(path.read_text() == "theirs" for path in theirs)


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    """One error, which names it."""
    (tmp_path / "file").touch()
    with pytest.raises(ZkgroupError, match=str(tmp_path / "file")):
        Series(tmp_path / "file" / "below", "g", None).add("", 3)


def test_a_file_of_the_future_does_not_push_out_the_newest(tmp_path: Path) -> None:
    """A clock that was set back: what is written now still counts as the newest."""
    (tmp_path / "g.2999-01-01T000000.000Z.txt").write_text("future")
    series = Series(tmp_path, "g", None)
    written = [series.add(str(number), 2) for number in range(3)]
    assert series.files() == written[-2:]


@pytest.mark.parametrize("there", [(), ("g.2999-01-01T000000.000Z.txt",), ("g.9999-12-31T235959.999Z.txt",)])
def test_files_are_listed_in_the_order_in_which_they_were_written(tmp_path: Path, there: tuple[str, ...]) -> None:
    """Of runs within one second, and within one millisecond, ``ls`` shows the last one last, whatever the locale: only
    digits differ, and each name has as many. Digits that are no date are nobody's business."""
    for name in (*there, "g.2999-99-99T999999.999Z.txt"):
        (tmp_path / name).write_text("there")
    series = Series(tmp_path, "g", None)
    written = [series.add(str(number), None) for number in range(30)]
    assert sorted(written) == written
    assert {re.sub(r"\d", "0", path.name) for path in written} == {"g.0000-00-00T000000.000Z.txt"}
    assert series.files()[-30:] == written


def test_names_of_groups_make_names_of_files(tmp_path: Path) -> None:
    """Any character, any length; one group's files are never another's."""
    names = ["a/b", "..", "a b", "ä", "a%2Fb", "x" * 500, "x" * 499 + "y", "g", "g.2026-01-01T000000Z"]
    every = [Series(tmp_path, name, "csv") for name in names]
    written = [series.add(name, 1) for series, name in zip(every, names, strict=True)]
    assert [series.files() for series in every] == [[path] for path in written]
    assert {path.parent for path in written} == {tmp_path}
    assert all(path.suffix == ".csv" for path in written)


def test_runs_that_overlap_do_no_harm(tmp_path: Path) -> None:
    """Several processes at once: each file is there until newer ones have pushed it out."""
    program = """
import sys
from pathlib import Path
from zkgroup.groups.offset_files.file_formats import Series
for number in range(10):
    Series(Path(sys.argv[1]), "g", None).add(str(number), 5)
"""
    processes = [
        subprocess.Popen([sys.executable, "-c", program, str(tmp_path)], stderr=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    assert [process.communicate(timeout=60)[1] for process in processes] == [""] * 4
    assert len(Series(tmp_path, "g", None).files()) == 5
    assert len(list(tmp_path.iterdir())) == 5
