"""A whole group in both stores, for a change of it: all its znodes, and its offsets and members in Kafka."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from zkgroup.clients.kafka.responses import KafkaGroup, KafkaOffset
from zkgroup.errors import (
    NotFoundError,
    RefusedError,
    Remedy,
    UsageError,
    ZkgroupError,
    did_you_mean,
    is_wrong_setting,
)
from zkgroup.groups.changes.applier import Applier
from zkgroup.groups.changes.change_reports import check_complete, unknown_in_kafka
from zkgroup.groups.changes.group_tree import GroupTree, read_tree
from zkgroup.groups.group_model import OffsetStore, Store, StoredOffset, in_store
from zkgroup.groups.snapshot.znode_reader import group_names
from zkgroup.protocol import znodes
from zkgroup.protocol.names import OFFSETS_TOPIC, TopicPartition
from zkgroup.protocol.operations import Exists, Stat
from zkgroup.text import listed


@dataclass(frozen=True, slots=True)
class WholeGroup:
    """A group as it is. ``tree``: its nodes, None where ZooKeeper is not meant or has none; ``kafka_group``: the group
    in Kafka, None where that is not meant or there is none."""

    group: str
    tree: GroupTree | None = None
    kafka_group: KafkaGroup | None = None
    warnings: tuple[str, ...] = ()

    @property
    def stores(self) -> tuple[OffsetStore, ...]:
        """Where the group is, in the order in which it is changed."""
        places: list[OffsetStore] = ["zookeeper"] if self.tree is not None else []
        return (*places, "kafka") if self.kafka_group is not None else tuple(places)

    @property
    def stored(self) -> dict[TopicPartition, StoredOffset]:
        """The offsets in ZooKeeper."""
        return {} if self.tree is None else self.tree.offsets

    @property
    def kept(self) -> Mapping[TopicPartition, KafkaOffset]:
        """The offsets in Kafka."""
        return {} if self.kafka_group is None else self.kafka_group.offsets


def find_group(applier: Applier, group: str, store: Store | None, *, partly: bool = False) -> WholeGroup:
    """The group, in ``store`` or wherever it is. Raises ``NotFoundError`` where it is nowhere, and, unless
    ZooKeeper's half will do (``partly``), ``ZkgroupError`` where Kafka does not answer."""
    found = read_whole_group(applier, group, store, partly=partly)
    if not found.stores:
        see = Remedy("see which groups there are", ("list-groups",))
        remedy = did_you_mean(group, group_names(applier.registry), see)
        raise NotFoundError(f"there is no group {group}{in_store(store)}", remedy)
    return found


def read_whole_group(applier: Applier, group: str, store: Store | None, *, partly: bool = False) -> WholeGroup:
    """The same; perhaps it is nowhere. Reading leaves no trace."""
    tree = None
    if store != "kafka":
        if applier.registry is None:
            raise UsageError("no ZooKeeper was named", "give --zookeeper, or --store kafka")
        tree = read_tree(applier.registry, group)
        if tree.unreadable:
            raise RefusedError(f"group {group} cannot be read: {listed(tree.unreadable)}", CREDENTIALS)
    if tree is not None and not tree.nodes:
        tree = None
    warnings: list[str] = []
    kafka_group = None
    if store != "zookeeper":
        kafka_group = _read_kafka_group(
            applier, group, asked=store is not None, warnings=warnings if partly and tree else None
        )
    return WholeGroup(group, tree, kafka_group, tuple(warnings))


def _read_kafka_group(applier: Applier, group: str, *, asked: bool, warnings: list[str] | None) -> KafkaGroup | None:
    # The first question for a group makes brokers create that topic.
    if not asked and applier.registry is not None:
        (there,) = applier.registry.read([Exists(znodes.topic(OFFSETS_TOPIC))])
        if not isinstance(there, Stat):
            return None
    try:
        kafka_group = applier.coordinators().read_group(group)
        check_complete(group, kafka_group)
    except ZkgroupError as error:
        if asked or is_wrong_setting(error):
            raise
        unknown = unknown_in_kafka(group, error)
        if warnings is None:
            raise unknown from None
        warnings.append(unknown.message)
        return None
    return kafka_group if kafka_group.group is not None or kafka_group.offsets else None


CREDENTIALS: Final = "connect with credentials that may read the group's nodes"
