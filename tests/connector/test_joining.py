"""What a connector makes of its configuration before it asks any server."""

from __future__ import annotations

import re
from typing import Any

import pytest

from zkgroup.clients.zookeeper import ZooKeeperSettings
from zkgroup.config import ConsumerConfig
from zkgroup.connector import Connector
from zkgroup.connector.zookeeper_connector import member_settings, zookeeper_settings
from zkgroup.errors import UsageError
from zkgroup.protocol.member import MemberSettings
from zkgroup.protocol.znodes import Registration

HERE = "h1:2181,h2:2181/a"


@pytest.mark.parametrize(
    ("config", "given", "expected"),
    [
        ({"zookeeper_connect": HERE}, None, (HERE, 6.0, 6.0)),
        ({"zookeeper_connect": "h1/a", "zookeeper_session_timeout_ms": 900}, None, ("h1:2181/a", 0.9, 0.9)),
        ({}, (HERE,), (HERE, 6.0, 5.0)),
        ({}, (HERE, 3.0, 1.0), (HERE, 3.0, 1.0)),
        ({"zookeeper_session_timeout_ms": 9000}, (HERE,), (HERE, 9.0, 5.0)),
        ({"zookeeper_session_timeout_ms": 9000}, (HERE, 9.0), (HERE, 9.0, 5.0)),
        ({"zookeeper_connection_timeout_ms": 700}, (HERE,), (HERE, 6.0, 0.7)),
        ({"zookeeper_connect": "h2:2181,h1:2181/a/"}, (HERE,), (HERE, 6.0, 5.0)),
    ],
)
def test_zookeeper_is_where_either_says_it_is(
    config: dict[str, Any], given: tuple[Any, ...] | None, expected: tuple[Any, ...]
) -> None:
    """The configuration's words hold where ``ZooKeeperSettings`` are not given, or leave a default as it is."""
    settings = None if given is None else ZooKeeperSettings(*given)
    found = zookeeper_settings(ConsumerConfig(group_id="g", **config), settings)
    assert (found.hosts, found.session_timeout, found.connect_timeout) == expected


@pytest.mark.parametrize(
    ("config", "given", "message"),
    [
        ({}, None, r"zookeeper_connect\b.*ZooKeeperSettings\b"),
        ({"zookeeper_connect": "h:x"}, None, "^zookeeper_connect: 'h:x' "),
        ({"zookeeper_connect": "h3"}, (HERE,), rf"zookeeper_connect=h3:2181\b.*{re.escape(repr(HERE))}"),
        ({"group_id": "a/b"}, (HERE,), r"\bgroup\.id=a/b\b"),
        ({"kafka_version": "9.9"}, (HERE,), r"\b9\.9\b"),
    ],
)
def test_contradictions_are_refused_when_the_connector_is_made(
    config: dict[str, Any], given: tuple[Any, ...] | None, message: str
) -> None:
    """Two words for one thing, or none, or one that no member can follow: said before anything is begun."""
    settings = None if given is None else ZooKeeperSettings(*given)
    with pytest.raises(UsageError, match=message):
        Connector(ConsumerConfig(**({"group_id": "g"} | config)), settings)


@pytest.mark.parametrize("count", [0, -1])
def test_a_topic_wants_a_stream(count: int) -> None:
    """No topic is subscribed to with no streams, next to others with some."""
    member = Connector(ConsumerConfig(group_id="g"), ZooKeeperSettings(HERE))
    with pytest.raises(UsageError, match=rf"^{count}\b.*\borders\b"):
        member.streams({"orders": count, "other": 3})


def test_the_machines_defaults_are_those_of_the_settings() -> None:
    """The state machine has no default of its own."""
    config, registration = ConsumerConfig(group_id="g", zookeeper_connect=HERE), Registration("static", {"t": 1}, 1)
    found = member_settings(config, "g_c", registration, zookeeper_settings(config, None))
    assert found == MemberSettings("g", "g_c", registration)
