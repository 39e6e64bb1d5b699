"""What a group's runs account for, from run to run. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from zkgroup.export.intervals import difference, union
from zkgroup.export.layout import Period
from zkgroup.export.rundata import ManifestPart, TopicCoverage, TopicIdentity
from zkgroup.protocol.names import TopicPartition


def extended(
    coverage: Mapping[str, TopicCoverage],
    topics: Mapping[str, TopicIdentity],
    parts: Iterable[ManifestPart],
    times: Mapping[TopicPartition, Period] | None = None,
    *,
    fills: bool = False,
) -> dict[str, TopicCoverage]:
    """What is accounted for when ``parts`` are, too; ``times``: their newest periods; ``fills``: of a backfill. An
    incarnation that is gone is forgotten: its files have other names than those to come."""
    updated = {topic: _begun(coverage.get(topic), identity) for topic, identity in topics.items()}
    of: dict[TopicPartition, list[ManifestPart]] = {}
    for part in parts:
        of.setdefault(part.plan.partition, []).append(part)
    for partition, some in of.items():
        updated[partition.topic] = _grown(
            updated[partition.topic], partition.partition, some, (times or {}).get(partition), fills=fills
        )
    return {**coverage, **updated}


def merged(coverages: Iterable[tuple[str, Mapping[str, TopicCoverage]]]) -> dict[str, TopicCoverage]:
    """What runs account for that did not all know of one another, the oldest first, each with its cluster. Of two logs
    of a topic the one that was made later counts, as far as one cluster tells, and else the one that was read later."""
    found: dict[str, tuple[str, TopicCoverage]] = {}
    for cluster, coverage in coverages:
        for topic, told in coverage.items():
            where, known = found.get(topic, (cluster, None))
            if known is not None and known.identity.same(told.identity):
                found[topic] = cluster, _both(known, told)
            elif known is None or where != cluster or known.identity.czxid < told.identity.czxid:
                found[topic] = cluster, told
    return {topic: known for topic, (_, known) in found.items()}


def _both(earlier: TopicCoverage, later: TopicCoverage) -> TopicCoverage:
    partitions = {
        number: union((*earlier.partitions.get(number, ()), *later.partitions.get(number, ())))
        for number in {**earlier.partitions, **later.partitions}
    }
    newest = {
        number: max(period, later.newest.get(number, period))
        for number, period in {**later.newest, **earlier.newest}.items()
    }
    return TopicCoverage(later.identity, partitions, newest, {**earlier.ends, **later.ends})


def _begun(known: TopicCoverage | None, identity: TopicIdentity) -> TopicCoverage:
    if known is None or not known.identity.same(identity):
        return TopicCoverage(identity)
    return replace(known, identity=identity)


def _grown(
    known: TopicCoverage, partition: int, parts: Sequence[ManifestPart], period: Period, *, fills: bool
) -> TopicCoverage:
    before = known.partitions.get(partition, ())
    pieces = [piece for part in parts for piece in part.accounted]
    after = union((*before, *pieces))
    ends = [part.end for part in parts if part.plan.commits]
    come = dict(known.ends)
    if ends:
        come[partition] = max(ends)
    elif not fills and (new := difference(pieces, before)):  # what is adopted counts as exported
        come[partition] = max(come.get(partition, 0), new[-1][1])
    return TopicCoverage(
        known.identity,
        {**known.partitions, partition: after},
        {**known.newest, partition: period} if ends and period is not None else known.newest,
        come,
    )
