"""What is wrong in a snapshot: what could not be read or was not answered, and defects of the ownership; pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

from zkgroup.errors import Notice, Remedy
from zkgroup.groups.group_model import FaultyBroker, GroupMember, GroupPartition, GroupSnapshot, NodeProblem, Store
from zkgroup.protocol import znodes
from zkgroup.protocol.names import INTERNAL_TOPICS, TopicPartition, session_text, span_list, spans
from zkgroup.text import are, counted, listed, short


def notes(snapshot: GroupSnapshot, store: Store = "both") -> list[Notice]:
    """What could not be read, one line each; partitions with the same problem share a line."""
    lines: list[Notice] = [
        *snapshot.all_warnings,
        *snapshot.age_warnings,
        *(Notice(str(one)) for one in snapshot.problems),
    ]
    lines += foreign_note(snapshot.foreign, "no offsets")
    unreadable = [(path, why) for path, why in snapshot.unreadable.items() if _is_shared(path)]
    lines += [Notice(f"znode {path} cannot be read: {why}") for path, why in unreadable]
    lines += [Notice(f"member {member.member}: {member.error}") for member in snapshot.members if member.error]
    lines += notes_by_reason((p, p.error) for p in snapshot.partitions)
    if store != "kafka":
        offsets = ((p, p.stored) for p in snapshot.partitions if p.stored is not None)
        lines += notes_by_reason(((p, stored.error or stored.defect) for p, stored in offsets), "its offset: ")
    if store != "zookeeper":
        lines += notes_by_reason(((p, p.kafka.error if p.kafka else None) for p in snapshot.partitions), "in Kafka: ")
    return [*lines, *notes_by_reason(((p, p.log_error) for p in snapshot.partitions), but=snapshot.reported_reasons)]


def incomplete_notes(snapshots: Iterable[GroupSnapshot]) -> list[Notice]:
    """A warning, where access lists hide what the rows of groups count: that is only what may be seen."""
    groups = [
        one.group for one in snapshots if any(path.startswith(f"{znodes.group(one.group)}/") for path in one.unreadable)
    ]
    if not groups:
        return []
    message = f"a part of {listed(groups)} may not be read, and is not counted"
    return [Notice(message, Remedy("connect as one whom its list admits"))]


def shared_warnings(snapshots: Iterable[GroupSnapshot], of_all: Iterable[Notice] = ()) -> list[Notice]:
    """The warnings of all snapshots, each once; missing answers of coordinators in one line for each cause. ``of_all``:
    what ``read_groups`` warns of all groups, even if there is none."""
    lines = dict.fromkeys(of_all)
    unknown: dict[tuple[str, str], list[str]] = {}
    for snapshot in snapshots:
        lines |= dict.fromkeys([*snapshot.warnings, *snapshot.unlisted, *snapshot.age_warnings])
        for why in dict.fromkeys(snapshot.kafka_failures.values()):
            what = " and ".join(half for half, reason in snapshot.kafka_failures.items() if reason == why)
            unknown.setdefault((what, why), []).append(snapshot.group)
    for (what, why), names in unknown.items():
        whose = f"group {names[0]} in Kafka" if len(names) == 1 else f"{len(names)} groups in Kafka ({listed(names)})"
        lines[Notice(f"{what} of {whose} are not known: {why}")] = None
    return list(lines)


def foreign_note(paths: Sequence[str], fate: str) -> list[Notice]:
    """What becomes of nodes of a group that no consumer makes, in one line; nothing where there are none."""
    if not paths:
        return []
    what = f"{counted(len(paths), 'node')} of another client {are(len(paths))} {fate}: {listed(paths)}"
    return [Notice(what)]


def _is_shared(path: str) -> bool:
    """Whether a node that may not be read has a line of its own, and not that of a member or a partition."""
    parts = path.split("/")
    return not (len(parts) == 5 and parts[3] == "ids") and not (len(parts) == 6 and parts[1] == "consumers")


def notes_by_reason(
    reasons: Iterable[tuple[GroupPartition, str | None]], prefix: str = "", *, but: Collection[str] = ()
) -> list[Notice]:
    """Partitions with their reasons, a line for each reason, ``but`` for these; of very many partitions only some are
    named, and none without a reason."""
    found: dict[str, list[TopicPartition]] = {}
    for partition, reason in reasons:
        if reason and reason not in but:
            found.setdefault(reason, []).append(partition.key)
    return [Notice(f"{listed(span_list(keys))}: {prefix}{reason}") for reason, keys in found.items()]


def ownership_defects(snapshot: GroupSnapshot) -> list[str]:
    """The defects of the group's ownership; empty if there are none.

    Without defects every partition of every subscribed topic has an owner, a registered member that subscribes to the
    topic with as many streams as the claim needs; no other partition has an owner, and no node is broken. In Kafka the
    group is not rebalancing, and every partition of the assigned topics has one member. Members in ZooKeeper and in
    Kafka read different partitions.

    Nodes that may not be read are no defects: see ``unreadable_ownership``.
    """
    members = {member.member: member for member in snapshot.members}
    defects = [str(problem) for problem in snapshot.problems]
    defects += [f"member {m.member}: {m.error}" for m in snapshot.members if m.error and not m.is_unreadable]
    for partition in snapshot.partitions:
        if partition.is_unreadable:
            continue
        if partition.error is not None:
            defects.append(f"{partition.name}: {partition.error}")
        elif partition.owner is None and partition.topic in snapshot.subscribed and partition.exists:
            defects.append(f"{partition.name} has no owner")
        elif partition.owner is not None:
            defect = claim_defect(partition, members.get(partition.member or ""), snapshot)
            if defect is not None and defect[0] != "owner-of-former-session":
                defects.append(f"{partition.name} {defect[1]}")
    twice = read_twice(snapshot)
    if twice:
        defects.append(f"{spans(twice)} {are(len(twice))} read in ZooKeeper and in Kafka as well")
    return defects + _in_kafka(snapshot)


def unreadable_ownership(snapshot: GroupSnapshot) -> list[str]:
    """The nodes that may not be read, and could have defects of the ownership."""
    root = f"/consumers/{snapshot.group}"
    concern = (f"{root}/ids", f"{root}/owners", znodes.topics())
    return [
        f"znode {path} cannot be read: {why}"
        for path, why in snapshot.unreadable.items()
        if any(path == part or path.startswith(f"{part}/") for part in concern)
    ]


def claim_defect(p: GroupPartition, member: GroupMember | None, snapshot: GroupSnapshot) -> tuple[str, str] | None:
    """The code of a finding and its message, where the owned partition should not be this member's; None where it
    may be."""
    owner = short(p.owner or "")
    if member is None:
        if snapshot.has_hidden_members:
            return None
        session = f" (session {session_text(p.session_id)})" if p.session_id else ""
        return (
            "owner-without-registration",
            f"is owned by {owner}{session}, which is not registered: nobody reads it, nobody else can",
        )
    if member.error is not None:
        return None
    streams = member.streams.get(p.topic, 0)
    if streams == 0:
        # No registration says whether a filter takes internal topics.
        if member.has_filter and (snapshot.has_hidden_topics or p.topic in INTERNAL_TOPICS):
            return None
        return "owner-without-subscription", f"is owned by {owner}, which does not subscribe to the topic"
    if p.stream is not None and p.stream >= streams:
        return (
            "owner-beyond-streams",
            f"is owned by {owner}, whose member has {counted(streams, 'stream')} for the topic",
        )
    if p.session_id and member.session_id and p.session_id != member.session_id:
        return (
            "owner-of-former-session",
            f"is owned by {owner} in session {session_text(p.session_id)}, while that member is registered in"
            f" {session_text(member.session_id)}",
        )
    return None


def read_twice(snapshot: GroupSnapshot) -> list[TopicPartition]:
    """The partitions that a member in ZooKeeper and one in Kafka read, in order."""
    if not snapshot.members:
        return []
    owned = {partition.key for partition in snapshot.partitions if partition.owner is not None}
    return sorted(snapshot.kafka_owners.keys() & owned)


def _in_kafka(snapshot: GroupSnapshot) -> list[str]:
    group = snapshot.coordinator
    if group is None or not group.members:
        return []
    defects = [] if group.state == "Stable" else [f"in Kafka the group is {group.state}"]
    holders: dict[tuple[str, int], list[str]] = {}
    for member in group.members:
        for key in member.assigned:
            holders.setdefault(key, []).append(member.member)
    for (topic, number), names in sorted(holders.items()):
        if len(names) > 1:
            defects.append(f"{topic}-{number} has {len(names)} members in Kafka: {', '.join(sorted(names))}")
    for topic in sorted({topic for topic, _ in holders}):
        there = snapshot.topics[topic].partitions if topic in snapshot.topics else ()
        defects += [f"{topic}-{number} has no member in Kafka" for number in there if (topic, number) not in holders]
    return defects


def foreign_members(snapshot: GroupSnapshot) -> frozenset[str]:
    """Members of other clients than the Scala consumer, whose ids begin with the group's name, whose owner nodes name a
    stream, and whose registrations are read alike by all."""
    bare = {p.member for p in snapshot.partitions if p.member is not None and p.stream is None}
    return frozenset(
        m.member
        for m in snapshot.members
        if not m.member.startswith(f"{snapshot.group}_") or m.member in bare or m.foreign is not None
    )


def members_failed_by(snapshot: GroupSnapshot, broker: FaultyBroker) -> list[str]:
    """The members that a broker's registration makes fail, without those that show that they do not: by a claim since
    the broker registered, or a commit where rebalances succeed. Members of zkgroup have ids of the same form."""
    coping = set()
    for p in snapshot.partitions:
        since = p.claimed
        if broker.fault.rebalances:
            since = p.stored.mzxid if p.stored is not None and p.stored.mzxid > p.claimed else 0
        if p.member is not None and since > broker.czxid:
            coping.add(p.member)
    others = foreign_members(snapshot)
    return [
        m.member for m in snapshot.members if m.member not in others and m.member not in coping and not m.is_unreadable
    ]


def damaged_topics(snapshot: GroupSnapshot, *, passed_over: bool) -> list[NodeProblem]:
    """The damage of nodes of subscribed topics: such that members take the topic for one without partitions
    (``passed_over``), or such that every rebalance fails on it."""
    found = (snapshot.topics.get(name) for name in sorted(snapshot.subscribed))
    damaged = (
        topic.error for topic in found if topic is not None and topic.exists and topic.passed_over == passed_over
    )
    return [error for error in damaged if error is not None and error.is_malformed]


class Obstacle(NamedTuple):
    """Why no rebalance of the group can succeed, and what is to be done first. ``is_after_release``: members release
    what they own before they fail on it; ``is_unknown``: whether it is one is not known."""

    why: str
    remedy: str
    is_after_release: bool = False
    is_unknown: bool = False


def rebalance_obstacles(snapshot: GroupSnapshot) -> Iterator[Obstacle]:
    """What keeps the members of a group from finishing a rebalance, the first to be mended first."""
    stopping = {m.member: m.error for m in snapshot.members if m.error is not None and not m.is_unreadable}
    if stopping:
        why = listed([f"{name}: {error}" for name, error in stopping.items()], "; ", 3)
        remedy = f"mend the registration of {listed([*stopping], most=3)}: until then no Scala member can rebalance"
        yield Obstacle(f"no member gets past the registration of {why}", remedy, is_after_release=True)
    if damaged := damaged_topics(snapshot, passed_over=False):
        paths = listed([problem.path for problem in damaged], most=3)
        remedy = f"mend {paths}: until then no member that reads it can rebalance"
        yield Obstacle(f"no member gets past {damaged[0]}", remedy)
    for broker in snapshot.faulty_brokers:
        fault = broker.fault
        if not fault.rebalances and fault.releases is None and members_failed_by(snapshot, broker):
            remedy = f"mend {broker.path}: until then no member of the Scala consumer can rebalance"
            yield Obstacle(f"no member gets past {broker.path}, which {fault.why}", remedy, is_after_release=True)
    if not snapshot.broker_ids and znodes.broker_ids() not in snapshot.unreadable:
        remedy = "start the brokers: members keep what they own, and claim nothing, while none is registered"
        yield Obstacle("no broker is registered", remedy)
    if unknown := unreadable_ownership(snapshot):
        remedy = "connect with credentials that may read the group's nodes: whether it can rebalance is unknown"
        yield Obstacle(listed(unknown, "; ", 3), remedy, is_unknown=True)
    if not any(member.session_id for member in snapshot.members):
        remedy = "start a member: no session owns the registrations, so none can rebalance"
        yield Obstacle("it has no living member", remedy)
