"""A member's machine in a world without servers: joining, what makes it rebalance, conflicts.

Every run is checked as ``sim.world`` shows, and every step of every member against the table of its states.
"""

from __future__ import annotations

import pytest
from lines import names
from sim.member import SimMember
from sim.world import GROUP, TIMEOUT, World, every, settled_member

from zkgroup.errors import (
    RebalanceFailedError,
    UnreachableError,
)
from zkgroup.protocol import znodes
from zkgroup.protocol.member import Phase
from zkgroup.protocol.names import TopicPartition
from zkgroup.protocol.znodes import Registration

T = [TopicPartition("t", number) for number in range(4)]


# --- joining ----------------------------------------------------------------------------------------------------------


def test_members_share_and_shares_move_when_members_come_and_go() -> None:
    """Every partition has one owner, by the plan, after each of joins and leaves; nothing is read twice."""
    world = World(2, {"t": 7})
    for name in ("a", "b", "c"):
        world.join(name)
        every(list(world.brokers.logs), world, 30)
        world.come_to_rest()
    world.members[0].leave()
    world.come_to_rest()
    world.read_all()
    assert world.repeated == 0
    for member in world.live:
        member.leave()
    world.run(3.0)
    assert [member.error for member in world.members] == [None] * 3
    assert [world.offset(partition) for partition in world.brokers.logs] == [90] * 7
    assert not [path for path in world.server.nodes if path.startswith(("/consumers/g/ids/", "/consumers/g/owners/t/"))]


def test_without_a_broker_a_member_owns_nothing_and_waits() -> None:
    """At the start a member without brokers is in the group, owns nothing, and rebalances when one comes."""
    world = World(1)
    world.brokers.stop()
    member = world.join("m1")
    world.run(5.0)
    assert member.member.phase is Phase.OWNING
    assert world.owners() == {}
    world.brokers.start()
    world.come_to_rest(2.0)


def test_what_is_owned_is_kept_while_all_brokers_are_away() -> None:
    """Without brokers a rebalance gives nothing up; it happens when they are back, also if the connection to ZooKeeper
    was lost meanwhile."""
    world, member = settled_member()
    world.brokers.stop()
    world.join("m2")
    world.run(2.0)
    assert set(world.owners().values()) == {"m1-0"}
    assert member.session is not None
    member.cut()
    world.run(0.1)
    world.brokers.start()
    member.heal()
    world.come_to_rest(10.0)


def test_further_brokers_cause_nothing() -> None:
    """Leader changes are the fetcher's business."""
    world, member = settled_member()
    before = member.member.counters.rebalances
    world.write(znodes.broker(2), b"{}")
    world.delete(znodes.broker(2))
    world.run(2.0)
    assert member.member.counters.rebalances == before


def test_an_id_held_by_a_leftover_session_is_waited_for() -> None:
    """A process that is started again with the same consumer.id joins when its former session has expired."""
    world, member = settled_member()
    member.kill()
    again = world.join("m1")
    world.run(TIMEOUT - 1.0)
    assert again.member.phase is Phase.WAITING
    world.come_to_rest(5.0)


def test_waiting_for_an_id_survives_a_lost_connection() -> None:
    """The watch on the id is lost with the connection: the node is read again."""
    world, member = settled_member()
    again = world.join("m1")
    world.run(1.0)
    assert again.member.phase is Phase.WAITING
    assert again.session is not None
    member.leave()
    again.session.reset()
    world.come_to_rest(1.0)


def test_an_id_held_for_ever_is_an_error() -> None:
    """Two members may not share a consumer.id: the second one says so, and leaves nothing."""
    world, member = settled_member()
    again = world.join("m1")
    world.run(TIMEOUT * 2)
    assert again.finished
    assert isinstance(again.error, RebalanceFailedError)
    assert "m1" in str(again.error)
    assert not member.finished
    assert world.at_rest()


def test_no_zookeeper_is_an_error_in_the_time_given() -> None:
    """Where ZooKeeper does not answer at the start, the member gives up after ``connect_timeout``."""
    world = World(1)
    member = SimMember(world.clock, world.random, world.server, world.brokers, world.settings("m", connect_timeout=3.0))
    member.up = False
    member.start()
    world.run(3.1)
    assert isinstance(member.error, UnreachableError)


# --- what makes it rebalance ------------------------------------------------------------------------------------------


def test_new_partitions_are_taken_up() -> None:
    """A topic that grows is followed."""
    world, _ = settled_member()
    world.brokers.make_topic("t", 6)
    world.come_to_rest(2.0)
    assert len(world.owners()) == 6


def test_a_change_of_replicas_alone_causes_nothing() -> None:
    """The topic's node changes when partitions move between brokers, too: that is no reason to rebalance."""
    world, member = settled_member()
    before = member.member.counters.rebalances
    world.write(znodes.topic("t"), b'{"version":1,"partitions":{"0":[2],"1":[2],"2":[2],"3":[2]}}')
    world.run(2.0)
    assert member.member.counters.rebalances == before


def test_a_filter_follows_topics_that_come_and_go() -> None:
    """Only topics that match cause a rebalance; one that goes is given up."""
    world = World(1, {"t": 2})
    member = world.join("w", registration=Registration("white_list", {"t.*": 1}, 1))
    world.come_to_rest()
    before = member.member.counters.rebalances
    world.brokers.make_topic("other", 1)
    world.run(1.0)
    assert member.member.counters.rebalances == before
    del world.brokers.logs[TopicPartition("other", 0)]
    world.brokers.make_topic("t2", 3)
    world.come_to_rest(2.0)
    world.brokers.delete_topic("t2")
    world.come_to_rest(2.0)
    assert set(world.owners()) == {TopicPartition("t", 0), TopicPartition("t", 1)}


def test_a_filter_that_matches_nothing_waits() -> None:
    """Registered, owning nothing, until a topic comes; and leaving is no trouble."""
    world = World(1)
    member = world.join("w", registration=Registration("white_list", {"x.*": 1}, 1))
    world.run(2.0)
    assert member.member.phase is Phase.OWNING
    assert world.owners() == {}
    member.leave()
    world.run(1.0)
    assert (member.finished, member.error) == (True, None)


def test_ten_events_cause_one_rebalance() -> None:
    """Events only set a flag."""
    world, member = settled_member()
    before = member.member.counters.rebalances
    for number in range(10):
        world.write(f"/consumers/g/ids/x{number}", b'{"version":1,"subscription":{},"pattern":"static"}')
    world.run(2.0)
    assert member.member.counters.rebalances <= before + 2


def test_our_id_deleted_by_hand_is_recreated() -> None:
    """The Scala consumer keeps its owner nodes then and reads nothing; we register again."""
    world, member = settled_member()
    world.delete(znodes.member_id(GROUP, "m1"))
    world.come_to_rest(2.0)
    assert znodes.member_id(GROUP, "m1") in world.server.nodes
    assert member.member.counters.sessions == 1


def test_an_owner_node_deleted_by_hand_is_claimed_again() -> None:
    """Owner nodes are watched."""
    world, _ = settled_member()
    world.delete(znodes.owner(GROUP, T[2]))
    world.come_to_rest(2.0)


def test_an_owner_node_taken_by_somebody_is_not_deleted() -> None:
    """A node in our place that belongs to another session is in the way: it is left alone, and named in the end."""
    world, member = settled_member()
    path = znodes.owner(GROUP, T[2])
    world.delete(path)
    world.write(path, b"m1-0", ephemeral=True)
    world.run(20.0)
    assert world.server.nodes[path].owner == world.operator
    assert isinstance(member.error, RebalanceFailedError)
    assert path in str(member.error)


# --- conflicts --------------------------------------------------------------------------------------------------------


def test_what_is_in_the_way_is_waited_for_and_followed_by_a_quick_retry() -> None:
    """A conflict ends when the node in the way vanishes, not when the back-off is over."""
    world = World(1)
    path = znodes.owner(GROUP, T[0])
    world.write(path, b"x-0", ephemeral=True)
    member = world.join("m1", backoff=5.0)
    world.run(1.0)
    assert member.member.phase is Phase.BACKING_OFF
    assert set(world.owners().values()) == {"x-0"}
    world.delete(path)
    world.come_to_rest(0.5)


def test_who_cannot_get_its_share_leaves_loudly() -> None:
    """After ``max_retries`` attempts, and the time the Scala consumer would have taken, the member is gone from the
    group, with an error that names what was in the way."""
    world = World(1)
    path = znodes.owner(GROUP, T[0])
    world.write(path, b"x-0", ephemeral=True)
    member = world.join("m1", max_retries=3, backoff=1.0)
    world.run(5.0)
    assert isinstance(member.error, RebalanceFailedError)
    assert path in str(member.error)
    assert znodes.member_id(GROUP, "m1") not in world.server.nodes
    assert set(world.owners().values()) == {"x-0"}


@pytest.mark.parametrize("retries", [1, 2, 4, 7])
def test_as_many_attempts_as_were_asked_for(retries: int) -> None:
    """``rebalance.max.retries`` attempts, as in the Scala consumer, and its patience: a pause after the last one, too,
    in which the member goes on as soon as what is in the way is gone."""
    path = znodes.owner(GROUP, T[0])
    for gone in (False, True):
        world = World(1)
        world.write(path, b"x-0", ephemeral=True)
        member = world.join("m1", max_retries=retries, backoff=1.0)
        world.run(retries - 0.3)
        assert (member.finished, member.member.counters.failed_attempts) == (False, retries)
        if gone:
            world.delete(path)
            world.come_to_rest(1.0)
        else:
            world.run(1.0)
            assert isinstance(member.error, RebalanceFailedError)
            assert names(str(member.error), retries, path)


def test_who_keeps_trying_gets_its_share_in_the_end() -> None:
    """``keep_trying`` pauses longer and longer, and does not leave."""
    world = World(1)
    path = znodes.owner(GROUP, T[0])
    world.write(path, b"x-0", ephemeral=True)
    member = world.join("m1", max_retries=2, backoff=0.5, keep_trying=True)
    world.run(60.0)
    assert not member.finished
    world.delete(path)
    world.come_to_rest(1.0)


def test_a_filter_of_anothers_that_java_refuses_keeps_nobody_from_the_rest() -> None:
    """Whose it is is reported; the share is computed as if it were not there."""
    world = World(2)
    world.write("/consumers/g/ids/bad", b'{"version":1,"subscription":{"[t":1},"pattern":"white_list"}', ephemeral=True)
    member = world.join("m1")
    world.run(3.0)
    assert set(world.owners()) == set(T)
    assert any(names(line, "bad") for line in member.warnings)


def test_a_bad_id_node_fails_the_attempts_and_is_named() -> None:
    """The group cannot be computed: the member says whose node it is, and goes on when that is gone in time."""
    world = World(1)
    world.write("/consumers/g/ids/bad", b"no json", ephemeral=True)
    member = world.join("m1")
    world.run(3.0)
    world.delete("/consumers/g/ids/bad")
    world.come_to_rest(3.0)
    world.write("/consumers/g/ids/bad", b"no json", ephemeral=True)
    world.run(15.0)
    assert isinstance(member.error, RebalanceFailedError)
    assert "/consumers/g/ids/bad" in str(member.error)


def test_brokers_that_do_not_answer_end_with_their_own_error() -> None:
    """Where the attempts fail because no broker answers, the error says so: its exit code is 3."""
    world = World(1)
    world.brokers.answering = False
    member = world.join("m1")
    world.run(20.0)
    assert isinstance(member.error, UnreachableError)


def test_leaving_while_backing_off_does_not_wait() -> None:
    """Neither for the back-off nor for what is in the way."""
    world = World(1)
    world.write(znodes.owner(GROUP, T[0]), b"x-0", ephemeral=True)
    member = world.join("m1", backoff=30.0)
    world.run(1.0)
    member.leave()
    world.run(0.2)
    assert (member.finished, member.error) == (True, None)
