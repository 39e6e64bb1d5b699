"""Registrations of brokers that make members of the Scala consumer fail: what zkgroup says, and what members do."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from broken_groups import Maker
from diagnosed_groups import findings_of
from lines import names
from servers import Sandbox
from support import numbered, wait_until

from zkgroup.clients.kafka.client import KafkaSettings
from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.errors import Notice
from zkgroup.groups.assignment.trigger_rebalance import find_objection
from zkgroup.groups.group_model import FaultyBroker
from zkgroup.groups.snapshot.group_reader import read_group
from zkgroup.protocol import znodes
from zkgroup.protocol.broker_znodes import broker_fault
from zkgroup.protocol.names import TopicPartition
from zkgroup.protocol.operations import Children, Create, Delete, Failure, Get, Node
from zkgroup.sandbox.topic_admin import create_topic, produce

RELEASES = ("0.8.2.2", "0.9.0.1", "1.1.1")
IMPATIENT = {
    "rebalance.max.retries": "2",
    "rebalance.backoff.ms": "200",
    "auto.commit.interval.ms": "200",
    "auto.offset.reset": "smallest",
}


def registered(**changes: Any) -> bytes:
    """As a broker of 0.9 registers; ``...`` leaves a key out."""
    whole = {
        "jmx_port": -1,
        "timestamp": "1411294187842",
        "endpoints": ["PLAINTEXT://127.0.0.1:9"],
        "host": "127.0.0.1",
        "version": 2,
        "port": 9,
    }
    return json.dumps({key: value for key, value in (whole | changes).items() if value is not ...}).encode()


NAMED = {
    "endpoints": ["CLIENTS://127.0.0.1:9"],
    "version": 4,
    "listener_security_protocol_map": {"CLIENTS": "PLAINTEXT"},
}
#: What each release does with it: reads, owns and reads nothing (owns), or does not get through a rebalance (fails).
SEEN = {
    "sound": (registered(), "reads reads reads"),
    "of 2.x": (
        registered(version=5, features={}, listener_security_protocol_map={"PLAINTEXT": "PLAINTEXT"}),
        "reads reads reads",
    ),
    "SSL alone": (registered(endpoints=["SSL://h:9093"], host=None, port=-1), "owns owns owns"),
    "SASL alone": (registered(endpoints=["SASL_PLAINTEXT://h:9"], host=None, port=-1, version=3), "owns owns owns"),
    "no endpoint": (registered(endpoints=[], host=None, port=-1), "owns owns owns"),
    "empty": (b"", "fails fails fails"),
    "no JSON": (b"abc", "fails fails fails"),
    "another name": (registered(**NAMED), "reads fails reads"),
    "no endpoints": (registered(endpoints=...), "reads fails fails"),
    "no version": (registered(version=...), "reads fails fails"),
    "no host": (registered(host=..., port=...), "fails reads reads"),
    "a large number": (registered(timestamp=1411294187842), "fails fails reads"),
    "an endpoint without a port": (registered(endpoints=["PLAINTEXT://127.0.0.1"]), "reads fails fails"),
    "no protocol": (registered(version=4, listener_security_protocol_map={}), "reads reads fails"),
    "a host with an underscore": (registered(endpoints=["PLAINTEXT://kafka_2:9"]), "reads fails reads"),
    "a zone": (registered(endpoints=["PLAINTEXT://[fe80::1%eth0]:9"]), "reads fails reads"),
    "an empty host": (registered(endpoints=["PLAINTEXT://:9"]), "reads owns owns"),
    "IPv6": (registered(endpoints=["PLAINTEXT://[::1]:9"]), "reads reads reads"),
}
#: Two of the three outcomes; the third, of a release that differs, is a test of its own below. The others are long.
TELLING = [("SSL alone", "1.1.1"), ("another name", "1.1.1")]


@pytest.fixture(scope="module")
def private(zookeeper: Sandbox) -> Iterator[tuple[Sandbox, Registry]]:
    """A cluster to which brokers may come that are none."""
    with (
        Sandbox("tests-brokers", zookeeper=zookeeper.address, chroot="/brokers") as sandbox,
        sandbox.registry(30.0) as registry,
    ):
        create_topic(registry, "t", 2)
        produce(KafkaSettings(sandbox.bootstrap), "t", numbered(20, 2))
        yield sandbox, registry


@pytest.fixture
def second_broker(private: tuple[Sandbox, Registry]) -> Iterator[Callable[[bytes], None]]:
    """Registers a second broker, which leads nothing."""
    registry = private[1]

    def register(data: bytes) -> None:
        assert not isinstance(registry.write(Create(znodes.broker(2), data)), Failure)

    yield register
    registry.write(Delete(znodes.broker(2)))


def doing(registry: Registry, group: str) -> str:
    """What a group's only member does."""
    owned, *offsets = registry.read(
        [
            Children(znodes.owner_topic(group, "t")),
            *(Get(znodes.offset(group, TopicPartition("t", number))) for number in range(2)),
        ]
    )
    if all(isinstance(node, Node) and node.data == b"10" for node in offsets):
        return "reads"
    return "owns" if isinstance(owned, tuple) and owned else "nothing yet"


@pytest.mark.parametrize(
    ("case", "release"),
    [
        pytest.param(*told, marks=() if told in TELLING else pytest.mark.long)
        for told in itertools.product(SEEN, RELEASES)
    ],
)
def test_what_members_do_is_what_is_reported(
    case: str,
    release: str,
    private: tuple[Sandbox, Registry],
    second_broker: Callable[[bytes], None],
    unique: Callable[[str], str],
) -> None:
    sandbox, registry = private
    data, seen = SEEN[case]
    expected = seen.split()[RELEASES.index(release)]
    second_broker(data)
    group = unique("beside")
    with sandbox.member(group, "t", kind="topics", release=release, name=f"{group}-a", properties=IMPATIENT) as member:
        match expected:
            case "reads":
                wait_until(lambda: doing(registry, group) == "reads", 60, "it reads")
            case "owns":
                wait_until(lambda: member.logged().count("Failed to find leader") > 2, 60, "it looks for leaders")
                assert doing(registry, group) == "owns"
            case _:
                wait_until(lambda: "can't rebalance after 2 retries" in member.logged(), 60, "it gives up")

        def found() -> list[tuple[str, str, bool]]:
            findings = [f for f in findings_of(read_group(registry, group)) if f.code == "incompatible-broker"]
            return [(f.severity, f.subject, "nothing while" in f.message) for f in findings]

        if expected == "reads":
            assert found() == []
        else:  # what stops some releases alone is critical once partitions are found unowned at rest
            wait_until(lambda: found() == [("critical", znodes.broker(2), expected == "owns")], 30, "it is found")


@pytest.mark.parametrize("case", ["another name", pytest.param("no endpoints", marks=pytest.mark.long)])
def test_a_rebalance_that_is_stuck_on_owner_nodes(
    case: str,
    private: tuple[Sandbox, Registry],
    second_broker: Callable[[bytes], None],
    unique: Callable[[str], str],
) -> None:
    """A member that fails keeps its owner nodes: no partition lacks an owner, and yet nobody reads. A member whose
    group has not changed since the broker came is not known to fail."""
    sandbox, registry = private
    group = unique("stuck")
    options = {"kind": "topics", "release": "0.9.0.1", "properties": IMPATIENT | {"rebalance.max.retries": "100"}}

    def found() -> list[str]:
        return [f.severity for f in findings_of(read_group(registry, group)) if f.code == "incompatible-broker"]

    with sandbox.member(group, "t", name=f"{group}-a", **options) as first:
        wait_until(lambda: doing(registry, group) == "reads", 60, "it reads")
        second_broker(SEEN[case][0])
        assert found() == ["info"]
        with sandbox.member(group, "t", name=f"{group}-b", **options):
            wait_until(lambda: "exception during rebalance" in first.logged(), 60, "it fails")
            wait_until(lambda: found() == ["critical"], 30, "it is found")
            owned = read_group(registry, group).partitions
            assert {p.owner for p in owned} == {f"{group}_{group}-a-0"}


@pytest.mark.parametrize("case", SEEN)
def test_which_releases_fail(case: str) -> None:
    """What is said of a registration fits what was seen; the last word is on all that fail."""
    data, seen = SEEN[case]
    does = dict(zip(RELEASES, seen.split(), strict=True))
    fault = broker_fault(data)
    if set(does.values()) == {"reads"}:
        assert fault is None
        return
    assert fault is not None
    concerned = {
        None: RELEASES,
        (None, "0.8.2"): RELEASES[:1],
        (None, "0.11"): RELEASES[:2],
        ("0.9", "0.10.1"): RELEASES[1:2],
        ("0.9", "0.10.0"): RELEASES[1:2],
        ("0.9", "0.9"): RELEASES[1:2],
        ("0.9", None): RELEASES[1:],
        ("0.10.2", None): RELEASES[2:],
    }[fault.releases]
    failing = {release for release, what in does.items() if what != "reads"}
    assert set(concerned) == failing
    assert {does[release] for release in concerned} == {"owns" if fault.rebalances else "fails"}


def test_no_rebalance_is_triggered_while_it_is_registered(
    maker: Maker, registry: Registry, kafka: KafkaSettings
) -> None:
    """Members would release what they own, and fail; one that has claimed since copes, whatever it is."""
    snapshot = read_group(registry, maker.group(maker.one(), maker.both, maker.sane), kafka=kafka)
    claimed = min(p.claimed for p in snapshot.partitions)
    fault = broker_fault(b"")
    assert fault is not None
    for czxid, fails in ((claimed + 1000, True), (claimed - 1, False)):
        others = replace(snapshot, faulty_brokers=(FaultyBroker("/brokers/ids/2", fault, czxid),))
        found = [f for f in findings_of(others) if f.code == "incompatible-broker"]
        assert [f.severity for f in found] == ["critical"] * fails
        refused = find_objection(others, None, Notice("no plan"))
        assert refused is not None
        assert names(refused.message, "/brokers/ids/2") == fails
