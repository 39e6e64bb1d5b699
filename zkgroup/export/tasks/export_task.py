"""A Spark task: reads ranges of offsets, writes their files, accounts for every offset. Its answers: ``task_data``."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar, cast

from zkgroup.clients.kafka.client import Consumer, KafkaException, KafkaSettings, KafkaTopicPartition, Message
from zkgroup.clients.kafka.native_reader import NativeMessages, NativeSource
from zkgroup.clients.kafka.range_reader import RangeReader, bounds, range_consumer, range_source
from zkgroup.errors import OffsetOutOfRangeError, OffsetsDeletedError, RefusedError, UnreachableError, ZkgroupError
from zkgroup.export.model.accounting import GapCollector, Interval, count_gaps
from zkgroup.export.model.plan_types import OffsetRange
from zkgroup.export.stores.store import open_store
from zkgroup.export.tasks.parquet_files import TaskFiles
from zkgroup.export.tasks.task_data import Answer, RangeAnswer, TaskSettings
from zkgroup.protocol.names import TopicPartition

# Brokers that are restarted one by one are back by then.
_ATTEMPTS = 3
# Objects that come to stay before Python searches them for cycles: messages make none, and searching them over
# and over took a tenth of a task's time.
_UNTIL_COLLECTED = 100_000
_CUT = "nothing was exported: export again, which compares the group with the log that is there"
_DELETED = "run it again: it asks with --on-mismatch how to continue"
T = TypeVar("T")


def run_task(settings: TaskSettings, ranges: Iterable[OffsetRange]) -> Iterator[Answer]:
    """Export ``ranges``, one after the other; stops at the first that fails."""
    files: TaskFiles | None = None
    source = _Source(settings.kafka)
    done = False
    try:
        files = TaskFiles(settings.files)
        for piece in ranges:
            with _collect_seldom():
                answer = _export(settings, piece, source, files)
            yield answer
            yield from files.pop_finished()
        files.finish()
        yield from files.pop_finished()
        done = True
    except OffsetOutOfRangeError as error:
        is_deleted = isinstance(error, OffsetsDeletedError)
        yield RefusedError(error.message, _DELETED if is_deleted else _CUT)
    except ZkgroupError as error:
        yield error
    except OSError as error:
        yield open_store(settings.files.destination).work_failure(error)
    finally:
        source.close()
        if files is not None and not done:
            files.abandon()


@contextmanager
def _collect_seldom() -> Iterator[None]:
    before = gc.get_threshold()
    gc.set_threshold(_UNTIL_COLLECTED, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


def _export(settings: TaskSettings, piece: OffsetRange, source: _Source, files: TaskFiles) -> RangeAnswer:
    reading = _RangeReading(settings, piece, source)
    files.begin(piece)
    for batch in reading.batches():
        files.add(batch)
        del batch  # not kept while the next is fetched: it may be large
    counts = files.end(reading.reached)
    gaps = _patiently(reading.gaps)
    if files.elsewhere:
        gaps["elsewhere"] = files.elsewhere
    return RangeAnswer(piece, reading.reached, gaps, *counts)


def _patiently(ask: Callable[[], T]) -> T:
    for _ in range(_ATTEMPTS - 1):
        try:
            return ask()
        except UnreachableError:
            continue
    return ask()


class _Source:
    """A task's consumer, which its ranges share: to connect takes longer than to read a small one.

    It becomes one for large keys and headers where such are seen, and remains that."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings
        self._consumer: Consumer | NativeSource | None = None
        self.is_large = False

    def get(self) -> Consumer | NativeSource:
        """The consumer; a new one at first, and after ``close``."""
        if self._consumer is None:
            self._consumer = range_source(self._settings, large=self.is_large)
        return self._consumer

    def become_large(self) -> None:
        """The next consumer is one for large keys and headers. Messages that this one has fetched ahead are dropped."""
        if not self.is_large:
            self.is_large = True
            self.close()

    def close(self) -> None:
        """Close it, if there is one."""
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            consumer.close()


class _RangeReading:
    """Reads a range, and counts the offsets without a message."""

    def __init__(self, settings: TaskSettings, piece: OffsetRange, source: _Source) -> None:
        self._settings = settings
        self._piece = piece
        self._missing = GapCollector(piece.start)
        self._left = settings.max_bytes
        self._deleted = 0
        self._source = source
        self._tries = _ATTEMPTS
        self.reached = piece.end

    def _again(self) -> None:
        """Take a new connection for the next try; after the last one raise the error that is being handled."""
        self._tries -= 1
        if self._tries <= 0:
            raise
        self._source.close()

    def batches(self) -> Iterator[list[Message] | NativeMessages]:
        """The messages, up to the range's end or to the limit of bytes; ``reached``: whether it is the end."""
        partition, _, end = self._piece
        while self._missing.position < end:
            try:
                reader = RangeReader(self._source.get(), self._settings.silence_timeout)
                for batch in reader.batches(partition, self._missing.position, end):
                    taken = self._within_limit(batch)
                    del batch
                    self._missing.add(*_account(taken))
                    yield taken
                    del taken
                    self._tries = _ATTEMPTS
                    if self._left is not None and self._left <= 0:
                        self.reached = self._missing.position
                        return
                    if reader.is_large and not self._source.is_large:
                        break  # lets go of the batch, since more may come while the consumer is closed
                else:
                    self._missing.skip(end)
                if reader.is_large:
                    self._source.become_large()  # and go on behind the messages that were taken
            except OffsetOutOfRangeError:
                if not self._settings.skip_deleted or not self._pass_over_deleted():
                    raise
            except UnreachableError:
                self._again()  # and go on behind the messages that came

    def _within_limit(self, batch: list[Message] | NativeMessages) -> list[Message] | NativeMessages:
        """As much of a batch as the limit allows; one message is always taken, so that every run gets on."""
        if self._left is None:
            return batch
        for count, size in enumerate(_sizes(batch), 1):
            self._left -= size
            if self._left <= 0:
                return batch[:count]
        return batch

    def _pass_over_deleted(self) -> bool:
        """Retention overtook the reader: go on where the log starts. False if it was something else."""
        start = _patiently(
            lambda: _log_start(self._source.get(), self._piece.partition, self._settings.silence_timeout)
        )
        low = min(start, self._piece.end)
        deleted = low - self._missing.position
        self._deleted += max(0, deleted)
        self._missing.jump(low)
        return deleted > 0

    def gaps(self) -> dict[str, int]:
        """The offsets without a message, counted by kind."""
        settings = self._settings
        filtered = settings.kafka.isolation == "read_committed"
        gaps = count_gaps(
            self._missing.spans,
            cleanup=settings.cleanup.get(self._piece.partition.topic),
            transactional=settings.kafka.legacy_release is None,
            hidden=self._hidden if filtered else None,
        )
        if self._deleted:
            gaps["retention"] = self._deleted
        return gaps

    def _hidden(self, span: Interval) -> Iterator[int]:
        """The offsets of ``span`` that a reader of uncommitted messages is given."""
        source = range_consumer(self._settings.kafka.with_isolation("read_uncommitted"), large=self._source.is_large)
        try:
            for batch in RangeReader(source, self._settings.silence_timeout).batches(self._piece.partition, *span):
                yield from cast("Iterator[int]", map(Message.offset, batch))
        finally:
            source.close()


def _account(messages: list[Message] | NativeMessages) -> tuple[int, int, int, Iterable[int]]:
    """For ``GapCollector.add``."""
    offsets: Iterable[Any] = (
        messages.offsets() if isinstance(messages, NativeMessages) else map(Message.offset, messages)
    )
    return *bounds(messages), len(messages), offsets


def _sizes(messages: list[Message] | NativeMessages) -> Iterable[int]:
    if isinstance(messages, NativeMessages):
        return messages.sizes()
    return (len(message) + len(message.key() or b"") for message in messages)


def _log_start(source: Consumer | NativeSource, partition: TopicPartition, timeout: float) -> int:
    asked = KafkaTopicPartition(partition.topic, partition.partition)
    try:
        found = source.get_watermark_offsets(asked, timeout=timeout, cached=False)
    except KafkaException as error:
        raise UnreachableError(f"the log of {partition}: {error.args[0].str()}", "check the brokers") from None
    if found is None:
        raise UnreachableError(f"the leader of {partition} does not answer", "check the brokers, then try again")
    return found[0]
