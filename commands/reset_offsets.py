"""``zkgroup reset-offsets``: move a group's offsets."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from zkgroup.errors import Notice, Remedy, UsageError, VerificationError
from zkgroup.groups.group_choices import FileFormat
from zkgroup.text import counted, group_command

from ._completion import complete_group
from ._context import working
from ._group_changes import SCOPE, Change, ChangeOptions, change_of, open_applier, show_offsets, with_change
from ._group_views import StoreChoice, disable_garbage_collection, partitions_option
from ._output import Output, has_objects
from ._shared_options import GroupArgument, OutputOption, option

if TYPE_CHECKING:
    from zkgroup.groups.changes.plan import Plan
    from zkgroup.groups.changes.reset_plan import Target

TARGETS = "Where to (one of these)"
FILES = "For --from-file"


_target = partial(option, panel=TARGETS)


@with_change()
def reset_offsets(
    ctx: typer.Context,
    group: GroupArgument,
    topic: Annotated[
        list[str] | None,
        partitions_option(
            "This topic, or these partitions of it; repeatable. Of a file or a backup, only these.", SCOPE
        ),
    ] = None,
    all_topics: Annotated[
        bool, option("--all-topics", help="All topics that the group has offsets of.", panel=SCOPE)
    ] = False,
    store: Annotated[
        StoreChoice,
        option(
            "--store",
            help="Where the offsets are kept. By default, partition by partition, where the group has one: a partition"
            " gets an offset in a store where it has none only if it has none at all, or with --store.",
            panel=SCOPE,
        ),
    ] = None,
    to_earliest: Annotated[bool, _target("--to-earliest", help="The start of each log.")] = False,
    to_latest: Annotated[bool, _target("--to-latest", help="The end of each log.")] = False,
    to_offset: Annotated[int | None, _target("--to-offset", metavar="N", help="This offset.")] = None,
    to_current: Annotated[
        bool,
        _target(
            "--to-current",
            help="Where it is: shows what there is. What has no offset gets none; Kafka's tool goes to the log's end.",
        ),
    ] = False,
    shift_by: Annotated[
        int | None,
        _target(
            "--shift-by",
            metavar="N",
            help="N offsets on; back, where N is negative. Of offsets in both stores from the larger one, for both.",
        ),
    ] = None,
    to_datetime: Annotated[
        str | None,
        _target(
            "--to-datetime",
            metavar="TIME",
            help="The first message that is not older than this time: ISO 8601, 14:00, 'yesterday 14:00', '3h ago', "
            "PT3H, seconds or milliseconds since 1970; UTC if it names no zone.",
        ),
    ] = None,
    by_duration: Annotated[
        str | None,
        _target("--by-duration", metavar="DURATION", help="As long ago as this duration: 30m, 1d12h, PT30M."),
    ] = None,
    from_file: Annotated[
        str | None,
        _target(
            "--from-file",
            metavar="FILE",
            help="As a file says, in any format that 'offsets --save' writes; - is standard input.",
        ),
    ] = None,
    undo: Annotated[
        Path | None, _target("--undo", metavar="FILE", help="As it was before the change that this is the backup of.")
    ] = None,
    file_format: Annotated[
        FileFormat | None,
        option("--file-format", help="How to read the file; recognised by its content if not given.", panel=FILES),
    ] = None,
    from_group: Annotated[
        str | None,
        option(
            "--from-group",
            metavar="GROUP",
            help="Whose offsets to take of a file that names groups; GROUP's own by default.",
            panel=FILES,
            complete=complete_group,
        ),
    ] = None,
    same_logs: Annotated[
        bool,
        option(
            "--same-logs",
            help="Take a file that says that it is of another cluster: both have the same logs, offset by offset.",
            panel=FILES,
        ),
    ] = False,
    export: Annotated[
        bool, option("--export", help="Print the plan as Kafka's tools read it: topic,partition,offset.")
    ] = False,
    output: OutputOption = "table",
    *,
    options: ChangeOptions,
) -> None:
    """Move a group's offsets: by time, by place, by a file, or back again.

    Without --execute only what would be done is shown. The group must have no members. What is outside a log is clamped
    to its nearer end; a note says so. target_time is when the message at the target was written. At a log's end, with
    brokers before 0.10, and in plans of more than 1,000 partitions there is none.

    In ZooKeeper nothing is overwritten that has changed since the plan, and a group that comes alive meanwhile wins.
    Kafka cannot do that: offsets kept there are read again just before, which leaves some milliseconds in which
    another's commit would be lost. Where a group has offsets in both, ZooKeeper comes first. A backup is written
    before, for --undo, which puts back every node byte by byte; what Kafka had no offset of before it cannot forget
    again (exit 6). Afterwards everything is read again (exit 6 if it is not as planned); in Kafka for some seconds,
    where a consumer may commit that is no member (Spark, Flink). By time, Kafka 0.8 and 0.9 know only the times of
    segments.

    \b
    zkgroup reset-offsets billing --topic orders:0,2-5 --to-earliest
    zkgroup reset-offsets billing --all-topics --to-datetime 2024-05-01
    zkgroup reset-offsets billing --from-file saved.txt --execute
    zkgroup reset-offsets billing --undo BACKUP --execute
    """
    kind, value = _only_one(
        {
            "--to-earliest": to_earliest or None,
            "--to-latest": to_latest or None,
            "--to-offset": to_offset,
            "--to-current": to_current or None,
            "--shift-by": shift_by,
            "--to-datetime": to_datetime,
            "--by-duration": by_duration,
            "--from-file": from_file,
            "--undo": undo,
        }
    )
    if topic and all_topics:
        raise UsageError("--topic and --all-topics contradict each other", "give one")
    if not topic and not all_topics and kind not in ("--from-file", "--undo"):
        raise UsageError("no partitions are given", "give --topic TOPIC[:P,P-P] or --all-topics")
    if from_file is None and (file_format is not None or from_group is not None or same_logs):
        raise UsageError("--file-format, --from-group and --same-logs are about --from-file", "leave them out")
    if export and options.execute:
        raise UsageError("--export and --execute contradict each other", "export first, then --from-file")
    if export and has_objects(output):
        raise UsageError("--export prints CSV, which is what Kafka's tools read", "leave --output out")
    change = change_of(ctx, group, options)
    disable_garbage_collection()
    from zkgroup.groups.changes.reset_plan import check_origin, plan_group_reset
    from zkgroup.groups.changes.undo import describe_unrestored, plan_group_undo
    from zkgroup.groups.offset_files.file_formats import read_offsets
    from zkgroup.groups.partition_scope import Selection, parse_scope

    scope = parse_scope(topic) if topic else None
    file = None
    if from_file is not None:
        # Typed input needs no spinner; a pipe may be waited for.
        typed = from_file == "-" and sys.stdin.isatty()
        with nullcontext() if typed else working(ctx, f"reading {from_file}"):
            file = read_offsets(from_file, file_format)
            value = file.offsets_of(from_group or group)
    target = _read_target(kind, value)

    with open_applier(change.settings, [group], store) as (applier, store):
        if file is not None and not same_logs:
            check_origin(applier, file)
        if undo is not None:
            plan = plan_group_undo(applier, group, undo, scope, store)
        else:
            listed = frozenset(target.offsets) if target.kind == "file" else None
            plan = plan_group_reset(applier, group, target, Selection(scope, listed), store)
        _show(plan, output, export=export)
        if export:
            change.examine(applier, plan)
            return
        change.apply(applier, plan, f"{counted(plan.changes, 'offset')} of group {plan.group} written and verified")
        if left := describe_unrestored(plan.group, plan.rows):
            _tell_left(change, plan, left)


def _only_one(targets: Mapping[str, Any]) -> tuple[str, Any]:
    given = [(name, value) for name, value in targets.items() if value is not None]
    if not given:
        raise UsageError("no target is given", f"give one of {', '.join(targets)}")
    if len(given) > 1:
        raise UsageError(f"{' and '.join(name for name, _ in given)} contradict each other", "give one target")
    return given[0]


def _read_target(kind: str, value: Any) -> Target:
    """Where to, of the option that was given and its value; of a file its offsets."""
    from zkgroup.config.time_arguments import parse_duration, parse_time
    from zkgroup.groups.changes.reset_plan import Target, check_bounds

    match kind:
        case "--to-offset":
            return check_bounds(Target("offset", value))
        case "--shift-by":
            return check_bounds(Target("shift", value))
        case "--to-datetime":
            return Target("time", parse_time(value))
        case "--by-duration":
            return Target("time", max(0, int(time.time() * 1000) - parse_duration(value)), from_now=True)
        case "--from-file":
            return Target("file", offsets=value)
        case "--to-earliest" | "--to-latest":
            return Target("earliest" if kind == "--to-earliest" else "latest")
        case _:
            return Target("current")


def _show(plan: Plan, output: Output, *, export: bool) -> None:
    if not export:
        show_offsets(plan.rows, output, with_store=plan.store == "both", with_time=True)
        return
    from zkgroup.groups.offset_files.file_formats import format_offsets

    targets = {row.key: row.target for row in reversed(plan.rows) if row.target is not None}
    sys.stdout.write(format_offsets("csv", plan.group, targets))


def _tell_left(change: Change, plan: Plan, left: str) -> None:
    from zkgroup.clients.kafka.responses import OFFSETS_IN_KAFKA

    if not change.options.execute:
        change.warn([Notice(f"this leaves something: {left}")])
        return
    remedy = Remedy(
        f"{OFFSETS_IN_KAFKA}, since members that keep offsets in Kafka start there; see what deleting the group there"
        " would remove",
        group_command("delete-group", plan.group, "--store", "kafka"),
    )
    raise VerificationError(left, remedy)
