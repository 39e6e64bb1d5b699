"""``zkgroup backups``: the backups that changes have written."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from zkgroup.errors import UsageError, ZkgroupError
from zkgroup.text import is_matched

from ._context import warn
from ._error_output import render_command
from ._group_views import print_title
from ._output import (
    Output,
    RowLayout,
    as_objects,
    has_objects,
    is_table,
    iso_utc,
    print_object,
    print_rows,
    time_column,
)
from ._shared_options import ColumnsOption, GlobalOptions, NoHeaderOption, OutputOption, option

if TYPE_CHECKING:
    from zkgroup.groups.changes.backup import Backup

COLUMNS: Final = (time_column("time"), "command", "group", "offsets", "nodes", "zookeeper", "file")
OFFSETS: Final = ("store", "topic", "partition", "before", "written")
NODES: Final = ("path", "bytes")
_SPARE: Final = ("nodes", "offsets", "command", "zookeeper")


def backups(
    ctx: typer.Context,
    file: Annotated[Path | None, typer.Argument(metavar="[FILE]", help="Show this backup.", show_default=False)] = None,
    pattern: Annotated[
        list[str] | None,
        option("--filter", metavar="GLOB", help="Only those of groups whose whole name matches; repeatable."),
    ] = None,
    columns: ColumnsOption = None,
    no_header: NoHeaderOption = False,
    output: OutputOption = "table",
) -> None:
    """List the backups that changes of groups have written, or show one.

    The newest is first. time: when the change was planned. offsets and nodes: how many are saved. zookeeper: the
    servers of the cluster, or its brokers. Backups that --backup has written elsewhere are not listed. Of one backup
    the offsets before the change and those written by it are shown (-: none), the deleted nodes, and the command that
    shows the plan of restoring them.

    JSON of one backup is an object, CSV its offsets.

    \b
    zkgroup backups
    zkgroup backups --filter 'billing*' --output json
    zkgroup backups 20240501T120000Z-reset-offsets-billing.json
    """
    from zkgroup.groups.changes import backup

    if file is not None:
        if pattern or columns or no_header:
            raise UsageError("--filter, --columns and --no-header are about the list", "leave them out with a FILE")
        if not file.exists():
            file = next((path for path in backup.backup_files() if path.name == file.name), file)
        found = backup.read(file)
        undo = render_command(backup.undo_command(found, file), ctx.ensure_object(GlobalOptions))
        _print_one(found, file, undo, output)
        return
    rows, unread = [], []
    for path in backup.backup_files():
        try:
            found = backup.read(path)
        except ZkgroupError as error:
            unread.append(error)
            continue
        if not pattern or is_matched(found.group, pattern):
            rows.append(_head(found, path))
    rows.sort(key=lambda row: row["time"], reverse=True)
    if output == "table" and sys.stdout.isatty():  # the name alone can be copied from a narrow terminal, and is enough
        rows = [{**row, "file": Path(row["file"]).name} for row in rows]
    print_rows(rows, COLUMNS, output, spare=_SPARE, layout=RowLayout.of(columns, no_header))
    warn(ctx, unread)


def _head(found: Backup, path: Path) -> dict[str, Any]:
    return {
        "time": found.time,
        "command": found.command,
        "group": found.group,
        "offsets": len(found.offsets),
        "nodes": len(found.nodes),
        "zookeeper": found.cluster.connect,
        "file": str(path),
    }


def _print_one(found: Backup, path: Path, undo: str, output: Output) -> None:
    offsets = [
        dict(zip(OFFSETS, (one.store, *one.partition, one.before, one.written), strict=True)) for one in found.offsets
    ]
    nodes = [{"path": one.path, "bytes": len(one.data)} for one in found.nodes]
    head = _head(found, path)
    if has_objects(output):
        saved = {"offsets": as_objects(offsets, OFFSETS), "nodes": as_objects(nodes, NODES)}
        print_object({**head, "time": iso_utc(found.time), **saved, "undo": undo}, output)
        return
    if not is_table(output):
        print_rows(offsets, OFFSETS, output)
        return
    print_rows([head], COLUMNS, output, spare=_SPARE)
    if offsets:
        print_title("offsets")
        print_rows(offsets, OFFSETS, output)
    if nodes:
        print_title("nodes")
        print_rows(nodes, NODES, output)
    sys.stdout.write(f"\n{undo}\n")
