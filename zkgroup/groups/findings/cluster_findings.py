"""Findings about the group as a whole, its cluster, and nodes that may not be read. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from zkgroup.clients.kafka.responses import words_of
from zkgroup.errors import Notice, Remedy
from zkgroup.groups.findings.finding_kinds import Finding, Severity, ago, finding, first_few, per_topic
from zkgroup.groups.findings.group_facts import COMMITTED_BY_THEN, REST, GroupFacts, topic_removal
from zkgroup.groups.group_model import FaultyBroker, GroupPartition, NodeProblem
from zkgroup.groups.partition_scope import whole
from zkgroup.groups.snapshot.snapshot_defects import members_failed_by, notes_by_reason, read_twice
from zkgroup.groups.snapshot.znode_reader import topic_path
from zkgroup.protocol import znodes
from zkgroup.protocol.names import TopicPartition, spans
from zkgroup.text import counted, short

_WRITE_TOPIC: Final = "write the topic's partitions and replicas into the node again, with a ZooKeeper client"
_UNREAD: Final = ": members take the topic for one without partitions, and read the others"
_STOPS: Final = ": a member that reads the topic fails every rebalance, after it has released its partitions"
_CHECK_BROKERS: Final = Remedy(
    "check that the brokers run and that their addresses can be reached from here, then inspect again"
)
_MEND_BROKER: Final = (
    "give the broker a listener of the name and protocol PLAINTEXT, with a host of letters, digits, - and ., and"
    " restart it, so that it registers anew; delete the node if it is no broker's"
)


def diagnose_cluster(facts: GroupFacts) -> Iterator[Finding]:
    """Findings about no single member, owner or offset."""
    snapshot = facts.snapshot
    if snapshot.in_zookeeper and not snapshot.broker_ids and znodes.broker_ids() not in snapshot.unreadable:
        yield finding(
            "cluster-without-broker",
            snapshot.group,
            "no broker is registered: nothing can be read, and members that start own nothing until one comes",
            "start the brokers; if they run, compare the chroot in their zookeeper.connect with the one given here",
        )
    for part in (_faulty_brokers, _leaders, _deletions, _split, _problems, _unreadable, _incomplete):
        yield from part(facts)
    if facts.is_settling and facts.now - facts.read_at >= COMMITTED_BY_THEN:
        yield finding(
            "incomplete-snapshot",
            snapshot.group,
            f"it changed {facts.when(facts.now)}: whether it is at rest is unknown, and what depends on it not judged",
            "set the clocks of this machine and of the ZooKeeper servers",
        )
    if facts.is_leftover and facts.at_rest_for is not None:
        yield finding(
            "leftover-group",
            snapshot.group,
            f"has no member, and was last changed {ago(facts.at_rest_for)} ago",
            Remedy("delete it", facts.command("delete-group", "--execute")),
        )


def _faulty_brokers(facts: GroupFacts) -> Iterator[Finding]:
    """Brokers that make members fail. Members read all brokers, whichever lead their partitions. No node names a
    member's release: only the state of the group shows that such a broker stops some of them."""
    brokers = facts.snapshot.faulty_brokers
    for broker in brokers:
        fault = broker.fault
        members = members_failed_by(facts.snapshot, broker)
        if not members or (fault.rebalances and len(brokers) == len(facts.snapshot.broker_ids) and not _stuck(facts)):
            continue
        which = "all members of the Scala consumer" if fault.releases is None else f"members {fault.releases}"
        does = "claim their partitions and read nothing" if fault.rebalances else "fail their rebalances"
        yield finding(
            "incompatible-broker",
            broker.path,
            f"{fault.why}: {which} {does} while it is registered so; in this group {first_few(members)}",
            _MEND_BROKER,
            "critical" if fault.releases is None or _do_fail(facts, broker, members) else "info",
        )


def _do_fail(facts: GroupFacts, broker: FaultyBroker, members: Sequence[str]) -> bool:
    """Whether some of ``members``, which the broker may make fail, do fail: a member whose rebalance fails claims
    nothing, or keeps its owner nodes and stops reading."""
    if broker.fault.rebalances:
        to_the_last = broker.fault.releases is not None and broker.fault.releases.last is None
        return to_the_last or _stuck(facts)  # who reads is not among ``members``
    changed_since = facts.snapshot.ids_changed > broker.czxid
    return bool(facts.gaps) or (changed_since and not facts.unresponsive.isdisjoint(members))


def _stuck(facts: GroupFacts) -> bool:
    """Whether a partition has been owned and unread for longer than a commit takes. Where no broker is compatible the
    members may be no Scala consumers, but clients with similar ids."""
    return any(
        p.owner is not None
        and p.since is not None
        and facts.now - p.since > COMMITTED_BY_THEN
        and (p.log_end is None or p.log_end > (p.committed("both") or p.log_start or 0))
        for p in facts.partitions
    )


def _leaders(facts: GroupFacts) -> Iterator[Finding]:
    snapshot = facts.snapshot
    if not snapshot.broker_ids:
        return
    read: list[tuple[TopicPartition, str]] = []
    others: list[tuple[TopicPartition, str]] = []
    for p in facts.partitions:
        why = _without_leader(facts, p)
        if why is not None:
            (read if facts.has_readers(p) else others).append((p.key, why))
    remedy = "start the brokers of its replicas; until then nothing of it can be read or written"
    yield from per_topic("partition-without-leader", read, remedy)
    yield from per_topic("partition-without-leader", others, remedy, "warning")


def _without_leader(facts: GroupFacts, p: GroupPartition) -> str | None:
    """Why the partition has no leader, or None. A log end came from a leader; a new topic has none yet."""
    topic = facts.snapshot.topics.get(p.topic)
    if not p.exists or p.log_end is not None or p.leader_unknown:
        return None
    if topic is not None and topic.error is not None:
        return None  # the topic has a finding
    if topic is not None and topic.created_at is not None and facts.now - topic.created_at < REST:
        return None
    if p.leader is None or p.leader < 0:
        return "has no leader"
    if p.leader not in facts.snapshot.broker_ids:
        return f"is led by broker {p.leader}, which is not registered"
    return None


def _deletions(facts: GroupFacts) -> Iterator[Finding]:
    snapshot = facts.snapshot
    owned = {p.topic for p in facts.partitions if p.owner is not None}
    for name, topic in sorted(snapshot.topics.items()):
        if topic.to_be_deleted:
            read = name in snapshot.subscribed or name in owned
            yield finding(
                "topic-marked-for-deletion",
                name,
                "is marked for deletion"
                + (", and members of the group read it" if read else "; the group's offsets of it will stay behind"),
                topic_removal(facts, name).after(
                    "a mark that stays is one that brokers cannot act on (delete.topic.enable=false, a replica's broker"
                    " down); if it is meant, "
                ),
                "warning" if read else "info",
            )


def _split(facts: GroupFacts) -> Iterator[Finding]:
    members, others = facts.snapshot.members, facts.snapshot.kafka_members
    if not members or not others:
        return
    twice = read_twice(facts.snapshot)
    here, there = counted(len(members), "member"), counted(len(others), "member")
    yield finding(
        "split-group",
        facts.snapshot.group,
        f"has {here} in ZooKeeper and {there} in Kafka, which know nothing of each other"
        + (f": {counted(len(twice), 'partition')} read twice ({spans(twice[:20])})" if twice else ""),
        Remedy(
            "stop one side before the other starts; compare the offsets of both",
            facts.command("offsets", "--store", "both"),
        ),
        "critical" if twice else "warning",
    )


def _problems(facts: GroupFacts) -> Iterator[Finding]:
    snapshot = facts.snapshot
    problems = [p for p in dict.fromkeys(snapshot.problems) if p.path not in facts.stopping_topics]
    for name, topic in sorted(snapshot.topics.items()):
        unreadable = (topic_path(name) or "") in facts.snapshot.unreadable
        if topic.exists and topic.error is not None and topic.error not in problems and not unreadable:
            error = topic.error
            effect = _UNREAD if topic.passed_over else _STOPS if error.path in facts.stopping_topics else ""
            problems.append(replace(error, why=error.why + effect))
    by_why: dict[tuple[str, bool, Severity], list[NodeProblem]] = {}
    for problem in problems:
        severity: Severity = "critical" if problem.path in facts.stopping_topics else "warning"
        by_why.setdefault((problem.why, problem.owned_topic is not None, severity), []).append(problem)
    for (why, _, severity), alike in by_why.items():
        paths = [problem.path for problem in alike]
        topics = any(path.startswith(f"{znodes.topics()}/") for path in paths)
        remedy = _WRITE_TOPIC if topics else _correction(facts, alike)
        yield _of_nodes(facts, paths, why, remedy, severity)


def _correction(facts: GroupFacts, alike: Sequence[NodeProblem]) -> str | Remedy:
    owned = dict.fromkeys(one.owned_topic for one in alike if one.owned_topic is not None)
    if owned:
        commands = (facts.command("release-owners", "--topic", whole(topic), "--execute") for topic in owned)
        return Remedy("remove what no session owns there", *commands)
    if len(alike) > 1:
        return "inspect the nodes: correct them, or remove each with ZooKeeper's own shell"
    return f"inspect the node: correct it, or remove it with ZooKeeper's own shell: delete {short(alike[0].path)}"


def _incomplete(facts: GroupFacts) -> Iterator[Finding]:
    snapshot = facts.snapshot
    unknown = [*snapshot.warnings, *map(Notice, words_of("the group", snapshot.kafka_failures))]
    reported = snapshot.reported_reasons
    unled = (p for p in facts.partitions if p.leader is None or _without_leader(facts, p) is not None)
    has_finding = {p.key for p in unled}
    logs = ((p, p.log_error) for p in facts.partitions if p.exists and p.key not in has_finding)
    unknown += notes_by_reason(logs, but=reported)
    unknown += notes_by_reason(
        ((p, p.kafka.error if p.kafka else None) for p in facts.partitions), "in Kafka: ", but=reported
    )
    if unknown:
        yield finding(
            "incomplete-snapshot",
            snapshot.group,
            f"{first_few([one.message for one in unknown], '; ')}: what depends on it was not judged",
            next(filter(None, (one.remedy for one in unknown)), _CHECK_BROKERS),
        )


def _unreadable(facts: GroupFacts) -> Iterator[Finding]:
    """Nodes that may not be read; members have findings of their own. An access list says nothing about the group:
    whatever depends on such a node is not judged elsewhere."""
    alike: dict[tuple[str, Severity], list[str]] = {}
    root = f"/consumers/{facts.snapshot.group}"
    for path, why in facts.snapshot.unreadable.items():
        if not path.startswith(f"{root}/ids/"):
            severity: Severity = "info" if path in (root, znodes.delete_topics()) else "warning"
            alike.setdefault((why, severity), []).append(path)
    for (why, severity), paths in alike.items():
        remedy = "connect with credentials that its access list admits: until then its content is unknown"
        message = f"cannot be read: {why}; what depends on it was not judged"
        yield _of_nodes(facts, paths, message, remedy, severity)


def _of_nodes(facts: GroupFacts, paths: Sequence[str], why: str, remedy: str | Remedy, severity: Severity) -> Finding:
    if len(paths) == 1:
        return finding("unreadable-node", paths[0], why, remedy, severity)
    text = f"{len(paths)} nodes, of which each {why}: {first_few(paths)}"
    return finding("unreadable-node", facts.snapshot.group, text, remedy, severity)
