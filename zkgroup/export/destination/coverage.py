"""What a group's records account for, from record to record. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from zkgroup.export.model.intervals import Interval, union
from zkgroup.export.model.layout import Period
from zkgroup.export.model.run_record import RecordPart, TopicCoverage, TopicIdentity
from zkgroup.protocol.names import TopicPartition


def extend_coverage(
    known: Mapping[str, TopicCoverage],
    topics: Mapping[str, TopicIdentity],
    parts: Iterable[RecordPart],
    newest: Mapping[TopicPartition, Period],
) -> dict[str, TopicCoverage]:
    """What is accounted for with these ``parts``; ``newest``: the newest period of each partition. The coverage of an
    earlier log of a topic is forgotten: its files have other names than those to come."""
    found = dict(known)
    for topic, identity in topics.items():
        before = known.get(topic)
        is_known = before is not None and before.identity.is_same(identity)
        found[topic] = TopicCoverage(
            identity,
            dict(before.partitions) if before is not None and is_known else {},
            dict(before.ends) if before is not None and is_known else {},
            dict(before.newest) if before is not None and is_known else {},
        )
    intervals: dict[TopicPartition, list[tuple[int, int]]] = {}
    ends: dict[TopicPartition, int] = {}
    for part in parts:
        intervals.setdefault(part.partition, []).extend(part.covered)
        if part.commits:
            ends[part.partition] = part.end
    for (topic, number), pieces in intervals.items():
        entry = found[topic]
        # An empty interval says nothing, and would only grow the record.
        covered = (*entry.partitions.get(number, ()), *(piece for piece in pieces if piece[0] < piece[1]))
        partitions = {**entry.partitions, number: union(covered)}
        partition = TopicPartition(topic, number)
        period = newest.get(partition)
        found[topic] = TopicCoverage(
            entry.identity,
            partitions,
            {**entry.ends, **({number: ends[partition]} if partition in ends else {})},
            {**entry.newest, **({} if period is None else {number: period})},
        )
    return found


def merge_coverage(one: TopicCoverage, other: TopicCoverage) -> TopicCoverage:
    """What two groups of a cluster account for of a topic: of two logs that of the later one."""
    if not one.identity.is_same(other.identity):
        return max(one, other, key=lambda coverage: coverage.identity.czxid)
    numbers = {*one.partitions, *other.partitions}
    return TopicCoverage(
        one.identity,
        {n: union((*one.partitions.get(n, ()), *other.partitions.get(n, ()))) for n in sorted(numbers)},
        _larger(one.ends, other.ends),
        _larger(one.newest, other.newest),
    )


def roll_back(known: TopicCoverage, then: TopicCoverage | None) -> TopicCoverage:
    """What is accounted for once a table was rolled back to where it accounted for ``then``, None for nothing. Exports
    of a partition that it had nothing of go on where they began."""
    kept = then if then is not None and then.identity.is_same(known.identity) else TopicCoverage(known.identity)
    partitions: dict[int, tuple[Interval, ...]] = {}
    ends: dict[int, int] = {}
    for number in sorted({*known.partitions, *known.ends}):
        first = min([low for low, _ in known.partitions.get(number, ())], default=known.ends.get(number, 0))
        partitions[number] = kept.partitions.get(number, ((first, first),))
        ends[number] = kept.ends.get(number, first)
    return TopicCoverage(known.identity, partitions, ends, kept.newest)


def _larger(one: Mapping[int, int], other: Mapping[int, int]) -> dict[int, int]:
    return {n: max(some[n] for some in (one, other) if n in some) for n in sorted({*one, *other})}
