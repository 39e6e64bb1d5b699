"""``offsets --save``: a group's offsets in a file."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

import typer

from zkgroup.config import ConnectionSettings
from zkgroup.errors import UsageError
from zkgroup.text import counted

from ._context import connection, done
from ._group_views import brokers_of, open_stores

if TYPE_CHECKING:
    from zkgroup.groups.changes.current_offsets import CurrentOffsets
    from zkgroup.groups.group_model import Cluster, GroupSnapshot, Store
    from zkgroup.groups.partition_scope import Scope

SaveOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--save",
        metavar="FILE",
        help="Write the committed offsets to a file, whole or not at all, for reset-offsets --from-file and other "
        "tools; - is standard output, instead of the rows. In a folder (FOLDER/ is created) each run writes a new "
        "file, named after the group and the time.",
        show_default=False,
    ),
]
KeepOption: TypeAlias = Annotated[
    int | None,
    typer.Option(
        "--keep-last",
        metavar="N",
        min=1,
        help="For --save FOLDER/: keep the newest N files of the group, and remove the others.",
        show_default=False,
    ),
]
FileFormatOption: TypeAlias = Annotated[
    Literal["zk", "csv", "json", "rpk", "spark"] | None,
    typer.Option(
        "--file-format",
        help="For --save: zk (Kafka's ExportZkOffsets), csv (kafka-consumer-groups), json (kafka-utils), rpk, spark. "
        "By default as the file is called, .csv or .json, else zk.",
        show_default=False,
    ),
]


def save(
    ctx: typer.Context,
    group: str,
    scope: Scope,
    store: Store | None,
    path: str,
    form: Literal["zk", "csv", "json", "rpk", "spark"] | None,
    keep: int | None,
) -> tuple[GroupSnapshot, Store]:
    """Write the file, and remove earlier ones that are not to be kept. Returns the snapshot that was saved, of offsets
    and logs alone, and its store.

    Raises ``ZkgroupError`` where an offset, or the group in a store, cannot be read: then nothing is written.
    """
    from zkgroup.groups.changes.offset_checkpoint import checkpoint_of
    from zkgroup.groups.offset_files.atomic_file import write_whole
    from zkgroup.groups.offset_files.checkpoint_series import Series
    from zkgroup.groups.offset_files.offset_file import STDIO, format_for, format_offsets

    series = Series.of(path, group, form)
    if keep is not None and series is None:
        raise UsageError("--keep-last is about a folder", f"give --save {path}/")
    current, cluster = _read(connection(ctx), group, store)
    meant = [one for key, one in current.partitions.items() if not scope.topics or scope.has(key)]
    offsets = checkpoint_of(group, meant, current.store)
    form = form or format_for(path)
    text = format_offsets(form, group, offsets, cluster)
    if path == STDIO:
        sys.stdout.write(text)
    elif series is not None:
        written = series.add(text, keep)
        done(ctx, f"{counted(len(offsets), 'offset')} of group {group} saved to {written} ({form})")
    else:
        write_whole(path, text)
        done(ctx, f"{counted(len(offsets), 'offset')} of group {group} saved to {path} ({form})")
    return replace(current.snapshot, partitions=tuple(meant)), current.store


def _read(settings: ConnectionSettings, group: str, store: Store | None) -> tuple[CurrentOffsets, Cluster]:
    from zkgroup.groups.changes.backup import cluster_of
    from zkgroup.groups.changes.current_offsets import OffsetReader
    from zkgroup.groups.partition_scope import Selection

    with open_stores(settings, store) as (registry, store):
        brokers = brokers_of(settings, registry)
        reader = OffsetReader(registry, brokers, group, settings.timeout)
        current = reader.read(Selection(), store, needs_logs=False, may_create=False)
        return current, cluster_of(registry, brokers, settings.timeout)
