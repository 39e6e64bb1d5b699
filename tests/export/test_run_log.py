"""The log of a destination's runs: what is missing or was changed stops exports with its name, and is not touched."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from export_points import Export, Paused, at
from exports import (
    commit_offsets,
    files_in,
    join_lines,
    messages_in,
    mismatches_of,
    problems,
    published_in,
    unassigned_problems,
)
from lines import names

from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.errors import RefusedError
from zkgroup.export.checks.run_reports import history, status
from zkgroup.export.destination.run_log import Destination
from zkgroup.export.model.layout import Layout, LayoutOptions
from zkgroup.export.model.plan_types import OffsetRange
from zkgroup.export.model.run_record import DamagedDocumentError, decode_record, digest
from zkgroup.export.planning.mismatch import MismatchError
from zkgroup.export.run.run_states import PlannedRun
from zkgroup.protocol import znodes
from zkgroup.protocol.names import TopicPartition
from zkgroup.protocol.operations import Delete


def interrupt() -> None:
    raise KeyboardInterrupt


def kill_at(export: Export, group: str, topic: str, point: str, **options: object) -> None:
    """An export that ends at a point without tidying up, as after SIGKILL."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PlannedRun, "_drop", lambda run: None)
        with pytest.raises(KeyboardInterrupt):
            export(group, topic, on_point=at(point, interrupt), **options)


@pytest.fixture
def three(in_process: Export, forty: tuple[str, str], fill: Callable[..., object]) -> tuple[str, str]:
    """A topic and a group with three runs."""
    topic, group = forty
    for count in (10, 10, 10):
        in_process(group, topic, max_messages=count)
    return forty


def test_records_have_numbers_without_a_gap(three: tuple[str, str], destination: Destination) -> None:
    """The newest one has what all account for."""
    topic, group = three
    assert [entry.number for entry in destination.entries(group)] == [1, 2, 3]
    assert [record.partitions[0].end for record in destination.records(group)] == [10, 20, 30]
    newest = destination.newest(group)
    assert newest is not None
    assert newest.coverage[topic].partitions == {0: ((0, 30),)}
    assert newest.coverage[topic].ends == {0: 30}
    assert [row.rows for row in history(destination)] == [10, 10, 10]


#: Decodes a record in many threads at once, in 20 processes of which none has decoded one before.
DECODING = """
import os, sys, threading
from zkgroup.export.model.run_record import decode_record

data, gate = open(sys.argv[1], "rb").read(), threading.Barrier(16)
sys.setswitchinterval(1e-6)

def decode():
    gate.wait()
    decode_record("document", data)

for _ in range(20):
    if (child := os.fork()) == 0:
        threads = [threading.Thread(target=decode) for _ in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
"""


def test_threads_decode_their_first_records_at_once(
    three: tuple[str, str], destination: Destination, tmp_path: Path
) -> None:
    """As ``--history`` does: the process lives."""
    group = three[1]
    path = tmp_path / "out" / "_zkgroup/log" / group / destination.entries(group)[0].name
    subprocess.run([sys.executable, "-c", DECODING, str(path)], timeout=60, check=True)


@pytest.mark.parametrize("number", [0, 1, 2])
@pytest.mark.parametrize("harm", ["removed", "cut", "changed", "emptied", "another"])
def test_a_damaged_record_is_named_and_left_alone(
    three: tuple[str, str], in_process: Export, destination: Destination, tmp_path: Path, number: int, harm: str
) -> None:
    """Exports refuse what they depend on, ``--verify`` and ``--history`` name it; restored, all goes on."""
    topic, group = three
    entry = destination.entries(group)[number]
    path = tmp_path / "out" / "_zkgroup/log" / group / entry.name
    data = path.read_bytes()
    changed = {"cut": data[:99], "changed": data.replace(b'"end": 30', b'"end": 29'), "emptied": b"", "another": b"{}"}
    if harm == "removed":
        path.unlink()
    else:
        path.write_bytes(changed[harm] if changed[harm] != data else data + b" ")
    before = files_in(tmp_path / "out")
    if number == 2 and harm == "removed":  # the log ends earlier: the group is ahead of it
        with pytest.raises(MismatchError) as raised:
            in_process(group, topic)
        assert mismatches_of(raised.value) == [(TopicPartition(topic, 0), "ahead", 30, 20)]
        for answer in ("lake", "group"):
            with pytest.raises(RefusedError, match=rf"/20-30\.parquet\b.*\b20\b.*\b29\b.*\b{topic}-0\b"):
                in_process(group, topic, on_mismatch=answer)
        assert names(join_lines(unassigned_problems(destination)), f"topic={topic}/partition=0/20-30.parquet")
    elif number == 2 or harm == "removed":
        # One that is gone is known by its number only.
        named = [number + 1, path.parent] if harm == "removed" else [path]
        with pytest.raises(DamagedDocumentError) as damaged:
            in_process(group, topic)
        assert names(str(damaged.value), *named)
        assert names(join_lines(unassigned_problems(destination)), *named)
    else:
        assert names(join_lines(unassigned_problems(destination)), path)
        assert [row.state for row in history(destination)].count("damaged") == 1
    assert files_in(tmp_path / "out") == before
    path.write_bytes(data)
    assert [row.rows for row in in_process(group, topic)] == [10]
    assert problems(destination) == []


def test_a_missing_record_hides_nothing_of_a_run_that_was_left(
    three: tuple[str, str], in_process: Export, registry: Registry, destination: Destination, tmp_path: Path
) -> None:
    """``--verify``, ``--status`` and ``--history`` say what they can."""
    topic, group = three
    kill_at(in_process, group, topic, "decided")
    (tmp_path / "out/_zkgroup/log" / group / destination.entries(group)[0].name).unlink()
    assert names(join_lines(unassigned_problems(destination)), 1, tmp_path / "out/_zkgroup/log" / group)
    assert [row.step for row in status(registry, group, destination)] == ["decided"]
    assert len(list(history(destination))) == 2


def test_a_record_that_was_changed_before_it_is_in_the_log_is_not_carried_out(
    in_process: Export, forty: tuple[str, str], destination: Destination, tmp_path: Path
) -> None:
    """The pointer names the record by its hash; the run is finished once it is restored, or given up."""
    topic, group = forty
    kill_at(in_process, group, topic, "decided")
    (path,) = (tmp_path / "out").rglob("record.json")
    data = path.read_bytes()
    path.write_bytes(data.replace(b'"end": 40', b'"end": 39'))
    with pytest.raises(DamagedDocumentError, match=rf"{path}\b"):
        in_process(group, topic)
    assert published_in(tmp_path / "out") == []
    path.write_bytes(data)
    assert [row.rows for row in in_process(group, topic)] == [40]
    assert problems(destination) == []


def test_a_file_that_is_gone_before_it_is_published_is_named(
    in_process: Export, forty: tuple[str, str], destination: Destination, tmp_path: Path
) -> None:
    """Nothing is committed; given up, the run's messages are read again."""
    topic, group = forty
    kill_at(in_process, group, topic, "decided")
    (path,) = (tmp_path / "out").rglob("*.tmp")
    path.unlink()
    (run,) = destination.leftover_runs(group)
    with pytest.raises(RefusedError, match=rf"\b{run}\b.*{group}\b.*\b1\b.*/0-40\.parquet\b.*--abandon"):
        in_process(group, topic)
    warnings: list[Any] = []
    in_process(group, abandon=True, on_warning=warnings.append)
    assert [(warning.run, warning.lost) for warning in warnings] == [(run, ())]
    assert [row.rows for row in in_process(group, topic)] == [40]
    assert len(messages_in(tmp_path / "out")) == 40
    assert problems(destination) == []


def test_a_destination_that_is_lost(
    in_process: Export, forty: tuple[str, str], registry: Registry, tmp_path: Path
) -> None:
    """A decided run waits for its destination, under whatever name; ``--abandon`` gives it up where that is lost, and
    nowhere else."""
    topic, group = forty
    out, elsewhere = tmp_path / "out", tmp_path / "elsewhere"
    kill_at(in_process, group, topic, "decided")
    with pytest.raises(RefusedError, match=rf"{group}\b.*{elsewhere}\b.*{out}\b.*--to {out}\b.*--abandon"):
        in_process(group, topic, root=elsewhere)
    with pytest.raises(RefusedError, match=rf"{group}\b.*{out}\b.*--abandon"):
        in_process(group, abandon=True)
    out.rename(elsewhere)
    assert [row.rows for row in in_process(group, topic, root=elsewhere)] == [40]
    kill_at(in_process, f"{group}-2", topic, "decided")
    shutil.rmtree(out)
    in_process(f"{group}-2", abandon=True)
    assert [row.rows for row in in_process(f"{group}-2", topic)] == [40]


def test_another_destination_gives_nothing_up(in_process: Export, forty: tuple[str, str], tmp_path: Path) -> None:
    """A mistyped ``--to`` with ``--abandon``."""
    topic, group = forty
    kill_at(in_process, group, topic, "decided")
    with pytest.raises(RefusedError, match=rf"{group}\b.*{tmp_path}/out\b.*{tmp_path}/typo\b.*--to {tmp_path}/out\b"):
        in_process(group, root=tmp_path / "typo", abandon=True)
    assert [row.rows for row in in_process(group, topic)] == [40]


def test_a_run_in_the_log_that_lost_a_file_is_given_up_as_far_as_it_is_lost(
    in_process: Export, forty: tuple[str, str], destination: Destination, tmp_path: Path
) -> None:
    """Its record stays: what is there is published, and the rest is a backfill's."""
    topic, group = forty
    kill_at(in_process, group, topic, "record in the log", range_messages=10, target_bytes=1)
    lost, *_ = sorted((tmp_path / "out").rglob("*.tmp"))
    lost.unlink()
    (run,) = destination.leftover_runs(group)
    with pytest.raises(RefusedError) as raised:
        in_process(group, topic)
    assert names(str(raised.value), run, group, 1, "--abandon")
    warnings: list[Any] = []
    in_process(group, topic, abandon=True, on_warning=warnings.append)
    assert names(str(warnings[-1]), 1, run, group)
    assert warnings[-1].remedy.commands == (("export", "--to", str(tmp_path / "out"), "--verify"),)
    with pytest.raises(MismatchError):
        in_process(group, topic)
    in_process(group, topic, on_mismatch="lake")
    assert len(messages_in(tmp_path / "out")) == 30
    in_process(group, topic, backfill=True)
    assert len(messages_in(tmp_path / "out")) == 40
    assert problems(destination) == []


def test_the_end_of_a_run_leaves_others_alone(
    in_process: Export, forty: tuple[str, str], fill: Callable[..., object], destination: Destination, tmp_path: Path
) -> None:
    """Its commit has released the lock: another export writes already when it tidies up."""
    topic, group = forty
    with Paused(lambda passed: in_process(group, topic, on_point=passed), "committed") as first:
        fill(topic, 10)
        with Paused(lambda passed: in_process(group, topic, on_point=passed), "files written") as second:
            first.finish()
            second.finish()
    assert len(messages_in(tmp_path / "out")) == 50
    assert problems(destination) == []


def test_a_run_whose_files_are_gone_is_not_decided(
    in_process: Export, forty: tuple[str, str], destination: Destination, tmp_path: Path
) -> None:
    """Another process has taken it for dead, and tidied up, while it was paused."""
    topic, group = forty

    def tidy_up() -> None:
        shutil.rmtree(tmp_path / "out/_zkgroup/runs")

    with pytest.raises(RefusedError, match=rf"\b1\b.*{tmp_path}/out/_zkgroup/runs/{group}/"):
        in_process(group, topic, on_point=at("files written", tidy_up))
    assert destination.entries(group) == []
    assert [row.rows for row in in_process(group, topic)] == [40]


def test_a_log_that_is_missing_stops_exports(three: tuple[str, str], in_process: Export, tmp_path: Path) -> None:
    """Alone, or with all of zkgroup's documents: nothing begins anew where there are files that no record names."""
    topic, group = three
    kept, copy = tmp_path / "out/_zkgroup", tmp_path / "copy"
    shutil.copytree(kept, copy)
    for gone in (kept / "log", kept):
        shutil.rmtree(gone)
        with pytest.raises(DamagedDocumentError, match=rf"\b{topic}\b.*{kept}/log\b"):
            in_process(group, topic)
    shutil.copytree(copy, kept)
    assert [row.rows for row in in_process(group, topic)] == [10]


def test_what_is_given_up_behind_the_groups_offset_is_named(
    in_process: Export, forty: tuple[str, str], registry: Registry, tmp_path: Path
) -> None:
    """Another consumer has passed some of what only the lost destination had."""
    topic, group = forty
    kill_at(in_process, group, topic, "decided")
    commit_offsets(registry, group, {TopicPartition(topic, 0): 15})
    shutil.rmtree(tmp_path / "out")
    warnings: list[Any] = []
    in_process(group, abandon=True, on_warning=warnings.append)
    assert [warning.lost for warning in warnings] == [(OffsetRange(TopicPartition(topic, 0), 0, 15),)]


def test_a_run_in_the_log_needs_no_zookeeper_to_be_published(
    in_process: Export, forty: tuple[str, str], registry: Registry, destination: Destination, tmp_path: Path
) -> None:
    """Its pointer is gone with ZooKeeper's data: the next export publishes the rest, and asks where to continue."""
    topic, group = forty
    kill_at(in_process, group, topic, "record in the log")
    assert published_in(tmp_path / "out") == []
    registry.write(Delete(znodes.export_state(group)))
    with pytest.raises(MismatchError) as raised:
        in_process(group, topic)
    assert mismatches_of(raised.value) == [(TopicPartition(topic, 0), "no offset", None, 40)]
    assert len(messages_in(tmp_path / "out")) == 40
    in_process(group, topic, on_mismatch="lake")
    assert len(messages_in(tmp_path / "out")) == 40
    assert problems(destination) == []


def test_what_was_written_and_never_decided_is_kept(
    in_process: Export, forty: tuple[str, str], registry: Registry, destination: Destination, tmp_path: Path
) -> None:
    """ZooKeeper may have lost the decision: the folder stays, and is named, until somebody removes it."""
    topic, group = forty
    kill_at(in_process, group, topic, "decided")
    registry.write(Delete(znodes.export_state(group)))
    (run,) = destination.leftover_runs(group)
    warnings: list[object] = []
    in_process(group, topic, max_messages=10, on_warning=warnings.append)
    assert names(join_lines(warnings), f"{destination}/{destination.work(group, run)}")
    assert destination.leftover_runs(group) == [run]
    in_process(group, topic)
    assert len(messages_in(tmp_path / "out")) == 40


def test_what_the_same_export_reads_again_is_not_reported(
    in_process: Export, forty: tuple[str, str], destination: Destination, tmp_path: Path
) -> None:
    """Killed between its record and its decision, a run is no news once the next one has its messages."""
    topic, group = forty
    kill_at(in_process, group, topic, "record written")
    warnings: list[object] = []
    in_process(group, topic, on_warning=warnings.append)
    assert warnings == []
    assert destination.leftover_runs(group) == []
    assert len(messages_in(tmp_path / "out")) == 40


def test_an_unrecorded_file_is_in_the_way(
    three: tuple[str, str], in_process: Export, destination: Destination, tmp_path: Path
) -> None:
    """A name of an export, and no record: refused before anything is read, and nothing is written over it."""
    topic, group = three
    path = tmp_path / "out" / f"topic={topic}/partition=0/35-50.parquet"
    path.write_bytes(b"odd")
    with pytest.raises(RefusedError, match=rf"{path}\b.*\b35\b.*\b39\b.*\b{topic}-0\b"):
        in_process(group, topic)
    assert path.read_bytes() == b"odd"
    assert names(join_lines(unassigned_problems(destination)), f"topic={topic}/partition=0/35-50.parquet")
    path.unlink()
    assert [row.rows for row in in_process(group, topic)] == [10]


def test_a_copy_whose_log_has_two_ends_is_refused(
    three: tuple[str, str], in_process: Export, destination: Destination, tmp_path: Path
) -> None:
    """Folders of a destination and of an older copy that was exported to, put together."""
    topic, group = three
    log = tmp_path / "out" / "_zkgroup/log" / group
    entry = destination.entries(group)[-1]
    shutil.copy(log / entry.name, log / f"00000003-0123abcd.{entry.hash}.json")
    with pytest.raises(DamagedDocumentError, match=rf"\b4\b.*{log}\b.*\b3\b"):
        in_process(group, topic)


def test_a_layout_binds_from_the_first_decision_on(
    in_process: Export, forty: tuple[str, str], destination: Destination
) -> None:
    """What failed before it binds nothing; later runs need not name it, and are refused if they contradict it."""
    topic, group = forty
    kill_at(in_process, group, topic, "files written", layout=LayoutOptions(by=("date",)))
    in_process(group, topic, max_messages=10, layout=LayoutOptions(by=()))
    in_process(group, topic, max_messages=10)
    with pytest.raises(RefusedError, match="--partition-by none"):
        in_process(group, topic, layout=LayoutOptions(by=("partition",)))
    layout = destination.layout()
    assert layout is not None
    assert layout.by == ()


def test_of_two_layouts_none_is_chosen(three: tuple[str, str], in_process: Export, destination: Destination) -> None:
    """One of them is of an export that was killed as it began beside another one."""
    data = msgspec.json.encode(Layout(by=()), order="sorted")
    destination.store.write(f"_zkgroup/layout/{digest(data)[:16]}.json", data)
    with pytest.raises(RefusedError, match=r"--partition-by none\b.*--partition-by partition\b.*/_zkgroup/layout\b"):
        in_process(three[1], three[0])


def test_a_decided_run_is_finished_by_no_backfill(in_process: Export, forty: tuple[str, str]) -> None:
    """It would move the group."""
    topic, group = forty
    kill_at(in_process, group, topic, "decided")
    with pytest.raises(RefusedError, match=rf"{group}\b.*--backfill"):
        in_process(group, topic, backfill=True)
    assert [(row.start, row.end) for row in in_process(group, topic)] == [(0, 40)]


def test_a_record_of_another_format_is_named() -> None:
    """A later release may have written it."""
    for data in (b'{"format": 2}', b"{}", b'{"format": "x"}'):
        with pytest.raises(DamagedDocumentError, match=r"^here\b.*\bformat\b"):
            decode_record("here", data)


@pytest.mark.parametrize("document", ["layout/*", "topics/*/*"])
def test_a_missing_layout_or_owner_stops_exports(
    three: tuple[str, str], in_process: Export, destination: Destination, tmp_path: Path, document: str
) -> None:
    """Records are there, and the document of all of them is gone: nothing is written in its place."""
    topic, group = three
    (path,) = (tmp_path / "out/_zkgroup").glob(document)
    data = path.read_bytes()
    path.unlink()
    with pytest.raises(DamagedDocumentError, match=rf"{path.parent}\b"):
        in_process(group, topic)
    assert not path.exists()
    assert names(join_lines(unassigned_problems(destination)), path.parent)
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(data)
    assert [row.rows for row in in_process(group, topic)] == [10]
