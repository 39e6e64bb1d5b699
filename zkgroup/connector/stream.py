"""A stream of a member: its reader gets batches, or single messages out of batches."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, cast

from zkgroup.clients.kafka.client import KafkaSettings, Message
from zkgroup.clients.kafka.fetcher import Fetched, offset_of, partition_of, topic_of
from zkgroup.clients.kafka.message_contents import Headers, mended
from zkgroup.config import ConsumerConfig, librdkafka_properties
from zkgroup.connector.records import Batch, Cursor, Record, trimmed
from zkgroup.connector.stream_reader import StreamReader
from zkgroup.errors import UsageError
from zkgroup.protocol.ledger import Ledger
from zkgroup.protocol.names import TopicPartition

__all__ = ["Batch", "Feed", "Record", "Stream", "StreamStatistics"]

#: The longest time in seconds that a reader stays inside librdkafka.
SLICE: Final = 0.1
#: How long a reader without partitions sleeps, in seconds; an assignment wakes it.
IDLE: Final = 1.0
#: Seconds between two checks whether a lease that has run out is renewed.
LEASE_POLL: Final = 0.05


@dataclass(frozen=True, slots=True)
class StreamStatistics:
    """The counters of one stream. ``repeated``: messages that were dropped because they were delivered before."""

    messages: int
    batches: int
    repeated: int
    resets: int
    partitions: int


class ReaderTurns:
    """Threads may read one after another, not at the same time: the batch in hand of one would count as consumed when
    another asks for the next. Not thread-safe: the stream guards it with its lock."""

    def __init__(self) -> None:
        self._reader: threading.Thread | None = None
        self._inside = False
        self._iterator: object | None = None  # that has not ended

    @property
    def is_mine(self) -> bool:
        """Whether the calling thread was the last to read."""
        return self._reader is threading.current_thread()

    def begin(self, iterator: object | None, *, in_hand: bool) -> None:
        """The calling thread begins to read, within ``iterator`` if that is given. ``in_hand``: the last reader has a
        batch that is not marked. Raises UsageError while another thread reads."""
        elsewhere = self._iterator is not None and self._iterator is not iterator
        if not self.is_mine and (self._inside or elsewhere or in_hand) and self._reader in threading.enumerate():
            assert self._reader is not None
            raise UsageError(
                f"two threads read one stream: {self._reader.name} has not finished with it",
                "read each stream from one thread, and ask for more streams; to pass one on, leave the loop or mark()",
            )
        self._reader = threading.current_thread()
        self._inside = True
        if iterator is not None:
            self._iterator = iterator

    def end(self) -> None:
        """The thread has its batch, or none has come."""
        self._inside = False

    def leave(self, iterator: object) -> None:
        if self._iterator is iterator:
            self._iterator = None


class Stream:
    """One stream of a member. Read it from one thread at a time: by ``batch()``, or by iterating messages.

    A delivered batch counts as consumed when the reader asks for the next one, or calls ``mark()``. Another thread may
    read on when the first has ended, has left its loop, or has marked its batch. Before that it gets a UsageError: the
    batch that the first has in hand would count as consumed.

    One lock guards everything here but the fetcher, which belongs to the reader's thread (``StreamReader``).
    ``_assignment_version`` counts the changes of the assignment, which the member makes through ``Feed``; the reader
    takes them up with its next fetch.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        brokers: Callable[[], KafkaSettings],
        *,
        can_deliver: Callable[[], bool],
        on_failure: Callable[[Exception], None],
        sharers: int = 1,
        report_ends: bool = False,
        native: bool = False,
    ) -> None:
        """``brokers``: how to reach them now. ``sharers``: the streams that share the memory of one consumer.
        ``native``: batches come from the native reader, where it is to be had."""
        self._timeout = None if config.consumer_timeout_ms < 0 else config.consumer_timeout_ms / 1000
        self._can_deliver = can_deliver
        self._failed = on_failure
        properties = {
            name.replace(".", "_"): value
            for name, value in librdkafka_properties(config).items()
            if name not in config.kafka
        }
        options = {"sharers": sharers, "report_ends": report_ends, "native": native, **properties}
        self._reader = StreamReader(brokers, self._position, self._seek, config.auto_offset_reset, options)
        self._cond = threading.Condition()
        self._ledger = Ledger()
        self._assignment_version = 0
        self._on_paused: Callable[[], None] | None = None
        self._cursor: Cursor | None = None
        self._turns = ReaderTurns()
        self._ended = False
        self._error: Exception | None = None
        self._ends: dict[TopicPartition, int] = {}
        self._messages = self._batches = self._resets = 0

    # ------------------------------------------------------------ for the reader and the member

    def _return_batch(self) -> None:
        self._mark_cursor()
        self._cursor = None
        self._ledger.abandon()

    def _mark_cursor(self) -> None:
        if self._cursor is not None and self._ledger.has_batch:
            self._ledger.mark(self._cursor.batch.offsets_before(self._cursor.done))

    def _report_paused(self) -> None:
        if self._on_paused is not None and not self._ledger.has_batch:
            done, self._on_paused = self._on_paused, None
            done()

    # ------------------------------------------------------------ its state

    @property
    def has_ended(self) -> bool:
        """Whether the member has left: no message will follow."""
        return self._ended

    @property
    def ends(self) -> Mapping[TopicPartition, int]:
        """The ends of partitions that were read to their end in this generation. Only with ``report_ends``."""
        with self._cond:
            return dict(self._ends)

    @property
    def positions(self) -> Mapping[TopicPartition, int]:
        """The next offset to deliver, for each partition that is assigned now."""
        with self._cond:
            return dict(self._ledger.positions)

    def statistics(self) -> StreamStatistics:
        with self._cond:
            return StreamStatistics(
                self._messages, self._batches, self._ledger.repeated, self._resets, len(self._ledger.positions)
            )

    # ------------------------------------------------------------ the reader's side

    def release(self) -> None:
        """Stop reading on this thread: its batch does not count as consumed, and no rebalance waits for it."""
        with self._cond:
            if self._turns.is_mine:
                self._return_batch()
                self._report_paused()

    def mark(self) -> None:
        """All that was delivered counts as consumed."""
        with self._cond:
            cursor = self._cursor
            if cursor is None or cursor.is_at_end or not self._ledger.has_batch:
                self._cursor = None
                self._ledger.mark()
            else:
                cursor.done = cursor.given
                if self._on_paused is not None:
                    self._return_batch()
            self._report_paused()

    def mark_first(self, batch: Batch, count: int) -> None:
        """The first ``count`` messages of the batch in hand count as consumed; the rest is read again."""
        with self._cond:
            if self._ledger.has_batch:
                self._ledger.mark(batch.offsets_before(count))
                self._ledger.abandon()
            self._report_paused()

    def batch(self, timeout: float | None = None) -> Batch | None:
        """The next batch; the one before counts as consumed now. None after ``timeout`` seconds without a message, and
        when the member has left (then ``ended`` is true). ``timeout`` is ``consumer_timeout_ms`` of the configuration
        by default: for ever, unless that is set.

        Raises the error that made the member leave; UsageError while ``messages()`` has not finished with its batch.
        """
        return self._next_batch(timeout, None)

    def _next_batch(self, timeout: float | None, iterator: object | None) -> Batch | None:
        with self._cond:
            self._turns.begin(iterator, in_hand=self._ledger.has_batch and self._cursor is None)
        try:
            with self._cond:
                amid = self._cursor is not None and not self._cursor.is_at_end and self._ledger.has_batch
                if amid and iterator is None and self._on_paused is None:
                    raise UsageError("a loop over messages() was left amid a batch", "go on with messages()")
            return self._wait_for_batch(self._timeout if timeout is None else timeout)
        finally:
            self._turns.end()

    def _wait_for_batch(self, timeout: float | None) -> Batch | None:
        self.mark()
        deadline = float("inf") if timeout is None else time.monotonic() + timeout
        wait = 0.0
        while True:
            with self._cond:
                self._check_ended()
                if not self._ledger.positions and self._reader.assignment_version == self._assignment_version:
                    self._cond.wait(min(wait * IDLE / SLICE, max(0.0, deadline - time.monotonic())))
                    self._check_ended()
                if self._ended:
                    return None
                assignment_version, generation, share = (
                    self._assignment_version,
                    self._ledger.generation,
                    dict(self._ledger.positions),
                )
            if (batch := self._fetch(assignment_version, generation, share, wait)) is not None:
                return batch
            wait = min(SLICE, deadline - time.monotonic())
            if wait <= 0:
                return None

    def _check_ended(self) -> None:
        if self._error is not None:
            raise self._error

    def _fetch(
        self, assignment_version: int, generation: int | None, share: Mapping[TopicPartition, int], timeout: float
    ) -> Batch | None:
        try:
            fetched = self._reader.fetch(assignment_version, generation, share, timeout)
        except Exception as error:
            self._failed(error)
            raise
        return self._deliver(generation, fetched) if fetched.messages or fetched.ends else None

    def _deliver(self, generation: int | None, fetched: Fetched) -> Batch | None:
        with self._cond:
            # Past the lease nothing may be delivered: the session may be over, and others may own our share.
            while not self._can_deliver() and self._ledger.generation == generation and not self._ended:
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
                batch = trimmed(fetched.messages, runs, positions)
            self._ledger.deliver(batch.runs)
            self._batches += 1
            self._messages += len(batch.messages)
            return batch

    def _position(self, generation: int | None, partition: TopicPartition) -> int | None:
        with self._cond:
            return self._ledger.positions.get(partition) if self._ledger.generation == generation else None

    def _seek(self, generation: int | None, partition: TopicPartition, offset: int) -> bool:
        with self._cond:
            if self._ledger.generation != generation:
                return False
            self._ledger.seek(partition, offset)
            self._resets += 1
            return True

    # ------------------------------------------------------------ single messages

    def messages(self, timeout: float | None = None) -> Iterator[Record]:
        """Iterate single messages. A message counts as consumed when the next one is asked for.

        The iteration ends when the member has left, or after ``timeout`` seconds without a message. ``timeout`` is
        ``consumer_timeout_ms`` by default, where the Scala consumer raises ConsumerTimeoutException. Called again, also
        after a ``break``, it goes on with the next message.
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
                    # Of a batch that a rebalance has cut off only the iterated messages count.
                    if self._cursor is cursor and not cursor.is_at_end:
                        self._return_batch()
        finally:
            with self._cond:
                self._turns.leave(iterator)

    __iter__ = messages

    def _next_cursor(self, timeout: float | None, iterator: object) -> Cursor | None:
        with self._cond:
            cursor = self._cursor
            if cursor is not None and self._ledger.has_batch and not cursor.is_at_end:
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

    def _may_go_on(self) -> bool:
        """Whether the next message of the batch in hand may be delivered. Waits for the lease, if it has run out."""
        if self._on_paused is None and self._ledger.has_batch and self._can_deliver():
            return True
        with self._cond:
            while self._ledger.has_batch and self._on_paused is None and not self._ended:
                if self._can_deliver():
                    return True
                self._cond.wait(LEASE_POLL)
            return False

    def _record(self, message: Message) -> Record:
        kind, millis = message.timestamp()
        try:
            headers = cast("Headers | None", message.headers())
        except SystemError as error:
            headers = mended(message, error)
        return Record(
            topic_of(message),
            partition_of(message),
            offset_of(message),
            millis if kind else None,
            message.key(),
            message.value(),
            headers or [],
        )


class Feed:
    """The member's side of a stream: assigns partitions to it, pauses it, ends it."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream

    def pause(self, done: Callable[[], None], *, abandon: bool) -> None:
        """Deliver nothing more of this generation. ``done`` is called once, when the reader has no batch in hand; with
        ``abandon`` at once: the batch in hand does not count as consumed."""
        s = self._stream
        with s._cond:
            s._assignment_version += 1
            s._ledger.fence()
            if abandon:
                s._return_batch()
            if not s._ledger.has_batch:
                s._on_paused = None
                done()
            else:
                s._on_paused = done
            s._cond.notify_all()

    def assign(self, generation: int, share: Mapping[TopicPartition, int]) -> None:
        """Read these partitions from these offsets."""
        s = self._stream
        with s._cond:
            s._assignment_version += 1
            s._ledger.assign(generation, share)
            s._ends = {}
            s._cond.notify_all()

    def assign_more(self, generation: int, share: Mapping[TopicPartition, int]) -> None:
        """Read these partitions as well, if ``generation`` is still the current one."""
        s = self._stream
        with s._cond:
            if share and s._ledger.generation == generation:
                s._assignment_version += 1
                s._ledger.assign_more(share)
                s._cond.notify_all()

    def consumed(self) -> Mapping[TopicPartition, int]:
        """The next offset to consume of every partition of the last generation."""
        s = self._stream
        with s._cond:
            s._mark_cursor()
            return s._ledger.consumed()

    def end(self, error: Exception | None) -> None:
        """End the stream: the member has left. Its reader gets ``error``, if there is one."""
        s = self._stream
        with s._cond:
            s._assignment_version += 1
            s._ledger.fence()
            s._ledger.abandon()
            s._ended, s._error = True, error
            s._cond.notify_all()

    def close(self) -> None:
        """Free the fetcher. A reader that is inside returns within ``SLICE`` seconds."""
        s = self._stream
        s._reader.close()
