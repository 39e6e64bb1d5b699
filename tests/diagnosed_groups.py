"""Groups made by hand, to be diagnosed: one that is healthy, and what may be wrong with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from zkgroup.clients.kafka.responses import KafkaOffset
from zkgroup.groups.assignment.strategy_inference import infer_strategy
from zkgroup.groups.findings.finding_kinds import Finding
from zkgroup.groups.findings.inspection import diagnose
from zkgroup.groups.group_model import GroupMember, GroupPartition, GroupSnapshot, GroupTopic, StoredOffset
from zkgroup.protocol.znodes import (
    Pattern,
    Registration,
    decode_registration,
    encode_registration,
    registration_defects,
)
from zkgroup.text import command_line

SECOND = 1000
DAY = 86_400 * SECOND
NOW = 1_700_000_000_000
#: When everything of a group that is at rest was made.
THEN = NOW - 3600 * SECOND

SESSION = 0x100

GROUP = "g"


def lines(finding: Finding) -> tuple[str, ...]:
    """The commands of a finding for a shell."""
    return tuple(map(command_line, finding.commands))


def member(name: str, streams: Mapping[str, int], **changes: Any) -> GroupMember:
    """A member of the Scala consumer's kind, registered statically long ago."""
    data = encode_registration(Registration("static", streams, THEN))
    made = GroupMember(
        name, None, SESSION, THEN, decode_registration("", data), dict(streams), data=data, created_at=THEN
    )
    return replace(made, **changes)


def filtering(name: str, expression: str, streams: Mapping[str, int], kind: Pattern = "white_list") -> GroupMember:
    """A member with a filter that is said to match ``streams``."""
    data = encode_registration(Registration(kind, {expression: 1}, THEN))
    registration = decode_registration("", data)
    return member(name, streams, registration=registration, data=data, defects=registration_defects(data))


def raw(name: str, data: bytes, streams: Mapping[str, int] | None = None) -> GroupMember:
    """A member whose node holds ``data``, which can be read."""
    registration = decode_registration("", data)
    read = dict(registration.subscription) if streams is None else dict(streams)
    return member(name, read, registration=registration, data=data, defects=registration_defects(data))


def stored(offset: int | None, changed_at: int = THEN, **changes: Any) -> StoredOffset:
    return replace(StoredOffset(offset, 1, 500, THEN, changed_at), **changes)


def topic(name: str, partitions: int, **changes: Any) -> GroupTopic:
    made = GroupTopic(name, True, tuple(range(partitions)), 100, THEN - DAY, changed_at=THEN - DAY)
    return replace(made, **changes)


def owned(name: str, number: int, by: str | None = "g_a-0", **changes: Any) -> GroupPartition:
    """A partition with an offset and a log; ``by`` is a thread id, or None."""
    claim: dict[str, Any] = {}
    if by is not None:
        head, _, index = by.rpartition("-")
        claim = {"owner": by, "member": head, "stream": int(index), "since": THEN, "session_id": SESSION}
    made = GroupPartition(name, number, leader=1, stored=stored(50), log_start=10, log_end=100, **claim)
    return replace(made, **changes)


def group(
    members: Sequence[GroupMember] = (),
    partitions: Sequence[GroupPartition] = (),
    topics: Sequence[GroupTopic] = (),
    **changes: Any,
) -> GroupSnapshot:
    """A snapshot; topics that are not given are made of the partitions that exist."""
    known = {one.name: one for one in topics}
    for partition in partitions:
        if partition.exists and partition.topic not in known:
            numbers = [p.partition for p in partitions if p.topic == partition.topic]
            known[partition.topic] = topic(partition.topic, max(numbers) + 1)
    made = GroupSnapshot(
        GROUP,
        tuple(members),
        tuple(sorted(partitions, key=lambda p: p.key)),
        frozenset(name for one in members for name in one.streams),
        topics=known,
        existing_topics=tuple(sorted(name for name, one in known.items() if one.exists)),
        taken_at=NOW,
        broker_ids=(1,),
        last_change=THEN,
    )
    return replace(made, **changes)


def healthy(number: int = 4) -> GroupSnapshot:
    """Two members, of which each owns half of ``orders`` as range has it."""
    two = [member("g_a", {"orders": 1}), member("g_b", {"orders": 1})]
    half = (number + 1) // 2
    return group(two, [owned("orders", n, "g_a-0" if n < half else "g_b-0") for n in range(number)])


def inactive(number: int = 2, **changes: Any) -> GroupSnapshot:
    """No members; offsets that lie in their logs."""
    return group((), [owned("orders", n, None) for n in range(number)], **changes)


def having(snapshot: GroupSnapshot, number: int, **changes: Any) -> GroupSnapshot:
    """The snapshot with one partition of its first topic changed."""
    partitions = tuple(replace(p, **changes) if p.partition == number else p for p in snapshot.partitions)
    return replace(snapshot, partitions=partitions)


def kafka(offset: int | None, **changes: Any) -> KafkaOffset:
    return replace(KafkaOffset(offset), **changes)


def findings_of(snapshot: GroupSnapshot, earlier: GroupSnapshot | None = None) -> list[Finding]:
    """With what really explains its owners."""
    return diagnose(snapshot, infer_strategy(snapshot), earlier)


def found(snapshot: GroupSnapshot, code: str, earlier: GroupSnapshot | None = None) -> Finding:
    """The one finding of that kind."""
    every = findings_of(snapshot, earlier)
    of_code = [finding for finding in every if finding.code == code]
    assert len(of_code) == 1, every
    return of_code[0]


def codes(snapshot: GroupSnapshot, earlier: GroupSnapshot | None = None) -> set[str]:
    return {finding.code for finding in findings_of(snapshot, earlier)}


def serious(findings: list[Finding]) -> list[Finding]:
    """What is more than good to know."""
    return [finding for finding in findings if finding.severity != "info"]
