"""What became of every offset of a range: a row, or a gap of a known kind.

A reader sees messages and nothing between them. What is missing is one of these, and is told apart like this:

- ``transactions``: commit and abort markers, which no client is ever given, and what was aborted, which a reader of
  committed messages is not given. Assumed only where the topic's ``cleanup.policy`` is ``delete``, so that the broker
  leaves nothing else out. Checked: the widest gaps are read again without the filter; what then appears was aborted,
  and what does not is markers. So many markers side by side are not credible (``MARKERS``): such a stretch is
  unexplained.
- ``compaction``: the topic is compacted, or nobody tells whether it is. Markers and aborted messages of compacted
  topics are counted here too: from outside they cannot be told from what compaction removed.
- ``retention``: deleted while it was read; the log now starts behind it.
- ``elsewhere``: in files of other folders that are there, where a backfill writes again what a lost file held.
- ``unexplained``: none of these. An export refuses to go on, unless it was told to record it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, Literal

from zkgroup.export.model.intervals import Interval

GapKind = Literal["transactions", "compaction", "retention", "elsewhere", "unexplained"]

#: Transaction markers side by side that are believed: each is the end of one producer's transaction.
MARKERS: Final = 64
#: Gaps of a range that are looked into; those wider than ``MARKERS`` always are.
LOOKS: Final = 16


class Missing:
    """Collects the offsets that a reader was not given. Costs one comparison a batch where nothing is missing."""

    def __init__(self, start: int) -> None:
        self.position = start
        self.spans: list[Interval] = []

    def add(self, first: int, last: int, count: int, offsets: Iterable[int]) -> None:
        """A batch of ``count`` messages from ``first`` to ``last``; ``offsets`` are all of them, looked at if need
        be."""
        if first == self.position and last - first + 1 == count:
            self.position = last + 1
            return
        for offset in offsets:
            if offset != self.position:
                self.spans.append((self.position, offset))
            self.position = offset + 1

    def skip(self, end: int) -> None:
        """Nothing came up to ``end``."""
        if end > self.position:
            self.spans.append((self.position, end))
            self.position = end

    def jump(self, offset: int) -> None:
        """Go on at ``offset``: what lies between is accounted for elsewhere."""
        self.position = max(self.position, offset)


def explain(
    spans: Iterable[Interval],
    *,
    cleanup: str | None,
    transactional: bool,
    hidden: Callable[[Interval], Iterator[int]] | None,
) -> tuple[dict[str, int], list[Interval]]:
    """Count the offsets of ``spans`` by kind; and the unexplained ones, as they lie.

    ``cleanup``: the topic's policy, None if unknown. ``transactional``: whether the brokers know transactions.
    ``hidden``: reads a span without the filter of committed messages, and tells the offsets that are there after all;
    None where nothing was filtered in the first place.
    """
    gaps: Counter[str] = Counter()
    unexplained: list[Interval] = []
    if cleanup is None or "compact" in cleanup:
        gaps["compaction"] = sum(end - start for start, end in spans)
        return {kind: count for kind, count in gaps.items() if count}, unexplained
    looked = 0
    for start, end in sorted(spans, key=lambda span: span[0] - span[1]):
        silent: list[Interval] = [(start, end)]
        if hidden is not None and end - start > 1 and (end - start > MARKERS or looked < LOOKS):
            looked += 1
            silent = _between((start, end), hidden((start, end)))
        gaps["transactions"] += end - start - sum(high - low for low, high in silent)
        for low, high in silent:
            if not transactional or high - low > MARKERS:
                unexplained.append((low, high))
                gaps["unexplained"] += high - low
            else:
                gaps["transactions"] += high - low
    return {kind: count for kind, count in gaps.items() if count}, sorted(unexplained)


def _between(span: Interval, offsets: Iterator[int]) -> list[Interval]:
    """The parts of ``span`` that none of ``offsets``, which are in order, lies in."""
    seen = Missing(span[0])
    for offset in offsets:
        seen.add(offset, offset, 1, (offset,))
    seen.skip(span[1])
    return seen.spans


def total(parts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Gaps by kind, added up."""
    gaps: Counter[str] = Counter()
    for part in parts:
        gaps.update(part)
    return dict(gaps)
