"""``inspect-group --check`` and ``--metrics``: output for monitoring systems."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from zkgroup.config.setting_files import state_dir
from zkgroup.errors import UsageError, ZkgroupError
from zkgroup.text import counted

from ._context import connection
from ._error_output import plain_line, printing
from ._group_views import shown_lag
from ._output import Output, has_objects, print_object
from ._shared_options import option

if TYPE_CHECKING:
    from zkgroup.groups.findings.inspection import Inspection
    from zkgroup.groups.group_model import GroupSnapshot
    from zkgroup.groups.monitoring.group_check import GroupCheck, Thresholds
    from zkgroup.groups.monitoring.lag_history import LagHistory, Sample
    from zkgroup.protocol.names import TopicPartition

SHOWN_REASONS = 20
WINDOW = 10  # snapshots
_option = partial(option, panel="For monitoring")

MetricsOption: TypeAlias = Annotated[
    str | None,
    _option(
        "--metrics",
        metavar="FILE",
        help="Write metrics for Prometheus (node_exporter's textfile collector), whole or not at all; - is standard "
        "output, instead of the rows.",
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class MonitoringOptions:
    """The options of ``inspect-group`` for monitoring systems, as they are given."""

    checking: Annotated[
        bool,
        _option(
            "--check",
            help="Print one line with performance data for a monitoring system; exit with 0 OK, 1 WARNING, 2 CRITICAL, "
            "3 UNKNOWN. Each check keeps its snapshot, and judges the last ones by Burrow's rules.",
        ),
    ] = False
    warn_lag: Annotated[
        int | None, _option("--warn-lag", metavar="N", min=1, help="For --check: WARNING from this lag of a group on.")
    ] = None
    crit_lag: Annotated[
        int | None, _option("--crit-lag", metavar="N", min=1, help="For --check: CRITICAL from this lag of a group on.")
    ] = None
    warn_behind: Annotated[
        str | None,
        _option(
            "--warn-behind",
            metavar="DURATION",
            help="For --check: WARNING if a partition is that far behind in time: 30m, 3h, 1d12h.",
        ),
    ] = None
    crit_behind: Annotated[
        str | None,
        _option(
            "--crit-behind",
            metavar="DURATION",
            help="For --check: CRITICAL if a partition is that far behind in time.",
        ),
    ] = None
    window: Annotated[
        int,
        _option(
            "--window",
            metavar="N",
            min=3,
            max=1000,
            help="For --check: the number of snapshots that are evaluated, with this one.",
        ),
    ] = WINDOW
    history: Annotated[
        bool,
        _option(
            "--history",
            help="Show lag, rates and commits over the days that --check has kept, without asking a server; with "
            "--picture also as SVG. JSON, CSV, YAML and wide have a row for each snapshot.",
        ),
    ] = False
    history_file: Annotated[
        Path | None,
        _option(
            "--history-file",
            metavar="FILE",
            dir_okay=False,
            help="For --check, --history and --report: the SQLite file of snapshots. Default: history.sqlite3 in the "
            "state folder.",
        ),
    ] = None
    metrics: MetricsOption = None
    serve: Annotated[
        str | None,
        _option(
            "--serve",
            metavar="[ADDRESS:]PORT",
            help="Serve the metrics to Prometheus, at http://ADDRESS:PORT/metrics, until it is stopped. Without ADDRESS"
            " on this machine alone.",
        ),
    ] = None

    @property
    def thresholds(self) -> Thresholds:
        """The limits of a check. Raises ``UsageError``."""
        from zkgroup.config.time_arguments import parse_duration
        from zkgroup.groups.monitoring.group_check import Thresholds

        warn_seconds, crit_seconds = (
            None if text is None else parse_duration(text) / 1000 for text in (self.warn_behind, self.crit_behind)
        )
        found = Thresholds(self.warn_lag, self.crit_lag, warn_seconds, crit_seconds)
        for name, warn, crit in (("lag", self.warn_lag, self.crit_lag), ("behind", *found.in_time)):
            if warn is not None and crit is not None and warn > crit:
                raise UsageError(f"--warn-{name} is above --crit-{name}", "a warning comes first")
        return found


def check(
    ctx: typer.Context, found: Sequence[Inspection], thresholds: Thresholds, *, window: int, history: Path | None
) -> Mapping[str, GroupCheck]:
    """Check each group over its last snapshots, and store this one."""
    from zkgroup.groups.monitoring.group_check import check_group
    from zkgroup.groups.monitoring.lag_history import LagHistory

    checks: dict[str, GroupCheck] = {}
    with LagHistory(history or default_history()) as kept:
        cluster = history_cluster(ctx)
        kept.keep(cluster, [one.snapshot for one in found])
        for one in found:
            windows = _windows(kept, cluster, one.snapshot, window)
            checks[one.snapshot.group] = check_group(one, windows, thresholds)
    return checks


def catch_up(ctx: typer.Context, one: Inspection) -> float | None:
    """Seconds until the group's lag is zero, by the snapshots that checks have kept and this one; infinity where it
    does not shrink, None where that is unknown."""
    if one.summary.lag_unknown or not default_history().exists():
        return None
    from zkgroup.groups.monitoring.group_check import catch_up_seconds
    from zkgroup.groups.monitoring.lag_history import LagHistory

    with contextlib.suppress(ZkgroupError), LagHistory(default_history()) as kept:
        windows = _windows(kept, history_cluster(ctx), one.snapshot, WINDOW)
        return catch_up_seconds([windows[p.key] for p in one.snapshot.partitions if p.known_lag(one.store) is not None])
    return None


def default_history() -> Path:
    """The file of snapshots where the command line names none."""
    return state_dir() / "history.sqlite3"


def history_cluster(ctx: typer.Context) -> str:
    settings = connection(ctx, quiet=True)
    if settings.zookeeper is None and settings.bootstrap:
        return ",".join(sorted(map(str, settings.bootstrap)))
    return str(settings.require_zookeeper())


def _windows(
    kept: LagHistory, cluster: str, snapshot: GroupSnapshot, snapshots: int
) -> Mapping[TopicPartition, Sequence[Sample]]:
    from zkgroup.groups.monitoring.lag_history import samples_of

    windows = kept.window(cluster, snapshot.group, snapshot.store, snapshots - 1, snapshot.taken_at)
    for partition, sample in samples_of(snapshot).items():
        windows.setdefault(partition, []).append(sample)
    return windows


def show_checks(
    checks: Sequence[GroupCheck],
    output: Output,
    thresholds: Thresholds,
    *,
    every: bool,
    unknown: str | None,
) -> int:
    """Print the verdict; returns the exit code. ``unknown``: why no group can be checked, where that is so."""
    from zkgroup.groups.monitoring.group_check import EXIT_CODES, worst_state

    state = worst_state(one.state for one in checks) if unknown is None else "UNKNOWN"
    if has_objects(output):
        rows = [_object(one) for one in checks]
        print_object({"state": state, "groups": rows} if every else rows[0], output)
    else:
        text, details = _text_of_all(checks) if every else _text_of(checks[0])
        text += "" if unknown is None else f": {unknown}"
        data = " ".join(_data(one, thresholds, every=every) for one in checks)
        with printing(sys.stdout):
            sys.stdout.write(f"ZKGROUP {state}: {plain_line(text)} | {data}\n")
            sys.stdout.writelines(f"{plain_line(line)}\n" for line in details)
    return EXIT_CODES[state]


def _text_of(one: GroupCheck) -> tuple[str, list[str]]:
    if one.reasons:
        text = f"{one.group}: {one.reasons[0][1]}"
        more = len(one.reasons) - 1
        return text + (f" (and {more} more)" if more else ""), _reasons(one, one.reasons[1:])
    partitions = counted(one.row.partitions, "partition")
    return (
        f"{one.group}: lag {shown_lag(one.row)} in {partitions}, {one.progress} over"
        f" {counted(one.snapshots, 'snapshot')}",
        [],
    )


def _text_of_all(checks: Sequence[GroupCheck]) -> tuple[str, list[str]]:
    bad = [one for one in checks if one.state != "OK"]
    if not bad:
        known = sum(one.row.lag_at_least or 0 for one in checks)
        return f"{len(checks)} groups, lag {'≥' if any(one.row.lag_unknown for one in checks) else ''}{known}", []
    text, _ = _text_of(bad[0])
    return f"{len(bad)} of {len(checks)} groups: {text}", [line for one in bad for line in _reasons(one, one.reasons)]


def _reasons(one: GroupCheck, reasons: Sequence[tuple[str, str]]) -> list[str]:
    lines = [f"{state} {one.group}: {text}" for state, text in reasons[:SHOWN_REASONS]]
    if len(reasons) > SHOWN_REASONS:
        lines.append(f"{one.group}: and {len(reasons) - SHOWN_REASONS} more")
    return lines


def _limits(warn: float | None, crit: float | None) -> str:
    return f"{'' if warn is None else f'{warn:g}'};{'' if crit is None else f'{crit:g}'};0"


def _data(one: GroupCheck, thresholds: Thresholds, *, every: bool) -> str:
    """Performance data; for one of many groups its lag alone, under its name."""
    limits = _limits(thresholds.warn_lag, thresholds.crit_lag)
    # U means unknown, by the guidelines of Nagios plugins: a partial sum would be read as the whole.
    lag = "U" if one.row.lag is None else one.row.lag
    max_lag = "U" if one.max_lag is None else one.max_lag
    seconds = one.row.lag_seconds
    if every:
        # A label, quoted as in the guidelines of Nagios plugins: without = and bars.
        label = plain_line(one.group).replace("=", "_").replace("'", "''")
        return f"'{label} lag'={lag};{limits}"
    behind = sum(status != "OK" for status in one.statuses.values())
    figures = [
        f"lag={lag};{limits}",
        f"max_lag={max_lag};;;0",
        f"behind={'U' if seconds is None else f'{seconds:.0f}s'};{_limits(*thresholds.in_time)}",
        f"members={one.row.members};;;0",
        f"partitions={one.row.partitions};;;0",
        f"unowned={one.unowned};;;0",
        f"not_ok={behind};;;0",
    ]
    if one.catch_up is not None and one.catch_up != float("inf"):
        figures.append(f"catch_up={one.catch_up:.0f}s;;;0")
    return " ".join(figures)


def _object(one: GroupCheck) -> dict[str, Any]:
    finite = one.catch_up is not None and one.catch_up != float("inf")
    return {
        "group": one.group,
        "state": one.state,
        "reasons": [{"state": state, "reason": text} for state, text in one.reasons],
        "lag": one.row.lag,
        "lag_at_least": one.row.lag_at_least,
        "lag_unknown": one.row.lag_unknown,
        "max_lag": one.max_lag,
        "lag_seconds": one.row.lag_seconds,
        "lag_seconds_at_least": one.row.lag_seconds_at_least,
        "partitions": one.row.partitions,
        "unowned": one.unowned,
        "members": one.row.members,
        "status": one.progress if one.complete else None,
        "snapshots": one.snapshots,
        "catch_up_seconds": one.catch_up if finite else None,
        "not_ok": [
            {"topic": key.topic, "partition": key.partition, "status": status}
            for key, status in one.statuses.items()
            if status != "OK"
        ],
    }


def write_metrics(path: str, found: Sequence[Inspection], checks: Mapping[str, GroupCheck] | None) -> None:
    from zkgroup.groups.monitoring.prometheus_metrics import format_metrics
    from zkgroup.groups.offset_files.atomic_file import write_atomically
    from zkgroup.groups.offset_files.file_formats import STDIO

    text = format_metrics(found, checks)
    if path == STDIO:
        sys.stdout.write(text)
    else:
        write_atomically(path, text)
