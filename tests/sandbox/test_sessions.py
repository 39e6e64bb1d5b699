"""Ending sessions from outside."""

from __future__ import annotations

import queue
from collections.abc import Callable

import pytest
from session_expiry import expire_session
from support import wait_until

from zkgroup.clients.zookeeper import Session, ZooKeeperSettings
from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.errors import UsageError
from zkgroup.protocol import znodes
from zkgroup.protocol.operations import Connected, Exists, Expired, SessionEvent, Stat
from zkgroup.sandbox.local_cluster import Sandbox


def test_a_session_is_ended_at_once(zookeeper: Sandbox) -> None:
    """The owner of a session that was ended hears of its expiry long before its time-out."""
    events: queue.Queue[SessionEvent] = queue.Queue()
    session = Session(ZooKeeperSettings(zookeeper.connect, session_timeout=10.0), events.put)
    session.start()
    try:
        assert isinstance(events.get(timeout=10), Connected)
        expire_session(zookeeper.address, session.session_id)
        heard = [events.get(timeout=4), events.get(timeout=4)]
        assert heard[-1] == Expired("expired")
    finally:
        session.close()


def test_a_scala_member_registers_again(
    cluster: Sandbox, registry: Registry, make_topic: Callable[..., str], unique: Callable[[str], str]
) -> None:
    """A Scala member whose session was ended comes back under a new one: the trick works on foreign sessions."""
    group, topic = unique("group"), make_topic()
    with cluster.member(group, topic) as member:
        registration = Exists(znodes.member_id(group, member.id))

        def owner() -> int | None:
            stat = registry.read([registration])[0]
            return stat.owner if isinstance(stat, Stat) else None

        # Before that the Scala consumer has not subscribed to expiries yet: it would never come back.
        wait_until(lambda: member.has_streams, 30, "the member's first rebalance")
        before = wait_until(owner, 30, "the member is registered")
        expire_session(cluster.address, before)
        wait_until(lambda: owner() not in (None, before), 30, "the member registers again")


def test_no_session(zookeeper: Sandbox) -> None:
    """0 is refused: the server would open a new session for it, again and again."""
    with pytest.raises(UsageError, match="session 0"):
        expire_session(zookeeper.address, 0)


def test_an_unknown_session_is_over_already(zookeeper: Sandbox) -> None:
    """Ending what is over is no error."""
    expire_session(zookeeper.address, 0x1234, timeout=5)
