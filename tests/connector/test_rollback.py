"""An attempt that gets only a part of its share gives that back before the next one: nobody is kept from partitions
that are owned and not read, and nothing is read of them meanwhile."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
from members import ReadMember, committed, owners
from support import numbered, wait_until

from zkgroup.clients.kafka.client import KafkaSettings
from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.protocol import procedures, znodes
from zkgroup.protocol.member import Phase
from zkgroup.protocol.names import TopicPartition
from zkgroup.protocol.operations import Create, Delete, Exists, Stat
from zkgroup.sandbox.local_cluster import Sandbox
from zkgroup.sandbox.topic_admin import produce

PARTITIONS = 6
ATTEMPTS = 4


def test_what_a_failed_attempt_has_claimed_is_given_back(
    cluster: Sandbox,
    registry: Registry,
    kafka: KafkaSettings,
    make_topic: Callable[..., str],
    unique: Callable[[str], str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another client takes one partition of a member that reads six. Each of the member's attempts claims four of them
    and fails at the two that go into one transaction, that client's among them: between attempts it owns none, and
    reads nothing. When the client goes it owns all, and has read each message once."""
    monkeypatch.setattr(procedures, "CHUNK", 2)  # as in a share of hundreds: some of its transactions succeed
    topic, group = make_topic(PARTITIONS), unique("group")
    first, second = numbered(60, PARTITIONS), numbered(60, PARTITIONS, 60)
    produce(kafka, topic, first)
    taken = TopicPartition(topic, 3)
    path, above = znodes.owner(group, taken), znodes.owner_topic(group, topic)

    def last_change() -> int:
        """The transaction in which an owner node came or went last."""
        (stat,) = registry.read([Exists(above)])
        assert isinstance(stat, Stat)
        return stat.pzxid

    options = {"rebalance_backoff_ms": 300, "rebalance_max_retries": 100}
    with ReadMember(cluster.connect, group, {topic: 1}, **options) as member:
        wait_until(lambda: committed(registry, group, topic, PARTITIONS) == [10] * PARTITIONS, 20, "all is committed")
        registry.transaction([Delete(path), Create(path, b"foreign-0", ephemeral=True)])
        rests: list[int] = []  # after which attempt
        changes = [0]

        def attempt() -> int:
            """After which attempt the member rests; 0 while it tries."""
            has_rested = member.connector.statistics()
            return has_rested.counters.failed_attempts if has_rested.phase == Phase.BACKING_OFF.value else 0

        def has_rested() -> bool:
            before, found, change = attempt(), owners(registry, group), last_change()
            if before in (0, *rests) or attempt() != before:
                return False  # it tries, or did meanwhile
            assert found == {taken: "foreign-0"}, f"after attempt {before}"
            assert change > changes[-1], f"no claim in attempt {before}"
            rests.append(before)
            changes.append(change)
            if len(rests) == 1:
                produce(kafka, topic, second)
            return len(rests) == ATTEMPTS

        wait_until(has_rested, 30, f"{ATTEMPTS} attempts")
        assert len(member.records) == len(first), "nothing is read"
        registry.write(Delete(path))
        member.wait_for({record.value for record in second if record.value is not None})
        assert owners(registry, group) == {TopicPartition(topic, p): f"{member.id}-0" for p in range(PARTITIONS)}
    assert member.values == Counter(record.value for record in (*first, *second))
    assert committed(registry, group, topic, PARTITIONS) == [20] * PARTITIONS
