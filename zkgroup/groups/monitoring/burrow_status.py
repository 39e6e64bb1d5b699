"""The status of partitions and groups by Burrow's rules, over a window of samples. Pure.

Burrow (1.9.5, ``core/internal/evaluator/caching.go``) sees every commit. Here a commit is a changed offset with the
time of its write, in Kafka with the time of the first snapshot that has it. Members do not write an unchanged offset
again: a member that hangs is STOP, not STALL.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, Literal, TypeAlias

from zkgroup.groups.group_model import lag_between

Status: TypeAlias = Literal["OK", "WARN", "STOP", "STALL", "REWIND"]
GroupStatus: TypeAlias = Literal["OK", "WARN", "ERR"]

#: Fewer samples show no trend.
FEWEST: Final = 3
#: Nor does a shorter window, in milliseconds: twice the Scala consumer's auto.commit.interval.ms, within which lag
#: grows and nothing is committed, as it should be.
SHORTEST: Final = 2 * 60_000
MEANINGS: Final[dict[Status, str]] = {
    "OK": "it keeps up, or catches up",
    "WARN": "it makes progress, and falls behind all the same",
    "STOP": "nothing is committed any more",
    "STALL": "the same offset is committed again and again",
    "REWIND": "the offset went back, and has not come to where it was",
}


@dataclass(frozen=True, slots=True)
class Sample:
    """A partition in one snapshot. Times are milliseconds since 1970; ``committed`` and ``log_end`` are None where
    there is none, or it is unknown; ``changed_at``: when the offset was written, where that is known."""

    taken_at: int
    committed: int | None
    log_end: int | None
    changed_at: int | None = None

    @property
    def lag(self) -> int | None:
        """High watermark less committed."""
        return lag_between(self.committed, self.log_end)


def evaluate(samples: Sequence[Sample]) -> Status:
    """The status of a partition; ``samples`` in the order of time, the last is now. OK where it is unknown."""
    known = [sample for sample in samples if sample.committed is not None]
    if len(known) < FEWEST or not (known[-1].lag or 0) > 0 or known[-1] is not samples[-1]:
        return "OK"
    if known[-1].taken_at - known[0].taken_at < SHORTEST:
        return "OK"
    commits = _commits(known)
    if _stopped(known, commits):
        return "STOP"
    if _rewound([offset for _, offset in commits]):
        return "REWIND"
    lags = [sample.lag for sample in known if sample.lag is not None]
    if min(lags) > 0:
        if len(commits) > 1 and len({offset for _, offset in commits}) == 1:
            return "STALL"
        if len(lags) >= FEWEST and all(after >= before for before, after in pairwise(lags)):
            return "WARN"
    return "OK"


def status_of_group(statuses: Iterable[Status]) -> GroupStatus:
    """The worst of the partitions' statuses: all but OK and WARN are errors."""
    worst: GroupStatus = "OK"
    for status in statuses:
        if status not in ("OK", "WARN"):
            return "ERR"
        if status == "WARN":
            worst = "WARN"
    return worst


def seconds_to_catch_up(samples: Sequence[Sample]) -> float | None:
    """Seconds until the lag is zero, at the rates of this window (consumed less produced). Infinity where it does not
    shrink; None where that is unknown."""
    known = [sample for sample in samples if sample.lag is not None]
    if not known or known[-1] is not samples[-1]:
        return None
    first, last = known[0], known[-1]
    assert first.lag is not None
    assert last.lag is not None
    if last.lag <= 0:
        return 0.0
    elapsed = (last.taken_at - first.taken_at) / 1000
    if elapsed <= 0:
        return None
    shrinks = (first.lag - last.lag) / elapsed
    return last.lag / shrinks if shrinks > 0 else float("inf")


def _commits(samples: Sequence[Sample]) -> list[tuple[int, int]]:
    """The commits in the samples: time and offset."""
    commits: list[tuple[int, int]] = []
    for before, sample in zip((None, *samples), samples, strict=False):
        assert sample.committed is not None
        if before is None or (before.committed, before.changed_at) != (sample.committed, sample.changed_at):
            # ZooKeeper's clock may be ahead of this one.
            commits.append((min(sample.changed_at or sample.taken_at, sample.taken_at), sample.committed))
    return commits


def _stopped(samples: Sequence[Sample], commits: Sequence[tuple[int, int]]) -> bool:
    """Whether the last commit is longer ago than the commits before it reach back. Without lag there was nothing to
    commit: the time counts from the last sample without lag."""
    begun = commits[-1][0]
    seen = begun - max(commits[0][0], samples[0].taken_at)
    since = [sample for sample in samples if sample.taken_at > begun and sample.lag is not None]
    for before, after in pairwise(since):
        if before.lag is not None and before.lag <= 0:
            begun = after.taken_at
    return samples[-1].taken_at - begun > max(seen, SHORTEST)


def _rewound(offsets: Sequence[int]) -> bool:
    """Whether the offset is still behind its first step back."""
    for index, (before, after) in enumerate(pairwise(offsets), 1):
        if after < before:
            return max(offsets[index:]) < before
    return False
