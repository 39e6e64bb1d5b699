"""``inspect-group --history``: lag, rates and commits over the days that the history holds, without any server."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean
from typing import Final, TypeAlias

import typer

from zkgroup.errors import NotFoundError, Remedy
from zkgroup.groups.chart_axes import round_top, short_number, time_ticks, utc_text
from zkgroup.groups.monitoring.history_chart import describe_points, history_chart
from zkgroup.groups.monitoring.lag_history import (
    HistoryPoint,
    LagHistory,
    columns_of,
    commits_per_minute,
    history_points,
)
from zkgroup.groups.offset_files.atomic_file import write_atomically
from zkgroup.text import group_command, shortened

from ._context import done
from ._group_views import StoreChoice
from ._monitoring import default_history, history_cluster
from ._output import Output, print_marked, print_rows, time_column
from ._terminal_text import escape

COLUMNS: Final = (
    time_column("taken_at"), "partitions", "lag", "lag_at_least", "lag_unknown", "produced", "consumed", "commits",
)  # fmt: skip
_LABEL: Final = 6
_BLOCKS: Final = " ▁▂▃▄▅▆▇█"
#: A line of the picture: texts with their styles.
Line: TypeAlias = list[tuple[str, str]]


def show_history(
    ctx: typer.Context,
    group: str,
    output: Output,
    *,
    store: StoreChoice,
    topics: Sequence[str],
    path: Path | None,
    picture: Path | None,
) -> None:
    """Show the group's history, and draw it in ``picture``. Raises ``NotFoundError`` where there is none."""
    path = path or default_history()
    points = read_points(ctx, group, store, topics, path)
    if not points:
        remedy = Remedy("let cron check it every minute", group_command("inspect-group", group, "--check"))
        what = f"the history {path} has no snapshot of group {group} of {history_cluster(ctx)}"
        raise NotFoundError(what, remedy)
    if picture is not None:
        write_atomically(str(picture), history_chart(points, group))
    if output == "table":
        columns = shutil.get_terminal_size().columns if sys.stdout.isatty() else 80
        for line in history_lines(points, group, columns):
            print_marked(line)
    else:
        print_rows(points, COLUMNS, output)
    if picture is not None:
        done(ctx, f"drawn: {picture}")


def read_points(
    ctx: typer.Context, group: str, store: StoreChoice, topics: Sequence[str], path: Path | None
) -> list[HistoryPoint]:
    """The points of the group's history, in the order of time; none without a history."""
    path = path or default_history()
    if not path.exists():
        return []
    with LagHistory(path) as kept:
        samples = kept.read(history_cluster(ctx), group, store)
        return list(history_points(row for row in samples if not topics or row[0].topic in topics))


def history_lines(points: Sequence[HistoryPoint], group: str, columns: int) -> Iterator[Line]:
    """The picture, ``columns`` wide."""
    count = max(20, columns - _LABEL - 2)
    lags = [point.lag_at_least for point in points]
    rates = [(name, [getattr(point, name) for point in points]) for name in ("produced", "consumed")]
    spread = {name: columns_of(points, values, count, fmean) for name, values in rates}
    top_rate = round_top(max((value for values in spread.values() for value in values if value is not None), default=0))
    yield [(shortened(escape(group)), "bold"), (f"  {describe_points(points)}", "")]
    top_lag = round_top(max((lag for lag in lags if lag is not None), default=0))
    most = max(points, key=lambda point: -1 if point.lag_at_least is None else point.lag_at_least)
    text = "unknown"
    if most.lag_at_least is not None:
        last = points[-1]
        now = "unknown" if last.lag_at_least is None else f"{'≥' * bool(last.lag_unknown)}{last.lag_at_least}"
        text = f"{now} at the end, at most {'≥' * bool(most.lag_unknown)}{most.lag_at_least}, {utc_text(most.taken_at)}"
    yield from _panel("lag", text, columns_of(points, lags, count, max), top_lag, 5)
    for name, values in rates:
        known = [value for value in values if value is not None]
        text = f"messages per second, {short_number(fmean(known))} on average" if known else "unknown"
        yield from _panel(name, text, spread[name], top_rate, 3)
    commits = columns_of(points, commits_per_minute(points), count, fmean)
    top = round_top(max((value for value in commits if value is not None), default=0))
    text = f"per minute, {sum(point.commits or 0 for point in points)} seen"
    yield from _panel("commits", text, commits, top, 2)
    yield from _axis(points, count)
    if back := [point for point in points if point.set_back]:
        shown = ", ".join(utc_text(point.taken_at) for point in back[-3:])
        more = f"{len(back) - 3} times, last " if len(back) > 3 else ""
        yield [(f"offsets went back {more}{shown}", "yellow")]


def _panel(title: str, text: str, values: Sequence[float | None], top: float, height: int) -> Iterator[Line]:
    """A title, and bars from 0 to ``top`` in ``height`` lines; an unknown value is a blank."""
    yield [("", "")]
    yield [(f"{title:<{_LABEL}}", "bold"), (f"  {text}", "dim")]
    for line in reversed(range(height)):
        label = short_number(top) if line == height - 1 else "0" if line == 0 else ""
        cells = []
        for value in values:
            eighths = -1 if value is None else max(1, round(value / top * height * 8)) - line * 8
            cells.append(_BLOCKS[min(8, max(0, eighths))])
        yield [(f"{label:>{_LABEL}} │", "dim"), ("".join(cells).rstrip(), "")]


def _axis(points: Sequence[HistoryPoint], count: int) -> Iterator[Line]:
    begin, end = points[0].taken_at, max(points[-1].taken_at, points[0].taken_at + 1)
    line, labels = ["─"] * count, ""
    for at, label in time_ticks(begin, end, max(2, count // 12)):
        place = min(count - 1, (at - begin) * count // (end - begin))
        line[place] = "┴"
        start = min(max(0, place - len(label) // 2), count - len(label))
        if start >= len(labels) + bool(labels):
            labels = f"{labels:<{start}}{label}"
    yield [(" " * (_LABEL + 1) + "└" + "".join(line), "dim")]
    yield [(" " * (_LABEL + 2) + labels + (" UTC" if len(labels) + 4 <= count else ""), "dim")]
