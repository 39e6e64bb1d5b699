"""A member's machine in a world without servers: lost connections, ended sessions, leaving.

Every run is checked as ``sim.world`` shows, and every step of every member against the table of its states.
"""

from __future__ import annotations

import pytest
from lines import names
from sim.world import GROUP, TIMEOUT, World, every, settled_member

from zkgroup.errors import (
    OffsetOutOfRangeError,
    SessionLostError,
)
from zkgroup.protocol import events as ev
from zkgroup.protocol import znodes
from zkgroup.protocol.member import Phase
from zkgroup.protocol.names import TopicPartition
from zkgroup.protocol.operations import Children, Create, Delete, Op, Result

T = [TopicPartition("t", number) for number in range(4)]


# --- sessions ---------------------------------------------------------------------------------------------------------


def test_a_lost_connection_alone_costs_nothing() -> None:
    """Back within the session's time-out: no rebalance, nothing read twice."""
    world, member = settled_member()
    before = member.member.counters.rebalances
    assert member.session is not None
    for _ in range(3):
        every(T, world, 10)
        member.session.reset()
        world.run(1.0)
    world.read_all()
    world.run(1.5)
    assert member.member.counters.rebalances == before
    assert world.repeated == 0
    assert [world.offset(partition) for partition in T] == [50] * 4


def test_past_the_lease_nothing_is_delivered_or_committed() -> None:
    """A member that is cut off stops by itself before its share can be another's; what it reads until then counts once
    it is back in time."""
    world, member = settled_member()
    member.cut()
    world.run(TIMEOUT / 2 + 0.1)
    every(T, world, 10)
    world.run(1.0)
    assert all(world.handed[partition] == 20 for partition in T)
    member.heal()
    world.read_all(3.0)
    assert member.member.counters.sessions == 1


def test_changes_missed_while_disconnected_are_seen() -> None:
    """Watches are lost with the connection: after it, everything is read again."""
    world, member = settled_member()
    member.cut()
    world.run(0.1)
    world.brokers.make_topic("t", 6)
    world.run(2.0)
    member.heal()
    world.come_to_rest(3.0)


def test_an_owner_node_lost_while_disconnected_is_not_deleted_from_its_new_owner() -> None:
    """Deleted by hand and claimed by another while we could not hear of it: that one's node stays."""
    world, member = settled_member()
    path = znodes.owner(GROUP, T[2])
    member.cut()
    world.run(0.1)
    world.delete(path)
    world.write(path, b"x-0", ephemeral=True)
    member.heal()
    world.run(2.0)
    assert world.server.nodes[path].owner == world.operator
    assert member.member.phase is Phase.BACKING_OFF
    world.delete(path)
    world.come_to_rest(3.0)


@pytest.mark.parametrize("how", ["cut", "freeze", "end early"])
def test_an_expired_session_begins_anew(how: str) -> None:
    """Everything of the old session is void: a new one is opened, and the share is claimed again, from the stored
    offsets."""
    world, member = settled_member()
    every(T, world, 10)
    match how:
        case "cut":
            member.cut()
            world.run(TIMEOUT + 1)
            member.heal()
        case "freeze":
            member.freeze()
            world.run(TIMEOUT + 1)
            member.thaw()
        case _:
            world.end_early(member)
    world.come_to_rest()
    world.read_all()
    assert member.member.counters.sessions == 2


def test_a_stopped_process_commits_nothing_when_it_goes_on() -> None:
    """SIGSTOP past the time-out: others have its share by then, and what it had in hand is read by them."""
    world, member = settled_member()
    other = world.join("m2")
    world.come_to_rest()
    every(T, world, 30)
    world.run(0.2)
    member.freeze()
    world.run(TIMEOUT + 3.0)
    assert set(world.owners().values()) == {"m2-0"}
    member.thaw()
    world.come_to_rest()
    world.read_all()
    assert other.member.counters.foreign_writes == 0


@pytest.mark.parametrize("seconds", [TIMEOUT / 2 + 0.1, TIMEOUT + 3.0])
def test_a_stopped_process_begins_no_write_when_it_goes_on(seconds: float) -> None:
    """SIGSTOP past the lease, at each moment of a rebalance: whatever it was about to write, it does not send before it
    knows that its session lives (which the world reads), and all is read in the end."""
    for milliseconds in range(0, 60, 2):
        world, member = settled_member()
        every(T, world, 10)
        world.join("m2")
        world.run(0.02 + milliseconds / 1000)
        member.freeze()
        world.run(seconds)
        member.thaw()
        world.come_to_rest()
        world.read_all()


def test_what_was_held_past_the_lease_is_decided_on_anew() -> None:
    """Stopped in a release, past its lease; meanwhile somebody deletes two of its owner nodes, and another member has
    them. Once it knows that its session lives it deletes what is its own by then, not what was when it was stopped."""
    for milliseconds in range(30):
        world, member = settled_member()
        other = world.join("m2")
        world.run(milliseconds / 1000)
        member.freeze()
        for partition in T[2:]:
            world.delete(znodes.owner(GROUP, partition))
        world.run(TIMEOUT / 2 + 0.2)
        member.thaw()
        world.come_to_rest()
        assert other.member.counters.sessions == member.member.counters.sessions == 1


def test_a_second_expiry_in_the_middle_of_a_rebalance() -> None:
    """However often the session ends, and wherever in the rebalance: in the end the member has its share."""
    for milliseconds in range(0, 60, 3):
        world, member = settled_member()
        world.end_early(member)
        world.run(0.02 + milliseconds / 1000)
        world.end_early(member)
        world.come_to_rest()


# --- leaving ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("milliseconds", range(0, 60, 2))
def test_leaving_in_the_middle_of_joining(milliseconds: int) -> None:
    """Whatever step is under way: it leaves soon, without an error, and nothing of it stays."""
    world = World(milliseconds)
    member = world.join("m1", listener_takes=0.01)
    world.run(milliseconds / 1000)
    member.leave()
    world.run(1.0)
    assert (member.finished, member.error) == (True, None)
    assert "/consumers/g/ids/m1" not in world.server.nodes
    assert world.owners() == {}


@pytest.mark.parametrize("milliseconds", range(0, 60, 2))
def test_leaving_in_the_middle_of_a_rebalance(milliseconds: int) -> None:
    """The same while another joins; what was consumed is committed, once."""
    world, member = settled_member()
    every(T, world, 10)
    world.join("m2")
    world.run(0.02 + milliseconds / 1000)
    member.leave()
    world.run(3.0)
    assert (member.finished, member.error) == (True, None)
    world.come_to_rest()
    world.read_all()
    assert world.repeated == 0


@pytest.mark.parametrize("how", ["cut", "brokers", "listener", "stuck"])
def test_leaving_takes_no_longer_than_its_limit(how: str) -> None:
    """Without ZooKeeper, without brokers, with a listener or a reader that does not return: ``leave_timeout`` ends it,
    with an error if something was left undone."""
    world = World(1)
    every(T, world, 10)
    options: dict[str, object] = {"storage": "kafka"} if how == "brokers" else {}
    member = world.join("m1", leave_timeout=4.0, auto_commit_interval=1000.0, commit_retries=1000, **options)
    world.come_to_rest()
    world.read_all()
    match how:
        case "cut":
            member.cut()
        case "brokers":
            world.brokers.answering = False
        case "listener":
            member.listener_delay = 1000.0
        case _:
            every(T, world, 10)
            assert world.clock.run(2.0, lambda: member.reader.ledger.has_batch)
            member.reader.stuck = True
    member.leave()
    world.run(4.1)
    assert member.finished
    waited = {"cut": "ZooKeeper", "brokers": "brokers", "listener": "listener"}
    reported = [line for line in member.warnings if names(line, "1 s")]
    assert [names(line, "1 s", waited.get(how, "")) for line in reported] == [True] * (how in waited)
    if how == "stuck":
        assert member.error is None
        assert member.member.counters.abandoned == 1
    else:
        assert isinstance(member.error, SessionLostError)


@pytest.mark.parametrize("comes_back", [False, True])
def test_who_leaves_without_a_connection_waits_for_one_a_moment_and_says_so(comes_back: bool) -> None:
    """Three seconds, not ten: the session's end releases what it owns. If the connection comes back in time it leaves
    in order, however long that takes within its limit."""
    world = World(1)
    every(T, world, 20)
    member = world.join("m1", auto_commit_interval=1000.0)
    world.come_to_rest()
    world.read_all()
    world.run(0.5)
    member.cut()
    world.run(TIMEOUT * 2 / 3 + 0.1)
    member.leave()
    world.run(0.1)
    assert names(member.warnings[-1], "3 s", "ZooKeeper")
    if comes_back:
        world.run(1.0)
        member.heal()
    world.run(3.0)
    assert member.finished
    if comes_back:
        assert (member.error, world.owners()) == (None, {})
        assert [world.offset(partition) for partition in T] == [20] * 4
    else:
        assert isinstance(member.error, SessionLostError)
        assert names(str(member.error), "3 s")


def test_streams_stop_at_once_when_leaving_without_a_connection() -> None:
    """Readers see the end of their streams, also where ZooKeeper is away."""
    world, member = settled_member()
    member.cut()
    world.run(TIMEOUT * 2 / 3 + 0.1)
    member.leave()
    world.run(0.1)
    assert member.member.phase is Phase.COMMITTING
    assert member.reader.ledger.generation is None


def test_a_session_that_ends_while_leaving() -> None:
    """With something uncommitted that is an error, without it is not; either way the member is gone."""
    world, member = settled_member()
    member.leave()
    world.end_early(member)
    world.run(1.0)
    assert member.finished
    other_world = World(1)
    other_world.brokers.stop()
    idle = other_world.join("m1")
    other_world.run(1.0)
    idle.leave()
    other_world.end_early(idle)
    other_world.run(1.0)
    assert (idle.finished, idle.error) == (True, None)


def test_a_stream_that_cannot_go_on_makes_the_member_leave_with_its_error() -> None:
    """What was consumed is committed and the share released first."""
    world, member = settled_member()
    every(T, world, 10)
    world.read_all()
    world.run(0.2)
    member.post(ev.StreamFailed(OffsetOutOfRangeError("out of range")))
    world.run(2.0)
    assert isinstance(member.error, OffsetOutOfRangeError)
    assert [world.offset(partition) for partition in T] == [30] * 4
    assert world.owners() == {}


def test_after_the_end_nothing_happens() -> None:
    """A closed member takes any event, and does nothing."""
    world, member = settled_member()
    member.leave()
    world.run(1.0)
    for event in (ev.Tick(), ev.Start(), ev.Leave(), ev.Paused(1, {}), ev.Answered(1, {}), ev.Reply(1, (), 0.0)):
        assert member.member.handle(event, world.clock.now) == []
    assert member.member.wake_at == float("inf")


def test_the_model_s_operator_can_hurt() -> None:
    """The world's checks see a foreign delete: they are not blind."""
    world, _ = settled_member()
    zombie = world.server.open_session()
    with pytest.raises(AssertionError, match="foreign node deleted"):
        world.server.apply(zombie, Delete(znodes.owner(GROUP, T[0])))
    with pytest.raises(AssertionError, match="commit by nobody"):
        world.server.apply(zombie, Create(znodes.offset(GROUP, T[0]) + "0", b"1"))


def test_what_waited_to_be_committed_to_kafka_is_not_sent_under_the_next_session() -> None:
    """Found by the simulation: whoever commits to Kafka asked whether the lease held, and not whose. A commit that had
    waited behind a slow broker was sent once the next session had a lease, over the successor's."""
    world = World(1)
    member = world.join("m1", storage="kafka", auto_commit=False)
    every(T, world, 20)
    world.come_to_rest()
    world.read_all()
    epoch = member.member.epoch
    assert member.member.has_lease(epoch, world.clock.now)
    member._asked_at = world.clock.now + 3.0  # brokers are slow
    member.commit(1)
    world.run(0.1)
    world.end_early(member)
    world.run(2.0)
    assert member.member.lease.is_valid(world.clock.now)
    assert not member.member.has_lease(epoch, world.clock.now)
    world.run(2.0)
    assert not world.brokers.stored


def test_a_watch_that_comes_late_lets_nobody_delete_what_is_anothers() -> None:
    """Found by the simulation: between its last answer and its release a member heard nothing of an owner node that was
    deleted by hand and taken by somebody else, and deleted that one's."""
    world = World(1)
    member = world.join("m1", listener_takes=0.3)
    world.come_to_rest()
    world.join("m2")
    assert world.clock.run(5.0, lambda: member.member.phase is Phase.NOTIFYING)
    member.deaf(world.clock.now + 2.0)
    for partition in T:
        world.delete(znodes.owner(GROUP, partition))
        world.write(znodes.owner(GROUP, partition), b"x-0", ephemeral=True)
    world.run(4.0)
    assert {world.server.nodes[znodes.owner(GROUP, partition)].owner for partition in T} == {world.operator}


def test_who_leaves_deletes_no_id_of_anothers() -> None:
    """Found by the simulation: a member whose server lagged behind read its own id node as it left, and deleted the one
    that had been made under the same id since somebody had deleted the first by hand."""
    world, member = settled_member()
    path = znodes.member_id(GROUP, "m1")
    assert member.session is not None
    assert member.session.join_follower(0.3)
    member.leave()
    assert world.clock.run(5.0, lambda: not world.owners())  # only its id is left to go
    world.run(0.15)
    world.delete(path)
    world.write(path, b"{}", ephemeral=True)
    world.run(10.0)
    assert member.finished
    assert world.server.nodes[path].owner == world.operator


def test_a_broker_that_comes_between_the_answers_of_a_read_is_not_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Found by the simulation: who joined while no broker was there looked with two requests, and passed over an event
    that came between their answers, as it did not know yet that it was waiting for one."""
    world = World(1)
    world.brokers.stop()
    apply = world.server.apply

    def come_in_between(session: int, op: Op) -> Result:
        result = apply(session, op)
        if op == Children(znodes.broker_ids(), watch=True):
            world.brokers.start()
        return result

    monkeypatch.setattr(world.server, "apply", come_in_between)
    member = world.join("m1")
    world.run(2.0)
    assert world.brokers.up
    assert set(member.member.share) == set(T)
