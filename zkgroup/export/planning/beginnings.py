"""Where to begin with a partition, and what is said and refused where that is not plain. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from zkgroup.errors import RefusedError
from zkgroup.export.model.intervals import subtract
from zkgroup.export.model.words import (
    Begin,
    Disagreement,
    OffsetRange,
    PartitionFacts,
    Policies,
    Policy,
    RecreatedPolicy,
    Skipped,
)
from zkgroup.protocol.names import TopicPartition
from zkgroup.words import counted, listed


class NoOffsetError(RefusedError):
    """Partitions have no committed offset, and nothing says where to begin. Members at work may commit one yet."""


class LostError(RefusedError):
    """Messages that were to be read are not in the log any more."""


_SHOWN = 3  # partitions that a message names


@dataclass
class Troubles:
    """What keeps partitions from being exported, by kind."""

    group: str
    joined: bool = False  # its last export was: other members have read what lies between
    found: dict[str, list[str]] = field(default_factory=dict)
    lost: int = 0
    left_out: list[tuple[TopicPartition, str]] = field(default_factory=list)

    def add(self, kind: str, text: str) -> None:
        self.found.setdefault(kind, []).append(text)

    def leave_out(self, partition: TopicPartition, why: str) -> None:
        self.left_out.append((partition, why))

    def refuse(self) -> None:
        lost = counted(self.lost, "offset")
        for kind, (template, remedy) in _REFUSALS.items():
            if texts := self.found.get(kind):
                count = counted(len(texts), "partition")
                raise _ERRORS.get(kind, RefusedError)(
                    template.format(group=self.group, count=count, lost=lost, few=listed(texts, most=_SHOWN)), remedy
                )


_REFUSALS: Mapping[str, tuple[str, str]] = {
    "recreated": (
        "topics were deleted and made again since group {group} read them ({few}): their offsets are of other logs",
        "--on-recreated earliest exports the new log from its start; committed, latest or skip are the alternatives, "
        "and same where ZooKeeper's nodes were copied",
    ),
    "not begun": (
        "topics were deleted and made again ({few}), and group {group} has not begun with the new logs",
        "export them first, with --on-recreated earliest, or committed where the offset is right for the new log; "
        "--on-recreated skip leaves these topics out",
    ),
    "beyond": (
        "offsets of group {group} lie behind the end of the log ({few})",
        "the topic was truncated or made again: reset these offsets first",
    ),
    "beyond its log": (
        "offsets of group {group} lie behind the end of the log ({few})",
        "the topic was truncated, or they were never right: reset these offsets first; --on-disagreement skip leaves "
        "these partitions out",
    ),
    "beyond all": (
        "offsets of group {group} lie behind the end of the log ({few})",
        "--on-disagreement lake goes on where the export ended, skip leaves these partitions out",
    ),
    "behind the log": (
        "--from begins behind the end of the log ({few})",
        "name offsets that the logs have, or begin elsewhere: --from latest begins where they end",
    ),
    "ahead": (
        "group {group} stands ahead of what was exported ({few}): somebody moved it, or deleted its offsets, or "
        "exported elsewhere, or took files away",
        "--on-disagreement lake goes on where the export ended; group goes on where the group stands and notes the gap",
    ),
    "read on": (
        "group {group} stands ahead of what was exported ({few}): its last export was joined (--join), and other "
        "members have read what lies between",
        "--on-disagreement group goes on where the group stands, and notes the gap; lake exports what they have read",
    ),
    "behind": (
        "group {group} stands behind what was exported ({few}): it was set back, or its offsets were deleted, or "
        "are an older copy",
        "--on-disagreement lake goes on where the export ended; to have the messages again choose another --to",
    ),
    "cut": (
        "group {group} stands behind what was exported, and the logs do not reach so far any more ({few}): they have "
        "lost messages",
        "--on-disagreement skip leaves these partitions out until their logs are longer; to have what is in them now "
        "choose another --to",
    ),
    "exact": (
        "group {group} has offsets of its own where --from names others ({few})",
        "leave --from out to go on, reset-offsets to move the group, or --backfill to export without moving it",
    ),
    "lost": (
        "messages that group {group} has not read were deleted: {lost} of {count} ({few})",
        "--skip-lost goes on where the log starts (as --on-expired earliest does), --on-expired skip without them",
    ),
    "gone": (
        "messages that are to be exported were deleted: {lost} of {count} ({few})",
        "--skip-lost exports what is left (as --on-expired earliest does) and records what is gone, --on-expired skip "
        "leaves these partitions out",
    ),
    "new": (
        "topics have partitions that are new to group {group} ({few})",
        "--on-new-partition earliest exports them from their start",
    ),
    "unknown, exported": (
        "group {group} has no committed offset for {count}, and messages of it are exported here ({few})",
        "--on-disagreement lake goes on where the export ended; to have the messages again choose another --to",
    ),
    "unknown": (
        "group {group} has no committed offset for {count} ({few})",
        "--from earliest or --from latest says where to begin",
    ),
}

_ERRORS: Final[Mapping[str, type[RefusedError]]] = {
    "unknown": NoOffsetError,
    "unknown, exported": NoOffsetError,
    "new": NoOffsetError,
    "lost": LostError,
}


_Place: TypeAlias = tuple[int, tuple[Skipped, ...]]


def begin_at(fact: PartitionFacts, begin: Begin | None, policies: Policies, troubles: Troubles) -> _Place | None:
    """Where to begin with a partition and what is passed over; None where it cannot be said or is left out."""
    name = str(fact.partition)
    if fact.remade and not (policies.recreated == "committed" and fact.committed is None):
        place = _begin_remade(fact, policies.recreated, troubles)
        return None if place is None else _readable(fact, *place, policies.expired, troubles)
    if fact.committed is None:
        return _begin_without_offset(fact, begin, policies, troubles)
    if fact.exact and fact.begin is not None and fact.begin != fact.committed:
        troubles.add("exact", f"{name} is at {fact.committed}, not at {fact.begin}")
        return None
    if fact.committed > fact.log_end:
        place = _beyond(fact, fact.committed, policies.disagreement, troubles)
    else:
        place = _agreed(fact, fact.committed, policies.disagreement, troubles)
    if place is not None and fact.copied:  # told in the manifest, also where nothing is new
        place = place[0], (*place[1], Skipped("same", place[0], place[0]))
    return None if place is None else _readable(fact, *place, policies.expired, troubles)


def expired(facts: Iterable[PartitionFacts]) -> list[OffsetRange]:
    """What the logs have no more of where these groups stand, or were to begin, and nothing accounts for."""
    found: list[OffsetRange] = []
    for fact in facts:
        start = fact.begin if fact.committed is None else fact.committed
        if start is not None and start < fact.log_start and not fact.remade:
            gone = subtract((start, fact.log_start), (*fact.filled, *fact.coverage))
            found += [OffsetRange(fact.partition, low, high) for low, high in gone]
    return found


def _begin_remade(fact: PartitionFacts, policy: RecreatedPolicy, troubles: Troubles) -> _Place | None:
    was = "nothing" if fact.committed is None else fact.committed
    if policy == "fail":
        troubles.add("recreated", f"{fact.partition}, committed: {was}, the log is {fact.log_start} to {fact.log_end}")
        return None
    if policy == "skip":
        troubles.leave_out(fact.partition, "its topic was made again")
        return None
    start = {"earliest": fact.log_start, "latest": fact.log_end}.get(policy, fact.committed)
    if start is None or start > fact.log_end:
        troubles.add("beyond", f"{fact.partition} is at {was}, its log is {fact.log_start} to {fact.log_end}")
        return None
    skipped = [Skipped("recreated", start, start)]
    if policy == "earliest":
        # The new log began at 0: what it has none of any more was the group's to read.
        gone = subtract((0, fact.log_start), (*fact.filled, *fact.coverage))
        skipped += [Skipped("retention", low, high) for low, high in gone]
    if policy == "latest" and fact.log_start < start:
        skipped.append(Skipped("latest", fact.log_start, start))
    return start, tuple(skipped)


def _begin_without_offset(
    fact: PartitionFacts, begin: Begin | None, policies: Policies, troubles: Troubles
) -> _Place | None:
    name = str(fact.partition)
    policy, kind = policies.no_offset, "unknown"
    start = fact.begin
    if start is None and begin is not None:
        start = fact.log_start if begin == "earliest" else fact.log_end
    if fact.fresh:
        # What was said of partitions without an offset was not said of one that nobody knew: all of it is new.
        policy, kind = policies.new_partition, "new"
        if start is not None and start > fact.log_start and not fact.exact:
            start = None
    if start is None and fact.coverage and policies.disagreement == "lake":
        # As a group that stands at the log's start: what no run holds of the way to the end of its exports is told.
        end = fact.coverage[-1][1]
        start = end if end > fact.log_end else min(fact.log_start, end)
    if start is None:
        if policy == "fail" and kind == "unknown" and fact.coverage:
            troubles.add("unknown, exported", f"{name}, exported up to {fact.coverage[-1][1]}")
            return None
        if policy == "fail":
            troubles.add(kind, name)
            return None
        if policy == "skip":
            troubles.leave_out(fact.partition, "it has no committed offset")
            return None
        start = fact.log_start if policy == "earliest" else fact.log_end
    if start > fact.log_end:
        kind = "behind the log" if start == fact.begin else "beyond"
        troubles.add(kind, f"{name} is to begin at {start}, its log ends at {fact.log_end}")
        return None
    if fact.filled and start == fact.log_start and not fact.exact:
        start = min(start, fact.filled[0][1])  # what retention took behind the first backfill is told of
    place = _agreed(fact, start, policies.disagreement, troubles)
    if not fact.coverage and not fact.exact and fact.log_start < start == fact.log_end:
        place = start, (Skipped("latest", fact.log_start, start),)  # else what is passed over has been agreed on
    return None if place is None else _readable(fact, *place, policies.expired, troubles)


def _agreed(fact: PartitionFacts, stands: int, policy: Disagreement, troubles: Troubles) -> _Place | None:
    """Where to begin, given where the group stands and what the lake holds."""
    if not fact.coverage:
        return stands, ()
    end = fact.coverage[-1][1]
    behind = next((high for low, high in fact.coverage if low <= stands < high), None)
    if policy == "lake" and stands < end <= fact.log_end:
        # Behind the newest that was exported: what no run holds of the way there is passed over, and recorded; of a
        # group that was moved into a hole all of that.
        left = stands
        if behind is None and stands == fact.committed:
            left = max((high for _, high in fact.coverage if high <= stands), default=stands)
        return end, tuple(Skipped("moved", low, high) for low, high in subtract((left, end), fact.coverage))
    if behind is not None:
        text = f"{_standing(fact, stands)}, exported up to {behind}"
        cut = policy == "lake" and end > fact.log_end
        text += f", and its log ends at {fact.log_end}" if cut else ""
        _disagreed(fact, policy, "cut" if cut else "behind", text, troubles)
        return None
    ends = [high for _, high in fact.coverage if high <= stands]
    if not ends or max(ends) == stands:
        # Below everything that was exported (a backfill's gap), or just where the export ended.
        return stands, ()
    text = f"{_standing(fact, stands)}, exported up to {max(ends)}"
    text += f", and further on to {end}" if end > stands else ""
    if policy == "lake":
        return max(ends), ()
    if policy == "group":
        return stands, (Skipped("moved", max(ends), stands),)
    _disagreed(fact, policy, "read on" if troubles.joined else "ahead", text, troubles)
    return None


def _standing(fact: PartitionFacts, stands: int) -> str:
    if fact.committed is None:
        return f"{fact.partition} has no offset, and would begin at {stands}"
    return f"{fact.partition} is at {stands}"


def _beyond(fact: PartitionFacts, stands: int, policy: Disagreement, troubles: Troubles) -> _Place | None:
    """Where to begin with a group that stands where its log does not reach."""
    text = f"{fact.partition} is at {stands}, its log ends at {fact.log_end}"
    if not fact.coverage:
        _disagreed(fact, policy, "beyond its log", text, troubles)
        return None
    end = fact.coverage[-1][1]
    if policy == "lake" and end <= fact.log_end:
        return end, ()
    kind = "beyond all" if end <= fact.log_end else "beyond its log"
    _disagreed(fact, policy, kind, f"{text}, exported up to {end}", troubles)
    return None


def _disagreed(fact: PartitionFacts, policy: Disagreement, kind: str, text: str, troubles: Troubles) -> None:
    if policy == "skip":
        troubles.leave_out(fact.partition, text)
    else:
        troubles.add(kind, text)


def _readable(
    fact: PartitionFacts, start: int, skipped: tuple[Skipped, ...], policy: Policy, troubles: Troubles
) -> _Place | None:
    """The place, or the log's start where that is behind it."""
    missing = sum(high - low for low, high in subtract((start, fact.log_start), fact.filled))
    if not missing:
        return max(start, fact.log_start), skipped
    if policy == "fail":
        stands = f"is at {start}" if start == fact.committed else f"was to begin at {start}"
        text = f"{fact.partition} {stands}, its log starts at {fact.log_start}: {missing} offsets are lost"
        troubles.add("lost", text)
        troubles.lost += missing
        return None
    if policy == "skip":
        troubles.leave_out(fact.partition, f"its log starts at {fact.log_start}, behind {start}")
        return None
    skipped = (*skipped, Skipped("retention", start, fact.log_start))
    if policy == "latest" and fact.log_start < fact.log_end:
        return fact.log_end, (*skipped, Skipped("latest", fact.log_start, fact.log_end))
    return fact.log_start, skipped
