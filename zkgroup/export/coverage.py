"""What a group's runs account for, from run to run. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from zkgroup.export.intervals import Interval, union
from zkgroup.export.layout import Period
from zkgroup.export.rundata import ManifestPart, TopicCoverage, TopicIdentity
from zkgroup.protocol.names import TopicPartition


def extended(
    coverage: Mapping[str, TopicCoverage],
    topics: Mapping[str, TopicIdentity],
    parts: Iterable[ManifestPart],
    times: Mapping[TopicPartition, Period] | None = None,
) -> dict[str, TopicCoverage]:
    """What is accounted for when ``parts`` are, too; ``times``: their newest periods. An incarnation that is gone is
    forgotten: its files have other names than those to come."""
    grown: dict[str, dict[int, list[Interval]]] = {}
    newest: dict[str, dict[int, int]] = {}
    for topic, identity in topics.items():
        known = coverage.get(topic)
        same = known is not None and known.identity.same(identity)
        grown[topic] = {p: list(found) for p, found in known.partitions.items()} if known and same else {}
        newest[topic] = dict(known.newest) if known and same else {}
    for part in parts:
        place = grown[part.plan.partition.topic].setdefault(part.plan.partition.partition, [])
        place += part.accounted
        period = (times or {}).get(part.plan.partition)
        if part.plan.commits and period is not None:
            newest[part.plan.partition.topic][part.plan.partition.partition] = period
    updated = {
        topic: TopicCoverage(topics[topic], {p: union(found) for p, found in partitions.items()}, newest[topic])
        for topic, partitions in grown.items()
    }
    return {**coverage, **updated}
