"""A frame of a watch's screen, as lines no wider than the screen. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby
from typing import Final

from zkgroup.clients.kafka.responses import MessageAge
from zkgroup.groups.chart_axes import short_number
from zkgroup.groups.watch.event_detector import waiting_for
from zkgroup.groups.watch.timeline import Event, Rates, WatchedGroup, WatchedPartition, lag_text, sparkline
from zkgroup.protocol.names import TopicPartition
from zkgroup.text import counted, duration_text

from ._output import shown_age
from ._terminal_text import escape, fitting, one_line, width
from ._watch_view import View

#: Lines for partitions, and for events, at least.
_MIN_PARTITION_LINES: Final = 4
_MIN_EVENT_LINES: Final = 2
#: Columns of a name at least.
_MIN_NAME: Final = 12
_ASCII: Final = "_.-:=+*#"
_STYLES: Final = {"head": "1", "dim": "2", "good": "32", "warn": "33", "bad": "31", "keys": "7", "title": "1"}
_OF_KIND: Final = {
    "member-joined": "good", "member-left": "bad", "rebalance-started": "warn", "rebalance-ended": "good",
    "zookeeper-away": "bad", "zookeeper-back": "good", "brokers-away": "bad", "brokers-back": "good",
    "group-gone": "bad", "broker-gone": "bad", "broker-came": "good", "offset-back": "warn", "offset-set": "warn",
    "offset-removed": "warn", "offset-before-start": "bad", "log-truncated": "bad", "topic-gone": "bad",
    "topic-recreated": "bad", "partition-released": "dim", "session-renewed": "warn",
}  # fmt: skip
_OF_SEVERITY: Final = {"critical": "bad", "warning": "warn"}
HELP: Final = (
    "s            next order: lag, name, owner, rate",
    "l n o r      order by lag, name, owner, rate",
    "/            type a text: only partitions whose name or owner has it;",
    "             Enter keeps it, Esc clears it",
    "p, space     pause: what happens meanwhile is shown afterwards",
    "arrows, PgUp PgDn Home End   scroll the partitions",
    "?            this help",
    "q, Ctrl-C    quit",
)
REPLAY_HELP: Final = (
    "right, left  a state on, a state back",
    "e            on to the next event",
    "+ -          faster, slower",
    "0 to 9       to a tenth of the recording",
)


@dataclass(frozen=True, slots=True)
class Style:
    """A terminal's style. ``signs``: it shows more than ASCII."""

    colour: bool = True
    signs: bool = True

    def style(self, text: str, name: str) -> str:
        return f"\x1b[{_STYLES[name]}m{text}\x1b[0m" if self.colour and name and text else text


def frame(view: View, columns: int, lines: int, style: Style) -> list[str]:
    """The screen: title, members, partitions, events, keys. At most ``lines`` lines."""
    body = lines - 1
    head = [*_title(view, columns, style), *_findings(view, columns, max(1, lines // 8), style)]
    if view.state is None:
        found = [*head, "", "waiting for the first state …"]
    elif view.help:
        found = [*head, "", *(HELP + (REPLAY_HELP if view.more_keys else ()))]
        found = [fit(line, columns) if number >= len(head) else line for number, line in enumerate(found)]
    else:
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
    return [*found, *[""] * (body - len(found)), _keys(view, columns, style)]


def _findings(view: View, columns: int, room: int, style: Style) -> list[str]:
    """What is wrong with the group, the worst first, in ``room`` lines at most; the last says how many more there
    are."""
    found = view.state.findings if view.state is not None else ()
    shown = found if len(found) <= room else found[: max(1, room - 1)]
    lines = [
        style.style(fit(f"{one.severity:<8}  {one_line(one.text)}", columns), _OF_SEVERITY.get(one.severity, ""))
        for one in shown
    ]
    if len(found) > len(shown) and room > 1:
        lines.append(style.style(fit(f"and {counted(len(found) - len(shown), 'finding')} more", columns), "dim"))
    return lines


def _title(view: View, columns: int, style: Style) -> list[str]:
    state = view.state
    if state is None:
        return [style.style(fit(escape(view.group), columns), "title")]
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
    second += f"behind {_age(behind, style)}  " if behind is not None else ""
    second += _catch_up(state, rates)
    second += _course(view, columns - len(second), style)
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
    return [*lines, fit(view.note, columns)] if view.note else lines


def _course(view: View, room: int, style: Style) -> str:
    """The lag over time, and its scale, within so many columns."""
    length = max(5, min(40, room - len("lag  of 1.23k in 1 min 34 s")))
    lags, seconds = view.trends.total_lags(length)
    top = max((lag for lag in lags if lag is not None), default=0)
    return f"lag {_spark(lags, length, style)} of {short_number(top)} in {duration_text(seconds)}"


def _age(age: MessageAge | None, style: Style) -> str:
    text = "-" if age is None else shown_age(age)
    return text if style.signs else text.replace("≥", ">=")


def _catch_up(state: WatchedGroup, rates: Rates) -> str:
    if not state.lag or rates.produced is None or rates.consumed is None:
        return ""
    if any(p.is_lag_unknown for p in state.partitions.values()):
        return ""
    gain = rates.consumed - rates.produced
    if gain <= 0:
        return "falls behind  " if gain < -0.05 * rates.produced else ""
    seconds = state.lag / gain
    if seconds < 1:
        return ""
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"caught up in {seconds / size:.0f} {unit}  "
    return f"caught up in {seconds:.0f} s  "


def _members(view: View, columns: int, room: int, style: Style) -> list[str]:
    state = view.state
    assert state is not None
    if not state.members:
        return []
    owned: dict[str, list[tuple[TopicPartition, WatchedPartition]]] = {name: [] for name in state.members}
    for key, p in state.partitions.items():
        if p.member in owned:
            owned[p.member].append((key, p))
    rows = []
    for name, share in sorted(owned.items(), key=lambda item: (-sum(p.lag or 0 for _, p in item[1]), item[0])):
        out = [rate for key, _ in share if (rate := view.trends.rates(key).consumed) is not None]
        lag = lag_text([p for _, p in share], "-") if share else "0"
        numbers = (str(len(share)), lag, _rate(sum(out) if out else None))
        rows.append((*numbers, _short_name(name, view.group), escape(state.members[name].subscription)))
    more = len(rows) - room
    rows = rows[:room] if more <= 0 else rows[: max(1, room - 1)]
    more = len(state.members) - len(rows)
    widths = [
        max(map(len, column)) for column in zip(("OWNED", "LAG", "OUT/S"), *(row[:3] for row in rows), strict=True)
    ]
    left = columns - sum(widths) - 8
    name_width = min(max([6, *(width(row[3]) for row in rows)]), max(12, left * 2 // 3))
    lines = [
        _joined(("OWNED", "LAG", "OUT/S"), widths, ("MEMBER", "SUBSCRIPTION"), (name_width, left - name_width), columns)
    ]
    lines = [style.style(lines[0], "head")]
    for row in rows:
        line = _joined(row[:3], widths, row[3:], (name_width, left - name_width), columns)
        lines.append(style.style(line, "dim") if row[0] == "0" else line)
    return ["", *lines, *([f"… and {more} more"] if more > 0 else [])]


def _joined(
    numbers: Sequence[str], widths: Sequence[int], texts: Sequence[str], rooms: Sequence[int], columns: int
) -> str:
    cells = [text.rjust(room) for text, room in zip(numbers, widths, strict=True)]
    cells += [_padded(text, max(0, room)) for text, room in zip(texts, rooms, strict=True)]
    return fit("  ".join(cells).rstrip(), columns)


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
    table = [_cells(view, row, length, style) for row in visible]
    heads = ["PART", "COMMITTED", "LOG END", "LAG", "BEHIND", "IN/S", "OUT/S", "LAG OVER TIME"[-max(length, 3) :]]
    widths = [max(width(line[n]) for line in [heads, *table]) for n in range(8)]
    kept = [n for n in range(8) if n != 4 or (view.state is not None and view.state.ages)]
    topics, owners = (max(width(line[n]) for line in [[*heads, "TOPIC", "OWNER"], *table]) for n in (8, 9))
    # What a narrow screen does without, the least first.
    for dropped in (5, 2, 1, 7, 4):
        if _left(columns, widths, kept) >= min(topics, 20) + min(owners, 16):
            break
        kept = [n for n in kept if n != dropped]
    left = _left(columns, widths, kept)
    topic = min(topics, max(8, left * 3 // 5, left - owners))
    rooms = (topic, left - topic)
    lines = [""]
    for line in [[*heads, "TOPIC", "OWNER"], *table]:
        rest = _joined([line[n] for n in kept], [widths[n] for n in kept], [line[9]], [rooms[1]], columns)
        lines.append(fit(f"{_padded(line[8], rooms[0])}  {rest}", columns))
    lines[1] = style.style(_marked(lines[1], view, len(rows), columns), "head")
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


def _left(columns: int, widths: Sequence[int], kept: Sequence[int]) -> int:
    """What is left for topic and owner."""
    return columns - sum(widths[n] + 2 for n in kept) - 2


def _cells(view: View, row: tuple[TopicPartition, WatchedPartition, Rates], length: int, style: Style) -> list[str]:
    key, p, rates = row
    course = _spark(view.trends.lags(key), length, style)
    numbers = ["-" if value is None else str(value) for value in (p.committed, p.log_end, p.lag)]
    owner = "-" if p.owner is None else _short_name(p.owner, view.group)
    age = view.state.ages.get(key) if view.state is not None else None
    behind = "0 s" if age is None and p.lag == 0 else _age(age, style)
    cells = [str(key.partition), *numbers, behind, _rate(rates.produced), _rate(rates.consumed), course]
    return [*cells, escape(key.topic), owner]


def _judged(p: WatchedPartition, rates: Rates) -> str:
    if p.owner is None:
        return "bad" if p.judged else "dim"
    behind = rates.produced is not None and rates.consumed is not None and rates.consumed < rates.produced * 0.9
    return "warn" if behind and (p.lag or 0) > 0 else ""


def _marked(head: str, view: View, count: int, columns: int) -> str:
    words = f"by {view.sort}" + (f", with {escape(view.filter)!r}" if view.filter else "") + f", {count}"
    gap = columns - width(head) - width(words)
    return f"{head}{' ' * gap}{words}" if gap >= 2 else head


def _events(view: View, columns: int, room: int, style: Style) -> list[str]:
    lines = []
    recent = list(view.events)[-200:]
    for (at, kind), group in groupby(recent, key=lambda event: (event.at, event.kind)):
        lines.append((at, kind, _summed(list(group), view.group)))
    found = ["", style.style("EVENTS", "head")]
    for at, kind, words in lines[-(room - 1) :]:
        found.append(style.style(fit(f"{_clock(at)}  {words}", columns), _OF_KIND.get(kind, "")))
    return found


def _summed(events: Sequence[Event], group: str) -> str:
    """Events of one kind at one time as one line."""
    words = escape(events[0].message).replace(f"{group}_", "")
    return words if len(events) == 1 else f"{words}, and {len(events) - 1} more"


def _keys(view: View, columns: int, style: Style) -> str:
    if view.typing:
        return fit(f"filter: {escape(view.filter)}_   (Enter keeps it, Esc clears it)", columns)
    pause, leave = "go on" if view.paused else "pause", "back" if view.is_inner else "quit"
    words = f"{view.more_keys}s sort: {view.sort}  / filter  p {pause}  ? help  q {leave}"
    if view.filter:
        words += f"  filter: {escape(view.filter)}"
    return style.style(_padded(words, columns), "keys") if style.colour else fit(words, columns)


def _spark(values: Sequence[int | None], length: int, style: Style) -> str:
    return sparkline(values, length) if style.signs else sparkline(values, length, _ASCII)


def _rate(rate: float | None) -> str:
    if rate is None:
        return "-"
    if rate >= 9_999.5:
        return f"{rate / 1000:.0f}k" if rate < 9_999_500 else f"{rate / 1_000_000:.0f}M"
    return f"{rate:.0f}" if rate >= 9.95 or rate == 0 else f"{rate:.1f}"


def _short_name(name: str, group: str) -> str:
    """A member's or a stream's name without the group's, which all of them begin with."""
    return escape(name.removeprefix(f"{group}_") or name)


def _clock(millis: int) -> str:
    try:
        return f"{datetime.fromtimestamp(millis / 1000, UTC):%H:%M:%S}Z"
    except (OverflowError, ValueError, OSError):
        return "?"


def _padded(text: str, room: int) -> str:
    text = fit(text, room)
    return text + " " * (room - width(text))


def fit(text: str, room: int) -> str:
    """The text, cut so that it takes no more columns; wide characters take two, and none is halved."""
    if len(text) <= room and width(text) <= room:
        return text
    return fitting(text, room - 1) + ("…" if room > 0 else "")
