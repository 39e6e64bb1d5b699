"""Every offset is counted once, as a row or by the kind of its gap."""

from __future__ import annotations

from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st

from zkgroup.export.model.accounting import MARKERS, MAX_PROBES, GapCollector, count_gaps


@given(st.sets(st.integers(5, 60)), st.integers(1, 7))
def test_what_is_missing_is_all_that_was_not_given(given_offsets: set[int], size: int) -> None:
    """Whatever the batches, spans and messages together are the range, each offset once, in order."""
    missing = GapCollector(5)
    ordered = sorted(given_offsets)
    for i in range(0, len(ordered), size):
        batch = ordered[i : i + size]
        missing.add(batch[0], batch[-1], len(batch), iter(batch))
    missing.skip(61)
    found = [offset for low, high in missing.spans for offset in range(low, high)]
    assert sorted([*found, *ordered]) == list(range(5, 61))
    assert missing.position == 61
    assert all(low < high for low, high in missing.spans)


def nothing(_: tuple[int, int]) -> Iterator[int]:
    return iter(())


def everything(span: tuple[int, int]) -> Iterator[int]:
    return iter(range(*span))


def test_markers_and_aborted_messages_are_transactions() -> None:
    """Small stretches of nothing are markers; what appears without the filter was aborted, however much."""
    gaps = count_gaps([(1, 2), (5, 8)], cleanup="delete", transactional=True, hidden=nothing)
    assert gaps == {"transactions": 4}
    gaps = count_gaps([(0, 1000)], cleanup="delete", transactional=True, hidden=lambda s: iter(range(s[0], s[1] - 1)))
    assert gaps == {"transactions": 1000}
    assert count_gaps([(0, 1)], cleanup="delete", transactional=True, hidden=None) == {"transactions": 1}


def test_a_wide_stretch_of_nothing_is_unexplained() -> None:
    """More than markers can be; only the empty part of it is unexplained. Every wide one is read again."""
    spans = [(i * 1000, i * 1000 + MARKERS + 1) for i in range(MAX_PROBES * 2)]
    gaps = count_gaps(spans, cleanup="delete", transactional=True, hidden=nothing)
    assert gaps == {"unexplained": MAX_PROBES * 2 * (MARKERS + 1)}
    gaps = count_gaps([(0, 300)], cleanup="delete", transactional=True, hidden=lambda s: iter(range(s[0], s[0] + 100)))
    assert gaps == {"transactions": 100, "unexplained": 200}
    assert count_gaps(spans, cleanup="delete", transactional=True, hidden=everything) == {
        "transactions": MAX_PROBES * 2 * (MARKERS + 1)
    }


def test_brokers_without_transactions_leave_no_holes() -> None:
    """Before 0.11 nothing but compaction takes an offset out of the middle of a log."""
    assert count_gaps([(3, 4)], cleanup="delete", transactional=False, hidden=None) == {"unexplained": 1}
    assert count_gaps([(3, 4)], cleanup="compact", transactional=False, hidden=None) == {"compaction": 1}


def test_compacted_topics_explain_whatever_is_missing() -> None:
    """Also where the policy has both words, or is not known; nothing is read again for it."""
    for policy in ("compact", "compact,delete", None):
        assert count_gaps([(0, 500)], cleanup=policy, transactional=True, hidden=None) == {"compaction": 500}


def test_few_stretches_are_read_and_none_without_need() -> None:
    """A log of small transactions is not read a second time."""
    probed: list[tuple[int, int]] = []

    def probe(span: tuple[int, int]) -> Iterator[int]:
        probed.append(span)
        return iter(())

    spans = [(i * 10, i * 10 + 2) for i in range(1000)] + [(i * 10 + 5, i * 10 + 6) for i in range(1000)]
    assert count_gaps(spans, cleanup="delete", transactional=True, hidden=probe) == {"transactions": 3000}
    assert len(probed) == MAX_PROBES
    assert count_gaps([], cleanup="delete", transactional=True, hidden=probe) == {}
