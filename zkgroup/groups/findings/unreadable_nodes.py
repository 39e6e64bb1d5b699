"""Findings about nodes that may not be read. Pure.

An access list says nothing about the group: whatever depends on such a node is not judged elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator

from zkgroup.groups.findings.finding_kinds import Finding, Severity
from zkgroup.groups.findings.group_facts import GroupFacts, finding, first_few
from zkgroup.protocol import znodes

_REMEDY = "connect with credentials that the access list of {} admits: until then its content is unknown"


def diagnose_unreadable(facts: GroupFacts) -> Iterator[Finding]:
    """A finding for each unreadable part of the group; members have findings of their own."""
    alike: dict[tuple[str, bool], list[str]] = {}
    for path, why in facts.snapshot.unreadable.items():
        effect, matters = _effect(facts.snapshot.group, path)
        if effect is not None:
            alike.setdefault((f"cannot be read: {why}; {effect}", matters), []).append(path)
    for (message, matters), paths in alike.items():
        severity: Severity = "warning" if matters else "info"
        if len(paths) == 1:
            yield finding("unreadable-node", paths[0], message, _REMEDY.format("this node"), severity)
        else:
            text = f"{len(paths)} nodes, of which each {message}: {first_few(paths)}"
            yield finding("unreadable-node", facts.snapshot.group, text, _REMEDY.format("these nodes"), severity)


def _effect(group: str, path: str) -> tuple[str | None, bool]:
    """What is unknown without a node, and whether that matters; None for a member, which has a finding of its own."""
    root = f"/consumers/{group}"
    part, _, rest = path.removeprefix(f"{root}/").partition("/")
    if path == root:
        return "nothing of the group depends on it", False
    if not path.startswith(f"{root}/"):
        return _effect_of_cluster(path)
    match part:
        case "ids":
            whose = "who is a member is not known, and nothing about members and owners was judged"
            return (None if rest else whose), True
        case "owners":
            whose = "the partitions" if not rest else "partitions of the topic" if "/" not in rest else "the partition"
            return f"who owns {whose} is not known, and was not judged", True
        case _:
            where = "of it" if not rest else "in the topic" if "/" not in rest else "in the partition"
            where = "" if not rest else f" {where}"
            return f"the group's offset{where} is not known, and was not judged", True


def _effect_of_cluster(path: str) -> tuple[str, bool]:
    if path == znodes.topics():
        return "which topics exist is not known, nor which of them filters take", True
    if path == znodes.broker_ids():
        return "which brokers are up is not known", True
    if path == znodes.delete_topics():
        return "which topics are to be deleted is not known", False
    return "which partitions the topic has is not known, and nothing about it was judged", True
