"""The ledger: what was delivered, and what of it counts as consumed."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from zkgroup.protocol.ledger import Ledger, Run
from zkgroup.protocol.names import TopicPartition

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


def run(partition: TopicPartition, first: int, next_: int, start: int = 0) -> Run:
    return Run(partition, start, start + next_ - first, first, next_)


def test_consumed_follows_marks_not_positions() -> None:
    """What is delivered counts when its reader comes back, not before."""
    ledger = Ledger()
    ledger.assign(1, {A: 5, B: 0})
    ledger.deliver([run(A, 5, 9)])
    assert ledger.positions == {A: 9, B: 0}
    assert ledger.consumed() == {A: 5, B: 0}
    ledger.mark()
    assert ledger.consumed() == {A: 9, B: 0}


def test_a_part_of_a_batch_counts_and_leaves_the_rest_in_hand() -> None:
    """Marking up to an offset keeps the batch in hand: a fence still waits for its reader."""
    ledger = Ledger()
    ledger.assign(1, {A: 0})
    ledger.deliver([run(A, 0, 10)])
    ledger.mark({A: 4})
    assert ledger.has_batch
    assert ledger.consumed() == {A: 4}


def test_a_late_mark_of_an_abandoned_batch_does_not_count() -> None:
    """What a rebalance did not wait for is read again by its next owner, so that it must not be committed here."""
    ledger = Ledger()
    ledger.assign(1, {A: 0})
    ledger.deliver([run(A, 0, 10)])
    ledger.fence()
    ledger.abandon()
    ledger.mark()
    assert ledger.consumed() == {A: 0}
    ledger.assign(2, {A: 0})
    ledger.mark()
    assert ledger.consumed() == {A: 0}


def test_what_was_consumed_outlives_the_fence() -> None:
    """A batch in hand at the fence may be finished, and counts in the commit before the release."""
    ledger = Ledger()
    ledger.assign(1, {A: 0})
    ledger.deliver([run(A, 0, 10)])
    ledger.fence()
    assert ledger.trim([run(A, 10, 20)]) == []
    ledger.mark()
    assert ledger.consumed() == {A: 10}


def test_offsets_that_were_delivered_before_are_dropped() -> None:
    """Messages that fall back behind the position are counted as repeated, and not delivered."""
    ledger = Ledger()
    ledger.assign(1, {A: 100})
    assert ledger.trim([run(A, 90, 100), run(B, 0, 5)]) == []
    assert ledger.repeated == 10
    whole = run(A, 95, 105)
    assert ledger.trim([whole]) == [whole]


def test_a_reset_moves_position_and_commit() -> None:
    """The offset that a reset chose reaches the store even if nothing is read there."""
    ledger = Ledger()
    ledger.assign(1, {A: 1000})
    ledger.seek(A, 10)
    ledger.seek(B, 10)
    assert ledger.positions == {A: 10}
    assert ledger.consumed() == {A: 10}


def test_more_partitions_join_a_generation() -> None:
    """Partitions whose start was not known at the grant are read, and committed, like the others."""
    ledger = Ledger()
    ledger.assign(1, {A: 1})
    ledger.deliver([run(A, 1, 3)])
    ledger.assign_more({B: 7})
    ledger.mark()
    assert ledger.positions == {A: 3, B: 7}
    assert ledger.consumed() == {A: 3, B: 7}


STEPS = st.tuples(st.sampled_from(["out", "mark", "fence", "abandon", "grant"]), st.integers(1, 9))


@given(st.lists(STEPS, max_size=40))
def test_nothing_counts_that_was_not_delivered(steps: list[tuple[str, int]]) -> None:
    """Whatever the order of events: consumed offsets never lie behind the grant's, nor before what was delivered."""
    ledger = Ledger()
    ledger.assign(1, {A: 0})
    generation, start, furthest = 1, 0, 0
    for step, number in steps:
        match step:
            case "out" if ledger.generation is not None and not ledger.has_batch:
                position = ledger.positions[A]
                runs = ledger.trim([run(A, position, position + number)])
                ledger.deliver(runs)
                furthest = max(furthest, position + number)
            case "mark":
                ledger.mark()
            case "fence":
                ledger.fence()
            case "abandon":
                ledger.abandon()
            case "grant":
                generation, start = generation + 1, ledger.consumed()[A]
                ledger.assign(generation, {A: start})
        assert start <= ledger.consumed()[A] <= furthest
