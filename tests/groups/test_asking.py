"""One look's questions to the brokers: one client for all, and one that got no answer does not silence the others."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from support import wait_until

from zkgroup.clients.kafka import group_coordinator, log_offsets
from zkgroup.clients.kafka.client import AdminClient, KafkaSettings, admin_client
from zkgroup.clients.kafka.group_coordinator import Coordinators
from zkgroup.errors import NoAnswerError, UnreachableError
from zkgroup.groups.snapshot.broker_queries import Asker
from zkgroup.protocol.names import TopicPartition
from zkgroup.sandbox.server_probe import free_port


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
    partition, asker = TopicPartition(make_topic(1), 0), Asker(kafka, 10.0)
    asker.names()
    asker.sides([unique("nobody")])
    assert asker.logs([partition]) == {partition: (0, 0, 1)}
    assert len(made) == 1
    assert asker.warnings == []


@pytest.mark.parametrize(("error", "again"), [(NoAnswerError, True), (UnreachableError, False)])
def test_who_got_no_answer_asks_the_next_question(
    error: type[UnreachableError], again: bool, kafka: KafkaSettings, make_topic: Callable[..., str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """A dead broker may have been asked; a wrong password is not tried again. What was not told is a warning."""

    def unanswered(_: Coordinators) -> tuple[tuple[str, ...], tuple[str, ...]]:
        raise error("brokers at kafka:9092 gave no answer", "check")

    monkeypatch.setattr(Coordinators, "names", unanswered)
    partition, asker = TopicPartition(make_topic(1), 0), Asker(kafka, 10.0)
    assert not asker.names()
    answer = (0, 0, 1) if again else "brokers at kafka:9092 gave no answer"
    assert asker.logs([partition]) == {partition: answer}
    (warning,) = asker.warnings
    assert warning.startswith("groups in Kafka are not known: brokers at kafka:9092")


def test_who_has_no_time_left_asks_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was waited for in vain until the time was up ends the look."""
    asker, asked = Asker(KafkaSettings(f"127.0.0.1:{free_port()}"), 0.2), list[object]()
    monkeypatch.setattr(Coordinators, "sides", lambda *_, **__: asked.append(1))
    assert not asker.names()
    wait_until(lambda: not asker._has_time(), 5, "the time is up")
    assert not asker.sides(["g"])["g"].offsets
    assert not asked
    assert "gave no answer" in str(asker.logs([TopicPartition("t", 0)])[TopicPartition("t", 0)])
