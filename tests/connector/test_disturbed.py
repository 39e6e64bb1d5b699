"""A group that reads while its registry, its topics or its clock do what they seldom do."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator

import pytest
from members import ReadMember, committed, wait_for_rest
from observed_group import Observed
from support import numbered, wait_until
from topic_changes import delete_topic

from zkgroup.clients.kafka.client import KafkaSettings
from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.connector import zookeeper_connector
from zkgroup.connector.zookeeper_driver import boot_clock
from zkgroup.protocol import znodes
from zkgroup.protocol.names import TopicPartition
from zkgroup.protocol.operations import Create, Delete, Failure, Get, Node, Result, SetData
from zkgroup.sandbox.local_cluster import Sandbox
from zkgroup.sandbox.topic_admin import create_topic, produce

TRIGGER = b'{"version":1,"subscription":{},"pattern":"static","timestamp":"0"}'


@pytest.fixture
def observed(
    cluster: Sandbox, registry: Registry, make_topic: Callable[..., str], unique: Callable[[str], str]
) -> Iterator[Observed]:
    """Two members that read four partitions."""
    with Observed(cluster.connect, cluster.bootstrap, unique("group"), make_topic(4), 4) as observed:
        yield observed


def storm(registry: Registry, ops: list[Create | Delete | SetData], seconds: float) -> tuple[int, float]:
    """Do these again and again, at once; returns how many that were, and how many a second."""
    begun, done = time.monotonic(), 0
    while (took := time.monotonic() - begun) < seconds:
        results: list[Result] = registry.read(ops * 25)
        assert not any(isinstance(result, Failure) for result in results), results
        done += len(results)
    return done, done / took


@pytest.mark.parametrize("where", ["members", "topic", "owner"])
def test_a_thousand_changes_a_second(registry: Registry, second: Registry, observed: Observed, where: str) -> None:
    """What the group watches changes more than a thousand times a second, for three seconds: members that come and go,
    a topic's node, an owner node's. Only members that come and go make the group rebalance, many changes at a time, and
    it is at rest when they stop; through the others it goes on reading."""
    observed.join("a")
    observed.join("b")
    wait_for_rest(registry, observed.group, 2)
    observed.wait_for_progress()
    before = sum(member.connector.statistics().counters.rebalances for member in observed.members)
    read = sum(len(member.records) for member in observed.members)
    if where == "members":
        node = znodes.member_id(observed.group, "passer-by")
        ops: list[Create | Delete | SetData] = [Create(node, TRIGGER, ephemeral=True), Delete(node)]
    else:
        partition = TopicPartition(observed.topic, 0)
        node = znodes.topic(observed.topic) if where == "topic" else znodes.owner(observed.group, partition)
        (found,) = registry.read([Get(node)])
        assert isinstance(found, Node)
        ops = [SetData(node, found.data)]
    changes, rate, deadline = 0, 0.0, time.monotonic() + 40
    while rate <= 1000:  # on a busy machine it takes more than one attempt to be that fast
        assert time.monotonic() < deadline, f"{rate:.0f} changes a second"
        done, rate = storm(second, ops, 3.0)
        changes += done
    if where != "members":
        assert sum(len(member.records) for member in observed.members) > read, "they have read meanwhile"
    wait_for_rest(registry, observed.group, 2)
    rebalances = sum(member.connector.statistics().counters.rebalances for member in observed.members) - before
    assert (rebalances > 0) == (where == "members")
    assert rebalances < changes / 20
    observed.wait_until_read()


class JumpingClock:
    """A clock that can be set: the member's own, which does not stop while the machine sleeps."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def __call__(self) -> float:
        return boot_clock() + self.ahead


@pytest.mark.parametrize("seconds", [30.0, 86_400.0])
def test_a_clock_that_jumps_ahead(registry: Registry, observed: Observed, seconds: float) -> None:
    """As after the machine slept: past its lease a member delivers nothing before a server has answered; the session
    that lives on is kept, and nothing is read twice."""
    clock = JumpingClock()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(zookeeper_connector, "boot_clock", clock)
        observed.join("a")
    observed.join("b")
    wait_for_rest(registry, observed.group, 2)
    for _ in range(3):
        clock.ahead += seconds
        observed.wait_for_progress()
    assert [member.connector.statistics().counters.sessions for member in observed.members] == [1, 1]
    assert [member.connector.statistics().counters.rebalances for member in observed.members] == [2, 1]


@pytest.mark.parametrize("left", [4, 1])
def test_a_topic_recreated_with_other_partitions_while_it_is_read(
    cluster: Sandbox,
    registry: Registry,
    make_topic: Callable[..., str],
    unique: Callable[[str], str],
    kafka: KafkaSettings,
    left: int,
) -> None:
    """Recreated with as many or fewer partitions, at once, under two members active: all of the new
    topic is read, its offsets are committed, and nothing of partitions that are no more is owned."""
    topic, group = make_topic(4), unique("group")
    produce(kafka, topic, numbered(400, 4))
    with (
        ReadMember(cluster.connect, group, {topic: 1}, consumer_id="a") as one,
        ReadMember(cluster.connect, group, {topic: 1}, consumer_id="b") as other,
    ):
        wait_until(lambda: len(one.values | other.values) == 400, 30, "the old topic is read")
        wait_until(lambda: committed(registry, group, topic, 4) == [100] * 4, 30, "and committed")
        delete_topic(registry, topic)
        create_topic(registry, topic, left)
        new = numbered(40, left, 1000)
        produce(kafka, topic, new)
        wanted = {record.value for record in new}
        wait_until(lambda: (one.values | other.values).keys() >= wanted, 60, "the new topic is read")
        wait_for_rest(registry, group, 2)
        wait_until(
            lambda: committed(registry, group, topic, 4)[:left] == [40 // left] * left, 30, "the new offsets are stored"
        )
        counts = Counter(one.values) + Counter(other.values)
        assert {value: counts[value] for value in wanted} == dict.fromkeys(wanted, 1)
        assert set(one.owned) | set(other.owned) == {TopicPartition(topic, p) for p in range(left)}


def test_a_foreign_owner_node_in_an_active_group(registry: Registry, second: Registry, observed: Observed) -> None:
    """Somebody's node takes the place of an owner node of a group at rest, between two snapshots of its owner: the
    members keep what they can prove to be theirs, and have the rest when it goes."""
    observed.join("a", rebalance_max_retries=50)
    observed.join("b", rebalance_max_retries=50)
    wait_for_rest(registry, observed.group, 2)
    path = znodes.owner(observed.group, TopicPartition(observed.topic, 0))
    second.transaction([Delete(path), Create(path, b"foreign-0", ephemeral=True)])
    failed = lambda: sum(m.connector.statistics().counters.failed_attempts for m in observed.members)  # noqa: E731
    wait_until(lambda: failed() > 1, 20, "they have tried")
    observed.excused["a"] += 4
    observed.excused["b"] += 4
    second.write(Delete(path))
    wait_for_rest(registry, observed.group, 2)
    observed.wait_until_read()
