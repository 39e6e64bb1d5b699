"""One snapshot's requests to the brokers: one client for all, and one that got no answer does not silence the
others."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from lines import names
from support import wait_until

from zkgroup.clients.kafka import group_coordinator, log_offsets
from zkgroup.clients.kafka.client import AdminClient, KafkaSettings, admin_client
from zkgroup.clients.kafka.group_coordinator import Coordinators
from zkgroup.clients.kafka.log_offsets import LogRange
from zkgroup.errors import NoAnswerError, UnreachableError
from zkgroup.groups.snapshot.broker_queries import BrokerQueries
from zkgroup.protocol.names import TopicPartition
from zkgroup.sandbox.processes import free_port


def test_all_questions_go_through_one_client(
    kafka: KafkaSettings, make_topic: Callable[..., str], unique: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each client waits a second for a controller that is dead: with one of its own, the logs' question had no time."""
    made: list[float] = []

    def counted(settings: KafkaSettings, timeout: float) -> AdminClient:
        made.append(timeout)
        return admin_client(settings, timeout)

    monkeypatch.setattr(group_coordinator, "admin_client", counted)
    monkeypatch.setattr(log_offsets, "admin_and_metadata", None)
    partition, queries = TopicPartition(make_topic(1), 0), BrokerQueries(kafka, 10.0)
    queries.names()
    queries.read_groups([unique("nobody")])
    assert queries.logs([partition]) == {partition: LogRange(0, 0, 1)}
    assert len(made) == 1
    assert queries.warnings == []


@pytest.mark.parametrize(("error", "again"), [(NoAnswerError, True), (UnreachableError, False)])
def test_who_got_no_answer_asks_the_next_question(
    error: type[UnreachableError], again: bool, kafka: KafkaSettings, make_topic: Callable[..., str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """A dead broker may have been asked; a wrong password is not tried again. What was not reported is a warning."""

    def unanswered(_: Coordinators) -> tuple[tuple[str, ...], tuple[str, ...]]:
        raise error("brokers at kafka:9092 gave no answer", "check")

    monkeypatch.setattr(Coordinators, "names", unanswered)
    partition, queries = TopicPartition(make_topic(1), 0), BrokerQueries(kafka, 10.0)
    assert not queries.names()
    found = queries.logs([partition])[partition]
    assert found == LogRange(0, 0) if again else "brokers at kafka:9092 gave no answer" in str(found)
    (warning,) = queries.warnings
    assert names(str(warning), "kafka:9092")


def test_who_has_no_time_left_asks_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was waited for in vain until the time was up ends the snapshot."""
    queries, asked = BrokerQueries(KafkaSettings(f"127.0.0.1:{free_port()}"), 0.2), list[object]()
    monkeypatch.setattr(Coordinators, "read_groups", lambda *_, **__: asked.append(1))
    assert not queries.names()
    wait_until(lambda: not queries._has_time(), 5, "the time is up")
    assert not queries.read_groups(["g"])["g"].offsets
    assert not asked
    assert isinstance(queries.logs([TopicPartition("t", 0)])[TopicPartition("t", 0)], NoAnswerError)
