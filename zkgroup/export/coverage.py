"""What a group's runs account for, from run to run. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from zkgroup.export.intervals import beyond, difference, union
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


def _begun(known: TopicCoverage | None, identity: TopicIdentity) -> TopicCoverage:
    if known is None or not known.identity.same(identity):
        return TopicCoverage(identity)
    return TopicCoverage(identity, known.partitions, known.newest, known.ahead)


def _grown(
    known: TopicCoverage, partition: int, parts: Sequence[ManifestPart], period: Period, *, fills: bool
) -> TopicCoverage:
    before = known.partitions.get(partition, ())
    pieces = [piece for part in parts for piece in part.accounted]
    after = union((*before, *pieces))
    ahead = known.ahead.get(partition, ())
    ends = [part.end for part in parts if part.plan.commits]
    if ends:
        ahead = tuple(beyond(after, max(ends)))
    elif fills:
        end = max((high for _, high in known.exported(partition)), default=0)
        ahead = union((*ahead, *beyond(difference(pieces, before), end)))
    return TopicCoverage(
        known.identity,
        {**known.partitions, partition: after},
        {**known.newest, partition: period} if ends and period is not None else known.newest,
        {number: some for number, some in {**known.ahead, partition: ahead}.items() if some},
    )
