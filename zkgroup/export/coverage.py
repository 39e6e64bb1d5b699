"""What a group's runs account for, from run to run. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import replace
from typing import NamedTuple

from zkgroup.export.intervals import difference, union
from zkgroup.export.layout import Period
from zkgroup.export.rundata import Manifest, ManifestPart, Settled, TopicCoverage, TopicIdentity
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


class Accounted(NamedTuple):
    """What a run and those that it knew of account for; when it was ``decided``. ``own``: the topics that it has read
    itself; ``ended``: the partitions whose exports ended there."""

    decided: int
    cluster: str
    coverage: Mapping[str, TopicCoverage]
    own: Set[str]
    ended: Set[TopicPartition]


def accounted_by(manifest: Manifest, settled: Settled | None) -> Accounted:
    """Of a run, as it was decided or settled."""
    parts = () if settled is not None and settled.how == "withdraw" else manifest.parts
    own = {part.plan.partition.topic for part in parts} - set(manifest.topics)
    ended = {part.plan.partition for part in parts if part.plan.commits}
    return Accounted(manifest.decided, manifest.cluster, (settled or manifest).coverage, own, ended)


def merged(runs: Iterable[Accounted]) -> dict[str, TopicCoverage]:
    """What runs account for that did not all know of one another, the oldest first.

    Of two logs of a topic the one counts that was read later. What a run only passes on of a topic, it may not have
    known better: then it is the one that was made later, as far as one cluster can tell.
    """
    found: dict[str, _Log] = {}
    for run in runs:
        for topic, told in run.coverage.items():
            known, read = found.get(topic), run.decided if topic in run.own else -1
            if known is None:
                found[topic] = _Log(run.cluster, read, told)
            elif known.told.identity.same(told.identity):
                ended = {number for name, number in run.ended if name == topic}
                found[topic] = _Log(run.cluster, max(read, known.read), _both(known.told, told, ended))
            elif read > known.read or (read < 0 and known.precedes(run.cluster, told)):
                found[topic] = _Log(run.cluster, read, told)
    return {topic: log.told for topic, log in found.items()}


class _Log(NamedTuple):
    """Of a topic, as runs tell; when it was ``read``, -1 where it was only passed on."""

    cluster: str
    read: int
    told: TopicCoverage

    def precedes(self, cluster: str, other: TopicCoverage) -> bool:
        return self.cluster != cluster or self.told.identity.czxid < other.identity.czxid


def _both(earlier: TopicCoverage, later: TopicCoverage, ended: Set[int]) -> TopicCoverage:
    partitions = {
        number: union((*earlier.partitions.get(number, ()), *later.partitions.get(number, ())))
        for number in {**earlier.partitions, **later.partitions}
    }
    newest = {
        number: max(period, later.newest.get(number, period))
        for number, period in {**later.newest, **earlier.newest}.items()
    }
    ends = {
        number: end if number in ended else max(end, earlier.ends.get(number, end))
        for number, end in later.ends.items()
    }
    return TopicCoverage(later.identity, partitions, newest, {**earlier.ends, **ends})


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
