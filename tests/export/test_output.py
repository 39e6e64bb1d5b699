"""The destination: what it may be, and that files appear at once, never over others, and are taken back."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from exports import files_in

from zkgroup.errors import RefusedError, UsageError, ZkgroupError
from zkgroup.export.output import OutputRun, check_destination, parse_destination, refuse_overlap
from zkgroup.export.plan import OffsetRange, WrittenFile
from zkgroup.protocol.names import TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.mark.parametrize(
    ("uri", "path"),
    [
        ("/a/b", "/a/b"),
        ("file:///a/b", "/a/b"),
        ("file:/a/b", "/a/b"),
        ("file://localhost/a", "/a"),
        ("file:///a%20b", "/a b"),
    ],
)
def test_folders_are_named_by_path_or_file_uri(uri: str, path: str) -> None:
    """The spellings that Spark and Java take for a local folder."""
    assert parse_destination(uri) == Path(path)


@pytest.mark.parametrize("uri", ["s3://bucket/x", "hdfs://name:8020/x", "gs://b", "file://host/a", "", " "])
def test_other_destinations_are_refused_in_words(uri: str) -> None:
    """What cannot be written to yet is said at once, and nothing is made of it on the local disk."""
    with pytest.raises(UsageError):
        parse_destination(uri)


def test_a_relative_path_is_taken_from_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks run elsewhere: they get an absolute path."""
    monkeypatch.chdir(tmp_path)
    assert parse_destination("out/x") == tmp_path / "out" / "x"


def test_a_destination_below_a_file_is_refused_and_nothing_is_made(tmp_path: Path) -> None:
    """A folder that can never be is found out before any work, without leaving a trace."""
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="file is no folder"):
        check_destination(tmp_path / "file" / "out")
    check_destination(tmp_path / "new" / "out")
    assert files_in(tmp_path) == ["file"]
    assert not (tmp_path / "new").exists()


def write(run: OutputRun, name: str, content: bytes, start: int, end: int) -> WrittenFile:
    """What a task does: a finished temporary file."""
    path = run.folder / f"{name}.tmp"
    path.write_bytes(content)
    return WrittenFile(str(path), start, end, 1, len(content))


def test_published_files_stay_and_the_rest_goes(tmp_path: Path) -> None:
    """A run leaves its published files under their final names, and no trace of its work."""
    with OutputRun(tmp_path / "out", "run") as run:
        run.publish(T0, write(run, "a", b"A", 0, 10))
        write(run, "b", b"B", 10, 20)
        run.settle()
        assert files_in(tmp_path / "out") == [
            "_zkgroup/run.lock",
            "_zkgroup/run/b.tmp",
            "topic=t/partition=0/0-10.parquet",
        ]
    assert files_in(tmp_path / "out") == ["topic=t/partition=0/0-10.parquet"]
    assert not (tmp_path / "out" / "_zkgroup").exists()


def test_a_file_is_never_overwritten(tmp_path: Path) -> None:
    """A final name that is taken is an error, and the file that has it keeps its content."""
    with OutputRun(tmp_path, "one") as run:
        run.publish(T0, write(run, "a", b"first", 0, 10))
    with OutputRun(tmp_path, "two") as run, pytest.raises(RefusedError, match=r"0-10\.parquet exists already"):
        run.publish(T0, write(run, "b", b"second", 0, 10))
    assert (tmp_path / "topic=t/partition=0/0-10.parquet").read_bytes() == b"first"


def test_withdrawing_leaves_what_was_there_and_what_is_kept(tmp_path: Path) -> None:
    """Taking back removes this run's files only, except for the partitions that are committed."""
    with OutputRun(tmp_path, "one") as run:
        run.publish(T0, write(run, "a", b"A", 0, 10))
    with OutputRun(tmp_path, "two") as run:
        run.publish(T0, write(run, "b", b"B", 10, 20))
        run.publish(T1, write(run, "c", b"C", 0, 5))
        run.publish(TopicPartition("u", 0), write(run, "d", b"D", 0, 5))
        run.withdraw(keep=[T1])
    assert files_in(tmp_path) == ["topic=t/partition=0/0-10.parquet", "topic=t/partition=1/0-5.parquet"]
    assert not (tmp_path / "topic=u").exists()


def test_a_file_that_changed_or_vanished_is_not_published(tmp_path: Path) -> None:
    """Only what a task told of, as it told of it: a file that is missing here or has another size stops the export."""
    with OutputRun(tmp_path, "run") as run:
        cut = write(run, "a", b"AAAA", 0, 10)
        Path(cut.path).write_bytes(b"AA")
        with pytest.raises(ZkgroupError, match="2 bytes, not 4"):
            run.publish(T0, cut)
        with pytest.raises(ZkgroupError, match="share the folder"):
            run.publish(T0, WrittenFile(str(run.folder / "never.tmp"), 0, 10, 1, 4))
    assert files_in(tmp_path) == []


@pytest.mark.parametrize(
    ("start", "end", "overlaps"), [(0, 10, False), (20, 30, False), (9, 11, True), (19, 25, True), (12, 13, True)]
)
def test_offsets_that_are_there_are_not_written_again(tmp_path: Path, start: int, end: int, overlaps: bool) -> None:
    """Names tell which offsets files hold: a range that touches one of them is refused, a neighbour is not."""
    with OutputRun(tmp_path, "one") as run:
        run.publish(T0, write(run, "a", b"A", 10, 20))
    refuse_overlap(tmp_path, [OffsetRange(T1, start, end)])
    if overlaps:
        with pytest.raises(RefusedError, match="already holds offsets 10 to 19 of t-0"):
            refuse_overlap(tmp_path, [OffsetRange(T0, start, end)])
    else:
        refuse_overlap(tmp_path, [OffsetRange(T0, start, end)])


_KILLED = """
import os, signal, sys
from pathlib import Path
from zkgroup.export.output import OutputRun
run = OutputRun(Path(sys.argv[1]), "killed").__enter__()
(run.folder / "x.tmp").write_bytes(b"x")
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_killed_export_left_is_removed_and_a_living_one_is_left_alone(tmp_path: Path) -> None:
    """Leftovers are told from work under way by a lock that dies with its process."""
    subprocess.run([sys.executable, "-c", _KILLED, str(tmp_path)], check=False, timeout=60)
    assert files_in(tmp_path) == ["_zkgroup/killed.lock", "_zkgroup/killed/x.tmp"]
    with OutputRun(tmp_path, "living") as living:
        write(living, "y", b"y", 0, 1)
        with OutputRun(tmp_path, "mine") as mine:
            assert mine.remove_leftovers() == 1
            assert mine.remove_leftovers() == 0
        assert files_in(tmp_path) == ["_zkgroup/living.lock", "_zkgroup/living/y.tmp"]
    assert files_in(tmp_path) == []
