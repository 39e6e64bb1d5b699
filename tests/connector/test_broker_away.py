"""The only broker goes and comes back under members that read, and that rebalance meanwhile."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from members import ReadMember, committed
from support import numbered, wait_until

from zkgroup.clients.kafka.client import KafkaSettings
from zkgroup.connector import stream_reader
from zkgroup.protocol.names import OFFSETS_TOPIC
from zkgroup.sandbox.local_cluster import Sandbox
from zkgroup.sandbox.topic_admin import create_topic, produce


def test_clients_whose_connections_failed_are_made_anew(
    make_cluster: Callable[..., Sandbox], monkeypatch: pytest.MonkeyPatch
) -> None:
    """librdkafka connects again by itself, and was seen never to fetch again where partitions were assigned while the
    broker was away. So a member asks by a new client: with its next share, and where nothing comes for long."""
    monkeypatch.setattr(stream_reader, "MIN_SILENCE", 2.0)
    sandbox = make_cluster()
    topic, group, partitions = "away", "g", 4
    settings = KafkaSettings(sandbox.bootstrap)
    with sandbox.registry(30.0) as registry:
        create_topic(registry, topic, partitions)
        create_topic(registry, OFFSETS_TOPIC, 4)  # see test_servers_that_restart_are_survived
        with ReadMember(sandbox.connect, group, {topic: 1}, session_timeout=10.0) as one:
            (stream,) = one.connector._streams
            inside = stream._reader
            produce(settings, topic, numbered(20, partitions))
            one.wait_for({record.value for record in numbered(20) if record.value is not None})
            first = inside._fetcher
            sandbox.broker().kill()
            wait_until(lambda: inside._failed, 20, "the failure is seen")
            with ReadMember(sandbox.connect, group, {topic: 1}, session_timeout=10.0) as other:
                wait_until(lambda: len(one.owned) == len(other.owned) == 2, 20, "a rebalance without a broker")
                wait_until(lambda: inside._fetcher is not first, 20, "another client for another share")
                sandbox.start_broker()
                produce(settings, topic, numbered(20, partitions, 20))
                sent = {record.value for record in numbered(40)}
                wait_until(lambda: one.values.keys() | other.values.keys() == sent, 40, "everything is read")
            wait_until(lambda: len(one.owned) == partitions, 20, "all its own again")
            sandbox.broker().kill()
            wait_until(lambda: inside._failed, 20, "seen again")
            silent = inside._fetcher
            sandbox.start_broker()
            wait_until(lambda: inside._fetcher not in (silent, None), 20, "nothing comes: a new client")
            produce(settings, topic, numbered(20, partitions, 40))
            wait_until(
                lambda: committed(registry, group, topic, partitions) == [15] * partitions, 40, "read and committed"
            )
            assert max((one.values + other.values).values()) == 1, "nothing twice"
