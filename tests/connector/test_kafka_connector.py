"""``KafkaConnector`` on a real coordinator: it joins, delivers and commits as ``Connector`` does."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import pytest

from zkgroup.clients.connection_security import ConnectionFailure, FailureCause
from zkgroup.clients.kafka.client import KafkaSettings
from zkgroup.clients.kafka.group_consumers import GroupOffsets
from zkgroup.config import ConsumerConfig
from zkgroup.connector import KafkaConnector, Rebalance, StartAt
from zkgroup.connector.kafka_connector import KafkaDriver
from zkgroup.errors import NoAnswerError, SessionLostError, UsageError
from zkgroup.protocol.names import TopicPartition
from zkgroup.protocol.topic_filter import TopicFilter

Make = Callable[..., str]


def member(kafka: KafkaSettings, group: str, **options: object) -> KafkaConnector:
    """A member without auto-commit that has not joined."""
    config = ConsumerConfig(group_id=group, auto_commit_enable=False)
    return KafkaConnector(config, lambda: kafka, start=StartAt("earliest"), **options)  # type: ignore[arg-type]


def committed(kafka: KafkaSettings, group: str, topic: str, partitions: int) -> list[int | None]:
    client = GroupOffsets(kafka, group)
    try:
        return list(client.fetch([TopicPartition(topic, number) for number in range(partitions)], 30).values())
    finally:
        client.close()


def test_each_topic_has_streams_of_its_own(
    kafka: KafkaSettings, make_topic: Make, fill: Callable[..., object], unique: Make
) -> None:
    """``streams({topic: count})``: a topic's messages come from its own streams alone, and the topic's
    partitions are divided among them. What was iterated is committed by ``commit()``, and only that."""
    orders, payments, group = make_topic(4), make_topic(1), unique("group")
    fill(orders, 8, 4)
    fill(payments, 3)
    with member(kafka, group) as connector:
        streams = connector.streams({orders: 2, payments: 1})
        assert connector.statistics().phase == "owning"
        assert len(connector.statistics().owned) == 5
        for stream in streams[orders]:
            assert len(stream.positions) == 2
        assert [record.value for record in streams[payments][0].messages(3)] == [b"m000000", b"m000001", b"m000002"]
        connector.commit()
        assert committed(kafka, group, payments, 1) == [3]
        read = [record for stream in streams[orders] for record in stream.messages(3)]
        assert {record.topic for record in read} == {orders}
        assert len(read) == 8
    assert committed(kafka, group, orders, 4) == [0, 0, 0, 0]
    with pytest.raises(SessionLostError):
        connector.commit()


def test_a_commit_in_the_callback_is_made_on_the_members_own_thread(
    kafka: KafkaSettings, make_topic: Make, fill: Callable[..., object], unique: Make
) -> None:
    """Where it would wait for itself it is made at once, or refused."""
    topic, group = make_topic(1), unique("group")
    fill(topic, 2)
    heard: list[str] = []

    def on_rebalance(rebalance: Rebalance) -> None:
        heard.append(rebalance.kind)
        connector.commit()
        with pytest.raises(UsageError, match=r"leave\(\)"):
            connector.close()

    connector = member(kafka, group, on_rebalance=on_rebalance)
    with connector:
        (stream,) = connector.streams_by_filter(TopicFilter("white_list", topic))
        assert [record.offset for record in stream.messages(3)] == [0, 1]
    assert heard == ["assigned"]


def test_a_connector_joins_once(kafka: KafkaSettings, make_topic: Make, unique: Make) -> None:
    """It is refused to join with one that is closed; one that was asked to leave before it joined leaves at once."""
    topic = make_topic(1)
    closed = member(kafka, unique("group"))
    closed.close()
    with pytest.raises(UsageError):
        closed.merged_streams([topic])
    with member(kafka, unique("group")) as connector:
        connector.leave()
        (stream,) = connector.merged_streams([topic])
        assert stream.batch(5) is None
        assert stream.has_ended


def test_unknown_starts_are_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    """A question that fails again in the same way is not news, whatever its words; another cause is, and so is the same
    after an answer."""

    class Membership:
        """Raises what the test says, and returns no offset for an empty share."""

        errors: ClassVar = [
            NoAnswerError("no answer within 5 s"),
            NoAnswerError("no answer within 4.9 s"),
            ConnectionFailure(FailureCause.CERTIFICATE_EXPIRED, "expired", "renew it", server="a:9092"),
            ConnectionFailure(FailureCause.CERTIFICATE_EXPIRED, "has expired", "renew it", server="a:9092"),
            ConnectionFailure(FailureCause.CERTIFICATE_EXPIRED, "expired", "renew it", server="b:9092"),
            None,
            NoAnswerError("no answer"),
        ]

        def offsets(self, partitions: object, timeout: float) -> dict[TopicPartition, int | None]:
            if (error := self.errors.pop(0)) is not None:
                raise error
            return {}

    driver = KafkaDriver(
        ConsumerConfig(group_id="g"),
        lambda: KafkaSettings("h:9092"),
        {"t": 1},
        feeds=[],
        streams_of=lambda topic: range(1),
        start=StartAt.after_reset("smallest"),
        strategies=("range",),
        properties={},
        on_rebalance=lambda rebalance: None,
    )
    counts = []
    while Membership.errors:
        driver._load_offsets(Membership())  # type: ignore[arg-type]
        counts.append(len(caplog.records))
    assert counts == [1, 1, 2, 2, 3, 3, 4]
