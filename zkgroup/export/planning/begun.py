"""Beginnings that the same command finds elsewhere later on, as logs lose messages. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from zkgroup.export.model.begun import EARLIEST, Begun
from zkgroup.export.model.rundata import Kind, TopicIdentity
from zkgroup.export.model.words import PartitionFacts, Policies, Policy
from zkgroup.export.planning.bounds import COMMITTED, Bound
from zkgroup.protocol.names import TopicPartition


def as_begun(
    facts: Iterable[PartitionFacts],
    begun: Iterable[Begun],
    identities: Mapping[str, TopicIdentity],
    here: Collection[str],
    kind: Kind,
    start: Bound,
    policies: Policies,
) -> list[PartitionFacts]:
    """``facts`` with what was asked, and beginning where a run of this ``kind`` on the cluster that is ``here`` was to
    begin as the same was asked before, if the log has less by now."""
    known = {(one.partition, one.asked): one for one in begun if one.kind == kind and one.cluster in here}
    return [
        _as_begun(replace(fact, asked=asked), known.get((fact.partition, asked)), identities)
        if (asked := _asked(fact, kind, start, policies))
        else fact
        for fact in facts
    ]


def _asked(fact: PartitionFacts, kind: Kind, start: Bound, policies: Policies) -> str | None:
    if kind == "backfill":
        return _said_by(start, fact.partition, "fail")  # what is not named is left alone
    if fact.committed is not None:
        return None
    if fact.fresh and start.kind in ("latest", "time") and fact.begin is not None and fact.begin > fact.log_start:
        start = COMMITTED  # as it says nothing of a partition that nobody knew
    return _said_by(start, fact.partition, policies.new_partition if fact.fresh else policies.no_offset)


def _said_by(bound: Bound, partition: TopicPartition, policy: Policy) -> str | None:
    """What says where a partition begins of which no offset does; None where that is the same place at any time, or one
    that leaves knowingly out what lies before. ``policy``: for partitions that the ``bound`` says nothing of."""
    match bound.kind:
        case "earliest":
            return EARLIEST
        case "time":
            return f"@{bound.millis}"
        case "latest":
            return None
    if (place := bound.offsets.get(partition)) is not None:
        return EARLIEST if place == "earliest" else None
    return EARLIEST if policy == "earliest" else None


def _as_begun(fact: PartitionFacts, one: Begun | None, identities: Mapping[str, TopicIdentity]) -> PartitionFacts:
    if one is None or one.offset >= fact.log_start or not one.identity.same(identities[fact.partition.topic]):
        return fact
    return replace(fact, begin=one.offset)
