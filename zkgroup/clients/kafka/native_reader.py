"""The native reader: messages stay in librdkafka's memory, and become text or Arrow buffers a batch at a time.

It needs the C extension (``_native.c``), which is absent where no compiler was, and which ``ZKGROUP_NATIVE=0`` turns
off. ``Fetcher`` does the same in Python, and ``range_consumer`` the same as ``NativeSource``. ``open_reader`` chooses.
"""

from __future__ import annotations

import logging
import os
import select
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast, overload

from zkgroup.c_extensions import READER, import_extension
from zkgroup.clients.kafka import fetcher
from zkgroup.clients.kafka.client import (
    ClusterMetadata,
    KafkaError,
    KafkaException,
    KafkaSettings,
    KafkaTopicPartition,
    Message,
    bad_properties,
    consumer,
    consumer_properties,
)
from zkgroup.clients.kafka.connection_errors import ClientLog
from zkgroup.clients.kafka.fetcher import Fetched, Fetcher
from zkgroup.clients.kafka.message_contents import UNREADABLE
from zkgroup.protocol.ledger import Run
from zkgroup.protocol.names import TopicPartition

if TYPE_CHECKING:
    from zkgroup.clients.kafka._native import Batch, Block, Position

log = logging.getLogger(__name__)

#: Python's levels of syslog's, by their numbers, as confluent-kafka has them.
_LEVELS: Final = (50, 50, 50, 40, 30, 20, 20, 10)
#: Raised with every change of the extension's functions: a checkout keeps an extension that was built before.
INTERFACE: Final = 3
#: Messages in a batch at most.
MAX_MESSAGES: Final = 4000


def native_module() -> ModuleType | None:
    """The C extension; None where it is turned off or absent, and, with a warning, where it does not load or is of
    another source."""
    try:
        found = import_extension(READER)
        problem: object = None if getattr(found, "interface", 0) == INTERFACE else "it is of another source"
    except ModuleNotFoundError:
        return None
    except (ImportError, OSError) as error:
        problem = error
    if problem is None:
        return found
    log.warning("the native reader cannot be used, messages are read in Python: %s: install zkgroup again", problem)
    return None


def reader_in_use() -> str:
    """The reader that ``open_reader`` chooses: "native" or "Python"."""
    return "Python" if native_module() is None else "native"


class NativeMessages(Sequence[Message]):
    """Messages ``start`` to ``stop`` of a native batch. A slice is another one; a single message is made when it is
    asked for, which takes 5 µs."""

    __slots__ = ("batch", "start", "stop")

    def __init__(self, batch: Batch, start: int, stop: int) -> None:
        self.batch = batch
        self.start = start
        self.stop = stop

    def __len__(self) -> int:
        return self.stop - self.start

    @overload
    def __getitem__(self, place: int) -> Message: ...

    @overload
    def __getitem__(self, place: slice) -> NativeMessages: ...

    def __getitem__(self, place: int | slice) -> Message | NativeMessages:
        places = range(self.start, self.stop)[place]
        if isinstance(places, int):
            return self._message(places)
        if places.step != 1:
            raise ValueError("a slice of native messages has a step of 1")
        return NativeMessages(self.batch, places.start, max(places.start, places.stop))

    def __iter__(self) -> Iterator[Message]:
        return map(self._message, range(self.start, self.stop))

    def _message(self, place: int) -> Message:
        topic, partition, offset, key, value, timestamp, headers = self.batch.message(place)
        return Message(
            topic=topic,
            partition=partition,
            offset=offset,
            key=key,
            value=value,
            timestamp=timestamp,
            headers=cast("Any", UNREADABLE if headers is False else headers),
        )

    def reorder(self, places: list[int]) -> None:
        """Put the messages in another order, in the whole batch, whose runs do not follow."""
        self.batch.reorder(self.start, places)

    @property
    def size(self) -> int:
        """Bytes that the messages of the whole batch hold, on the mean, for so many messages."""
        batch = self.batch
        return (batch.value_bytes + batch.key_bytes + batch.header_bytes) * len(self) // max(1, len(batch))

    def offsets(self) -> memoryview[int]:
        return memoryview(self.batch.offsets(self.start, self.stop)).cast("q")

    def sizes(self, *, headers: bool = False) -> memoryview[int]:
        """The bytes of each message's key and value, and of librdkafka's ``headers``."""
        return memoryview(self.batch.sizes(self.start, self.stop, headers)).cast("q")

    def times(self, end: int) -> memoryview[int]:
        """Milliseconds since 1970 of each message; -1 where it has no time between 0 and ``end``."""
        return memoryview(self.batch.times(self.start, self.stop, end)).cast("q")

    def values(self) -> Block:
        """The values, one a line."""
        return self.batch.values(self.start, self.stop)

    def format(self, parts: tuple[bytes | str, ...]) -> Block:
        """Fixed bytes and kcat's tokens, by their letters, of each message."""
        return self.batch.format(parts, self.start, self.stop)

    def json(self) -> Block:
        """A JSON object a line."""
        return self.batch.json(self.start, self.stop)


class NativeFetcher:
    """As ``Fetcher``, on the C extension. Where it does not share its memory with others, it has two clients for two
    partitions or more: librdkafka unpacks messages in one thread for each."""

    def __init__(
        self,
        module: ModuleType,
        settings: KafkaSettings,
        *,
        sharers: int = 1,
        report_ends: bool = False,
        **overrides: Any,
    ) -> None:
        self._module: Any = module
        self._settings = settings
        self._most = 2 if sharers == 1 else 1
        self._sharers = sharers * self._most
        self._report_ends = report_ends
        self._overrides = overrides
        self._readers: list[Any] = []
        self._shares: list[dict[TopicPartition, int]] = []  # of each reader
        self._turn = 0
        self._log = ClientLog(log)
        self._bell: tuple[int, int] | None = None  # a pipe into which two readers write when messages come

    def assign(self, share: Mapping[TopicPartition, int]) -> None:
        while len(self._readers) < min(self._most, max(1, len(share))):
            self._open_reader(len(share))
        count = len(self._readers)
        for number, reader in enumerate(self._readers):
            self._shares[number] = dict(sorted(share.items())[number::count])
            self._call(reader.assign, self._shares[number])

    def add(self, share: Mapping[TopicPartition, int]) -> None:
        if not any(self._shares):
            self.assign(share)
            return
        if len(self._readers) < self._most:
            self._open_reader(len(share))
        before = [dict(part) for part in self._shares]
        for partition, offset in sorted(share.items()):
            if not any(partition in part for part in self._shares):
                min(self._shares, key=len)[partition] = offset
        for reader, part, old in zip(self._readers, self._shares, before, strict=True):
            if new := {partition: offset for partition, offset in part.items() if partition not in old}:
                self._call(reader.add, new)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        for reader, part in zip(self._readers, self._shares, strict=True):
            if partition in part:
                self._call(reader.drop, {partition: offset})
                self._call(reader.add, {partition: offset})

    def _open_reader(self, partitions: int) -> None:
        options = fetcher.queue_options(self._sharers, partitions, report_ends=self._report_ends)
        reader = native_consumer(self._module, self._settings, options | self._overrides)
        if self._most == 2:
            if self._bell is None:
                self._bell = os.pipe()
                for descriptor in self._bell:
                    os.set_blocking(descriptor, False)
                self._wait = select.poll()
                self._wait.register(self._bell[0], select.POLLIN)
            reader.wake(self._bell[1])
        self._readers.append(reader)
        self._shares.append({})

    def _call(self, call: Any, share: Mapping[TopicPartition, int]) -> None:
        positions: list[Position] = [(*partition, offset) for partition, offset in share.items()]
        try:
            call(positions)
        except self._module.NativeError as error:
            raise kafka_exception(error) from None

    def fetch(self, timeout: float) -> Fetched:
        """The messages that have come in, waiting at most ``timeout`` seconds for the first.

        Faults of a partition, or of all of them, are in ``errors``.
        """
        if self._bell is None:
            return self._consume(timeout)
        fetched = self._next_batch()
        if timeout > 0 and fetched == Fetched():
            if self._wait.poll(timeout * 1000):
                os.read(self._bell[0], 1 << 16)
            fetched = self._next_batch()
        return fetched

    def _next_batch(self) -> Fetched:
        """The messages that one of them has, in turn."""
        fetched = Fetched()
        for _ in self._readers:
            self._turn = (self._turn + 1) % len(self._readers)
            fetched = self._consume(0.0)
            if fetched != Fetched():
                break
        return fetched

    def _consume(self, timeout: float) -> Fetched:
        reader = self._readers[self._turn]
        batch: Batch = reader.consume(MAX_MESSAGES, fetcher.batch_bytes(self._sharers), timeout)
        fetched = Fetched(errors=[(None, error) for error in heed_notes(reader, self._log)])
        self._log.report_recovery()
        for topic, number, offset, code, text in batch.events:
            partition = TopicPartition(topic, number) if topic is not None else None
            if code == KafkaError._PARTITION_EOF and partition is not None:
                fetched.ends[partition] = offset
            else:
                fetched.errors.append((partition, error_of(code, text)))
        if len(batch):
            fetched.messages = NativeMessages(batch, 0, len(batch))
            fetched.runs = [Run(TopicPartition(topic, number), *rest) for topic, number, *rest in batch.runs]
        return fetched

    def close(self) -> None:
        """Free the clients and their threads. Batches stay as they are."""
        readers, self._readers, self._shares, self._turn = self._readers, [], [], 0
        for reader in readers:
            if self._bell is not None:
                reader.wake(-1)  # batches may keep it for longer than the descriptor is open
            reader.close()
        bell, self._bell = self._bell, None
        for descriptor in bell or ():
            os.close(descriptor)


MessageReader: TypeAlias = Fetcher | NativeFetcher


def open_reader(settings: KafkaSettings, *, native: bool, **options: Any) -> MessageReader:
    """A reader with the options of ``Fetcher``: the native one where ``native`` is wanted and to be had. One thread at
    a time uses it, or closes it."""
    module = native_module() if native else None
    return Fetcher(settings, **options) if module is None else NativeFetcher(module, settings, **options)


def native_consumer(module: ModuleType, settings: KafkaSettings, overrides: Mapping[str, Any]) -> Any:
    """A ``Reader`` of the extension with the properties of ``consumer``. Raises ``UsageError``."""
    properties = {name: _text(value) for name, value in consumer_properties(settings, overrides).items()}
    try:
        return module.Reader(properties)
    except module.NativeError as error:
        raise bad_properties(kafka_exception(error), settings) from None


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def kafka_exception(error: Exception) -> KafkaException:
    """The exception that confluent-kafka raises in place of a ``NativeError``."""
    return KafkaException(error_of(*error.args))


def error_of(code: int, text: str) -> KafkaError:
    return KafkaError(code, text, fatal=code == KafkaError._FATAL)


def heed_notes(reader: Any, client_log: ClientLog) -> list[KafkaError]:
    """Log librdkafka's lines; returns the errors of the client as a whole."""
    errors = []
    for is_error, code, facility, text in reader.notes():
        if is_error:
            errors.append(error_of(code, text))
        else:
            client_log.log(_LEVELS[min(code, 7)], "", facility, "", text)
    return errors


#: Seconds for the question for a topic's leaders.
LEADER_TIMEOUT: Final = 10.0


class NativeSource:
    """A consumer that only assigns, whose messages stay in librdkafka's memory. ``max_bytes``: of one
    ``fetch``, about. Close it."""

    def __init__(self, module: ModuleType, settings: KafkaSettings, options: Mapping[str, Any], max_bytes: int) -> None:
        self._module: Any = module
        self._settings = settings
        self._max_bytes = max_bytes
        self._reader = native_consumer(module, settings, options)
        self._log = ClientLog(log)
        self._known: set[str] = set()

    def assign(self, partitions: list[KafkaTopicPartition], /) -> None:
        """Read these partitions from their offsets, and no others. The leaders of a topic that is new are asked for at
        once: see ``range_reader``."""
        self._call(self._reader.assign, [(one.topic, one.partition, one.offset) for one in partitions])
        new = [one for one in partitions if one.topic not in self._known]
        asks, self._known = bool(self._known), self._known | {one.topic for one in new}
        for one in new if asks else ():
            try:
                self._reader.watermarks(one.topic, one.partition, LEADER_TIMEOUT)
            except self._module.NativeError as error:  # the next read raises the error
                log.debug("the leader of %s: %s", one.topic, error)

    def _call(self, call: Any, *arguments: Any) -> Any:
        try:
            return call(*arguments)
        except self._module.NativeError as error:
            raise kafka_exception(error) from None

    def fetch(self, num_messages: int, timeout: float) -> tuple[NativeMessages, list[Message]]:
        """Messages, and events, which have an error."""
        batch: Batch = self._reader.consume(num_messages, self._max_bytes, timeout)
        events = [
            Message(topic=topic, partition=number, offset=offset, error=error_of(code, text))
            for topic, number, offset, code, text in batch.events
        ]
        for error in heed_notes(self._reader, self._log):
            self._log.log(logging.ERROR, "", "ERROR", "", error.str())  # as librdkafka does without an error callback
        return NativeMessages(batch, 0, len(batch)), events

    def consume(self, num_messages: int, timeout: float) -> list[Message]:
        """Both, as messages that confluent-kafka has: for a few."""
        messages, events = self.fetch(num_messages, timeout)
        return [*messages, *events]

    def get_watermark_offsets(
        self, partition: KafkaTopicPartition, timeout: float, cached: bool
    ) -> tuple[int, int] | None:
        found: tuple[int, int] = self._call(self._reader.watermarks, partition.topic, partition.partition, timeout)
        return found

    def list_topics(self, topic: str, timeout: float) -> ClusterMetadata:
        with closing(consumer(self._settings)) as asked:
            found: ClusterMetadata = asked.list_topics(topic, timeout)
            return found

    def close(self) -> None:
        self._reader.close()
