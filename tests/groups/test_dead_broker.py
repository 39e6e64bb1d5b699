"""A snapshot of groups while a broker is dead and still registered: one wait, and whatever the others know."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import NamedTuple

import pytest
from cli import run
from diagnosed_groups import findings_of
from servers import Sandbox
from support import numbered

from zkgroup.clients.kafka.client import KafkaSettings
from zkgroup.clients.kafka.group_consumers import GroupOffsets
from zkgroup.clients.kafka.log_offsets import LogRange, log_offsets
from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.errors import UnreachableError
from zkgroup.groups.snapshot.broker_queries import MIN_TIMEOUT
from zkgroup.groups.snapshot.group_reader import read_group, read_groups
from zkgroup.groups.snapshot.snapshot_defects import notes
from zkgroup.protocol import znodes
from zkgroup.protocol.names import TopicPartition
from zkgroup.protocol.operations import Create, Ensure
from zkgroup.sandbox.topic_admin import create_topic, produce

TIMEOUT = 6.0
PARTITIONS = 6
GROUPS = ("ga", "gb", "gc")
IN_KAFKA = ("k0", "k1")


class Crippled(NamedTuple):
    """A cluster of two brokers, of which one is dead; the partitions of ``t`` that it led."""

    sandbox: Sandbox
    registry: Registry
    kafka: KafkaSettings
    dead: frozenset[int]


@pytest.fixture(scope="module")
def crippled() -> Iterator[Crippled]:
    """Three groups in ZooKeeper, of which one has offsets in Kafka as well, when broker 2 dies."""
    keys = [TopicPartition("t", number) for number in range(PARTITIONS)]
    properties = {"zookeeper.session.timeout.ms": "120000"}
    with (
        Sandbox("crippled-look", brokers=2, tick_ms=6000, properties=properties) as sandbox,
        sandbox.registry(30.0) as registry,
    ):
        kafka = KafkaSettings(sandbox.bootstrap)
        create_topic(registry, "t", PARTITIONS)
        produce(kafka, "t", numbered(2 * PARTITIONS, PARTITIONS))
        registry.read([Ensure(znodes.offset_topic(group, "t")) for group in GROUPS])
        registry.read([Create(znodes.offset(group, key), b"1") for group in GROUPS for key in keys])
        for group in ("ga", *IN_KAFKA):
            offsets = GroupOffsets(kafka, group)
            offsets.commit({keys[0]: 1}, 30)
            offsets.close()
        ranges = log_offsets(kafka, keys, 20)
        dead = {key.partition for key, found in ranges.items() if isinstance(found, LogRange) and found.leader == 2}
        sandbox.broker(2).kill()
        yield Crippled(sandbox, registry, kafka, frozenset(dead))


def test_a_snapshot_waits_once(crippled: Crippled) -> None:
    """All questions together take the one time-out (and what the last one gets at least): logs, coordinators, and which
    groups there are."""
    for snapshot in (
        lambda: read_group(crippled.registry, "ga", kafka=crippled.kafka, timeout=TIMEOUT),
        lambda: read_groups(crippled.registry, kafka=crippled.kafka, timeout=TIMEOUT),
    ):
        started = time.monotonic()
        snapshot()
        assert time.monotonic() - started < TIMEOUT + 2 * MIN_TIMEOUT + 2  # two waits would be twelve seconds


def test_each_partition_has_its_own_error(crippled: Crippled) -> None:
    """What the dead broker leads is not known, each partition saying so; of the others it is; and both is reported."""
    snapshot = read_group(crippled.registry, "ga", kafka=crippled.kafka, timeout=TIMEOUT)
    assert 0 < len(crippled.dead) < PARTITIONS
    assert {p.partition for p in snapshot.partitions if p.log_end is None} == crippled.dead
    assert {p.partition for p in snapshot.partitions if p.lag("zookeeper") == 1} == set(
        range(PARTITIONS)
    ) - crippled.dead
    assert all("broker 2" in (p.log_error or "") for p in snapshot.partitions if p.partition in crippled.dead)
    (reported,) = [note for note in map(str, notes(snapshot)) if "broker 2" in note]
    assert reported.startswith(", ".join(f"t-{number}" for number in sorted(crippled.dead)))
    (finding,) = [finding for finding in findings_of(snapshot) if finding.code == "incomplete-snapshot"]
    assert "broker 2" in finding.message


def test_a_sum_over_a_part_is_not_given_as_the_whole(crippled: Crippled) -> None:
    """The lag of a group is marked in a table; JSON and CSV have none, and how much is known next to it."""
    options = ("-z", crippled.sandbox.connect, "--connect-timeout", "10")  # the living one has time
    known = PARTITIONS - len(crippled.dead)
    for command in (("list-groups",), ("inspect-group", "gb")):
        table = run(*command, *options)
        assert table.returncode == 0, table.stderr
        row = next(line for line in table.stdout.splitlines() if line.startswith("gb "))
        assert row.split()[table.stdout.split("\n", 1)[0].split().index("lag")] == f"≥{known}", table.stderr
    rows = {row["group"]: row for row in json.loads(run("list-groups", *options, "--output", "json").stdout)}
    assert (rows["gb"]["lag"], rows["gb"]["lag_at_least"], rows["gb"]["lag_unknown"]) == (
        None,
        known,
        len(crippled.dead),
    )


def test_a_group_that_may_be_there_is_not_reported_as_none(crippled: Crippled) -> None:
    """A group in Kafka whose coordinator does not answer is not known, which is another exit code than that there is
    none; one whose coordinator answers is shown. Neighbours in hash codes have different coordinators here."""
    errors: list[UnreachableError] = []
    for group in IN_KAFKA:
        try:
            snapshot = read_group(crippled.registry, group, kafka=crippled.kafka, timeout=TIMEOUT)
            assert [p.committed("kafka") for p in snapshot.partitions if p.kafka is not None] == [1]
        except UnreachableError as error:
            errors.append(error)
    (unknown,) = errors
    assert unknown.exit_code == 3
