"""``zkgroup offsets``: a group's committed offsets and lag."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from zkgroup.errors import UsageError
from zkgroup.groups.group_choices import FileFormat
from zkgroup.text import counted

from ._context import connection, done, warn
from ._group_views import (
    STORE_COLUMNS,
    BehindOption,
    PartitionsOption,
    StoreOption,
    brokers_of,
    check_topics,
    open_stores,
    read_snapshots,
)
from ._monitoring import MetricsOption, write_metrics
from ._output import SPARE, RowLayout, behind_columns, print_rows, time_column
from ._shared_options import ColumnsOption, GroupArgument, NoHeaderOption, OutputOption, option

if TYPE_CHECKING:
    from zkgroup.groups.group_model import GroupSnapshot, Store
    from zkgroup.groups.partition_scope import Scope
    from zkgroup.groups.snapshot.table_rows import PartitionRow

COLUMNS = ("topic", "partition", "committed", time_column("committed_at"), "log_start", "log_end", "lag")


def offsets(
    ctx: typer.Context,
    group: GroupArgument,
    topic: PartitionsOption = None,
    store: StoreOption = None,
    save_to: Annotated[
        str | None,
        option(
            "--save",
            metavar="FILE",
            help="Write the committed offsets to a file, whole or not at all, for reset-offsets --from-file and other "
            "tools; - is standard output, instead of the rows. In a folder (FOLDER/ is created) each run writes a new "
            "file, named after the group and the time.",
        ),
    ] = None,
    file_format: Annotated[
        FileFormat | None,
        option(
            "--file-format",
            help="For --save: zk (Kafka's ExportZkOffsets), csv (kafka-consumer-groups), json (kafka-utils), rpk, "
            "spark. By default as the file is called, .csv or .json, else zk.",
        ),
    ] = None,
    keep: Annotated[
        int | None,
        option(
            "--keep-last",
            metavar="N",
            min=1,
            help="For --save FOLDER/: keep the newest N files of the group, and remove the others.",
        ),
    ] = None,
    metrics: MetricsOption = None,
    behind: BehindOption = None,
    columns: ColumnsOption = None,
    no_header: NoHeaderOption = False,
    output: OutputOption = "table",
) -> None:
    """Show a group's committed offsets and lag.

    committed is the next offset to read. committed_at is the time of the last commit, known in ZooKeeper only. lag is
    log_end less committed. For a group with offsets in both stores, and with --store both, committed is the larger
    offset: a member with dual commit starts there. The columns committed_zookeeper and committed_kafka show both.

    behind is the lag in time: the age of the next message to be read, by the message's own time. ≥1 h: at least that;
    brokers before 0.10 have only times of segments. JSON and CSV have it in seconds, as lag_seconds.

    If brokers do not answer, log_start, log_end and lag are empty and zkgroup warns.

    \b
    zkgroup offsets billing
    zkgroup offsets billing --topic orders:0,4-7 --output csv
    zkgroup offsets billing --store kafka
    zkgroup offsets billing --save billing.txt
    zkgroup offsets billing --save checkpoints/ --keep-last 48
    """
    if save_to is None and (file_format is not None or keep is not None):
        raise UsageError("--file-format and --keep-last are about --save", "give --save FILE")
    if save_to == metrics == "-":
        raise UsageError("both --save and --metrics to standard output", "give one of them a file")
    from zkgroup.groups.partition_scope import parse_scope
    from zkgroup.groups.snapshot.snapshot_defects import notes
    from zkgroup.groups.snapshot.table_rows import partition_rows  # imports kazoo, which --help must not

    scope = parse_scope(topic or ())
    if save_to is not None:
        snapshot, shown = _save(ctx, group, scope, store, save_to, file_format, keep)
    else:
        (snapshot,) = read_snapshots(ctx, group, store=store or "both", ages=behind)
        shown = store or snapshot.store
    if metrics is not None:
        from zkgroup.groups.findings.inspection import inspect

        saved = read_snapshots(ctx, group, store=store or "both", ages=behind) if save_to is not None else [snapshot]
        write_metrics(metrics, [inspect(whole, store=store) for whole in saved], None)
    if "-" in (save_to, metrics):
        warn(ctx, notes(snapshot, shown))
        return
    rows = _within(scope, snapshot, partition_rows(snapshot, shown))
    in_time = () if save_to is not None else behind_columns(output)
    both, spare = (STORE_COLUMNS, (*SPARE, "committed")) if shown == "both" else ((), SPARE)
    layout = RowLayout.of(columns, no_header)
    print_rows(rows, [*COLUMNS, *both, *in_time], output, spare=spare, layout=layout)
    warn(ctx, notes(snapshot, shown))


def _save(
    ctx: typer.Context,
    group: str,
    scope: Scope,
    store: Store | None,
    path: str,
    form: FileFormat | None,
    keep: int | None,
) -> tuple[GroupSnapshot, Store]:
    """Write the file, and remove earlier ones that are not to be kept. Returns the snapshot that was saved, of offsets
    and logs alone, and its store.

    Raises ``ZkgroupError`` where an offset, or the group in a store, cannot be read: then nothing is written.
    """
    from zkgroup.groups.changes.applier import Applier
    from zkgroup.groups.changes.current_offsets import OffsetReader, checkpoint_of
    from zkgroup.groups.offset_files.atomic_file import write_atomically
    from zkgroup.groups.offset_files.file_formats import STDIO, Series, format_for, format_offsets
    from zkgroup.groups.partition_scope import Selection

    series = Series.of(path, group, form)
    if keep is not None and series is None:
        raise UsageError("--keep-last is about a folder", f"give --save {path}/")
    settings = connection(ctx)
    with open_stores(settings, store) as (registry, store):
        applier = Applier(registry, brokers_of(settings, registry), settings.timeout)
        current = OffsetReader(applier, group).read(Selection(), store, needs_logs=False, may_create=False)
        cluster = applier.cluster()
    meant = [one for key, one in current.partitions.items() if not scope.topics or scope.has(key)]
    offsets = checkpoint_of(group, meant, current.store)
    form = form or format_for(path)
    text = format_offsets(form, group, offsets, cluster)
    if path == STDIO:
        sys.stdout.write(text)
    else:
        if series is None:
            write_atomically(path, text)
        written = path if series is None else series.add(text, keep)
        done(ctx, f"{counted(len(offsets), 'offset')} of group {group} saved to {written} ({form})")
    return replace(current.snapshot, partitions=tuple(meant)), current.store


def _within(scope: Scope, snapshot: GroupSnapshot, rows: list[PartitionRow]) -> list[PartitionRow]:
    """The chosen rows. Raises ``NotFoundError`` for a topic or a partition that the group does not have."""
    if not scope.topics:
        return rows
    check_topics(snapshot, scope.topics)
    by_topic: dict[str, list[int]] = {name: [] for name in scope.topics}
    for row in rows:
        by_topic.setdefault(row.topic, []).append(row.partition)
    meant = frozenset(scope.select(by_topic))
    return [row for row in rows if (row.topic, row.partition) in meant]
