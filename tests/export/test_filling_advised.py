"""What ``--verify`` advises is pasted as it is printed, and mends. Where another group would write a second time
what is accounted for, it is refused, by the command that is right."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cli import run
from exports import abort, at, messages_in, published_in
from resets import drop_messages

from zkgroup.errors import NotFoundError, RefusedError
from zkgroup.export.checks.advice import remedy_for
from zkgroup.export.checks.verify import VerifyRow, verify
from zkgroup.export.destination.run_log import Destination
from zkgroup.export.model.address import parse_address
from zkgroup.export.model.export_command import export_command, filling
from zkgroup.export.model.plan_types import Policies
from zkgroup.export.planning.bounds import COMMITTED, EARLIEST, LATEST, Bound
from zkgroup.export.run.run_export import PartitionSummary
from zkgroup.export.stores.store import FolderStore
from zkgroup.protocol.names import TopicPartition
from zkgroup.sandbox.sandbox import Sandbox
from zkgroup.sandbox.topics import create_topic, delete_topic
from zkgroup.servers.kafka import KafkaSettings
from zkgroup.servers.registry import Registry

Export = Callable[..., list[PartitionSummary]]
Make = Callable[..., str]
Fill = Callable[..., object]
Unique = Callable[[str], str]


@pytest.fixture
def destination(tmp_path: Path) -> Destination:
    """The destination of ``in_process``."""
    return Destination(FolderStore(tmp_path / "out"))


@pytest.fixture
def fill_in(in_process: Export) -> Export:
    """``fill_in(group, topics…, option=…)``: a backfill, of everything up to the ends if nothing else is said."""

    def run(group: str, *topics: str, **options: Any) -> list[PartitionSummary]:
        return in_process(group, *topics, **{"backfill": True, "begin": EARLIEST, "until": LATEST, **options})

    return run


def offsets(destination: Destination) -> list[tuple[int, int]]:
    """Partition and offset of all messages that a reader of the lake finds."""
    assert isinstance(destination.store, FolderStore)
    return sorted((row["partition"], row["offset"]) for row in messages_in(destination.store.root))


def lose(destination: Destination, name: str) -> None:
    assert isinstance(destination.store, FolderStore)
    (destination.store.root / name).unlink()


def problems(destination: Destination) -> list[str | None]:
    """In words."""
    return [row.problem for row in verify(destination) if row.problem is not None]


def advised(cluster: Sandbox, destination: Destination) -> list[str]:
    """The backfills that ``--verify`` prints, word by word."""
    looked = run("-z", cluster.connect, "export", "--to", destination.store.uri, "--verify")
    assert looked.returncode == 6
    return re.findall(r"'(zkgroup [^']* --backfill [^']*)'", looked.stderr)


def paste(command: str) -> list[tuple[int, int, int]]:
    """Partition, start and end of what a printed command exports."""
    done = run(*shlex.split(command)[1:], "--output", "json", timeout=120)
    assert done.returncode == 0, done.stderr
    return [(row["partition"], row["start"], row["end"]) for row in json.loads(done.stdout)]


def test_a_lost_file_leaves_the_rest_to_the_next_export(
    in_process: Export, make_topic: Make, fill: Fill, unique: Unique, destination: Destination, tmp_path: Path, cluster: Sandbox
) -> None:
    """No more than is missing: were newer messages taken, the group would lie behind its exports, and be refused."""
    topic, group = make_topic(), unique("group")
    fill(topic, 20)
    in_process(group, topic)
    fill(topic, 20)
    lose(destination, *published_in(tmp_path / "out"))
    (command,) = advised(cluster, destination)
    assert paste(command) == [(0, 0, 20)]
    assert [(row.start, row.end) for row in in_process(group, topic)] == [(20, 40)]
    assert problems(destination) == []


def test_a_damaged_file_counts_as_there_and_is_named(
    in_process: Export, make_topic: Make, fill: Fill, unique: Unique, destination: Destination, tmp_path: Path, cluster: Sandbox
) -> None:
    """The backfill that ``--verify`` names did nothing, and said nothing, until it was moved away."""
    topic, group = make_topic(), unique("group")
    fill(topic, 20)
    in_process(group, topic)
    (name,) = published_in(tmp_path / "out")
    (tmp_path / "out" / name).write_bytes(b"PAR1")
    (command,) = advised(cluster, destination)
    told = run(*shlex.split(command)[1:], "-z", cluster.connect)
    assert told.returncode == 0
    assert f"{name} is not of the size that a manifest tells: what is damaged counts as there" in told.stderr
    assert paste(command) == []
    (tmp_path / "out" / name).rename(tmp_path / "away")
    assert paste(command) == [(0, 0, 20)]
    assert problems(destination) == []


def test_what_a_group_has_exported_no_other_group_fills(
    in_process: Export, fill_in: Export, make_topic: Make, fill: Fill, unique: Unique, destination: Destination, tmp_path: Path,
    cluster: Sandbox, commit: Callable[..., None],
) -> None:  # fmt: skip
    """It would be told of twice, and be there twice once the first group's own backfill has come. The refusal has that
    one's command, which also helps where no such group is left in ZooKeeper."""
    topic, gone, heir = make_topic(2), unique("gone"), unique("heir")
    fill(topic, 40, 2)
    in_process(gone, topic)
    lost, _ = sorted(published_in(tmp_path / "out"))
    lose(destination, lost)
    to_twelve = Bound("offsets", offsets={TopicPartition(topic, 0): 12, TopicPartition(topic, 1): 12})
    for until in (LATEST, to_twelve):
        with pytest.raises(
            RefusedError, match=rf"{lost}, with offsets 0 to 19 .* group {gone} has exported it"
        ) as told:
            fill_in(heir, topic, until=until)
    assert destination.runs(heir) == []
    assert f"--group {gone} --to {tmp_path}/out --backfill --from {topic}:0=0 --until {topic}:0=20" in told.value.remedy
    assert run("-z", cluster.connect, "delete-group", gone, "--execute").returncode == 0
    (command,) = advised(cluster, destination)
    assert paste(command) == [(0, 0, 20)]
    assert offsets(destination) == [(number, offset) for number in (0, 1) for offset in range(20)]
    commit(heir, {TopicPartition(topic, number): 20 for number in range(2)})
    fill(topic, 10, 2)
    in_process(heir, topic)
    assert problems(destination) == []


def test_a_group_that_is_set_back_to_what_another_has_exported_is_refused(
    in_process: Export, make_topic: Make, fill: Fill, unique: Unique, destination: Destination, tmp_path: Path,
    commit: Callable[..., None],
) -> None:  # fmt: skip
    """Also where no file tells any more that it was."""
    topic, one, two = make_topic(), unique("one"), unique("two")
    fill(topic, 20)
    in_process(one, topic)
    commit(two, {TopicPartition(topic, 0): 20})
    fill(topic, 20)
    in_process(two, topic)
    first, _ = sorted(published_in(tmp_path / "out"))
    commit(two, {TopicPartition(topic, 0): 0})
    lose(destination, first)
    with pytest.raises(RefusedError, match=rf"group {one} has exported {topic}-0 .* group {two} would begin at 0"):
        in_process(two, topic, max_messages=5)


def test_what_is_in_another_file_by_now_is_not_written_again(
    in_process: Export, fill_in: Export, make_topic: Make, fill: Fill, unique: Unique, destination: Destination, tmp_path: Path
) -> None:
    """Whoever wrote it: the group's runs may have been forgotten meanwhile, and restored."""
    topic, one, two = make_topic(), unique("one"), unique("two")
    fill(topic, 20)
    in_process(one, topic)
    lose(destination, *published_in(tmp_path / "out"))
    runs = tmp_path / "out" / "_zkgroup"
    (runs / one).rename(tmp_path / "kept")
    fill_in(two, topic, until=at(topic, 12))
    (tmp_path / "kept").rename(runs / one)
    with pytest.raises(
        RefusedError, match=r"0-12\.parquet holds offsets 0 to 11 .*0-20\.parquet held before it was lost"
    ):
        fill_in(one, topic)
    assert offsets(destination) == [(0, offset) for offset in range(12)]


def test_the_old_group_does_not_export_what_its_successor_has(
    in_process: Export, make_topic: Make, fill: Fill, unique: Unique, destination: Destination, tmp_path: Path,
    commit: Callable[..., None],
) -> None:  # fmt: skip
    """Also where the successor's file is gone; where it has exported nothing, both go on."""
    topic, old, new = make_topic(2), unique("old"), unique("new")
    fill(topic, 20, 2)
    in_process(old, topic)
    commit(new, {TopicPartition(topic, 0): 10})
    fill(topic, 20, 2)
    in_process(new, topic, begin=Bound("offsets", offsets={}), policies=Policies(no_offset="skip"))
    (lost,) = [name for name in published_in(tmp_path / "out") if "10-20" in name]
    lose(destination, lost)
    with pytest.raises(RefusedError, match=rf"group {new} has exported {topic}-0 .* up to offset 20"):
        in_process(old, topic)
    assert problems(destination) == [f"{lost} of run {lake.runs(new)[0]} is missing"]


def test_a_lake_is_taken_over_again_and_again(
    in_process: Export, make_topic: Make, fill: Fill, unique: Unique, destination: Destination, commit: Callable[..., None]
) -> None:
    """Each heir begins where the last one ended, not where every other did."""
    topic, groups = make_topic(), [unique(name) for name in ("first", "second", "third")]
    for number, group in enumerate(groups):
        fill(topic, 10)
        if number:
            commit(group, {TopicPartition(topic, 0): 10 * number})
        assert [(row.start, row.end) for row in in_process(group, topic)] == [(10 * number, 10 * number + 10)]
    late = unique("late")
    commit(late, {TopicPartition(topic, 0): 35})
    fill(topic, 10)
    with pytest.raises(RefusedError, match=rf"group {groups[-1]} has exported .* up to offset 30") as told:
        in_process(late, topic)
    assert "begin at 30 to take over" in str(told.value.remedy)
    assert problems(destination) == []


def test_a_log_that_was_made_again_is_one_log_to_all_groups(
    in_process: Export, fill_in: Export, make_topic: Make, fill: Fill, unique: Unique, destination: Destination, tmp_path: Path,
    registry: Registry, commit: Callable[..., None],
) -> None:  # fmt: skip
    """A group that is new to the lake marks its files as the one did that was there: it goes on behind it, finds
    nothing to fill, and what is lost of the other's it leaves to that one."""
    topic, one, two = make_topic(), unique("one"), unique("two")
    fill(topic, 30)
    in_process(one, topic)
    delete_topic(registry, topic)
    create_topic(registry, topic)
    fill(topic, 10)
    in_process(one, topic, policies=Policies(recreated="earliest"))
    commit(two, {TopicPartition(topic, 0): 10})
    fill(topic, 5)
    assert [(row.start, row.end) for row in in_process(two, topic)] == [(10, 15)]
    assert fill_in(two, topic) == []
    assert problems(destination) == []
    (lost,) = [name for name in published_in(tmp_path / "out") if "/0-10." in name]
    lose(destination, lost)
    with pytest.raises(RefusedError, match=f"group {one} has exported it"):
        fill_in(two, topic)
    assert [(row.start, row.end) for row in fill_in(one, topic, until=Bound("offsets", offsets={
        TopicPartition(topic, 0): 10}))] == [(0, 10)]  # fmt: skip
    assert sorted(row["offset"] for row in messages_in(tmp_path / "out")) == sorted([*range(30), *range(15)])
    assert problems(destination) == []


def test_what_another_group_accounts_for_is_held_though_no_file_shows_it(
    in_process: Export, fill_in: Export, make_topic: Make, fill: Fill, unique: Unique, destination: Destination,
    kafka: KafkaSettings, commit: Callable[..., None],
) -> None:  # fmt: skip
    """Markers and aborted messages are in no file of a lake by times, nor where there is nothing else."""
    topic, one, two = make_topic(), unique("one"), unique("two")
    fill(topic, 5)
    in_process(one, topic)
    abort(kafka, topic, 4)
    in_process(one, topic)
    commit(two, {TopicPartition(topic, 0): 10})
    fill(topic, 5)
    in_process(two, topic)
    assert fill_in(two, topic) == []
    assert problems(destination) == []


def test_what_no_log_has_any_more_is_refused_and_then_recorded(
    in_process: Export, fill_in: Export, make_topic: Make, fill: Fill, unique: Unique, destination: Destination, tmp_path: Path,
    kafka: KafkaSettings, cluster: Sandbox,
) -> None:  # fmt: skip
    """All of it, and all of it is counted; with ``--skip-lost`` the account is closed."""
    topic, group = make_topic(2), unique("group")
    fill(topic, 40, 2)
    in_process(group, topic)
    for name in published_in(tmp_path / "out"):
        lose(destination, name)
    fill(topic, 20, 2)
    drop_messages(kafka, TopicPartition(topic, 0), 8)
    drop_messages(kafka, TopicPartition(topic, 1), 25)
    with pytest.raises(
        RefusedError, match=r"28 offsets of 2 partitions .*8 offsets are lost.*20 offsets are lost"
    ) as told:
        fill_in(group, topic, until=COMMITTED)
    assert "--skip-lost" in str(told.value.remedy)
    (command,) = advised(cluster, destination)
    refused = run(*shlex.split(command)[1:], timeout=120)
    assert (refused.returncode, "28 offsets of 2 partitions" in refused.stderr) == (5, True)
    assert paste(f"{command} --skip-lost") == [(0, 8, 20), (1, 20, 20)]
    assert offsets(destination) == [(0, offset) for offset in range(8, 20)]
    assert verify(destination) == [
        VerifyRow(topic, 0, 0, 20, 12, 8, 0, 1, None),
        VerifyRow(topic, 1, 0, 20, 0, 20, 0, 0, None),
    ]


def test_what_an_earlier_log_had_only_a_copy_brings_back(
    in_process: Export, fill_in: Export, make_topic: Make, fill: Fill, unique: Unique, destination: Destination, tmp_path: Path,
    registry: Registry, cluster: Sandbox,
) -> None:  # fmt: skip
    """Said by the backfill, and by ``--verify``, which advises none for it."""
    topic, group = make_topic(), unique("group")
    fill(topic, 20)
    in_process(group, topic)
    (lost,) = published_in(tmp_path / "out")
    delete_topic(registry, topic)
    create_topic(registry, topic)
    fill(topic, 5)
    in_process(group, topic, policies=Policies(recreated="earliest"))
    lose(destination, lost)
    assert advised(cluster, destination) == []
    (problem,) = problems(destination)
    assert str(problem).endswith("is missing, and the topic was made again: only a copy brings it back")
    told: list[str] = []
    assert fill_in(group, topic, warn=told.append) == []
    assert told == [f"{lost} is missing, with messages of an earlier log of the topic: they cannot be exported again"]


def test_committed_is_no_place_for_a_group_without_offsets(
    fill_in: Export, make_topic: Make, fill: Fill, unique: Unique
) -> None:
    """A group whose name is mistyped has nothing to fill, and should hear of it."""
    topic, nobody = make_topic(), unique("nobody")
    fill(topic, 5)
    with pytest.raises(NotFoundError, match=f"group {nobody} has no offset of {topic}, and --until committed"):
        fill_in(nobody, topic, until=COMMITTED)


def test_commands_name_the_destination_without_its_secrets() -> None:
    """An endpoint belongs to the place; keys, and what may hold some, are left out."""
    s3 = parse_address("s3://AKIA1234:very-secret@b/p/?endpoint_override=store:9000&scheme=http", {})
    named = export_command(s3, "--status")
    assert named == "zkgroup export --to 's3://b/p?endpoint_override=store:9000&scheme=http' --status"
    assert export_command(parse_address("s3://b/p", {}), "--status") == "'zkgroup export --to s3://b/p --status'"
    azure = parse_address("abfs://box@account.dfs.core.windows.net/p?account_key=very-secret-key", {})
    assert export_command(azure, "--status") == "'zkgroup export --to URI --status'"


def test_a_backfill_names_the_partitions() -> None:
    """Each from its first offset to its last, in order."""
    few = {TopicPartition("b", 1): (3, 9), TopicPartition("a", 10): (0, 5), TopicPartition("a", 9): (7, 8)}
    assert filling(few) == "--backfill --from a:9=7,a:10=0,b:1=3 --until a:9=8,a:10=5,b:1=9"


def test_of_very_many_partitions_some_are_named() -> None:
    """--verify then names the others."""
    rows = [VerifyRow("t", n, 0, 9, *4 * [None], "why", None, "g", "fill") for n in range(200)]
    told = remedy_for(rows, Path("/lake"))
    assert (",t:49=9" in told, ",t:50=9" in told) == (True, False)
