"""Notes of where runs were to begin: what is kept of them, and what plans make of it. Pure."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from zkgroup.export.model.begun import Begun, decode_begun, encode_begun, together
from zkgroup.export.model.rundata import TopicIdentity
from zkgroup.export.model.words import PartitionFacts, Policies
from zkgroup.export.planning.begun import as_begun
from zkgroup.export.planning.bounds import EARLIEST, LATEST, Bound
from zkgroup.export.planning.plan import make_backfill, make_plan
from zkgroup.protocol.names import TopicPartition

LOG = TopicPartition("t", 0)
NOTES = st.builds(
    Begun,
    st.sampled_from(["export", "backfill"]),
    st.sampled_from("cd"),
    st.sampled_from(["earliest", "@1", "@2"]),
    st.builds(TopicPartition, st.sampled_from("tu"), st.integers(0, 1)),
    st.builds(TopicIdentity, st.integers(1, 2)),
    st.integers(0, 9),
    st.integers(10, 19),
)
BOUNDS = {"earliest": EARLIEST, "@1": Bound("time", millis=1), "@2": Bound("time", millis=2)}


@given(st.lists(NOTES), st.lists(NOTES))
def test_notes_are_kept_once_and_read_back(old: list[Begun], new: list[Begun]) -> None:
    """One of each question; what was noted last is among them."""
    both = together(together([], old), new)
    assert together(both, new) == both
    assert len(both) == len({one.question for one in (*old, *new)})
    assert all(any(kept[:5] == one[:5] and kept.offset <= one.offset for kept in both) for one in new[-1:])
    assert set(decode_begun("begun.json", encode_begun(both))) == set(both)


@given(st.lists(NOTES.map(lambda one: one._replace(asked="earliest", cluster="c", identity=TopicIdentity(1)))))
def test_of_the_same_question_the_first_offset_counts(notes: list[Begun]) -> None:
    """However often runs came to nothing, and wherever logs began by then."""
    found = {(one.kind, one.partition): one.offset for one in together(notes[:1], notes[1:])}
    assert found == {key: min(one.offset for one in notes if (one.kind, one.partition) == key) for key in found}
    assert found.keys() == {(one.kind, one.partition) for one in notes}


def test_of_very_many_times_the_latest_are_kept() -> None:
    """A job that fails each minute may ask for another one each minute; the start is asked for as well."""
    notes = [Begun("backfill", "c", f"@{n}", LOG, TopicIdentity(1), n, n + 1) for n in range(1000)]
    kept = together([notes[0]._replace(asked="earliest")], notes)
    assert {one.asked for one in kept} == {"earliest", *(f"@{n}" for n in range(900, 1000))}


@given(
    begun=st.integers(0, 30),
    start=st.integers(0, 30),
    length=st.integers(0, 10),
    asked=st.sampled_from(sorted(BOUNDS)),
    fills=st.booleans(),
)
def test_a_plan_accounts_for_all_from_where_it_was_to_begin(
    begun: int, start: int, length: int, asked: str, fills: bool
) -> None:
    """Of the same question; another one, another log or cluster, and a group that has an offset change nothing."""
    fact = PartitionFacts(LOG, None, None, start, start + length, begin=start)
    kind = "backfill" if fills else "export"
    make = make_backfill if fills else lambda group, facts, policies: make_plan(group, facts, policies=policies)
    policies = Policies(expired="earliest")

    def planned(
        fact: PartitionFacts, identity: TopicIdentity, bound: Bound, where: Collection[str] = ("here",)
    ) -> list[tuple[int, int]]:
        notes = [Begun(kind, "here", asked, LOG, TopicIdentity(7), begun, 99)]  # type: ignore[arg-type]
        facts = as_begun([fact], notes, {"t": identity}, where, kind, bound, policies)  # type: ignore[arg-type]
        return [
            piece
            for part in make("g", facts, policies=policies).partitions  # type: ignore[operator]
            for piece in (*((gap.start, gap.end) for gap in part.skipped), (part.start, part.end))
        ]

    plain = planned(fact, TopicIdentity(8), BOUNDS[asked])
    assert planned(fact, TopicIdentity(7), BOUNDS[asked], ("there",)) == plain
    for other in {"earliest", "@1", "@2"} - {asked}:
        assert planned(fact, TopicIdentity(7), BOUNDS[other]) == plain
    held = replace(fact, committed=start, version=0, begin=None)
    if not fills:
        assert planned(held, TopicIdentity(7), Bound("committed")) == [(start, start + length)]
        assert planned(replace(fact, begin=start + length), TopicIdentity(7), LATEST)[-1] == (start + length,) * 2
    found = planned(fact, TopicIdentity(7), BOUNDS[asked])
    if begun >= start:
        assert found == plain
    else:
        assert found[0] == (begun, start)
        assert [piece for piece in found[1:] if piece[0] < piece[1]] == [
            piece for piece in plain if piece[0] < piece[1]
        ]
