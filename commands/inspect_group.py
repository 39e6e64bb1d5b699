"""``zkgroup inspect-group``: diagnose a group."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias

import typer

from zkgroup.errors import Notice, Remedy, UnreachableError, UsageError, VerificationError, ZkgroupError
from zkgroup.groups.group_choices import Section
from zkgroup.protocol.names import session_text
from zkgroup.text import group_command

from ._completion import complete_finding
from ._context import connection, done, warn, working
from ._error_output import render, render_command
from ._group_views import (
    STORE_COLUMNS,
    BehindOption,
    StoreOption,
    check_topics,
    headline,
    print_findings,
    print_overview,
    print_summary,
    print_title,
    read_snapshots,
)
from ._html_report import ReportOption, report_page
from ._monitoring import MonitoringOptions, catch_up, check, history_cluster, show_checks, write_metrics
from ._output import (
    SPARE,
    Column,
    Output,
    RowLayout,
    as_objects,
    behind_columns,
    has_objects,
    is_table,
    iso_utc,
    print_object,
    print_rows,
    time_column,
)
from ._shared_options import (
    ColumnsOption,
    GlobalOptions,
    NoHeaderOption,
    OptionalGroupArgument,
    OutputOption,
    TopicsOption,
    check_options,
    option,
    with_options,
)
from ._watch import WatchOptions, replay_recording, watch_group

if TYPE_CHECKING:
    from zkgroup.groups.findings.inspection import Inspection
    from zkgroup.groups.monitoring.group_check import GroupCheck
    from zkgroup.groups.monitoring.lag_history import HistoryPoint

Columns: TypeAlias = tuple[Column | str, ...]

COLUMNS: Mapping[Section, Columns] = {
    "members": (
        *("member", "host", time_column("registered_at"), "subscription"),
        *("pattern", "streams", "owned", Column("session_id", session_text)),
    ),
    "partitions": (
        *("topic", "partition", "owner", "member", "committed", time_column("committed_at")),
        *("log_start", "log_end", "lag", "leader"),
    ),
    "findings": ("code", "severity", "subject", "message", "remedy", "commands"),
}
#: A parameter, and those that have an effect beside it.
_GOES_WITH: Final[Mapping[str, Sequence[str]]] = {
    "history": ("group", "topic", "store", "history_file", "picture", "output"),
    "replay": ("picture", "output"),
    "watch": ("group", "topic", "store", "interval", "record", "output"),
    "code": ("output",),
    "report": ("group", "topic", "store", "again", "verify", "history_file", "behind"),
    "serve": ("group", "every", "store", "behind", "checking", "history_file", "window"),
    "checking": (
        *("group", "every", "store", "again", "warn_lag", "crit_lag", "warn_behind", "crit_behind"),
        *("window", "history_file", "metrics", "serve", "behind", "output"),
    ),
}
#: A parameter, and those of which it needs one.
_NEEDS: Final[Mapping[str, Sequence[str]]] = {
    **dict.fromkeys(("interval", "record"), ("watch",)),
    "picture": ("history", "replay"),
    **dict.fromkeys(("warn_lag", "crit_lag", "warn_behind", "crit_behind", "window"), ("checking",)),
    "history_file": ("checking", "history", "report"),
    **dict.fromkeys(("columns", "no_header"), ("section",)),
}


@with_options("watching", WatchOptions)
@with_options("monitoring", MonitoringOptions)
def inspect_group(
    ctx: typer.Context,
    group: OptionalGroupArgument = None,
    every: Annotated[bool, option("--all", help="Every group of the cluster, worst first.")] = False,
    topic: TopicsOption = None,
    store: StoreOption = None,
    section: Annotated[Section | None, option("--section", help="Only this part, with all columns.")] = None,
    again: Annotated[
        float | None,
        option(
            "--recheck-after",
            metavar="SECONDS",
            min=0.1,
            max=3600,
            help="Take a second snapshot after this time: shows growing lag, and a group that is stuck.",
        ),
    ] = None,
    verify: Annotated[
        bool,
        option(
            "--verify", help="Exit with 6 if a finding is critical; with 1 if none is, but an access list may hide one."
        ),
    ] = False,
    code: Annotated[
        str | None,
        option(
            "--explain",
            metavar="CODE",
            help="Show the page about findings of this code: meaning, causes, remedies.",
            complete=complete_finding,
        ),
    ] = None,
    report: ReportOption = None,
    behind: BehindOption = None,
    columns: ColumnsOption = None,
    no_header: NoHeaderOption = False,
    output: OutputOption = "table",
    *,
    monitoring: MonitoringOptions,
    watching: WatchOptions,
) -> int | None:
    """Diagnose a group: members, partitions, lag, and findings with their remedies.

    The table is an overview; --section shows all columns of one part. JSON is one object (an array with --all), CSV the
    partitions or another --section. taken_at is the start of the snapshot.

    behind is the lag in time: the age of the next message to be read, by the message's own time. ≥1 h: at least that;
    brokers before 0.10 have only times of segments. JSON and CSV have it in seconds, as lag_seconds. catch_up: when
    the lag will be zero, by the snapshots that --check has kept.

    For a group with offsets in both stores, and with --store both, committed is the larger offset; the columns
    committed_zookeeper and committed_kafka show both. --topic keeps the partitions of one topic; findings always
    concern the whole group. If brokers do not answer, lag is empty and zkgroup warns.

    \b
    zkgroup inspect-group billing
    zkgroup inspect-group billing --section partitions --topic orders
    zkgroup inspect-group --all --verify --output json
    zkgroup inspect-group billing --check --warn-lag 10000 --crit-lag 100000
    zkgroup inspect-group billing --check --warn-behind 30m --crit-behind 3h
    zkgroup inspect-group --all --metrics /var/lib/node_exporter/zkgroup.prom
    zkgroup inspect-group --all --serve 9308
    zkgroup inspect-group --explain offset-before-start
    zkgroup inspect-group billing --history --picture billing.svg
    zkgroup inspect-group billing --report incident.html
    zkgroup inspect-group billing --watch
    zkgroup inspect-group billing --watch --record friday.jsonl --output json
    zkgroup inspect-group --replay friday.jsonl --picture friday.svg
    """
    check_options(ctx, _GOES_WITH, _NEEDS)
    checking, metrics, history_file = monitoring.checking, monitoring.metrics, monitoring.history_file
    if watching.replay is not None:
        return replay_recording(ctx, watching.replay, output, picture=watching.picture)
    if code is not None:
        _explain(code, output)
        return None
    if (group is None) == (not every):
        what = "give one GROUP" if monitoring.history else "give one GROUP, or --all"
        raise UsageError(what, Remedy("see their names", ("list-groups",)))
    if every and topic:
        remedy = "inspect one group, or list the partitions: --all --section partitions"
        raise UsageError("--topic and --all exclude each other", remedy)
    if group is not None and monitoring.history:
        from ._history import show_history

        picture = watching.picture
        show_history(ctx, group, output, store=store, topics=topic or (), path=history_file, picture=picture)
        return None
    if group is not None and watching.watch:
        return watch_group(ctx, group, output, options=watching, store=store, topics=topic or ())
    if checking and not (is_table(output) or has_objects(output)):
        raise UsageError("--check is a verdict on whole groups", "leave out csv")
    from zkgroup.groups.findings.inspection import inspect, worst_first  # imports kazoo, which --help must not
    from zkgroup.groups.snapshot.snapshot_defects import shared_warnings

    thresholds = monitoring.thresholds if checking else None
    settings = connection(ctx)

    warned: list[Notice] = []

    def read_now(ages: bool | None = False) -> dict[str, Any]:
        warned.clear()
        found = read_snapshots(ctx, group, store=store or "both", ages=ages, settings=settings, warned=warned)
        return {snapshot.group: snapshot for snapshot in found}

    earlier = {}
    if again is not None:
        earlier = read_now()
        with working(ctx, f"reading again after {again:g} s"):
            time.sleep(again)
    if thresholds is not None and thresholds.in_time != (None, None):
        behind = True
    elif section in ("members", "findings") and metrics is None:
        behind = False

    def read() -> tuple[Sequence[Inspection], Mapping[str, GroupCheck] | None, Sequence[Notice]]:
        snapshots = read_now(behind)
        found = worst_first(inspect(snapshot, earlier.get(name), store) for name, snapshot in snapshots.items())
        if topic:
            check_topics(found[0].snapshot, topic)
            found = [found[0].only_topics(topic)]
        warnings = shared_warnings((one.snapshot for one in found), warned)
        if thresholds is None:
            return found, None, warnings
        # Others have nothing to check.
        judged = [one for one in found if not every or one.snapshot.partitions or one.snapshot.kafka_failures]
        return found, check(ctx, judged, thresholds, window=monitoring.window, history=history_file), warnings

    if monitoring.serve is not None:
        from ._metrics_server import parse_listener, serve_metrics  # asyncio takes 40 ms

        return serve_metrics(ctx, parse_listener(monitoring.serve), read)
    found, checks, warnings = read()
    if metrics is not None:
        write_metrics(metrics, found, checks)
    if checks is not None and thresholds is not None:
        if metrics == "-":
            return None
        unknown = render(warnings[0], ctx.ensure_object(GlobalOptions)) if warnings and not checks else None
        return show_checks(list(checks.values()), output, thresholds, every=every, unknown=unknown)
    if report is not None:
        from ._history import read_points

        points = read_points(ctx, found[0].snapshot.group, store, topic or (), history_file)
        _write_report(ctx, found[0], report, points)
    elif metrics != "-":
        _show(ctx, found, section, output, RowLayout.of(columns, no_header), every=every)
    warn(ctx, warnings)
    if verify:
        _verify(found, warnings)
    return None


def _explain(code: str, output: Output) -> None:
    from zkgroup.groups.findings.finding_kinds import KINDS, page_text

    text = page_text(code)
    if is_table(output):
        sys.stdout.write(text)
        return
    row = {"code": code, "severities": KINDS[code].severities, "meaning": KINDS[code].meaning, "text": text}
    if has_objects(output):
        print_object(row, output)
    else:
        print_rows([row], list(row), output)


def _show(
    ctx: typer.Context,
    found: Sequence[Inspection],
    section: Section | None,
    output: Output,
    layout: RowLayout,
    *,
    every: bool,
) -> None:
    given = ctx.ensure_object(GlobalOptions)
    if section is None and is_table(output):
        if every:
            print_summary(found, given, output)
        else:
            print_overview(found[0], given, catch_up(ctx, found[0]), output)
        return
    if section is None and has_objects(output):
        objects = [_object(one, given) for one in found]
        if every:
            print_rows(objects, list(objects[0]) if objects else ["group"], output)
        else:
            print_object(objects[0], output)
        return
    chosen: Section = section or "partitions"
    if chosen == "findings" and output == "table" and sys.stdout.isatty() and not layout.columns:
        for one in found:
            if every and one.findings:
                print_title(one.snapshot.group)
            print_findings(one.findings, given)
        return
    columns = _columns(chosen, found, output)
    spare = ("member", *SPARE, "owner") if chosen == "partitions" else SPARE
    if chosen == "findings" and not has_objects(output):
        columns = (*columns[:-1], Column("commands", (" && " if is_table(output) else "\n").join))
    rows = [(one.snapshot.group, row) for one in found for row in _rows(one, chosen, given)]
    if chosen == "findings":
        from zkgroup.groups.findings.finding_kinds import SEVERITIES

        rows.sort(key=lambda row: SEVERITIES.index(row[1].severity))
    if every:
        keys = [column if isinstance(column, str) else column.name for column in columns]
        named = [{"group": name, **{key: getattr(row, key) for key in keys}} for name, row in rows]
        print_rows(named, ["group", *columns], output, spare=spare, layout=layout)
    else:
        print_rows([row for _, row in rows], columns, output, spare=spare, layout=layout)


def _columns(section: Section, found: Sequence[Inspection], output: Output) -> Columns:
    """The columns of a section of these groups. JSON is read by names: more of them do no harm."""
    if section == "partitions":
        both = any(one.store == "both" for one in found)
        return COLUMNS[section] + (STORE_COLUMNS if both else ()) + behind_columns(output)
    return COLUMNS[section] + (("page",) if section == "findings" and has_objects(output) else ())


def _write_report(ctx: typer.Context, one: Inspection, path: Path, points: Sequence[HistoryPoint]) -> None:
    from zkgroup.groups.changes import backup
    from zkgroup.groups.monitoring.lag_history import incident_events
    from zkgroup.groups.offset_files.atomic_file import write_atomically

    given, cluster = ctx.ensure_object(GlobalOptions), history_cluster(ctx)
    snapshot, own = one.snapshot, []
    for file in backup.backup_files():
        with suppress(ZkgroupError):
            saved = backup.read(file)
            if (saved.group, saved.cluster.connect) == (snapshot.group, cluster):
                own.append(saved)
    page = report_page(
        snapshot.group,
        cluster,
        snapshot.taken_at,
        headline(one, catch_up(ctx, one)),
        _rows(one, "findings", given),
        points,
        incident_events(snapshot, points, own),
        {
            "Members": (COLUMNS["members"], _rows(one, "members", given)),
            "Partitions": (_columns("partitions", [one], "table"), _rows(one, "partitions", given)),
        },
        render_command(group_command("inspect-group", snapshot.group, "--check"), given),
    )
    write_atomically(str(path), page)
    done(ctx, f"written: {path}")


def _rows(one: Inspection, section: Section, given: GlobalOptions) -> Sequence[Any]:
    """The rows of a section; each command is a line for a shell."""
    if section != "findings":
        return one.rows(section)
    return [
        SimpleNamespace(
            code=finding.code,
            severity=finding.severity,
            subject=finding.subject,
            message=finding.message,
            remedy=finding.remedy.text if finding.remedy is not None else None,
            commands=[render_command(command, given) for command in finding.commands],
            page=render_command(finding.page, given),
        )
        for finding in one.findings
    ]


def _object(one: Inspection, given: GlobalOptions) -> dict[str, Any]:
    row = one.summary
    return {
        "group": one.snapshot.group,
        "taken_at": iso_utc(one.snapshot.taken_at),
        "store": one.snapshot.store,
        "state": one.snapshot.state,
        "strategy": one.strategy,
        "topics": row.topics,
        "lag": row.lag,
        "lag_at_least": row.lag_at_least,
        "lag_unknown": row.lag_unknown,
        "lag_seconds": row.lag_seconds,
        "lag_seconds_at_least": row.lag_seconds_at_least,
        **{section: as_objects(_rows(one, section, given), _columns(section, [one], "json")) for section in COLUMNS},
    }


def _verify(found: Sequence[Inspection], warnings: Sequence[Notice]) -> None:
    """Raise ``VerificationError`` where a finding is critical, ``ZkgroupError`` where what may not be read could be, or
    what servers did not tell."""
    if warnings and not found:
        raise UnreachableError("no group is known, and not all servers answered", "see the warnings")
    critical = [(one, finding) for one in found for finding in one.findings if finding.severity == "critical"]
    if critical:
        one, finding = critical[0]
        more = f" (and {len(critical) - 1} more)" if len(critical) > 1 else ""
        raise VerificationError(
            f"group {one.snapshot.group}: {finding.code}: {finding.subject}: {finding.message}{more}", finding.remedy
        )
    for one in found:
        for finding in one.findings:
            if finding.code == "unreadable-node" and finding.severity != "info" and one.snapshot.unreadable:
                raise ZkgroupError(
                    f"group {one.snapshot.group} cannot be judged as a whole: {finding.subject} {finding.message}",
                    finding.remedy,
                )
            if finding.code == "incomplete-snapshot":
                raise UnreachableError(
                    f"group {one.snapshot.group} cannot be judged as a whole: {finding.message}", finding.remedy
                )
