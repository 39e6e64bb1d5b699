"""Remedies for single offsets: the commands that set them, from the other store where its offset is right."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from zkgroup.errors import Remedy
from zkgroup.groups.findings.group_facts import GroupFacts, stopped, topic_option
from zkgroup.groups.group_model import GroupPartition, GroupTopic, StoredOffset, in_store
from zkgroup.protocol.names import TopicPartition

#: How messages name the store of an offset, where there are two.
IN_ZOOKEEPER: Final = in_store("zookeeper")
IN_KAFKA: Final = in_store("kafka")


def reset_remedy(
    facts: GroupFacts,
    keys: Sequence[TopicPartition],
    what: str,
    *target: str,
    wrong: Mapping[TopicPartition, set[str]] | None = None,
) -> Remedy:
    """A reset to ``target`` (the words of the option), described by ``what``. ``wrong``: the stores in which the
    offsets are wrong; the other store keeps its offset."""
    parts: dict[tuple[str, ...], list[TopicPartition]] = {}
    for key in keys:
        stores = wrong[key] if wrong is not None else set()
        parts.setdefault(_alone(facts.by_key[key], stores), []).append(key)
    commands = (
        facts.command("reset-offsets", *topic_option(part), *target, *option, "--execute")
        for option, part in parts.items()
    )
    return Remedy(f"{stopped(facts.active)}{what}", *commands)


#: What ``reset_remedy`` does with ``--to-earliest``.
TO_EARLIEST: Final = "go to the log's start (or, with --to-latest, to its end)"


def correction(facts: GroupFacts, keys: Sequence[TopicPartition], wrong: Mapping[TopicPartition, set[str]]) -> Remedy:
    """How to set ``wrong`` offsets: from the other store, where its offset is right, else to the log's start."""
    right: dict[str, list[TopicPartition]] = {}
    for key in keys:
        right.setdefault(_taken_over(facts, facts.by_key[key], wrong[key]), []).append(key)
    rest = right.pop("", [])
    remedy = Remedy("")
    if right:
        commands = (
            facts.command("migrate-group", "--to", to, "--prefer", "source", *topic_option(part), "--execute")
            for to, part in right.items()
        )
        remedy = Remedy(f"{stopped(facts.active)}take over the other store's offset", *commands)
    return remedy.then(reset_remedy(facts, rest, TO_EARLIEST, "--to-earliest", wrong=wrong), "; ") if rest else remedy


def _taken_over(facts: GroupFacts, p: GroupPartition, wrong: set[str]) -> str:
    """The only store with a wrong offset, if the other store's lies within the log; else an empty text."""
    to, good = "", None
    if wrong == {IN_ZOOKEEPER} and p.kafka is not None:
        to, good = "zookeeper", p.kafka.offset
    elif wrong == {IN_KAFKA} and p.stored is not None and p.stored.defect is None and not is_stale(facts, p):
        to, good = "kafka", p.stored.offset
    return "" if good is None or is_outside(p, good) else to


def is_outside(p: GroupPartition, offset: int) -> bool:
    """Whether the offset lies outside the log, as far as the log is known."""
    return (p.log_start is not None and offset < p.log_start) or (p.log_end is not None and offset > p.log_end)


def _alone(partition: GroupPartition, wrong: set[str]) -> tuple[str, ...]:
    """The option that keeps the other store's offset; nothing where there is none, or it is wrong, too. An unknown
    offset may exist and be right."""
    if partition.kafka_unknown and wrong:
        return ("--store", "zookeeper")
    if wrong == {IN_ZOOKEEPER} and partition.kafka is not None and partition.kafka.offset is not None:
        return ("--store", "zookeeper")
    if wrong == {IN_KAFKA} and partition.stored is not None:
        return ("--store", "kafka")
    return ()


def offsets_of(partition: GroupPartition) -> Iterable[tuple[str, int]]:
    """Each offset with its store, named where it matters: an offset that both agree on comes once."""
    stored = partition.stored.offset if partition.stored is not None else None
    kafka = partition.kafka.offset if partition.kafka is not None else None
    if stored is not None:
        yield "" if kafka in (None, stored) else IN_ZOOKEEPER, stored
    if kafka is not None and kafka != stored:
        yield IN_KAFKA, kafka


def is_stale(facts: GroupFacts, p: GroupPartition) -> bool:
    """Whether ZooKeeper's offset was written before the topic was created."""
    topic = facts.snapshot.topics.get(p.topic)
    if topic is None or not topic.exists or p.stored is None or not p.stored.offset:
        return False
    return _older(p.stored, topic)


def _older(stored: StoredOffset, topic: GroupTopic) -> bool:
    """By transaction ids, which are exact, or by times where those are unknown (0)."""
    if stored.mzxid and topic.czxid:
        return stored.mzxid < topic.czxid
    return topic.created_at is not None and 0 < stored.changed_at < topic.created_at


def is_gone(facts: GroupFacts, p: GroupPartition) -> bool:
    """Whether the partition surely does not exist: no member gets it, and its offset cannot be set."""
    if p.exists or (not facts.snapshot.existing_topics and facts.snapshot.problems):
        return False  # the list of topics may be what could not be read
    topic = facts.snapshot.topics.get(p.topic)
    return topic is None or topic.error is None or not topic.exists
