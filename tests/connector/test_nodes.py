"""What others do to a member's nodes, or put in their place, on real servers, and what it makes of it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest
from members import ReadMember, committed, owners, wait_for_rest
from support import values, wait_until

from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.errors import RebalanceFailedError
from zkgroup.protocol import znodes
from zkgroup.protocol.names import TopicPartition
from zkgroup.protocol.operations import Create, Delete, Ensure, Exists, Failure, Stat
from zkgroup.protocol.topic_filter import TopicFilter
from zkgroup.sandbox.local_cluster import Sandbox
from zkgroup.sandbox.topic_admin import ProducerRecord

Make = Callable[..., str]
Fill = Callable[..., list[ProducerRecord]]
Unique = Callable[[str], str]


def test_an_id_deleted_by_hand_is_recreated(
    cluster: Sandbox, registry: Registry, make_topic: Make, unique: Unique, fill: Fill
) -> None:
    """The member notices, registers again, and goes on reading in the same session."""
    topic, group = make_topic(2), unique("group")
    with ReadMember(cluster.connect, group, {topic: 1}) as member:
        path = znodes.member_id(group, member.id)
        registry.write(Delete(path))
        wait_until(lambda: isinstance(registry.read([Exists(path)])[0], Stat), 10, "registered again")
        wait_for_rest(registry, group, 1)
        member.wait_for(values(fill(topic, 10, 2)))
        assert member.connector.statistics().counters.sessions == 1


def test_an_owner_node_deleted_by_hand_is_claimed_again(
    cluster: Sandbox, registry: Registry, make_topic: Make, unique: Unique
) -> None:
    """Owner nodes are watched."""
    topic, group = make_topic(2), unique("group")
    with ReadMember(cluster.connect, group, {topic: 1}):
        registry.write(Delete(znodes.owner(group, TopicPartition(topic, 1))))
        wait_for_rest(registry, group, 1)


def in_the_way(registry: Registry, group: str, topic: str) -> str:
    """An owner node of somebody who is not there."""
    path = znodes.owner(group, TopicPartition(topic, 0))
    registry.write(Ensure(znodes.owner_topic(group, topic)))
    assert not isinstance(registry.write(Create(path, b"ghost-0", ephemeral=True)), Failure)
    return path


def test_an_owner_node_in_the_way_is_waited_for(
    cluster: Sandbox, registry: Registry, make_topic: Make, unique: Unique, caplog: pytest.LogCaptureFixture
) -> None:
    """A conflict ends when the node goes, not when the back-off is over."""
    caplog.set_level("INFO", "zkgroup.connector")
    topic, group = make_topic(2), unique("group")
    path = in_the_way(registry, group, topic)
    joined: list[ReadMember] = []

    def join() -> None:
        joined.append(ReadMember(cluster.connect, group, {topic: 1}, rebalance_backoff_ms=20_000))

    thread = threading.Thread(target=join)
    thread.start()
    wait_until(lambda: path in caplog.text, 10, "the conflict")
    assert set(owners(registry, group).values()) == {"ghost-0"}, "rolled back"
    registry.write(Delete(path))
    began = time.monotonic()
    thread.join(20)
    assert time.monotonic() - began < 5.0
    assert len(joined[0].owned) == 2
    joined[0].close()


def test_who_cannot_get_its_share_leaves_loudly(
    cluster: Sandbox, registry: Registry, make_topic: Make, unique: Unique
) -> None:
    """The error names the node in the way and comes with an exit code; the id is gone, and the ghost's node is not."""
    topic, group = make_topic(2), unique("group")
    path = in_the_way(registry, group, topic)
    with pytest.raises(RebalanceFailedError, match=path) as caught:
        ReadMember(cluster.connect, group, {topic: 1}, consumer_id="a", rebalance_max_retries=2)
    assert caught.value.exit_code == 1
    assert registry.read([Exists(znodes.member_id(group, f"{group}_a"))]) == [None]
    assert owners(registry, group) == {TopicPartition(topic, 0): "ghost-0"}
    registry.write(Delete(path))


def test_a_running_member_that_loses_its_share_leaves_loudly(
    cluster: Sandbox, registry: Registry, make_topic: Make, unique: Unique, fill: Fill
) -> None:
    """What it had consumed of what is still its own is committed first; readers get the error, and so does who closes
    it."""
    topic, group = make_topic(2), unique("group")
    fill(topic, 20, 2)
    member = ReadMember(cluster.connect, group, {topic: 1}, rebalance_max_retries=2)
    wait_until(lambda: len(member.records) == 20, 10, "everything read")
    path = znodes.owner(group, TopicPartition(topic, 0))
    registry.transaction([Delete(path), Create(path, b"ghost-0", ephemeral=True)])
    error = member.wait_for_error(RebalanceFailedError)
    assert member.failures == [error]
    assert committed(registry, group, topic, 2)[1] == 10
    assert owners(registry, group) == {TopicPartition(topic, 0): "ghost-0"}
    registry.write(Delete(path))


def test_a_bad_id_node_stops_it_until_it_goes(
    cluster: Sandbox, registry: Registry, make_topic: Make, unique: Unique, caplog: pytest.LogCaptureFixture
) -> None:
    """As it stops the Scala consumer; but the node is named, and gone in time it does no harm."""
    caplog.set_level("INFO", "zkgroup.connector")
    topic, group = make_topic(2), unique("group")
    path = f"{znodes.ids(group)}/bad"
    registry.write(Ensure(znodes.ids(group)))
    registry.write(Create(path, b"no json", ephemeral=True))
    joined: list[ReadMember] = []
    thread = threading.Thread(target=lambda: joined.append(ReadMember(cluster.connect, group, {topic: 1})))
    thread.start()
    wait_until(lambda: path in caplog.text, 10, "the node is named")
    registry.write(Delete(path))
    thread.join(20)
    assert len(joined[0].owned) == 2
    joined[0].close()


def test_a_topic_whose_node_is_damaged_costs_only_itself(
    cluster: Sandbox, registry: Registry, unique: Unique, make_topic: Make, fill: Fill, caplog: pytest.LogCaptureFixture
) -> None:
    """One stray node must not end every member whose filter matches it, nor keep new ones out: Scala consumers
    go on as well. It is named; mended, it is read."""
    caplog.set_level("INFO", "zkgroup.connector")
    stem, group = unique("stray"), unique("group")
    topic = make_topic(2, f"{stem}-good")
    white_list = TopicFilter("white_list", f"{stem}-.*")
    path = znodes.topic(f"{stem}-bad")
    with ReadMember(cluster.connect, group, white_list, consumer_id="a") as member:
        registry.write(Create(path, b"{oops"))
        try:
            wait_until(lambda: path in caplog.text, 20, "it is named")
            with ReadMember(cluster.connect, group, white_list, consumer_id="b") as other:
                wait_until(lambda: len(member.owned) == len(other.owned) == 1, 20, "each has its share")
                sent = values(fill(topic, 10, 2))
                wait_until(lambda: member.values.keys() | other.values.keys() == sent, 20, "all read")
        finally:
            registry.write(Delete(path))
