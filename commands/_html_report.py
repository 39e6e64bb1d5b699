"""``inspect-group --report``: one HTML page about a group, for an incident. It loads nothing, and needs no script."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape as quoted
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias

from zkgroup import __version__

from ._output import Column, Row, as_objects, cell_text, iso_utc
from ._shared_options import option
from ._terminal_text import escape

if TYPE_CHECKING:
    from zkgroup.groups.monitoring.lag_history import HistoryPoint, IncidentEvent

ReportOption: TypeAlias = Annotated[
    Path | None,
    option(
        "--report",
        metavar="FILE",
        dir_okay=False,
        help="Write a page about the group for an incident, HTML in one file that loads nothing: summary, findings "
        "with their commands, the history's picture, a timeline, members, partitions.",
    ),
]
_STYLE: Final = """\
:root{color-scheme:light dark;--text:#1f2328;--dim:#59636e;--ground:#fff;--soft:#f3f5f7;--line:#d1d9e0;
--critical:#b3202c;--warning:#8a5a00;--info:#0b57b0}
@media screen and (prefers-color-scheme:dark){:root{--text:#e6edf3;--dim:#9aa4af;--ground:#0d1117;--soft:#171d25;
--line:#3a434e;--critical:#ff7b72;--warning:#e3b341;--info:#79b8ff}}
@media print{:root{color-scheme:light}}
@page{size:A4 landscape;margin:12mm}
body{font:14px/1.45 ui-sans-serif,system-ui,sans-serif;color:var(--text);background:var(--ground);
max-width:1200px;margin:0 auto;padding:16px}
h1{font-size:22px;margin:0;overflow-wrap:anywhere}h2{font-size:17px;margin:28px 0 8px;break-after:avoid}
p{margin:4px 0;overflow-wrap:anywhere}.dim{color:var(--dim)}
.scroll{overflow-x:auto}table{border-collapse:collapse;font-size:13px}
th,td{text-align:left;vertical-align:top;padding:3px 10px 3px 0;border-bottom:1px solid var(--line)}
td{overflow-wrap:break-word;max-width:36em}td.number{text-align:right;font-variant-numeric:tabular-nums}
thead{display:table-header-group}tr,.finding{break-inside:avoid}
.finding{border-left:4px solid;padding:2px 0 2px 12px;margin:12px 0}
.critical{border-color:var(--critical)}.warning{border-color:var(--warning)}.info{border-color:var(--info)}
.critical b{color:var(--critical)}.warning b{color:var(--warning)}.info b{color:var(--info)}
pre{background:var(--soft);padding:6px 10px;margin:6px 0;overflow-x:auto;white-space:pre-wrap;overflow-wrap:anywhere;
font:12px/1.4 ui-monospace,monospace}
svg{max-width:100%;height:auto}
@media print{.scroll{overflow:visible}body{max-width:none;padding:0}table{font-size:10px}
td{overflow-wrap:anywhere}pre{border:1px solid var(--line)}}"""
#: What no browser may do with the page, whatever stands in it.
_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'"
#: Columns and rows.
Table: TypeAlias = tuple[Sequence[Column | str], Sequence[Row]]
#: Rows of the timeline.
MAX_EVENTS: Final = 300


def report_page(
    group: str,
    cluster: str,
    taken_at: int,
    summary: Table,
    findings: Sequence[Any],
    points: Sequence[HistoryPoint],
    events: Sequence[IncidentEvent],
    tables: Mapping[str, Table],
    check: str,
) -> str:
    """The page. ``findings``: rows of that section; ``tables``: those at the end, by their titles.
    ``check``: the command that keeps snapshots."""
    from zkgroup.groups.monitoring.history_chart import history_chart

    title = f"Group {_text(group)}"
    chart = f'<p class="dim">No snapshots. Run every minute, this keeps them:</p>\n<pre>{_text(check)}</pre>\n'
    if points:
        chart = f'<div class="scroll">{history_chart(points, group)}</div>\n'
    parts = [
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{title}</title>\n<style>\n{_STYLE}\n</style>\n</head>\n<body>\n"
        f'<h1>{title}</h1>\n<p class="dim">{_text(cluster)}, {iso_utc(taken_at)}, zkgroup {__version__}</p>\n',
        *_table(*summary),
        f"<h2>{'Findings' if findings else 'No findings'}</h2>\n",
        *(part for finding in findings for part in _finding(finding)),
        "<h2>Lag, rates and commits</h2>\n",
        chart,
        "<h2>Timeline</h2>\n",
    ]
    if len(events) > MAX_EVENTS:
        parts.append(f'<p class="dim">The last {MAX_EVENTS} of {len(events)} events.</p>\n')
    parts += _table([Column("time", iso_utc, "at"), Column("event", attribute="text")], events[-MAX_EVENTS:])
    for name, table in tables.items():
        parts += [f"<h2>{name}</h2>\n", *_table(*table)]
    return "".join([*parts, "</body>\n</html>\n"])


def _text(value: object) -> str:
    """A value as HTML: what a reader would obey, or not show, as an escape."""
    return quoted(escape(str(value)))


def _finding(finding: Any) -> Iterator[str]:
    yield f'<div class="finding {finding.severity}">\n<p><b>{finding.severity}</b> {_text(finding.code)}: '
    yield f"{_text(finding.subject)}</p>\n<p>{_text(finding.message)}</p>\n"
    if finding.remedy is not None:
        yield f"<p>→ {_text(finding.remedy)}</p>\n"
    if finding.commands:
        lines = "\n".join(map(_text, finding.commands))
        yield f"<pre>{lines}</pre>\n"
    yield "</div>\n"


def _table(columns: Sequence[Column | str], rows: Sequence[Row]) -> Iterator[str]:
    if not rows:
        yield '<p class="dim">None.</p>\n'
        return
    found = as_objects(rows, columns)
    yield '<div class="scroll"><table>\n<thead><tr>'
    yield "".join(f"<th>{_text(name)}</th>" for name in found[0])
    yield "</tr></thead>\n<tbody>\n"
    for row in found:
        cells = (
            f"<td{' class=number' if isinstance(value, int | float) else ''}>{quoted(cell_text(value))}</td>"
            for value in row.values()
        )
        yield f"<tr>{''.join(cells)}</tr>\n"
    yield "</tbody></table></div>\n"
