"""What all judgements of a group share: how old everything is, whether it is at rest, and how findings are worded."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final

from zkgroup.clients.kafka.responses import OFFSETS_IN_KAFKA
from zkgroup.errors import Remedy, as_remedy
from zkgroup.groups.findings.finding_kinds import KINDS, Finding, Severity
from zkgroup.groups.group_model import GroupMember, GroupPartition, GroupSnapshot
from zkgroup.groups.partition_scope import ranges, whole
from zkgroup.groups.snapshot.ownership import foreign_members, stops_rebalances
from zkgroup.groups.snapshot.tables import kafka_members
from zkgroup.protocol import znodes
from zkgroup.protocol.names import TopicPartition, span_list
from zkgroup.shell_commands import Command, group_command
from zkgroup.text import listed, short

if TYPE_CHECKING:
    from zkgroup.groups.assignment.strategy_inference import StrategyInference

SECOND: Final = 1000
DAY: Final = 86_400 * SECOND

#: A healthy group settled within 2.3 s of a join; what is not settled by then is no rebalance.
REST: Final = 10 * SECOND
#: Two of the Scala consumer's default intervals between commits: after that, who makes progress has committed.
COMMITTED_BY_THEN: Final = 120 * SECOND
#: A group without members that has not changed for so long is nobody's concern at night.
ABANDONED: Final = 7 * DAY

#: How many examples a message names, and how long a subject may get.
EXAMPLES: Final = 3
SUBJECT_LENGTH: Final = 120
#: What is read is anybody's: a message is for people even so, and a field of CSV that others' readers take.
MESSAGE_LENGTH: Final = 4000

# The Scala consumer's console consumer makes such a name up, and never uses it again.
_CONSOLE: Final = re.compile(r"console-consumer-[0-9]+", re.ASCII)
DEBRIS_AFTER: Final = 3600 * SECOND


@dataclass(frozen=True)
class Scene:
    """A group to be judged. Times are milliseconds since 1970."""

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
        """The time of the look; where this machine's clock is behind ZooKeeper's, the newest time seen there."""
        looked = self.snapshot.taken_at + round(self.snapshot.took * SECOND)
        return max(looked, self._newest or 0, self.snapshot.last_change or 0)

    @cached_property
    def _newest(self) -> int | None:
        """When members, owners, or partitions to be owned were last seen to change, by ZooKeeper's clock."""
        times: list[int | None] = [member.created_at for member in self.snapshot.members]
        times += [partition.since for partition in self.snapshot.partitions]
        for name in self.snapshot.subscribed:
            if (topic := self.snapshot.topics.get(name)) is not None:
                times += [topic.created_at, topic.changed_at]
        # Only who owns a partition commits for it: with its last commit an owner that has gone dates its going.
        times += [partition.stored.changed_at for partition in unowned(self.snapshot) if partition.stored is not None]
        return max((time for time in times if time is not None), default=None)

    @cached_property
    def settling(self) -> bool:
        """Whether something has changed so lately that members may not have settled yet.

        Nodes that went leave no time behind: that a member left shows by its last commits, by what others claimed after
        it, or beside an earlier look.
        """
        if self.rebalancing_in_kafka:
            return True
        if self._newest is not None and self.now - self._newest < REST:
            return True
        before = self.earlier
        return before is not None and self.now - before.taken_at < REST and _claims(before) != _claims(self.snapshot)

    @property
    def rebalancing_in_kafka(self) -> str | None:
        """The coordinator's word for it; None where the group's members there are at rest, or there are none."""
        group = self.snapshot.coordinator
        if group is None or not group.members or group.state.lower() in ("stable", "unknown"):
            return None
        return group.state

    @cached_property
    def strangers(self) -> frozenset[TopicPartition]:
        """What is owned by nobody who is registered, or by a node that says nothing: members cannot claim it."""
        unknown = self.snapshot.members_hidden
        return frozenset(
            p.key
            for p in self.snapshot.partitions
            if not p.hidden and ((p.owner is not None and p.member is None and not unknown) or p.error)
        )

    @cached_property
    def persisted(self) -> frozenset[TopicPartition]:
        """Partitions that an earlier look, longer ago than any rebalance takes, found unowned as well."""
        if self.earlier is None or self.now - self.earlier.taken_at < REST:
            return frozenset()
        return frozenset(partition.key for partition in unowned(self.earlier))

    @cached_property
    def gaps(self) -> tuple[GroupPartition, ...]:
        """Partitions that should be owned and are not, and for longer than a rebalance takes."""
        missing = unowned(self.snapshot)
        return tuple(p for p in missing if p.key in self.persisted) if self.settling else missing

    @cached_property
    def unread(self) -> frozenset[TopicPartition]:
        """The gaps, and what is owned by nobody who is registered."""
        gaps = frozenset(partition.key for partition in self.gaps)
        return gaps if self.settling else gaps | self.strangers

    @cached_property
    def active(self) -> bool:
        """Whether somebody works for the group, or may: who may not be seen may be at work."""
        group = self.snapshot.coordinator
        alive = bool(self.snapshot.members) or (group is not None and bool(group.members))
        return alive or self.snapshot.members_hidden or self.snapshot.kafka_members_unknown

    @cached_property
    def stopping(self) -> tuple[str, ...]:
        """The members whose registration nobody gets past: to be mended before anything else is tried."""
        return tuple(m.member for m in self.snapshot.members if m.error is not None and not m.hidden)

    @property
    def obstacle(self) -> str | None:
        """What is to be done before any rebalance can come to anything; None where nothing stands against it."""
        if self.stopping:
            names = few(self.stopping)
            return f"mend the registration of {names} first: no Scala member can rebalance beside it"
        for broker in self.snapshot.faulty_brokers:
            if stops_rebalances(self.snapshot, broker):
                return f"mend {broker.path} first: no member of the Scala consumer can rebalance beside it"
        if not self.snapshot.broker_ids and znodes.broker_ids() not in self.snapshot.hidden:
            return "start the brokers first: members keep what they own, and claim nothing, while none is registered"
        return None

    @cached_property
    def unresponsive(self) -> frozenset[str]:
        """The members that have not rebalanced since the group changed: each of their owner nodes is older than that
        change (ZooKeeper numbers both), while others have claimed anew since, or have had the time to.

        Scala members, and those of zkgroup, release and claim whatever they own in every rebalance; those of other
        kinds may keep what does not change, so that nothing is said of them.
        """
        changed = self.snapshot.ids_changed
        if not changed or self.settling or not self.snapshot.broker_ids:  # without brokers nobody rebalances
            return frozenset()
        newest: dict[str, int] = {}
        for p in self.snapshot.partitions:
            if p.member is not None:
                newest[p.member] = max(newest.get(p.member, 0), p.claimed)
        before = self.earlier is not None and self.earlier.ids_changed == changed
        long_ago = before and self.earlier is not None and self.now - self.earlier.taken_at >= REST
        dated = any(m.czxid == changed for m in self.snapshot.members)  # the group is at rest, so it came long ago
        if not (long_ago or dated or any(claimed > changed for claimed in newest.values())):
            return frozenset()
        return frozenset(
            name
            for name, claimed in newest.items()
            if 0 < claimed < changed and name in self.members and name not in self.foreign
        )

    @cached_property
    def foreign(self) -> frozenset[str]:
        """The members of other clients than the Scala consumer."""
        return foreign_members(self.snapshot)

    @cached_property
    def at_rest_for(self) -> int | None:
        """How long no node of the group has changed; None where that is not known."""
        changed = self.snapshot.last_change
        return None if changed is None else self.now - changed

    @cached_property
    def abandoned(self) -> bool:
        return not self.active and self.at_rest_for is not None and self.at_rest_for >= ABANDONED

    @cached_property
    def debris(self) -> bool:
        """Whether the group is only what is left of one: without members, and a console consumer's or empty."""
        if self.active or self.at_rest_for is None or self.snapshot.kafka_offsets_unknown or self.snapshot.foreign:
            return False
        if _CONSOLE.fullmatch(self.snapshot.group):
            return self.at_rest_for >= DEBRIS_AFTER
        return self.at_rest_for >= ABANDONED and not any(p.owner or p.stored or p.kafka for p in self.partitions)

    @property
    def partitions(self) -> tuple[GroupPartition, ...]:
        return self.snapshot.partitions

    def command(self, name: str, *options: str) -> Command:
        """A command about the group."""
        return group_command(name, self.snapshot.group, *options)

    def rebalance(self) -> Remedy:
        """How a remedy goes on that ends in a rebalance. Nothing where nobody is there to rebalance; where something
        stands against it, that."""
        if not self.snapshot.members:
            return Remedy("")
        if self.obstacle is not None:
            return Remedy(self.obstacle)
        return Remedy("make the group rebalance", self.command("assign", "--execute"))

    def concerns_readers(self, partition: GroupPartition) -> bool:
        """Whether a member reads the partition, or would on its own account, in ZooKeeper or in Kafka."""
        if partition.topic in self.snapshot.subscribed or partition.owner is not None:
            return True
        return partition.key in self._assigned_in_kafka

    @cached_property
    def _assigned_in_kafka(self) -> frozenset[TopicPartition]:
        return frozenset(kafka_members(self.snapshot))


def unowned(snapshot: GroupSnapshot) -> tuple[GroupPartition, ...]:
    """Partitions that exist, are subscribed to, and have no owner node."""
    return tuple(
        partition
        for partition in snapshot.partitions
        if partition.exists
        and partition.owner is None
        and partition.error is None
        and not partition.hidden
        and partition.topic in snapshot.subscribed
    )


def _claims(snapshot: GroupSnapshot) -> tuple[object, ...]:
    owned = frozenset((p.key, p.owner, p.since) for p in snapshot.partitions if p.owner is not None)
    return frozenset(member.member for member in snapshot.members), owned


# --- wording --------------------------------------------------------------------------------------------------------


def finding(code: str, subject: str, message: str, remedy: str | Remedy, severity: Severity | None = None) -> Finding:
    """A finding of a kind; its worst severity where none is given."""
    worst = KINDS[code].severities[0]
    return Finding(code, severity or worst, subject, short(message, MESSAGE_LENGTH), as_remedy(remedy))


def per_topic(
    code: str,
    found: Iterable[tuple[TopicPartition, str]],
    remedy: str | Remedy | Callable[[Sequence[TopicPartition]], Remedy],
    severity: Severity | None = None,
) -> list[Finding]:
    """One finding for each topic, out of partitions and what is said of each (a predicate: ``has no owner``).

    ``remedy``: one for all, or made for the partitions of each topic.
    """
    topics: dict[str, dict[TopicPartition, str]] = {}
    for key, text in found:
        topics.setdefault(key.topic, {})[key] = text
    findings = []
    for said in topics.values():
        keys = sorted(said)
        texts = set(said.values())
        if len(keys) == 1:
            message = said[keys[0]]
        elif len(texts) == 1:
            message = f"{len(keys)} partitions, of which each {texts.pop()}"
        else:
            message = f"{len(keys)} partitions: " + few([f"{key.partition} {said[key]}" for key in keys], "; ")
        advice = remedy if isinstance(remedy, str | Remedy) else remedy(keys)
        findings.append(finding(code, subject_of(keys), message, advice, severity))
    return findings


def subject_of(keys: Sequence[TopicPartition]) -> str:
    """Partitions as a subject: all of them, or as many as fit."""
    parts = span_list(keys)
    if len(text := ", ".join(parts)) <= SUBJECT_LENGTH:
        return text
    while len(parts) > 1 and len(", ".join(parts)) > SUBJECT_LENGTH:
        parts.pop()
    return ", ".join(parts) + " …"


def few(names: Sequence[str], between: str = ", ") -> str:
    """The first few of many, as a finding names them."""
    return listed(names, between, EXAMPLES)


def ago(millis: int) -> str:
    """A duration for people: ``8 s``, ``5 min``, ``3 h``, ``9 days``."""
    seconds = max(0, millis) // SECOND
    for size, unit in ((86_400, "days"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"


def topic_option(keys: Sequence[TopicPartition]) -> tuple[str, str]:
    """``--topic orders:0,3-5``: these and no others, however many, as what is right is to stay as it is."""
    return "--topic", f"{keys[0].topic}:{ranges(key.partition for key in keys)}"


def stopped(active: bool) -> str:
    """How a remedy begins that needs the members to be gone."""
    return "stop the members, then " if active else ""


def unsubscribe(scene: Scene, topic: str) -> Remedy:
    """How to be rid of a topic's offsets in either store: others of the group may be at work, but nobody on that
    topic."""
    read = topic in scene.snapshot.subscribed or any(p.owner is not None for p in scene.partitions if p.topic == topic)
    those = [p for p in scene.partitions if p.topic == topic]
    removing = scene.command("unsubscribe", "--topic", whole(topic), "--execute")
    return _rid(those, removing).after("stop the members that read it, then " if read else "")


def rid_of(scene: Scene, keys: Sequence[TopicPartition]) -> Remedy:
    """How to be rid of the offsets of these partitions of one topic, and of no others."""
    removing = scene.command("delete-group", *topic_option(keys), "--execute")
    return _rid([scene.by_key[key] for key in keys], removing)


def _rid(those: Sequence[GroupPartition], removing: Command) -> Remedy:
    """``removing`` for offsets in ZooKeeper; those in Kafka nothing here removes."""
    here = Remedy("remove its offsets", removing)
    if not any(p.kafka is not None and p.kafka.offset is not None for p in those):
        return here
    there = Remedy(f"those in Kafka {OFFSETS_IN_KAFKA}")
    return here.then(there, "; ") if any(p.stored is not None for p in those) else there
