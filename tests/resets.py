"""What tests of resets share: a group's offsets in either store, set and read without zkgroup, and members."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from support import wait_until

from zkgroup.clients.kafka.client import KafkaSettings, KafkaTopicPartition, admin_client, consumer
from zkgroup.clients.kafka.group_consumers import GroupOffsets
from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.groups.changes import backup
from zkgroup.groups.changes.applier import Applier
from zkgroup.groups.changes.plan import Plan
from zkgroup.groups.changes.reset_plan import Target, plan_group_reset
from zkgroup.groups.changes.undo import plan_group_undo
from zkgroup.groups.group_model import Store
from zkgroup.groups.partition_scope import Scope, Selection, parse_scope
from zkgroup.protocol import znodes
from zkgroup.protocol.names import TopicPartition
from zkgroup.protocol.operations import Create, Delete, Ensure, Failure, Get, Node, SetData
from zkgroup.protocol.znodes import Registration, encode_registration

OneStore = Literal["zookeeper", "kafka"]
STORES: tuple[OneStore, ...] = ("zookeeper", "kafka")
TIMEOUT = 10.0


class Resetter(Applier):
    """Plans and applies resets of one group."""

    def __init__(self, registry: Registry | None, brokers: Callable[[], KafkaSettings], group: str, timeout: float):
        super().__init__(registry, brokers, timeout)
        self.group = group

    def plan(self, target: Target, selection: Selection, store: Store | None = None) -> Plan:
        return plan_group_reset(self, self.group, target, selection, store)

    def plan_undo(self, path: Path, scope: Scope | None = None, store: Store | None = None) -> Plan:
        return plan_group_undo(self, self.group, path, scope, store)


class Kept:
    """The offsets of one group in one store."""

    def __init__(self, registry: Registry, kafka: KafkaSettings, group: str, store: OneStore) -> None:
        self.registry = registry
        self.kafka = kafka
        self.group = group
        self.store = store

    def resetter(self, registry: Registry | None = None) -> Resetter:
        """A new one for this group."""
        return Resetter(registry or self.registry, lambda: self.kafka, self.group, TIMEOUT)

    def put(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit as a member would, one of the Scala consumer's: over whatever is there."""
        if self.store == "kafka":
            client = GroupOffsets(self.kafka, self.group)
            client.commit(offsets, TIMEOUT)
            client.close()
            return
        for key, offset in offsets.items():
            path = znodes.offset(self.group, key)
            assert not isinstance(self.registry.write(Ensure(path)), Failure)
            assert not isinstance(self.registry.write(SetData(path, b"%d" % offset)), Failure)

    def get(self, *keys: TopicPartition) -> list[int | None]:
        """What is committed."""
        if self.store == "kafka":
            client = GroupOffsets(self.kafka, self.group)
            found = client.fetch(keys, TIMEOUT)
            client.close()
            return [found[key] for key in keys]
        nodes = self.registry.read([Get(znodes.offset(self.group, key)) for key in keys])
        return [int(node.data) if isinstance(node, Node) else None for node in nodes]

    @contextmanager
    def alive(self, topic: str) -> Iterator[str]:
        """While it lasts the group has a member in this store; gives what it is called, or how that begins."""
        if self.store == "kafka":
            with self._member_in_kafka(topic) as name:
                yield name
            return
        name = f"{self.group}_somehost-1411294187842-ab12cd34"
        with Registry(self.registry.settings, 30.0) as session:
            session.write(Ensure(znodes.ids(self.group)))
            data = encode_registration(Registration("static", {topic: 1}, 1411294187842))
            assert not isinstance(
                session.write(Create(znodes.member_id(self.group, name), data, ephemeral=True)), Failure
            )
            yield name
            assert not isinstance(session.write(Delete(znodes.member_id(self.group, name))), Failure)

    @contextmanager
    def _member_in_kafka(self, topic: str) -> Iterator[str]:
        client = consumer(self.kafka, group=self.group, client_id="somebody", auto_offset_reset="earliest")
        try:
            client.subscribe([topic])

            def assigned() -> bool:
                client.poll(0.05)
                return bool(client.assignment())

            wait_until(assigned, what="the member's assignment")
            yield "somebody-"
        finally:
            client.close()


def drop_messages(kafka: KafkaSettings, partition: TopicPartition, before: int) -> None:
    """Let retention take everything before an offset."""
    wanted = KafkaTopicPartition(partition.topic, partition.partition, before)
    admin = admin_client(kafka, TIMEOUT)  # held until the answer is there
    for future in admin.delete_records([wanted]).values():
        future.result(TIMEOUT)


def selection(*topics: str) -> Selection:
    """As ``--topic`` does."""
    return Selection(parse_scope(topics))


def carry_out(resetter: Resetter, plan: Plan, path: Path) -> Path:
    """All that --execute does."""
    resetter.check(plan)
    written = backup.write(resetter.backup(plan), path)
    resetter.write(plan)
    assert resetter.verify(plan) == []
    return written
