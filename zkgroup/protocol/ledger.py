"""What one stream has delivered, and what of it counts as consumed.

Pure, and not thread-safe: the stream guards its ledger with its lock.

A *generation* is the time between two rebalances. Positions belong to one; a fence ends it. A batch that was delivered
before the fence may be marked as consumed until it is abandoned. Then the partition's next owner reads it again, and a
late mark must not count.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from zkgroup.protocol.names import TopicPartition


@dataclass(frozen=True, slots=True)
class Run:
    """Messages ``start`` to ``stop`` of a batch: all of one partition, their offsets rising from ``first``.

    ``next`` is the offset after the last of them. Offsets may have gaps (compaction, control records).
    """

    partition: TopicPartition
    start: int
    stop: int
    first: int
    next: int


class Ledger:
    """The account of one stream. ``generation`` is the current one, or None between a fence and the next assignment."""

    __slots__ = ("_consumed", "_delivered", "_positions", "generation", "repeated")

    def __init__(self) -> None:
        self.generation: int | None = None
        self.repeated = 0
        self._positions: dict[TopicPartition, int] = {}
        self._consumed: dict[TopicPartition, int] = {}
        self._delivered: Mapping[TopicPartition, int] | None = None

    @property
    def has_batch(self) -> bool:
        """Whether a batch is delivered and neither marked nor abandoned."""
        return self._delivered is not None

    @property
    def positions(self) -> Mapping[TopicPartition, int]:
        """The next offset to deliver, for each assigned partition."""
        return self._positions

    def fence(self) -> None:
        """End the generation: nothing more is delivered until the next assignment."""
        self.generation = None
        self._positions = {}

    def abandon(self) -> None:
        """The batch in hand does not count as consumed, even if its reader marks it later."""
        self._delivered = None

    def assign(self, generation: int, share: Mapping[TopicPartition, int]) -> None:
        """Start a generation with these offsets."""
        self.generation = generation
        self._positions = dict(share)
        self._consumed = dict(share)
        self._delivered = None

    def assign_more(self, share: Mapping[TopicPartition, int]) -> None:
        """Add partitions to the current generation."""
        self._positions |= share
        self._consumed |= share

    def trim(self, runs: Sequence[Run]) -> list[Run]:
        """Those of ``runs`` that may be delivered: of assigned partitions, with offsets that were not delivered before.

        A run that begins before the position and ends after it comes back whole, with ``first`` smaller than the
        position: the caller, which knows the single offsets, must cut it.
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

    def deliver(self, runs: Sequence[Run]) -> None:
        """The reader gets these runs now. The batch before must be marked."""
        delivered = {run.partition: run.next for run in runs}
        self._positions |= delivered
        self._delivered = delivered

    def mark(self, upto: Mapping[TopicPartition, int] | None = None) -> None:
        """The batch in hand is consumed, or, with ``upto``, its messages before those offsets."""
        if self._delivered is None:
            return
        self._consumed |= self._delivered if upto is None else upto
        if upto is None:
            self._delivered = None

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Go on at ``offset``, which a reset has chosen. It will be committed even if no message follows."""
        if partition in self._positions:
            self._positions[partition] = offset
            self._consumed[partition] = offset

    def consumed(self) -> Mapping[TopicPartition, int]:
        """The next offset of every partition of this generation, or of the last one if it has been fenced."""
        return dict(self._consumed)
