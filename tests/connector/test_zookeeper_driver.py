"""The driver by itself: which clock it goes by, and what it reads right before what cannot be taken back."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast
from unittest.mock import Mock

import pytest
from support import wait_until

from zkgroup.clients.kafka.group_consumers import GroupOffsets
from zkgroup.clients.kafka.registered_brokers import Brokers
from zkgroup.clients.zookeeper import ConnectionFailure, FailureCause, Session, ZooKeeperSettings
from zkgroup.config import ConsumerConfig
from zkgroup.connector import Connector, zookeeper_driver
from zkgroup.connector.stream import Feed
from zkgroup.connector.zookeeper_connector import member_settings
from zkgroup.connector.zookeeper_driver import ZooKeeperDriver
from zkgroup.protocol import events as ev
from zkgroup.protocol.names import TopicPartition
from zkgroup.protocol.offset_versions import CommitError
from zkgroup.protocol.operations import Code, Connected, Delete, Get, Op, Result, Sync
from zkgroup.protocol.znodes import Registration

NOWHERE = ZooKeeperSettings("127.0.0.1:1", 6.0)
OFFSETS = {TopicPartition("t", 0): 7}


class HeldSession:
    """Takes what is sent, and answers when the test says so."""

    def __init__(self) -> None:
        self.sent: list[tuple[Sequence[Op], Callable[[list[Result]], None]]] = []

    def submit(self, ops: Sequence[Op], done: Callable[[list[Result]], None]) -> None:
        self.sent.append((ops, done))


class KafkaOffsets:
    """Takes note of commits to Kafka."""

    def __init__(self) -> None:
        self.committed: list[Mapping[TopicPartition, int]] = []

    def commit(self, offsets: Mapping[TopicPartition, int], timeout: float) -> None:
        self.committed.append(offsets)


class BusyFeed:
    """A stream whose reader has something in hand until the test says otherwise."""

    def __init__(self, partition: int) -> None:
        self.partition = TopicPartition("t", partition)
        self.offset = 0
        self.stopped: Callable[[], None] = lambda: pytest.fail("nobody has asked the stream to stop")

    def pause(self, done: Callable[[], None], *, abandon: bool) -> None:
        self.stopped = done

    def consumed(self) -> Mapping[TopicPartition, int]:
        return {self.partition: self.offset}


class DrivenByHand:
    """A driver whose thread is not running, on a clock that the test sets, with a session that has just begun."""

    def __init__(self, *feeds: BusyFeed) -> None:
        self.now = 100.0
        self.session = HeldSession()
        config, registration = ConsumerConfig(group_id="g"), Registration("static", {"t": 1}, 1)
        self.driver = ZooKeeperDriver(
            member_settings(config, "g_host", registration, NOWHERE),
            NOWHERE,
            feeds=cast("Sequence[Feed]", feeds),
            streams_of=lambda topic: range(1),
            brokers=Brokers(self._unasked, {}),
            start_at=None,
            listener=None,
            clock=lambda: self.now,
            offsets_properties={},
        )
        member = self.driver.member
        (opened,) = (one for one in member.handle(ev.Start(), self.now) if isinstance(one, ev.OpenSession))
        self.driver._session = cast("Session", self.session)
        for action in member.handle(ev.FromSession(opened.epoch, Connected(7, 6.0)), self.now):
            if isinstance(action, ev.Send):
                self.driver._perform(action)

    def _unasked(self, ops: Sequence[Op]) -> list[Result]:
        raise AssertionError(ops)

    def heard(self) -> list[Any]:
        """What waits to be heard by the member."""
        return [self.driver._events.get_nowait() for _ in range(self.driver._events.qsize())]

    def answer(self) -> None:
        """What a member asks for first, which proves that its session lives, is answered, and heard."""
        ops, done = self.session.sent[0]
        assert isinstance(ops[0], Sync)
        done([None])
        event = self.driver._events.get(timeout=5)
        self.driver.member.handle(cast("ev.MemberEvent", event), self.now)


def test_the_lease_counts_from_when_a_sign_of_life_was_asked_for() -> None:
    """Not from when the answer came, which may have lain about while the server ended the session: half of the
    session's 6 s are left from 100.0 on, however late the answer is."""
    driven = DrivenByHand()
    assert not driven.driver.can_deliver()
    driven.now = 102.5
    driven.answer()
    assert driven.driver.can_deliver()
    driven.now = 103.1
    assert not driven.driver.can_deliver()


def test_a_write_that_was_decided_on_under_a_lease_is_not_started_past_it() -> None:
    """Between the decision and the sending the process may have been stopped, or have waited for who reads its log: the
    write is not sent, and begins again as after a lost connection. What only reads, or asks for a sign of life, is."""
    driven = DrivenByHand()
    driven.answer()
    driven.session.sent.clear()
    write, snapshot = (Get("/a"), Delete("/a")), (Sync("/"), Get("/a"))
    driven.driver._perform(ev.Send(7, 1, write))
    driven.now = 103.0
    driven.driver._perform(ev.Send(8, 1, write))
    driven.driver._perform(ev.Send(9, 1, snapshot))
    assert [ops for ops, _ in driven.session.sent] == [write, snapshot]
    (message,) = driven.heard()
    assert message.request == 8
    assert [one.code for one in message.results] == [Code.CONNECTION_LOSS] * 2


def test_a_share_is_given_up_when_the_last_of_its_streams_has_stopped() -> None:
    """Each stream stops when its reader comes back: the member hears of it once, after the last of them, with what all
    have consumed by then. One that was stopped for an earlier share counts for nothing."""
    feeds = [BusyFeed(number) for number in range(3)]
    driven = DrivenByHand(*feeds)
    driven.driver._perform(ev.Pause(4, abandon=False))
    earlier = feeds[0].stopped
    driven.driver._perform(ev.Pause(5, abandon=False))
    quieted = ev.Paused(5, {feed.partition: 10 + feed.partition.partition for feed in feeds})
    for feed, stopped in ((feeds[2], earlier), (feeds[0], None), (feeds[2], None), (feeds[1], None)):
        assert driven.heard() == []
        if stopped is None:
            feed.offset = 10 + feed.partition.partition
        (stopped or feed.stopped)()
        driven.driver._turn()
    assert driven.heard() == [quieted]


def test_offsets_are_committed_to_kafka_under_a_lease_and_not_past_it() -> None:
    """The machine asked for the commit while its lease held; it may have waited for its turn since. Kafka takes
    whatever comes, so the last snapshot is here: a commit of an older session, or past the lease, is not sent."""
    driven, offsets = DrivenByHand(), KafkaOffsets()
    driven.driver._offsets = cast("GroupOffsets", offsets)
    driven.answer()
    epoch = driven.driver.member.epoch
    driven.driver._commit_kafka(OFFSETS, epoch)
    assert offsets.committed == [OFFSETS]
    with pytest.raises(CommitError):
        driven.driver._commit_kafka(OFFSETS, epoch - 1)
    driven.now = 103.1
    with pytest.raises(CommitError):
        driven.driver._commit_kafka(OFFSETS, epoch)
    assert offsets.committed == [OFFSETS]


def test_a_failed_connection_is_reported_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It comes with each attempt, whatever its words; another cause is news, and so is another server."""
    opened: list[Any] = []
    monkeypatch.setattr(zookeeper_driver, "Session", lambda *given: opened.append(given) or Mock())
    DrivenByHand().driver._open(2)
    ((_, _, on_failure),) = opened
    for cause, words, server in (
        (FailureCause.NO_KDC, "no KDC answers", "a:2181"),
        (FailureCause.NO_KDC, "no KDC answers yet", "a:2181"),
        (FailureCause.LOGIN_REFUSED, "no", "a:2181"),
        (FailureCause.NO_KDC, "no KDC answers", "b:2181"),
        (FailureCause.LOGIN_REFUSED, "no", "a:2181"),
    ):
        on_failure(ConnectionFailure(cause, words, "try again", server=server))
    reported = [record.getMessage().partition(":")[0] for record in caplog.records]
    assert reported == ["no KDC answers", "no", "no KDC answers"]


def test_a_member_goes_by_the_time_since_the_machine_was_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own clock is none that can be set, and it runs on while the machine sleeps: a lease must not outlive a
    session on a laptop that was closed."""
    connector = Connector(ConsumerConfig(group_id="g"), NOWHERE)
    clock = connector._make_driver({"t": 1}, 1, lambda topic: range(1), [])._clock
    before = time.clock_gettime(time.CLOCK_MONOTONIC)
    first = clock()
    assert first >= before
    wait_until(lambda: clock() > first, 5, "it goes on")
    uptime = Path("/proc/uptime")
    if uptime.exists():
        assert clock() == pytest.approx(float(uptime.read_text().split()[0]), abs=1.0)
    asked: list[Any] = []
    monkeypatch.setattr(time, "clock_gettime", lambda which: asked.append(which) or 0.0)
    clock()
    assert asked == [getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)]
