"""What one stream has handed out, and what of it counts as consumed.

Pure, and not thread-safe: the stream guards its ledger with its lock.

A *generation* is the time between two rebalances. Positions belong to one; a fence ends it. What was handed out before
the fence and is still being worked on may be marked as consumed until it is abandoned: then it will be read again by
whoever owns the partition next, and a late mark must not count.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from zkgroup.protocol.names import TopicPartition


@dataclass(frozen=True, slots=True)
class Run:
    """Messages ``start`` to ``stop`` of a batch: all of one partition, their offsets rising from ``first``.

    ``next`` is the offset behind the last of them. Offsets may have gaps (compaction, control records).
    """

    partition: TopicPartition
    start: int
    stop: int
    first: int
    next: int


class Ledger:
    """The account of one stream.

    ``generation`` is the one that is granted now, or None between a fence and the next grant.
    """

    __slots__ = ("_consumed", "_handed", "_positions", "generation", "repeated")

    def __init__(self) -> None:
        self.generation: int | None = None
        self.repeated = 0
        self._positions: dict[TopicPartition, int] = {}
        self._consumed: dict[TopicPartition, int] = {}
        self._handed: Mapping[TopicPartition, int] | None = None

    @property
    def busy(self) -> bool:
        """Whether a batch is handed out and neither marked nor abandoned."""
        return self._handed is not None

    @property
    def positions(self) -> Mapping[TopicPartition, int]:
        """The next offset to hand out, for each partition that is granted."""
        return self._positions

    def fence(self) -> None:
        """End the generation: nothing more is handed out until the next grant."""
        self.generation = None
        self._positions = {}

    def abandon(self) -> None:
        """What is handed out no longer counts as consumed, whatever its reader says later."""
        self._handed = None

    def grant(self, generation: int, share: Mapping[TopicPartition, int]) -> None:
        """Start a generation with these offsets."""
        self.generation = generation
        self._positions = dict(share)
        self._consumed = dict(share)
        self._handed = None

    def extend(self, share: Mapping[TopicPartition, int]) -> None:
        """More partitions for the generation that is granted."""
        self._positions |= share
        self._consumed |= share

    def trim(self, runs: Sequence[Run]) -> list[Run]:
        """What of ``runs`` may be handed out: partitions that are granted, offsets not handed out before.

        A run that begins before the position and ends behind it must be cut by the caller, who sees the single
        offsets: it comes back whole, with ``first`` smaller than the position.
        """
        kept = []
        for run in runs:
            position = self._positions.get(run.partition)
            if position is None:
                continue
            if run.next <= position:
                self.repeated += run.stop - run.start
                continue
            kept.append(run)
        return kept

    def hand_out(self, runs: Sequence[Run]) -> None:
        """These runs go to the reader now. The batch before must be marked."""
        handed = {run.partition: run.next for run in runs}
        self._positions |= handed
        self._handed = handed

    def mark(self, upto: Mapping[TopicPartition, int] | None = None) -> None:
        """The reader is done with what was handed out, or, with ``upto``, with what lies before those offsets."""
        if self._handed is None:
            return
        self._consumed |= self._handed if upto is None else upto
        if upto is None:
            self._handed = None

    def jump(self, partition: TopicPartition, offset: int) -> None:
        """Go on at ``offset``, which a reset has chosen: the committed offset follows it even if nothing is read."""
        if partition in self._positions:
            self._positions[partition] = offset
            self._consumed[partition] = offset

    def consumed(self) -> Mapping[TopicPartition, int]:
        """The next offset of every partition of this generation, or of the last one if it has been fenced."""
        return dict(self._consumed)
