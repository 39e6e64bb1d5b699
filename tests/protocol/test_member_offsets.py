"""A member's machine in a world without servers: where it starts, what it commits, its readers.

Every run is checked as ``sim.world`` shows, and every step of every member against the table of its states.
"""

from __future__ import annotations

import pytest
from lines import names
from sim.world import GROUP, TIMEOUT, World, every, settled_member

from zkgroup.errors import (
    MalformedZnodeError,
    SessionLostError,
    UnreachableError,
)
from zkgroup.protocol import events as ev
from zkgroup.protocol import znodes
from zkgroup.protocol.member import Phase
from zkgroup.protocol.names import TopicPartition
from zkgroup.protocol.offset_versions import CommitError

T = [TopicPartition("t", number) for number in range(4)]


# --- offsets ----------------------------------------------------------------------------------------------------------


def test_a_missing_offset_starts_where_the_reset_says_and_is_stored() -> None:
    """largest starts at the end; the offset reaches the store even if nothing was consumed."""
    world = World(1)
    every(T, world, 20)
    world.handed = dict.fromkeys(T, 20)  # a reset may choose it
    member = world.join("m1", reset="largest")
    world.come_to_rest()
    assert {offset for _, offset in member.grants[0].share.values()} == {20}
    world.run(2.0)
    assert [world.offset(partition) for partition in T] == [20] * 4


def test_a_malformed_offset_node_holds_back_its_partition_alsettled_member() -> None:
    """The others are read; the node is named, left as it is, and followed as soon as somebody mends it."""
    world = World(1)
    path = znodes.offset(GROUP, T[1])
    world.write(path, b"seven")
    every(T, world, 20)
    member = world.join("m1")
    world.run(5.0)
    assert path in member.member.held_back[T[1]]
    assert any(path in line for line in member.log)
    assert [world.offset(partition) for partition in (T[0], T[2], T[3])] == [20] * 3
    assert world.server.nodes[path].data == b"seven"
    world.write(path, b"0")
    world.come_to_rest(10.0)
    world.read_all()


def test_a_member_that_can_read_nothing_of_its_share_leaves() -> None:
    """Where every offset node of the share is malformed, sitting there would look like work."""
    world = World(1, {"t": 1})
    world.write(znodes.offset(GROUP, T[0]), b"seven")
    member = world.join("m1")
    world.run(2.0)
    assert isinstance(member.error, MalformedZnodeError)
    assert world.owners() == {}


def test_a_partition_without_a_leader_is_read_when_it_has_settled_member() -> None:
    """It keeps the member neither from its other partitions nor in the group for nothing."""
    world = World(1)
    world.brokers.leaderless[T[3]] = None
    every(T, world, 20)
    member = world.join("m1")
    world.run(3.0)
    assert list(member.member.held_back) == [T[3]]
    assert world.offset(T[0]) == 20
    del world.brokers.leaderless[T[3]]
    world.come_to_rest(10.0)
    world.read_all()
    world.run(2.0)
    assert world.offset(T[3]) == 20
    assert member.member.counters.rebalances == 1


def test_a_partition_that_has_a_leader_soon_is_no_news() -> None:
    """New partitions are led a moment later than they are registered: nobody is reported that."""
    world, member = settled_member()
    before = list(member.warnings)
    world.brokers.leaderless |= dict.fromkeys([TopicPartition("t", 4), TopicPartition("t", 5)])
    world.brokers.make_topic("t", 6)
    world.run(2.0)
    assert len(member.member.held_back) == 2
    world.brokers.leaderless.clear()
    world.come_to_rest(10.0)
    world.run(5.0)
    assert member.warnings == before


def test_partitions_that_stay_without_a_leader_are_reported_once_and_their_return() -> None:
    """One line for the partitions of a topic, also when the group rebalances meanwhile, and one when all is well."""
    world = World(1, {"t": 5, "u": 1})
    world.brokers.leaderless |= dict.fromkeys([*T[1:], TopicPartition("u", 0)])
    member = world.join("m1", topics={"t": 1, "u": 1})
    world.run(10.0)
    first, second = member.warnings
    assert (names(first, "t-1..3"), names(second, "u-0")) == (True, True)
    world.brokers.make_topic("t", 6)
    world.run(5.0)
    assert member.warnings == [first, second]
    world.brokers.leaderless.clear()
    world.come_to_rest(10.0)
    assert [names(line, "t-1..3, u-0") for line in member.warnings[2:]] == [True]


def test_a_foreign_write_is_seen_counted_and_reported() -> None:
    """Somebody else's offset is no accident that passes silently."""
    world, member = settled_member()
    world.write(znodes.offset(GROUP, T[0]), b"3")
    every(T, world, 5)
    world._written[T[0]] = 3
    world.run(3.0)
    assert member.member.counters.foreign_writes == 1
    assert [line for line in member.warnings if names(line, "t-0", 3)]
    assert world.offset(T[0]) == 25


@pytest.mark.parametrize("dual", [True, False])
def test_offsets_kept_in_kafka(dual: bool) -> None:
    """kafka alone leaves ZooKeeper's nodes alone; dual writes both, and starts at the larger."""
    world = World(1)
    every(T, world, 20)
    world.handed = dict.fromkeys(T, 20)
    world.brokers.stored = {T[0]: 5, T[1]: 9}
    world.write(znodes.offset(GROUP, T[0]), b"7")
    world._written[T[0]] = 7
    member = world.join("m1", storage="kafka", dual_commit=dual)
    world.come_to_rest()
    starts = {partition: offset for partition, (_, offset) in member.grants[0].share.items()}
    assert starts == {T[0]: 7 if dual else 5, T[1]: 9, T[2]: 0, T[3]: 0}
    world.run(5.0)
    assert world.brokers.stored == dict.fromkeys(T, 20)
    assert [world.offset(partition) for partition in T] == ([20] * 4 if dual else [7, None, None, None])


def test_a_commit_to_kafka_is_tried_again_before_the_release() -> None:
    """Brokers that are busy for a moment do not cost what was consumed."""
    world = World(1)
    every(T, world, 20)
    member = world.join("m1", storage="kafka", auto_commit_interval=1000.0, commit_backoff=0.5)
    world.come_to_rest()
    world.read_all()
    world.run(0.5)
    world.brokers.answering = False
    world.clock.after(1.2, lambda: setattr(world.brokers, "answering", True))
    member.leave()
    world.run(5.0)
    assert (member.finished, member.error) == (True, None)
    assert world.brokers.stored == dict.fromkeys(T, 20)


def test_a_commit_that_failed_on_leaving_is_the_member_s_error() -> None:
    """What could not be committed to the last is raised by closing the member."""
    world = World(1)
    every(T, world, 20)
    member = world.join("m1", storage="kafka", auto_commit_interval=1000.0, commit_backoff=0.1, commit_retries=2)
    world.come_to_rest()
    world.read_all()
    world.run(0.5)
    world.brokers.answering = False
    member.leave()
    world.run(3.0)
    assert isinstance(member.error, UnreachableError)
    assert world.owners() == {}


# --- commits that somebody asked for ----------------------------------------------------------------------------------


def test_a_commit_is_answered_when_it_is_dsettled_member() -> None:
    """Without auto-commit offsets are written only when asked."""
    world = World(1)
    every(T, world, 20)
    member = world.join("m1", auto_commit=False)
    world.come_to_rest()
    world.read_all()
    world.run(0.5)
    assert world.offset(T[0]) is None
    member.commit(7)
    world.run(0.2)
    assert member.committed == {7: None}
    assert world.offset(T[0]) == 20


def test_a_commit_in_the_middle_of_a_rebalance_is_served_before_the_release() -> None:
    """It need not wait for the new share, of which nothing is consumed."""
    world = World(1)
    every(T, world, 20)
    member = world.join("m1", auto_commit=False)
    world.come_to_rest()
    world.read_all()
    member.leave()
    member.commit(7)
    world.run(1.0)
    assert member.committed == {7: None}
    assert [world.offset(partition) for partition in T] == [20] * 4


def test_a_commit_whose_session_ends_is_refused() -> None:
    """What it was to commit is void: nobody waits for it in vain."""
    world, member = settled_member()
    every(T, world, 5)
    world.run(0.5)
    member.cut()
    member.commit(7)
    world.run(TIMEOUT * 2)
    assert 7 not in member.committed
    member.heal()
    world.run(1.0)
    assert isinstance(member.committed[7], SessionLostError)
    member.leave()
    world.run(1.0)
    member.commit(8)
    world.run(0.1)
    assert 8 in member.committed


# --- readers ----------------------------------------------------------------------------------------------------------


def test_a_rebalance_waits_for_readers_but_not_for_ever() -> None:
    """A batch that its reader does not finish in time is given up, counted, and read again by its next owner."""
    world, member = settled_member()
    every(T, world, 5)
    world.run(0.03)
    assert world.clock.run(2.0, lambda: member.reader.ledger.has_batch)
    member.reader.stuck = True
    world.join("m2")
    world.run(5.0)
    assert member.member.counters.abandoned == 1
    member.reader.stuck = False
    world.come_to_rest()
    world.read_all()


def test_the_listener_is_called_before_releasing_and_before_starting() -> None:
    """With our share before it is released, which is none at first, and with everybody's before reading begins."""
    world = World(1)
    member = world.join("m1")
    world.come_to_rest()
    world.join("m2")
    world.come_to_rest()
    whole = tuple(T)
    assert member.notices == [
        ("before_releasing", ()),
        ("before_starting", whole),
        ("before_releasing", whole),
        ("before_starting", whole),
    ]


def test_a_slow_listener_is_waited_for() -> None:
    """The rebalance goes on when the listener returns, before the share is looked for and before it is read."""
    world = World(1)
    member = world.join("m1", listener_takes=3.0)
    world.run(2.9)
    assert world.owners() == {}
    world.run(3.0)
    assert (len(world.owners()), member.grants) == (len(T), [])
    world.come_to_rest(1.0)


def test_who_leaves_without_committing_releases_all_the_same() -> None:
    """What was consumed since the last commit stays uncommitted; nodes are deleted, and it is no error."""
    world = World(1)
    every(T, world, 20)
    member = world.join("m1", auto_commit_interval=1000.0)
    world.run(5.0)
    before = [world.offset(partition) for partition in T]
    assert all(member.reader.ledger.consumed()[partition] == 20 for partition in T)
    member.post(ev.Leave(commit=False))
    world.run(2.0)
    assert (member.finished, member.error, world.owners()) == (True, None, {})
    assert [world.offset(partition) for partition in T] == before != [20] * 4


# --- commits by the listener ------------------------------------------------------------------------------------------

MANUAL = {"auto_commit": False, "listener_commits": True}


def test_a_listener_commits_what_is_released() -> None:
    """Without auto-commit the listener's commit before the release is written then and there, so that nothing is read
    twice; before reading begins there is nothing to commit, and it is answered at once."""
    world = World(1)
    every(T, world, 20)
    first = world.join("m1", **MANUAL)
    world.come_to_rest()
    assert first.committed == dict.fromkeys(first.asked)
    world.read_all()
    world.run(0.5)
    assert [world.offset(partition) for partition in T] == [None] * 4
    second = world.join("m2", **MANUAL)
    world.come_to_rest(2.0)
    assert [world.offset(partition) for partition in T] == [20] * 4
    for member in (first, second):
        member.leave()
    world.run(2.0)
    assert [member.error for member in world.members] == [None, None]
    assert len(first.notices) == 5
    for member in (first, second):
        assert member.committed == dict.fromkeys(member.asked)
    assert world.repeated == 0


def test_a_listener_s_commit_to_kafka_is_made_while_the_share_is_ours() -> None:
    """It goes to the brokers while the member waits for the listener, and the release waits for it."""
    world = World(1)
    every(T, world, 20)
    member = world.join("m1", storage="kafka", **MANUAL)
    world.come_to_rest()
    world.read_all()
    world.run(0.5)
    assert world.brokers.stored == {}
    member.leave()
    world.run(1.0)
    assert (member.finished, member.error) == (True, None)
    assert world.brokers.stored == dict.fromkeys(T, 20)


def test_a_listener_that_has_returned_does_not_cut_off_a_commit() -> None:
    """A commit that another thread has asked for meanwhile ends before the owner nodes are deleted."""
    world = World(1)
    every(T, world, 20)
    member = world.join("m1", auto_commit=False, listener_takes=1.0)
    world.come_to_rest()
    world.read_all()
    world.run(0.5)
    member.leave()
    assert world.clock.run(1.0, lambda: member.member.phase is Phase.NOTIFYING)
    world.run(0.999)
    member.commit(7)
    world.run(1.0)
    assert (member.finished, member.committed) == (True, {7: None})
    assert [world.offset(partition) for partition in T] == [20] * 4


def test_a_listener_s_commit_after_its_session_is_refused_at_once() -> None:
    """The share it would commit may be somebody else's, and the member, which has joined again, waits for nobody."""
    world = World(1)
    every(T, world, 20)
    member = world.join("m1", listener_takes=3.0, **MANUAL)
    world.come_to_rest()
    world.read_all()
    world.run(0.5)
    world.join("m2", auto_commit=False)
    assert world.clock.run(5.0, lambda: member.member.phase is Phase.NOTIFYING)
    asked = set(member.asked)
    world.end_early(member)
    assert world.clock.run(3.5, lambda: member.asked > asked)
    (token,) = member.asked - asked
    assert world.clock.run(0.01, lambda: token in member.committed)
    assert isinstance(member.committed[token], SessionLostError)
    assert [world.offset(partition) for partition in T] == [None] * 4
    world.come_to_rest()


def test_a_listener_commits_nothing_of_a_member_that_leaves_without() -> None:
    """Who leaves without committing is reported so at once by a commit, which would otherwise wait for itself."""
    world = World(1)
    every(T, world, 20)
    member = world.join("m1", **MANUAL)
    world.come_to_rest()
    world.read_all()
    asked = set(member.asked)
    member.post(ev.Leave(commit=False))
    world.run(1.0)
    assert (member.finished, member.error) == (True, None)
    (token,) = member.asked - asked
    assert isinstance(member.committed[token], CommitError)
    assert [world.offset(partition) for partition in T] == [None] * 4


def test_a_listener_s_commit_leaves_out_what_was_taken_from_us() -> None:
    """Claims are read before: the offset of a partition that somebody else has claimed stays as it is."""
    world = World(1)
    every(T, world, 20)
    world.join("m1", storage="kafka", **MANUAL)
    world.come_to_rest()
    world.read_all()
    world.run(0.5)
    path = znodes.owner(GROUP, T[2])
    world.delete(path)
    world.write(path, b"x-0", ephemeral=True)
    world.run(1.0)
    assert T[2] not in world.brokers.stored
    assert world.brokers.stored[T[0]] == 20
    world.delete(path)
    world.come_to_rest()
