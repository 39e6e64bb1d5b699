"""What a consumer thread reads: batches, and single messages out of batches."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic, Literal, TypeVar, cast

from zkgroup.clients.kafka.client import KafkaSettings, Message
from zkgroup.clients.kafka.fetcher import Fetched, offset_of, partition_of, topic_of
from zkgroup.clients.kafka.message_headers import Headers, mended
from zkgroup.config import ConsumerConfig, librdkafka_properties
from zkgroup.connector.reader_turns import Turns
from zkgroup.connector.records import Batch, Cursor, DecodingError, Record, without
from zkgroup.connector.stream_reader import Reading, out_of_range
from zkgroup.protocol.ledger import Ledger
from zkgroup.protocol.names import TopicPartition

__all__ = ["Batch", "DecodingError", "Feed", "Record", "Stream", "StreamStatistics", "out_of_range"]

K = TypeVar("K")
V = TypeVar("V")

#: The longest a reader is out of reach inside librdkafka.
SLICE: Final = 0.1
#: How long a reader that owns nothing sleeps; it is woken when that changes.
IDLE: Final = 1.0
#: How often a reader whose lease has run out looks whether it is renewed.
LEASE_POLL: Final = 0.05


@dataclass(frozen=True, slots=True)
class StreamStatistics:
    """What one stream has done. ``repeated`` were dropped because they had been handed out before."""

    messages: int
    batches: int
    repeated: int
    resets: int
    partitions: int


class Stream(Generic[K, V]):
    """One stream of a member. Read it from one thread at a time: by ``batch()``, or by iterating messages.

    What was handed out counts as consumed when the reader comes back for more, or says ``mark()``. Another thread may
    read on when the first has ended, has left its loop, or has marked its batch; before that it gets a UsageError,
    since what the first has in hand would count as consumed.

    Everything here is guarded by one lock, but for the fetcher, which belongs to the reader's thread (``Reading``).
    ``_orders`` counts what the member has said (through ``Feed``); the reader follows when it comes by.
    """

    def __init__(
        self,
        settings: Callable[[], KafkaSettings],
        may_deliver: Callable[[], bool],
        failed: Callable[[Exception], None],
        *,
        sharers: int,
        reset: Literal["smallest", "largest"] | None,
        key_decoder: Callable[[bytes | None], K],
        value_decoder: Callable[[bytes | None], V],
        properties: Mapping[str, Any],
        report_ends: bool = False,
        native: bool = False,
        timeout: float | None = None,
    ) -> None:
        self._timeout = timeout
        self._may_deliver = may_deliver
        self._failed = failed
        self._decode_key = key_decoder
        self._decode_value = value_decoder
        options = {"sharers": sharers, "report_ends": report_ends, "native": native, **properties}
        self._reading = Reading(settings, self._position, self._jump, reset, options)
        self._cond = threading.Condition()
        self._ledger = Ledger()
        self._orders = 0
        self._quiet: Callable[[], None] | None = None
        self._cursor: Cursor | None = None
        self._turns = Turns()
        self._ended = False
        self._error: Exception | None = None
        self._ends: dict[TopicPartition, int] = {}
        self._messages = self._batches = self._resets = 0

    # ------------------------------------------------------------ for both sides

    def _give_back(self) -> None:
        self._mark_cursor()
        self._cursor = None
        self._ledger.abandon()

    def _mark_cursor(self) -> None:
        if self._cursor is not None and self._ledger.busy:
            self._ledger.mark(self._cursor.batch.upto(self._cursor.done))

    def _tell_quiet(self) -> None:
        if self._quiet is not None and not self._ledger.busy:
            done, self._quiet = self._quiet, None
            done()

    # ------------------------------------------------------------ what can be seen

    @property
    def ended(self) -> bool:
        """Whether the member has left: nothing more will come."""
        return self._ended

    @property
    def ends(self) -> Mapping[TopicPartition, int]:
        """Partitions that were read to their end at least once in this generation, and the offset there.
        Told only by streams that were asked to."""
        with self._cond:
            return dict(self._ends)

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

    # ------------------------------------------------------------ the reader's side

    def forsake(self) -> None:
        """The calling thread will not read on. If it is the reader, what it has in hand does not count as consumed, and
        a rebalance need not wait for it."""
        with self._cond:
            if self._turns.mine:
                self._give_back()
                self._tell_quiet()

    def mark(self) -> None:
        """All that was handed out is done with: it counts as consumed."""
        with self._cond:
            cursor = self._cursor
            if cursor is None or cursor.at_end:
                self._cursor = None
                self._ledger.mark()
            else:
                cursor.done = cursor.given
                if self._quiet is not None:
                    self._give_back()
            self._tell_quiet()

    def mark_first(self, batch: Batch, count: int) -> None:
        """The first ``count`` messages of the batch in hand are done with, and the reader does not want the rest."""
        with self._cond:
            if self._ledger.busy:
                self._ledger.mark(batch.upto(count))
                self._ledger.abandon()
            self._tell_quiet()

    def batch(self, timeout: float | None = None) -> Batch | None:
        """The next batch; what was handed out before counts as consumed now. None after ``timeout`` seconds without a
        message, and when the member has left (then ``ended`` is true). Without ``timeout`` it is
        ``consumer_timeout_ms`` of the configuration that counts: for ever, unless that is set.

        Raises the error that made the member leave.
        """
        return self._next_batch(timeout, None)

    def _next_batch(self, timeout: float | None, iterator: object | None) -> Batch | None:
        with self._cond:
            self._turns.begin(iterator, in_hand=self._ledger.busy and self._cursor is None)
        try:
            return self._wait_for_batch(self._timeout if timeout is None else timeout)
        finally:
            self._turns.end()

    def _wait_for_batch(self, timeout: float | None) -> Batch | None:
        self.mark()
        if (rest := self._rest()) is not None:
            return rest
        deadline = float("inf") if timeout is None else time.monotonic() + timeout
        wait = 0.0
        while True:
            with self._cond:
                self._check_ended()
                if not self._ledger.positions and self._reading.follows == self._orders:
                    self._cond.wait(min(wait * IDLE / SLICE, max(0.0, deadline - time.monotonic())))
                    self._check_ended()
                if self._ended:
                    return None
                orders, generation, share = self._orders, self._ledger.generation, dict(self._ledger.positions)
            if (batch := self._fetch(orders, generation, share, wait)) is not None:
                return batch
            wait = min(SLICE, deadline - time.monotonic())
            if wait <= 0:
                return None

    def _check_ended(self) -> None:
        if self._error is not None:
            raise self._error

    def _fetch(
        self, orders: int, generation: int | None, share: Mapping[TopicPartition, int], timeout: float
    ) -> Batch | None:
        try:
            fetched = self._reading.fetch(orders, generation, share, timeout)
        except Exception as error:
            self._failed(error)
            raise
        return self._hand_out(generation, fetched) if fetched.messages or fetched.ends else None

    def _hand_out(self, generation: int | None, fetched: Fetched) -> Batch | None:
        with self._cond:
            # Past the lease nothing may be handed out: the session, and with it our share, may be somebody else's.
            while not self._may_deliver() and self._ledger.generation == generation and not self._ended:
                self._cond.wait(LEASE_POLL)
            if self._ledger.generation != generation or self._ended:
                return None
            positions = self._ledger.positions
            self._ends |= {partition: end for partition, end in fetched.ends.items() if partition in positions}
            runs = self._ledger.trim(fetched.runs)
            if not runs:
                return None
            batch = Batch(fetched.messages, fetched.runs)
            if len(runs) != len(fetched.runs) or any(run.first < positions[run.partition] for run in runs):
                batch = without(fetched.messages, runs, positions)
            self._ledger.hand_out(batch.runs)
            self._batches += 1
            self._messages += len(batch.messages)
            return batch

    def _position(self, generation: int | None, partition: TopicPartition) -> int | None:
        with self._cond:
            return self._ledger.positions.get(partition) if self._ledger.generation == generation else None

    def _jump(self, generation: int | None, partition: TopicPartition, offset: int) -> bool:
        with self._cond:
            if self._ledger.generation != generation:
                return False
            self._ledger.jump(partition, offset)
            self._resets += 1
            return True

    # ------------------------------------------------------------ single messages

    def messages(self, timeout: float | None = None) -> Iterator[Record[K, V]]:
        """Iterate single messages. Ends when the member has left, or after ``timeout`` seconds without a message (if
        that is not given, ``consumer_timeout_ms``, where the reference raises ConsumerTimeoutException); it may be
        called again then, and after a ``break``, and goes on where it was. A message counts as consumed when the
        next one is asked for.

        Where a decoder raises, that is a DecodingError here, which names the message and carries it as it came. The
        iteration is over; calling this again goes on behind that message, which counts as consumed then (or with
        ``mark()``): put it aside before. Who closes the connector instead leaves it to be read again.
        """
        iterator = object()
        try:
            while (cursor := self._next_cursor(timeout, iterator)) is not None:
                messages = cursor.batch.messages
                while cursor.given < len(messages) and self._may_go_on():
                    message = messages[cursor.given]
                    cursor.given += 1
                    yield self._record(message)
                    cursor.done = cursor.given
                with self._cond:
                    # Of a batch that was cut off by a rebalance only what was iterated counts.
                    if self._cursor is cursor and not cursor.at_end:
                        self._give_back()
        finally:
            with self._cond:
                self._turns.leave(iterator)

    __iter__ = messages

    def _next_cursor(self, timeout: float | None, iterator: object) -> Cursor | None:
        with self._cond:
            cursor = self._cursor
            if cursor is not None and self._ledger.busy and not cursor.at_end:
                self._turns.begin(iterator, in_hand=False)
                self._turns.end()
                cursor.done = cursor.given
                return cursor
        batch = self._next_batch(timeout, iterator)
        if batch is None:
            return None
        with self._cond:
            self._cursor = Cursor(batch)
            return self._cursor

    def _rest(self) -> Batch | None:
        """What an iteration that was broken off has left of its batch."""
        with self._cond:
            cursor, self._cursor = self._cursor, None
            if cursor is None or not self._ledger.busy:
                return None
            self._ledger.mark(cursor.batch.upto(cursor.done))
        if self._may_go_on():
            return cursor.batch.behind(cursor.given)
        with self._cond:
            self._ledger.abandon()
            self._tell_quiet()
            return None

    def _may_go_on(self) -> bool:
        """Whether the next message of the batch in hand may be handed on. Waits for the lease, if need be."""
        if self._quiet is None and self._ledger.busy and self._may_deliver():
            return True
        with self._cond:
            while self._ledger.busy and self._quiet is None and not self._ended:
                if self._may_deliver():
                    return True
                self._cond.wait(LEASE_POLL)
            return False

    def _record(self, message: Message) -> Record[K, V]:
        kind, millis = message.timestamp()
        try:
            headers = cast("Headers | None", message.headers())
        except SystemError as error:
            headers = mended(message, error)
        part = "key"
        try:
            key = self._decode_key(message.key())
            part = "value"
            value = self._decode_value(message.value())
        except Exception as error:
            raise DecodingError(part, message, error) from error
        return Record(
            topic_of(message),
            partition_of(message),
            offset_of(message),
            millis if kind else None,
            key,
            value,
            headers or [],
        )


def make_streams(
    config: ConsumerConfig,
    count: int,
    brokers: Callable[[], KafkaSettings],
    *,
    may_deliver: Callable[[], bool],
    on_failure: Callable[[Exception], None],
    key_decoder: Callable[[bytes | None], K],
    value_decoder: Callable[[bytes | None], V],
    report_ends: bool,
    native: bool,
) -> list[Stream[K, V]]:
    """Streams that share the memory of one consumer. ``brokers``: how to reach them now. ``native``: their batches come
    from the native reader, where it is to be had."""
    properties = {
        name.replace(".", "_"): value
        for name, value in librdkafka_properties(config).items()
        if name not in config.kafka
    }
    return [
        Stream(
            brokers,
            may_deliver,
            on_failure,
            sharers=count,
            reset=config.auto_offset_reset,
            key_decoder=key_decoder,
            value_decoder=value_decoder,
            properties=properties,
            report_ends=report_ends,
            native=native,
            timeout=None if config.consumer_timeout_ms < 0 else config.consumer_timeout_ms / 1000,
        )
        for _ in range(count)
    ]


class Feed:
    """The other side of a stream, for who owns it: which partitions it reads, and when it stops."""

    def __init__(self, stream: Stream[Any, Any]) -> None:
        self._stream = stream

    def quiet(self, done: Callable[[], None], *, abandon: bool) -> None:
        """Hand out nothing more of this generation. ``done`` is called, once, when the reader has nothing in hand;
        with ``abandon`` at once."""
        s = self._stream
        with s._cond:
            s._orders += 1
            s._ledger.fence()
            if abandon:
                s._give_back()
            if not s._ledger.busy:
                s._quiet = None
                done()
            else:
                s._quiet = done
            s._cond.notify_all()

    def grant(self, generation: int, share: Mapping[TopicPartition, int]) -> None:
        """Read these partitions from these offsets."""
        s = self._stream
        with s._cond:
            s._orders += 1
            s._ledger.grant(generation, share)
            s._ends = {}
            s._cond.notify_all()

    def extend(self, generation: int, share: Mapping[TopicPartition, int]) -> None:
        """Read these partitions as well, if ``generation`` is still the one that is granted."""
        s = self._stream
        with s._cond:
            if share and s._ledger.generation == generation:
                s._orders += 1
                s._ledger.extend(share)
                s._cond.notify_all()

    def consumed(self) -> Mapping[TopicPartition, int]:
        """The next offset of every partition of the generation that was granted last."""
        s = self._stream
        with s._cond:
            s._mark_cursor()
            return s._ledger.consumed()

    def end(self, error: Exception | None) -> None:
        """The member has left: readers stop, with ``error`` if there is one."""
        s = self._stream
        with s._cond:
            s._orders += 1
            s._ledger.fence()
            s._ledger.abandon()
            s._ended, s._error = True, error
            s._cond.notify_all()

    def close(self) -> None:
        """Free the fetcher. The reader, if it is inside, comes out within a slice."""
        s = self._stream
        s._reading.close()
