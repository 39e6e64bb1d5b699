"""The timeline of a report: what a snapshot, the history and the backups say of a group's past. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from zkgroup.groups.changes.backup_json import Backup
from zkgroup.groups.group_model import GroupSnapshot
from zkgroup.groups.monitoring.history_points import HistoryPoint
from zkgroup.protocol.names import span_list
from zkgroup.text import counted, listed

_MINUTE = 60_000


class IncidentEvent(NamedTuple):
    """A past event. ``at``: milliseconds since 1970."""

    at: int
    text: str


def incident_events(
    snapshot: GroupSnapshot, points: Sequence[HistoryPoint], backups: Iterable[Backup]
) -> list[IncidentEvent]:
    """The events in the order of time: changes of topics, registrations, claims, the last commits, changes by zkgroup,
    offsets that went back, the largest lag. ``backups``: those of this group."""
    found = [*_of_snapshot(snapshot), *_of_history(points)]
    for one in backups:
        saved = counted(len(one.offsets), "offset") if one.offsets else counted(len(one.nodes), "node")
        found.append(IncidentEvent(one.time, f"{one.command} of {saved}: backup written"))
    return sorted(found)


def _of_snapshot(snapshot: GroupSnapshot) -> Iterator[IncidentEvent]:
    for topic in snapshot.topics.values():
        if topic.created_at:
            yield IncidentEvent(topic.created_at, f"topic {topic.name} was created")
        if topic.changed_at and topic.changed_at != topic.created_at:
            yield IncidentEvent(topic.changed_at, f"topic {topic.name} got partitions, or replicas moved")
    for member in snapshot.members:
        if member.registered_at is not None:
            host = "" if member.host is None else f" on {member.host}"
            yield IncidentEvent(member.registered_at, f"member {member.member} registered{host}")
    claims = sorted(
        (p.member or p.owner or "", p.since // _MINUTE, p.key, p.since) for p in snapshot.partitions if p.since
    )
    for (owner, _), rows in groupby(claims, key=lambda row: row[:2]):
        own = list(rows)
        names = listed(span_list(key for _, _, key, _ in own))
        yield IncidentEvent(max(since for *_, since in own), f"{owner} claimed {names}")
    commits = sorted((p.topic, p.stored.changed_at, p.name) for p in snapshot.partitions if p.stored is not None)
    for name, (at, partition) in {topic: (at, name) for topic, at, name in commits}.items():
        yield IncidentEvent(at, f"last commit in topic {name}: {partition}")


def _of_history(points: Sequence[HistoryPoint]) -> Iterator[IncidentEvent]:
    for point in points:
        if point.set_back:
            yield IncidentEvent(point.taken_at, f"offsets went back: {listed(span_list(point.set_back))}")
    known = [point for point in points if point.lag_at_least]
    if known:
        most = max(known, key=lambda point: point.lag_at_least or 0)
        mark = "at least " if most.lag_unknown else ""
        yield IncidentEvent(most.taken_at, f"largest lag: {mark}{counted(most.lag_at_least or 0, 'message')}")
