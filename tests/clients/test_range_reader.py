"""Reading ranges: exact at both ends, whatever lies between, and never silent for ever."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import Any

import pytest
from confluent_kafka import TopicPartition as AdminPartition
from confluent_kafka.admin import AdminClient
from support import wait_until

from zkgroup.clients.kafka.client import Consumer, KafkaError, KafkaSettings, KafkaTopicPartition, Message, producer
from zkgroup.clients.kafka.log_offsets import LogRange, log_offsets
from zkgroup.clients.kafka.native_reader import native_module
from zkgroup.clients.kafka.range_reader import RangeReader, range_consumer, range_source
from zkgroup.errors import NotFoundError, OffsetOutOfRangeError, OffsetsDeletedError, UnreachableError, ZkgroupError
from zkgroup.protocol.names import TopicPartition
from zkgroup.sandbox.topic_admin import ProducerRecord, produce

Reader = Callable[..., list[tuple[int, bytes | None]]]


@pytest.fixture(params=[range_consumer, range_source], ids=["Python", "native"])
def open_source(request: pytest.FixtureRequest) -> Callable[[KafkaSettings], Any]:
    """Both kinds of sources."""
    if request.param is range_source and native_module() is None:
        pytest.skip("there is no native reader")
    return request.param  # type: ignore[no-any-return]


@pytest.fixture
def read(kafka: KafkaSettings, open_source: Callable[[KafkaSettings], Any]) -> Iterator[Reader]:
    """``read(topic, start, end)`` is what the range has, as (offset, value)."""
    source = open_source(kafka)

    def collect(topic: str, start: int, end: int, silence_timeout: float = 10.0) -> list[tuple[int, bytes | None]]:
        batches = RangeReader(source, silence_timeout).batches(TopicPartition(topic, 0), start, end)
        return [(message.offset() or 0, message.value()) for batch in batches for message in batch]

    yield collect
    source.close()


@pytest.mark.parametrize(("start", "end"), [(0, 2000), (0, 1), (1999, 2000), (700, 701), (3, 1999), (5, 5)])
def test_a_range_has_its_first_offset_and_not_its_end(
    make_topic: Callable[..., str], fill: Callable[..., list[ProducerRecord]], read: Reader, start: int, end: int
) -> None:
    """Exactly the offsets of ``[start, end)`` come, in order, within a log that goes on behind."""
    topic = make_topic()
    records = fill(topic, 2000)
    assert read(topic, start, end) == [(i, records[i].value) for i in range(start, end)]


def test_one_consumer_reads_ranges_one_after_the_other(
    make_topic: Callable[..., str], fill: Callable[..., list[ProducerRecord]], read: Reader
) -> None:
    """Nothing of a range that was read before, or was fetched ahead of, shows up in the next."""
    topic = make_topic()
    fill(topic, 3000)
    for start, end in [(2000, 3000), (0, 1000), (1000, 2000), (0, 10)]:
        assert [offset for offset, _ in read(topic, start, end)] == list(range(start, end))


class Counted:
    """A consumer, and how often it had nothing."""

    def __init__(self, source: Consumer) -> None:
        self._source = source
        self.empty = 0

    def consume(self, num_messages: int, timeout: float) -> list[Message]:
        found = self._source.consume(num_messages, timeout)
        self.empty += not found
        return found

    def __getattr__(self, name: str) -> Any:
        return getattr(self._source, name)


def test_a_topic_that_is_new_to_the_consumer_is_not_waited_for(
    make_topic: Callable[..., str],
    fill: Callable[..., list[ProducerRecord]],
    kafka: KafkaSettings,
    open_source: Callable[[KafkaSettings], Any],
) -> None:
    """librdkafka looks for the leaders of topics that it has met since once a second: small topics came one a second.
    Counted in waits of 5 ms, not by the clock."""
    topics = [make_topic() for _ in range(6)]
    for topic in topics:
        fill(topic, 3)
    with closing(open_source(kafka)) as source:
        counted: Any = Counted(source)
        for topic in topics:
            batches = RangeReader(counted).batches(TopicPartition(topic, 0), 0, 3)
            assert sum(map(len, batches)) == 3
    assert counted.empty < 100 * len(topics)


def transactions(kafka: KafkaSettings, topic: str, ends: Sequence[bool]) -> list[bytes]:
    """A transaction of three messages for each of ``ends`` (True: committed); the values that count."""
    client = producer(kafka, transactional_id=topic)
    client.init_transactions(30)
    values: list[bytes] = []
    for number, committed in enumerate(ends):
        client.begin_transaction()
        sent = [b"%d-%d" % (number, i) for i in range(3)]
        for value in sent:
            client.produce(topic, value, partition=0)
        client.flush(30)
        if committed:
            client.commit_transaction(30)
            values += sent
        else:
            client.abort_transaction(30)
    return values


@pytest.mark.parametrize("ends", [[True], [False], [True, False, True], [False, False], [True, True, False]])
def test_transactions_end_a_range_without_a_wait(
    kafka: KafkaSettings, make_topic: Callable[..., str], read: Reader, ends: list[bool]
) -> None:
    """Control records and aborted messages, at the range's end too, are passed over: no time-out is spent on them."""
    topic = make_topic()
    values = transactions(kafka, topic, ends)
    partition = TopicPartition(topic, 0)
    end = 4 * len(ends)
    # The broker answers a commit before it has written the marker.
    wait_until(lambda: log_offsets(kafka, [partition], 10, read_committed=True)[partition] == LogRange(0, end))
    began = time.monotonic()
    assert [value for _, value in read(topic, 0, end, silence_timeout=30.0)] == values
    assert time.monotonic() - began < 10


def test_a_compacted_log_is_read_around_its_gaps(
    kafka: KafkaSettings, unique: Callable[[str], str], read: Reader
) -> None:
    """Messages that compaction removed are no messages, and do not keep a range from ending."""
    topic = unique("compacted")
    config = {"cleanup.policy": "compact", "segment.ms": "100", "min.cleanable.dirty.ratio": "0.01"}
    create_topic(kafka, topic, config)
    for number in range(3):
        produce(kafka, topic, [ProducerRecord(b"%d-%d" % (number, i), b"key%d" % (i % 5), 0) for i in range(50)])
        time.sleep(0.2)  # twice segment.ms: the next message begins a segment, and this one can be compacted

    def settled() -> tuple[list[tuple[int, bytes | None]], list[tuple[int, bytes | None]]] | None:
        """The whole and its pieces, read while the cleaner did not change them."""
        whole = read(topic, 0, 150)
        pieces = [entry for start in range(0, 150, 10) for entry in read(topic, start, start + 10)]
        return (whole, pieces) if len(whole) < 150 and whole == read(topic, 0, 150) else None

    whole, pieces = wait_until(settled, 60, "compaction")
    assert whole == pieces
    assert whole[-1] == (149, b"2-49")


def create_topic(kafka: KafkaSettings, topic: str, config: dict[str, str]) -> None:
    """A topic of one partition with a configuration."""
    from confluent_kafka.admin import NewTopic

    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1, config=config)])[topic].result(30)
    partition = TopicPartition(topic, 0)
    wait_until(lambda: not isinstance(log_offsets(kafka, [partition], 5)[partition], ZkgroupError))


def test_a_range_that_was_deleted_is_an_error_that_says_what_is_lost(
    kafka: KafkaSettings, make_topic: Callable[..., str], fill: Callable[..., list[ProducerRecord]], read: Reader
) -> None:
    """A start below the log's is no reason to begin somewhere else."""
    topic = make_topic()
    fill(topic, 100)
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    for future in admin.delete_records([AdminPartition(topic, 0, 40)]).values():
        future.result(30)
    with pytest.raises(OffsetsDeletedError, match=rf"{topic}-0\b.*\b10\b.*\b39\b.*\b30\b.*\b40\b"):
        read(topic, 10, 100)
    assert [offset for offset, _ in read(topic, 40, 100)] == list(range(40, 100))


def test_a_log_that_is_shorter_than_the_range_is_an_error(
    make_topic: Callable[..., str], fill: Callable[..., list[ProducerRecord]], read: Reader
) -> None:
    """A range beyond the log's end fails: from behind the end at once, else when nothing more comes."""
    topic = make_topic()
    fill(topic, 10)
    with pytest.raises(OffsetOutOfRangeError, match=rf"{topic}-0\b.*\b10\b.*\b30\b"):
        read(topic, 20, 30)
    with pytest.raises(OffsetOutOfRangeError, match=rf"{topic}-0\b.*\b10\b.*\b30\b"):
        read(topic, 5, 30, silence_timeout=0.5)


def test_a_missing_topic_is_reported_after_the_patience(unique: Callable[[str], str], read: Reader) -> None:
    """librdkafka says nothing of a topic that is not there: the deadline does."""
    missing = unique("missing")
    with pytest.raises(NotFoundError, match=rf"{missing}-0\b"):
        read(missing, 0, 10, silence_timeout=0.5)


def test_unreachable_brokers_are_reported_after_the_patience(open_source: Callable[[KafkaSettings], Any]) -> None:
    """No broker at the address: an error of its own, not an endless wait."""
    source = open_source(KafkaSettings("127.0.0.1:1"))
    try:
        with pytest.raises(UnreachableError):
            list(RangeReader(source, 0.5).batches(TopicPartition("topic", 0), 0, 10))
    finally:
        source.close()


def test_a_reader_that_is_kept_waiting_does_not_take_that_for_silence(
    make_topic: Callable[..., str],
    fill: Callable[..., list[ProducerRecord]],
    kafka: KafkaSettings,
    open_source: Callable[[KafkaSettings], Any],
) -> None:
    """Whoever takes longer over a batch than the patience still gets the rest."""
    topic = make_topic()
    fill(topic, 1500)
    source = open_source(kafka)
    try:
        offsets: list[int] = []
        for batch in RangeReader(source, 0.05).batches(TopicPartition(topic, 0), 0, 1500):
            offsets += [message.offset() or 0 for message in batch]
            if len(offsets) < 500:
                time.sleep(0.2)  # four times the patience
        assert offsets == list(range(1500))
    finally:
        source.close()


def test_batches_follow_the_size_of_messages(
    kafka: KafkaSettings, make_topic: Callable[..., str], open_source: Callable[[KafkaSettings], Any]
) -> None:
    """Batches of large messages stay small: what a task has is bounded in bytes."""
    topic = make_topic()
    produce(kafka, topic, [ProducerRecord(bytes(900_000), None, 0) for _ in range(60)])
    source = open_source(kafka)
    try:
        sizes = [
            sum(len(message) for message in batch)
            for batch in RangeReader(source).batches(TopicPartition(topic, 0), 0, 60)
        ]
    finally:
        source.close()
    assert sum(sizes) == 60 * 900_000
    assert max(sizes[2:]) <= 10 << 20


class Script:
    """A log that answers as a script says: for what a real broker cannot be brought to do within a test.

    It has messages at ``offsets``, has the watermarks ``low`` and ``high``, and is silent at offsets in ``silent``,
    as librdkafka is where the broker answers empty below the high watermark. ``events`` come once, before the rest.
    """

    def __init__(
        self,
        offsets: Sequence[int],
        high: int,
        *,
        silent: range = range(0),
        quiet_fetches: int = 0,
        events: Sequence[int] = (),
    ) -> None:
        self.offsets, self.high, self.silent = offsets, high, silent
        self.quiet_fetches = quiet_fetches
        self.events = list(events)
        self.position = 0

    def assign(self, partitions: list[KafkaTopicPartition], /) -> None:
        self.position = partitions[0].offset

    def consume(self, num_messages: int, timeout: float) -> list[Message]:
        if self.events:
            return [self._message(0, KafkaError(self.events.pop()))]
        if self.quiet_fetches:
            self.quiet_fetches -= 1
            return []
        ready = [self._message(o) for o in self.offsets if o >= self.position][:num_messages]
        if ready and not (self.position in self.silent and (ready[0].offset() or 0) not in self.silent):
            self.position = (ready[-1].offset() or 0) + 1
            return ready
        if self.position in self.silent:
            return []
        return [self._message(self.position, KafkaError(KafkaError._PARTITION_EOF))]

    def get_watermark_offsets(self, partition: KafkaTopicPartition, timeout: float, cached: bool) -> tuple[int, int]:
        return 0, self.high

    def _message(self, offset: int, error: KafkaError | None = None) -> Message:
        return Message(topic="t", partition=0, offset=offset, value=b"v", error=error)


def scripted(script: Script, end: int) -> list[int]:
    """The offsets read from a script."""
    batches = list(RangeReader(script, 0.2).batches(TopicPartition("t", 0), 0, end))
    return [message.offset() or 0 for batch in batches for message in batch]


def test_a_tail_that_vanished_ends_the_range() -> None:
    """Silence below the high watermark, with a log that answers behind it, is an empty stretch."""
    assert scripted(Script(range(10), 20, silent=range(10, 20)), 20) == list(range(10))


def test_silence_that_ends_is_no_hole() -> None:
    """The stretch is read a second time before it is called empty: slow messages are not lost."""
    assert scripted(Script(range(20), 20, quiet_fetches=5), 20) == list(range(20))


def test_silence_after_a_broker_failed_is_no_hole() -> None:
    """Where errors were heard, nobody can tell that the stretch is empty."""
    script = Script(range(10), 20, silent=range(20), events=[KafkaError._TRANSPORT])
    script.offsets = []
    with pytest.raises(UnreachableError, match=r"\bt-0\b.*\b0\b.*\b0\.2 s"):
        scripted(script, 20)


def test_an_end_below_the_range_is_an_error() -> None:
    """A partition that ends below its own watermark (an open transaction) fails, and is not taken for complete."""
    with pytest.raises(ZkgroupError, match=r"\bt-0\b.*\b10\b.*\b20\b"):
        scripted(Script(range(10), 20), 20)


def test_what_librdkafka_cannot_read_is_an_error() -> None:
    """A message that cannot be read fails the range: the next ones may come, but this one would be lost."""
    with pytest.raises(ZkgroupError, match=r"\bt-0\b.*\b0\b.*BAD_MSG"):
        scripted(Script(range(10), 10, events=[KafkaError._BAD_MSG]), 10)
