"""Beginnings that the same command finds elsewhere later on, as logs lose messages. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from zkgroup.export.model.begun import EARLIEST, Begun
from zkgroup.export.model.rundata import Kind, TopicIdentity
from zkgroup.export.model.words import PartitionFacts, Policies, Policy
from zkgroup.export.planning.bounds import Bound
from zkgroup.protocol.names import TopicPartition


def asked_of(bound: Bound, partition: TopicPartition, policy: Policy) -> str | None:
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


def with_begun(
    facts: Iterable[PartitionFacts],
    begun: Iterable[Begun],
    identities: Mapping[str, TopicIdentity],
    kind: Kind,
    start: Bound,
    policies: Policies,
) -> list[PartitionFacts]:
    """``facts`` with what was asked now, and where a run of this ``kind`` was to begin as the same was asked before."""
    known = {(one.partition, one.asked): one for one in begun if one.kind == kind}
    found: list[PartitionFacts] = []
    for fact in facts:
        asked = None
        if kind == "backfill" or (fact.committed is None and not fact.coverage):
            asked = asked_of(start, fact.partition, policies.new_partition if fact.fresh else policies.no_offset)
        one = known.get((fact.partition, asked)) if asked is not None else None
        same = one is not None and one.identity.same(identities[fact.partition.topic])
        found.append(replace(fact, asked=asked, begun=one.offset if one is not None and same else None))
    return found
