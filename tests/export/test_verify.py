"""Reading exports: what was done, what is under way, and whether every offset is there once."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cli import run
from export_points import drive_export
from exports import join_lines, problem_rows, problems, root_of, unassigned_problems
from lines import names

from zkgroup.clients.kafka.client import KafkaSettings
from zkgroup.clients.zookeeper import ZooKeeperSettings
from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.errors import Remedy
from zkgroup.export.checks.run_reports import history, status
from zkgroup.export.checks.verify import Mend, VerifyRow, read_committed, remedy_for, verify
from zkgroup.export.destination.run_log import Destination
from zkgroup.export.model.choices import OnMismatch
from zkgroup.export.model.layout import Layout
from zkgroup.export.model.run_record import DamagedDocumentError, RunRecord
from zkgroup.export.run.claim import ExportClaim
from zkgroup.export.run.run_export import PartitionSummary
from zkgroup.groups.changes.export_znodes import Pointer, State, encode_pointer
from zkgroup.protocol import znodes
from zkgroup.protocol.names import TopicPartition
from zkgroup.protocol.operations import Acl, Code, Create, Delete, Ensure, Get, Node, SetData
from zkgroup.sandbox.local_cluster import Sandbox


@pytest.fixture
def exported(
    in_process: Callable[..., list[PartitionSummary]], make_topic: Callable[..., str], fill: Callable[..., object],
    unique: Callable[[str], str], commit: Callable[..., None], destination: Destination,
) -> tuple[Destination, str, str]:  # fmt: skip
    """Three runs of a group: 0 to 20 in two files, 20 to 30, and 35 to 40 behind a gap that was recorded."""
    topic, group = make_topic(), unique("group")
    fill(topic, 40)
    in_process(group, topic, max_messages=20, range_messages=10)
    in_process(group, topic, max_messages=10)
    commit(group, {TopicPartition(topic, 0): 35})
    in_process(group, topic, on_mismatch="group")
    return destination, group, topic


def newest(destination: Destination, group: str) -> RunRecord:
    found = destination.newest(group)
    assert found is not None
    return found


def record_files(destination: Destination, group: str) -> list[Path]:
    """The records of a group, the oldest first."""
    return sorted((root_of(destination) / "_zkgroup" / "log" / group).iterdir())


def file(destination: Destination, topic: str, name: str) -> Path:
    return root_of(destination) / f"topic={topic}" / "partition=0" / f"{name}.parquet"


def test_what_is_as_it_was_left_has_no_problems(exported: tuple[Destination, str, str], registry: Registry) -> None:
    """One row for the partition, over all runs, with what was skipped knowingly; the group's offset agrees."""
    destination, group, topic = exported
    committed = {group: read_committed(registry, group, newest(destination, group), print)}
    assert verify(destination, committed) == [VerifyRow(topic, 0, 0, 40, 35, 0, 0, 5, 4)]
    assert [(row.state, row.rows, row.files, row.skipped, row.kind) for row in history(destination)] == [
        ("exported", 20, 2, 0, "export"),
        ("exported", 10, 1, 0, "export"),
        ("exported", 5, 1, 5, "export"),
    ]
    assert [row.run[:8] for row in history(destination, [group])] == ["00000001", "00000002", "00000003"]


def test_every_change_of_a_file_is_named(exported: tuple[Destination, str, str]) -> None:
    """Missing, cut, replaced by another, renamed, foreign: each by its name and its offsets."""
    destination, group, topic = exported
    ten, twenty, thirty = (file(destination, topic, name) for name in ("0-10", "10-20", "20-30"))
    content = ten.read_bytes()

    name, run = f"topic={topic}/partition=0/0-10.parquet", destination.entries(group)[0].run

    ten.unlink()
    (missing,) = problem_rows(destination)
    assert (missing.start, missing.end, missing.mend) == (0, 10, "backfill")
    assert names(str(missing.problem), name, run)

    ten.write_bytes(content[:-20])
    (unreadable,) = problem_rows(destination)
    assert (unreadable.start, unreadable.end, unreadable.mend) == (0, 10, "file")
    assert names(str(unreadable.problem), name)

    shutil.copyfile(twenty, ten)
    replaced = problem_rows(destination)
    assert {(row.start, row.end, row.mend) for row in replaced} == {(0, 10, "file")}
    assert names(join_lines(row.problem for row in replaced), name, f"{topic}-0", 10, 20)

    table = pq.ParquetFile(thirty).read()
    pq.write_table(table.slice(0, 9), ten)
    assert names(join_lines(row.problem for row in problem_rows(destination)), name, 9, run, 10)

    ten.write_bytes(content)
    assert problems(destination) == []
    shutil.copyfile(twenty, file(destination, topic, "5-8"))
    for _ in range(2):
        (foreign,) = unassigned_problems(destination)
        assert names(foreign, f"topic={topic}/partition=0/5-8.parquet")
        pq.write_table(pa.table({"offset": [5]}), file(destination, topic, "5-8"))


def test_every_file_that_a_reader_would_take_is_in_a_record(exported: tuple[Destination, str, str]) -> None:
    """Copies and foreign files, wherever they lie and however they are called; what no reader takes does not matter."""
    destination, _, topic = exported
    root, ten = root_of(destination), file(destination, topic, "0-10")
    for name in ("_SUCCESS", ".hidden", f"topic={topic}/_notes/readme.txt", "_zkgroup/readme"):
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text("x")
    assert problems(destination) == []
    here = f"topic={topic}/partition=0"
    copies = (f"{here}/copy.parquet", f"{here}/0-10 (1).parquet", f"topic={topic}/copy.parquet", "copy.parquet")
    for name in (*copies, "topic=other/junk.parquet", f"{here}/junk", "readme.txt", "_x/junk.parquet"):
        (root / name).parent.mkdir(exist_ok=True)
        shutil.copyfile(ten, root / name)
        (row,) = problem_rows(destination)
        assert row == VerifyRow(*4 * [None], problem=row.problem, mend="person", remedy=row.remedy)
        assert row.remedy is not None
        assert str(row.problem).startswith(f"{name} ")
        (root / name).unlink()


@pytest.mark.parametrize("damage", [{"rows": "50"}, {"ranges": None}, {"name": 3}])
def test_a_damaged_record_is_a_problem_and_hides_no_other(
    exported: tuple[Destination, str, str], damage: dict[str, object]
) -> None:
    """It is named, in one line; its files and offsets are then in no record; all others are judged, and listed."""
    destination, group, topic = exported
    path = record_files(destination, group)[0]
    document = json.loads(path.read_text())
    document["files"][0] |= damage
    path.write_text(json.dumps(document))
    file(destination, topic, "20-30").unlink()
    rows = problem_rows(destination)
    (named,) = [row for row in rows if row.topic is None and row.group == group]
    assert names(str(named.problem), path)
    assert [names(str(row.problem), "20-30.parquet") for row in rows if row.start == 20] == [True]
    folder = f"topic={topic}/partition=0"
    unnamed = join_lines(unassigned_problems(destination))
    assert [names(unnamed, f"{folder}/{name}.parquet") for name in ("0-10", "10-20", "35-40")] == [True, True, False]
    found: list[DamagedDocumentError] = []
    states = [row.state for row in history(destination, on_damaged=found.append)]
    assert states == ["damaged", "exported", "exported"]
    assert [error.message for error in found] == [named.problem]


def test_a_record_that_is_gone_or_doubled_is_named(exported: tuple[Destination, str, str]) -> None:
    """Without one its offsets are in no record, and its files, too; a copy of one under
    another number has all its offsets twice."""
    destination, group, topic = exported
    first, second, _ = record_files(destination, group)
    kept = second.rename(root_of(destination).with_name("kept"))
    assert (20, 30, "backfill") in [(row.start, row.end, row.mend) for row in problem_rows(destination)]
    unassigned = join_lines(unassigned_problems(destination))
    assert names(unassigned, f"topic={topic}/partition=0/20-30.parquet")
    assert names(unassigned, 2, second.parent)
    kept.rename(second)
    shutil.copyfile(first, first.with_name(f"00000004-{first.name.partition('-')[2]}"))
    assert (0, 20, "person") in [(row.start, row.end, row.mend) for row in problem_rows(destination)]


def test_a_group_that_was_moved_is_named(
    exported: tuple[Destination, str, str], registry: Registry, commit: Callable[..., None]
) -> None:
    """Forward, back below a gap that nobody recorded, or gone."""
    destination, group, topic = exported
    for offset, interval in ((47, (40, 47)), (12, (12, 40))):
        commit(group, {TopicPartition(topic, 0): offset})
        committed = {group: read_committed(registry, group, newest(destination, group), print)}
        (row,) = problem_rows(destination, committed=committed)
        assert (row.start, row.end, row.group, row.mend) == (*interval, group, "mismatch")
        assert names(str(row.problem), group, offset, 40)
    nowhere = {group: {TopicPartition(topic, 0): None}}
    (row,) = problem_rows(destination, committed=nowhere)
    assert (row.start, row.end, row.group, row.mend) == (40, 40, group, "mismatch")
    assert names(str(row.problem), group, 40)


def test_an_offset_that_is_none_hides_nothing_of_the_files(
    exported: tuple[Destination, str, str], registry: Registry, cluster: Sandbox
) -> None:
    """Nothing was checked, for one node that somebody has written anything to."""
    destination, group, topic = exported
    path = znodes.offset(group, TopicPartition(topic, 0))
    registry.write(SetData(path, b"abc"))
    verifying = (
        "export",
        "--group",
        group,
        "--to",
        destination.store.uri,
        "--verify",
        "-z",
        cluster.connect,
        "--output",
        "json",
    )
    done = run(*verifying)
    assert (done.returncode, len(json.loads(done.stdout))) == (1, 1)
    warning, error = done.stderr.splitlines()
    assert names(warning, group, path, "'abc'")
    assert names(error, path, "'abc'")
    next(root_of(destination).rglob("*.parquet")).unlink()
    done = run(*verifying)
    assert (done.returncode, len(json.loads(done.stdout))) == (6, 2)
    assert names(done.stderr, group, path, "'abc'")


@pytest.mark.parametrize(("offset", "answer"), [(12, "lake"), (47, "lake"), (47, "group")])
def test_what_is_advised_for_a_group_that_was_moved_repairs_it(
    exported: tuple[Destination, str, str], in_process: Callable[..., list[PartitionSummary]],
    fill: Callable[..., object], commit: Callable[..., None], cluster: Sandbox, offset: int, answer: OnMismatch,
) -> None:  # fmt: skip
    """The files are as they should be: neither are they to be moved away, nor is there anything for a backfill. One
    says where the export is to continue, and then all is right."""
    destination, group, topic = exported
    fill(topic, 10)
    commit(group, {TopicPartition(topic, 0): offset})
    verifying = ("export", "--group", group, "--to", destination.store.uri, "--verify", "-z", cluster.connect)
    done = run(*verifying)
    assert done.returncode == 6
    (line,) = done.stderr.splitlines()
    command = f"zkgroup -z {cluster.connect} export --group {group} --to {destination} --on-mismatch lake"
    assert names(line, group, offset, 40, command)
    assert (line.endswith(command), line.count("zkgroup -z")) == (True, 1)
    in_process(group, topic, on_mismatch=answer)
    done = run(*verifying)
    assert (done.returncode, done.stderr) == (0, "")


def problem(topic: str | None, group: str | None, mend: Mend | None, start: int = 0, partition: int = 0) -> VerifyRow:
    return VerifyRow(topic, partition, start, start + 9, problem="why", group=group, mend=mend)


def test_remedies_are_for_the_problems_that_there_are() -> None:
    """What a person has to do comes first, then commands; each once."""
    lake = Path("/lake")
    damaged, gone = problem("t", "g", "person"), problem("t", "g", "backfill")
    moved = problem("u", "g", "mismatch")
    mends: tuple[Mend, ...] = ("person", "file", "table")
    by_hand = [remedy_for([problem("t", "g", mend)], lake) for mend in mends]
    assert [one.commands for one in by_hand] == [()] * 3
    assert len({one.text for one in by_hand} - {""}) == 3
    assert "--verify" in by_hand[1].text
    place = ("export", "--group", "g", "--to", "/lake")
    filling = (*place, "--backfill", "--from", "t:0=0", "--until", "t:0=9", "t")
    assert remedy_for([gone], lake).commands == (filling,)
    continuing = (*place, "--on-mismatch", "lake")
    assert remedy_for([moved, moved], lake).commands == (continuing,)
    schema = ["--value-format", "avro", "--value-schema", "FILE"]
    assert Layout(value="avro").schema_options == schema
    for row, command in ((moved, continuing), (gone, filling)):  # an export needs the schema, its end does not
        assert remedy_for([row], lake, schema).commands == (
            tuple(word for word in command if word != "t") + tuple(schema) + ("t",) * (row is gone),
        )
    assert remedy_for([problem("t", "g", "export")], lake, schema).commands == (place,)
    everything = remedy_for([moved, gone, damaged, problem("t", "g", None)], lake)
    assert everything.text.startswith(by_hand[0].text)
    assert everything.commands == (continuing, filling)
    assert remedy_for([problem("t", "g", None)], lake) == Remedy("")


def test_remedies_name_groups_topics_and_the_destination() -> None:
    """As a shell takes them: each group that has exported what is missing, with the topics that it is missing of. A
    foreign file is nobody's, and its going leaves nothing to be filled."""
    rows = [problem("b", "g", "backfill"), *2 * [problem("a", "g", "backfill")], problem("a", "it's", "backfill")]
    message = str(remedy_for([*rows, problem(None, None, "person")], Path("/my lake")))
    for name in ("a", "b"):  # one that is gone stops no other
        assert (
            f"zkgroup export --group g --to '/my lake' --backfill --from {name}:0=0 --until {name}:0=9 {name}"
            in message
        )
    assert """zkgroup export --group 'it'"'"'s' --to '/my lake' --backfill --from a:0=0 --until a:0=9 a""" in message
    assert str(remedy_for([problem("-t", "g", "backfill")], Path("/lake"))).endswith("-t:0=9 -- -t")


def test_what_lies_between_lost_files_is_not_filled_by_the_way() -> None:
    """It may have been left out knowingly."""
    lost = [problem("t", "g", "backfill", first, number) for number, first in ((0, 30), (0, 0), (0, 9), (1, 5))]
    message = str(remedy_for(lost, Path("/lake")))
    assert "--backfill --from t:0=0,t:1=5 --until t:0=18,t:1=14 t && " in message
    assert message.endswith("--backfill --from t:0=30 --until t:0=39 t")


def test_a_pointer_that_is_hidden_hides_no_other(registry: Registry, unique: Callable[[str], str]) -> None:
    """What an access list keeps from being read is a row that says so; other groups have theirs."""
    hidden, shown = unique("group"), unique("group")
    pointer = Pointer("decided", "00000001-aaaaaaaa", "/out", "hash")
    for group in (hidden, shown):
        with ExportClaim(registry, group, lambda _: None) as claim:
            claim.point(None, pointer)
    path = znodes.export_state(hidden)
    (node,) = registry.read([Get(path)])
    assert isinstance(node, Node)
    registry.transaction([Delete(path), Create(path, node.data, acl=(Acl("digest", "other:hash", 31),))])
    rows = {row.group: row for row in status(registry)}
    assert (rows[shown].step, rows[hidden].state, rows[hidden].step) == ("decided", "unfinished", "unreadable")
    assert names(str(rows[hidden].advice), path, Code.NO_AUTH.value)


def test_status_tells_what_runs_and_what_waits(
    registry: Registry, unique: Callable[[str], str], destination: Destination
) -> None:
    """Nothing for a group without exports, unless a destination has its run; a claim is running, a pointer without one
    is unfinished, with advice."""
    group = unique("group")
    assert status(registry, group, destination) == []
    destination.store.write(f"{destination.work(group, '00000001-bbbbbbbb')}/a.tmp", b"")
    (row,) = status(registry, group, destination)
    assert (row.state, row.step, row.run, row.output) == (
        "unfinished", "left", "00000001-bbbbbbbb", destination.store.uri,
    )  # fmt: skip
    pointer = Pointer("decided", "00000001-aaaaaaaa", "/out", "hash")
    with ExportClaim(registry, group, lambda _: None) as claim:
        (row,) = status(registry, group)
        assert (row.state, row.step, row.run) == ("running", "planning", None)
        claim.point(None, pointer)
        (row,) = status(registry, group)
        assert (row.state, row.step, row.run, row.output) == ("running", "decided", pointer.run, "/out")
        assert row.pid is not None
        assert row.since is not None
        while_it_runs = row.advice
    (row,) = [row for row in status(registry) if row.group == group]
    assert (row.state, row.host, row.pid) == ("unfinished", None, None)
    assert row.advice != while_it_runs
    registry.write(SetData(znodes.export_state(group), b"what"))
    (row,) = status(registry, group)
    assert (row.state, row.step) == ("unfinished", "unreadable")
    registry.write(Ensure(znodes.export_state(unique("quiet"))))
    assert status(registry, unique("nobody")) == []


@pytest.mark.parametrize("step", ["planning", "planned", "decided"])
def test_status_tells_what_was_killed_here(registry: Registry, unique: Callable[[str], str], step: str) -> None:
    """Its session has not ended yet, and its process on this host has: nobody is to wait for it."""
    group = unique("group")
    ended = subprocess.Popen(["true"])
    ended.wait(30)
    data = b"" if step == "planning" else encode_pointer(Pointer(cast("State", step), "00000001-aaaaaaaa", "/out"))
    registry.write(Ensure(znodes.export_state(group)))
    registry.write(SetData(znodes.export_state(group), data))
    advice = {}
    for host, pid, state in ((socket.gethostname(), ended.pid, "killed"), ("elsewhere", ended.pid, "running")):
        holder = json.dumps({"host": host, "pid": pid, "run": "x", "since": 1}).encode()
        assert registry.write(Create(znodes.export_lock(group), holder, ephemeral=True)) is None
        (row,) = status(registry, group)
        assert (row.state, row.step, row.pid) == (state, step, pid)
        advice[state] = row.advice
        assert registry.write(Delete(znodes.export_lock(group))) is None
    assert advice["killed"] != advice["running"]
    unfinished = [row.advice for row in status(registry, group)]
    assert unfinished == ([] if step == "planning" else [advice["killed"]])


def test_what_is_unfinished_is_reported(
    cluster: Sandbox, short: ZooKeeperSettings, kafka: KafkaSettings, filled: str, unique: Callable[[str], str],
    in_process: Callable[..., object], destination: Destination,
) -> None:  # fmt: skip
    """An export that was killed with some of its files published is no problem, and reported; --status says what helps.
    Not once it is finished."""
    group = unique("group")
    drive_export(short, kafka, kill_at="published 1 of 4", group=group, topics=[filled], out=root_of(destination))
    assert [row.mend for row in problem_rows(destination)] == ["export"] * 3
    verifying = ("-z", cluster.connect, "export", "--to", destination.store.uri, "--group", group, "--verify")
    done = run(*verifying)
    assert done.returncode == 6
    assert names(done.stderr, destination.leftover_runs(group)[0], f"--group {group} --status")
    assert done.stderr.endswith(f": zkgroup -z {cluster.connect} export --group {group} --to {destination}\n")
    in_process(group)
    assert (problems(destination), run(*verifying).returncode) == ([], 0)
