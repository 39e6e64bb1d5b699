"""``zkgroup export --status``, ``--history`` and ``--verify``: reports on exports."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from zkgroup.errors import MalformedZnodeError, NotFoundError, VerificationError, ZkgroupError

from ._context import connection, done, open_registry, warn
from ._output import Output, print_rows, time_column

if TYPE_CHECKING:
    import typer

    from zkgroup.config import ConnectionSettings
    from zkgroup.export.destination.run_log import Destination

STATUS = ("group", "run", "state", "step", "host", "pid", time_column("since"), "output", "advice")
HISTORY = (
    "run", "group", "kind", "state", time_column("planned"), time_column("decided"), "partitions", "rows", "bytes",
    "files", "gaps", "skipped", "undecodable", "late",
)  # fmt: skip
VERIFY = ("topic", "partition", "start", "end", "rows", "undecodable", "gaps", "skipped", "files", "problem")


def show_status(
    ctx: typer.Context, settings: ConnectionSettings, group: str | None, to: str | None, output: Output
) -> None:
    """What is under way or unfinished, of one destination if ``to`` names it; how many others there are. And the names
    of its tables, where they are not those of their topics."""
    from zkgroup.export.checks.run_reports import renamed_tables, status
    from zkgroup.export.destination.run_log import Destination
    from zkgroup.export.model.address import parse_address
    from zkgroup.export.stores.store import open_store
    from zkgroup.text import are, counted, listed

    destination = None if to is None else Destination(open_store(parse_address(to)))
    with open_registry(settings) as registry:
        found = status(registry, group, destination)
    print_rows([row for row in found if not row.is_elsewhere], STATUS, output)
    if others := [row for row in found if row.is_elsewhere]:
        places = listed(sorted({str(row.output) for row in others}))
        what = f"{counted(len(others), 'other export')} {are(len(others))} under way or unfinished"
        warn(ctx, [f"{what} elsewhere ({places}): --status without --to shows all"])
    for topic, table in renamed_tables(destination).items() if destination is not None else ():
        done(ctx, f"topic {topic} is the table {table}")


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
        damaged: list[str] = []
        print_rows(history(destination, None if group is None else [group], damaged.append), HISTORY, output)
        warn(ctx, damaged)


def _verify(ctx: typer.Context, destination: Destination, group: str | None, output: Output) -> None:
    from zkgroup.export.stores.store import require

    require("pyarrow")
    from zkgroup.export.checks.run_reports import status
    from zkgroup.export.checks.verify import read_committed, remedy_for
    from zkgroup.export.checks.verify import verify as check
    from zkgroup.export.model.run_record import DamagedDocumentError

    committed, broken = None, None
    notes: list[str] = []
    if group is not None:
        with open_registry(connection(ctx)) as registry:
            notes += [
                f"{f'run {row.run}' if row.run else 'an export'} of group {group} is not finished: see --status"
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
                    notes.append(f"the offsets of group {group} are not compared: {error.message}")
    rows = check(destination, committed, notes.append)
    print_rows(rows, VERIFY, output)
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
