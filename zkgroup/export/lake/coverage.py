"""What a group's runs account for, from run to run. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import replace
from typing import NamedTuple

from zkgroup.export.model.intervals import difference, union
from zkgroup.export.model.layout import Period
from zkgroup.export.model.rundata import Manifest, ManifestPart, Settled, TopicCoverage, TopicIdentity
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
    """What a run and those that it knew of account for; the run that was the newest of these. ``own``: the topics that
    it has read itself; ``ended``: the partitions whose exports ended there."""

    previous: str | None
    cluster: str
    coverage: Mapping[str, TopicCoverage]
    own: Set[str]
    ended: Set[TopicPartition]


def accounted_by(manifest: Manifest, settled: Settled | None) -> Accounted:
    """Of a run, as it was decided or settled."""
    left = settled.left if settled is not None and settled.how == "withdraw" else ()
    parts = [part.plan for part in manifest.parts if part.plan.partition not in left]
    # What is adopted of a log that another one has followed is none of its coverage.
    own = {plan.partition.topic for plan in parts} - set(manifest.topics)
    ended = {plan.partition for plan in parts if plan.commits}
    return Accounted(manifest.previous, manifest.cluster, (settled or manifest).coverage, own, ended)


def merged(newest: Accounted, others: Iterable[tuple[Accounted, bool]]) -> dict[str, TopicCoverage]:
    """What the newest run accounts for, with what others do, the oldest first; each with whether the newest has not
    known it for sure.

    Which log of a topic counts the newest tells. One that it has not known may have read a later one: of the same
    cluster, births tell.
    """
    found = dict(newest.coverage)
    for other, unknown in others:
        for topic, told in other.coverage.items():
            known = found.get(topic)
            if known is not None and known.identity.same(told.identity):
                ended = {number for name, number in other.ended if name == topic} if unknown else set()
                found[topic] = _both(known, told, ended)
            elif topic not in newest.coverage or (
                unknown
                and topic in other.own
                and other.cluster == newest.cluster
                and found[topic].identity.czxid < told.identity.czxid
            ):
                found[topic] = told
    return found


def _both(known: TopicCoverage, told: TopicCoverage, ended: Set[int]) -> TopicCoverage:
    """``known`` with what another run has told of the log; ``ended``: whose ends it tells anew."""
    partitions = {
        number: union((*known.partitions.get(number, ()), *told.partitions.get(number, ())))
        for number in {**known.partitions, **told.partitions}
    }
    newest = {
        number: max(period, known.newest.get(number, period))
        for number, period in {**known.newest, **told.newest}.items()
    }
    further = {
        number: max(end, known.ends.get(number, end))
        for number, end in told.ends.items()
        if number in ended or number not in known.ends
    }
    return TopicCoverage(known.identity, partitions, newest, {**known.ends, **further})


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
