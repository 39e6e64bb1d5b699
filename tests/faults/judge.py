"""What must hold of a run, seen from outside. Pure.

All times are nanoseconds of the machine's monotonic clock, which all processes share.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple


class Delivery(NamedTuple):
    """A record that was delivered, as noted by its reader before it asked for the next one.

    ``tenure`` names the reader's process and which of its shares it was: two deliveries of one tenure have one owner.
    """

    at: int
    tenure: str
    partition: int
    offset: int


class Commit(NamedTuple):
    """A stored offset, as somebody saw it who had asked before ``at``."""

    at: int
    partition: int
    offset: int


class Unnotified(NamedTuple):
    """A process whose session was ended early, from ``since`` until it was reported, or until its lease ended."""

    process: str
    since: int
    until: int


@dataclass
class Verdict:
    """What a run showed. The lists name what must not be.

    ``again``: deliveries of what had been delivered before, all of it behind the last commit. ``in_hand``: records that
    a stopped process had been handed and noted when it went on, or that a session's early end let through.
    ``unnotified``: records of another's share, delivered by a member that had not heard yet that its session was over.
    Both are what no client can prevent.
    """

    delivered: int = 0
    again: int = 0
    in_hand: int = 0
    unnotified: int = 0
    lost: list[str] = field(default_factory=list)
    backwards: list[str] = field(default_factory=list)
    committed_again: list[str] = field(default_factory=list)
    overlaps: list[str] = field(default_factory=list)
    uncommitted: list[str] = field(default_factory=list)

    @property
    def wrong(self) -> list[str]:
        """Everything that must not be."""
        return self.lost + self.backwards + self.committed_again + self.overlaps + self.uncommitted


def judge(
    deliveries: Iterable[Delivery],
    commits: Iterable[Commit],
    ends: Mapping[int, int],
    final: Mapping[int, int],
    excused: Mapping[str, int],
    unnotified: Sequence[Unnotified] = (),
) -> Verdict:
    """Hold a run against the guarantees.

    ``ends``: where each partition's log ends, from 0. ``final``: what is committed when all have left. ``excused``: by
    process (what a tenure begins with, up to ``/``), how often it was stopped past its lease, or its session ended
    early: each time it may be late with one record in hand. ``unnotified``: while it is, a process may go on with what
    was its share.
    """
    verdict = Verdict()
    history: dict[int, tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))  # times, offsets
    for commit in sorted(commits):
        times, offsets = history[commit.partition]
        if offsets and commit.offset < offsets[-1]:
            verdict.backwards.append(f"partition {commit.partition}: {commit.offset} after {offsets[-1]}")
        elif not offsets or commit.offset > offsets[-1]:
            times.append(commit.at)
            offsets.append(commit.offset)
    excuses = dict(excused)

    def is_excused(tenure: str) -> bool:
        process = tenure.partition("/")[0]
        if excuses.get(process, 0) < 1:
            return False
        excuses[process] -= 1
        verdict.in_hand += 1
        return True

    def is_unnotified(at: int, tenure: str) -> bool:
        process = tenure.partition("/")[0]
        return any(one.process == process and one.since <= at < one.until for one in unnotified)

    seen: dict[int, set[int]] = defaultdict(set)
    newest: dict[int, str] = {}  # the tenure that a partition was last read under
    over: set[tuple[int, str]] = set()  # tenures that another has followed
    for at, tenure, partition, offset in sorted(deliveries):
        verdict.delivered += 1
        times, offsets = history[partition]
        known = bisect_right(times, at - 1)
        committed = offsets[known - 1] if known else 0
        others = newest.get(partition, tenure) != tenure
        verdict.again += offset in seen[partition]
        seen[partition].add(offset)
        if (offset < committed or others) and is_unnotified(at, tenure):
            verdict.unnotified += 1
            continue
        if offset < committed and is_excused(tenure):
            continue
        if offset < committed:
            verdict.committed_again.append(f"{partition}:{offset} to {tenure}, committed was {committed}")
        if not others and partition in newest:
            continue
        if (partition, tenure) in over:
            if not is_excused(tenure):
                verdict.overlaps.append(f"{partition}:{offset} to {tenure}, after {newest[partition]} had begun")
            continue
        if partition in newest:
            over.add((partition, newest[partition]))
        newest[partition] = tenure
    for partition, end in sorted(ends.items()):
        if missing := sorted(set(range(end)) - seen[partition]):
            verdict.lost.append(f"partition {partition}: {len(missing)} of {end} records, the first is {missing[0]}")
        if final.get(partition, 0) != end:
            verdict.uncommitted.append(f"partition {partition}: {final.get(partition)} is committed, {end} its end")
    return verdict
