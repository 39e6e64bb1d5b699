"""A snapshot of a group with its strategy and its findings. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from zkgroup.groups.assignment.strategy_inference import StrategyInference, infer_strategy
from zkgroup.groups.findings.cluster_findings import diagnose_cluster
from zkgroup.groups.findings.finding_kinds import KINDS, SEVERITIES, Finding
from zkgroup.groups.findings.group_facts import GroupFacts
from zkgroup.groups.findings.member_findings import diagnose_members
from zkgroup.groups.findings.offset_findings import diagnose_offsets
from zkgroup.groups.findings.owner_findings import diagnose_owners
from zkgroup.groups.group_choices import Section
from zkgroup.groups.group_model import GroupSnapshot, Store
from zkgroup.groups.snapshot.table_rows import (
    GroupRow,
    MemberRow,
    PartitionRow,
    group_row,
    member_rows,
    only_topics,
    partition_rows,
)

_ORDER: Final = {code: place for place, code in enumerate(KINDS)}


@dataclass(frozen=True, slots=True)
class Inspection:
    """A snapshot of a group and what follows from it. ``store``: the store of the shown offsets."""

    snapshot: GroupSnapshot
    inference: StrategyInference
    findings: tuple[Finding, ...]
    store: Store

    @property
    def strategy(self) -> str | None:
        """The strategy that explains the live owners best, or that of Kafka's coordinator; None without owners."""
        if self.inference.best is not None:
            return self.inference.best.strategy
        return self.snapshot.coordinator.strategy if self.snapshot.coordinator is not None else None

    @property
    def summary(self) -> GroupRow:
        """The group in one row."""
        return group_row(self.snapshot, self.store)

    @property
    def worst(self) -> Finding | None:
        """The worst finding that is critical or a warning."""
        return next((finding for finding in self.findings if finding.severity != "info"), None)

    def count(self, severity: str) -> int:
        """The number of findings of this severity."""
        return sum(finding.severity == severity for finding in self.findings)

    def rows(self, section: Section) -> Sequence[MemberRow] | Sequence[PartitionRow] | Sequence[Finding]:
        """The rows of a section."""
        if section == "members":
            return member_rows(self.snapshot)
        return partition_rows(self.snapshot, self.store) if section == "partitions" else self.findings

    def only_topics(self, topics: Iterable[str]) -> Inspection:
        """The same without the partitions of other topics; the findings stay those of the whole group."""
        return replace(self, snapshot=only_topics(self.snapshot, topics))


def inspect(snapshot: GroupSnapshot, earlier: GroupSnapshot | None = None, store: Store | None = None) -> Inspection:
    """Infer the strategy and find what is wrong, by an ``earlier`` snapshot, too. ``store``: of the shown offsets."""
    inference = infer_strategy(snapshot)
    findings = diagnose(snapshot, inference, earlier)
    return Inspection(snapshot, inference, tuple(findings), store or snapshot.store)


def diagnose(
    snapshot: GroupSnapshot, inference: StrategyInference | None, earlier: GroupSnapshot | None = None
) -> list[Finding]:
    """All findings of a group, worst first; equal snapshots give equal lists.

    Ages come from the times of nodes. Without ``inference`` there are none about strategies. ``earlier``, a snapshot of
    the same group, shows growing lag, and what has not settled since.
    """
    facts = GroupFacts(snapshot, inference, earlier)
    parts = (diagnose_cluster, diagnose_members, diagnose_owners, diagnose_offsets)
    return sorted(
        (found for part in parts for found in part(facts)),
        key=lambda one: (SEVERITIES.index(one.severity), _ORDER[one.code], one.subject),
    )


def worst_first(inspections: Iterable[Inspection]) -> list[Inspection]:
    """By the number of critical findings, then of warnings, then of others; then by name."""
    return sorted(inspections, key=lambda one: (*(-one.count(severity) for severity in SEVERITIES), one.snapshot.group))
