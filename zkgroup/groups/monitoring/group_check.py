"""The state of groups for a monitoring system: Nagios' states with their reasons, and Burrow's status. Pure.

Burrow (1.9.5, ``core/internal/evaluator/caching.go``) sees every commit. Here a commit is a changed offset with the
time of its write, in Kafka with the time of the first snapshot that has it. Members do not write an unchanged offset
again: a member that hangs is STOP, not STALL.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, Literal, TypeAlias

from zkgroup.groups.findings.inspection import Inspection
from zkgroup.groups.monitoring.lag_history import Sample
from zkgroup.groups.snapshot.table_rows import GroupRow
from zkgroup.protocol.names import TopicPartition, span_list, spans
from zkgroup.text import counted, duration_text, listed

State: TypeAlias = Literal["OK", "WARNING", "CRITICAL", "UNKNOWN"]
#: As plugins of Nagios end.
EXIT_CODES: Final[Mapping[State, int]] = {"OK": 0, "WARNING": 1, "CRITICAL": 2, "UNKNOWN": 3}
#: Worst last. What could not be judged may be worse than a warning.
_RANKS: Final[Sequence[State]] = ("OK", "WARNING", "UNKNOWN", "CRITICAL")
_OF_SEVERITY: Final[Mapping[str, State]] = {"critical": "CRITICAL", "warning": "WARNING"}


@dataclass(frozen=True, slots=True)
class Thresholds:
    """The lag of all partitions of a group from which on it is a warning, and critical; None: never. The same for the
    lag in time of the partition that is furthest behind, in seconds."""

    warn_lag: int | None = None
    crit_lag: int | None = None
    warn_behind: float | None = None
    crit_behind: float | None = None

    @property
    def in_time(self) -> tuple[float | None, float | None]:
        """The limits of the lag in time."""
        return self.warn_behind, self.crit_behind


@dataclass(frozen=True, slots=True)
class GroupCheck:
    """The state of a group. ``row``: its totals, the lag as far as it is known; ``max_lag``: the largest of one
    partition, None where one is unknown. ``unowned``: the number of such partitions of subscribed topics. ``progress``
    and ``statuses`` are by Burrow's rules over ``snapshots`` snapshots, this one included; ``complete``: every
    partition with an offset has one. ``catch_up``: seconds until the lag is zero, infinity where it does not shrink,
    None where that is unknown. ``reasons``: why it is not OK, worst first."""

    group: str
    state: State
    reasons: tuple[tuple[State, str], ...]
    row: GroupRow
    max_lag: int | None
    unowned: int
    progress: GroupStatus
    statuses: Mapping[TopicPartition, Status]
    snapshots: int
    catch_up: float | None
    complete: bool = True


def check_group(
    one: Inspection, windows: Mapping[TopicPartition, Sequence[Sample]], thresholds: Thresholds
) -> GroupCheck:
    """The state of a group. ``windows``: each partition in earlier snapshots and this one, in the order of time."""
    snapshot = one.snapshot
    lags = {p.key: lag for p in snapshot.partitions if (lag := p.known_lag(one.store)) is not None}
    row = one.summary
    # Of what is not known now, Burrow's rules would say what was.
    unknown = {p.key for p in snapshot.partitions if p.is_lag_unknown(one.store)}
    doubtful = [p for p in snapshot.partitions if p.key in unknown and p.committed(one.store) is not None]
    unread = [p for p in doubtful if p.log_end is None]
    statuses = {p.key: evaluate(windows.get(p.key, ())) for p in snapshot.partitions if p.key not in unknown}
    reasons = [
        *(
            (_OF_SEVERITY[finding.severity], f"{finding.code}: {finding.subject}: {finding.message}")
            for finding in one.findings
            if finding.severity != "info"
        ),
        *_of_lag(one, thresholds),
        *_of_progress(statuses),
    ]
    if unread:
        why = unread[0].log_error or "the log is not known"
        names = spans(p.key for p in unread)
        reasons.append(("UNKNOWN", f"lag of {counted(len(unread), 'partition')} not known ({names}): {why}"))
    reasons.extend(("UNKNOWN", warning.message) for warning in snapshot.all_warnings if not unread)
    if not snapshot.partitions and not snapshot.members and not snapshot.kafka_failures:
        reasons.append(("UNKNOWN", "has neither members nor offsets"))
    if snapshot.unreadable:
        paths = sorted(snapshot.unreadable)
        reasons.append(("UNKNOWN", f"may not be read: {listed(paths, most=3)}"))
    reasons.sort(key=lambda reason: -_RANKS.index(reason[0]))
    return GroupCheck(
        snapshot.group,
        worst_state(state for state, _ in reasons),
        tuple(reasons),
        row,
        None if row.lag is None else max([0, *lags.values()]),
        sum(p.topic in snapshot.subscribed and p.owner is None and not p.is_unreadable for p in snapshot.partitions),
        status_of_group(statuses.values()),
        statuses,
        max((len(window) for window in windows.values()), default=0),
        None if unknown else catch_up_seconds([windows[key] for key in lags if key in windows]),
        complete=not doubtful,
    )


def worst_state(states: Iterable[State]) -> State:
    """The worst state; OK without any."""
    return max(states, key=_RANKS.index, default="OK")


def _of_lag(one: Inspection, limits: Thresholds) -> Iterator[tuple[State, str]]:
    total, seconds = one.summary.lag_at_least or 0, one.summary.lag_seconds_at_least or 0.0
    if (state := _beyond(total, limits.warn_lag, limits.crit_lag)) is not None:
        yield state[0], f"lag {total} (from {state[1]} on)"
    if (state := _beyond(seconds, limits.warn_behind, limits.crit_behind)) is not None:
        yield state[0], f"{duration_text(seconds)} behind (from {duration_text(state[1])} on)"
    elif limits.in_time != (None, None):
        ages = {p.key: p.next_age for p in one.snapshot.partitions if p.known_lag(one.store)}
        unknown = [key for key, age in ages.items() if age is None or age.is_at_least]
        if unknown:
            what = counted(len(unknown), "partition")
            yield "UNKNOWN", f"lag in time of {what} not known ({listed(span_list(unknown))})"


def _beyond(value: float, warning: float | None, critical: float | None) -> tuple[State, float] | None:
    """The state of a value, and the limit that it reaches; None below both."""
    if critical is not None and value >= critical:
        return "CRITICAL", critical
    return ("WARNING", warning) if warning is not None and value >= warning else None


def _of_progress(statuses: Mapping[TopicPartition, Status]) -> Iterator[tuple[State, str]]:
    for status, meaning in MEANINGS.items():
        keys = [key for key, of in statuses.items() if of == status]
        if keys and status != "OK":
            yield "WARNING" if status == "WARN" else "CRITICAL", f"{status}: {listed(span_list(keys))}: {meaning}"


def catch_up_seconds(windows: Iterable[Sequence[Sample]]) -> float | None:
    """Seconds until the lag of a group is zero: until its slowest partition has caught up. ``windows``: the samples of
    each partition. Infinity where a lag does not shrink, None where that is unknown."""
    times = [seconds_to_catch_up(window) for window in windows]
    known = [seconds for seconds in times if seconds is not None]
    return max(known) if known and len(known) == len(times) else None


Status: TypeAlias = Literal["OK", "WARN", "STOP", "STALL", "REWIND"]
GroupStatus: TypeAlias = Literal["OK", "WARN", "ERR"]

#: Fewer samples show no trend.
MIN_SAMPLES: Final = 3
#: Nor does a shorter window, in milliseconds: twice the Scala consumer's auto.commit.interval.ms, within which lag
#: grows and nothing is committed, as it should be.
MIN_SPAN: Final = 2 * 60_000
MEANINGS: Final[dict[Status, str]] = {
    "OK": "it keeps up, or catches up",
    "WARN": "it makes progress, and falls behind all the same",
    "STOP": "nothing is committed any more",
    "STALL": "the same offset is committed again and again",
    "REWIND": "the offset went back, and has not come to where it was",
}


def evaluate(samples: Sequence[Sample]) -> Status:
    """The status of a partition; ``samples`` in the order of time, the last is now. OK where it is unknown."""
    known = [sample for sample in samples if sample.committed is not None]
    if len(known) < MIN_SAMPLES or not (known[-1].lag or 0) > 0 or known[-1] is not samples[-1]:
        return "OK"
    if known[-1].taken_at - known[0].taken_at < MIN_SPAN:
        return "OK"
    commits = _commits(known)
    if _has_stopped(known, commits):
        return "STOP"
    if _is_rewound([offset for _, offset in commits]):
        return "REWIND"
    lags = [sample.lag for sample in known if sample.lag is not None]
    if min(lags) > 0:
        if len(commits) > 1 and len({offset for _, offset in commits}) == 1:
            return "STALL"
        if len(lags) >= MIN_SAMPLES and all(after >= before for before, after in pairwise(lags)):
            return "WARN"
    return "OK"


def status_of_group(statuses: Iterable[Status]) -> GroupStatus:
    """The worst of the partitions' statuses: all but OK and WARN are errors."""
    bad = set(statuses) - {"OK"}
    return "ERR" if bad - {"WARN"} else "WARN" if bad else "OK"


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
    """Times and offsets."""
    commits: list[tuple[int, int]] = []
    for before, sample in zip((None, *samples), samples, strict=False):
        assert sample.committed is not None
        if before is None or (before.committed, before.changed_at) != (sample.committed, sample.changed_at):
            # ZooKeeper's clock may be ahead of this one.
            commits.append((min(sample.changed_at or sample.taken_at, sample.taken_at), sample.committed))
    return commits


def _has_stopped(samples: Sequence[Sample], commits: Sequence[tuple[int, int]]) -> bool:
    """Whether the last commit is longer ago than the commits before it reach back. Without lag there was nothing to
    commit: the time counts from the last sample without lag."""
    begun = commits[-1][0]
    seen = begun - max(commits[0][0], samples[0].taken_at)
    since = [sample for sample in samples if sample.taken_at > begun and sample.lag is not None]
    for before, after in pairwise(since):
        if before.lag is not None and before.lag <= 0:
            begun = after.taken_at
    return samples[-1].taken_at - begun > max(seen, MIN_SPAN)


def _is_rewound(offsets: Sequence[int]) -> bool:
    """Whether the offset is still behind its first step back."""
    for index, (before, after) in enumerate(pairwise(offsets), 1):
        if after < before:
            return max(offsets[index:]) < before
    return False
