"""What ``zkgroup export`` prints besides rows: its progress, and ``--status``, ``--history`` and ``--verify``."""

from __future__ import annotations

import contextlib
import sys
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from zkgroup.errors import MalformedZnodeError, NotFoundError, Notice, Remedy, VerificationError, ZkgroupError

from ._context import connection, open_registry, warn
from ._error_output import render
from ._output import Column, Output, print_rows, time_column
from ._shared_options import GlobalOptions

if TYPE_CHECKING:
    import typer
    from rich.progress import Progress as Bar

    from zkgroup.config import ConnectionSettings
    from zkgroup.export.destination.run_log import Destination
    from zkgroup.export.run.run_export import Progress

STATUS = ("group", "run", "state", "step", "host", "pid", time_column("since"), "output")
HISTORY = (
    "run", "group", "kind", "state", time_column("planned"), time_column("decided"), "partitions", "rows", "bytes",
    "files", "gaps", "skipped", "undecodable", "late",
)  # fmt: skip
VERIFY = ("topic", "partition", "start", "end", "rows", "undecodable", "gaps", "skipped", "files", "problem")


def show_status(
    ctx: typer.Context, settings: ConnectionSettings, group: str | None, to: str | None, output: Output
) -> None:
    """What is under way or unfinished, also what only the destination ``to`` knows of."""
    from zkgroup.export.checks.run_reports import status
    from zkgroup.export.destination.run_log import Destination
    from zkgroup.export.model.address import parse_address
    from zkgroup.export.stores.store import open_store

    destination = None if to is None else Destination(open_store(parse_address(to)))
    with open_registry(settings) as registry:
        advice = Column("advice", partial(render, given=ctx.ensure_object(GlobalOptions)))
        print_rows(status(registry, group, destination), (*STATUS, advice), output)


def show_destination(ctx: typer.Context, to: str, group: str | None, output: Output, *, verify: bool) -> None:
    """The runs of a destination; or whether they are all there, also against the group's offsets if it is named."""
    from zkgroup.export.checks.run_reports import history
    from zkgroup.export.destination.run_log import Destination
    from zkgroup.export.model.address import parse_address
    from zkgroup.export.stores.store import open_store

    destination = Destination(open_store(parse_address(to)))
    if not destination.store.exists():
        raise NotFoundError(f"there is no folder {destination}", "check --to")
    groups = destination.groups()
    if verify:
        _verify(ctx, destination, group, output)
    if group is not None and group not in groups:
        known = ", ".join(groups) or "none"
        raise NotFoundError(f"{destination} has no exports of group {group}", f"groups that it has: {known}")
    if not verify:
        damaged: list[ZkgroupError] = []
        print_rows(history(destination, None if group is None else [group], damaged.append), HISTORY, output)
        warn(ctx, damaged)


def _verify(ctx: typer.Context, destination: Destination, group: str | None, output: Output) -> None:
    from zkgroup.export.stores.store import require

    require("pyarrow")
    from zkgroup.export.checks.run_reports import status
    from zkgroup.export.checks.verify import read_committed, remedy_for
    from zkgroup.export.checks.verify import verify as check
    from zkgroup.export.model.run_record import DamagedDocumentError
    from zkgroup.export.planning.export_request import status_command

    committed, broken = None, None
    notes: list[Notice] = []
    if group is not None:
        see = Remedy("see its state", status_command(group))
        with open_registry(connection(ctx)) as registry:
            notes += [
                Notice(f"{f'run {row.run}' if row.run else 'an export'} of group {group} is not finished", see)
                for row in status(registry, group, destination)
                if row.state != "running"
            ]
            with contextlib.suppress(DamagedDocumentError):  # one of the rows
                newest = destination.newest(group)
                try:
                    if newest is not None:
                        committed = {group: read_committed(registry, group, newest, notes.append)}
                except MalformedZnodeError as error:  # which says nothing about the files
                    broken = error
                    notes.append(Notice(f"the offsets of group {group} are not compared: {error.message}"))
    rows = check(destination, committed, notes.append)
    given = ctx.ensure_object(GlobalOptions)
    shown = (
        row if row.problem is None else replace(row, problem=render(Notice(row.problem, row.remedy), given))
        for row in rows
    )
    print_rows(shown, VERIFY, output)
    warn(ctx, notes)
    if problems := [row for row in rows if row.problem is not None]:
        first = problems[0]
        layout = None
        with contextlib.suppress(ZkgroupError):  # one of the rows
            layout = destination.layout()
        schemas = () if layout is None else layout.schema_options
        where = "" if first.topic is None else f"{first.topic}-{first.partition} from offset {first.start} on: "
        raise VerificationError(
            f"{len(problems)} problem{'s' * (len(problems) > 1)} in {destination}; {where}"
            f"{str(first.problem).rstrip('.')}",
            remedy_for(problems, destination.store.address, schemas),
        )
    if broken is not None:
        raise broken


#: Columns. Narrower terminals have room for the figures alone, up to billions of messages.
_WIDE = 64


class ProgressBar:
    """A line on a terminal that is written over, and gone in the end; nothing at all where ``shown`` is false.

    A stage first; then messages, bytes written, and the time that is left.
    """

    def __init__(self, *, shown: bool) -> None:
        self._shown = shown
        self._words = False
        self._bar: Bar | None = None

    def show(self, progress: Progress) -> None:
        if not self._shown:
            return
        if progress.stage == "exporting":
            self._count(progress)
            return
        self.clear()
        sys.stderr.write(f"\r\x1b[K{progress.stage}")
        sys.stderr.flush()
        self._words = True

    def _count(self, progress: Progress) -> None:
        from rich.filesize import decimal

        if self._bar is None:
            self.clear()
            self._bar = _bar()
            self._bar.add_task("exporting", total=None, size="")
            self._bar.start()
        size = decimal(progress.bytes) if progress.bytes else ""
        # Tasks report each range, of a million messages or so, at its end: until then just a sign of life.
        total = progress.total if progress.done else None
        self._bar.update(self._bar.task_ids[0], completed=progress.done, total=total, size=size)

    def clear(self) -> None:
        """Wipe it; what is printed next begins on a line of its own."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None
        if self._words:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
            self._words = False


def _bar() -> Bar:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, TextColumn, TimeRemainingColumn
    from rich.table import Column

    console = Console(stderr=True)
    whole = Column(no_wrap=True)  # a number that is cut is another one
    figures: list[ProgressColumn] = [
        MofNCompleteColumn(table_column=whole),
        TextColumn("{task.fields[size]}"),
        TimeRemainingColumn(),
    ]
    if console.width >= _WIDE:
        figures = [TextColumn("{task.description}"), BarColumn(), *figures]
    return Progress(*figures, console=console, transient=True, refresh_per_second=4)
