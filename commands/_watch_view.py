"""The state of a screen, by what was read last and what keys have set (order, filter, position), and its frame."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from rich.cells import set_cell_size

from zkgroup.groups.chart_axes import short_number
from zkgroup.groups.watch.event_detector import waiting_for
from zkgroup.groups.watch.timeline import Event, LagTrends, Rates, WatchedGroup, WatchedPartition, lag_text, sparkline
from zkgroup.protocol.names import TopicPartition
from zkgroup.text import counted, duration_text

from ._error_output import Message
from ._output import Figure, fitted_lines, iso_utc, shown_age
from ._terminal_text import escape, fit, one_line, width

if TYPE_CHECKING:
    from ._watch_screen import Key

_Row: TypeAlias = tuple[TopicPartition, WatchedPartition, Rates]
#: The orders of partitions. What is unknown comes last, and a partition without an owner first.
_ORDERS: Final[dict[str, Callable[[_Row], Any]]] = {
    "lag": lambda row: (row[1].lag is None, -(row[1].lag or 0), row[0]),
    "name": lambda row: row[0],
    "owner": lambda row: (row[1].owner is not None, row[1].owner or "", row[0]),
    "rate": lambda row: (row[2].consumed is None, -(row[2].consumed or 0), row[0]),
}
SORTS: Final = tuple(_ORDERS)
#: Events that are kept for the screen.
MAX_EVENTS: Final = 500


class FilteredView(ABC):
    """The state of a screen with rows in an order, and a filter. ``render`` makes text of its note."""

    def __init__(self, sorts: Sequence[str], sort: str, render: Callable[[Message], str] = str) -> None:
        self._render = render
        self.sorts = sorts
        self.sort = sort
        self.filter = ""
        self.typing = False
        self.scroll = 0
        #: The rows that fitted the last frame.
        self.shown = 1
        #: One line about servers, or about a replay.
        self.note: Message = ""
        #: The key that ended the screen; empty after a signal.
        self.ended_by: Key = ""

    @property
    def note_line(self) -> str:
        return one_line(self._render(self.note))

    @abstractmethod
    def move(self, step: int | None) -> None:
        """Move by so many rows; None: another order or filter has been chosen."""

    def press(self, key: Key) -> bool:
        """Handle a key; True if it has a meaning here."""
        steps = {"up": -1, "k": -1, "down": 1, "j": 1, "page-up": -self.shown, "page-down": self.shown}
        steps |= {"home": -sys.maxsize, "end": sys.maxsize}
        if self.typing:
            self._type(key)
            self.move(None)
        elif key in steps:
            self.move(steps[key])
        elif key == "s":
            self.sort = self.sorts[(self.sorts.index(self.sort) + 1) % len(self.sorts)]
            self.move(None)
        elif key == "/":
            self.typing = True
        elif key == "escape":
            self.filter = ""
            self.move(None)
        else:
            return False
        return True

    def ends(self, key: Key) -> bool:
        return key in ("interrupt", "hang-up") or (key == "q" and not self.typing)

    def _type(self, key: Key) -> None:
        if key in ("enter", "escape"):
            self.typing = False
            self.filter = "" if key == "escape" else self.filter
        elif key == "backspace":
            self.filter = self.filter[:-1]
        elif len(key) == 1 and key.isprintable():
            self.filter = (self.filter + key)[:100]


class View(FilteredView):
    """The state of a watch's screen. ``keys`` change it, states change it; ``frame`` draws it. ``is_inner``: ``q`` goes
    back to another screen."""

    def __init__(self, group: str, *, is_inner: bool = False) -> None:
        super().__init__(SORTS, "lag")
        self.group = group
        self.is_inner = is_inner
        self.state: WatchedGroup  # what was added last, which is before the first frame
        self.trends = LagTrends()
        self.events: deque[Event] = deque(maxlen=MAX_EVENTS)
        self.rebalancing_since: int | None = None
        self.paused = False
        #: Keys of a recording, in place of the pause.
        self.more_keys = ""

    def add(self, state: WatchedGroup, events: Iterable[Event]) -> None:
        self.state = state
        self.trends.add(state)
        for event in events:
            self.events.append(event)
            if event.kind == "rebalance-started":
                self.rebalancing_since = event.at
            elif event.kind == "rebalance-ended":
                self.rebalancing_since = None

    def restart(self) -> None:
        """Drop the snapshots; order and filter stay."""
        self.trends, self.rebalancing_since = LagTrends(), None
        self.events.clear()

    def rows(self) -> list[_Row]:
        wanted = self.filter.lower()
        rows = [
            (key, p, self.trends.rates(key))
            for key, p in self.state.partitions.items()
            if not wanted or wanted in f"{key} {p.owner or '-'}".lower()
        ]
        rows.sort(key=_ORDERS[self.sort])
        return rows

    def move(self, step: int | None) -> None:
        self.scroll = 0 if step is None else max(0, self.scroll + step)

    def press(self, key: Key) -> bool:
        if self.typing or key not in ("p", " "):
            return super().press(key)
        self.paused = not self.paused
        return True


#: Lines for partitions, and for events, at least.
_MIN_PARTITION_LINES: Final = 4
_MIN_EVENT_LINES: Final = 2
_MEMBER_HEADS: Final = ("OWNED", "LAG", "OUT/S", "MEMBER", "SUBSCRIPTION")
#: Columns of a name at least.
_MIN_NAME: Final = 12
_STYLES: Final = {"head": "1", "dim": "2", "good": "32", "warn": "33", "bad": "31", "keys": "7", "title": "1"}
_OF_KIND: Final = {
    "member-joined": "good", "member-left": "bad", "rebalance-started": "warn", "rebalance-ended": "good",
    "zookeeper-away": "bad", "zookeeper-back": "good", "brokers-away": "bad", "brokers-back": "good",
    "group-gone": "bad", "broker-gone": "bad", "broker-came": "good", "offset-back": "warn", "offset-set": "warn",
    "offset-removed": "warn", "offset-before-start": "bad", "log-truncated": "bad", "topic-gone": "bad",
    "topic-recreated": "bad", "partition-released": "dim", "session-renewed": "warn",
}  # fmt: skip
#: The style of a finding.
OF_SEVERITY: Final = {"critical": "bad", "warning": "warn"}


@dataclass(frozen=True, slots=True)
class Style:
    colour: bool = True

    def style(self, text: str, name: str) -> str:
        return f"\x1b[{_STYLES[name]}m{text}\x1b[0m" if self.colour and name and text else text


def frame(view: View, columns: int, lines: int, style: Style) -> list[str]:
    """The screen: title, members, partitions, events, keys. At most ``lines`` lines."""
    body = lines - 1
    head = [*_title(view, columns, style), *_findings(view, columns, max(1, lines // 8), style)]
    events = _events(view, columns, max(2, min(8, lines // 4)), style)
    members = _members(view, columns, max(1, min(len(view.state.members), (lines - 10) // 4)), style)
    # Of little room partitions get theirs first: a blank line, their head, one of them, how many there are more.
    if body - len(head) - len(members) - len(events) < _MIN_PARTITION_LINES:
        members = []
    if body - len(head) - len(events) < _MIN_PARTITION_LINES:
        events = []
    partitions = _partitions(view, columns, max(2, body - len(head) - len(members) - len(events)), style)
    left = body - len(head) - len(members) - len(partitions)
    last = _events(view, columns, left - 1, style) if left > _MIN_EVENT_LINES else []
    found = [*head, *members, *partitions, *last]
    found = found[:body]
    pause = "" if view.more_keys else "p go on  " if view.paused else "p pause  "
    leave = "back" if view.is_inner else "quit"
    words = f"{view.more_keys}s sort: {view.sort}  / filter  {pause}↑↓ scroll  q {leave}"
    return [*found, *[""] * (body - len(found)), keys_line(view, words, columns, style)]


def _findings(view: View, columns: int, room: int, style: Style) -> list[str]:
    """What is wrong with the group, the worst first, in ``room`` lines at most; the last says how many more there
    are."""
    found = view.state.findings
    shown = found if len(found) <= room else found[: max(1, room - 1)]
    lines = [
        style.style(fit(f"{one.severity:<8}  {one_line(one.text)}", columns), OF_SEVERITY.get(one.severity, ""))
        for one in shown
    ]
    if len(found) > len(shown) and room > 1:
        lines.append(style.style(fit(f"and {counted(len(found) - len(shown), 'finding')} more", columns), "dim"))
    return lines


def _title(view: View, columns: int, style: Style) -> list[str]:
    state = view.state
    owned = sum(p.owner is not None for p in state.partitions.values())
    lag = lag_text(state.partitions.values())
    numbers = f"  {counted(len(state.members), 'member')}"
    numbers += f"  {owned} of {counted(len(state.partitions), 'partition')} owned  lag {lag}"
    clock = _clock(state.at) + ("  PAUSED" if view.paused else "")
    # What a long name leaves no room for would be the numbers, which are what is watched.
    first = fit(escape(view.group), max(_MIN_NAME, columns - len(numbers) - len(clock) - 2)) + numbers
    rates = view.trends.total()
    behind = max(state.ages.values(), key=lambda age: age.seconds, default=None)
    second = f"{_rate(rates.produced)}/s in  {_rate(rates.consumed)}/s out  "
    second += f"behind {shown_age(behind)}  " if behind is not None else ""
    second += _catch_up(state, rates)
    second += _course(view, columns - len(second))
    gap = columns - width(first) - len(clock)
    title = f"{first}{' ' * gap}{clock}" if gap >= 2 else first
    lines = [style.style(fit(title, columns), "title"), fit(second, columns)]
    trouble = state.zookeeper or state.kafka
    if trouble is not None:
        what = "ZooKeeper is away" if state.zookeeper else "brokers do not answer"
        lines.append(style.style(fit(f"{what}: {escape(trouble)}", columns), "bad"))
    elif not state.exists:
        lines.append(style.style("the group is gone", "bad"))
    elif state.unreadable and view.rebalancing_since is None:
        words = f"{counted(state.unreadable, 'node')} may not be read: there may be members, owners and offsets besides"
        lines.append(style.style(fit(words, columns), "warn"))
    elif view.rebalancing_since is not None:
        seconds = max(0, state.at - view.rebalancing_since) / 1000
        words = f"rebalance under way for {seconds:.0f} s: {escape(waiting_for(state))}"
        lines.append(style.style(fit(words, columns), "warn"))
    else:
        lines.append(style.style(fit("at rest" if state.members else "nobody is registered", columns), "dim"))
    return [*lines, fit(view.note_line, columns)] if view.note else lines


def _course(view: View, room: int) -> str:
    length = max(5, min(40, room - len("lag  of 1.23k in 1 min 34 s")))
    lags, seconds = view.trends.total_lags(length)
    top = max((lag for lag in lags if lag is not None), default=0)
    return f"lag {sparkline(lags, length)} of {short_number(top)} in {duration_text(seconds)}"


def _catch_up(state: WatchedGroup, rates: Rates) -> str:
    is_partial = any(p.is_lag_unknown for p in state.partitions.values())
    if not state.lag or is_partial or rates.produced is None or rates.consumed is None:
        return ""
    gain = rates.consumed - rates.produced
    if gain <= 0:
        return "falls behind  " if gain < -0.05 * rates.produced else ""
    seconds = state.lag / gain
    return f"caught up in {duration_text(seconds)}  " if seconds >= 1 else ""


def _members(view: View, columns: int, room: int, style: Style) -> list[str]:
    state = view.state
    if not state.members:
        return []
    owned: dict[str, list[tuple[TopicPartition, WatchedPartition]]] = {name: [] for name in state.members}
    for key, p in state.partitions.items():
        if p.member in owned:
            owned[p.member].append((key, p))
    rows: list[dict[str, Any]] = []
    for name, share in sorted(owned.items(), key=lambda item: (-sum(p.lag or 0 for _, p in item[1]), item[0])):
        out = [rate for key, _ in share if (rate := view.trends.rates(key).consumed) is not None]
        lag = Figure(lag_text([p for _, p in share], "-") if share else "0")
        cells = (len(share), lag, _rate(sum(out) if out else None), _short_name(name, view.group))
        rows.append(dict(zip(_MEMBER_HEADS, (*cells, state.members[name].subscription), strict=True)))
    shown = rows if len(rows) <= room else rows[: max(1, room - 1)]
    styles = ["head", *("" if row["OWNED"] else "dim" for row in shown)]
    lines = zip(_table(shown, _MEMBER_HEADS, columns, ()), styles, strict=True)
    more = len(rows) - len(shown)
    return ["", *(style.style(line, name) for line, name in lines), *([f"… and {more} more"] if more else [])]


def _table(rows: Sequence[dict[str, Any]], heads: Sequence[str], columns: int, spare: Sequence[str]) -> list[str]:
    return [fit(line, columns) for line in fitted_lines(rows, heads, columns, spare)]


def _partitions(view: View, columns: int, room: int, style: Style) -> list[str]:
    rows = view.rows()
    shown = max(1, room - 2)
    if len(rows) > shown:
        shown = max(1, shown - 1)  # one line says how many are not
    view.scroll, view.shown = max(0, min(view.scroll, len(rows) - shown)), shown
    visible = rows[view.scroll : view.scroll + shown]
    if not rows:
        words = f"no partition has {escape(view.filter)!r} in its name or owner" if view.filter else "no partitions"
        return ["", style.style(fit(words, columns), "dim")]
    length = 20 if columns >= 120 else 10
    course = "LAG OVER TIME"[-length:]
    heads = ["TOPIC", "PART", "COMMITTED", "LOG END", "LAG", "BEHIND", "IN/S", "OUT/S", course, "OWNER"]
    cells = [dict(zip(heads, _cells(view, row, length), strict=True)) for row in visible]
    if not view.state.ages:
        heads.remove("BEHIND")
    lines = ["", *_table(cells, heads, columns, ("IN/S", "LOG END", "COMMITTED", course, "BEHIND"))]
    lines[1] = style.style(lines[1], "head")
    for number, (_, p, rates) in enumerate(visible, 2):
        lines[number] = style.style(lines[number], _judged(p, rates))
    if len(rows) > shown:
        lines.append(style.style(fit(_out_of_sight(view.scroll, len(rows) - view.scroll - shown), columns), "dim"))
    return lines


def _out_of_sight(above: int, below: int) -> str:
    """How many partitions the screen has no lines for, and how they come to be seen."""
    hidden = [f"{count} {where}" for count, where in ((above, "above"), (below, "below")) if count]
    words = f"… and {below} more" if not above else f"… {', '.join(hidden)}"
    return f"{words}: arrows scroll, / filters, or make the window larger"


def _cells(view: View, row: _Row, length: int) -> tuple[Any, ...]:
    key, p, rates = row
    age = view.state.ages.get(key)
    behind = Figure(shown_age(age) if age is not None else "0 s" if p.lag == 0 else "-")
    course = Figure(sparkline(view.trends.lags(key), length))
    owner = None if p.owner is None else _short_name(p.owner, view.group)
    numbers = (p.committed, p.log_end, p.lag, behind, _rate(rates.produced), _rate(rates.consumed))
    return key.topic, key.partition, *numbers, course, owner


def _judged(p: WatchedPartition, rates: Rates) -> str:
    if p.owner is None:
        return "bad" if p.is_counted else "dim"
    behind = rates.produced is not None and rates.consumed is not None and rates.consumed < rates.produced * 0.9
    return "warn" if behind and (p.lag or 0) > 0 else ""


def _events(view: View, columns: int, room: int, style: Style) -> list[str]:
    lines = []
    for (at, kind), group in groupby(list(view.events)[-200:], key=lambda event: (event.at, event.kind)):
        first, *more = group
        words = escape(first.message).replace(f"{view.group}_", "") + (f", and {len(more)} more" if more else "")
        lines.append(style.style(fit(f"{_clock(at)}  {words}", columns), _OF_KIND.get(kind, "")))
    return ["", style.style("EVENTS", "head"), *lines[-(room - 1) :]]


def keys_line(view: FilteredView, words: str, columns: int, style: Style) -> str:
    """The last line of a screen: its keys, and the filter."""
    if view.typing:
        words = f"filter: {escape(view.filter)}_   (Enter keeps it, Esc clears it)"
    elif view.filter:
        words += f"  filter: {escape(view.filter)}"
    return style.style(set_cell_size(fit(words, columns), columns), "keys")


def _rate(rate: float | None) -> Figure:
    return Figure("-" if rate is None else short_number(rate))


def _short_name(name: str, group: str) -> str:
    """A member's or a stream's name without the group's, which all of them begin with."""
    return name.removeprefix(f"{group}_") or name


def _clock(millis: int) -> str:
    text = iso_utc(millis)
    return f"{text[11:19]}Z" if text is not None else "?"
