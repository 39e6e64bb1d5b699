"""A snapshot of a group with its strategy and its findings. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from zkgroup.groups.assignment.strategy_inference import StrategyInference, infer_strategy
from zkgroup.groups.findings.finding import judge
from zkgroup.groups.findings.finding_kinds import SEVERITIES, Finding
from zkgroup.groups.group_model import GroupSnapshot, Store
from zkgroup.groups.snapshot.tables import (
    GroupRow,
    MemberRow,
    PartitionRow,
    group_row,
    member_rows,
    only_topics,
    partition_rows,
)


@dataclass(frozen=True, slots=True)
class Inspection:
    """A snapshot of a group and what follows from it. ``store``: the store of the shown offsets."""

    snapshot: GroupSnapshot
    inference: StrategyInference
    findings: tuple[Finding, ...]
    store: Store

    @property
    def strategy(self) -> str | None:
        """The strategy that explains the live owners best, or that of Kafka's coordinator; None where nothing is
        owned."""
        if self.inference.best is not None:
            return self.inference.best.strategy
        return self.snapshot.coordinator.strategy if self.snapshot.coordinator is not None else None

    @property
    def summary(self) -> GroupRow:
        """The group in one row."""
        return group_row(self.snapshot, self.store)

    def count(self, severity: str) -> int:
        """The number of findings of this severity."""
        return sum(finding.severity == severity for finding in self.findings)

    def rows(
        self, section: Literal["members", "partitions", "findings"]
    ) -> Sequence[MemberRow] | Sequence[PartitionRow] | Sequence[Finding]:
        """The rows of a section."""
        if section == "members":
            return member_rows(self.snapshot)
        return partition_rows(self.snapshot, self.store) if section == "partitions" else self.findings

    def only_topics(self, topics: Iterable[str]) -> Inspection:
        """The same without the partitions of other topics; the findings stay those of the whole group."""
        return replace(self, snapshot=only_topics(self.snapshot, topics))


def inspect(snapshot: GroupSnapshot, earlier: GroupSnapshot | None = None, store: Store | None = None) -> Inspection:
    """Infer the strategy and find what is wrong. ``earlier``: an earlier snapshot; ``store``: that of the shown
    offsets."""
    inference = infer_strategy(snapshot)
    findings = judge(snapshot, inference, earlier)
    return Inspection(snapshot, inference, tuple(findings), store or snapshot.store)


def worst_first(inspections: Iterable[Inspection]) -> list[Inspection]:
    """By the number of critical findings, then of warnings, then of others; then by name."""
    return sorted(inspections, key=lambda one: (*(-one.count(severity) for severity in SEVERITIES), one.snapshot.group))
