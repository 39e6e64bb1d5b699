"""Groups as they are: everything about them that ZooKeeper, their coordinator and the brokers tell.

Groups are half-built in the wild. Whatever is missing is missing in the snapshot, whatever cannot be read carries its
own error, and nothing is ever created. ZooKeeper is read in a few pipelined rounds (``reading``), however many groups
there are; joining what was found is pure (``joining``). Brokers are asked for log ranges and for offsets that are kept
in Kafka; what they do not answer is unknown, which is no failure: ZooKeeper's half is shown without it.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from typing import Final

from zkgroup.clients.kafka.responses import UNTOLD, KafkaSide, words_of
from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.errors import NotFoundError, UnreachableError, UsageError, ZkgroupError, did_you_mean
from zkgroup.groups.group_model import (
    CoordinatorGroup,
    CoordinatorMember,
    GroupMember,
    GroupPartition,
    GroupSnapshot,
    GroupTopic,
    KafkaOffset,
    Store,
    StoredOffset,
)
from zkgroup.groups.snapshot import raw_group, znode_reader
from zkgroup.groups.snapshot.broker_queries import Asker, Brokers
from zkgroup.groups.snapshot.ownership import ownership_defects
from zkgroup.groups.snapshot.raw_group import Look
from zkgroup.groups.snapshot.registrations import host_of
from zkgroup.protocol import znodes
from zkgroup.protocol.names import OFFSETS_TOPIC, TopicPartition
from zkgroup.protocol.operations import Children, Code, Failure

__all__ = [
    "Brokers",
    "CoordinatorGroup",
    "CoordinatorMember",
    "GroupMember",
    "GroupPartition",
    "GroupSnapshot",
    "GroupTopic",
    "KafkaOffset",
    "Store",
    "StoredOffset",
    "host_of",
    "ownership_defects",
    "read_group",
    "read_groups",
]

#: Brokers whose registration has at least this version tell a group's offsets without being told which.
_WHOLE_OFFSETS: Final = 4
_FEW: Final = 10
DEFAULT_TIMEOUT: Final = 5.0


def read_group(
    registry: Registry | None,
    group: str,
    *,
    kafka: Brokers | None = None,
    store: Store = "both",
    logs: bool = True,
    timeout: float | None = None,
) -> GroupSnapshot:
    """Read one group. ``timeout`` (seconds, the registry's by default) is for the brokers.

    Without ``kafka`` only ZooKeeper is read: no log ranges, nothing of the coordinator. Without ``registry`` only Kafka
    is asked. ``store`` "zookeeper" asks brokers for log ranges alone; without ``logs`` they are not asked for those.

    Raises ``NotFoundError`` where there is no such group, ``UsageError`` for what cannot be a group's name,
    ``UnreachableError`` where ZooKeeper does not answer. Brokers that do not answer are no error as long as the group
    is in ZooKeeper: see the snapshot's ``warnings``.
    """
    look = _Look(registry, kafka, store, logs, timeout)
    found = look.take([group])
    if not found:
        znodes.group(group)
        if look.asker is not None and look.asker.failure is not None:
            raise look.asker.failure  # it may be there
        if untold := look.sides[group].untold:
            where = "ZooKeeper has no such group, and " if registry is not None else ""
            raise UnreachableError(
                f"whether there is a group {group!r} is not known: {where}{'; '.join(words_of(group, untold))}",
                "check the brokers",
            )
        raise look.no_such_group(group)
    return found[0]


def read_groups(
    registry: Registry | None,
    groups: Sequence[str] | None = None,
    *,
    kafka: Brokers | None = None,
    store: Store = "both",
    logs: bool = True,
    timeout: float | None = None,
    warned: list[str] | None = None,
) -> tuple[GroupSnapshot, ...]:
    """Read many groups at one go; without ``groups`` all there are, in either store. Those that do not exist are left
    out. Each snapshot carries the warnings that concern all of them; ``warned`` gets them, too, even if there is none.

    Raises as ``read_group``, but for ``NotFoundError``; without ``registry`` also where the brokers do not answer, and
    without ``groups`` where their list may not be read.
    """
    look = _Look(registry, kafka, store, logs, timeout)
    found = look.take(groups)
    if warned is not None and look.asker is not None:
        warned += look.asker.warnings
    return found


class _Look:
    """One look at some groups, or at all."""

    def __init__(
        self, registry: Registry | None, kafka: Brokers | None, store: Store, logs: bool, timeout: float | None
    ) -> None:
        if timeout is None:
            timeout = registry.timeout if registry is not None else DEFAULT_TIMEOUT
        self.registry = registry
        self.asker = None if kafka is None else Asker(kafka, timeout)
        self.store = store
        self.logs = logs and kafka is not None
        self.started = time.monotonic()
        self.taken_at = int(time.time() * 1000)
        self.sides: Mapping[str, KafkaSide] = {}
        self.asked_kafka = False

    def take(self, names: Sequence[str] | None) -> tuple[GroupSnapshot, ...]:
        """The groups that exist, of those named; all without names."""
        if self.registry is None:
            nodes, world, groups = self._from_brokers(names)
        else:
            nodes, world, groups = self._from_registry(self.registry, names)
        members = {group: znode_reader.members_of(group, nodes, world.selections) for group in groups}
        logs: dict[TopicPartition, raw_group.Log] = {}
        early: dict[str, raw_group.Gathered] = {}
        if self.registry is not None:
            # Whoever coordinates a group may be dead, and is waited for while the others tell of their logs.
            with ThreadPoolExecutor(1) as beside:
                asked_for_sides = self._ask_coordinators(nodes, world, members, beside)
                znode_reader.read_partitions(self.registry, nodes, groups, members, world)
                if asked_for_sides is not None:
                    nothing = KafkaSide()
                    early = {g: raw_group.gather(g, nodes, members[g], nothing, world) for g in groups}
                    logs |= self._ask_logs(self._to_ask(early.values(), world))
                    self.sides = asked_for_sides.result()
        there = [
            group for group in groups if nodes.exists(znode_reader.paths_of(group).group) or self._is_in_kafka(group)
        ]
        heard = {topic for group in there for topic in self._concerned(group, nodes, members)}
        if self.registry is not None:
            znode_reader.read_topics(self.registry, nodes, heard, world)
        else:
            world.add_topics(nodes, heard)
        gathered = []
        for group in there:
            side = self.sides[group]
            if group in early and side.group is None and not side.offsets:
                gathered.append(replace(early[group], side=side))
            else:
                gathered.append(raw_group.gather(group, nodes, members[group], side, world))
        logs |= self._ask_logs(key for key in self._to_ask(gathered, world) if key not in logs)
        warnings = tuple(self.asker.warnings) if self.asker is not None else ()
        look = Look(self.taken_at, time.monotonic() - self.started, warnings, logs, self.logs)
        if self.registry is not None:
            drafts = {key: draft for one in gathered for key, draft in one.drafts.items()}
            # Brokers that answer have told who leads: ZooKeeper is asked about the rest.
            rest = [key for key, draft in drafts.items() if draft.exists and not isinstance(look.logs.get(key), tuple)]
            znode_reader.read_states(self.registry, nodes, rest, world)
        look = replace(look, took=time.monotonic() - self.started)
        return tuple(raw_group.join_group(one, nodes, world, look) for one in gathered)

    def _from_registry(
        self, registry: Registry, names: Sequence[str] | None
    ) -> tuple[znode_reader.Nodes, znode_reader.World, Sequence[str]]:
        groups = self._all(registry) if names is None else names
        nodes = znode_reader.read_names(registry, groups)
        world = znode_reader.World.of_registry(nodes)
        znode_reader.read_members(registry, nodes, groups)
        return nodes, world, groups

    def _to_ask(self, gathered: Iterable[raw_group.Gathered], world: znode_reader.World) -> list[TopicPartition]:
        """The partitions whose logs brokers may know."""
        drafts = {key: draft for one in gathered for key, draft in one.drafts.items()}
        return [key for key, draft in drafts.items() if raw_group.why_not_asked(key, draft, world) is None]

    def _ask_coordinators(
        self,
        nodes: znode_reader.Nodes,
        world: znode_reader.World,
        members: Mapping[str, Sequence[GroupMember]],
        beside: ThreadPoolExecutor,
    ) -> Future[Mapping[str, KafkaSide]] | None:
        """What Kafka will have told of each group; None where it is not asked."""
        self.sides = dict.fromkeys(members, KafkaSide())
        # A question to the coordinator makes brokers create this topic; and without it nothing is kept in Kafka.
        if self.asker is None or self.store == "zookeeper" or OFFSETS_TOPIC not in world.known_topics:
            if self.asker is not None and self.store != "zookeeper" and znodes.topics() in world.hidden:
                self.sides = dict.fromkeys(members, UNTOLD)  # whether there is that topic is not known
            return None
        self.asked_kafka = True
        oldest = znode_reader.oldest_broker(nodes)
        by_partition = oldest is not None and oldest < _WHOLE_OFFSETS
        # Of a few groups all offsets are looked for; of many only those of topics that ZooKeeper knows them to read,
        # as a thousand groups times all partitions would be too much to ask.
        topics = None
        if by_partition and len(members) > _FEW:
            topics = {group: raw_group.concerned(group, nodes, ms, KafkaSide()) for group, ms in members.items()}
        with suppress(ZkgroupError):  # asking says so
            self.asker.settings()
        return beside.submit(self.asker.sides, list(members), by_partition=by_partition, topics=topics)

    def _all(self, registry: Registry) -> Sequence[str]:
        listed, topics = registry.read([Children(znodes.consumers()), Children(znodes.topics())])
        if isinstance(listed, Failure) and listed.code is not Code.NO_NODE:
            raise ZkgroupError(
                f"which groups there are is not known: znode {znodes.consumers()} cannot be read: {listed.code.value}",
                "connect with credentials that its access list admits",
            )
        found = set(listed if isinstance(listed, tuple) else ())
        # As above: a cluster that keeps nothing has no groups, and listing them is spared.
        if (
            self.asker is not None
            and self.store != "zookeeper"
            and isinstance(topics, tuple)
            and OFFSETS_TOPIC in topics
        ):
            found.update(self.asker.names())
        return sorted(found)

    def _from_brokers(
        self, names: Sequence[str] | None
    ) -> tuple[znode_reader.Nodes, znode_reader.World, Sequence[str]]:
        if self.asker is None:
            raise UsageError("neither ZooKeeper nor brokers were named", "give --zookeeper or --bootstrap-server")
        coordinators = self.asker.coordinators(2)
        leaders = coordinators.leaders()
        world = znode_reader.World.of_brokers(leaders, coordinators.broker_ids())
        groups = names if names is not None else (self.asker.names() if OFFSETS_TOPIC in leaders else ())
        self.sides = dict.fromkeys(groups, KafkaSide())
        if OFFSETS_TOPIC in leaders:
            self.asked_kafka = True
            self.sides = self.asker.sides(groups, questions=2)
        return znode_reader.Nodes(), world, groups

    def _concerned(
        self, group: str, nodes: znode_reader.Nodes, members: Mapping[str, Sequence[GroupMember]]
    ) -> Iterable[str]:
        return raw_group.concerned(group, nodes, members[group], self.sides[group])

    def _is_in_kafka(self, group: str) -> bool:
        side = self.sides[group]
        return side.group is not None or bool(side.offsets)

    def no_such_group(self, group: str) -> NotFoundError:
        """The error for a group that is nowhere, with the names that are near."""
        in_kafka = self.asker.names() if self.asker is not None and self.asked_kafka else ()
        where, known, remedy = "", list(in_kafka), "check its name"
        if self.registry is not None:
            (listed,) = self.registry.read([Children(znodes.consumers())])
            where = f"in ZooKeeper at {self.registry.settings.hosts}{', nor in Kafka' if self.asked_kafka else ''}"
            if isinstance(listed, tuple):
                known += listed
            elif not in_kafka:
                where = f"ZooKeeper at {self.registry.settings.hosts} has no {znodes.consumers()}"
                return NotFoundError(f"no group {group!r}: {where}", "check the chroot in the connect string")
        elif self.asker is not None:
            where = f"in Kafka at {self.asker.settings().bootstrap}"
            remedy = "check its name; a group in ZooKeeper needs --zookeeper"
        return NotFoundError(f"no group {group!r} {where}", did_you_mean(group, known, remedy))

    def _ask_logs(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, raw_group.Log]:
        return self.asker.logs(partitions) if self.asker is not None and self.logs else {}
