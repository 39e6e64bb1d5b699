"""The sink of consumed messages: a batch is formatted, written to a descriptor, and only then marked as consumed."""

from __future__ import annotations

import os
import select
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ._error_output import reader_is_gone
from ._message_format import Formatter, Message

if TYPE_CHECKING:
    from zkgroup.clients.kafka.message_filter import MessageFilter
    from zkgroup.connector import Batch, Stream
    from zkgroup.protocol.names import TopicPartition

# Seconds that a reader waits for messages before it checks for a stop.
STOP_CHECK = 0.05
# Bytes of messages that are formatted at once: formatted messages are in memory twice.
PIECE = 4 * 1024 * 1024
# The size of every nth message is measured.
SAMPLE = 8


class Sink:
    """Readers, one thread a stream, that share one descriptor.

    A batch is marked as consumed when the operating system has all of its bytes; one that could not be written is not.
    Messages that do not pass ``wanted`` are consumed, and not written. ``limit``: how many messages to write at most.
    ``has_begun``: something was written, if only a part of a batch. ``error``: the descriptor cannot be written.
    ``failure``: what kept a stream from being read.
    """

    def __init__(
        self,
        descriptor: int,
        formatter: Formatter,
        *,
        limit: int | None = None,
        wanted: MessageFilter | None = None,
    ) -> None:
        self.error: OSError | None = None
        self.failure: Exception | None = None
        self.written = self.consumed = 0
        self.has_begun = False
        self.wanted = wanted
        self.descriptor = descriptor
        self._format = formatter
        self._left = limit
        self._stop = False
        self._lock = threading.Lock()  # held while a batch is written
        self._ended: list[threading.Event] = []  # one a reader; a join that a signal interrupts would take it for ended
        self._reached: dict[TopicPartition, int] = {}
        self._began = self._last = time.monotonic()

    def start(self, streams: Sequence[Stream]) -> None:
        """Begin to read; one thread for each stream."""
        self._began = self._last = time.monotonic()
        for number, stream in enumerate(streams):
            # Daemons: one that is stuck in a write must not keep the process from ending.
            ended = threading.Event()
            reader = threading.Thread(
                target=self._read, args=(stream, ended), name=f"zkgroup-reader-{number}", daemon=True
            )
            self._ended.append(ended)
            reader.start()

    def stop(self) -> None:
        """Readers stop after the batch in hand."""
        self._stop = True

    @property
    def reads_natively(self) -> bool:
        """Whether the native reader is the faster one: a filter asks it for each message, which takes 3 µs."""
        return self.wanted is None

    @property
    def reader_gone(self) -> bool:
        return isinstance(self.error, BrokenPipeError) or reader_is_gone(self.descriptor)

    def wait(self, timeout: float) -> bool:
        """Wait until all readers have left; false if ``timeout`` seconds were not enough."""
        deadline = time.monotonic() + timeout
        return all(ended.wait(max(0.0, deadline - time.monotonic())) for ended in self._ended)

    @property
    def idle(self) -> float:
        """Seconds without a message; 0 while one is being written, however long that takes."""
        return 0.0 if self._lock.locked() else time.monotonic() - self._last

    @property
    def seconds(self) -> float:
        """From the start to the last message that was consumed; to now if there was none."""
        return (self._last if self.consumed else time.monotonic()) - self._began

    def missing(self, ends: Mapping[TopicPartition, int]) -> str:
        """The partitions of which not all messages before ``ends`` are written, as text; "" if there are none. The end
        of a log may have no messages (compaction, control records). Only for streams that report their ends."""
        left = [partition for partition, end in ends.items() if self._reached.get(partition, -1) < end]
        if not left:
            return ""
        from zkgroup.protocol.names import spans

        return f"the ends of {spans(left)}"

    def _read(self, stream: Stream, ended: threading.Event) -> None:
        try:
            while not self._stop:
                batch = stream.batch(STOP_CHECK)
                if batch is not None:
                    self._put(stream, batch)
                elif stream.has_ended:
                    return
                # All delivered messages are written now, so the reported ends are reached.
                self._note(stream.ends)
        except OSError as error:
            self.error = error
            self._stop = True
        except Exception as error:  # noqa: BLE001  # a thread's error is the command's, which raises it
            self.failure = error
            self._stop = True
        finally:
            stream.release()
            ended.set()

    def _put(self, stream: Stream, batch: Batch) -> None:
        with self._lock:
            written, count, left = batch.messages, len(batch.messages), self._left
            if self.wanted is not None:
                written, count = self.wanted.passing(batch.messages, left)
            elif left is not None and left < count:
                written, count = batch.messages[:left], left
            self._write(written)
            if left is None or len(written) < left:
                stream.mark()
                self._note({run.partition: run.next for run in batch.runs})
            else:
                stream.mark_first(batch, count)
                self._stop = True
            if left is not None:
                self._left = left - len(written)
            self.written += len(written)
            self.consumed += count
            self._last = time.monotonic()

    def _note(self, offsets: Mapping[TopicPartition, int]) -> None:
        for partition, offset in offsets.items():
            if offset > self._reached.get(partition, -1):
                self._reached[partition] = offset

    def _write(self, messages: Sequence[Message]) -> None:
        for piece in split_messages(messages):
            view = memoryview(self._format(piece))
            while view:
                try:
                    view = view[os.write(self.descriptor, view) :]
                    self.has_begun = True
                except BlockingIOError:  # another process that shares the descriptor made it non-blocking
                    select.select((), (self.descriptor,), (), 1.0)


def split_messages(messages: Sequence[Any]) -> Iterator[Sequence[Message]]:
    """Cut a batch of large messages, so that formatting it takes a bounded amount of memory."""
    if hasattr(
        messages, "size"
    ):  # of a native batch, which is bounded itself but where large messages follow small ones
        largest = messages.size // max(1, len(messages)) if messages.size > 4 * PIECE else 0
    else:
        from zkgroup.clients.kafka.fetcher import lengths

        largest = max(lengths(messages[::SAMPLE]), default=0)
    count = max(1, PIECE // max(1, largest))
    if count >= len(messages):
        yield messages
        return
    for start in range(0, len(messages), count):
        yield messages[start : start + count]
