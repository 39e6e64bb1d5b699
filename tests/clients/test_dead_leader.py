"""A broker that has died and is still registered: what it leads is not known, everything else is."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import pytest
from servers import Sandbox
from support import numbered

from zkgroup.clients.kafka.client import KafkaSettings
from zkgroup.clients.kafka.log_offsets import LogRange, log_offsets, offsets_for_times
from zkgroup.errors import UnreachableError
from zkgroup.protocol.names import TopicPartition
from zkgroup.protocol.operations import Get, Node
from zkgroup.sandbox.topic_admin import create_topic, produce

TIMEOUT = 5.0


@pytest.fixture(scope="module", params=["the controller", pytest.param("another broker", marks=pytest.mark.long)])
def crippled(request: pytest.FixtureRequest) -> Iterator[tuple[KafkaSettings, set[int], set[int]]]:
    """A cluster of two brokers, one of them killed; the partitions of topic ``t`` that it leads, and the others."""
    properties = {"zookeeper.session.timeout.ms": "60000"}
    with Sandbox(f"crippled-{request.param_index}", brokers=2, tick_ms=3000, properties=properties) as sandbox:
        with sandbox.registry() as registry:
            create_topic(registry, "t", 6)
            (controller,) = registry.read([Get("/controller")])
        produce(KafkaSettings(sandbox.bootstrap), "t", numbered(12, 6))
        settings = KafkaSettings(sandbox.bootstrap)
        ranges = log_offsets(settings, [TopicPartition("t", number) for number in range(6)], 20)
        leaders = {key.partition: found.leader for key, found in ranges.items() if isinstance(found, LogRange)}
        assert isinstance(controller, Node)
        first = json.loads(controller.data)["brokerid"]
        victim = first if request.param == "the controller" else 3 - first
        sandbox.broker(victim).kill()
        dead = {number for number, leader in leaders.items() if leader == victim}
        yield settings, dead, leaders.keys() - dead


def test_the_living_leader_answers_in_time(crippled: tuple[KafkaSettings, set[int], set[int]]) -> None:
    """What the dead broker leads has an error each, and no invented offset; the rest is known, all within the time-out
    (and what a client takes to begin)."""
    settings, dead, living = crippled
    assert dead, living
    partitions = [TopicPartition("t", number) for number in range(6)]
    for ask in (
        lambda: log_offsets(settings, partitions, TIMEOUT),
        lambda: log_offsets(settings, partitions, TIMEOUT, read_committed=True),
    ):
        started = time.monotonic()
        answers = ask()
        assert time.monotonic() - started < 2 * TIMEOUT
        assert {key.partition for key, found in answers.items() if found == LogRange(0, 2)} == living
        assert {key.partition for key, found in answers.items() if isinstance(found, UnreachableError)} == dead


def test_a_time_cannot_be_found_in_a_dead_log(crippled: tuple[KafkaSettings, set[int], set[int]]) -> None:
    """A partition whose leader is dead is an error that names it, and no offset; the others have their answer."""
    settings, dead, living = crippled
    unknown = [TopicPartition("t", number) for number in dead]
    with pytest.raises(UnreachableError, match="t-"):
        offsets_for_times(settings, [dict.fromkeys(unknown, 0)], TIMEOUT)
    known = [TopicPartition("t", number) for number in living]
    assert offsets_for_times(settings, [dict.fromkeys(known, 0)], TIMEOUT) == [dict.fromkeys(known, 0)]
