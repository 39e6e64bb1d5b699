"""A consumer that commits to ZooKeeper and registers nowhere, during changes of its group."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from cli import WAITING_FOR_COMMITS, run
from diagnosed_groups import findings_of, stored
from group_nodes import Groups, commit_in_kafka, tree
from lines import names
from support import wait_until

from zkgroup.clients.kafka.client import KafkaSettings
from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.groups.changes.preconditions import LATELY, find_unregistered_commits
from zkgroup.groups.snapshot.group_reader import read_group
from zkgroup.protocol import znodes
from zkgroup.protocol.names import TopicPartition
from zkgroup.protocol.operations import Create, Delete, Failure, SetData
from zkgroup.sandbox.local_cluster import Sandbox

NOW = 1411294187842
P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


@contextmanager
def committing(registry: Registry, group: str, topic: str, partitions: int, how: str = "each") -> Iterator[None]:
    """Commits for each partition by itself, several times a second, as such consumers do. ``how``: "together" in one
    transaction, "again" by deletion and creation."""
    stop = threading.Event()
    value = 10

    def commit(session: Registry) -> None:
        nonlocal value
        value += 1
        paths = [znodes.offset(group, TopicPartition(topic, number)) for number in range(partitions)]
        if how == "together":
            session.transaction([SetData(path, b"%d" % value) for path in paths])
            return
        for path in paths:
            if how == "again":
                assert not isinstance(session.write(Delete(path)), Failure)
            write = Create(path, b"%d" % value) if how == "again" else SetData(path, b"%d" % value)
            assert not isinstance(session.write(write), Failure)

    def work() -> None:
        with Registry(registry.settings, 30.0) as session:
            while not stop.wait(0.2):
                commit(session)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        wait_until(lambda: value >= 16, 20, "it has committed six times")
        yield
    finally:
        stop.set()
        thread.join(20)


def names_a_commit(stderr: str, group: str, topic: str) -> bool:
    """Whether the error names an offset's znode, which changed while the command waited."""
    return re.search(rf"{znodes.offset_topic(group, topic)}/\d+\b", stderr.splitlines()[-1]) is not None


@pytest.fixture
def live(
    registry: Registry, groups: Groups, make_topic: Callable[..., str], fill: Callable[..., object]
) -> Iterator[tuple[str, str]]:
    """A group that has such a consumer, and its topic of two partitions."""
    topic = make_topic(2)
    fill(topic, 40, 2)
    group = groups.make(offsets={(topic, 0): 10, (topic, 1): 10})
    with committing(registry, group, topic, 2):
        yield group, topic


def test_it_is_found(registry: Registry, kafka: KafkaSettings, live: tuple[str, str]) -> None:
    (found,) = (f for f in findings_of(read_group(registry, live[0], kafka=kafka)) if f.code == "unregistered-commits")
    assert (found.severity, found.subject) == ("info", live[0])
    assert re.search(r"\b2\b.*\b0\.\d s\b", found.message), "partitions, seconds since"


@pytest.mark.parametrize(
    "command",
    [
        "reset-offsets G --all-topics --to-earliest",
        "rename-group G TO",
        "delete-group G",
        "delete-group --pattern G",
        "delete-group G --topic T",
        "unsubscribe G --topic T",
        "migrate-group G --to kafka",
        "copy-group OTHER G --overwrite",
    ],
)
def test_no_change_is_made_while_it_commits(
    command: str,
    live: tuple[str, str],
    cluster: Sandbox,
    registry: Registry,
    groups: Groups,
    unique: Callable[[str], str],
) -> None:
    """The plan warns, with the age; ``--execute`` waits for the next commit, and is refused."""
    group, topic = live
    other = groups.make(offsets={(topic, 0): 1, (topic, 1): 1})
    words = {"G": group, "T": topic, "TO": unique("to"), "OTHER": other}
    args = [words.get(word, word) for word in command.split()]
    before = tree(registry, znodes.group(group)).keys()
    plan, done = run(*args, "-z", cluster.connect), run(*args, "--execute", "-z", cluster.connect)
    seen = re.compile(rf"\b{group}\b.*\b2\b.*\b0\.\d s\b")
    assert (plan.returncode, bool(seen.search(plan.stderr))) == (0, True), plan
    assert (done.returncode, bool(seen.search(done.stderr))) == (5, True), done
    assert names_a_commit(done.stderr, group, topic), done
    assert tree(registry, znodes.group(group)).keys() == before


@pytest.mark.parametrize("how", ["together", "again"])
def test_however_it_commits(
    how: str, cluster: Sandbox, registry: Registry, groups: Groups, make_topic: Callable[..., str],
    fill: Callable[..., object],
) -> None:  # fmt: skip
    """In one transaction, or by deletion and creation: nothing is written over."""
    topic = make_topic(2)
    fill(topic, 40, 2)
    group = groups.make(offsets={(topic, 0): 10, (topic, 1): 10})
    with committing(registry, group, topic, 2, how):
        assert "unregistered-commits" in {finding.code for finding in findings_of(read_group(registry, group))}
        done = run("reset-offsets", group, "--all-topics", "--to-earliest", "--execute", "-z", cluster.connect)
    assert (done.returncode, names_a_commit(done.stderr, group, topic)) == (5, True), done


def test_of_many_groups_those_without_it_are_deleted(
    live: tuple[str, str], cluster: Sandbox, registry: Registry, groups: Groups
) -> None:
    """The one in which it commits stays whole, and is named."""
    group, topic = live
    idle = groups.make(offsets={(topic, 0): 1})
    before = tree(registry, znodes.group(group)).keys()
    patterns = ("--pattern", group, "--pattern", idle)
    done = run("delete-group", *patterns, "--confirm", ",".join(patterns[1::2]), "--execute", "-z", cluster.connect)
    assert (done.returncode, names(done.stderr, 1, 2, group)) == (5, True), done
    assert names_a_commit(done.stderr, group, topic), done
    assert tree(registry, znodes.group(group)).keys() == before
    assert not tree(registry, znodes.group(idle))


@pytest.mark.parametrize("moves", [True, False])
def test_a_consumer_in_kafka_that_is_no_member(
    moves: bool, cluster: Sandbox, kafka: KafkaSettings, unique: Callable[[str], str], make_topic: Callable[..., str],
    fill: Callable[..., object], tmp_path: Path,
) -> None:  # fmt: skip
    """It assigns its partitions itself, and commits every two seconds, the same offset where nothing comes: after a
    reset and a deletion its next commit is seen, and nothing is called verified."""
    topic, group = make_topic(1), unique("assigned")
    fill(topic, 40)
    stop, place = threading.Event(), ("--store", "kafka", "-z", cluster.connect, "--execute")

    def work() -> None:
        offset = 10
        while not stop.wait(2):
            commit_in_kafka(kafka, group, {TopicPartition(topic, 0): offset})
            offset += moves

    commit_in_kafka(kafka, group, {TopicPartition(topic, 0): 9})
    thread = threading.Thread(target=work)
    thread.start()
    try:
        wait_until(lambda: read_group(None, group, kafka=kafka).partitions[0].committed("kafka") != 9, 20, "it commits")
        backup = str(tmp_path / "backup")
        command = ("reset-offsets", group, "--all-topics", "--to-earliest", "--backup", backup)
        reset = run(*command, *place, env=WAITING_FOR_COMMITS)
        *_, written, error = reset.stderr.splitlines()
        assert (reset.returncode, f"{topic}-0" in error, names(written, backup)) == (6, True, True), reset
        if moves:
            migrated = run(
                *("migrate-group", group, "--to", "zookeeper", "--execute", "-z", cluster.connect),
                env=WAITING_FOR_COMMITS,
            )
            assert (migrated.returncode, names(migrated.stderr, f"{topic}-0")) == (6, True), migrated
        deleted = run("delete-group", group, *place, env=WAITING_FOR_COMMITS)
        assert (deleted.returncode, names(deleted.stderr.splitlines()[-1], group)) == (6, True), deleted
    finally:
        stop.set()
        thread.join(20)


@pytest.mark.parametrize("ids", [True, False])
def test_once_it_has_stopped_the_change_is_made(
    ids: bool, cluster: Sandbox, registry: Registry, groups: Groups, make_topic: Callable[..., str],
    fill: Callable[..., object],
) -> None:  # fmt: skip
    """zkgroup's own writes are no such consumer's, to findings and to later changes."""
    topic = make_topic(2)
    fill(topic, 40, 2)
    group = groups.make({} if ids else None, offsets={(topic, 0): 10, (topic, 1): 10})
    with committing(registry, group, topic, 2):
        pass
    done = run("reset-offsets", group, "--all-topics", "--to-earliest", "--execute", "-z", cluster.connect)
    assert (done.returncode, bool(re.search(rf"\b{group}\b.*\d s\b", done.stderr))) == (0, True), done
    assert names(done.stderr.splitlines()[-1], 2, group)
    assert "unregistered-commits" not in {finding.code for finding in findings_of(read_group(registry, group))}
    again = run("reset-offsets", group, "--all-topics", "--to-latest", "--execute", "-z", cluster.connect)
    assert (again.returncode, "warning" in again.stderr) == (0, False), again


def test_a_member_that_has_left_is_none(
    cluster: Sandbox,
    registry: Registry,
    make_topic: Callable[..., str],
    fill: Callable[..., object],
    unique: Callable[[str], str],
) -> None:
    """It committed often, a moment ago, and was registered."""
    topic, group = make_topic(1), unique("left")
    settings = {"auto.commit.interval.ms": "100", "auto.offset.reset": "smallest"}

    def committed() -> int | None:
        rows = json.loads(run("offsets", group, "--output", "json", "-z", cluster.connect).stdout or "[]")
        return rows[0]["committed"] if rows else None

    with cluster.member(group, topic, kind="topics", name=f"{group}-a", properties=settings):
        for total in (10, 20, 30, 40):
            fill(topic, 10)
            wait_until(lambda total=total: committed() == total, 60, "it has committed")
    wait_until(lambda: not read_group(registry, group).members, 30, "it has left")
    snapshot = read_group(registry, group)
    assert snapshot.partitions[0].stored is not None
    assert snapshot.partitions[0].stored.version >= 2
    assert "unregistered-commits" not in {finding.code for finding in findings_of(snapshot)}


def test_what_tells_of_it() -> None:
    """Each condition by itself; with an earlier snapshot one change is enough."""
    one = stored(5, NOW - 1000, version=4, mzxid=70, created_at=NOW - 9000)
    found = find_unregistered_commits({P0: one}, 60, NOW, {})
    assert found is not None
    assert (found.partitions, found.age, found.interval, found.wait) == ((P0,), 1000, 2000, 4.0)
    assert find_unregistered_commits({P0: one}, 0, NOW, {}) is not None
    assert find_unregistered_commits({P0: one}, 71, NOW, {}) is None
    assert find_unregistered_commits({P0: one}, 60, NOW + LATELY, {}) is None
    assert find_unregistered_commits({P0: replace(one, version=1)}, 60, NOW, {}) is None
    assert find_unregistered_commits({P0: one, P1: one}, 60, NOW, {}) is None
    new = replace(one, version=1)
    assert find_unregistered_commits({P0: new}, 60, NOW, {}, {P0: replace(new, mzxid=65)}) is not None
    assert find_unregistered_commits({P0: new}, 60, NOW, {}, {P0: new}) is None
    assert find_unregistered_commits({P0: new}, 60, NOW, {}, {}) is None
    many = replace(one, version=5)
    assert find_unregistered_commits({P0: many, P1: many}, 60, NOW, {}) is not None
    rare = replace(many, created_at=NOW - 90_000)
    assert find_unregistered_commits({P0: rare, P1: rare}, 60, NOW, {}) is None
    idle = find_unregistered_commits({P0: replace(one, created_at=0)}, 60, NOW, {})
    assert idle is not None
    assert idle.wait == 60
