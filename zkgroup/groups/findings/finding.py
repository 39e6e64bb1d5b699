"""``judge``: all findings of a group, from a snapshot. Pure. Ages come from the times of nodes (``group_facts``)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from zkgroup.groups.findings.cluster_findings import judge_cluster
from zkgroup.groups.findings.finding_kinds import KINDS, SEVERITIES, Finding, Kind, Severity
from zkgroup.groups.findings.group_facts import GroupFacts
from zkgroup.groups.findings.member_findings import judge_members
from zkgroup.groups.findings.offset_findings import judge_offsets
from zkgroup.groups.findings.owner_findings import judge_owners
from zkgroup.groups.group_model import GroupSnapshot

if TYPE_CHECKING:
    from zkgroup.groups.assignment.strategy_inference import StrategyInference

__all__ = ["KINDS", "SEVERITIES", "Finding", "Kind", "Severity", "judge", "worst"]

_RANKS = {severity: rank for rank, severity in enumerate(SEVERITIES)}
_ORDER = {code: place for place, code in enumerate(KINDS)}


def judge(
    snapshot: GroupSnapshot, inference: StrategyInference | None, earlier: GroupSnapshot | None = None
) -> list[Finding]:
    """All findings of a group, worst first; equal snapshots give equal lists.

    Without ``inference`` there are none about strategies. ``earlier``, a snapshot of the same group, shows growing lag,
    and what has not settled since.
    """
    facts = GroupFacts(
        snapshot, inference, earlier if earlier is not None and earlier.group == snapshot.group else None
    )
    found: list[Finding] = []
    for part in (judge_cluster, judge_members, judge_owners, judge_offsets):
        found.extend(part(facts))
    return sorted(found, key=_rank)


def worst(findings: Iterable[Finding]) -> Severity | None:
    """The severity of the worst; None where there are none."""
    return min((finding.severity for finding in findings), key=_RANKS.__getitem__, default=None)


def _rank(finding: Finding) -> tuple[int, int, str]:
    return _RANKS[finding.severity], _ORDER[finding.code], finding.subject
