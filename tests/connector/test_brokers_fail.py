"""Brokers that die, leaders, controllers and replicas that move, under a group that reads: it goes on, without a
rebalance (what moves is the fetchers' business), and nothing is lost, read twice or taken back."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from observed_group import Observed
from servers import Sandbox, pause, resume
from support import fresh_name, wait_until

from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.protocol import znodes
from zkgroup.protocol.names import OFFSETS_TOPIC, TopicPartition
from zkgroup.protocol.operations import Create, Delete, Exists, Failure, Get, Node, Stat
from zkgroup.sandbox.topic_admin import create_topic

PARTITIONS = 6


@pytest.fixture(scope="module")
def three(zookeeper: Sandbox) -> Iterator[Sandbox]:
    """Three brokers, on the shared ZooKeeper."""
    name = fresh_name("three")
    # A broker is taken for dead after four seconds, not six; after two, a busy machine's are, too. A controller
    # (1.1.1) that has a request under way to one that is stopped waits for its answer, thirty seconds by default,
    # before it elects other leaders.
    with Sandbox(
        name,
        zookeeper=zookeeper.address,
        chroot=f"/{name}",
        brokers=3,
        properties={"zookeeper.session.timeout.ms": "4000", "controller.socket.timeout.ms": "3000"},
    ) as sandbox:
        with sandbox.registry(30.0) as registry:
            create_topic(registry, OFFSETS_TOPIC, 4, replication=3)  # as it is where brokers are to be spared
        yield sandbox


@pytest.fixture
def observer(three: Sandbox) -> Iterator[Registry]:
    """Looks at the cluster of three, and changes it."""
    with three.registry(30.0) as registry:
        yield registry


@pytest.fixture
def observed(three: Sandbox, observer: Registry) -> Iterator[Observed]:
    """Two members, which read a topic of two replicas."""
    topic = fresh_name("topic")
    create_topic(observer, topic, PARTITIONS, replication=2)
    with Observed(three.connect, three.bootstrap, fresh_name("group"), topic, PARTITIONS) as observed:
        observed.join("a")
        observed.join("b")
        observed.wait_for_progress()
        before = [member.connector.statistics().counters.rebalances for member in observed.members]
        yield observed
        assert before == [member.connector.statistics().counters.rebalances for member in observed.members]
    assert observed.verdict.again == 0


def read_json(observer: Registry, path: str) -> dict[str, object]:
    (node,) = observer.read([Get(path)])
    assert isinstance(node, Node), (path, node)
    found = json.loads(node.data)
    assert isinstance(found, dict)
    return found


def leaders(observer: Registry, topic: str) -> list[object]:
    """Who leads each partition."""
    paths = [znodes.partition_state(TopicPartition(topic, p)) for p in range(PARTITIONS)]
    return [read_json(observer, path)["leader"] for path in paths]


def order(observer: Registry, path: str, data: dict[str, object]) -> None:
    """Tell the controller to do something, and wait until it has."""
    assert not isinstance(observer.write(Create(path, json.dumps(data).encode())), Failure)
    wait_until(lambda: observer.read([Exists(path)]) == [None], 60, f"the controller is done with {path}")


def elect_preferred(observer: Registry, topic: str) -> None:
    """Each partition is led by its first replica."""
    partitions = [{"topic": topic, "partition": p} for p in range(PARTITIONS)]
    order(observer, "/admin/preferred_replica_election", {"version": 1, "partitions": partitions})


@pytest.mark.parametrize("how", ["killed", pytest.param("stopped", marks=pytest.mark.long)])
def test_a_leader_that_fails_is_followed_to_the_next(
    three: Sandbox, observer: Registry, observed: Observed, how: str
) -> None:
    """A broker killed, or stopped past its session: its partitions are read from their next leaders; when it is back
    and leads again, they are read from there."""
    before = leaders(observer, observed.topic)
    if how == "killed":
        three.broker(2).kill()
    else:
        pause(three.broker(2))
    try:
        wait_until(lambda: 2 not in leaders(observer, observed.topic), 60, "other leaders")
        observed.wait_until_read()
    finally:  # the tests after this one need it, too
        if how == "killed":
            three.start_broker(2)
        else:
            resume(three.broker(2))
    isr = [znodes.partition_state(TopicPartition(observed.topic, p)) for p in range(PARTITIONS)]
    wait_until(lambda: all(len(read_json(observer, path)["isr"]) == 2 for path in isr), 60, "all replicas in sync")
    elect_preferred(observer, observed.topic)
    assert leaders(observer, observed.topic) == before
    observed.wait_until_read()


def test_leaders_move(observer: Registry, observed: Observed) -> None:
    """Leadership is handed over in peace, forth and back."""
    topic = observed.topic
    registration = read_json(observer, znodes.topic(topic))
    replicas = registration["partitions"]
    assert isinstance(replicas, dict)
    for turn in (1, 2):
        moved = [{"topic": topic, "partition": int(p), "replicas": list(reversed(r))} for p, r in replicas.items()]
        if turn == 2:
            moved = [{"topic": topic, "partition": int(p), "replicas": r} for p, r in replicas.items()]
        order(observer, "/admin/reassign_partitions", {"version": 1, "partitions": moved})
        elect_preferred(observer, topic)
        assert leaders(observer, topic) == [each["replicas"][0] for each in sorted(moved, key=lambda m: m["partition"])]
        observed.wait_until_read()


def test_partitions_are_reassigned(observer: Registry, observed: Observed) -> None:
    """The leading replica of each partition goes to the broker that had none: the topic's node changes many times, its
    partitions do not, and nobody rebalances."""
    topic = observed.topic
    goal = {p: [(p + 2) % 3 + 1, (p + 1) % 3 + 1] for p in range(PARTITIONS)}
    moved = [{"topic": topic, "partition": p, "replicas": replicas} for p, replicas in goal.items()]
    before = read_json(observer, znodes.topic(topic))["partitions"]
    assert isinstance(before, dict)
    assert all(goal[int(p)][0] not in replicas for p, replicas in before.items())
    order(observer, "/admin/reassign_partitions", {"version": 1, "partitions": moved})
    elect_preferred(observer, topic)
    assert leaders(observer, topic) == [goal[p][0] for p in range(PARTITIONS)]
    observed.wait_until_read()


def test_the_controller_moves(observer: Registry, observed: Observed) -> None:
    """The controller is deposed; another broker takes over, and elects leaders when it is reported to."""

    def epoch() -> int:
        (node,) = observer.read([Get("/controller_epoch")])
        assert isinstance(node, Node)
        return int(node.data)

    before = epoch()
    observer.write(Delete("/controller"))
    wait_until(
        lambda: epoch() > before and isinstance(observer.read([Exists("/controller")])[0], Stat), 30, "another one"
    )
    elect_preferred(observer, observed.topic)
    observed.wait_until_read()
