"""``zkgroup topics``: the topics of a cluster, and the groups that read them."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from zkgroup.errors import NotFoundError, Notice, Remedy, UsageError, did_you_mean
from zkgroup.protocol.names import TopicPartition
from zkgroup.text import duration_text

from ._completion import complete_topic
from ._context import connection, warn, working
from ._group_views import brokers_of, open_stores, print_title, table_row
from ._output import SPARE, Output, RowLayout, as_objects, has_objects, is_table, print_object, print_rows
from ._shared_options import ColumnsOption, NoHeaderOption, OutputOption

if TYPE_CHECKING:
    from zkgroup.clients.kafka.log_offsets import Log
    from zkgroup.clients.kafka.topic_metadata import PartitionReplicas
    from zkgroup.groups.group_model import GroupSnapshot
    from zkgroup.groups.snapshot.table_rows import TopicRow

HEAD: Final = ("topic", "partitions", "replicas", "leaderless", "out_of_sync", "messages")
CONFIGS: Final = ("retention_ms", "retention_bytes", "cleanup_policy")
PARTITIONS: Final = ("partition", "leader", "replicas", "in_sync", "log_start", "log_end", "messages")
GROUPS: Final = ("group", "store", "state", "members", "partitions", "lag")
_SPARE: Final = ("out_of_sync", "replicas", "retention", "partitions")
_SIZES: Final = ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


def topics(
    ctx: typer.Context,
    topic: Annotated[
        str | None,
        typer.Argument(
            metavar="[TOPIC]", help="Describe this topic.", show_default=False, autocompletion=complete_topic
        ),
    ] = None,
    columns: ColumnsOption = None,
    no_header: NoHeaderOption = False,
    output: OutputOption = "table",
) -> None:
    """List the topics of a cluster, or describe one: partitions, retention, groups.

    leaderless: partitions that no broker leads. out_of_sync: partitions with a replica that is not in sync. messages:
    the offsets in the logs; compaction and transactions leave gaps. retention: how long, and how many bytes of each
    partition; brokers before 0.11 do not tell it. groups: those that subscribe to the topic, own some of it, or have an
    offset in it; their lag is that in this topic.

    JSON of one topic is an object, CSV its partitions. Nothing is changed.

    \b
    zkgroup topics
    zkgroup topics orders
    zkgroup topics --output json
    """
    from zkgroup.groups.snapshot.snapshot_defects import shared_warnings
    from zkgroup.groups.snapshot.table_rows import groups_by_topic, topic_partition_rows, topic_row

    if topic is not None and (columns or no_header):
        raise UsageError("--columns and --no-header are about the list", "leave them out with a TOPIC")
    warned: list[Notice] = []
    found, logs, configs, snapshots = _read(ctx, topic, warned)
    readers = groups_by_topic(snapshots)
    rows = {name: topic_partition_rows(name, partitions, logs) for name, partitions in found.items()}
    heads = [
        topic_row(name, its, configs.get(name, {}), (one.group for one in readers.get(name, ())))
        for name, its in rows.items()
    ]
    if topic is None:
        layout = RowLayout.of(columns, no_header)
        if is_table(output):
            shown = [{**asdict(row), "retention": retention_text(row), "groups": len(row.groups)} for row in heads]
            print_rows(shown, (*HEAD, "retention", "groups"), output, spare=_SPARE, layout=layout)
        else:
            print_rows(heads, (*HEAD, *CONFIGS, "groups"), output, layout=layout)
    elif is_table(output):
        _print_topic(heads[0], rows[topic], _group_rows(topic, readers.get(topic, [])), output)
    elif has_objects(output):
        head = {**asdict(heads[0]), "partitions": as_objects(rows[topic], PARTITIONS)}
        groups = as_objects(_group_rows(topic, readers.get(topic, [])), (*GROUPS, "lag_at_least", "lag_unknown"))
        print_object({name: head[name] for name in ("topic", *CONFIGS, "partitions")} | {"groups": groups}, output)
    else:
        print_rows(rows[topic], PARTITIONS, output)
    warn(ctx, shared_warnings(snapshots, warned))


def _read(
    ctx: typer.Context, topic: str | None, warned: list[Notice]
) -> tuple[
    dict[str, dict[int, PartitionReplicas]], dict[TopicPartition, Log], dict[str, dict[str, str]], list[GroupSnapshot]
]:
    """The topic, or all: partitions, logs, configs; and all groups. ``warned`` as in ``read_groups``. Raises
    ``NotFoundError`` where there is none."""
    from zkgroup.clients.kafka.client import cluster_metadata
    from zkgroup.clients.kafka.log_offsets import log_offsets
    from zkgroup.clients.kafka.topic_metadata import replicas_in, retention_configs
    from zkgroup.groups.snapshot.group_reader import read_groups

    settings = connection(ctx)
    with working(ctx, "reading topics"), open_stores(settings, None) as (registry, _):
        kafka = brokers_of(settings, registry)()
        found = replicas_in(cluster_metadata(kafka, settings.timeout))
        if topic is not None:
            if topic not in found:
                raise NotFoundError(
                    f"the brokers know no topic {topic!r}",
                    did_you_mean(topic, found, Remedy("see their names", ("topics",))),
                )
            found = {topic: found[topic]}
        keys = [TopicPartition(name, number) for name, partitions in found.items() for number in partitions]
        logs = log_offsets(kafka, keys, settings.timeout)
        configs = retention_configs(kafka, found, settings.timeout)
        shown = {} if topic is None else logs
        snapshots = read_groups(registry, kafka=kafka, logs=shown, timeout=settings.timeout, warned=warned)
    return found, logs, configs, list(snapshots)


def _print_topic(row: TopicRow, partitions: list[Any], groups: list[dict[str, Any]], output: Output) -> None:
    head = {**asdict(row), "retention": retention_text(row)}
    print_rows([head], (*HEAD, "retention"), output, spare=_SPARE)
    print_title("partitions")
    print_rows(partitions, PARTITIONS, output, spare=SPARE)
    print_title("groups" if groups else "no group reads it")
    if groups:
        print_rows(groups, GROUPS, output, spare=SPARE)


def _group_rows(topic: str, snapshots: list[GroupSnapshot]) -> list[dict[str, Any]]:
    from zkgroup.groups.snapshot.table_rows import group_row, only_topics

    return [table_row(group_row(only_topics(snapshot, [topic]), snapshot.store)) for snapshot in snapshots]


def retention_text(row: TopicRow) -> str | None:
    """The retention in words; None where it is unknown."""
    if row.cleanup_policy == "compact":
        return "compact"
    limits = []
    if row.retention_ms is not None and row.retention_ms >= 0:
        limits.append(duration_text(row.retention_ms / 1000))
    if row.retention_bytes is not None and row.retention_bytes >= 0:
        limits.append(_size(row.retention_bytes))
    if row.retention_ms is None and row.retention_bytes is None:
        return None
    words = " or ".join(limits) or "unlimited"
    return f"compact, {words}" if "compact" in (row.cleanup_policy or "") else words


def _size(count: int) -> str:
    for size, unit in _SIZES:
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count} bytes"
