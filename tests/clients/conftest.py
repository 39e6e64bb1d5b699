"""What tests of Kafka's clients share."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from both_readers import Sent, send

from zkgroup.clients.kafka.client import KafkaSettings


@pytest.fixture
def filled(kafka: KafkaSettings, make_topic: Callable[..., str]) -> str:
    """A topic of one partition with 5,000 messages, with keys and headers."""
    topic = make_topic()
    send(kafka, topic, [Sent(b"k%d" % n, b"v%d" % n, 0, 1, [("h", b"x")]) for n in range(5000)])
    return topic
