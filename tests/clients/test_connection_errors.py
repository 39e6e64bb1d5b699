"""What of librdkafka's log a person sees."""

from __future__ import annotations

import contextlib
import gc
import logging
import weakref

import pytest
from lines import names

from zkgroup.clients.connection_security import ConnectionFailure, FailureCause
from zkgroup.clients.kafka import client, connection_errors
from zkgroup.clients.kafka.client import AdminClient, KafkaSettings, admin_client
from zkgroup.clients.kafka.connection_errors import ClientLog

REFUSED = "[thrd:{0}]: {0}: Connect to ipv4#127.0.0.1:9 failed: Connection refused (after {1}ms in state CONNECT)"


@pytest.fixture
def client_log(caplog: pytest.LogCaptureFixture) -> ClientLog:
    """A client's log, as confluent-kafka calls it."""
    caplog.set_level(logging.DEBUG)
    return ClientLog(logging.getLogger("client"))


def test_a_lost_broker_is_reported_once_and_its_return_is(
    client_log: ClientLog, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tries for minutes, from several of librdkafka's threads, are one line, and no error; when they end that is
    reported, once, and a later failure is news again."""
    now = 1000.0
    monkeypatch.setattr(connection_errors.time, "monotonic", lambda: now)
    for number in range(300):
        now += 1.0
        client_log.report_recovery()
        client_log.log(logging.ERROR, "%s [%s] %s", "FAIL", "g#consumer-1", REFUSED.format("a:9/bootstrap", number))
        client_log.log(
            logging.ERROR, "%s [%s] %s", "FAIL", "g#consumer-1", REFUSED.format("GroupCoordinator: a:9", number)
        )

    def reported() -> list[bool]:
        """Of each line, whether it is of a failure."""
        return [names(one, "a:9/bootstrap", "127.0.0.1:9", "Connection refused") for one in caplog.messages]

    assert reported() == [True]
    assert "after" not in caplog.text
    for _ in range(20):
        now += 1.0
        client_log.report_recovery()
    assert reported() == [True, False]
    client_log.log(logging.ERROR, "%s [%s] %s", "FAIL", "g#consumer-1", REFUSED.format("a:9/bootstrap", 0))
    assert reported() == [True, False, True]
    assert {record.levelno for record in caplog.records} == {logging.WARNING}


def test_what_is_meant_is_not_reported(client_log: ClientLog, caplog: pytest.LogCaptureFixture) -> None:
    """Old brokers need deprecated settings, and a user's settings are not for every client: no word about that, but
    about other settings."""
    client_log.log(logging.WARNING, "%s [%s] %s", "CONFWARN", "c", "[thrd:app]: … `broker.version.fallback` …")
    client_log.log(
        logging.WARNING, "%s [%s] %s", "CONFWARN", "c", "[thrd:app]: linger.ms will be ignored by this consumer"
    )
    client_log.log(
        logging.WARNING, "%s [%s] %s", "AUTOCREATE", "c", "[thrd:a:9/1]: a:9/1: allow.auto.create.topics=false"
    )
    assert caplog.messages == []
    client_log.log(logging.WARNING, "%s [%s] %s", "CONFWARN", "c", "[thrd:app]: socket.blocking.max.ms is deprecated")
    assert [names(one, "socket.blocking.max.ms", "deprecated") for one in caplog.messages] == [True]


def test_a_client_that_is_given_up_is_no_garbage(monkeypatch: pytest.MonkeyPatch) -> None:
    """It goes at once: one that the collector frees on librdkafka's own thread ends the process (2.16)."""
    made: list[weakref.ref[AdminClient]] = []

    def make(*args: object, **options: object) -> AdminClient:
        found = AdminClient(*args, **options)
        made.append(weakref.ref(found))
        return found

    def explain(*_: object) -> ConnectionFailure:
        return ConnectionFailure(FailureCause.LOGIN_REFUSED, "refused", "", server="b:1")

    monkeypatch.setattr(client, "AdminClient", make)
    monkeypatch.setattr(connection_errors, "explain", explain)
    gc.disable()
    try:
        with contextlib.suppress(ConnectionFailure):
            admin_client(KafkaSettings("127.0.0.1:1"), 5.0)
        assert [one() for one in made] == [None]
    finally:
        gc.enable()
