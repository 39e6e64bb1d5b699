"""Backfills export again what earlier runs passed over, and the messages of files that are gone; nothing else. The
commands that ``--verify`` prints are pasted, and mend."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cli import WITHOUT_SPARK, run
from exports import (
    abort,
    bound_at,
    files_in,
    messages_in,
    mismatches_of,
    offsets,
    problem_rows,
    published_in,
    recreate_topic,
    root_of,
)
from lines import names
from resets import drop_messages

from zkgroup.clients.kafka.client import KafkaSettings
from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.errors import NotFoundError, Notice, RefusedError
from zkgroup.export.checks.run_reports import history
from zkgroup.export.checks.verify import VerifyRow, remedy_for, verify
from zkgroup.export.destination.run_log import Destination, OwnedError
from zkgroup.export.model.address import parse_address
from zkgroup.export.model.layout import LayoutOptions
from zkgroup.export.planning.export_request import COMMITTED, EARLIEST, LATEST, backfill_options, export_command
from zkgroup.export.planning.mismatch import MismatchError
from zkgroup.export.run.run_export import PartitionSummary
from zkgroup.protocol.names import TopicPartition
from zkgroup.sandbox.local_cluster import Sandbox
from zkgroup.sandbox.topic_admin import ProducerRecord, produce

Export = Callable[..., list[PartitionSummary]]
Make = Callable[..., str]
Fill = Callable[..., object]
Unique = Callable[[str], str]
Commit = Callable[..., None]
HOUR, NOON = 3_600_000, 1_699_963_200_000


@pytest.fixture
def fill_in(in_process: Export) -> Export:
    """``fill_in(group, topics…, option=…)``: a backfill, of everything up to the ends if nothing else is said."""

    def run(group: str, *topics: str, **options: Any) -> list[PartitionSummary]:
        return in_process(group, *topics, **{"backfill": True, "begin": EARLIEST, "until": LATEST, **options})

    return run


def newest_run(destination: Destination, group: str) -> str:
    return destination.entries(group)[-1].run


def lose(destination: Destination, name: str) -> None:
    (root_of(destination) / name).unlink()


def advised(cluster: Sandbox, destination: Destination) -> list[str]:
    """The backfills that ``--verify`` prints, as they are printed."""
    verified = run("-z", cluster.connect, "export", "--to", destination.store.uri, "--verify")
    assert verified.returncode == 6
    parts = re.split(r" && |\n", verified.stderr)
    return [part[part.rindex("zkgroup ") :] for part in parts if " --backfill " in part]


def paste(command: str) -> list[tuple[int, int, int]]:
    """Partition, start and end of what a printed command exports."""
    done = run(*shlex.split(command)[1:], "--output", "json", env=WITHOUT_SPARK, timeout=120)
    assert done.returncode == 0, done.stderr
    return [(row["partition"], row["start"], row["end"]) for row in json.loads(done.stdout)]


def test_what_was_passed_over_since_the_group_was_moved_is_filled(
    in_process: Export, fill_in: Export, make_topic: Make, fill: Fill, unique: Unique, commit: Commit,
    committed: Callable[..., int | None], destination: Destination,
) -> None:  # fmt: skip
    """A recorded gap is no reason to leave it: the messages are still in the log. The records account for it
    afterwards, the group is not moved, and a second backfill finds nothing."""
    topic, group = make_topic(), unique("group")
    fill(topic, 40)
    in_process(group, topic, max_messages=20)
    commit(group, {TopicPartition(topic, 0): 35})
    in_process(group, topic, on_mismatch="group")
    assert verify(destination) == [VerifyRow(topic, 0, 0, 40, 25, 0, 0, 15, 2)]
    assert [(row.start, row.end, row.rows) for row in fill_in(group, topic, until=bound_at(topic, 30))] == [
        (20, 30, 10)
    ]
    assert [(row.start, row.end, row.rows) for row in fill_in(group, topic, until=COMMITTED)] == [(30, 35, 5)]
    assert verify(destination) == [VerifyRow(topic, 0, 0, 40, 40, 0, 0, 0, 4)]
    assert offsets(destination) == list(range(40))
    assert fill_in(group, topic) == []
    assert committed(group, topic) == 40


def test_a_lost_file_is_written_again(
    in_process: Export, fill_in: Export, make_topic: Make, fill: Fill, unique: Unique, destination: Destination
) -> None:
    """What ``--verify`` misses is exported once more, as a whole if any of it is asked for, and then all is right, as
    often as it happens; what was not asked for stays missing."""
    topic, group, out = make_topic(2), unique("group"), root_of(destination)
    fill(topic, 80, 2)
    in_process(group, topic, range_messages=10, target_bytes=1)
    before, whole, run = messages_in(out), verify(destination), newest_run(destination, group)
    gone = [f"topic={topic}/partition={number}/10-20.parquet" for number in range(2)]
    for _ in range(2):
        for name in gone:
            lose(destination, name)
        assert len(problem_rows(destination)) == 2
        warnings: list[Notice] = []
        made = fill_in(group, topic, begin=bound_at(topic, 15), until=bound_at(topic, 16), on_warning=warnings.append)
        assert [(row.partition, row.start, row.end, row.rows) for row in made] == [(0, 10, 20, 10)]
        assert [names(str(warning), f"{topic}-0", gone[0], 10, 19) for warning in warnings] == [True]
        (problem,) = problem_rows(destination)
        assert (problem.partition, problem.start, problem.end, problem.mend) == (1, 10, 20, "backfill")
        assert names(str(problem.problem), gone[1], run)
        fill_in(group, topic)
        run = newest_run(destination, group)
        assert verify(destination) == whole
        assert fill_in(group, topic) == []
    assert messages_in(out) == before
    assert [row.kind for row in history(destination)] == ["export"] + 4 * ["backfill"]


def test_a_lost_file_stays_lost_where_another_topic_is_filled_or_there_is_a_limit(
    in_process: Export, fill_in: Export, make_topic: Make, fill: Fill, unique: Unique, destination: Destination
) -> None:
    """The other topic's backfill says nothing of it; a limited one, which could write a part of a file, names it."""
    topic, other, group = make_topic(), make_topic(), unique("group")
    for one in (topic, other):
        fill(one, 20)
    in_process(group, topic, other)
    name = f"topic={topic}/partition=0/0-20.parquet"
    lose(destination, name)
    warnings: list[Notice] = []
    assert fill_in(group, other, on_warning=warnings.append) == warnings == []
    assert fill_in(group, topic, max_messages=5, on_warning=warnings.append) == []
    assert [names(str(warning), name, "--max-messages") for warning in warnings] == [True]
    assert [(row.start, row.end) for row in problem_rows(destination)] == [(0, 20)]


@pytest.mark.parametrize(
    "layout", [None, LayoutOptions(()), LayoutOptions(("date", "hour"))], ids=["usual", "flat", "hours"]
)
def test_a_lost_file_is_written_again_without_what_has_come_behind_it(
    in_process: Export, fill_in: Export, make_topic: Make, fill: Fill, unique: Unique, destination: Destination,
    layout: LayoutOptions | None,
) -> None:  # fmt: skip
    """The newest files of a topic that goes on, also where several lost ones touch: what is new is left to the next
    export, or the group would be behind its exports."""
    topic, group = make_topic(), unique("group")
    options = {} if layout is None else {"layout": layout}
    for _ in range(3):
        fill(topic, 20)
        in_process(group, topic, **options)
    fill(topic, 20)
    for lost in published_in(root_of(destination))[-2:]:
        lose(destination, lost)
    assert [(row.start, row.end, row.rows) for row in fill_in(group, topic, **options)] == [(20, 60, 40)]
    assert [(row.start, row.end, row.rows) for row in in_process(group, topic, **options)] == [(60, 80, 20)]
    assert offsets(destination) == list(range(80))
    assert problem_rows(destination) == []


def test_a_lost_file_of_several_partitions_is_written_again_by_and_by(
    in_process: Export, fill_in: Export, make_topic: Make, fill: Fill, unique: Unique, destination: Destination
) -> None:
    """One of its partitions now, the others later: each time the rest is what is missing."""
    topic, group = make_topic(3), unique("group")
    fill(topic, 30, 3)
    in_process(group, topic, layout=LayoutOptions(()))
    rows = [row.rows for row in verify(destination)]
    (name,) = published_in(root_of(destination))
    lose(destination, name)
    run = newest_run(destination, group)
    missing = [(row.partition, names(str(row.problem), name, run)) for row in problem_rows(destination)]
    assert missing == [(0, True), (1, True), (2, True)]
    assert [row.partition for row in fill_in(group, topic, begin=bound_at(topic, 0))] == [0]
    assert [(row.partition, row.problem is None) for row in verify(destination)] == [
        (0, True), (1, True), (1, False), (2, True), (2, False)
    ]  # fmt: skip
    assert [row.partition for row in fill_in(group, topic)] == [1, 2]
    assert [row.rows for row in verify(destination)] == rows
    assert fill_in(group, topic) == []


def test_a_lost_file_of_an_hour_is_written_again_without_what_other_folders_hold(
    in_process: Export, fill_in: Export, make_topic: Make, kafka: KafkaSettings, unique: Unique,
    destination: Destination,
) -> None:  # fmt: skip
    """Offsets of folders of times interleave: of what is read only the messages of the lost file are written."""
    topic, group = make_topic(), unique("group")
    times = [NOON + HOUR * (number % 3) + number for number in range(30)]
    produce(kafka, topic, [ProducerRecord(b"%d" % moment, None, 0, moment) for moment in times])
    in_process(group, topic, layout=LayoutOptions(by=("date", "hour")))
    whole, files = verify(destination), published_in(root_of(destination))
    assert len(files) == 3
    for lost in (files[:1], files[1:]):
        for name in lost:
            lose(destination, name)
        (row,) = fill_in(group, topic)
        assert row.rows == 10 * len(lost)
        assert (verify(destination), published_in(root_of(destination))) == (whole, files)
        assert fill_in(group, topic) == []


def test_a_file_that_comes_back_meanwhile_is_not_written_again(
    in_process: Export, fill_in: Export, make_topic: Make, fill: Fill, unique: Unique, destination: Destination
) -> None:
    """Restored from a copy while the backfill reads: refused, and nothing is there twice."""
    topic, group, out = make_topic(), unique("group"), root_of(destination)
    fill(topic, 10)
    in_process(group, topic)
    (name,) = published_in(out)
    content = (out / name).read_bytes()
    lose(destination, name)

    def restore(point: str) -> None:
        if point == "files written":
            (out / name).write_bytes(content)

    with pytest.raises(RefusedError, match=re.escape(name)):
        fill_in(group, topic, on_point=restore)
    assert verify(destination) == [VerifyRow(topic, 0, 0, 10, 10, 0, 0, 0, 1)]
    assert not [file for file in files_in(out) if file.endswith(".tmp")]
    assert fill_in(group, topic) == []


def test_a_backfill_takes_no_more_than_it_may(
    in_process: Export, make_topic: Make, fill: Fill, unique: Unique, commit: Commit,
    committed: Callable[..., int | None], destination: Destination,
) -> None:  # fmt: skip
    """A limit of messages is shared out among the holes of a backfill; further ones take the rest, the last finds
    nothing, and all is there once."""
    topic, group = make_topic(2), unique("group")
    fill(topic, 60, 2)
    commit(group, {TopicPartition(topic, number): 20 for number in range(2)})
    in_process(group, topic)
    taken: list[int] = []
    while rows := in_process(group, topic, backfill=True, max_messages=15):
        taken.append(sum(row.rows for row in rows))
        assert taken[-1] <= 15
        if not taken[-1]:
            break
    assert sum(taken) == 40
    assert taken[0] == taken[1] == 15
    found = [(row["partition"], row["offset"]) for row in messages_in(root_of(destination))]
    assert found == [(number, offset) for number in range(2) for offset in range(30)]
    assert [committed(group, topic, number) for number in range(2)] == [30, 30]


def test_what_was_lost_is_written_again_as_it_was_read(
    in_process: Export, fill_in: Export, make_topic: Make, fill: Fill, destination: Destination, unique: Unique,
    kafka: KafkaSettings,
) -> None:  # fmt: skip
    """A destination of uncommitted messages got its files back without the aborted ones, and was whole."""
    topic, group = make_topic(), unique("group")
    fill(topic, 5)
    abort(kafka, topic, 4)
    fill(topic, 5)
    in_process(group, topic, isolation="read_uncommitted")
    fill(topic, 5)
    in_process(group, topic, isolation="read_uncommitted")
    whole = [(row.rows, row.gaps) for row in verify(destination)]
    assert whole == [(19, 1)]
    lost = next(name for name in published_in(root_of(destination)) if "/0-" in name)
    lose(destination, lost)
    with pytest.raises(RefusedError) as raised:
        fill_in(group, topic, isolation="read_committed")
    assert names(raised.value.message, lost, "read_uncommitted", "read_committed")
    assert names(str(raised.value.remedy), "--isolation read_uncommitted")
    warnings: list[Notice] = []
    fill_in(group, topic, on_warning=warnings.append)
    assert any(names(str(warning), "--isolation read_uncommitted") for warning in warnings)
    assert [(row.rows, row.gaps, row.problem) for row in verify(destination)] == [(19, 1, None)]


def test_a_lost_file_leaves_the_rest_to_the_next_export(
    in_process: Export, make_topic: Make, fill: Fill, unique: Unique, destination: Destination, cluster: Sandbox
) -> None:
    """The command that ``--verify`` prints takes no more than is missing."""
    topic, group = make_topic(), unique("group")
    fill(topic, 20)
    in_process(group, topic)
    fill(topic, 20)
    lose(destination, *published_in(root_of(destination)))
    (command,) = advised(cluster, destination)
    assert paste(command) == [(0, 0, 20)]
    assert [(row.start, row.end) for row in in_process(group, topic)] == [(20, 40)]
    assert problem_rows(destination) == []


def test_a_damaged_file_counts_as_there_and_is_named(
    in_process: Export, fill_in: Export, make_topic: Make, fill: Fill, unique: Unique, destination: Destination,
    cluster: Sandbox,
) -> None:  # fmt: skip
    """The backfill does nothing, and says why, until it is moved away."""
    topic, group, out = make_topic(), unique("group"), root_of(destination)
    fill(topic, 20)
    in_process(group, topic)
    (name,) = published_in(out)
    (out / name).write_bytes(b"PAR1")
    warnings: list[Notice] = []
    assert advised(cluster, destination) == []
    assert fill_in(group, topic, on_warning=warnings.append) == []
    (warning,) = warnings
    assert name in warning.message
    assert warning.remedy is not None
    (out / name).rename(out.parent / "away")
    (command,) = advised(cluster, destination)
    assert paste(command) == [(0, 0, 20)]
    assert problem_rows(destination) == []


def test_what_a_group_has_exported_no_other_group_fills(
    in_process: Export, fill_in: Export, make_topic: Make, fill: Fill, unique: Unique, destination: Destination,
    cluster: Sandbox, commit: Commit,
) -> None:  # fmt: skip
    """The topic is the first one's, whose command helps also where no such group is left in ZooKeeper. Another one that
    takes the topic over continues where its exports end."""
    topic, gone, heir = make_topic(2), unique("gone"), unique("heir")
    fill(topic, 40, 2)
    in_process(gone, topic)
    lost, other = sorted(published_in(root_of(destination)))
    lose(destination, lost)
    with pytest.raises(OwnedError, match=rf"{gone}\b"):
        fill_in(heir, topic)
    assert destination.entries(heir) == []
    assert run("-z", cluster.connect, "delete-group", gone, "--execute").returncode == 0
    (command,) = advised(cluster, destination)
    assert paste(command) == [(0, 0, 20)]
    found = [(row["partition"], row["offset"]) for row in messages_in(root_of(destination))]
    assert found == [(number, offset) for number in (0, 1) for offset in range(20)]
    commit(heir, {TopicPartition(topic, number): 20 for number in range(2)})
    fill(topic, 10, 2)
    in_process(heir, topic, take_over=gone)
    assert problem_rows(destination) == []
    lose(destination, other)  # which the former owner has written, and may not write any more
    (command,) = advised(cluster, destination)
    assert paste(command) == [(1, 0, 20)]
    assert problem_rows(destination) == []


def test_a_destination_is_taken_over_again_and_again(
    in_process: Export, make_topic: Make, fill: Fill, unique: Unique, destination: Destination, commit: Commit
) -> None:
    """Each heir begins where the last one ended, not where every other did."""
    topic, groups = make_topic(), [unique(name) for name in ("first", "second", "third")]
    for number, group in enumerate(groups):
        fill(topic, 10)
        before = None
        if number:
            commit(group, {TopicPartition(topic, 0): 10 * number})
            before = groups[number - 1]
        rows = in_process(group, topic, take_over=before)
        assert [(row.start, row.end) for row in rows] == [(10 * number, 10 * number + 10)]
    late = unique("late")
    commit(late, {TopicPartition(topic, 0): 35})
    fill(topic, 10)
    with pytest.raises(MismatchError) as refused:
        in_process(late, topic, take_over=groups[-1])
    assert mismatches_of(refused.value) == [(TopicPartition(topic, 0), "ahead", 35, 30)]
    assert [(row.start, row.end) for row in in_process(late, topic, take_over=groups[-1], on_mismatch="lake")] == [
        (30, 40)
    ]
    assert problem_rows(destination) == []


def test_a_recreated_log_is_one_log_to_all_groups(
    in_process: Export, fill_in: Export, make_topic: Make, fill: Fill, unique: Unique, destination: Destination,
    registry: Registry, commit: Commit,
) -> None:  # fmt: skip
    """A group that takes a topic over marks its files as the one did that was there: it goes on behind it, finds
    nothing to fill, and writes again what was the other's."""
    topic, one, two = make_topic(), unique("one"), unique("two")
    fill(topic, 30)
    in_process(one, topic)
    recreate_topic(registry, topic)
    fill(topic, 10)
    in_process(one, topic, on_mismatch="lake")
    commit(two, {TopicPartition(topic, 0): 10})
    fill(topic, 5)
    assert [(row.start, row.end) for row in in_process(two, topic, take_over=one)] == [(10, 15)]
    assert fill_in(two, topic) == []
    assert problem_rows(destination) == []
    (lost,) = [name for name in published_in(root_of(destination)) if "/0-10." in name]
    lose(destination, lost)
    assert [(row.start, row.end) for row in fill_in(two, topic)] == [(0, 10)]
    assert offsets(destination) == sorted([*range(30), *range(15)])
    assert problem_rows(destination) == []


def test_what_another_group_accounts_for_is_known_though_no_file_shows_it(
    in_process: Export, fill_in: Export, make_topic: Make, fill: Fill, unique: Unique, destination: Destination,
    kafka: KafkaSettings, commit: Commit,
) -> None:  # fmt: skip
    """Markers and aborted messages are in no file of folders of times, nor where there is nothing else."""
    topic, one, two = make_topic(), unique("one"), unique("two")
    fill(topic, 5)
    in_process(one, topic)
    abort(kafka, topic, 4)
    in_process(one, topic)
    commit(two, {TopicPartition(topic, 0): 10})
    fill(topic, 5)
    in_process(two, topic, take_over=one)
    assert fill_in(two, topic) == []
    assert problem_rows(destination) == []


def test_what_no_log_has_any_more_is_refused_and_then_recorded(
    in_process: Export, fill_in: Export, make_topic: Make, fill: Fill, unique: Unique, destination: Destination,
    kafka: KafkaSettings, cluster: Sandbox,
) -> None:  # fmt: skip
    """All of it is named; with ``--on-mismatch lake`` the rest is exported, and all offsets are accounted for."""
    topic, group = make_topic(2), unique("group")
    fill(topic, 40, 2)
    in_process(group, topic)
    name, other = published_in(root_of(destination))
    lose(destination, name)
    lose(destination, other)
    fill(topic, 20, 2)
    drop_messages(kafka, TopicPartition(topic, 0), 8)
    drop_messages(kafka, TopicPartition(topic, 1), 25)
    with pytest.raises(MismatchError) as raised:
        fill_in(group, topic, until=COMMITTED)
    facts = [(one.kind, one.fact.log_start, one.fact.log_end) for one in raised.value.mismatches]
    assert facts == [("expired", 8, 30), ("expired", 25, 30)]
    assert "lake" in dict(raised.value.answers)
    (command,) = advised(cluster, destination)
    refused = run(*shlex.split(command)[1:], env=WITHOUT_SPARK, timeout=120)
    assert (refused.returncode, names(refused.stderr, 2, f"{topic}-0", f"{topic}-1")) == (5, True)
    words = [*shlex.split(command)[1:], "--on-mismatch", "lake", "--output", "json"]
    message = run(*words, env=WITHOUT_SPARK, timeout=120)
    assert [(row["start"], row["end"], row["rows"]) for row in json.loads(message.stdout)] == [(8, 20, 12), (20, 20, 0)]
    assert names(message.stderr, f"{topic}-0", 0, 7, "retention")
    assert names(message.stderr, f"{topic}-0", 8, 20, name)
    assert offsets(destination) == list(range(8, 20))
    assert verify(destination) == [
        VerifyRow(topic, 0, 0, 20, 12, 0, 8, 0, 1),
        VerifyRow(topic, 1, 0, 20, 0, 0, 20, 0, 0),
    ]


def test_what_an_earlier_log_had_only_a_copy_brings_back(
    in_process: Export, fill_in: Export, make_topic: Make, fill: Fill, unique: Unique, destination: Destination,
    registry: Registry, cluster: Sandbox,
) -> None:  # fmt: skip
    """Said by the backfill, and by ``--verify``, which advises none for it."""
    topic, group = make_topic(), unique("group")
    fill(topic, 20)
    in_process(group, topic)
    (lost,) = published_in(root_of(destination))
    recreate_topic(registry, topic)
    fill(topic, 5)
    in_process(group, topic, on_mismatch="lake")
    lose(destination, lost)
    assert advised(cluster, destination) == []
    (problem,) = problem_rows(destination)
    assert (problem.mend, names(str(problem.problem), lost)) == ("person", True)
    warnings: list[Notice] = []
    assert fill_in(group, topic, on_warning=warnings.append) == []
    assert [names(str(warning), lost) for warning in warnings] == [True]


def test_committed_is_no_place_for_a_group_without_offsets(
    fill_in: Export, make_topic: Make, fill: Fill, unique: Unique
) -> None:
    """A group whose name is mistyped has nothing to fill, and should hear of it."""
    topic, nobody = make_topic(), unique("nobody")
    fill(topic, 5)
    for until in (COMMITTED, LATEST):
        with pytest.raises(NotFoundError, match=rf"{nobody}\b.*{topic}\b"):
            fill_in(nobody, topic, until=until)


def test_commands_name_the_destination_without_its_secrets() -> None:
    """An endpoint belongs to the place; keys, and what may hold some, are left out."""
    s3 = parse_address("s3://AKIA1234:very-secret@b/p/?endpoint_override=store:9000&scheme=http", {})
    named = export_command(s3, "--status")
    assert named == ("export", "--to", "s3://b/p?endpoint_override=store:9000&scheme=http", "--status")
    assert export_command(parse_address("s3://b/p", {}), "--status") == ("export", "--to", "s3://b/p", "--status")
    azure = parse_address("abfs://box@account.dfs.core.windows.net/p?account_key=very-secret-key", {})
    assert export_command(azure, "--status") == ("export", "--to", "URI", "--status")


def test_a_backfill_names_the_partitions() -> None:
    """Each from its first offset to its last, in order."""
    few = {TopicPartition("b", 1): (3, 9), TopicPartition("a", 10): (0, 5), TopicPartition("a", 9): (7, 8)}
    assert backfill_options(few) == [*("--backfill", "--from", "a:9=7,a:10=0,b:1=3", "--until", "a:9=8,a:10=5,b:1=9")]


def test_of_very_many_partitions_some_are_named() -> None:
    """--verify then names the others."""
    rows = [VerifyRow("t", n, 0, 9, problem="why", group="g", mend="backfill") for n in range(200)]
    (command,) = remedy_for(rows, Path("/lake")).commands
    assert command[command.index("--until") + 1] == ",".join(f"t:{number}=9" for number in range(50))
