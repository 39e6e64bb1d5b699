"""Groups under schedules of faults: after the last fault they come to rest, and nothing is lost.

What is checked at every step is told in ``sim.world``; what must be so at the end in ``sim.schedule``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sim.member import CheckedMember
from sim.schedule import COMMITTERS, FAULTS, LENGTHS, OPTIONS, WAITS, Event, Play, random_play
from sim.world import GROUP, World

from zkgroup.protocol import lease, member, offsets, procedures, znodes
from zkgroup.protocol.ledger import Ledger
from zkgroup.protocol.member import TRANSITIONS, Member, Phase, acquiring
from zkgroup.protocol.member.holdings import Holdings
from zkgroup.protocol.names import TopicPartition
from zkgroup.protocol.ops import Delete, Sync

SEEDS = 400

EVENTS = st.builds(Event, st.sampled_from(WAITS), st.sampled_from(FAULTS), st.integers(0, 99), st.sampled_from(LENGTHS))


def play_all() -> None:
    for seed in range(SEEDS):
        random_play(seed)


@pytest.fixture(autouse=True)
def _small_transactions(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a handful of partitions needs several, of which some may succeed where others do not."""
    monkeypatch.setattr(procedures, "CHUNK", 2)
    monkeypatch.setattr(offsets, "CHUNK", 2)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    seed=st.integers(0, 2**32),
    strategy=st.sampled_from(["range", "roundrobin"]),
    partitions=st.integers(1, 5),
    members=st.lists(st.sampled_from(OPTIONS + COMMITTERS), min_size=1, max_size=3),
    events=st.lists(EVENTS, max_size=12),
)
def test_a_group_stands_any_schedule(
    seed: int, strategy: Any, partitions: int, members: list[dict[str, object]], events: list[Event]
) -> None:
    """Members that join, leave, die, stop, are cut off, lose requests and replies, are robbed: in the end every
    partition is owned by the plan, every message was read, every commit answered, and nothing of the group stays."""
    play = Play(World(seed, {"t": partitions}, strategy))
    for options in members:
        play.join(**options)
    play.happen_all(events)


CALM = st.builds(
    Event,
    st.sampled_from(WAITS),
    st.sampled_from(["join", "leave", "reset", "lose request", "lose reply", "more partitions", "produce", "commit"]),
    st.integers(0, 99),
    st.just(0.5),
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    seed=st.integers(0, 2**32),
    members=st.lists(st.sampled_from(COMMITTERS), min_size=1, max_size=3),
    events=st.lists(CALM, max_size=10),
)
def test_listeners_that_commit_have_nothing_read_twice(
    seed: int, members: list[dict[str, object]], events: list[Event]
) -> None:
    """Where nobody dies, and nobody is cut off for long, members that commit only in their listeners hand on all that
    they have read."""
    play = Play(World(seed))
    for options in members:
        play.join(**options)
    play.happen_all(events)
    assert play.world.repeated == 0


def test_every_way_in_the_table_is_gone_and_no_other() -> None:
    """Each transition of the table happens, in some hundred random groups, or where a member leaves in the middle of a
    conflict or while it loads. (What may end anywhere, in CONNECTING or CLOSED, need not end everywhere.)"""
    play_all()
    for seed in range(20):
        world = World(seed)
        leaving = world.join("m")
        for _ in range(10_000):
            if leaving.member.phase is Phase.LOADING:
                break
            world.run(0.0001)
        leaving.leave()
        world.run(1.0)
    for milliseconds in range(60):
        world = World(milliseconds)
        world.write(znodes.owner(GROUP, TopicPartition("t", 0)), b"x-0", ephemeral=True)
        leaving = world.join("m")
        world.run(milliseconds / 1000)
        leaving.leave()
        world.run(1.0)
    possible = {(before, after) for before, targets in TRANSITIONS.items() for after in targets}
    ends = {(before, after) for before, after in possible if after in (Phase.CLOSED, Phase.CONNECTING)}
    assert possible - CheckedMember.seen - ends == set()


def test_the_table_in_the_words_is_the_table_in_the_code() -> None:
    """Every phase has its line, in order, and each line names the phases that the code may go to from there."""
    lines = re.findall(r"^    ([A-Z_]+) +\S.*$", member.__doc__ or "", re.MULTILINE)
    assert lines == [phase.name for phase in Phase]
    always = {Phase.CONNECTING, Phase.CLOSED}
    leaving = {Phase.QUIETING, Phase.RELEASING}
    for phase in Phase:
        (line,) = re.findall(rf"^    {phase.name} .*$", member.__doc__ or "", re.MULTILINE)
        named = {Phase[word] for word in re.findall(r"[A-Z_]{4,}", line) if word in Phase.__members__} - {phase}
        assert named - TRANSITIONS[phase] == set(), f"{phase} cannot go there"
        assert TRANSITIONS[phase] - always - leaving - named == set(), f"{phase}'s line does not tell of these"


# --- the checks are not blind ---------------------------------------------------------------------------------------


def no_lease(patch: pytest.MonkeyPatch) -> None:
    """Hands out as long as it has heard nothing else."""
    patch.setattr(lease.Lease, "holds", lambda self, now: True)


def lease_from_the_reply(patch: pytest.MonkeyPatch) -> None:
    """Counts the lease from some time after the request was sent."""
    renew = lease.Lease.renew
    patch.setattr(lease.Lease, "renew", lambda self, ops, results, sent_at: renew(self, ops, results, sent_at + 4))


def deletes_without_looking(patch: pytest.MonkeyPatch) -> None:
    """Releases owner nodes whosever they are (KAFKA-262)."""

    def release(group: str, partitions: Any, session_id: int, *, surely_ours: Any = ()) -> Iterator[Any]:
        yield tuple(Delete(znodes.owner(group, partition)) for partition in partitions) or (Sync(),)

    patch.setattr(procedures, "release", release)


def sure_of_everything(patch: pytest.MonkeyPatch) -> None:
    """Believes that what it claimed once is its own still."""
    let_go = Holdings.let_go

    def all_sure(self: Holdings) -> Any:
        share = set(self.share)
        return let_go(self)[0], share

    patch.setattr(Holdings, "let_go", all_sure)


def trusts_lost_watches(patch: pytest.MonkeyPatch) -> None:
    """Does not read again after a reconnect."""
    connected = Member._connected

    def unverified(self: Member, session_id: int, timeout: float) -> None:
        connected(self, session_id, timeout)
        self._ground.unsure = False

    patch.setattr(Member, "_connected", unverified)
    patch.setattr(Holdings, "doubt_all", lambda self: None)


def no_rollback(patch: pytest.MonkeyPatch) -> None:
    """Keeps what a failed attempt has claimed."""

    def keep(ground: Any) -> Iterator[Any]:
        ground.holdings.let_go()
        yield (Sync(),)

    patch.setattr(acquiring, "release_all", keep)


def no_fence(patch: pytest.MonkeyPatch) -> None:
    """Hands out what was fetched before the share was given up."""
    patch.setattr(Ledger, "fence", lambda self: None)


def commits_what_is_in_hand(patch: pytest.MonkeyPatch) -> None:
    """Takes handed out for consumed (KAFKA-5327)."""
    patch.setattr(Ledger, "consumed", lambda self: dict(self._consumed) | dict(self._positions))


def forgets_unknown_outcomes(patch: pytest.MonkeyPatch) -> None:
    """Takes a write whose reply was lost for one that did not happen."""
    commit = offsets.OffsetBook.commit

    def forgetful(self: offsets.OffsetBook, wanted: Any, session_id: int) -> Any:
        for entry in self._entries.values():
            entry.sent = None
        return (yield from commit(self, wanted, session_id))

    patch.setattr(offsets.OffsetBook, "commit", forgetful)


def ignores_its_id(patch: pytest.MonkeyPatch) -> None:
    """Watches neither its id nor the list of members."""
    changed = Member._changed
    patch.setattr(Member, "_changed", lambda self, path: None if "/ids" in path else changed(self, path))


def ignores_owner_nodes(patch: pytest.MonkeyPatch) -> None:
    """Does not watch what it owns."""
    changed = Member._changed

    def blind(self: Member, path: str) -> None:
        if "/owners/" not in path or path in self._acquiring.attempts.blockers:
            changed(self, path)

    patch.setattr(Member, "_changed", blind)


MUTANTS = [
    no_lease,
    lease_from_the_reply,
    deletes_without_looking,
    sure_of_everything,
    trusts_lost_watches,
    no_rollback,
    no_fence,
    commits_what_is_in_hand,
    forgets_unknown_outcomes,
    ignores_its_id,
    ignores_owner_nodes,
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_known_faults_are_caught(mutant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    """A member with one of the faults that others had, put back in, does not survive the seeds."""
    mutant(monkeypatch)
    with pytest.raises(AssertionError):
        play_all()
