"""Resets of what cannot be read, of half a group, without brokers, and with old ones, on real servers."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from lines import names
from resets import STORES, Kept, Resetter, carry_out, selection

from zkgroup.clients.kafka.client import KafkaSettings
from zkgroup.clients.kafka.registered_brokers import Brokers
from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.errors import NotFoundError, RefusedError, UnreachableError
from zkgroup.groups.changes.reset_plan import Target
from zkgroup.groups.changes.undo import describe_unrestored
from zkgroup.groups.group_model import STORE_NAMES
from zkgroup.groups.partition_scope import Selection
from zkgroup.protocol import znodes
from zkgroup.protocol.names import TopicPartition
from zkgroup.protocol.operations import Acl, Children, Create, Ensure, Get, Node, SetData
from zkgroup.sandbox.local_cluster import Sandbox
from zkgroup.sandbox.topic_admin import ProducerRecord, create_topic, produce

MakeTopic = Callable[..., str]
Fill = Callable[..., list[ProducerRecord]]
P = TopicPartition


@pytest.fixture
def topic(make_topic: MakeTopic, fill: Fill) -> str:
    """A topic of three partitions with 100 messages each."""
    name = make_topic(3)
    fill(name, 300, 3)
    return name


def test_unreadable_offsets_are_repaired(
    registry: Registry, kafka: KafkaSettings, unique: Callable[[str], str], topic: str, tmp_path: Path
) -> None:
    """A node that has no offset gets one; the backup keeps what it held, and an undo puts that back."""
    kept = Kept(registry, kafka, unique("malformed"), "zookeeper")
    kept.put({P(topic, 0): 1, P(topic, 1): 1})
    registry.write(SetData(znodes.offset(kept.group, P(topic, 0)), b"malformed"))
    registry.write(SetData(znodes.offset(kept.group, P(topic, 1)), b"-5"))
    resetter = kept.resetter()
    plan = resetter.plan(Target("offset", 7), selection(f"{topic}:0-1"))
    assert [(row.current, row.is_legible) for row in plan.rows] == [(None, False), (None, True)]
    assert [entry.raw for entry in resetter.backup(plan).offsets] == [b"malformed", b"-5"]
    saved = carry_out(resetter, plan, tmp_path / "backup")
    assert kept.get(P(topic, 0), P(topic, 1)) == [7, 7]
    carry_out(resetter, resetter.plan_undo(saved), tmp_path / "again")
    assert stored_data(kept, topic)[:2] == [b"malformed", b"-5"]


MALFORMED = (b"12\n", b" 12 ", b"abc", b"", b"\xff12", b"-1", b"-915623761776", b"+12", b"007")


def stored_data(kept: Kept, topic: str) -> list[bytes | None]:
    """What the group's nodes hold, byte by byte."""
    nodes = kept.registry.read([Get(znodes.offset(kept.group, P(topic, number))) for number in range(len(MALFORMED))])
    return [node.data if isinstance(node, Node) else None for node in nodes]


def test_an_undo_is_exact(
    registry: Registry, kafka: KafkaSettings, unique: Callable[[str], str], make_topic: MakeTopic, tmp_path: Path
) -> None:
    """What a node held comes back byte by byte, a number or not; and what was written, with the undo of the undo."""
    topic = make_topic(len(MALFORMED))
    kept = Kept(registry, kafka, unique("exact"), "zookeeper")
    for number, data in enumerate(MALFORMED):
        registry.write(Ensure(znodes.offset(kept.group, P(topic, number))))
        registry.write(SetData(znodes.offset(kept.group, P(topic, number)), data))
    resetter = kept.resetter()
    saved = carry_out(resetter, resetter.plan(Target("latest"), Selection()), tmp_path / "backup")
    assert stored_data(kept, topic) == [b"0"] * len(MALFORMED)
    undo = resetter.plan_undo(saved)
    assert (undo.refusals, undo.changes, describe_unrestored(undo.group, undo.rows)) == ((), len(MALFORMED), None)
    undone = carry_out(resetter, undo, tmp_path / "undone")
    assert stored_data(kept, topic) == list(MALFORMED)
    assert (resetter.plan_undo(saved).refusals, resetter.plan_undo(saved).changes) == ((), 0)
    carry_out(resetter, resetter.plan_undo(undone), tmp_path / "redone")
    assert stored_data(kept, topic) == [b"0"] * len(MALFORMED)
    registry.write(SetData(znodes.offset(kept.group, P(topic, 0)), b"else"))
    (refusal,) = resetter.plan_undo(saved).refusals
    assert names(refusal.message, f"{topic}-0", "ZooKeeper", 0)


def test_offsets_that_nobody_may_read(
    registry: Registry, kafka: KafkaSettings, unique: Callable[[str], str], topic: str
) -> None:
    """What cannot be read cannot be backed up either: refused before anything is written, and the plan can say so."""
    kept = Kept(registry, kafka, unique("closed"), "zookeeper")
    kept.put({P(topic, 0): 1})
    closed = Acl("digest", "app:B6mHBfPTG7OxD/NTlRVOPMWQ4V4=", 31)
    path = znodes.offset(kept.group, P(topic, 1))
    assert registry.write(Create(path, b"6", acl=(closed,))) is None
    resetter = kept.resetter()
    plan = resetter.plan(Target("offset", 7), selection(f"{topic}:0-1"))
    with pytest.raises(RefusedError, match=rf"\bZooKeeper\b.*\b{topic}-1\b"):
        resetter.check(plan)
    resetter.check(resetter.plan(Target("offset", 7), selection(f"{topic}:0")))


def test_half_built_groups(registry: Registry, kafka: KafkaSettings, unique: Callable[[str], str], topic: str) -> None:
    """A group with nothing below it, or with nodes that no partition is called, is read for what there is."""
    kept = Kept(registry, kafka, unique("half"), "zookeeper")
    registry.write(Create(znodes.group(kept.group)))
    with pytest.raises(NotFoundError, match=rf"\b{kept.group}\b"):
        kept.resetter().plan(Target("latest"), Selection())
    kept.put({P(topic, 0): 3})
    registry.write(Create(f"{znodes.offset_topic(kept.group, topic)}/0-7"))
    registry.write(Create(f"{znodes.offset_topic(kept.group, topic)}/x"))
    rows = kept.resetter().plan(Target("current"), Selection()).rows
    assert [(row.partition, row.current) for row in rows] == [(0, 3), (1, None), (2, None)]


def test_a_group_without_offsets_in_the_store_that_is_named(
    registry: Registry, kafka: KafkaSettings, unique: Callable[[str], str], topic: str
) -> None:
    """The message names the store, and the remedy --store."""
    for store, other in (STORES, STORES[::-1]):
        kept = Kept(registry, kafka, unique("one"), other)
        registry.write(Ensure(znodes.ids(kept.group)))
        kept.put({P(topic, 0): 3})
        with pytest.raises(NotFoundError, match=rf"\b{kept.group}\b.*\b{STORE_NAMES[store]}\b.*--store\b"):
            kept.resetter().plan(Target("latest"), Selection(), store)


def test_a_new_group_with_nothing_to_do(kept: Kept, topic: str) -> None:
    """Where nothing is to be written, no group is made, and no word says that one is."""
    plan = kept.resetter().plan(Target("current"), selection(topic), kept.store)
    assert plan.changes == 0
    assert [names(str(text), kept.group) for text in plan.warnings] == [True]
    assert kept.resetter().plan(Target("latest"), selection(topic), kept.store).warnings[0] != plan.warnings[0]


def test_brokers_out_of_reach(
    registry: Registry, kafka: KafkaSettings, unique: Callable[[str], str], topic: str, tmp_path: Path
) -> None:
    """Without brokers nothing is planned that they must check; what is there is shown, and a backup can be put back."""
    kept = Kept(registry, kafka, unique("alone"), "zookeeper")
    kept.put({P(topic, 0): 10})
    plan = kept.resetter().plan(Target("latest"), selection(f"{topic}:0"), "zookeeper")
    path = carry_out(kept.resetter(), plan, tmp_path / "backup")
    alone = Resetter(registry, lambda: KafkaSettings("127.0.0.1:1"), kept.group, 1.0)
    with pytest.raises(UnreachableError):
        alone.plan(Target("latest"), selection(topic), "zookeeper")
    current = alone.plan(Target("current"), selection(f"{topic}:0"), "zookeeper")
    assert [row.current for row in current.rows] == [100]
    assert names(str(current.warnings[0]), "127.0.0.1:1")
    undo = alone.plan_undo(path)
    alone.write(undo)
    assert [names(str(warning), "127.0.0.1:1") for warning in alone.verify(undo)] == [True]
    assert kept.get(P(topic, 0)) == [10]


def test_reading_leaves_no_trace(make_cluster: Callable[..., Sandbox], unique: Callable[[str], str]) -> None:
    """A plan on a cluster where no group was ever kept in Kafka does not make its brokers create the topic for that."""
    sandbox = make_cluster()
    with sandbox.registry(30.0) as registry:
        kafka = KafkaSettings(sandbox.bootstrap)
        create_topic(registry, "t", 1)
        kept = Kept(registry, kafka, unique("first"), "zookeeper")
        kept.put({P("t", 0): 0})
        kept.resetter().plan(Target("latest"), Selection())
        assert registry.read([Children(znodes.topics())]) == [("t",)]


@pytest.mark.long
@pytest.mark.parametrize("release", ["0.8.2.2", "0.9.0.1"])
def test_releases_without_a_time_index(make_sandbox: Callable[..., Sandbox], release: str) -> None:
    """Their brokers know the times of segments alone: the note says so, and what is before the first is the start."""
    sandbox = make_sandbox(kafka=release)
    with sandbox.registry(30.0) as registry:
        create_topic(registry, "orders", 4)  # librdkafka 2.16 cannot read what 0.8 reports one short topic
        kafka = Brokers(registry.read, {}).settings()
        produce(kafka, "orders", [ProducerRecord(b"x", None, 0) for _ in range(10)])
        for store in STORES:
            kept = Kept(registry, kafka, f"g-{store}", store)
            kept.put({P("orders", 0): 5})
            resetter = kept.resetter()
            for millis, expected in ((0, 0), (int(time.time() * 1000) + 3_600_000, 10)):
                plan = resetter.plan(Target("time", millis), selection("orders:0"), store)
                assert [row.target for row in plan.rows] == [expected]
                assert plan.rows[0].note is not None
                resetter.check(plan)
                resetter.write(plan)
                assert resetter.verify(plan) == []
                assert kept.get(P("orders", 0)) == [expected]
