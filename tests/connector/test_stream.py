"""A stream by itself, on a real broker: what it does while brokers are away, and when a log's start moves."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from support import wait_until

from zkgroup.clients.kafka.client import KafkaSettings, KafkaTopicPartition
from zkgroup.clients.kafka.fetcher import Fetched
from zkgroup.config import ConsumerConfig
from zkgroup.config.settings_table import Reset
from zkgroup.connector import Stream
from zkgroup.connector.stream import Feed
from zkgroup.connector.stream_reader import StreamReader
from zkgroup.errors import OffsetOutOfRangeError, UnreachableError
from zkgroup.protocol.names import TopicPartition
from zkgroup.sandbox.topic_admin import ProducerRecord

Make = Callable[..., str]
Fill = Callable[..., list[ProducerRecord]]


class Owner:
    """What a connector is to its stream: it knows brokers, allows delivering, and hears of failures."""

    def __init__(self, settings: KafkaSettings) -> None:
        self.answers: list[KafkaSettings | Exception] = [settings]
        self.can_deliver = True
        self.failed: list[Exception] = []
        self.asked = 0

    def settings(self) -> KafkaSettings:
        self.asked += 1
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def stream(self, reset: Reset | None = None) -> Stream:
        return Stream(
            ConsumerConfig(group_id="g", auto_offset_reset=reset),
            self.settings,
            can_deliver=lambda: self.can_deliver,
            on_failure=self.failed.append,
        )


@pytest.fixture
def owner(kafka: KafkaSettings) -> Owner:
    return Owner(kafka)


@pytest.fixture
def make_stream(owner: Owner) -> Iterator[Callable[..., Stream]]:
    made: list[Stream] = []

    def make(reset: Reset | None = None) -> Stream:
        made.append(owner.stream(reset))
        return made[-1]

    yield make
    for stream in made:
        Feed(stream).end(None)
        Feed(stream).close()


def offsets(stream: Stream, count: int) -> list[int]:
    """So many messages' offsets."""
    found: list[int] = []
    deadline = time.monotonic() + 20
    for record in stream.messages(20):
        found.append(record.offset)
        if len(found) == count or time.monotonic() > deadline:
            break
    return found


def test_a_stream_waits_for_brokers(
    owner: Owner, make_stream: Callable[..., Stream], make_topic: Make, fill: Fill, kafka: KafkaSettings
) -> None:
    """No broker registered, or ZooKeeper away, when reading is to begin: it is tried again, and the member stays."""
    topic = make_topic(1)
    fill(topic, 5)
    owner.answers = [UnreachableError("no broker"), UnreachableError("no broker"), kafka]
    stream = make_stream()
    Feed(stream).assign(1, {TopicPartition(topic, 0): 0})
    assert offsets(stream, 5) == [0, 1, 2, 3, 4]
    assert owner.failed == []


def test_a_stream_follows_brokers_to_new_addresses(
    owner: Owner, make_stream: Callable[..., Stream], make_topic: Make, fill: Fill, kafka: KafkaSettings
) -> None:
    """Where all brokers that it knows are gone, what is registered counts."""
    topic = make_topic(1)
    fill(topic, 5)
    owner.answers = [KafkaSettings("127.0.0.1:1"), kafka]
    stream = make_stream()
    Feed(stream).assign(1, {TopicPartition(topic, 0): 0})
    assert offsets(stream, 5) == [0, 1, 2, 3, 4]


def test_a_stream_without_partitions_opens_no_client(owner: Owner, make_stream: Callable[..., Stream]) -> None:
    """A member may have more streams than partitions: those cost a sleeping thread."""
    stream = make_stream()
    Feed(stream).assign(1, {})
    assert stream.batch(0.3) is None
    assert owner.asked == 0


def test_nothing_is_delivered_while_it_may_not(
    owner: Owner, make_stream: Callable[..., Stream], make_topic: Make, fill: Fill
) -> None:
    """A batch that is there already waits for the lease, and is dropped when the share is given up meanwhile."""
    topic = make_topic(1)
    fill(topic, 5)
    stream = make_stream()
    partition = TopicPartition(topic, 0)
    Feed(stream).assign(1, {partition: 0})
    owner.can_deliver = False
    quiet: list[str] = []
    timer = wait_in_background(lambda: Feed(stream).pause(lambda: quiet.append("quiet"), abandon=False), 0.5)
    assert stream.batch(1.5) is None
    timer.join()
    assert quiet == ["quiet"]
    assert Feed(stream).consumed() == {partition: 0}
    owner.can_deliver = True
    Feed(stream).assign(2, {partition: 2})
    assert offsets(stream, 3) == [2, 3, 4]


def test_a_batch_of_a_former_share_is_not_delivered_under_the_next(
    make_stream: Callable[..., Stream], make_topic: Make, fill: Fill, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was fetched, and waited for the lease while the share was given up and granted anew with an earlier offset,
    would pass over what lies between."""
    partition = TopicPartition(make_topic(1), 0)
    fill(partition.topic, 8)
    stream, waiting, allowed = make_stream(), threading.Event(), threading.Event()

    def may() -> bool:
        waiting.set()
        return allowed.is_set()

    monkeypatch.setattr(stream, "_can_deliver", may)
    Feed(stream).assign(1, {partition: 5})
    got: list[Any] = []
    reader = threading.Thread(target=lambda: got.append(stream.batch(20)))
    reader.start()
    assert waiting.wait(20)
    with stream._cond:  # both, before whoever waits can look
        Feed(stream).pause(lambda: None, abandon=False)
        Feed(stream).assign(3, {partition: 2})
        allowed.set()
    reader.join(30)
    assert [run.first for run in got[0].runs] == [2]


def wait_in_background(what: Callable[[], object], seconds: float) -> Any:
    timer = threading.Timer(seconds, what)
    timer.start()
    return timer


def test_a_fence_cuts_off_an_iteration(make_stream: Callable[..., Stream], make_topic: Make, fill: Fill) -> None:
    """The message in hand is finished, the rest of the batch is not delivered, and only what was iterated counts."""
    topic = make_topic(1)
    fill(topic, 100)
    stream, quiet = make_stream(), []
    partition = TopicPartition(topic, 0)
    Feed(stream).assign(1, {partition: 0})
    seen = []
    for record in stream.messages(1.0):
        seen.append(record.offset)
        if record.offset == 41:
            Feed(stream).pause(lambda: quiet.append("quiet"), abandon=False)
            assert quiet == [], "a message is in hand"
    assert seen == list(range(42))
    assert quiet == ["quiet"]
    assert Feed(stream).consumed() == {partition: 42}


def test_a_lease_that_ends_within_a_batch_holds_back_the_rest_of_it(
    owner: Owner, make_stream: Callable[..., Stream], make_topic: Make, fill: Fill
) -> None:
    """However long the reader takes over the messages of a batch, each is delivered under a lease that has: the
    next waits, and comes, once and in its turn, when the lease has again."""
    topic = make_topic(1)
    fill(topic, 100)
    stream = make_stream()
    Feed(stream).assign(1, {TopicPartition(topic, 0): 0})
    got: list[int] = []
    ended_at: list[int] = []

    def read() -> None:
        for record in stream.messages(5.0):
            if not ended_at and record.offset + 1 < stream.statistics().messages:  # there is more of its batch
                owner.can_deliver = False
                ended_at.append(record.offset)
            got.append(record.offset)
            if record.offset == 99:
                return

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    wait_until(lambda: ended_at and len(got) > ended_at[0], 20, "the lease has ended")
    reader.join(0.3)
    assert got == list(range(ended_at[0] + 1))
    owner.can_deliver = True
    reader.join(20)
    assert got == list(range(100))


def test_an_abandoned_batch_does_not_count(make_stream: Callable[..., Stream], make_topic: Make, fill: Fill) -> None:
    """What the rebalance did not wait for stays unconsumed, whatever its reader says later, and is read again."""
    topic = make_topic(1)
    fill(topic, 10)
    stream, quiet = make_stream(), []
    partition = TopicPartition(topic, 0)
    Feed(stream).assign(1, {partition: 0})
    wait_until(lambda: stream.batch(1.0), 20, "a batch")
    Feed(stream).pause(lambda: quiet.append("quiet"), abandon=True)
    assert quiet == ["quiet"]
    before = Feed(stream).consumed()
    Feed(stream).assign(2, before)
    stream.mark()
    assert Feed(stream).consumed() == before
    start = before[partition]
    assert offsets(stream, 10 - start) == list(range(start, 10))


def cut_log(kafka: KafkaSettings, topic: str, start: int) -> None:
    """Let a log start later, as retention does."""
    admin = AdminClient(kafka.base())
    (future,) = admin.delete_records([KafkaTopicPartition(topic, 0, start)]).values()
    assert future.result(20).low_watermark == start


def test_a_log_that_starts_later_follows_the_reset(
    make_stream: Callable[..., Stream], make_topic: Make, fill: Fill, kafka: KafkaSettings
) -> None:
    """Retention has taken what was to be read: with a reset reading goes on, and the jump is counted and consumed."""
    topic = make_topic(1)
    fill(topic, 20)
    cut_log(kafka, topic, 12)
    stream = make_stream("smallest")
    partition = TopicPartition(topic, 0)
    Feed(stream).assign(1, {partition: 3})
    wait_until(lambda: (stream.batch(0.1), stream.statistics().resets)[1] == 1, 15, "reset")
    wait_until(lambda: (stream.batch(0.1), Feed(stream).consumed()[partition])[1] == 20, 15, "the rest is read")
    assert stream.statistics().messages == 8


def test_a_log_that_starts_later_is_an_error_without_a_reset(
    owner: Owner, make_stream: Callable[..., Stream], make_topic: Make, fill: Fill, kafka: KafkaSettings
) -> None:
    """The error says how much is gone, and the member hears of it."""
    topic = make_topic(1)
    fill(topic, 20)
    cut_log(kafka, topic, 12)
    stream = make_stream()
    Feed(stream).assign(1, {TopicPartition(topic, 0): 3})
    with pytest.raises(OffsetOutOfRangeError, match=rf"\b{topic}-0\b.*\b12\b.*\b9\b"):
        offsets(stream, 1)
    assert [type(error) for error in owner.failed] == [OffsetOutOfRangeError]


def test_a_partition_out_of_range_that_is_given_up_meanwhile_is_nobodys_error(
    owner: Owner, make_stream: Callable[..., Stream], make_topic: Make, fill: Fill
) -> None:
    """It is the next owner's business: the stream goes on with what it is granted then."""
    topic = make_topic(2)
    fill(topic, 20, 2)
    stream = make_stream()
    Feed(stream).assign(1, {TopicPartition(topic, 0): 99})
    assert stream.batch(0.05) is None
    Feed(stream).pause(lambda: None, abandon=False)
    Feed(stream).assign(2, {TopicPartition(topic, 1): 0})
    assert offsets(stream, 10) == list(range(10))
    assert owner.failed == []


def test_partitions_may_join_a_generation(make_stream: Callable[..., Stream], make_topic: Make, fill: Fill) -> None:
    """What is added to a share is read next to it, and nothing is read again; of an older generation it is ignored."""
    topic = make_topic(3)
    fill(topic, 30, 3)
    stream = make_stream()
    Feed(stream).assign(1, {TopicPartition(topic, 0): 0})
    assert offsets(stream, 10) == list(range(10))
    Feed(stream).assign_more(1, {TopicPartition(topic, 1): 4})
    assert offsets(stream, 6) == list(range(4, 10))
    Feed(stream).assign_more(0, {TopicPartition(topic, 2): 0})
    assert stream.batch(0.5) is None
    assert stream.statistics().messages == 16
    assert stream.positions == {TopicPartition(topic, 0): 10, TopicPartition(topic, 1): 10}


@pytest.mark.parametrize("native", [False, True], ids=["Python", "native"])
def test_a_reader_is_closed_while_it_fetches(kafka: KafkaSettings, make_topic: Make, fill: Fill, native: bool) -> None:
    """Another thread may close it: the fetch ends, none begins, and what was fetched can be read."""
    topic = make_topic(2)
    fill(topic, 20_000, 2)
    share = {TopicPartition(topic, number): 0 for number in range(2)}
    for _ in range(5):
        options = {"sharers": 1, "native": native}
        reader = StreamReader(lambda: kafka, lambda *_: 0, lambda *_: True, "smallest", options)
        fetched: list[Fetched] = []
        closed = threading.Event()

        def read(reader: StreamReader = reader, fetched: list[Fetched] = fetched, closed: Any = closed) -> None:
            while not closed.is_set():
                fetched.append(reader.fetch(1, 1, share, 0.1))

        with ThreadPoolExecutor(1) as pool:
            reading = pool.submit(read)
            try:
                wait_until(lambda fetched=fetched: any(one.messages for one in fetched), what="a batch")
                reader.close()
                assert reader.fetch(1, 1, share, 0.1) == Fetched()
            finally:
                closed.set()
            reading.result(10)
        batch = [one for one in fetched if one.messages][-1]
        assert [message.offset() for run in batch.runs for message in batch.messages[run.start : run.stop]] == [
            offset for run in batch.runs for offset in range(run.first, run.next)
        ]
