"""What tests of guarded changes share: plans, members that come, and a registry in which something happens."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from zkgroup.clients.zookeeper import ZooKeeperSettings
from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.groups.changes.plan import OffsetChange
from zkgroup.groups.group_model import StoredOffset
from zkgroup.protocol import znodes
from zkgroup.protocol.names import TopicPartition
from zkgroup.protocol.operations import Create, Ensure, Failure, Get, Node
from zkgroup.protocol.znodes import Registration, encode_registration

P = TopicPartition
Offsets = Mapping[TopicPartition, int]
Build = Callable[..., str]
REGISTRATION = encode_registration(Registration("static", {"t": 1}, 1411294187842))


def seen(registry: Registry, group: str, *partitions: TopicPartition) -> dict[TopicPartition, StoredOffset | None]:
    """What a plan sees of these offsets."""
    nodes = registry.read([Get(znodes.offset(group, partition)) for partition in partitions])
    return {partition: _stored(node) for partition, node in zip(partitions, nodes, strict=True)}


def _stored(node: object) -> StoredOffset | None:
    if not isinstance(node, Node):
        return None
    stat = node.stat
    return StoredOffset(int(node.data), stat.version, stat.mzxid, stat.ctime, stat.mtime)


def plan(registry: Registry, group: str, offsets: Mapping[TopicPartition, int | None]) -> list[OffsetChange]:
    """Writes that are based on what is there now."""
    before = seen(registry, group, *offsets)
    return [change(partition, offset, before[partition]) for partition, offset in offsets.items()]


def change(partition: TopicPartition, offset: int | None, seen: StoredOffset | None) -> OffsetChange:
    """A row that writes to ZooKeeper."""
    return OffsetChange("zookeeper", *partition, seen and seen.offset, offset, seen=seen)


def values(registry: Registry, group: str, *partitions: TopicPartition) -> list[int | None]:
    """The offsets that are there."""
    return [stored and stored.offset for stored in seen(registry, group, *partitions).values()]


def register(session: Registry, group: str, name: str = "m") -> None:
    """A member comes, as the Scala consumer does: parents made if they are missing, then the ephemeral node."""
    session.write(Ensure(znodes.ids(group)))
    result = session.write(Create(znodes.member_id(group, f"{group}_{name}"), REGISTRATION, ephemeral=True))
    assert not isinstance(result, Failure), result


def commit(partition: TopicPartition, offset: int, seen: int | None) -> OffsetChange:
    """A row that commits to Kafka."""
    return OffsetChange("kafka", *partition, seen, offset)


class Meddler(Registry):
    """A real registry that lets something happen after the last snapshot, just before each transaction."""

    def __init__(self, settings: ZooKeeperSettings, meddle: Callable[[int], object]) -> None:
        super().__init__(settings, 30.0)
        self.transactions = 0
        self._meddle = meddle

    def transaction(self, ops: Sequence[object]) -> None:  # type: ignore[override]
        self.transactions += 1
        self._meddle(self.transactions)
        super().transaction(ops)  # type: ignore[arg-type]
