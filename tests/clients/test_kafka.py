"""Asking brokers about logs: what is asked about, what is not, and what is said of it."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    BrokerMetadata,
    ClusterMetadata,
    PartitionMetadata,
    TopicMetadata,
)

from zkgroup.clients.kafka.client import KafkaError, KafkaSettings, consumer
from zkgroup.clients.kafka.group_consumers import GroupOffsets
from zkgroup.clients.kafka.log_offsets import LogRange, leaderless, log_offsets, offsets_for_times, partition_error
from zkgroup.clients.kafka.registered_brokers import settings_from_brokers
from zkgroup.errors import NotFoundError, UnreachableError, UsageError, ZkgroupError
from zkgroup.protocol.broker_znodes import BrokerRegistration, Endpoint
from zkgroup.protocol.names import TopicPartition

#: Many clients, each asked at once for what none of them has looked up yet.
HAMMER = """
import sys
from concurrent.futures import ThreadPoolExecutor
from zkgroup.protocol.names import TopicPartition
from zkgroup.clients.kafka.client import KafkaError, KafkaSettings
from zkgroup.clients.kafka.log_offsets import LogRange, leaderless, log_offsets
settings = KafkaSettings(sys.argv[1])
wanted = [TopicPartition(sys.argv[2], p) for p in range(4)]
with ThreadPoolExecutor(4) as pool:
    for ranges in pool.map(lambda _: log_offsets(settings, wanted, 10), range(60)):
        assert all(isinstance(found, LogRange) for found in ranges.values()), ranges
print("all answered")
"""


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (KafkaError.NOT_LEADER_FOR_PARTITION, UnreachableError),  # right after a restart
        (KafkaError.REPLICA_NOT_AVAILABLE, UnreachableError),
        (KafkaError.LEADER_NOT_AVAILABLE, UnreachableError),
        (KafkaError._TRANSPORT, UnreachableError),
        (KafkaError.UNKNOWN_TOPIC_OR_PART, NotFoundError),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, ZkgroupError),
    ],
)
def test_errors_of_partitions(code: int, kind: type[ZkgroupError]) -> None:
    """What passes by itself, or with a broker, is out of reach: who asks again may be answered.
    Errors of two partitions have one reason."""
    error = partition_error(TopicPartition("t", 0), KafkaError(code), KafkaSettings("h:9092"))
    assert type(error) is kind
    assert "t-0" in error.message
    other = partition_error(TopicPartition("t", 1), KafkaError(code), KafkaSettings("h:9092"))
    assert (other.reason, "t-0" in error.reason) == (error.reason, False)


def test_every_partition_has_its_own_answer(
    kafka: KafkaSettings,
    make_topic: Callable[..., str],
    fill: Callable[..., object],
    unique: Callable[[str], str],
) -> None:
    """Unknown partitions get an error each, at once."""
    topic, missing = make_topic(2), unique("missing")
    fill(topic, 6, 2)
    started = time.monotonic()
    unknown = [TopicPartition(topic, 2), TopicPartition(missing, 0)]
    answers = log_offsets(kafka, [TopicPartition(topic, 0), *unknown, TopicPartition(topic, 1)], 10)
    assert time.monotonic() - started < 5
    assert answers[TopicPartition(topic, 0)] == answers[TopicPartition(topic, 1)] == LogRange(0, 3)
    assert all(isinstance(answers[partition], NotFoundError) for partition in unknown)


@pytest.mark.parametrize("piece", [2, 3, 5])
def test_more_partitions_than_one_request_takes(
    kafka: KafkaSettings,
    make_topic: Callable[..., str],
    fill: Callable[..., object],
    in_kafka: Callable[..., GroupOffsets],
    unique: Callable[[str], str],
    monkeypatch: pytest.MonkeyPatch,
    piece: int,
) -> None:
    """Logs and committed offsets are asked for in pieces, the last of which may be short: no answer is missing."""
    monkeypatch.setattr("zkgroup.clients.kafka.log_offsets.MAX_REQUEST_PARTITIONS", piece)
    monkeypatch.setattr("zkgroup.clients.kafka.group_consumers.MAX_REQUEST_PARTITIONS", piece)
    topic = make_topic(5)
    fill(topic, 12, 5)
    partitions = [TopicPartition(topic, number) for number in range(5)]
    counts = [3, 3, 2, 2, 2]
    assert log_offsets(kafka, partitions, 10) == {
        partition: LogRange(0, count) for partition, count in zip(partitions, counts, strict=True)
    }
    offsets = in_kafka(unique("group"), dict(zip(partitions, counts, strict=True)))
    assert offsets.fetch(partitions, 10) == dict(zip(partitions, counts, strict=True))


def test_who_can_be_asked(kafka: KafkaSettings) -> None:
    """A partition without a leader, or whose leader no broker knows, has an error of its own, and is not asked about;
    a partition's other troubles, such as a replica that is away, are no reason."""
    metadata = ClusterMetadata()
    metadata.brokers = {1: BrokerMetadata()}
    metadata.topics = {"t": TopicMetadata(), "secret": TopicMetadata()}
    for number, leader in enumerate([1, -1, 2]):
        metadata.topics["t"].partitions[number] = partition = PartitionMetadata()
        partition.leader = leader
        partition.error = KafkaError(KafkaError.REPLICA_NOT_AVAILABLE)
    metadata.topics["secret"].error = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)
    wanted = [TopicPartition("t", number) for number in range(4)] + [TopicPartition("secret", 0)]
    errors = leaderless(metadata, wanted, kafka)
    assert list(errors) == wanted[1:]
    assert "Leader not available" in str(errors[wanted[1]])
    assert "Leader not available" in str(errors[wanted[2]])
    assert isinstance(errors[wanted[3]], NotFoundError)
    assert "authorization failed" in str(errors[wanted[4]])


def test_the_first_offset_at_a_time(
    kafka: KafkaSettings, make_topic: Callable[..., str], fill: Callable[..., object]
) -> None:
    """Before the first message its offset, behind the last one none."""
    topic = make_topic(1)
    fill(topic, 5)
    partition = TopicPartition(topic, 0)
    assert offsets_for_times(kafka, [{partition: 0}], 10) == [{partition: 0}]
    assert offsets_for_times(kafka, [{partition: int(time.time() * 1000) + 3_600_000}], 10) == [{partition: None}]


def test_many_new_clients_at_once(kafka: KafkaSettings, make_topic: Callable[..., str]) -> None:
    """librdkafka 2.16 crashes where ``list_offsets`` has to look for leaders itself: it never has to."""
    topic = make_topic(4)
    ended = subprocess.run(
        [sys.executable, "-c", HAMMER, kafka.bootstrap, topic], capture_output=True, text=True, timeout=60, check=False
    )
    assert (ended.returncode, ended.stdout) == (0, "all answered\n"), ended.stderr


def test_values_are_not_shown_where_they_are_refused() -> None:
    """What was given for a wrong property may be a password."""
    broker = BrokerRegistration(1, 4, (Endpoint("PLAINTEXT", "PLAINTEXT", "h", 9092),))
    with pytest.raises(UsageError, match=r"security\.protocol\b.*PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL") as refused:
        settings_from_brokers([broker], {"security.protocol": "hunter4"})
    assert "hunter4" not in str(refused.value).lower()
    with pytest.raises(UsageError, match=r"security\.protocol") as refused:
        consumer(KafkaSettings("h:9092", {"security.protocol": "hunter4"}))
    assert "hunter4" not in str(refused.value)
