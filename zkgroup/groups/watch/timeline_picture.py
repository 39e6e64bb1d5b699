"""A picture of a timeline: partitions by time, coloured by their owners, as SVG. Pure.

It is drawn on a grid, so that its size has an end, however long was watched and however many partitions there are.
Readable on a light and on a dark ground, by what the reader's screen prefers.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final
from xml.sax.saxutils import escape

from zkgroup.groups.chart_axes import svg_head, svg_text, time_ticks, utc_text
from zkgroup.groups.watch.timeline import Event, Observation, WatchedGroup, WatchedPartition
from zkgroup.protocol.names import TopicPartition
from zkgroup.text import counted

#: Steps of time in the picture, and units of its width.
COLUMNS: Final = 1000
#: Rectangles at most: with more the steps of time get wider.
MAX_RECTANGLES: Final = 20_000
#: Members that the legend names.
MAX_NAMED: Final = 48
_MARGIN: Final = 16
_LABELS: Final = 180
_HEIGHT: Final = 1000
_LEGEND_LINE: Final = 18
_LEGEND_COLUMNS: Final = 2
_LAST_NUMBER: Final = 0xFFFF
_COLOURS: Final = (
    *("#4c8dd6", "#e0803c", "#3fa66b", "#b068c9", "#c9a227", "#d65f7a"),
    *("#3aa6a6", "#8a6d5a", "#7a86e0", "#8aa63a", "#d66fb8", "#6b8f9c"),
)
_STYLE: Final = """\
.none{fill:#e4e7eb}.mark{fill:#d1242f;fill-opacity:.28}.flag{fill:#d1242f}.more{fill:#8b949e}
@media screen and (prefers-color-scheme:dark){.none{fill:#262c36}
.mark{fill:#ff7b72;fill-opacity:.35}.flag{fill:#ff7b72}}"""


def picture(entries: Iterable[Observation], begin: int, end: int, group: str) -> str:
    """The timeline between the two times (milliseconds since 1970) as an SVG document."""
    canvas = _Canvas(begin, max(end, begin + 1), group)
    for entry in entries:
        canvas.add(entry.state, entry.events)
    return "".join(canvas.document())


class _Canvas:
    def __init__(self, begin: int, end: int, group: str) -> None:
        self._begin, self._end, self._group = begin, end, group
        self._members: dict[str, int] = {}  # their numbers, from 1 on
        self._present: dict[str, list[int]] = {}  # first and last time
        self._rows: dict[TopicPartition, array[int]] = {}
        self._claims: dict[TopicPartition, tuple[int, int]] = {}  # owner (by number, 0 is none), its first column
        self._last: Mapping[TopicPartition, WatchedPartition] | None = None
        self._marks = bytearray(COLUMNS)
        self._since: int | None = None
        self._rebalances = 0
        self._longest = 0.0

    def _column(self, at: int) -> int:
        return min(COLUMNS - 1, max(0, (at - self._begin) * COLUMNS // (self._end - self._begin)))

    def add(self, state: WatchedGroup, events: Iterable[Event]) -> None:
        """Take up the next state."""
        column = self._column(state.at)
        for name in state.members:
            self._present.setdefault(name, [state.at, state.at])[1] = state.at
            self._number(name)
        if state.partitions is not self._last:
            for key in self._claims.keys() - state.partitions.keys():
                self._hold(key, 0, column)
            for key, p in state.partitions.items():
                owner = p.member or p.owner
                self._hold(key, 0 if owner is None else self._number(owner), column)
            self._last = state.partitions
        for event in events:
            if event.kind == "rebalance-started":
                self._since = event.at
            elif event.kind == "rebalance-ended":
                seconds = event.seconds or 0.0
                self._mark(event.at - round(seconds * 1000) if self._since is None else self._since, event.at)
                self._longest = max(self._longest, seconds)
                self._since = None

    def _number(self, owner: str) -> int:
        return self._members.setdefault(owner, min(len(self._members) + 1, _LAST_NUMBER))

    def _hold(self, key: TopicPartition, owner: int, column: int) -> None:
        claim = self._claims.get(key)
        if claim is None:
            self._rows[key] = array("H", bytes(2 * COLUMNS))
        elif claim[0] == owner:
            return
        else:
            self._fill(key, claim, column)
        self._claims[key] = owner, column

    def _fill(self, key: TopicPartition, claim: tuple[int, int], end: int) -> None:
        owner, start = claim
        if owner and end > start:
            self._rows[key][start:end] = array("H", [owner]) * (end - start)

    def _mark(self, start: int, end: int) -> None:
        self._rebalances += 1
        first, last = self._column(start), self._column(end)
        self._marks[first : last + 1] = b"\1" * (last + 1 - first)

    def document(self) -> Iterator[str]:
        """The picture, piece by piece."""
        for key, claim in self._claims.items():
            self._fill(key, claim, COLUMNS)
        if self._since is not None:
            self._mark(self._since, self._end)
        keys = sorted(self._rows)
        grid = [self._rows[key] for key in keys]
        step, found = 1, _rectangles(grid)
        while sum(map(len, found.values())) > MAX_RECTANGLES and step < COLUMNS:
            step *= 2
            grid = [row[1::2] or row for row in grid]
            found = _rectangles(grid)
        height = min(16.0, _HEIGHT / max(1, len(grid)))
        top = _MARGIN + 44
        plot = round(height * max(1, len(grid)), 2)
        named = list(self._members)[:MAX_NAMED]
        more = len(self._members) - len(named)
        lines = -(-(len(named) + 1 + bool(more)) // _LEGEND_COLUMNS)
        width, total = _LABELS + COLUMNS + 2 * _MARGIN, round(top + plot + 34 + lines * _LEGEND_LINE + _MARGIN)
        title = f"Group {svg_text(self._group)}: who owned what"
        yield svg_head(width, total, title, self._summary(), _STYLE, _MARGIN)
        left = _MARGIN + _LABELS
        yield f'<g transform="translate({left},{top})">\n<rect class="none" width="{COLUMNS}" height="{plot:g}"/>\n'
        for name, number in self._members.items():
            if rectangles := found.get(number):
                path = "".join(_path(one, step, height) for one in rectangles)
                yield f'<path fill="{colour(number)}" d="{path}"><title>{escape(svg_text(name))}</title></path>\n'
        for first, last in (match.span() for match in re.finditer(b"\1+", self._marks)):
            yield f'<rect class="mark" x="{first}" y="0" width="{last - first}" height="{plot:g}"/>'
            yield f'<path class="flag" d="M{first - 3} -6h7l-3.5 6z"/>\n'
        yield from self._axis(plot)
        yield "</g>\n"
        yield from _labels(keys, height, top)
        yield from self._legend(named, more, top + plot + 34, lines)
        yield "</svg>\n"

    def _summary(self) -> str:
        words = f"{utc_text(self._begin, '%Y-%m-%d %H:%M:%S')} to {utc_text(self._end, '%Y-%m-%d %H:%M:%S')} UTC"
        words += f", {counted(len(self._rows), 'partition')}, {counted(len(self._present), 'member')}"
        words += f", {counted(self._rebalances, 'rebalance')}"
        return words + (f", the longest {self._longest:.1f} s" if self._longest else "")

    def _axis(self, plot: float) -> Iterator[str]:
        for at, label in time_ticks(self._begin, self._end):
            x = round((at - self._begin) * COLUMNS / (self._end - self._begin), 1)
            yield f'<path class="grid" d="M{x} 0V{plot + 4:g}"/>'
            yield f'<text x="{x}" y="{plot + 16:g}" class="dim small" text-anchor="middle">{label}</text>\n'

    def _legend(self, named: Sequence[str], more: int, top: float, lines: int) -> Iterator[str]:
        entries = []
        for name in named:
            times = [utc_text(at, "%H:%M:%S") for at in self._present.get(name, ())]
            when = f" ({' to '.join(times) or 'not registered'})"
            entries.append((f'fill="{colour(self._members[name])}"', svg_text(name) + when))
        entries.append(('class="none"', "no owner"))
        if more:
            entries.append(('class="more"', f"and {more} more members"))
        wide = (_LABELS + COLUMNS) / _LEGEND_COLUMNS
        for index, (state, words) in enumerate(entries):
            x, y = _MARGIN + index // lines * wide, top + index % lines * _LEGEND_LINE
            yield f'<rect {state} x="{x:g}" y="{y:g}" width="12" height="12" rx="2"/>'
            yield f'<text x="{x + 18:g}" y="{y + 10:g}">{escape(words)}</text>\n'


def colour(number: int) -> str:
    """The colour of the member with this number, from 1 on: no two have the same, as long as there are colours."""
    if number <= len(_COLOURS):
        return _COLOURS[number - 1]
    return f"hsl({number * 137.50776 % 360:.3f},{35 + number % 7 * 7}%,{42 + number % 5 * 6}%)"  # the golden angle


def _rectangles(grid: Sequence[array[int]]) -> dict[int, list[tuple[int, int, int, int]]]:
    """Owner → (column, row, width, height); neighbouring rows that are alike are one."""
    found: dict[int, list[tuple[int, int, int, int]]] = {}
    open_: dict[tuple[int, int, int], int] = {}
    for number in range(len(grid) + 1):
        runs = set(_runs(grid[number])) if number < len(grid) else set()
        for run in [run for run in open_ if run not in runs]:
            row = open_.pop(run)
            found.setdefault(run[0], []).append((run[1], row, run[2], number - row))
        for run in runs:
            open_.setdefault(run, number)
    return found


def _runs(row: array[int]) -> Iterator[tuple[int, int, int]]:
    """(owner, first column, width) of each stretch of one owner."""
    start = 0
    for column in range(1, len(row) + 1):
        if column == len(row) or row[column] != row[start]:
            if row[start]:
                yield row[start], start, column - start
            start = column


def _path(one: tuple[int, int, int, int], step: int, height: float) -> str:
    column, row, wide, rows = one
    x, wide = column * step, min(wide * step, COLUMNS - column * step)
    return f"M{x} {row * height:.5g}h{wide}v{rows * height:.5g}h-{wide}z"


def _labels(keys: Sequence[TopicPartition], height: float, top: int) -> Iterator[str]:
    """The topic's name at its first row, and partitions' numbers where there is room for them."""
    last, room = None, -100.0
    for number, key in enumerate(keys):
        y = top + number * height + min(height, 12) * 0.8
        if last is not None and key.topic != last and height >= 4:
            x, line = _MARGIN, top + number * height
            yield f'<path class="grid" d="M{x} {line:.5g}H{x + _LABELS + COLUMNS}"/>\n'
        if key.topic != last and y - room >= 11:
            yield f'<text x="{_MARGIN}" y="{y:.5g}">{escape(svg_text(key.topic, 22))}</text>\n'
            last, room = key.topic, y
        if height >= 10:
            x = _MARGIN + _LABELS - 6
            yield f'<text x="{x}" y="{y:.5g}" class="dim small" text-anchor="end">{key.partition}</text>\n'
