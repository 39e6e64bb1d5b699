"""A member's streams, as one reader that takes a batch, works on it for a while, and comes back for more."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random

from sim.brokers import Brokers
from sim.clock import Clock
from zkgroup.protocol.ledger import Ledger, Run
from zkgroup.protocol.names import TopicPartition

BATCH = 7  # the most that is delivered at once
PACE = 0.05  # seconds for a batch, on the average


class SimReader:
    """``delivered`` and ``consumed`` are reported each batch: when the reader gets it, and when it is done with it."""

    def __init__(
        self,
        clock: Clock,
        random: Random,
        brokers: Brokers,
        may_deliver: Callable[[], bool],
        delivered: Callable[[Run], None],
        consumed: Callable[[Run], None],
        jumped: Callable[[TopicPartition, int], None] = lambda partition, offset: None,
    ) -> None:
        self._clock = clock
        self._random = random
        self._brokers = brokers
        self._may_deliver = may_deliver
        self._delivered = delivered
        self._done_with = consumed
        self._jumped = jumped
        self.ledger = Ledger()
        self.batch = BATCH
        self.pace = PACE
        self.stuck = False  # it does not come back for more
        self.frozen = False
        self.dead = False
        self._in_hand: list[Run] = []
        self._on_paused: Callable[[], None] | None = None
        self._turn = 0
        clock.after(PACE, self._step)

    def pause(self, done: Callable[[], None], *, abandon: bool) -> None:
        self.ledger.fence()
        if abandon:
            self.ledger.abandon()
        if self.ledger.has_batch:
            self._on_paused = done
        else:
            self._on_paused = None
            done()

    def assign(self, generation: int, share: Mapping[TopicPartition, int]) -> None:
        self.ledger.assign(generation, share)

    def assign_more(self, generation: int, share: Mapping[TopicPartition, int]) -> None:
        if self.ledger.generation == generation:
            self.ledger.assign_more(share)

    def _step(self) -> None:
        if self.dead:
            return
        self._clock.after(self._random.uniform(0.2, 2.0) * self.pace, self._step)
        if self.frozen or self.stuck:
            return
        if self._in_hand:
            self._come_back()
        elif self.ledger.generation is not None and self._may_deliver():
            self._take()

    def _come_back(self) -> None:
        in_hand, self._in_hand = self._in_hand, []
        for run in in_hand:
            self._done_with(run)
        self.ledger.mark()
        if self._on_paused is not None:
            done, self._on_paused = self._on_paused, None
            done()

    def _take(self) -> None:
        positions = self.ledger.positions
        partitions = list(positions)
        for offset in range(len(partitions)):
            partition = partitions[(self._turn + offset) % len(partitions)]
            end = self._brokers.readable(partition)
            if end is None or (first := positions[partition]) == end:
                continue
            if first > end:
                # Out of range: the topic was recreated. As auto.offset.reset=smallest would have it.
                self.ledger.seek(partition, 0)
                self._jumped(partition, 0)
                return
            last = min(first + self.batch, end)
            runs = self.ledger.trim([Run(partition, 0, last - first, first, last)])
            self.ledger.deliver(runs)
            self._in_hand = runs
            self._turn += offset + 1
            for run in runs:
                self._delivered(run)
            return
