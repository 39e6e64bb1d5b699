"""What a consumer thread reads: batches, and single messages out of batches."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar, cast

from zkgroup.errors import OffsetOutOfRangeError, ZkgroupError
from zkgroup.protocol.ledger import Ledger, Run
from zkgroup.protocol.names import TopicPartition
from zkgroup.servers.fetch import Fetched, Fetcher, offset_of, partition_of, topic_of
from zkgroup.servers.kafka import KafkaError, KafkaSettings, LogRange, Message, log_offsets

log = logging.getLogger(__name__)

K = TypeVar("K")
V = TypeVar("V")

#: The longest a reader is out of reach inside librdkafka.
SLICE = 0.1
#: How often a reader whose lease has run out looks whether it is renewed.
LEASE_POLL = 0.02
BROKER_TIMEOUT = 5.0


@dataclass(frozen=True, slots=True)
class Batch:
    """Messages, at least one, and the runs of one partition each that they consist of."""

    messages: list[Message]
    runs: list[Run]


@dataclass(frozen=True, slots=True)
class Record(Generic[K, V]):
    """One message, decoded. ``timestamp`` is milliseconds since 1970, None where the message has none."""

    topic: str
    partition: int
    offset: int
    timestamp: int | None
    key: K
    value: V
    headers: list[tuple[str, bytes | None]]


@dataclass(frozen=True, slots=True)
class StreamStatistics:
    """What one stream has done. ``repeated`` were dropped because they had been handed out before."""

    messages: int
    batches: int
    repeated: int
    resets: int
    partitions: int


class Stream(Generic[K, V]):
    """One stream of a member. Read it from one thread: by ``batch()``, or by iterating messages.

    What was handed out counts as consumed when the reader comes back for more, or says ``mark()``.
    """

    def __init__(
        self,
        settings: Callable[[], KafkaSettings],
        may_hand_out: Callable[[], bool],
        failed: Callable[[Exception], None],
        *,
        sharers: int,
        reset: Literal["smallest", "largest"] | None,
        key_decoder: Callable[[bytes | None], K],
        value_decoder: Callable[[bytes | None], V],
        properties: Mapping[str, Any],
        tell_ends: bool = False,
    ) -> None:
        self._settings = settings
        self._may_hand_out = may_hand_out
        self._failed = failed
        self._sharers = sharers
        self._reset = reset
        self._decode_key = key_decoder
        self._decode_value = value_decoder
        self._properties = dict(properties)
        self._tell_ends = tell_ends
        self._cond = threading.Condition()
        self._fetching = threading.Lock()  # held by the reader while it is inside the fetcher
        self._fetcher: Fetcher | None = None
        self._ledger = Ledger()
        self._taken: int | None = None  # the generation that the fetcher reads
        self._quiet: Callable[[], None] | None = None
        self._iterated: tuple[Batch, int] | None = None  # the batch being iterated, and how many are done
        self._reader = 0
        self._ended = False
        self._error: Exception | None = None
        self._ends: dict[TopicPartition, int] = {}
        self._messages = self._batches = self._resets = 0

    # ------------------------------------------------------------ the connector's side

    def quiet(self, done: Callable[[], None], *, abandon: bool) -> None:
        """Hand out nothing more of this generation. ``done`` is called, once, when the reader has nothing in hand;
        with ``abandon`` at once."""
        with self._cond:
            self._ledger.fence()
            if abandon:
                self._mark_iterated()
                self._ledger.abandon()
            if not self._ledger.busy:
                self._quiet = None
                done()
            else:
                self._quiet = done
            self._cond.notify_all()

    def grant(self, generation: int, share: Mapping[TopicPartition, int]) -> None:
        """Read these partitions from these offsets."""
        with self._cond:
            self._ledger.grant(generation, share)
            self._ends = {}
            self._cond.notify_all()

    def consumed(self) -> Mapping[TopicPartition, int]:
        """The next offset of every partition of the generation that was granted last."""
        with self._cond:
            self._mark_iterated()
            return self._ledger.consumed()

    def end(self, error: Exception | None) -> None:
        """The member has left: readers stop, with ``error`` if there is one."""
        with self._cond:
            self._ledger.fence()
            self._ledger.abandon()
            self._ended, self._error = True, error
            self._cond.notify_all()

    def forsake(self) -> None:
        """The calling thread will not read on. If it is the reader, what it has in hand does not count as consumed, and
        a rebalance need not wait for it."""
        with self._cond:
            if self._reader != threading.get_ident():
                return
            self._mark_iterated()
            self._ledger.abandon()
            self._iterated = None
            self._tell_quiet()

    def close(self) -> None:
        """Free the fetcher. The reader, if it is inside, comes out within a slice."""
        with self._fetching:
            if self._fetcher is not None:
                self._fetcher.close()
                self._fetcher = None

    def _mark_iterated(self) -> None:
        if self._iterated is not None and self._ledger.busy:
            batch, done = self._iterated
            self._ledger.mark(_partial(batch, done))

    # ------------------------------------------------------------ the reader's side

    @property
    def ended(self) -> bool:
        """Whether the member has left: nothing more will come."""
        return self._ended

    @property
    def ends(self) -> Mapping[TopicPartition, int]:
        """Partitions that were read to their end at least once in this generation, and the offset there.
        Told only by streams that were asked to."""
        return self._ends

    @property
    def positions(self) -> Mapping[TopicPartition, int]:
        """The next offset to hand out, for each partition that this stream holds now."""
        with self._cond:
            return dict(self._ledger.positions)

    def statistics(self) -> StreamStatistics:
        """A look at the counters."""
        with self._cond:
            return StreamStatistics(
                self._messages, self._batches, self._ledger.repeated, self._resets, len(self._ledger.positions)
            )

    def mark(self) -> None:
        """All that was handed out is done with: it counts as consumed."""
        with self._cond:
            self._ledger.mark()
            self._iterated = None
            self._tell_quiet()

    def mark_first(self, batch: Batch, count: int) -> None:
        """The first ``count`` messages of the batch in hand are done with, and the reader does not want the rest."""
        with self._cond:
            if self._ledger.busy:
                self._ledger.mark(_partial(batch, count))
                self._ledger.abandon()
            self._tell_quiet()

    def _tell_quiet(self) -> None:
        if self._quiet is not None:
            done, self._quiet = self._quiet, None
            done()

    def batch(self, timeout: float | None = None) -> Batch | None:
        """The next batch; what was handed out before counts as consumed now. None after ``timeout`` seconds without a
        message, and when the member has left (then ``ended`` is true).

        Raises the error that made the member leave.
        """
        self.mark()
        self._reader = threading.get_ident()
        deadline = None if timeout is None else time.monotonic() + timeout
        wait = 0.0
        while True:
            with self._cond:
                if self._error is not None:
                    raise self._error
                if self._ended:
                    return None
                generation, share = self._ledger.generation, dict(self._ledger.positions)
                if not share and generation == self._taken:
                    self._cond.wait(wait)
            if share or generation != self._taken:
                batch = self._fetch(generation, share if generation != self._taken else None, wait)
                if batch is not None:
                    return batch
            wait = SLICE if deadline is None else min(SLICE, deadline - time.monotonic())
            if wait <= 0:
                return None

    def _fetch(self, generation: int | None, share: dict[TopicPartition, int] | None, timeout: float) -> Batch | None:
        with self._fetching:
            if self._ended:
                return None
            try:
                if self._fetcher is None:
                    self._fetcher = Fetcher(
                        self._settings(), sharers=self._sharers, tell_ends=self._tell_ends, **self._properties
                    )
                if share is not None:
                    self._fetcher.assign(share)
                    self._taken = generation
                    if not share:
                        return None
                fetched = self._fetcher.fetch(timeout)
                if fetched.errors:
                    self._handle_errors(self._fetcher, generation, fetched)
            except ZkgroupError as error:
                self._failed(error)
                raise
        if not fetched.messages and not fetched.ends:
            return None
        return self._hand_out(generation, fetched)

    def _hand_out(self, generation: int | None, fetched: Fetched) -> Batch | None:
        with self._cond:
            # Past the lease nothing may be handed out: the session, and with it our share, may be somebody else's.
            while not self._may_hand_out() and self._ledger.generation == generation and not self._ended:
                self._cond.wait(LEASE_POLL)
            if self._ledger.generation != generation or self._ended:
                return None
            self._ends |= fetched.ends
            runs = self._ledger.trim(fetched.runs)
            if not runs:
                return None
            batch = Batch(fetched.messages, fetched.runs)
            if len(runs) != len(fetched.runs) or any(r.first < self._ledger.positions[r.partition] for r in runs):
                batch = _without(fetched.messages, runs, self._ledger.positions)
            self._ledger.hand_out(batch.runs)
            self._batches += 1
            self._messages += len(batch.messages)
            return batch

    # ------------------------------------------------------------ single messages

    def messages(self, timeout: float | None = None) -> Iterator[Record[K, V]]:
        """Iterate single messages. Ends when the member has left, or after ``timeout`` seconds without a message; it
        may be called again then. A message counts as consumed when the next one is asked for."""
        while (batch := self.batch(timeout)) is not None:
            with self._cond:
                self._iterated = (batch, 0)
            for index, message in enumerate(batch.messages):
                if self._quiet is not None or not self._ledger.busy or not self._wait_for_lease():
                    break
                yield self._record(message)
                self._iterated = (batch, index + 1)
            self._end_iteration()

    __iter__ = messages

    def _wait_for_lease(self) -> bool:
        if self._may_hand_out():
            return True
        with self._cond:
            while not self._may_hand_out() and self._ledger.busy and self._quiet is None and not self._ended:
                self._cond.wait(LEASE_POLL)
            return self._ledger.busy and self._quiet is None and not self._ended

    def _end_iteration(self) -> None:
        """Count what was iterated, and not the rest of a batch that was cut off by a rebalance."""
        with self._cond:
            if self._iterated is None:
                return
            batch, done = self._iterated
            if done < len(batch.messages):
                self._mark_iterated()
                self._ledger.abandon()
            self._iterated = None

    def _record(self, message: Message) -> Record[K, V]:
        kind, millis = message.timestamp()
        return Record(
            topic_of(message),
            partition_of(message),
            offset_of(message),
            millis if kind else None,
            self._decode_key(message.key()),
            self._decode_value(message.value()),
            cast("list[tuple[str, bytes | None]]", message.headers() or []),
        )

    # ------------------------------------------------------------ partitions that cannot be read on

    def _handle_errors(self, fetcher: Fetcher, generation: int | None, fetched: Fetched) -> None:
        for partition, error in fetched.errors:
            code = error.code()
            if partition is not None and code in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
                self._out_of_range(fetcher, generation, partition)
            elif code in (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.GROUP_AUTHORIZATION_FAILED):
                raise ZkgroupError(f"not authorised to read {partition}: {error.str()}", "ask for read access")
            else:
                # Leader changes and lost connections mend themselves; a deleted topic makes the member rebalance.
                log.warning("%s: %s", partition or "brokers", error.str())

    def _out_of_range(self, fetcher: Fetcher, generation: int | None, partition: TopicPartition) -> None:
        with self._cond:
            position = self._ledger.positions.get(partition)
            if self._ledger.generation != generation or position is None:
                return
        settings = self._settings()
        found = log_offsets(settings, [partition], BROKER_TIMEOUT)[partition]
        if not isinstance(found, LogRange):
            raise found
        if found.start <= position <= found.end:
            fetcher.go_on_at(partition, position)  # a leader that had not caught up
            return
        if self._reset is None:
            raise out_of_range(partition, position, found)
        offset = found.start if self._reset == "smallest" else found.end
        log.warning("%s, going on at %d", out_of_range(partition, position, found).message, offset)
        with self._cond:
            if self._ledger.generation != generation:
                return
            self._ledger.jump(partition, offset)
            self._resets += 1
        fetcher.go_on_at(partition, offset)


def out_of_range(partition: TopicPartition, position: int, log_range: LogRange) -> OffsetOutOfRangeError:
    """The error that says what a reset would lose or repeat."""
    if position < log_range.start:
        what = f"the log starts at {log_range.start}, so {log_range.start - position} offsets are gone already"
    else:
        what = f"the log ends at {log_range.end}: it was truncated, or the topic made again"
    return OffsetOutOfRangeError(
        f"offset {position} of {partition} is out of range: {what}",
        "choose where to go on with auto.offset.reset=smallest|largest, or set the offset with reset-offsets",
    )


def _partial(batch: Batch, done: int) -> dict[TopicPartition, int]:
    """What is consumed when the first ``done`` messages of a batch are."""
    upto: dict[TopicPartition, int] = {}
    for run in batch.runs:
        if run.stop <= done:
            upto[run.partition] = run.next
        elif run.start < done:
            upto[run.partition] = offset_of(batch.messages[done - 1]) + 1
    return upto


def _without(messages: list[Message], runs: list[Run], positions: Mapping[TopicPartition, int]) -> Batch:
    """The batch without what was handed out before or is not ours any more."""
    kept: list[Message] = []
    kept_runs: list[Run] = []
    for run in runs:
        part = messages[run.start : run.stop]
        position = positions[run.partition]
        if run.first < position:
            part = [message for message in part if offset_of(message) >= position]
        kept_runs.append(Run(run.partition, len(kept), len(kept) + len(part), offset_of(part[0]), run.next))
        kept += part
    return Batch(kept, kept_runs)
