"""What all findings share: ages, whether the group is at rest, and the remedies of offsets."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, TypeAlias

from zkgroup.clients.kafka.responses import OFFSETS_IN_KAFKA
from zkgroup.errors import Remedy
from zkgroup.groups.findings.finding_kinds import DAY, SECOND, ago
from zkgroup.groups.group_model import GroupMember, GroupPartition, GroupSnapshot, OffsetStore
from zkgroup.groups.partition_scope import ranges, whole
from zkgroup.groups.snapshot.snapshot_defects import (
    damaged_topics,
    foreign_members,
    rebalance_obstacles,
)
from zkgroup.protocol.names import TopicPartition
from zkgroup.text import Command, group_command

if TYPE_CHECKING:
    from zkgroup.groups.assignment.strategy_inference import StrategyInference

#: A rebalance of a healthy group took 2.3 s: what has not settled by then is no rebalance.
REST: Final = 10 * SECOND
#: Two of the Scala consumer's default intervals between commits: after that, a member that makes progress has
#: committed.
COMMITTED_BY_THEN: Final = 120 * SECOND
#: After that, the findings of an unchanged group without members are less severe.
ABANDONED: Final = 7 * DAY

# The console consumer generates such a name, and never uses it again.
_CONSOLE: Final = re.compile(r"console-consumer-[0-9]+", re.ASCII)
LEFTOVER_AFTER: Final = 3600 * SECOND


@dataclass(frozen=True)
class GroupFacts:
    """A group under inspection. Times are milliseconds since 1970."""

    snapshot: GroupSnapshot
    inference: StrategyInference | None = None
    earlier: GroupSnapshot | None = None

    @cached_property
    def by_key(self) -> Mapping[TopicPartition, GroupPartition]:
        return {partition.key: partition for partition in self.snapshot.partitions}

    @cached_property
    def members(self) -> Mapping[str, GroupMember]:
        return {member.member: member for member in self.snapshot.members}

    @cached_property
    def now(self) -> int:
        """The time of the snapshot; ZooKeeper's newest time where this machine's clock is behind it."""
        return max(self.read_at, self._newest or 0, self.snapshot.last_change or 0)

    @property
    def read_at(self) -> int:
        """The time of the snapshot by this machine's clock."""
        return self.snapshot.taken_at + round(self.snapshot.took * SECOND)

    def when(self, at: int) -> str:
        """How long ago a time of ZooKeeper's was, or how far it is in the future."""
        ahead = at - self.read_at
        return f"{ago(ahead)} in the future" if ahead >= SECOND else f"{ago(-ahead)} ago"

    @cached_property
    def _newest(self) -> int | None:
        """The last known change of members, owners, or partitions, by ZooKeeper's clock."""
        times: list[int | None] = [member.created_at for member in self.snapshot.members]
        times += [partition.since for partition in self.snapshot.partitions]
        for name in self.snapshot.subscribed:
            if (topic := self.snapshot.topics.get(name)) is not None:
                times += [topic.created_at, topic.changed_at]
        # Only the owner of a partition commits for it: its last commit dates its departure.
        times += [partition.stored.changed_at for partition in unowned(self.snapshot) if partition.stored is not None]
        return max((time for time in times if time is not None), default=None)

    @cached_property
    def is_settling(self) -> bool:
        """Whether something changed so recently that members may not have settled yet.

        Deleted nodes leave no time. A member's departure shows in its last commits, in later claims of others, or in an
        earlier snapshot.
        """
        if self.snapshot.kafka_phase:
            return True
        if self._newest is not None and self.now - self._newest < REST:
            return True
        before = self.earlier
        return before is not None and self.now - before.taken_at < REST and _claims(before) != _claims(self.snapshot)

    @cached_property
    def is_unread(self) -> bool:
        """Whether messages wait, and no member reads any topic."""
        return not any(one.streams for one in self.snapshot.members) and any(
            (p.known_lag("both") or 0) > 0 for p in self.partitions
        )

    @cached_property
    def unregistered_owners(self) -> frozenset[TopicPartition]:
        """Partitions that no registered member owns, or whose owner node is empty: members cannot claim them."""
        unknown = self.snapshot.has_hidden_members
        return frozenset(
            p.key
            for p in self.snapshot.partitions
            if not p.is_unreadable and ((p.owner is not None and p.member is None and not unknown) or p.error)
        )

    @cached_property
    def unowned_before(self) -> frozenset[TopicPartition]:
        """Partitions without an owner in an earlier snapshot, too, from longer ago than a rebalance takes."""
        if self.earlier is None or self.now - self.earlier.taken_at < REST:
            return frozenset()
        return frozenset(partition.key for partition in unowned(self.earlier))

    @cached_property
    def gaps(self) -> tuple[GroupPartition, ...]:
        """Partitions that should be owned and are not, for longer than a rebalance takes."""
        missing = unowned(self.snapshot)
        return tuple(p for p in missing if p.key in self.unowned_before) if self.is_settling else missing

    @cached_property
    def unread(self) -> frozenset[TopicPartition]:
        """The gaps, and the partitions that no registered member owns."""
        gaps = frozenset(partition.key for partition in self.gaps)
        return gaps if self.is_settling else gaps | self.unregistered_owners

    @cached_property
    def is_active(self) -> bool:
        """Whether the group has members, or may have: hidden ones may be active."""
        alive = bool(self.snapshot.members or self.snapshot.kafka_members)
        return alive or self.snapshot.has_hidden_members or self.snapshot.kafka_members_unknown

    @cached_property
    def stopping_topics(self) -> tuple[str, ...]:
        """The paths of topics' nodes on which every rebalance fails: subscribed ones, damaged otherwise than empty."""
        return tuple(error.path for error in damaged_topics(self.snapshot, passed_over=False))

    @cached_property
    def obstacle(self) -> str | None:
        """What must be done before any rebalance can succeed; None without an obstacle."""
        return next((obstacle.remedy for obstacle in rebalance_obstacles(self.snapshot)), None)

    @cached_property
    def overtaken(self) -> frozenset[str]:
        """The members all of whose owner nodes are older than the last change of members (ZooKeeper numbers both).

        Scala members and zkgroup's release and claim everything in each rebalance. Those of other clients may keep what
        does not change: they are not among them. Without brokers nobody rebalances.
        """
        names = self.members.keys() - self.foreign if self.snapshot.broker_ids else ()
        return frozenset(name for name in names if 0 < self._newest_claims.get(name, 0) < self.snapshot.ids_changed)

    @cached_property
    def _newest_claims(self) -> Mapping[str, int]:
        newest: dict[str, int] = {}
        for p in self.snapshot.partitions:
            if p.member is not None:
                newest[p.member] = max(newest.get(p.member, 0), p.claimed)
        return newest

    @cached_property
    def unresponsive(self) -> frozenset[str]:
        """The ``overtaken`` members, while others have claimed since that change, or have had the time to."""
        if self.is_settling:
            return frozenset()
        changed, before = self.snapshot.ids_changed, self.earlier
        long_ago = before is not None and before.ids_changed == changed and self.now - before.taken_at >= REST
        dated = any(m.czxid == changed for m in self.snapshot.members)  # the group is at rest, so it came long ago
        others = any(claimed > changed for claimed in self._newest_claims.values())
        return self.overtaken if long_ago or dated or others else frozenset()

    @property
    def is_plan_known(self) -> bool:
        """Whether all may be read that a plan, and who has what, depends on."""
        unknown = self.snapshot.has_hidden_members or self.snapshot.has_hidden_owners or self.snapshot.has_hidden_topics
        return not unknown and not any(member.is_unreadable for member in self.snapshot.members)

    @cached_property
    def foreign(self) -> frozenset[str]:
        """The members of other clients than the Scala consumer."""
        return foreign_members(self.snapshot)

    @cached_property
    def at_rest_for(self) -> int | None:
        """How long no node of the group has changed, in milliseconds; None where that is unknown."""
        changed = self.snapshot.last_change
        return None if changed is None else self.now - changed

    @cached_property
    def is_abandoned(self) -> bool:
        return not self.is_active and self.at_rest_for is not None and self.at_rest_for >= ABANDONED

    @cached_property
    def is_leftover(self) -> bool:
        """Whether the group has no members, and is a console consumer's or empty."""
        if self.is_active or self.at_rest_for is None or self.snapshot.kafka_offsets_unknown or self.snapshot.foreign:
            return False
        if _CONSOLE.fullmatch(self.snapshot.group):
            return self.at_rest_for >= LEFTOVER_AFTER
        return self.at_rest_for >= ABANDONED and not any(p.owner or p.stored or p.kafka for p in self.partitions)

    @property
    def partitions(self) -> tuple[GroupPartition, ...]:
        return self.snapshot.partitions

    def command(self, name: str, *options: str) -> Command:
        """A command about the group."""
        return group_command(name, self.snapshot.group, *options)

    def rebalance(self) -> Remedy:
        """The end of a remedy that needs a rebalance: nothing without members, the obstacle where there is one."""
        if not self.snapshot.members:
            return Remedy("")
        if self.obstacle is not None:
            return Remedy(self.obstacle)
        return Remedy("make the group rebalance", self.command("assign", "--execute"))

    def has_readers(self, partition: GroupPartition) -> bool:
        """Whether a member reads the partition, or would by its subscription, in ZooKeeper or in Kafka."""
        if partition.topic in self.snapshot.subscribed or partition.owner is not None:
            return True
        return partition.key in self._assigned_in_kafka

    @cached_property
    def _assigned_in_kafka(self) -> frozenset[TopicPartition]:
        return frozenset(self.snapshot.kafka_owners)


def unowned(snapshot: GroupSnapshot) -> tuple[GroupPartition, ...]:
    """Partitions that exist, are subscribed to, and have no owner node."""
    return tuple(
        partition
        for partition in snapshot.partitions
        if partition.exists
        and partition.owner is None
        and partition.error is None
        and not partition.is_unreadable
        and partition.topic in snapshot.subscribed
    )


def _claims(snapshot: GroupSnapshot) -> tuple[object, ...]:
    owned = frozenset((p.key, p.owner, p.since) for p in snapshot.partitions if p.owner is not None)
    return frozenset(member.member for member in snapshot.members), owned


def topic_option(keys: Sequence[TopicPartition]) -> tuple[str, str]:
    """``--topic orders:0,3-5``: exactly these partitions, however many."""
    return "--topic", f"{keys[0].topic}:{ranges(key.partition for key in keys)}"


def stopped(active: bool) -> str:
    """The beginning of a remedy that needs all members stopped."""
    return "stop the members, then " if active else ""


def topic_removal(facts: GroupFacts, topic: str) -> Remedy:
    """How to remove a topic's offsets from both stores; other members may stay active, but none on this topic."""
    read = topic in facts.snapshot.subscribed or any(p.owner is not None for p in facts.partitions if p.topic == topic)
    those = [p for p in facts.partitions if p.topic == topic]
    removing = facts.command("unsubscribe", "--topic", whole(topic), "--execute")
    return _removal_of(those, removing).after("stop the members that read it, then " if read else "")


def offset_removal(facts: GroupFacts, keys: Sequence[TopicPartition]) -> Remedy:
    """How to remove the offsets of exactly these partitions of one topic."""
    removing = facts.command("delete-group", *topic_option(keys), "--execute")
    return _removal_of([facts.by_key[key] for key in keys], removing)


def _removal_of(those: Sequence[GroupPartition], removing: Command) -> Remedy:
    """``removing`` for offsets in ZooKeeper; zkgroup cannot remove single ones from Kafka."""
    here = Remedy("remove its offsets", removing)
    if not any(p.committed("kafka") is not None for p in those):
        return here
    there = Remedy(f"in Kafka {OFFSETS_IN_KAFKA}")
    return here.then(there, "; ") if any(p.stored is not None for p in those) else there


#: The stores in which an offset is wrong; None is the only store that has one, or both where they agree.
WrongStores: TypeAlias = Set[OffsetStore | None]


def reset_remedy(
    facts: GroupFacts,
    keys: Sequence[TopicPartition],
    what: str,
    target: str,
    *,
    why: str = "",
    wrong: Mapping[TopicPartition, WrongStores] = MappingProxyType({}),
) -> Remedy:
    """A reset to ``target`` (an option), described by ``what``. The store that is not ``wrong`` keeps its offset."""
    parts: dict[tuple[str, ...], list[TopicPartition]] = {}
    for key in keys:
        parts.setdefault(_alone(facts.by_key[key], wrong.get(key, frozenset())), []).append(key)
    commands = (
        facts.command("reset-offsets", *topic_option(part), target, *option, "--execute")
        for option, part in parts.items()
    )
    return Remedy(f"{why}{stopped(facts.is_active)}{what}", *commands)


#: What ``reset_remedy`` does with ``--to-earliest``.
TO_EARLIEST: Final = "go to the log's start (or, with --to-latest, to its end)"


def correction(
    facts: GroupFacts, keys: Sequence[TopicPartition], why: str, wrong: Mapping[TopicPartition, WrongStores]
) -> Remedy:
    """How to set ``wrong`` offsets: from the other store, where its offset is right, else to the log's start."""
    right: dict[str, list[TopicPartition]] = {}
    for key in keys:
        right.setdefault(_taken_over(facts, facts.by_key[key], wrong[key]), []).append(key)
    rest = right.pop("", [])
    if not right:
        return reset_remedy(facts, rest, TO_EARLIEST, "--to-earliest", why=why, wrong=wrong)
    commands = (
        facts.command("migrate-group", "--to", to, "--prefer", "source", *topic_option(part), "--execute")
        for to, part in right.items()
    )
    remedy = Remedy(f"{why}{stopped(facts.is_active)}take over the other store's offset", *commands)
    return remedy.then(reset_remedy(facts, rest, TO_EARLIEST, "--to-earliest", wrong=wrong), "; ") if rest else remedy


def _taken_over(facts: GroupFacts, p: GroupPartition, wrong: WrongStores) -> str:
    """The only store with a wrong offset, if the other store's lies within the log; else an empty text."""
    to, good = "", None
    if wrong == {"zookeeper"} and p.kafka is not None:
        to, good = "zookeeper", p.kafka.offset
    elif wrong == {"kafka"} and p.stored is not None and p.stored.defect is None and not is_stale(facts, p):
        to, good = "kafka", p.stored.offset
    return "" if good is None or p.why_outside(good) else to


def _alone(partition: GroupPartition, wrong: WrongStores) -> tuple[str, ...]:
    """The option that keeps the other store's offset; nothing where there is none, or it is wrong, too. An unknown
    offset may exist and be right."""
    if partition.kafka_unknown and wrong:
        return ("--store", "zookeeper")
    if wrong == {"zookeeper"} and partition.committed("kafka") is not None:
        return ("--store", "zookeeper")
    if wrong == {"kafka"} and partition.stored is not None:
        return ("--store", "kafka")
    return ()


def offsets_of(partition: GroupPartition) -> Iterable[tuple[OffsetStore | None, int]]:
    """Each offset with its store, named where it matters: an offset that both agree on comes once."""
    stored, kafka = partition.committed("zookeeper"), partition.committed("kafka")
    if stored is not None:
        yield None if kafka in (None, stored) else "zookeeper", stored
    if kafka is not None and kafka != stored:
        yield "kafka", kafka


def is_stale(facts: GroupFacts, p: GroupPartition) -> bool:
    """Whether ZooKeeper's offset was written before the topic was created."""
    topic = facts.snapshot.topics.get(p.topic)
    if topic is None or not topic.exists or p.stored is None or not p.stored.offset:
        return False
    if p.stored.mzxid and topic.czxid:  # transaction ids are exact; 0 where they are unknown
        return p.stored.mzxid < topic.czxid
    return topic.created_at is not None and 0 < p.stored.changed_at < topic.created_at


def is_gone(facts: GroupFacts, p: GroupPartition) -> bool:
    """Whether the partition surely does not exist: no member gets it, and its offset cannot be set."""
    if p.exists or (not facts.snapshot.existing_topics and facts.snapshot.problems):
        return False  # the list of topics may be what could not be read
    topic = facts.snapshot.topics.get(p.topic)
    return topic is None or topic.error is None or not topic.exists
