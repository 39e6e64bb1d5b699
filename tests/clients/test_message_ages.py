"""How old the next message at an offset is, on a real broker."""

from __future__ import annotations

import time
from collections.abc import Callable

from zkgroup.clients.kafka.client import KafkaSettings, producer
from zkgroup.clients.kafka.message_times import message_ages, message_times
from zkgroup.clients.kafka.responses import MessageAge
from zkgroup.protocol.names import TopicPartition
from zkgroup.sandbox.topic_admin import ProducerRecord, produce

NOW = 1_700_000_000_000


def test_ages_of_many_positions(kafka: KafkaSettings, make_topic: Callable[..., str]) -> None:
    """Each position has the age of its own message, also several in a partition, which one reading cannot pass at once;
    a time that is yet to come is no age, one that is far off hides it. A batch larger than what is fetched comes whole.
    """
    topic, count = make_topic(40), 50
    keys = [TopicPartition(topic, number) for number in range(40)]
    records = [ProducerRecord(b"v", None, key.partition, NOW - n * 60_000) for key in keys[:39] for n in range(count)]
    produce(
        kafka,
        topic,
        [
            *records,
            ProducerRecord(b"x" * 900_000, None, 39, NOW - 5000),
            ProducerRecord(b"y", None, 39, NOW + 5000),
            ProducerRecord(b"z", None, 39, NOW + 90_000),
        ],
    )
    positions = {key: [0, 7, 7, count - 1] if key.partition % 2 else [3] for key in keys[:39]} | {keys[39]: [0, 1, 2]}
    found = message_ages(kafka, positions, NOW, 20)
    assert found.failures == {}
    assert found.ages == {
        key: {position: MessageAge(position * 60.0) for position in its} for key, its in positions.items()
    } | {keys[39]: {0: MessageAge(5.0), 1: MessageAge(0.0), 2: MessageAge(0.0, is_at_least=True)}}
    assert message_times(kafka, {keys[0]: [0], keys[39]: [1, 0]}, 20) == {
        keys[0]: {0: NOW}, keys[39]: {0: NOW - 5000, 1: NOW + 5000},
    }  # fmt: skip


def test_only_marks_of_transactions_follow(kafka: KafkaSettings, make_topic: Callable[..., str]) -> None:
    """No message waits behind the last one, though the log goes on: that is no lag in time. What was aborted waits, as
    the Scala consumer reads it."""
    key = TopicPartition(make_topic(), 0)
    client = producer(kafka, transactional_id=key.topic)
    client.init_transactions(20)
    for end in (client.commit_transaction, client.abort_transaction):
        client.begin_transaction()
        client.produce(key.topic, b"v", partition=0, timestamp=NOW - 1000)
        client.flush(20)
        end(20)
    found = message_ages(kafka, {key: [0, 1, 3]}, NOW, 20)
    assert found.ages[key] == {0: MessageAge(1.0), 1: MessageAge(1.0), 3: MessageAge(0.0)}
    assert message_times(kafka, {key: [3, 1]}, 20) == {key: {1: NOW - 1000}}


def test_a_partition_that_cannot_be_read_is_named_and_keeps_no_other_waiting(
    kafka: KafkaSettings, make_topic: Callable[..., str]
) -> None:
    """An offset outside the log has a reason and no age; the others are not waited for longer than they take."""
    topic = make_topic(2)
    produce(kafka, topic, [ProducerRecord(b"v", None, p, NOW - 3000) for p in (0, 1)])
    good, bad = (TopicPartition(topic, number) for number in (0, 1))
    began = time.monotonic()
    found = message_ages(kafka, {good: [0], bad: [50]}, NOW, 30)
    assert time.monotonic() - began < 15
    assert found.ages[good] == {0: MessageAge(3.0)}
    assert found.ages[bad] == {}
    assert list(found.failures) == [bad]
