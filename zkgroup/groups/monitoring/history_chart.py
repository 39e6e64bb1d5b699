"""The history of a group as SVG: lag, rates and commits over time. Pure. Readable on a light and on a dark ground."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from statistics import fmean
from typing import Final, NamedTuple
from xml.sax.saxutils import escape

from zkgroup.groups.chart_axes import round_top, short_number, svg_head, svg_text, time_ticks, utc_text
from zkgroup.groups.monitoring.lag_history import HistoryPoint, columns_of, commits_per_minute
from zkgroup.text import counted

#: Steps of time in the picture, and units of its width.
COLUMNS: Final = 800
_LEFT: Final = 64
_MARGIN: Final = 16
_STYLE: Final = """\
.line{fill:none;stroke-width:1.5}
.lag{fill:#4c8dd6;fill-opacity:.35;stroke:#2f6fb5}.produced{stroke:#c05a1a}.consumed{stroke:#2c8a55}
.commits{fill:#b068c9;fill-opacity:.35;stroke:#8f49a8}.set-back{fill:#d1242f}
@media screen and (prefers-color-scheme:dark){
.lag{stroke:#6aa8ea}.produced{stroke:#f0935a}.consumed{stroke:#58c487}.commits{stroke:#cf93e4}.set-back{fill:#ff7b72}}"""


class _Panel(NamedTuple):
    """Series with one axis: name, which is also the class of its style → values over time, one a column."""

    title: str
    height: int
    series: dict[str, list[float | None]]
    is_filled: bool


def history_chart(points: Sequence[HistoryPoint], group: str) -> str:
    """The points, one at least, as an SVG document."""
    return "".join(_document(points, group))


def describe_points(points: Sequence[HistoryPoint]) -> str:
    """The time and the number of the snapshots."""
    first, last = (utc_text(point.taken_at) for point in (points[0], points[-1]))
    return f"{first} to {last} UTC, {counted(len(points), 'snapshot')}"


def _document(points: Sequence[HistoryPoint], group: str) -> Iterator[str]:
    begin, end = points[0].taken_at, max(points[-1].taken_at, points[0].taken_at + 1)
    panels = _panels(points)
    width = _LEFT + COLUMNS + 2 * _MARGIN
    height = _MARGIN + 36 + sum(panel.height + 34 for panel in panels) + 20
    title = f"Group {svg_text(group)}: lag, rates and commits"
    yield svg_head(width, height, title, describe_points(points), _STYLE, _MARGIN)
    places = [((at - begin) * COLUMNS / (end - begin), label) for at, label in time_ticks(begin, end, 8)]
    top = _MARGIN + 36
    for panel in panels:
        yield f'<g transform="translate({_MARGIN + _LEFT},{top + 26})">\n'
        yield from _panel_lines(panel)
        for x, _ in places:
            yield f'<path class="grid" d="M{x:.1f} 0V{panel.height}"/>'
        back = [point.taken_at for point in points if point.set_back] if panel is panels[0] else []
        if back:
            yield f'<text x="{COLUMNS}" y="-9" class="dim" text-anchor="end">▾ offsets went back</text>'
        for at in back:
            yield f'<path class="set-back" d="M{(at - begin) * COLUMNS / (end - begin) - 3:.1f} -7h7l-3.5 7z"/>'
        yield "\n</g>\n"
        top += panel.height + 34
    for x, label in places:
        x += _MARGIN + _LEFT
        yield f'<text x="{x:.1f}" y="{top + 10}" class="dim small" text-anchor="middle">{label}</text>\n'
    yield "</svg>\n"


def _panels(points: Sequence[HistoryPoint]) -> tuple[_Panel, ...]:
    lag = columns_of(points, [point.lag_at_least for point in points], COLUMNS, max)
    rates = {
        "produced": columns_of(points, [point.produced for point in points], COLUMNS, fmean),
        "consumed": columns_of(points, [point.consumed for point in points], COLUMNS, fmean),
    }
    commits = columns_of(points, commits_per_minute(points), COLUMNS, fmean)
    is_partial = any(point.lag_unknown for point in points)
    note = ", at least: that of some partitions is unknown at times" if is_partial else ""
    return (
        _Panel(f"Lag, in messages{note}", 150, {"lag": lag}, is_filled=True),
        _Panel("Messages per second", 110, rates, is_filled=False),
        _Panel("Commits per minute", 60, {"commits": commits}, is_filled=True),
    )


def _panel_lines(panel: _Panel) -> Iterator[str]:
    known = [value for values in panel.series.values() for value in values if value is not None]
    top = round_top(max(known, default=0))
    yield f'<text x="0" y="-9" class="title">{escape(panel.title)}</text>\n'
    for value in (0.0, top / 2, top):
        y = panel.height * (1 - value / top)
        yield f'<path class="grid" d="M-4 {y:g}H{COLUMNS}"/>'
        yield f'<text x="-8" y="{y + 4:g}" class="dim small" text-anchor="end">{short_number(value)}</text>\n'
    if not known:
        yield f'<text x="{COLUMNS // 2}" y="{panel.height / 2:g}" class="dim" text-anchor="middle">unknown</text>\n'
    for number, (name, values) in enumerate(panel.series.items()):
        path = "".join(_path(values, panel.height, top, is_filled=panel.is_filled))
        yield f'<path class="{name}{"" if panel.is_filled else " line"}" d="{path}"/>\n'
        if len(panel.series) > 1:
            x = 180 + number * 100
            yield f'<path class="{name} line" d="M{x} -13h18"/><text x="{x + 24}" y="-9">{name}</text>\n'


def _path(values: Sequence[float | None], height: int, top: float, *, is_filled: bool) -> Iterator[str]:
    """A step for each column, broken where values are unknown."""
    column = 0
    for is_known, group in groupby(values, key=lambda value: value is not None):
        run = list(group)
        if is_known:
            steps = "".join(f"V{height * (1 - (value or 0) / top):.1f}h1" for value in run)
            first = f"M{column} {height}{steps}" if is_filled else f"M{column}{steps.replace('V', ' ', 1)}"
            yield f"{first}V{height}z" if is_filled else first
        column += len(run)
