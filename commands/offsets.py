"""``zkgroup offsets``: a group's committed offsets and lag."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from zkgroup.errors import UsageError

from ._checkpoint_output import FileFormatOption, KeepOption, SaveOption, save
from ._context import warn
from ._group_views import PartitionsOption, StoreOption, check_topics, read_one_group
from ._monitoring import MetricsOption, write_metrics
from ._output import SPARE, print_rows, time_column
from ._shared_options import GroupArgument, OutputOption

if TYPE_CHECKING:
    from zkgroup.groups.group_model import GroupSnapshot
    from zkgroup.groups.partition_scope import Scope
    from zkgroup.groups.snapshot.tables import PartitionRow

COLUMNS = ("topic", "partition", "committed", time_column("committed_at"), "log_start", "log_end", "lag")
BOTH = ("committed_zookeeper", "committed_kafka")


def offsets(
    ctx: typer.Context,
    group: GroupArgument,
    topic: PartitionsOption = None,
    store: StoreOption = None,
    save_to: SaveOption = None,
    file_format: FileFormatOption = None,
    keep: KeepOption = None,
    metrics: MetricsOption = None,
    output: OutputOption = "table",
) -> None:
    """Show a group's committed offsets and lag.

    committed is the next offset to read. committed_at is the time of the last commit, known in ZooKeeper only. lag is
    log_end less committed. For a group with offsets in both stores, and with --store both, committed is the larger
    offset: a member with dual commit starts there. The columns committed_zookeeper and committed_kafka show both.

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
    from zkgroup.groups.snapshot.tables import notes, partition_rows  # imports kazoo, which --help must not

    scope = parse_scope(topic or ())
    if save_to is not None:
        snapshot, shown = save(ctx, group, scope, store, save_to, file_format, keep)
    else:
        snapshot = read_one_group(ctx, group, store=store or "both")
        shown = store or snapshot.store
    if metrics is not None:
        from zkgroup.groups.findings.inspection import inspect

        whole = read_one_group(ctx, group, store=store or "both") if save_to is not None else snapshot
        write_metrics(metrics, [inspect(whole, store=store)], None)
    if "-" in (save_to, metrics):
        warn(ctx, notes(snapshot, shown))
        return
    rows = _within(scope, snapshot, partition_rows(snapshot, shown))
    if shown == "both":
        print_rows(rows, [*COLUMNS, *BOTH], output, spare=(*SPARE, "committed"))
    else:
        print_rows(rows, COLUMNS, output, spare=SPARE)
    warn(ctx, notes(snapshot, shown))


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
