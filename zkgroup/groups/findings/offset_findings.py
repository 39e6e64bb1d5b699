"""Findings about committed offsets and lag. Pure.

Offsets of groups without members count as well: a member that starts will use them. Those that are unchanged for a
week, and those of console consumers, have a lower severity.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from zkgroup.errors import Remedy
from zkgroup.groups.changes.preconditions import find_unregistered_commits
from zkgroup.groups.findings.finding_kinds import Finding, PartitionTexts, Severity, ago, finding, first_few, per_topic
from zkgroup.groups.findings.group_facts import (
    COMMITTED_BY_THEN,
    TO_EARLIEST,
    GroupFacts,
    WrongStores,
    correction,
    is_gone,
    is_stale,
    offset_removal,
    offsets_of,
    reset_remedy,
    stopped,
    topic_option,
    topic_removal,
)
from zkgroup.groups.group_model import GroupPartition, OffsetStore, in_store
from zkgroup.protocol import znodes
from zkgroup.protocol.names import TopicPartition
from zkgroup.text import counted

_QUIETER: Final[dict[Severity, Severity]] = {"critical": "warning", "warning": "info", "info": "info"}
_NO_START: Final = "a member starts here where auto.offset.reset says (largest, by default, skips all messages); "


def diagnose_offsets(facts: GroupFacts) -> Iterator[Finding]:
    parts = (_unreadable, _out_of_range, _recreated, _missing, _without, _without_subscriber, _unregistered)
    for found in (one for part in (*parts, _contradicting, _growing) for one in part(facts)):
        if facts.is_leftover:
            yield replace(found, severity="info")
        elif facts.is_abandoned:
            yield replace(found, severity=_QUIETER[found.severity])
        else:
            yield found


def _unregistered(facts: GroupFacts) -> Iterator[Finding]:
    """Members in Kafka may commit to both stores. Offsets in Kafka have no times: two snapshots show commits."""
    if facts.is_active or any(p.session_id for p in facts.partitions):
        return
    stop = "stop that consumer before the group is changed: only its commits show whether it runs"
    before = facts.earlier
    kept = {p.key: p.kafka for p in before.partitions} if before is not None and not before.members else {}
    moved = [p for p in facts.partitions if p.kafka is not None and kept.get(p.key, p.kafka) != p.kafka]
    if moved and facts.snapshot.coordinator is not None and facts.snapshot.coordinator.is_simple:
        yield finding(
            "unregistered-commits",
            facts.snapshot.group,
            f"offsets of {counted(len(moved), 'partition')} in Kafka changed since the snapshot before, and the group"
            " has no member: a consumer that assigns its partitions itself (Spark, Flink) leaves no other trace",
            stop,
        )
    stored = {p.key: p.stored for p in facts.partitions if p.stored is not None and not p.stored.is_unreadable}
    earlier = None
    if before is not None and not before.members:
        earlier = {p.key: p.stored for p in before.partitions if p.stored is not None}
    snapshot = facts.snapshot
    found = find_unregistered_commits(stored, snapshot.members_changed, facts.read_at, snapshot.offset_nodes, earlier)
    if found is not None:
        yield finding(
            "unregistered-commits",
            facts.snapshot.group,
            f"{found.text}: kafka-node's Consumer, Flink 0.8, Spark and commits of version 0 to brokers leave no other"
            " trace",
            stop,
        )


def _unreadable(facts: GroupFacts) -> Iterator[Finding]:
    without: PartitionTexts = []
    with_more: PartitionTexts = []
    for p in facts.partitions:
        if p.stored is not None and not p.stored.is_unreadable and not is_gone(facts, p):
            wrong_text = p.stored.error or p.stored.defect
            if wrong_text is not None:
                (without if p.stored.offset is None else with_more).append((p.key, wrong_text))
    wrong: dict[TopicPartition, WrongStores] = {key: {"zookeeper"} for key, _ in (*without, *with_more)}
    why = "every member that is given it fails; "
    yield from per_topic(
        "unreadable-offset",
        without,
        lambda keys: correction(facts, keys, why, wrong),
    )
    yield from per_topic(
        "unreadable-offset",
        with_more,
        lambda keys: reset_remedy(facts, keys, "write the number alone", "--to-current", why=why, wrong=wrong),
    )


def _out_of_range(facts: GroupFacts) -> Iterator[Finding]:
    before: PartitionTexts = []
    beyond: PartitionTexts = []
    lost_in: dict[TopicPartition, set[OffsetStore | None]] = defaultdict(set)
    over_in: dict[TopicPartition, set[OffsetStore | None]] = defaultdict(set)
    for p in facts.partitions:
        of_former_log = is_stale(facts, p)
        for store, offset in offsets_of(p):
            if of_former_log and store != "kafka":
                continue  # the recreated topic has a finding
            at = f"is committed at {offset}{in_store(store)}"
            if p.log_start is not None and offset < p.log_start:
                lost = counted(p.log_start - offset, "message")
                lost_in[p.key].add(store)
                before.append((p.key, f"{at}, the log starts at {p.log_start}: {lost} lost"))
            elif p.log_end is not None and offset > p.log_end:
                over_in[p.key].add(store)
                beyond.append((p.key, f"{at}, {offset - p.log_end} beyond the log's end {p.log_end}"))
    yield from per_topic(
        "offset-before-start",
        before,
        lambda keys: reset_remedy(
            facts, keys, "read on from the log's start", "--to-earliest", why=_NO_START, wrong=lost_in
        ),
    )
    yield from per_topic(
        "offset-beyond-end",
        beyond,
        lambda keys: correction(facts, keys, "was the topic recreated, or its log cut? ", over_in),
    )


def _recreated(facts: GroupFacts) -> Iterator[Finding]:
    """An offset of 0 does no harm: the new topic begins there, too. An offset in Kafka has no date; one that equals
    ZooKeeper's was written with it."""
    topics: dict[str, list[GroupPartition]] = {}
    for p in facts.partitions:
        if is_stale(facts, p) and not is_gone(facts, p):
            topics.setdefault(p.topic, []).append(p)
    for name, stale in topics.items():
        keys = [p.key for p in stale]
        offsets = first_few([f"{p.partition} at {p.stored.offset}" for p in stale if p.stored is not None])
        yield finding(
            "recreated-topic",
            name,
            f"was recreated after offsets of {counted(len(keys), 'partition')} were written ({offsets}): they count"
            " messages of its predecessor",
            reset_remedy(
                facts,
                keys,
                "begin at the start of the new one",
                "--to-earliest",
                wrong={p.key: {store for store, _ in offsets_of(p)} - {"kafka"} for p in stale},
            ),
        )


def _missing(facts: GroupFacts) -> Iterator[Finding]:
    topics: dict[str, list[TopicPartition]] = {}
    for p in facts.partitions:
        kept = (p.stored is not None and not p.stored.is_unreadable) or p.committed("kafka") is not None
        if kept and is_gone(facts, p):
            topics.setdefault(p.topic, []).append(p.key)
    for name, keys in topics.items():
        topic = facts.snapshot.topics.get(name)
        if topic is None or not topic.exists:
            yield finding(
                "offset-of-missing-topic",
                name,
                f"does not exist, and has offsets of {counted(len(keys), 'partition')}: if it comes back, members start"
                " at them",
                topic_removal(facts, name),
            )
        else:
            texts = [(key, f"does not exist, {name} has {counted(len(topic.partitions), 'partition')}") for key in keys]
            removal = offset_removal(facts, keys).after(
                f"was the topic recreated with fewer partitions? {stopped(facts.is_active)}"
            )
            yield from per_topic("offset-of-missing-partition", texts, removal)


def _without(facts: GroupFacts) -> Iterator[Finding]:
    """A group that never ran has none; a member that has just started has not committed yet. Where Kafka did not
    answer, there may be one."""
    quiet: PartitionTexts = []
    loud: PartitionTexts = []
    with_offsets = {p.topic for p in facts.partitions if p.stored is not None or p.kafka is not None}
    is_zookeepers = facts.snapshot.members and not facts.snapshot.kafka_members
    for p in facts.partitions:
        if not p.exists or p.committed("both") is not None or p.kafka_unknown:
            continue
        if (p.stored is not None and p.stored.error is not None) or (is_zookeepers and not facts.has_readers(p)):
            continue  # the latter: see ``_without_subscriber``
        count = 0 if p.log_end is None else p.log_end - (p.log_start or 0)
        there = "" if p.log_end is None else f", and {counted(count, 'message')}" if count else ", and is empty"
        is_odd = not facts.is_active and p.topic in with_offsets
        text = f"has no committed offset{', others of its topic have' if is_odd else ''}{there}"
        (loud if is_odd or (count and not _is_young(facts, p)) else quiet).append((p.key, text))

    remedy = partial(reset_remedy, facts, what=TO_EARLIEST, target="--to-earliest", why=f"{_NO_START}to choose, ")
    yield from per_topic("partition-without-offset", loud, remedy, "warning")
    yield from per_topic("partition-without-offset", quiet, remedy, "info")


def _is_young(facts: GroupFacts, p: GroupPartition) -> bool:
    """Whether its reader may not have committed yet. The time of an assignment in Kafka is unknown."""
    if (
        facts.is_settling
        or p.is_unreadable
        or (facts.is_active and p.owner is None and facts.snapshot.coordinator is not None)
    ):
        return True
    return p.since is not None and facts.now - p.since < COMMITTED_BY_THEN


def _without_subscriber(facts: GroupFacts) -> Iterator[Finding]:
    members = facts.snapshot.members
    if not members or any(member.error is not None for member in members) or facts.snapshot.kafka_members:
        return
    if facts.snapshot.has_hidden_topics or facts.snapshot.kafka_members_unknown:
        return  # a filter may take it, or a member in Kafka
    topics: Counter[str] = Counter()
    for p in facts.partitions:
        kept = p.stored is not None or p.committed("kafka") is not None
        topics[p.topic] += kept and p.exists and not p.is_unreadable and not facts.has_readers(p)
    mistaken = [
        one.member
        for one in members
        if znodes.ESCAPED_TWICE in one.defects
        or (one.registration is not None and one.registration.pattern != "static" and not one.streams)
    ]
    correcting = Remedy(f"correct the filter of {first_few(mistaken)} first: it may take the topic again")
    for name, number in (+topics).items():
        yield finding(
            "offset-without-subscriber",
            name,
            f"has offsets of {counted(number, 'partition')}, and no member subscribes to it any more: its lag only"
            " grows",
            correcting if mistaken else topic_removal(facts, name).after("where it is not to be read again, "),
        )


def _contradicting(facts: GroupFacts) -> Iterator[Finding]:
    """Offsets that differ between the stores. A member that commits to both writes one after the other: for some
    seconds they may be one commit apart.

    They contradict each other where no member commits, where ZooKeeper's offset has not changed for two commit
    intervals, or where only one has moved between two snapshots that are as far apart.
    """
    before = facts.earlier
    long_ago = before is not None and facts.now - before.taken_at >= COMMITTED_BY_THEN
    former = {p.key: p for p in before.partitions} if before is not None and long_ago else {}
    loud: PartitionTexts = []
    quiet: PartitionTexts = []
    for p in facts.partitions:
        stored, kafka = p.stored, p.kafka
        if stored is None or kafka is None or stored.offset is None or kafka.offset is None or is_gone(facts, p):
            continue
        if stored.defect or is_stale(facts, p) or p.why_outside(stored.offset) or p.why_outside(kafka.offset):
            continue  # the wrong one has a finding
        ahead = kafka.offset - stored.offset
        if ahead == 0:
            continue
        text = (
            f"is at {stored.offset} in ZooKeeper (written {facts.when(stored.changed_at)}) and at"
            f" {kafka.offset} in Kafka, {abs(ahead)} {'ahead' if ahead > 0 else 'behind'}"
        )
        still = facts.now - stored.changed_at >= COMMITTED_BY_THEN
        certain = not facts.is_active or still or _has_one_moved(former.get(p.key), p)
        (loud if certain else quiet).append((p.key, text))
    remedy = Remedy(
        "members that keep offsets in both start at the larger one, all others at that of their own store; compare"
        " them",
        facts.command("offsets", "--store", "both"),
    )
    yield from per_topic(
        "contradicting-offsets",
        loud,
        lambda keys: remedy.then(_unite(facts, keys)),
        "warning",
    )
    yield from per_topic(
        "contradicting-offsets",
        quiet,
        remedy.after(f"one commit apart is normal while members run: inspect again in {ago(COMMITTED_BY_THEN)}; "),
        "info",
    )


def _unite(facts: GroupFacts, keys: Sequence[TopicPartition]) -> Remedy:
    """How offsets in both stores become equal; only the operator knows which are right."""
    options = ("--prefer", "source", *topic_option(keys), "--execute")
    return Remedy(
        f"{stopped(facts.is_active)}make them one, with Kafka's (--to zookeeper) or with ZooKeeper's (--to kafka)",
        *(facts.command("migrate-group", "--to", store, *options) for store in ("zookeeper", "kafka")),
    )


def _has_one_moved(before: GroupPartition | None, now: GroupPartition) -> bool:
    if before is None or before.stored is None or before.kafka is None or now.stored is None or now.kafka is None:
        return False
    return (before.stored.offset != now.stored.offset) != (before.kafka.offset != now.kafka.offset)


def _growing(facts: GroupFacts) -> Iterator[Finding]:
    """Messages came between two snapshots without a commit. Within two commit intervals that proves nothing."""
    before = facts.earlier
    if before is None:
        return
    apart = facts.now - before.taken_at
    former = {p.key: p for p in before.partitions}
    texts: PartitionTexts = []
    for p in facts.partitions:
        then = former.get(p.key)
        if then is None or p.log_end is None or then.log_end is None or p.committed("both") is None:
            continue
        if p.kafka_unknown or then.kafka_unknown:
            continue  # it may have been committed there
        grown = p.log_end - then.log_end
        if p.committed("both") == then.committed("both") and grown > 0 and (p.known_lag("both") or 0) > 0:
            last = f" (last progress {facts.when(p.stored.changed_at)})" if p.stored is not None else ""
            texts.append((p.key, f"lag grew from {then.lag('both')} to {p.lag('both')}, nothing was committed{last}"))
    what = f"in {ago(apart)}{'' if facts.is_active else '; the group has no members'}"
    if not facts.is_active:
        remedy = Remedy("start a member, if the group is still wanted")
    elif apart < COMMITTED_BY_THEN:
        remedy = Remedy(f"inspect again in {ago(COMMITTED_BY_THEN)}: by default members commit once a minute")
    else:
        remedy = Remedy(
            "is the owner's process stuck, or failing over and over? find its host, and restart it",
            facts.command("owners"),
        )
    severity: Severity = "warning" if facts.is_active and apart >= COMMITTED_BY_THEN else "info"
    yield from per_topic("growing-lag", [(key, f"{text}, {what}") for key, text in texts], remedy, severity)
