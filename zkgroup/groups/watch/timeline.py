"""The timeline of a group: its states, the events between them, and the course of its lag, as data.

``WatchedGroup`` is a ``GroupSnapshot`` cut down to what is shown, compared and recorded. Times are milliseconds since
1970, offsets are the *next* offset to read.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple, TypeAlias, get_args

from zkgroup.clients.kafka.responses import MessageAge
from zkgroup.groups.group_model import GroupSnapshot, Store, is_lag_unknown, lag_between
from zkgroup.protocol.names import TopicPartition
from zkgroup.protocol.znodes import Registration
from zkgroup.text import short

Kind: TypeAlias = Literal[
    "watching",
    "zookeeper-away",
    "zookeeper-back",
    "brokers-away",
    "brokers-back",
    "group-gone",
    "group-came",
    "broker-gone",
    "broker-came",
    "topic-gone",
    "topic-added",
    "topic-recreated",
    "partition-gone",
    "partition-added",
    "member-left",
    "member-joined",
    "member-changed",
    "session-renewed",
    "rebalance-started",
    "partition-released",
    "partition-claimed",
    "partition-moved",
    "offset-back",
    "offset-removed",
    "offset-set",
    "offset-before-start",
    "log-truncated",
    "rebalance-ended",
]
KINDS: Final[tuple[str, ...]] = get_args(Kind)


class WatchedMember(NamedTuple):
    """A member: what it subscribes to (``orders:2``, or a filter), and under which session."""

    subscription: str
    session: int = 0
    host: str | None = None


class WatchedPartition(NamedTuple):
    """A partition. ``owner``: the text of the owner node; ``member``: the registered member that it names; ``claimed``:
    the transaction of the claim (0 in Kafka). ``is_counted``: whether a rebalance minds it: its topic is subscribed to,
    it exists, and its owner may be read."""

    owner: str | None = None
    member: str | None = None
    claimed: int = 0
    is_counted: bool = True
    committed: int | None = None
    log_start: int | None = None
    log_end: int | None = None
    leader: int | None = None

    @property
    def lag(self) -> int | None:
        """High watermark less committed; None where it is unknown, as of an offset beyond the log's end."""
        return lag_between(self.committed, self.log_end)

    @property
    def is_lag_unknown(self) -> bool:
        """Whether the lag is unknown although the partition exists: it has a leader, a log, or a subscriber."""
        there = self.is_counted or self.leader is not None or self.log_end is not None
        return there and is_lag_unknown(self.committed, self.log_start, self.log_end)


class WatchedFinding(NamedTuple):
    """A finding of the group, and how severe it is."""

    severity: str
    text: str


@dataclass(frozen=True, slots=True)
class WatchedGroup:
    """The state of a group at one time, ``at``.

    ``topics``: existing topic that concerns the group → the transaction that created it (0: unknown). ``phase``:
    Kafka's word for a group that rebalances there. ``ids_changed``: the transaction of the last change of members.
    ``zookeeper`` and ``kafka``: why they do not answer, else None; the other fields then are as before. ``measured``:
    whether offsets and logs were read for this state, and not only members and owners. ``unreadable``: how many nodes
    may not be read. ``noticed``: when the first of its changes was noted, None if unknown. ``findings``: critical ones
    and warnings, the worst first; ``ages``: of the next messages of partitions with lag, those that are known; no
    recording has either.
    """

    at: int
    group: str = ""
    members: Mapping[str, WatchedMember] = field(default_factory=dict)
    partitions: Mapping[TopicPartition, WatchedPartition] = field(default_factory=dict)
    topics: Mapping[str, int] = field(default_factory=dict)
    brokers: tuple[int, ...] = ()
    exists: bool = True
    phase: str | None = None
    ids_changed: int = 0
    zookeeper: str | None = None
    kafka: str | None = None
    measured: bool = True
    unreadable: int = 0
    noticed: int | None = field(default=None, compare=False)
    findings: tuple[WatchedFinding, ...] = field(default=(), compare=False)
    ages: Mapping[TopicPartition, MessageAge] = field(default_factory=dict, compare=False)

    @property
    def lag(self) -> int | None:
        """The sum of all lags that are known; None where none is."""
        known = [lag for partition in self.partitions.values() if (lag := partition.lag) is not None]
        return sum(known) if known else None


def lag_text(partitions: Collection[WatchedPartition], unknown: str = "unknown") -> str:
    """The sum of their lags as text: with ``≥`` where some are unknown, ``unknown`` where all are."""
    known = [lag for partition in partitions if (lag := partition.lag) is not None]
    without = sum(partition.is_lag_unknown for partition in partitions)
    if without == len(partitions):
        return unknown
    return f"{'≥' if without else ''}{sum(known)}"


@dataclass(frozen=True, slots=True)
class Event:
    """An event. ``before`` and ``after``: owners, subscriptions, offsets, counts, by ``kind``; ``seconds``: it took."""

    at: int
    kind: Kind
    message: str
    member: str | None = None
    topic: str | None = None
    partition: int | None = None
    before: str | int | None = None
    after: str | int | None = None
    seconds: float | None = None


class Observation(NamedTuple):
    """A state of the group, and the events since the one before."""

    state: WatchedGroup
    events: tuple[Event, ...]


def _subscription(registration: Registration | None) -> str:
    """A subscription in words: ``orders:2, payments:1``; a filter after its kind."""
    if registration is None:
        return "?"
    words = ", ".join(f"{name}:{number}" for name, number in sorted(registration.subscription.items()))
    return short(words if registration.pattern == "static" else f"{registration.pattern} {words}")


def watched_group(
    snapshot: GroupSnapshot, store: Store, at: int, *, measured: bool, kafka: str | None = None
) -> WatchedGroup:
    members = {m.member: WatchedMember(_subscription(m.registration), m.session_id, m.host) for m in snapshot.members}
    members |= {one.member: WatchedMember("", 0, one.host) for one in snapshot.kafka_members}
    owners = snapshot.kafka_owners
    wanted = snapshot.subscribed | {key.topic for key in owners}
    partitions = {}
    for p in snapshot.partitions:
        in_kafka = owners.get(p.key) if p.owner is None else None
        partitions[p.key] = WatchedPartition(
            p.owner if p.owner is not None else in_kafka,
            p.member if p.owner is not None else in_kafka,
            p.claimed,
            p.topic in wanted and p.exists and not p.is_unreadable,
            p.committed(store),
            p.log_start,
            p.log_end,
            p.leader,
        )
    topics = {name: topic.czxid for name, topic in snapshot.topics.items() if topic.exists}
    return WatchedGroup(
        at,
        snapshot.group,
        members,
        partitions,
        topics,
        snapshot.broker_ids,
        snapshot.in_zookeeper or snapshot.coordinator is not None or any(p.kafka for p in snapshot.partitions),
        snapshot.kafka_phase,
        snapshot.ids_changed,
        kafka=kafka,
        measured=measured,
        unreadable=len(snapshot.unreadable),
    )


#: Points that are kept of each partition.
MAX_POINTS: Final = 60
#: Points of all partitions together: of groups with many partitions fewer are kept of each.
MAX_ALL_POINTS: Final = 300_000
MIN_POINTS: Final = 8


class Point(NamedTuple):
    """A partition at one time; ``at`` in milliseconds."""

    at: int
    committed: int | None
    log_end: int | None


class Rates(NamedTuple):
    """Messages per second; None while unknown."""

    produced: float | None = None
    consumed: float | None = None


_COMMITTED: Final = 1
_LOG_END: Final = 2
_NOTHING: Final[deque[Point]] = deque()


class LagTrends:
    """The last points of each partition."""

    def __init__(self) -> None:
        self._points: dict[TopicPartition, deque[Point]] = {}
        self._rates: dict[TopicPartition, Rates] = {}  # of the points that there are: a screen asks many times
        self._totals: deque[tuple[int, int | None]] = deque(maxlen=MAX_POINTS)

    def add(self, state: WatchedGroup) -> None:
        """Add the offsets of a state; a state without new ones is passed over."""
        if not state.measured:
            return
        self._rates.clear()
        kept = max(MIN_POINTS, min(MAX_POINTS, MAX_ALL_POINTS // max(1, len(state.partitions))))
        for gone in [key for key in self._points if key not in state.partitions]:
            del self._points[gone]
        for key, p in state.partitions.items():
            points = self._points.get(key, _NOTHING)
            if points.maxlen != kept:
                points = self._points[key] = deque(points, kept)
            last = points[-1] if points else None
            if last is not None and (_has_sunk(last.committed, p.committed or 0) or _has_sunk(last.log_end, p.log_end)):
                points.clear()  # a reset, or a recreated topic: no rate spans it
            points.append(Point(state.at, p.committed, p.log_end))
        self._totals.append((state.at, state.lag))

    def rates(self, key: TopicPartition) -> Rates:
        found = self._rates.get(key)
        if found is None:
            points = self._points.get(key, _NOTHING)
            found = self._rates[key] = Rates(_rate(points, _LOG_END), _rate(points, _COMMITTED))
        return found

    def total(self) -> Rates:
        """The sums of the known rates of all partitions."""
        rates = [self.rates(key) for key in self._points]
        return Rates(_sum(rate.produced for rate in rates), _sum(rate.consumed for rate in rates))

    def lags(self, key: TopicPartition) -> list[int | None]:
        """A partition's lag over time, oldest first."""
        return [lag_between(point.committed, point.log_end) for point in self._points.get(key, ())]

    def total_lags(self, count: int) -> tuple[list[int | None], float]:
        """The last ``count`` lags of all partitions together, and the time that they span, in seconds."""
        rows = list(self._totals)[-count:]
        return [lag for _, lag in rows], (rows[-1][0] - rows[0][0]) / 1000 if rows else 0.0


def _has_sunk(before: int | None, after: int | None) -> bool:
    return before is not None and after is not None and after < before


def _rate(points: deque[Point], field: int) -> float | None:
    """Between the first and the last point at which the field is known."""
    first = next((point for point in points if point[field] is not None), None)
    if first is None:
        return None
    last = next(point for point in reversed(points) if point[field] is not None)
    start, end = first[field], last[field]
    if start is None or end is None or last.at <= first.at:
        return None
    return (end - start) * 1000 / (last.at - first.at)


def _sum(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


_SIGNS: Final = "▁▂▃▄▅▆▇█"


def sparkline(values: Sequence[int | None], length: int) -> str:
    """The last values as a line of ``length`` signs, from 0 to the largest; an unknown value is a blank."""
    shown = list(values)[-length:]
    top = max((value for value in shown if value is not None), default=0)
    line = "".join(
        " "
        if value is None
        else _SIGNS[0]
        if top <= 0 or value <= 0
        else _SIGNS[min(len(_SIGNS) - 1, value * len(_SIGNS) // (top + 1))]
        for value in shown
    )
    return line.rjust(length)
