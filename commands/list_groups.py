"""``zkgroup list-groups``: all groups of a cluster, in ZooKeeper and in Kafka."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeAlias, get_args

import typer

from zkgroup.errors import Notice, UsageError, as_remedy, did_you_mean
from zkgroup.groups.group_choices import State
from zkgroup.text import counted, is_matched

from ._context import done, warn
from ._group_views import BehindOption, StoreChoice, read_snapshots, shown_lag
from ._output import Output, RowLayout, behind_columns, has_objects, is_table, print_rows, time_column
from ._shared_options import ColumnsOption, NoHeaderOption, OutputOption, option

if TYPE_CHECKING:
    from zkgroup.groups.findings.inspection import Inspection
    from zkgroup.groups.group_model import GroupSnapshot

Sort: TypeAlias = Literal["name", "lag", "behind", "findings", "changed"]
DEFAULT_INTERVAL: Final = 5.0  # seconds
COLUMNS = ("group", "store", "state", "members", "topics", "partitions", "lag")
_SPARE = ("topics", "partitions", "store", "members", "behind")
#: The finding that a group is only the rest of one.
LEFTOVER: Final = "leftover-group"
# Largest first; what is unknown comes last.
_KEYS: Final[Mapping[Sort, Callable[[Inspection], float]]] = {
    "name": lambda one: 0,
    "lag": lambda one: -1 if one.summary.lag_at_least is None else one.summary.lag_at_least,
    "behind": lambda one: -1 if one.summary.behind is None else one.summary.behind.seconds,
    "changed": lambda one: one.snapshot.last_change or 0,
}


def list_groups(
    ctx: typer.Context,
    store: Annotated[
        StoreChoice,
        option("--store", help="Only groups in this store; both: in both."),
    ] = None,
    state: Annotated[State | None, option("--state", help="Only groups in this state.")] = None,
    pattern: Annotated[
        list[str] | None,
        option(
            "--filter", metavar="GLOB", help="Only groups whose whole name matches, such as 'billing-*'; repeatable."
        ),
    ] = None,
    sort: Annotated[
        Sort,
        option(
            "--sort", help="The order: by name, or largest lag, furthest behind, worst findings, last change first."
        ),
    ] = "name",
    every: Annotated[
        bool, option("--all", help="Also list leftover groups, which a table without --filter or --state counts only.")
    ] = False,
    watch: Annotated[
        bool,
        option("--watch", help="Watch all groups on a screen; Enter watches one as inspect-group does, q goes back."),
    ] = False,
    interval: Annotated[
        float | None,
        option(
            "--interval",
            metavar="SECONDS",
            min=0.5,
            max=3600,
            help=f"With --watch: the time between two readings (default: {DEFAULT_INTERVAL:g}).",
        ),
    ] = None,
    behind: BehindOption = None,
    columns: ColumnsOption = None,
    no_header: NoHeaderOption = False,
    output: OutputOption = "table",
) -> int | None:
    """List the groups of a cluster.

    store: where the group is: zookeeper, kafka, or both. state: active (with members), inactive, or broken (a
    registration or another node cannot be read). topics and partitions: those that the group subscribes to, owns, or
    has an offset for. lag: the sum over the partitions; ≥20 means that the lag of some partitions is unknown. behind:
    the lag in time, of the partition that is furthest behind. finding: the worst one, if it is critical or a warning;
    inspect-group shows all. A leftover group has no members and no offsets, or was a console consumer's. A table, and
    the screen of --watch, only count leftover groups, unless --all, --filter or --state is given.

    JSON and CSV leave an unknown lag empty. JSON also has lag_at_least (the sum of the known lags) and lag_unknown (the
    number of partitions with unknown lag). The lag of a partition is unknown if it has messages and no offset, or
    if its offset is beyond the log's end. Brokers before 0.10 do not list groups that are in Kafka alone; zkgroup warns
    of that.

    \b
    zkgroup list-groups --sort findings
    zkgroup list-groups --filter 'billing-*' --sort behind
    zkgroup list-groups --state broken --output json
    zkgroup list-groups --watch --sort behind
    """
    from zkgroup.groups.findings.inspection import inspect, worst_first  # brings kazoo, which --help must not
    from zkgroup.groups.snapshot.snapshot_defects import incomplete_notes, shared_warnings

    is_folded = not (every or pattern or state)

    def select(snapshots: Sequence[GroupSnapshot], order: Sort) -> tuple[list[Inspection], int]:
        """The groups to show in their order, and how many leftover ones are folded."""
        found = [
            inspect(one)
            for one in snapshots
            if state in (None, one.state)
            and (store in (None, one.store) or one.store == "both")
            and (not pattern or is_matched(one.group, pattern))
        ]
        kept = fold_leftovers(found, output) if is_folded else found
        ordered = worst_first(kept) if order == "findings" else sorted(kept, key=_KEYS[order], reverse=True)
        return ordered, len(found) - len(kept)

    if watch:
        from ._groups_screen import watch_groups

        if output != "table" or columns or no_header:
            raise UsageError("--watch is a screen", "leave out --output, --columns and --no-header")
        return watch_groups(ctx, select, get_args(Sort), sort, behind, interval or DEFAULT_INTERVAL)
    if interval is not None:
        raise UsageError("--interval without --watch", "give --watch, too")
    warned: list[Notice] = []
    snapshots = read_snapshots(ctx, None, store="both", ages=behind, warned=warned)
    warned += incomplete_notes(snapshots)
    shown, folded = select(snapshots, sort)
    print_groups(shown, sort, output, RowLayout.of(columns, no_header), folded=folded)
    warn(ctx, shared_warnings(snapshots, warned))
    names = [one.group for one in snapshots]
    if pattern and not any(is_matched(name, pattern) for name in names):
        remedy = did_you_mean(pattern[0], names, "--filter takes whole names, such as 'billing-*'")
        done(ctx, Notice(f"no group matches {' or '.join(pattern)}", as_remedy(remedy)))
    return None


def print_groups(
    found: Sequence[Inspection], sort: Sort, output: Output, layout: RowLayout = RowLayout(), *, folded: int = 0
) -> None:
    """Print a row for each group, and how many leftover ones are ``folded``."""
    changed = (time_column("changed_at"),)
    if not is_table(output):
        partial = ("lag_at_least", "lag_unknown") if has_objects(output) else ()
        columns = (*COLUMNS, *partial, *behind_columns(output), *changed, "finding", "severity")
        print_rows([_row(one) for one in found], columns, output, layout=layout)
        return
    rows = [{**_row(one), "lag": shown_lag(one.summary)} for one in found]
    shows_change = sort == "changed" or output == "wide" or "changed_at" in layout.columns
    columns = (*COLUMNS, *behind_columns(output), *(changed if shows_change else ()), "finding")
    print_rows(rows, columns, output, spare=_SPARE, layout=layout)
    if folded:
        sys.stdout.write(f"\nand {counted(folded, 'leftover group')} without members: --all lists them\n")


def fold_leftovers(found: Sequence[Inspection], output: Output) -> list[Inspection]:
    """For a table the groups that are no leftovers, and leftovers with which something is wrong; else all of them."""
    if not is_table(output):
        return list(found)
    return [one for one in found if one.worst is not None or not any(f.code == LEFTOVER for f in one.findings)]


def _row(one: Inspection) -> dict[str, Any]:
    row, worst = one.summary, one.worst
    return {
        **asdict(row),
        "behind": row.behind,
        "lag_seconds": row.lag_seconds,
        "lag_seconds_at_least": row.lag_seconds_at_least,
        "finding": worst and worst.code,
        "severity": worst and worst.severity,
    }
