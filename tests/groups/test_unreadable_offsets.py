"""Offsets that members cannot read, and those that seem readable and are not: compared with the Scala consumer."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from advised_commands import type_in
from cli import run
from diagnosed_groups import findings_of, lines
from hypothesis import given
from hypothesis import strategies as st
from members import owners
from support import wait_until

from zkgroup.clients.kafka.client import KafkaSettings
from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.groups.snapshot.group_reader import read_group
from zkgroup.groups.snapshot.group_znodes import java_long
from zkgroup.protocol import znodes
from zkgroup.protocol.names import TopicPartition
from zkgroup.protocol.operations import Create, Ensure, Failure, Get, Node
from zkgroup.sandbox.local_cluster import Sandbox

IMPATIENT = {"rebalance.max.retries": "2", "rebalance.backoff.ms": "200"}


@pytest.fixture
def stored(
    registry: Registry, make_topic: Callable[..., str], unique: Callable[[str], str], fill: Callable[..., object]
) -> Callable[..., tuple[str, str]]:
    """``stored(b"7\\n", b"5")`` makes a group with these offsets, of a topic of as many partitions with ten messages
    each: group and topic."""

    def make(*values: bytes) -> tuple[str, str]:
        group, topic = unique("malformed"), make_topic(len(values))
        fill(topic, 10 * len(values), len(values))
        assert not isinstance(registry.write(Ensure(znodes.offset_topic(group, topic))), Failure)
        for number, value in enumerate(values):
            made = registry.write(Create(znodes.offset(group, TopicPartition(topic, number)), value))
            assert not isinstance(made, Failure)
        return group, topic

    return make


def of_code(registry: Registry, kafka: KafkaSettings, group: str) -> list[tuple[str, str, tuple[str, ...]]]:
    """Severity, subject and commands of each unreadable offset."""
    findings = findings_of(read_group(registry, group, kafka=kafka))
    return [(f.severity, f.subject, lines(f)) for f in findings if f.code == "unreadable-offset"]


def data(registry: Registry, group: str, topic: str, number: int) -> bytes:
    (node,) = registry.read([Get(znodes.offset(group, TopicPartition(topic, number)))])
    assert isinstance(node, Node)
    return node.data


@pytest.mark.parametrize("release", ["1.1.1", "0.8.2.2"])
def test_a_number_with_other_characters_stops_the_scala_consumer(
    release: str,
    stored: Callable[..., tuple[str, str]],
    cluster: Sandbox,
    registry: Registry,
    kafka: KafkaSettings,
) -> None:
    """A member that is given such an offset owns nothing; it is critical, and what is advised, typed as it is, leaves
    that very number: then the member has its share."""
    group, topic = stored(b"7\n")
    (found,) = of_code(registry, kafka, group)
    assert found[:2] == ("critical", f"{topic}-0")
    member = {"kind": "topics", "release": release, "name": f"{group}-a", "properties": IMPATIENT}
    with cluster.member(group, topic, **member) as stopped:
        wait_until(lambda: "can't rebalance after 2 retries" in stopped.logged(), 60, "it gives up")
        assert owners(registry, group) == {}
    type_in(found[2], cluster.connect, "reset-offsets .*? --to-current")
    assert data(registry, group, topic, 0) == b"7"
    assert of_code(registry, kafka, group) == []
    with cluster.member(group, topic, **member):
        wait_until(lambda: len(owners(registry, group)) == 1, 60, "it has its share")


def test_digits_of_other_scripts_are_digits_to_the_scala_consumer(
    stored: Callable[..., tuple[str, str]], cluster: Sandbox, registry: Registry, kafka: KafkaSettings
) -> None:
    """A member of 1.1.1 starts at such a number, and so it is an offset here."""
    group, topic = stored("٣".encode())
    assert of_code(registry, kafka, group) == []
    assert [p.committed("zookeeper") for p in read_group(registry, group).partitions] == [3]
    with cluster.member(group, topic, kind="topics", name=f"{group}-a", properties=IMPATIENT):
        wait_until(lambda: len(owners(registry, group)) == 1, 60, "it has its share")


@pytest.mark.parametrize(
    ("value", "release"),
    [
        (b"-1", "1.1.1"),
        (b"-9223372036854775808", "0.8.2.2"),
        *(
            pytest.param(value, release, marks=pytest.mark.long)
            for value in (b"-1", b"-2", b"-915623761776", b"-9223372036854775808")
            for release in ("1.1.1", "0.9.0.1", "0.8.2.2")
            if (value, release) not in ((b"-1", "1.1.1"), (b"-9223372036854775808", "0.8.2.2"))
        ),
    ],
)
def test_a_negative_number_is_no_offset(
    release: str,
    value: bytes,
    stored: Callable[..., tuple[str, str]],
    cluster: Sandbox,
    registry: Registry,
    kafka: KafkaSettings,
) -> None:
    """Members have their share, and start where ``auto.offset.reset`` says. A checkpoint has the other offsets."""
    group, topic = stored(value, b"5")
    assert of_code(registry, kafka, group) == []
    saved = run("offsets", group, "--save", "-", "-z", cluster.connect)
    assert (saved.returncode, saved.stdout.splitlines()[0]) == (0, f"/consumers/{group}/offsets/{topic}/1:5"), saved
    settings = IMPATIENT | {"auto.offset.reset": "smallest", "auto.commit.interval.ms": "200"}
    with cluster.member(group, topic, kind="topics", release=release, name=f"{group}-a", properties=settings):
        wait_until(lambda: [data(registry, group, topic, n) for n in range(2)] == [b"10", b"10"], 60, "it reads all")


def test_many_numbers_are_repaired_by_one_command(
    stored: Callable[..., tuple[str, str]], cluster: Sandbox, registry: Registry, kafka: KafkaSettings
) -> None:
    """Where they differ, each stays what it is; an offset that is fine is not touched."""
    group, topic = stored(b"7\n", b" 5 ", b"3")
    (found,) = of_code(registry, kafka, group)
    assert found[1] == f"{topic}-0..1"
    type_in(found[2], cluster.connect, "reset-offsets")
    assert [data(registry, group, topic, number) for number in range(3)] == [b"7", b"5", b"3"]
    assert of_code(registry, kafka, group) == []


def test_of_what_does_not_exist_an_offset_cannot_be_set(
    stored: Callable[..., tuple[str, str]], cluster: Sandbox, registry: Registry, kafka: KafkaSettings
) -> None:
    """Unreadable or not: nobody is given such a partition, and a reset refuses it. It is reported as what is left of a
    topic, or of a partition, and what is advised, typed as it is, removes it."""
    group, topic = stored(b"5", b"5")
    for number, name, value in ((77, topic, b"abc"), (0, "gonetopic", b"1q"), (1, "gonetopic", b"3 ")):
        registry.write(Ensure(znodes.offset_topic(group, name)))
        assert registry.write(Create(znodes.offset(group, TopicPartition(name, number)), value)) is None
    found = {f.code: f for f in findings_of(read_group(registry, group, kafka=kafka))}
    assert set(found) == {"offset-of-missing-topic", "offset-of-missing-partition"}
    verified = run("inspect-group", group, "--verify", "-z", cluster.connect)
    assert "unreadable-offset" not in verified.stdout + verified.stderr
    for code in ("offset-of-missing-topic", "offset-of-missing-partition"):
        type_in(lines(found[code]), cluster.connect, "unsubscribe|delete-group")
    left = {f.code for f in findings_of(read_group(registry, group, kafka=kafka))}
    assert not left & set(found)


@given(st.text(alphabet="0123456789+- \n٣７x", max_size=22))
def test_a_number_as_java_reads_it(text: str) -> None:
    """``Long.parseLong``: one sign, digits of any script and nothing else, within 64 bits."""
    fits = re.fullmatch(r"[+-]?\d+", text) is not None and -(2**63) <= int(text) < 2**63
    assert java_long(text.encode()) == (int(text) if fits and "\n" not in text else None)


@pytest.mark.parametrize(
    ("written", "number"),
    [
        ("9223372036854775807", 2**63 - 1),
        ("9223372036854775808", None),
        ("-9223372036854775808", -(2**63)),
        ("0" * 40 + "7", 7),
        ("\U0001d7d7", None),  # a digit beyond the first plane: two characters to Java
        ("1_0", None),
        ("", None),
        ("+", None),
    ],
)
def test_the_edges_of_a_number(written: str, number: int | None) -> None:
    """Where Java's numbers end, and what Python would take for one."""
    assert java_long(written.encode()) == number
