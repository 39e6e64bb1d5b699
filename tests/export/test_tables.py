"""Exports into tables of either format: each message once, whatever dies when, and whatever others do to the tables."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError
from export_points import Export, Paused, Points, drive_export, lose_session
from exports import abort, bound_at, make_member_config, mismatches_of, problem_rows, problems, read, recreate_topic
from foreign_readers import RELEASES, foreign_duckdb, foreign_spark
from lines import names
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table
from table_lake import TableLake
from walked_tables import Chosen, walked_table

from zkgroup.clients.kafka.client import KafkaSettings
from zkgroup.clients.zookeeper import ZooKeeperSettings
from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.errors import RefusedError, ZkgroupError
from zkgroup.export.checks.run_reports import history
from zkgroup.export.checks.verify import verify
from zkgroup.export.destination import table_format
from zkgroup.export.destination.run_log import Destination, OwnedError
from zkgroup.export.destination.table_format import CommittedTables, TableChangedError, open_format
from zkgroup.export.model.choices import TableKind
from zkgroup.export.model.layout import table_name
from zkgroup.export.planning.mismatch import MismatchError, MismatchKind
from zkgroup.export.stores.store import FolderStore
from zkgroup.protocol.names import TopicPartition
from zkgroup.sandbox.local_cluster import Sandbox
from zkgroup.sandbox.topic_admin import ProducerRecord, produce

KINDS: tuple[TableKind, ...] = ("delta", "iceberg")
COMMITS: dict[TableKind, tuple[Any, str]] = {
    "delta": (DeltaTable, "create_write_transaction"),
    "iceberg": (Table, "_do_commit"),
}

#: Of ``WalkedTable.compact``: whether what no newer version needs is removed as well.
KEEPS, EXPIRES = Chosen(1), Chosen(0)


@contextlib.contextmanager
def raises_mismatch(kind: MismatchKind = "rolled back") -> Iterator[pytest.ExceptionInfo[MismatchError]]:
    """The block raises that the partition cannot simply continue, and why."""
    with pytest.raises(MismatchError) as raised:
        yield raised
    assert [one.kind for one in raised.value.mismatches] == [kind]


def table_of(topic: str) -> str:
    """A pattern for the table of a topic, as either format names it."""
    return rf"\b({topic}|{table_name(topic)})\b"


def is_rolled_back(destination: Destination, start: int, end: int) -> bool:
    """Whether ``--verify`` finds that a table lacks these offsets, and no other problem."""
    found = [(row.start, row.end, row.mend, row.group is None) for row in problem_rows(destination)]
    return found == [(start, end, "mismatch", False)]


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> TableKind:
    """Each format of tables."""
    kind: TableKind = request.param
    return kind


# --- killed, paused, unanswered -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "every", [False, pytest.param(True, marks=pytest.mark.long)], ids=["around the commit", "every point"]
)
def test_killed_at_a_point_and_run_again(
    brief_table_export: Export, filled: str, unique: Callable[[str], str], is_complete_table: Callable[..., None],
    short: ZooKeeperSettings, kafka: KafkaSettings, tmp_path: Path, kind: TableKind, every: bool,
) -> None:  # fmt: skip
    """SIGKILL as a point is passed: the table is the old one or the new one, and the next export ends it all."""
    points: Points = []
    group = unique("group")
    brief_table_export(group, filled, on_point=points.append)
    is_complete_table(group, filled, tmp_path / "out")
    first = points.index("published for good")
    assert points.index("table 1 of 1 made") < points.index("files written")
    assert points[first + 1] == "table 1 of 1 committed"

    def kill_and_go_on(point: str) -> None:
        name = unique("killed")
        wish = {"group": name, "topics": [filled], "out": tmp_path / name, "format": kind}
        code, lines = drive_export(short, kafka, kill_at=point, **wish)
        assert (code, lines[-1]) == (-9, point)
        brief_table_export(name, filled, root=tmp_path / name, session=10.0)
        is_complete_table(name, filled, tmp_path / name)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(kill_and_go_on, points if every else ["table 1 of 1 made", *points[first : first + 2]]))


ROUNDS = [2, pytest.param(100, marks=[pytest.mark.long, pytest.mark.timeout(3600)])]


class Moments:
    """Delays behind the point at which a run's files have their names: in the middle of the table's commit, and around
    it."""

    def __init__(self, short: ZooKeeperSettings, kafka: KafkaSettings, wish: dict[str, Any]) -> None:
        self._begin = 0.0
        code, _ = drive_export(short, kafka, on_point=self._note, **wish)
        assert code == 0
        self._span = time.monotonic() - self._begin

    def _note(self, _: int, point: str) -> None:
        if point == "published for good":
            self._begin = time.monotonic()

    def choose(self, dice: random.Random) -> float:
        return dice.uniform(0, self._span)


def send(process: int, number: signal.Signals) -> None:
    """A signal, unless the process has ended."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(process, number)


@pytest.mark.parametrize("rounds", ROUNDS)
def test_killed_at_any_moment_around_the_commit(
    brief_table_export: Export, filled: str, unique: Callable[[str], str], is_complete_table: Callable[..., None],
    short: ZooKeeperSettings, kafka: KafkaSettings, tmp_path: Path, kind: TableKind, rounds: int,
) -> None:  # fmt: skip
    """SIGKILL at random, also in the middle of what the library does: the next export ends it all."""
    wish = {"topics": [filled], "format": kind}
    first = unique("first")
    moments = Moments(short, kafka, {**wish, "group": first, "out": tmp_path / first})

    def kill_and_go_on(seed: int) -> int:
        name, delay = unique("killed"), moments.choose(random.Random(seed))

        def kill(process: int, point: str) -> None:
            if point == "published for good":
                time.sleep(delay)
                send(process, signal.SIGKILL)

        code, _ = drive_export(short, kafka, on_point=kill, group=name, out=tmp_path / name, **wish)
        assert code in (0, -9)
        brief_table_export(name, filled, root=tmp_path / name, session=10.0)
        is_complete_table(name, filled, tmp_path / name)
        return code

    with ThreadPoolExecutor(4) as pool:
        codes = list(pool.map(kill_and_go_on, range(rounds)))
    assert -9 in codes


@pytest.mark.parametrize("rounds", ROUNDS)
def test_stopped_at_any_moment_around_the_commit_while_another_one_commits(
    brief_table_export: Export, filled: str, unique: Callable[[str], str], is_complete_table: Callable[..., None],
    cluster: Sandbox, registry: Registry, short: ZooKeeperSettings, kafka: KafkaSettings, tmp_path: Path,
    kind: TableKind, rounds: int,
) -> None:  # fmt: skip
    """Two exporters of one run: SIGSTOP at random, the other one does all, SIGCONT. A catalog that the first one has
    locked is refused in one line."""
    wish = {"topics": [filled], "format": kind}
    first = unique("first")
    moments = Moments(short, kafka, {**wish, "group": first, "out": tmp_path / first})
    refused: list[str] = []

    def stop_and_go_on(seed: int) -> None:
        name, delay = unique("stopped"), moments.choose(random.Random(seed))

        def stop(process: int, point: str) -> None:
            if point == "published for good":
                time.sleep(delay)
                send(process, signal.SIGSTOP)
                with contextlib.suppress(AssertionError):  # it has ended
                    lose_session(registry, cluster, name)
                try:
                    brief_table_export(name, filled, root=tmp_path / name, session=10.0)
                except ZkgroupError as error:
                    refused.append(str(error))
                send(process, signal.SIGCONT)

        code, lines = drive_export(short, kafka, on_point=stop, group=name, out=tmp_path / name, **wish)
        assert code in (0, 1, 5), lines
        brief_table_export(name, filled, root=tmp_path / name, session=10.0)
        is_complete_table(name, filled, tmp_path / name)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(stop_and_go_on, range(rounds)))
    assert all("database is locked" in why for why in refused), refused


@pytest.mark.parametrize("point", ["decided", "published for good", "table 1 of 1 committed"])
def test_one_that_was_given_up_for_dead_does_no_harm(
    brief_table_export: Export, filled: str, unique: Callable[[str], str], is_complete_table: Callable[..., None],
    cluster: Sandbox, registry: Registry, tmp_path: Path, point: str,
) -> None:  # fmt: skip
    """An export is paused, another one commits its run to the table; then the first one wakes up."""
    group = unique("zombie")
    with Paused(lambda passed: brief_table_export(group, filled, on_point=passed), point) as first:
        lose_session(registry, cluster, group)
        brief_table_export(group, filled)
        is_complete_table(group, filled, tmp_path / "out")
        first.finish()
    is_complete_table(group, filled, tmp_path / "out")


@pytest.mark.parametrize("error", [None, "conflict"], ids=["no answer", "the answer to a repeated request"])
def test_a_commit_that_is_done_and_not_answered(
    table_export: Export, filled: str, unique: Callable[[str], str], is_complete_table: Callable[..., None],
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: TableKind, error: str | None,
) -> None:  # fmt: skip
    """The export ends well. A server between them may have sent the request twice: the second one is refused, and its
    answer comes, after which pyiceberg removes the files of what it takes for not committed."""
    library, name = COMMITS[kind]
    commit, conflict = getattr(library, name), {"delta": CommitFailedError, "iceberg": CommitFailedException}[kind]

    def unanswered(table: Any, *args: Any, **options: Any) -> None:
        commit(table, *args, **options)
        raise OSError("nobody answers") if error is None else conflict("a commit came first")

    def spoil(point: str) -> None:
        if point == "table 1 of 1 made":
            monkeypatch.setattr(library, name, unanswered)

    group = unique("unanswered")
    table_export(group, filled, on_point=spoil)
    is_complete_table(group, filled, tmp_path / "out")


def test_a_commit_that_is_not_done(
    table_export: Export, filled: str, unique: Callable[[str], str], is_complete_table: Callable[..., None],
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: TableKind,
) -> None:  # fmt: skip
    """The next export commits, and reads nothing."""
    group, (library, name) = unique("undone"), COMMITS[kind]

    def fail(*_: Any, **__: Any) -> None:
        raise OSError("nobody answers")

    def spoil(point: str) -> None:
        if point == "table 1 of 1 made":
            monkeypatch.setattr(library, name, fail)

    with pytest.raises(ZkgroupError, match=rf"{table_of(filled)}.*nobody answers"):
        table_export(group, filled, on_point=spoil)
    monkeypatch.undo()
    points: Points = []
    table_export(group, filled, on_point=points.append)
    assert "runner started" not in points
    is_complete_table(group, filled, tmp_path / "out")


def test_a_run_that_no_table_takes_is_given_up(
    table_export: Export, in_process: Export, lake: TableLake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    kind: TableKind,
) -> None:  # fmt: skip
    """Decided, and its table takes no commit any more. The group has passed none of it, so nothing is lost: it is free
    for exports elsewhere, and here."""
    library, name = COMMITS[kind]

    def fail(*_: Any, **__: Any) -> None:
        raise OSError("on purpose")

    with monkeypatch.context() as patch:
        patch.setattr(library, name, fail)
        with pytest.raises(ZkgroupError, match="on purpose"):
            lake.more()
    (run,) = lake.destination.leftover_runs(lake.group)
    warnings: list[Any] = []
    lake.export(lake.group, abandon=True, on_warning=warnings.append)
    assert [(warning.run, warning.lost) for warning in warnings] == [(run, ())]
    assert read(in_process(lake.group, lake.topic, root=tmp_path / "elsewhere", max_messages=5)) == [(20, 25)]
    assert read(lake.export(lake.group, lake.topic, on_mismatch="lake")) == [(20, 30)]
    assert lake.offsets() == list(range(30))
    assert problems(lake.destination) == []


def _other_writer(
    patch: pytest.MonkeyPatch, kind: TableKind, folder: Path, topic: str, tries: list[int], most: int
) -> Callable[[str], None]:
    """From the moment on at which the table is made, another writer commits just before each of the first ``most``
    tries. All tries are noted."""
    library, name = COMMITS[kind]
    commit, busy = getattr(library, name), threading.Lock()

    def second(table: Any, *args: Any, **options: Any) -> None:
        if busy.acquire(blocking=False):  # else it is the other writer's own
            tries.append(len(tries))
            if len(tries) <= most:
                walked_table(kind, folder, topic).touch()
            busy.release()
        commit(table, *args, **options)

    def interfere(point: str) -> None:
        if point == "table 1 of 1 made":
            patch.setattr(library, name, second)

    return interfere


def test_commits_of_others_come_between(
    table_export: Export, filled: str, unique: Callable[[str], str], is_complete_table: Callable[..., None],
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: TableKind,
) -> None:  # fmt: skip
    """A commit that another writer was faster than is tried again, on top of that one's."""
    group, tries = unique("between"), list[int]()
    table_export(group, filled, on_point=_other_writer(monkeypatch, kind, tmp_path / "out", filled, tries, most=2))
    assert tries == [0, 1, 2]
    is_complete_table(group, filled, tmp_path / "out")


def test_commits_of_others_come_first_all_the_time(
    table_export: Export, filled: str, unique: Callable[[str], str], is_complete_table: Callable[..., None],
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: TableKind,
) -> None:  # fmt: skip
    """Between tries there is a pause. An error says what happens; the next export commits, and reads nothing."""
    group, seen, tries = unique("busy"), list[float](), list[int]()
    monkeypatch.setattr(table_format, "sleep", seen.append)
    monkeypatch.setattr(CommittedTables, "tries", 4)
    with pytest.raises(ZkgroupError, match=rf"{table_of(filled)}.*\b4\b"):
        table_export(group, filled, on_point=_other_writer(monkeypatch, kind, tmp_path / "out", filled, tries, most=4))
    assert len(seen) == 3
    assert tries == [0, 1, 2, 3]
    assert all(0 < pause < 1 for pause in seen)
    monkeypatch.undo()
    points: Points = []
    table_export(group, filled, on_point=points.append)
    assert "runner started" not in points
    is_complete_table(group, filled, tmp_path / "out")


def test_what_fails_before_the_decision_leaves_an_empty_table(
    table_export: Export, filled: str, unique: Callable[[str], str], is_complete_table: Callable[..., None],
    tmp_path: Path, kind: TableKind,
) -> None:  # fmt: skip
    """No row and no file; the next export has the table."""

    def fail(point: str) -> None:
        if point == "record written":
            raise ZkgroupError("on purpose")

    group = unique("group")
    with pytest.raises(ZkgroupError, match="on purpose"):
        table_export(group, filled, on_point=fail)
    assert walked_table(kind, tmp_path / "out", filled).rows() == []
    assert not list((tmp_path / "out").rglob("*.parquet"))
    table_export(group, filled)
    is_complete_table(group, filled, tmp_path / "out")


def test_a_run_of_several_topics_is_finished(
    table_export: Export, make_topic: Callable[..., str], fill: Callable[..., object], unique: Callable[[str], str],
    tmp_path: Path, kind: TableKind,
) -> None:  # fmt: skip
    """Each topic is a table of its own. One that was stopped between two commits is gone on with at the second."""
    topics, group = sorted(make_topic() for _ in range(3)), unique("group")
    for topic in topics:
        fill(topic, 20)

    def stop(point: str) -> None:
        if point == "table 2 of 3 committed":
            raise ZkgroupError("on purpose")

    with pytest.raises(ZkgroupError, match="on purpose"):
        table_export(group, *topics, on_point=stop)
    points: Points = []
    table_export(group, *topics, on_point=points.append)
    assert [point for point in points if point.startswith("table")] == ["table 1 of 1 committed"]
    for topic in topics:
        assert len(walked_table(kind, tmp_path / "out", topic).rows()) == 20


# --- what others do -------------------------------------------------------------------------------------------------


def test_a_table_that_was_compacted_goes_on(lake: TableLake) -> None:
    """Between two exports, and between a decision and its commit: nothing to ask, nothing wrong."""

    def compact(point: str) -> None:
        if point == "published for good":
            lake.table.compact(EXPIRES)

    lake.table.compact(KEEPS)
    assert len(lake.table.files()) == 1
    assert problems(lake.destination) == []
    assert lake.more(on_point=compact) == [(20, 30)]
    assert lake.more() == [(30, 40)]
    assert lake.offsets() == list(range(40))
    lake.table.compact(KEEPS)
    assert problems(lake.destination) == []
    assert [row.rows for row in history(lake.destination)] == [10, 10, 10, 10]


def test_rows_that_others_take_out_or_put_in_are_named(lake: TableLake) -> None:
    """A DELETE, and an INSERT of what is there: an export goes on, ``--verify`` says what is wrong."""
    lake.table.delete(5)
    assert lake.more() == [(20, 30)]
    (row,) = problem_rows(lake.destination)
    assert (row.start, row.end, row.mend) == (0, 10, "table")
    assert names(str(row.problem), 9, 10)
    lake.table.insert_again(25)
    (row,) = problem_rows(lake.destination)
    assert (row.start, row.end, row.mend) == (0, 10, "table")
    assert names(str(row.problem), 10, 10)
    assert lake.more() == [(30, 40)]


def test_a_table_that_was_rolled_back_asks(lake: TableLake) -> None:
    """The second run's rows are gone: the export asks, also as a member, ``--verify`` names them, ``lake`` writes them
    again."""
    lake.table.step_back()
    assert lake.offsets() == list(range(10))
    assert is_rolled_back(lake.destination, 10, 20)
    with raises_mismatch() as raised:
        lake.more()
    assert [answer for answer, _ in raised.value.answers] == ["lake", "group", "skip"]
    with raises_mismatch():  # no other member has exported that
        lake.more(join=make_member_config(lake.group))
    assert lake.more(on_mismatch="lake") == [(10, 50)]
    assert lake.offsets() == list(range(50))
    assert problems(lake.destination) == []
    assert lake.more() == [(50, 60)]


def test_a_rollback_that_was_undone_is_none(lake: TableLake) -> None:
    """Back, and forth to where the last run was."""
    lake.table.step_back()()
    assert problems(lake.destination) == []
    assert lake.more() == [(20, 30)]
    assert lake.offsets() == list(range(30))


def test_a_rollback_that_is_undone_after_an_export(lake: TableLake) -> None:
    """Rolled back, exported, and restored to before that: the first run that was away counts again, the export is what
    is missing."""
    undo = lake.table.step_back()
    assert lake.more(on_mismatch="group") == [(20, 30)]
    undo()
    assert lake.offsets() == list(range(20))
    assert is_rolled_back(lake.destination, 20, 30)
    assert lake.more(on_mismatch="lake") == [(20, 40)]
    assert lake.offsets() == list(range(40))
    assert problems(lake.destination) == []


def test_a_rollback_may_be_answered_with_the_group(lake: TableLake) -> None:
    """``group``: what was rolled back stays out, and is on record."""
    lake.table.step_back()
    assert lake.more(on_mismatch="group") == [(20, 30)]
    assert lake.offsets() == [*range(10), *range(20, 30)]
    (row,) = verify(lake.destination)
    assert (row.start, row.end, row.rows, row.skipped, row.problem) == (0, 30, 20, 10, None)


def test_a_commit_whose_answer_is_lost_is_not_repeated(lake: TableLake, monkeypatch: pytest.MonkeyPatch) -> None:
    """The catalog, or the store, has taken it: each row is there once."""
    kind = type(open_format(lake.destination, lake.destination.layout()))
    add = kind._add_files  # type: ignore[attr-defined]

    def lose_answer(*args: object) -> None:
        add(*args)
        raise OSError("cut off")

    monkeypatch.setattr(kind, "_add_files", lose_answer)
    assert lake.more() == [(20, 30)]
    assert lake.offsets() == list(range(30))


@pytest.mark.parametrize("point", ["files written", "published for good"])
def test_a_rollback_while_an_export_runs_is_refused(lake: TableLake, point: str) -> None:
    """Before the decision nothing is done. After it the run waits until the table is as it was."""
    undo: list[Callable[[], object]] = []

    def roll_back(passed: str) -> None:
        if passed == point:
            undo.append(lake.table.step_back())

    with pytest.raises(TableChangedError, match=rf"{table_of(lake.topic)}.*--abandon"):
        lake.more(on_point=roll_back)
    assert lake.offsets() == list(range(10))
    undo[0]()
    lake.export(lake.group, lake.topic)
    assert lake.offsets() == list(range(30))
    assert problems(lake.destination) == []


def test_a_rollback_before_a_run_is_finished_is_reported_at_once(lake: TableLake) -> None:
    """Committed to the table, killed, and rolled back: the export that finishes it says so, and the next one asks."""

    def stop(passed: str) -> None:
        if passed == "table 1 of 1 committed":
            raise ZkgroupError("on purpose")

    with pytest.raises(ZkgroupError, match="on purpose"):
        lake.more(on_point=stop)
    lake.table.step_back()
    with pytest.raises(RefusedError, match=rf"{lake.group}\b.*\b{lake.topic}\b.*--on-mismatch"):
        lake.export(lake.group, lake.topic)
    with raises_mismatch():
        lake.export(lake.group, lake.topic)
    assert read(lake.export(lake.group, lake.topic, on_mismatch="lake")) == [(20, 30)]
    assert lake.offsets() == list(range(30))
    assert problems(lake.destination) == []


def test_a_table_that_was_dropped_asks(lake: TableLake) -> None:
    """``lake`` begins where the exports began."""
    assert lake.table.drop()
    with raises_mismatch():
        lake.more()
    assert lake.more(on_mismatch="lake") == [(0, 40)]
    assert lake.offsets() == list(range(40))
    assert problems(lake.destination) == []


def test_a_rollback_to_before_a_take_over_is_refused(lake: TableLake, unique: Callable[[str], str]) -> None:
    """Another group has taken over; what the first one has exported is gone."""
    second = unique("second")
    lake.send()
    assert read(lake.export(second, lake.topic, take_over=lake.group)) == [(20, 30)]
    lake.table.step_back(2)
    with pytest.raises(RefusedError, match=rf"\b{lake.topic}\b.*\b{second}\b.*\b{lake.group}\b"):
        lake.export(second, lake.topic)


def test_a_run_that_cannot_be_committed_is_given_up(lake: TableLake) -> None:
    """Decided, and then the table is dropped: no export goes on until the run is abandoned; then it asks."""

    def drop(point: str) -> None:
        if point == "record in the log":
            lake.table.drop()

    dropped = rf"{table_of(lake.topic)}.*--abandon"
    with pytest.raises(TableChangedError, match=dropped):
        lake.more(on_point=drop)
    with pytest.raises(TableChangedError, match=dropped):
        lake.export(lake.group, lake.topic)
    (run,) = lake.destination.leftover_runs(lake.group)
    warnings: list[Any] = []
    lake.export(lake.group, abandon=True, on_warning=warnings.append)
    assert {names(str(line), run, lake.group, lake.topic) for line in warnings} == {True}
    with raises_mismatch():
        lake.export(lake.group, lake.topic)
    assert read(lake.export(lake.group, lake.topic, on_mismatch="lake")) == [(0, 30)]
    assert lake.offsets() == list(range(30))
    assert problems(lake.destination) == []


# --- what else an export does ---------------------------------------------------------------------------------------


def test_a_run_without_rows(
    table_export: Export, make_topic: Callable[..., str], kafka: KafkaSettings, unique: Callable[[str], str],
    tmp_path: Path, kind: TableKind,
) -> None:  # fmt: skip
    """Nothing but aborted messages: the table has the run, and no file; the next one goes on."""
    topic, group = make_topic(), unique("group")
    abort(kafka, topic, 3)
    table_export(group, topic)
    table = walked_table(kind, tmp_path / "out", topic)
    assert (table.rows(), table.run_of(group)) == ([], 1)
    assert problems(Destination(FolderStore(tmp_path / "out"))) == []
    produce(kafka, topic, [ProducerRecord(b"x", None, 0)])
    assert read(table_export(group, topic)) == [(4, 5)]
    assert [row["offset"] for row in table.rows()] == [4]


def test_a_topic_that_was_recreated(lake: TableLake, registry: Registry, kafka: KafkaSettings) -> None:
    """Its offsets begin anew, in the same table, once that is answered."""
    recreate_topic(registry, lake.topic)
    produce(kafka, lake.topic, [ProducerRecord(b"%d" % i, None, 0) for i in range(5)])
    with raises_mismatch("recreated"):
        lake.export(lake.group, lake.topic)
    assert read(lake.export(lake.group, lake.topic, on_mismatch="lake")) == [(0, 5)]
    assert sorted(lake.offsets()) == sorted([*range(20), *range(5)])
    lake.table.compact(KEEPS)
    assert problems(lake.destination) == []


def test_a_backfill_and_a_take_over(
    table_export: Export, make_topic: Callable[..., str], kafka: KafkaSettings, unique: Callable[[str], str],
    tmp_path: Path, committed: Callable[..., int | None], kind: TableKind,
) -> None:  # fmt: skip
    """A backfill commits rows, and no offsets; a second one finds nothing. Another group takes over, and goes on. A
    table that is rolled back to before that is refused."""
    topic, first, second = make_topic(), unique("first"), unique("second")
    produce(kafka, topic, [ProducerRecord(b"%d" % i, None, 0) for i in range(30)])
    assert read(table_export(first, topic, begin=bound_at(topic, 20))) == [(20, 30)]
    assert read(table_export(first, topic, backfill=True)) == [(0, 20)]
    assert read(table_export(first, topic, backfill=True)) == []
    assert committed(first, topic) == 30
    produce(kafka, topic, [ProducerRecord(b"%d" % i, None, 0) for i in range(30, 40)])
    with pytest.raises(OwnedError, match=rf"\b{topic}\b.*\b{first}\b.*--take-over {first}\b"):
        table_export(second, topic)
    assert read(table_export(second, topic, take_over=first)) == [(30, 40)]
    table = walked_table(kind, tmp_path / "out", topic)
    assert [row["offset"] for row in table.rows()] == list(range(40))
    assert problems(Destination(FolderStore(tmp_path / "out"))) == []
    undo = table.step_back()
    with raises_mismatch() as raised:
        table_export(second, topic)
    assert mismatches_of(raised.value) == [(TopicPartition(topic, 0), "rolled back", 40, 30)]
    undo()
    assert read(table_export(second, topic)) == []


def test_the_summary_names_the_table(
    table_export: Export, make_topic: Callable[..., str], fill: Callable[..., object], unique: Callable[[str], str],
    tmp_path: Path, kind: TableKind,
) -> None:  # fmt: skip
    """What a reader opens; also where there is nothing new."""
    topic, group = make_topic(), unique("group")
    fill(topic, 5)
    name = f"kafka.{topic.replace('-', '_')}" if kind == "iceberg" else f"{tmp_path}/out/{topic}"
    for rows in (5, 0):
        assert [(row.rows, row.table) for row in table_export(group, topic)] == [(rows, name)]


@pytest.mark.long
@pytest.mark.timeout(2400)
@pytest.mark.parametrize("release", RELEASES)
def test_spark_reads_and_maintains_it(lake: TableLake, kind: TableKind, release: str) -> None:
    """Spark's own connectors, of another release: each row once, with its types; then they compact the table and
    remove what is old, and exports go on."""
    name = f"delta.`{lake.out}/{lake.topic}`" if kind == "delta" else f"zkgroup.kafka.{table_name(lake.topic)}"
    select = f"SELECT topic, partition, offset, value FROM {name} ORDER BY offset"
    now = datetime.now(UTC) + timedelta(hours=1)
    maintain = {
        "delta": [f"OPTIMIZE {name}", f"VACUUM {name} RETAIN 0 HOURS"],
        "iceberg": [
            f"CALL zkgroup.system.rewrite_data_files(table => '{name}', options => map('rewrite-all', 'true'))",
            f"CALL zkgroup.system.expire_snapshots(table => '{name}', older_than => TIMESTAMP '{now:%F %T}')",
        ],
    }[kind]
    catalog = str(lake.out / "_zkgroup/catalog.db")

    def rows(count: int) -> list[dict[str, Any]]:
        return [{"topic": lake.topic, "partition": 0, "offset": i, "value": str(i)} for i in range(count)]

    types, before, *_, after = foreign_spark(release, catalog, [f"DESCRIBE {name}", select, *maintain, select])
    kinds = {row["col_name"]: row["data_type"] for row in types}
    assert [kinds[column] for column in ("topic", "partition", "offset", "timestamp", "key", "value", "headers")] == [
        "string", "int", "bigint", "timestamp", "binary", "binary", "array<struct<key:string,value:binary>>",
    ]  # fmt: skip
    assert before == after == rows(20)
    assert len(lake.table.files()) == 1
    assert problems(lake.destination) == []
    assert lake.more() == [(20, 30)]
    assert lake.offsets() == list(range(30))
    assert foreign_spark(release, catalog, [select]) == [rows(30)]


@pytest.mark.long
def test_duckdb_reads_it(lake: TableLake) -> None:
    """By its own extensions, of another release: each row once."""
    query = f'SELECT topic, partition, "offset", value FROM {lake.table.duckdb_scan()} ORDER BY "offset"'
    assert foreign_duckdb(query) == [[lake.topic, 0, i, str(i)] for i in range(20)]
