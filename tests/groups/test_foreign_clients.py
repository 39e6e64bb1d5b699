"""Groups of clients other than the Scala consumer, registered as their sources write it, on real servers."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import NamedTuple

import pytest
from cli import run
from group_nodes import Groups, static

from zkgroup.clients.kafka.client import KafkaSettings
from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.groups.findings.finding_kinds import Finding
from zkgroup.groups.findings.inspection import inspect
from zkgroup.groups.group_model import GroupSnapshot
from zkgroup.groups.snapshot.group_reader import read_group
from zkgroup.groups.snapshot.snapshot_defects import ownership_defects
from zkgroup.sandbox.local_cluster import Sandbox

A, B = "4f9a8081-0000-4729-b8e8-464cb1a22f6d", "5f9a8081-0000-4729-b8e8-464cb1a22f6d"


class Client(NamedTuple):
    """How a client names its members (``@``: the group), what it registers, and how it owns partitions. ``TOPIC`` and
    ``SECOND`` stand for topics."""

    members: tuple[str, str]
    data: str
    owner: str = "{}"
    partition: str = "{}"
    topics: int = 1


CLIENTS = {
    "C#": Client(("@_WEBA", "@_WEBB"), '{ "TOPIC": 1 }', "{}-0"),
    "Kafka 0.7": Client(
        ("@_a-1411294187842-0a", "@_b-1411294187842-0b"), '{ "TOPIC": 1,"SECOND": 1 }', "{}-0", "0-{}", 2
    ),
    "Kafka 0.7, white list": Client(("@_a-1411294187842-0a", "@_b-1411294187842-0b"), "*1*TOPIC", "{}-0"),
    "Kafka 0.7, black list": Client(("@_a-1411294187842-0a", "@_b-1411294187842-0b"), "!1!(?!TOPIC).*", "{}-0"),
    "pykafka": Client((f"web-1:{A}", f"web-2:{B}"), "TOPIC", "{}", "0-{}"),
    "poseidon_cluster": Client(("@-web-7-1411294187-1", "@-web-8-1411294187-1"), "{}"),
    "kafka-node": Client(
        (f"@_{A}", f"@_{B}"),
        '{"version":1,"subscription":{"TOPIC": 1, "SECOND": 1},"pattern":"white_list","timestamp":"1411294187842"}',
        topics=2,
    ),
    "kazoo-go": Client(
        (f"web-1:{A}", f"web-2:{B}"),
        '{"pattern":"white_list","subscription":{"TOPIC":1,"SECOND":1},"timestamp":"1411294187","version":1}',
        topics=2,
    ),
    "a time as a number": Client(
        (f"{A}-web", f"{B}-web"),
        '{"version":1,"subscription":{"TOPIC":1},"pattern":"static","timestamp":1411294187842}',
    ),
    "nothing": Client(("@_a", "@_b"), ""),
    "a word that is no topic": Client(("w-1", "w-2"), "no-such-topic"),
    "null": Client(("w-1", "w-2"), "null"),
    "a number": Client(("w-1", "w-2"), "4711"),
    "numbers that are no streams": Client(("@_a", "@_b"), '{"no-such-topic": 4711}'),
}


@pytest.fixture(params=CLIENTS)
def client(request: pytest.FixtureRequest) -> Client:
    return CLIENTS[request.param]


@pytest.fixture
def topics(make_topic: Callable[..., str]) -> tuple[str, str]:
    return make_topic(3), make_topic(3)


def make(
    groups: Groups,
    client: Client,
    topics: tuple[str, str],
    others: dict[str, bytes] | None = None,
    offsets: dict[tuple[str, int], int] | None = None,
) -> str:
    """A group of two members that own all partitions of their topics, and have committed for them."""
    data = client.data.replace("TOPIC", topics[0]).replace("SECOND", topics[1]).encode()
    owned = [(topic, number) for topic in topics[: client.topics] for number in range(3)]
    return groups.make(
        dict.fromkeys(client.members, data) | (others or {}),
        {
            (topic, client.partition.format(number)): client.owner.format(client.members[number == 2])
            for topic, number in owned
        },
        dict.fromkeys(owned, 0) | (offsets or {}),
    )


def inspect_group(registry: Registry, kafka: KafkaSettings, group: str) -> tuple[GroupSnapshot, tuple[Finding, ...]]:
    found = inspect(read_group(registry, group, kafka=kafka))
    return found.snapshot, found.findings


def test_a_healthy_group_of_one_foreign_client_is_healthy(
    registry: Registry, kafka: KafkaSettings, groups: Groups, client: Client, topics: tuple[str, str]
) -> None:
    """Its subscription is what its client means, or else what it owns."""
    snapshot, findings = inspect_group(registry, kafka, make(groups, client, topics))
    assert {finding.severity for finding in findings} <= {"info"}, findings
    assert "foreign-client" in {finding.code for finding in findings}
    assert (snapshot.state, ownership_defects(snapshot)) == ("active", [])
    wanted = dict.fromkeys(topics[: client.topics], 1)
    assert [dict(member.streams) for member in snapshot.members] == [wanted, wanted]


def test_with_a_member_of_the_scala_consumer_it_is_diagnosed_as_that_reads_it(
    registry: Registry, kafka: KafkaSettings, groups: Groups, client: Client, topics: tuple[str, str]
) -> None:
    group = make(groups, client, topics, {"@_scala-1411294187842-0c": static({topics[0]: 1})})
    _, findings = inspect_group(registry, kafka, group)
    codes = {finding.code for finding in findings if finding.severity != "info"}
    stops = "subscription" not in client.data
    assert ("stopping-registration" in codes) == stops, findings
    assert stops or codes & {"unportable-registration", "registration-defect"}, findings


def test_such_a_group_gives_topics_up_that_it_does_not_read(
    cluster: Sandbox, groups: Groups, client: Client, topics: tuple[str, str], make_topic: Callable[..., str]
) -> None:
    other = make_topic(1)
    group = make(groups, client, topics, offsets={(other, 0): 0})
    refused = run("unsubscribe", group, "--topic", topics[0], "--execute", "-z", cluster.connect)
    assert refused.returncode == 5, refused.stderr
    done = run("unsubscribe", group, "--topic", other, "--execute", "-z", cluster.connect)
    assert done.returncode == 0, done.stderr


def test_commands_take_it_for_healthy(
    cluster: Sandbox, groups: Groups, client: Client, topics: tuple[str, str]
) -> None:
    group = make(groups, client, topics)
    verified = run("owners", group, "--verify", "-z", cluster.connect)
    assert verified.returncode == 0, verified.stderr
    checked = run("inspect-group", group, "--check", "-z", cluster.connect)
    assert (checked.returncode, "ZKGROUP OK" in checked.stdout) == (0, True), checked.stdout
    planned = run("assign", group, "--output", "json", "-z", cluster.connect)
    assert (planned.returncode, json.loads(planned.stdout)["conflicts"]) == (0, []), planned
