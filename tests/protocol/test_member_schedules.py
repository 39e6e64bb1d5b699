"""Groups under schedules of faults that hypothesis makes, and shrinks; and the table of a member's states.

What is checked at every step is reported in ``sim.world``; what must be so at the end in ``sim.play``.
"""

from __future__ import annotations

import re
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st
from sim.member import CheckedMember
from sim.play import play
from sim.scenario import BY_HAND, KINDS, ORDERLY, Fault, Kind, Scenario, scenario
from sim.shrink import tell
from sim.world import GROUP, World
from support import scaled

from zkgroup.protocol import member, znodes
from zkgroup.protocol.member import TRANSITIONS, Phase
from zkgroup.protocol.names import TopicPartition

#: Pauses between two faults: at once, in the middle of something, or after it.
GAPS = st.sampled_from((0.0, 0.01, 0.05, 0.3, 1.0, 3.0, 8.0))
FAULTS = st.lists(
    st.tuples(GAPS, st.sampled_from([*KINDS, *BY_HAND]), st.integers(0, 99), st.sampled_from((0.1, 0.5, 1.0, 1.7))),
    max_size=12,
)
OURS = st.builds(
    Kind,
    subscription=st.sampled_from(["all", "first", "white", "black"]),
    streams=st.integers(1, 3),
    listener_takes=st.sampled_from([0.0, 0.3]),
    listener_commits=st.booleans(),
)


CALM = st.lists(st.tuples(GAPS, st.sampled_from(ORDERLY), st.integers(0, 99), st.just(0.5)), max_size=10)


def _scheduled(gaps: list[tuple[float, str, int, float]]) -> tuple[Fault, ...]:
    at, faults = 1.0, []
    for gap, kind, target, length in gaps:
        at += gap
        faults.append(Fault(at, kind, target, length))
    return tuple(faults)


SCENARIOS = st.builds(
    Scenario,
    seed=st.integers(0, 2**32),
    strategy=st.sampled_from(["range", "roundrobin"]),
    topics=st.lists(st.integers(1, 4), min_size=1, max_size=3).map(tuple),
    members=st.integers(1, 4),
    kinds=st.lists(OURS, min_size=1, max_size=2).map(tuple),
    store=st.sampled_from(["zookeeper", "kafka", "dual"]),
    chunk=st.sampled_from([2, 250]),
    faults=FAULTS.map(_scheduled),
)


@settings(max_examples=scaled(100))
@given(SCENARIOS)
def test_a_group_survives_any_schedule(found: Scenario) -> None:
    """Whatever faults come, in whatever order: no invariant is broken, and the group comes to rest."""
    outcome = play(found, trace=True)
    assert not outcome.violation, tell(found, outcome)


@settings(max_examples=scaled(40))
@given(SCENARIOS, CALM)
def test_an_orderly_group_reads_nothing_twice(found: Scenario, calm: list[tuple[float, str, int, float]]) -> None:
    """Where nobody dies, and nobody is cut off for long, members hand on all that they have read, also those that
    commit only in their listeners."""
    orderly = replace(found, faults=_scheduled(calm))
    assert orderly.orderly
    outcome = play(orderly, trace=True)
    assert not outcome.violation, tell(orderly, outcome)


def test_every_way_in_the_table_is_gone_and_no_other() -> None:
    """Each transition of the table happens, in a hundred random groups, or where a member leaves in the middle of a
    conflict or while it loads. (What may end anywhere, in CONNECTING or CLOSED, need not end everywhere.)"""
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
    for seed in range(300):
        if not possible - CheckedMember.seen - ends:
            break
        play(scenario(seed))
    assert possible - CheckedMember.seen - ends == set()


def test_the_table_in_the_words_is_the_table_in_the_code() -> None:
    """Every phase has its line, in order, and each line names the phases that the code may go to from there."""
    lines = re.findall(r"^    ([A-Z_]+) +\S.*$", member.__doc__ or "", re.MULTILINE)
    assert lines == [phase.name for phase in Phase]
    always = {Phase.CONNECTING, Phase.CLOSED}
    leaving = {Phase.PAUSING, Phase.RELEASING}
    for phase in Phase:
        (line,) = re.findall(rf"^    {phase.name} .*$", member.__doc__ or "", re.MULTILINE)
        named = {Phase[word] for word in re.findall(r"[A-Z_]{4,}", line) if word in Phase.__members__} - {phase}
        assert named - TRANSITIONS[phase] == set(), f"{phase} cannot go there"
        assert TRANSITIONS[phase] - always - leaving - named == set(), f"{phase}'s line does not tell of these"
