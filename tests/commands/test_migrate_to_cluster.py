"""``zkgroup migrate-group --to-cluster`` between real clusters."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import takewhile
from pathlib import Path
from subprocess import CompletedProcess

import pytest
import typer
from cli import WAITING_FOR_COMMITS, ZKGROUP, environment, run
from group_nodes import commit_in_kafka, groups_on, joined, static
from lines import names
from mirrored_clusters import Cluster, mirror
from support import fresh_name, wait_until

from zkgroup.clients.kafka.client import KafkaSettings
from zkgroup.clients.kafka.group_consumers import GroupOffsets
from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.commands import app
from zkgroup.commands._context import cluster_connection
from zkgroup.commands._error_output import render
from zkgroup.commands._shared_options import GlobalOptions
from zkgroup.commands.migrate_group import errors_of
from zkgroup.errors import RefusedError, Remedy
from zkgroup.groups.changes.migration import describe_retention
from zkgroup.protocol import znodes
from zkgroup.protocol.names import TopicPartition
from zkgroup.protocol.operations import Exists, Failure, SetData, Stat
from zkgroup.sandbox.local_cluster import Sandbox
from zkgroup.sandbox.topic_admin import ProducerRecord, create_topic

THEN = 1_700_000_000_000
#: Partition → committed offset at the source, whose partitions have ten messages each.
COMMITTED = {0: 4, 1: 10, 2: 0}


class Departure:
    """A topic of three partitions, mirrored from one cluster to another, and commands about both."""

    def __init__(self, source: Cluster, target: Cluster, folder: Path) -> None:
        self.source = source
        self.target = target
        records = [ProducerRecord(b"value %d" % n, b"key %d" % n, n % 3, THEN + n) for n in range(30)]
        self.topic = source.topic(records, 3)
        self.copy = target.topic([ProducerRecord(b"another", None, n, THEN - 1000) for n in range(3)], 3)
        self.config = folder / "config.toml"
        self.config.write_text(
            f'[clusters.old]\nzookeeper = "{source.connect}"\n[clusters.new]\nzookeeper = "{target.connect}"\n'
            f'[clusters.brokers]\nbootstrap-server = "{target.kafka.bootstrap}"\n'
        )

    narrow = ""

    def mirror(self, end: int | None = None) -> None:
        mirror(self.source, self.target, self.topic, self.copy, 0, end, partitions=3)

    def __call__(
        self, group: str, *options: str, to: str = "new", env: Mapping[str, str] | None = None
    ) -> CompletedProcess[str]:
        """``migrate-group`` with the map of the topic."""
        named = ["--topic-map", f"{self.topic}={self.copy}", "--to-cluster", to]
        return self.run("-c", "old", "migrate-group", group, *named, *options, env=env)

    def run(self, *arguments: str, env: Mapping[str, str] | None = None) -> CompletedProcess[str]:
        return run(*arguments, env={"ZKGROUP_CONFIG": str(self.config), **(env or {})})

    def group(self, offsets: Mapping[int, int] = COMMITTED, name: str | None = None) -> str:
        """A group in the source's ZooKeeper."""
        with groups_on(self.source.registry, fresh_name) as groups:
            return groups.make({}, {}, {(self.topic, n): offset for n, offset in offsets.items()}, name=name)

    def committed(self, group: str) -> list[int | None]:
        """The offsets in Kafka at the target."""
        with closing(GroupOffsets(self.target.kafka, group)) as offsets:
            return list(offsets.fetch([TopicPartition(self.copy, n) for n in range(3)], 20).values())

    def commit(self, group: str, offsets: Mapping[int, int]) -> None:
        """Commit in Kafka at the target."""
        commit_in_kafka(self.target.kafka, group, {TopicPartition(self.copy, n): one for n, one in offsets.items()})


@pytest.fixture
def leave(oldest: Cluster, newest: Cluster, tmp_path: Path) -> Departure:
    """From 0.8.2.2 to 3.9.1, with a mirror that has copied everything."""
    found = Departure(oldest, newest, tmp_path)
    found.mirror()
    return found


def test_a_group_goes_on_at_the_same_messages(leave: Departure, tmp_path: Path) -> None:
    """The plan changes nothing; --execute writes and verifies; --verify is content, a second run has nothing to do.
    Where the new consumers have read on, --verify says how far, and is content; not so where they are behind."""
    group = leave.group()
    shown = leave(group, "--output", "json")
    assert shown.returncode == 0, shown.stderr
    assert [(row["partition"], row["source"], row["match"], row["target"]) for row in json.loads(shown.stdout)] == [
        *((0, 4, "exact", 5), (1, 10, "exact", 11), (2, 0, "exact", 1))
    ]
    result = leave(group, "--verify")
    assert (result.returncode, names(result.stderr, group, f"{leave.copy}-0", 5)) == (6, True)
    result = leave(group, "--execute")
    assert (result.returncode, names(result.stderr, 3, group, "new")) == (0, True), result.stderr
    assert leave.committed(group) == [5, 11, 1]
    assert [leave.target.value_at(leave.copy, at, n) for n, at in enumerate([5, 11])] == [
        leave.source.value_at(leave.topic, at, n) for n, at in enumerate([4, 10])
    ]
    assert leave(group, "--verify").returncode == 0
    unneeded = tmp_path / "backup"
    assert (leave(group, "--execute", "--backup", str(unneeded)).returncode, unneeded.exists()) == (0, False)
    leave.commit(group, {0: 7, 2: 4})
    result = leave(group, "--verify")
    ahead = names(result.stderr, "warning", 5, f"{leave.copy}-0", f"{leave.copy}-2")
    assert (result.returncode, ahead) == (0, True), result.stderr
    leave.commit(group, {1: 10})
    result = leave(group, "--verify")
    assert (result.returncode, names(result.stderr, f"{leave.copy}-1", 10, 11)) == (6, True)


def test_back_to_the_oldest_release_and_undone(oldest: Cluster, newest: Cluster, tmp_path: Path) -> None:
    """From Kafka's offsets at 3.9.1 to ZooKeeper's at 0.8.2.2: translated, and taken back with the backup."""
    leave = Departure(newest, oldest, tmp_path)
    leave.mirror()
    group = fresh_name("group")
    commit_in_kafka(newest.kafka, group, {TopicPartition(leave.topic, n): offset for n, offset in COMMITTED.items()})
    leave.commit(group, {0: 9})
    backup = str(tmp_path / "backup")
    result = leave(group, "--to", "zookeeper", "--execute", "--backup", backup)
    assert result.returncode == 0, result.stderr
    shown = leave.run("-c", "new", "offsets", group, "--store", "zookeeper", "--output", "json")
    assert [row["committed"] for row in json.loads(shown.stdout)] == [5, 11, 1]
    assert names(result.stderr, "warning", f"{leave.copy}-0", "reset-offsets", "--store both")
    undone = leave.run("-c", "new", "reset-offsets", group, "--undo", backup, "--execute")
    assert undone.returncode == 0, undone.stderr
    left = [znodes.offset(group, TopicPartition(leave.copy, n)) for n in COMMITTED]
    assert not any(isinstance(one, Stat) for one in oldest.registry.read([Exists(path) for path in left]))


def test_an_undo_leaves_what_is_new_in_kafka(leave: Departure, tmp_path: Path) -> None:
    """The plan of a new group warns of it, and the undo ends with 6; the whole group can be deleted."""
    group, backup = leave.group(), str(tmp_path / "backup")
    result = leave(group, "--execute", "--backup", backup)
    assert names(result.stderr, "warning", f"{leave.copy}-0..2", "--undo")
    assert leave.run("-c", "new", "reset-offsets", group, "--undo", backup, "--execute").returncode == 6
    assert leave.committed(group) == [5, 11, 1]
    result = leave.run("-c", "new", "delete-group", group, "--execute")
    assert (result.returncode, leave.committed(group)) == (0, [None, None, None]), result.stderr


def test_what_is_not_mirrored_yet_is_refused_and_nothing_is_written(
    oldest: Cluster, newest: Cluster, tmp_path: Path
) -> None:
    """Exit 5; as soon as the mirror has caught up it goes. Or at once, from the start of the log, where that is asked
    for."""
    leave = Departure(oldest, newest, tmp_path)
    leave.mirror(7)
    group = leave.group()
    shown = leave(group, "--output", "json")
    matches = {row["partition"]: row["match"] for row in json.loads(shown.stdout)}
    assert (shown.returncode, matches) == (0, {0: "exact", 1: "not found", 2: "exact"})
    result = leave(group, "--execute")
    refusal = result.stderr.splitlines()[-1]
    assert (result.returncode, leave.committed(group)) == (5, [None, None, None])
    assert names(refusal, "new", f"{leave.topic}-1", "--topic", "--not-found earliest"), refusal
    other = leave.group()
    result = leave(other, "--not-found", "earliest", "--execute")
    assert (result.returncode, leave.committed(other)) == (0, [5, 0, 1]), result.stderr
    assert leave(other, "--not-found", "earliest", "--verify").returncode == 0, "it is in place"
    assert leave(other, "--verify").returncode == 6
    shown = leave("--not-found=earliest", "--pattern", other, "--output", "json")
    assert [(row["repeated"], row["not_found"]) for row in json.loads(shown.stdout)] == [(None, 1)]
    mirror(leave.source, leave.target, leave.topic, leave.copy, 7, partitions=3)
    assert leave(group, "--execute").returncode == 0
    assert leave.committed(group) == [5, 11, 1]


def test_members_at_either_end_are_refused(leave: Departure) -> None:
    """A member at the source, in ZooKeeper, and one at the target, in Kafka: exit 5, and nothing is written."""
    with groups_on(leave.source.registry, fresh_name) as groups:
        group = groups.make({"@_busy": static({leave.topic: 1})}, {}, {(leave.topic, 0): 4})
        result = leave(group, "--execute")
        assert (result.returncode, names(result.stderr, group, f"{group}_busy")) == (5, True)
        shown = leave(group)
        assert (shown.returncode, names(shown.stderr, "--execute", group, f"{group}_busy")) == (0, True)
        assert names(shown.stderr, f"{leave.topic}-1..2", 2)
    idle = leave.group()
    with joined(leave.target.kafka, idle, [leave.copy]):
        result = leave(idle, "--execute")
    assert (result.returncode, names(result.stderr, "new", idle, "Kafka", "tester-")) == (5, True)
    assert leave.committed(idle) == [None, None, None]


def test_offsets_that_are_in_place_are_not_done_while_the_source_works(leave: Departure) -> None:
    """Once its members there commit again, the group is behind: exit 5, alone and among many. Those at the target may
    work, as they do after a move."""
    with groups_on(leave.source.registry, fresh_name) as groups:
        group = groups.make({"@_busy": static({leave.topic: 1})}, {}, {(leave.topic, 0): 4})
        leave.commit(group, {0: 5})
        shown = leave(group)
        assert (shown.returncode, names(shown.stderr, "--execute", group, f"{group}_busy")) == (0, True)
        result = leave(group, "--execute")
        assert (result.returncode, names(result.stderr, group, f"{group}_busy")) == (5, True)
        result = leave(f"--pattern={group}", "--execute")
        assert (result.returncode, names(result.stderr, 1, 1, group, f"{group}_busy")) == (5, True)
        assert leave(group, "--verify").returncode == 0
    with joined(leave.target.kafka, group, [leave.copy]):
        result = leave(group, "--execute")
    assert (result.returncode, leave.committed(group)) == (0, [5, None, None]), result.stderr


def test_a_consumer_at_the_source_that_goes_on_is_found(
    newest: Cluster, cluster: Sandbox, registry: Registry, kafka: KafkaSettings, tmp_path: Path
) -> None:
    """It assigns its partitions itself, commits to Kafka, and shows in its next commit alone: nothing is verified."""
    leave = Departure(newest, Cluster("1.1.1", cluster.connect, registry, kafka), tmp_path)
    leave.mirror()
    group, places = fresh_name("group"), [TopicPartition(leave.topic, n) for n in COMMITTED]
    commit_in_kafka(newest.kafka, group, dict(zip(places, COMMITTED.values(), strict=True)))

    backup = str(tmp_path / "backup")

    def consume() -> None:
        wait_until(lambda: leave.committed(group) == [5, 11, 1], 60, "the offsets are written")
        commit_in_kafka(newest.kafka, group, {places[0]: 6})

    with ThreadPoolExecutor(1) as pool:
        consumer = pool.submit(consume)
        result = leave(group, "--execute", "--backup", backup, env=WAITING_FOR_COMMITS)
        consumer.result()
    *_, written, error = result.stderr.splitlines()
    assert (result.returncode, names(error, group, f"{leave.topic}-0")) == (6, True), result.stderr
    assert names(written, backup), "nothing is called moved after it"


@pytest.mark.parametrize("named", ["{}", "--pattern={}"])
def test_an_unregistered_consumer_at_the_source(leave: Departure, named: str) -> None:
    """The error names the source. Among many groups of which none moves nothing is called moved."""
    group = leave.group()
    node = znodes.offset(group, TopicPartition(leave.topic, 0))
    for _ in range(2):
        assert not isinstance(leave.source.registry.write(SetData(node, b"4")), Failure)
    options = [named.format(group), f"--topic-map={leave.topic}={leave.copy}", "--to-cluster=new", "--execute"]
    process = subprocess.Popen(
        [ZKGROUP, "-c", "old", "migrate-group", *options],
        env=environment({"ZKGROUP_CONFIG": str(leave.config)}),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    with process:
        # It names three times: of the last commit, between commits, and to wait.
        lines = list(takewhile(lambda line: len(re.findall(r"\d s\b", line)) < 3, process.stderr))
        while process.poll() is None:
            leave.source.registry.write(SetData(node, b"5"))
        lines += process.stderr
    assert (process.returncode, names(lines[-1], node)) == (5, True), lines
    assert not any(names(line, 0) or names(line, "offsets.retention.minutes") for line in lines[:-1]), lines
    assert leave.committed(group) == [None, None, None]


def test_unreachable_brokers_do_not_hide_what_was_moved() -> None:
    """How long offsets are kept is unknown then, and no error."""
    text = str(describe_retention(KafkaSettings("127.0.0.1:1"), 0.2))
    assert "offsets.retention.minutes" in text
    assert not re.search(r"\d", text)


def test_a_group_that_is_ahead_at_the_target(leave: Departure) -> None:
    """What was committed there is not set back without being asked for."""
    group = leave.group()
    leave.commit(group, {0: 8})
    result = leave(group, "--execute")
    refused = names(result.stderr, "new", f"{leave.copy}-0", "--prefer larger", "--prefer source")
    assert (result.returncode, refused, leave.committed(group)) == (5, True, [8, None, None])
    assert leave(group, "--prefer", "larger", "--execute").returncode == 0
    assert leave.committed(group) == [8, 11, 1]
    assert leave(group, "--prefer", "source", "--execute").returncode == 0
    assert leave.committed(group) == [5, 11, 1]


def test_the_other_cluster_is_reached_by_its_profile_alone(leave: Departure) -> None:
    """Variables and flags are those of the source; a target of which brokers alone are named asks to vouch that it has
    no members in ZooKeeper."""
    group = leave.group()
    env = {"ZKGROUP_ZOOKEEPER": leave.source.connect, "ZKGROUP_BOOTSTRAP_SERVER": leave.source.kafka.bootstrap}
    result = leave(group, "--execute", to="brokers", env=env)
    assert (result.returncode, names(result.stderr, "brokers", "zookeeper =", "--no-zookeeper-members")) == (5, True)
    result = leave(group, "--execute", "--no-zookeeper-members", to="brokers", env=env)
    assert (result.returncode, leave.committed(group)) == (0, [5, 11, 1]), result.stderr


def test_the_first_cluster_s_secrets_and_protocols_stay_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Neither a user nor a password nor ZooKeeper of the variables, nor a flag that takes TLS off, is for the other
    cluster."""
    config = tmp_path / "config.toml"
    config.write_text('[clusters.new]\nbootstrap-server = "kafka.example:9092"\nsecurity-protocol = "SSL"\n')
    monkeypatch.setenv("ZKGROUP_CONFIG", str(config))
    secrets = {"SASL_USER": "ops", "SASL_PASSWORD": "secret", "ZOOKEEPER_SASL_USER": "ops"}
    secrets |= {"ZOOKEEPER_SASL_PASSWORD": "secret", "ZOOKEEPER": "zk.example", "ZOOKEEPER_TLS": "true"}
    for name, value in secrets.items():
        monkeypatch.setenv(f"ZKGROUP_{name}", value)
    flags = GlobalOptions({"security_protocol": ["PLAINTEXT"], "zookeeper": ["zk.example"]})
    found = cluster_connection(typer.Context(typer.main.get_command(app), obj=flags), "new")
    assert (found.zookeeper, found.zookeeper_sasl, found.zookeeper_tls) == (None, None, None)
    assert found.kafka == {"security.protocol": "SSL"}


def test_an_error_names_its_cluster_once_and_its_commands_stay_data() -> None:
    """Also where its message begins with that name, and where it passes through both clusters."""
    with pytest.raises(RefusedError) as caught, errors_of("cluster new", "new"), errors_of("cluster new", "new"):
        raise RefusedError("cluster new group is active", Remedy("see it", ("offsets", "billing")))
    assert caught.value.message == "cluster new: cluster new group is active"
    assert render(caught.value, GlobalOptions({"zookeeper": ["zk.example"]})).endswith(
        ": see it: zkgroup -c new offsets billing"
    )
    with pytest.raises(RefusedError) as caught, errors_of("cluster new", "new"), errors_of("at the source"):
        raise RefusedError("it is active", Remedy("see it", ("offsets", "billing")))
    assert render(caught.value, GlobalOptions({"zookeeper": ["zk.example"]})) == (
        "at the source: it is active: see it: zkgroup -z zk.example offsets billing"
    )


@pytest.mark.parametrize(
    ("options", "code", "facts"),
    [
        (lambda one: ["--to-cluster", "old"], 2, ("old", "--to-cluster")),
        (lambda one: ["--to-cluster", "new"], 4, ("{topic}", "--topic-map")),
        (
            lambda one: ["--to-cluster", "new", "--topic-map", f"{one.topic}={one.narrow}"],
            5,
            ("{topic}", 3, 1),
        ),
        (lambda one: ["--to-cluster", "brokers", "--to", "zookeeper"], 2, ("brokers", "zookeeper =")),
        (lambda one: ["--to-cluster", "nowhere"], 2, ("'nowhere'",)),
        (lambda one: ["--to-cluster", "new", "--topic-map", one.topic], 2, ("--topic-map '{topic}'", "SOURCE=TARGET")),
        (
            lambda one: ["--to-cluster", "new", *(f"--topic-map={one.topic}={name}" for name in "ab")],
            2,
            ("--topic-map", "{topic}"),
        ),
        (lambda one: ["--to-cluster", "new", "--topic-map", "a=b=c"], 2, ("--topic-map 'a=b=c'", "SOURCE=TARGET")),
        (
            lambda one: ["--to-cluster", "new", *(f"--topic-map={name}=a" for name in ("nosuch", one.topic))],
            2,
            ("--topic-map", "nosuch"),
        ),
        (
            lambda one: ["--to-cluster", "new", f"--topic-map={one.topic[:-1]}=a"],
            2,
            ("--topic-map", "{misspelt}", "{topic}"),
        ),
        (lambda one: ["--to", "kafka", "--not-found", "earliest"], 2, ("--not-found", "--to-cluster")),
        (lambda one: [], 2, ("--to kafka", "--to zookeeper", "--to-cluster")),
    ],
    ids=[
        "the same cluster",
        "no topic",
        "fewer partitions",
        "a profile without ZooKeeper",
        "no profile",
        "no map",
        "a topic with two targets",
        "two targets",
        "a map of a topic that it does not read",
        "a map of a misspelt topic",
        "no cluster",
        "no place",
    ],
)
def test_what_cannot_be_translated_is_one_line(
    leave: Departure, options: Callable[[Departure], list[str]], code: int, facts: tuple[object, ...]
) -> None:
    """A wrong line is refused: the line names what is wrong, and what to give."""
    leave.narrow = leave.target.topic()
    result = leave.run("-c", "old", "migrate-group", leave.group(), *options(leave))
    assert (result.returncode, result.stderr.count("\n")) == (code, 1), result.stderr
    known = {"topic": leave.topic, "misspelt": leave.topic[:-1]}
    assert names(result.stderr, *(str(fact).format_map(known) for fact in facts)), result.stderr


def test_many_groups(oldest: Cluster, newest: Cluster, tmp_path: Path) -> None:
    """One row a group, the worst first. --execute moves those that can be moved, and exits with 5 for the others; run
    again it moves the rest, and --verify is content. A moved group that has gone on is named as ahead."""
    leave = Departure(oldest, newest, tmp_path)
    leave.mirror(7)
    stem = fresh_name("many")
    ready, lagging = leave.group({0: 4}, f"{stem}-a"), leave.group({1: 10}, f"{stem}-b")
    named = ["--topic-map", f"{leave.topic}={leave.copy}", "--to-cluster", "new", "--pattern", f"{stem}-*"]

    def many(option: str) -> tuple[CompletedProcess[str], list[tuple[str, str]]]:
        """The command, and the state of each group."""
        done = leave.run("-c", "old", "migrate-group", *named, option, "--output", "json")
        return done, [(row["group"], row["state"]) for row in json.loads(done.stdout)]

    with groups_on(oldest.registry, fresh_name) as groups:
        busy = groups.make({"@_busy": static({leave.topic: 1})}, {}, {(leave.topic, 2): 3}, name=f"{stem}-c")
        result, states = many("--execute")
    assert states == [(lagging, "refused"), (busy, "refused"), (ready, "ready")]
    assert (result.returncode, names(result.stderr, 1, "new")) == (5, True)
    assert names(result.stderr, 2, 3, lagging, f"{leave.topic}-1", busy, f"{busy}_busy"), result.stderr
    assert leave.committed(ready) == [5, None, None]
    mirror(oldest, newest, leave.topic, leave.copy, 7, partitions=3)
    result, states = many("--verify")
    assert (result.returncode, states) == (6, [(lagging, "differs"), (busy, "differs"), (ready, "done")])
    result, states = many("--execute")
    assert (result.returncode, states) == (0, [(lagging, "ready"), (busy, "ready"), (ready, "done")])
    assert (leave.committed(lagging), leave.committed(busy)) == ([None, 11, None], [None, None, 4])
    result, _ = many("--verify")
    assert (result.returncode, names(result.stderr, 3)) == (0, True)
    leave.commit(ready, {0: 9})  # its new consumers work
    result, states = many("--verify")
    assert (result.returncode, {state for _, state in states}) == (0, {"done"})
    assert names(result.stderr, "warning", ready, 4, f"{leave.copy}-0")
    result, states = many("--execute")
    assert (result.returncode, states) == (5, [(ready, "refused"), (lagging, "done"), (busy, "done")])
    assert names(result.stderr, 1, 3, ready, "new", f"{leave.copy}-0", "--prefer larger"), result.stderr


def test_each_group_that_is_left_has_the_remedy_that_fits(oldest: Cluster, newest: Cluster, tmp_path: Path) -> None:
    """Whatever keeps a group, the exit code is 5, and 6 with --verify: also where its topic is not mirrored at all.
    Each has a remedy of its own."""
    leave = Departure(oldest, newest, tmp_path)
    mirror(oldest, newest, leave.topic, leave.copy, 3, 7, partitions=3)
    stem = fresh_name("many")
    ready, lagging, late = (
        leave.group(offsets, f"{stem}-{name}") for offsets, name in (({0: 4}, "a"), ({1: 10}, "b"), ({2: 1}, "c"))
    )
    with groups_on(oldest.registry, fresh_name) as groups:
        elsewhere = oldest.topic([ProducerRecord(b"value")])
        alone = groups.make({}, {}, {(elsewhere, 0): 0}, name=f"{stem}-d")
        both = groups.make({}, {}, {(leave.topic, 0): 4}, name=f"{stem}-e")
    commit_in_kafka(oldest.kafka, both, {TopicPartition(leave.topic, 0): 5})
    named = ["--topic-map", f"{leave.topic}={leave.copy}", "--to-cluster", "new", "--pattern", f"{stem}-*"]
    for option, code in (("--execute", 5), ("--verify", 6)):
        result = leave.run("-c", "old", "migrate-group", *named, option)
        assert (result.returncode, names(result.stderr, 4, 5)) == (code, True), result.stderr
    assert leave.committed(ready) == [2, None, None]
    warnings = leave.run("-c", "old", "migrate-group", *named).stderr.splitlines()
    assert any(names(line, "--execute", 4, 5) for line in warnings), warnings
    remedies = {
        group: [line.partition(f"{group}: ")[2] for line in warnings if names(line, group, "--not-found earliest")]
        for group in (lagging, late, alone, both)
    }
    assert [len(found) for found in remedies.values()] == [1, 1, 0, 0], warnings
    assert remedies[lagging] != remedies[late], "what is waited for"
    assert any(names(line, alone) for line in warnings if not names(line, "--execute")), warnings
    assert any(line.endswith(f" zkgroup -c old migrate-group {both} --to kafka") for line in warnings), warnings


@pytest.mark.parametrize("chapter", ["cluster", pytest.param("departure", marks=pytest.mark.long)])
def test_the_guide(oldest: Cluster, newest: Cluster, tmp_path: Path, chapter: str) -> None:
    """Two chapters of the guide, block by block, for a group and a topic of the same name at both ends."""
    leave = Departure(oldest, newest, tmp_path)
    create_topic(newest.registry, leave.topic, 3)
    mirror(oldest, newest, leave.topic, leave.topic, partitions=3)
    group = leave.group()
    guide = (Path(__file__).parents[2] / "docs" / "how-to" / "migrating.md").read_text(encoding="utf-8")
    blocks = re.findall(rf"<!-- {chapter}: \w+ -->\n```bash\n(.*?)```\n", guide, re.DOTALL)
    assert blocks, "the chapter has commands"
    path = f"{Path(ZKGROUP).parent}:{os.environ['PATH']}"
    env = environment({"PATH": path, "ZKGROUP_CONFIG": str(leave.config), "ZKGROUP_CLUSTER": "old"})
    typed = "".join(blocks).replace("migrate-group --all", f"migrate-group --pattern {group}")
    typed = re.sub(r"\bbilling\b", group, typed)
    done = subprocess.run(
        ["bash", "-euc", typed], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr

    assert GroupOffsets(newest.kafka, group).fetch([TopicPartition(leave.topic, n) for n in range(3)], 20) == {
        TopicPartition(leave.topic, n): offset for n, offset in COMMITTED.items()
    }
