"""``zkgroup export --status``, ``--history`` and ``--verify``: looking at exports."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from zkgroup.errors import MalformedZnodeError, NotFoundError, VerificationError

from ._context import connection, open_registry, warn
from ._render import Output, print_rows, time_column

if TYPE_CHECKING:
    import typer

    from zkgroup.config import ConnectionSettings
    from zkgroup.export.lake.lake import Lake

STATUS = ("group", "run", "state", "step", "host", "pid", time_column("since"), "output", "advice")
HISTORY = (
    "run", "group", "kind", "state", time_column("planned"), time_column("decided"), "partitions", "rows", "bytes",
    "files", "gaps", "skipped", "undecodable", "late",
)  # fmt: skip
VERIFY = ("topic", "partition", "start", "end", "rows", "gaps", "skipped", "files", "problem")


def show_status(
    ctx: typer.Context, settings: ConnectionSettings, group: str | None, to: str | None, output: Output
) -> None:
    """What is under way or unfinished, of one destination if ``to`` names it; how many others there are."""
    from zkgroup.export.checks.history import status
    from zkgroup.export.lake.lake import Lake
    from zkgroup.export.stores.store import open_store, parse_destination
    from zkgroup.words import are, counted, listed

    lake = None if to is None else Lake(open_store(parse_destination(to)))
    with open_registry(settings) as registry:
        found = status(registry, group, lake)
    print_rows([row for row in found if not row.elsewhere], STATUS, output)
    if others := [row for row in found if row.elsewhere]:
        places = listed(sorted({str(row.output) for row in others}))
        what = f"{counted(len(others), 'other export')} {are(len(others))} under way or unfinished"
        warn(ctx, [f"{what} elsewhere ({places}): --status without --to shows all"])


def show_lake(ctx: typer.Context, to: str, group: str | None, output: Output, *, verify: bool) -> None:
    """The runs of a folder; or whether they are all there, also against the group's offsets if it is named."""
    from zkgroup.export.checks.history import history, status
    from zkgroup.export.lake.lake import Lake
    from zkgroup.export.stores.store import open_store, parse_destination

    lake = Lake(open_store(parse_destination(to)))
    root = lake.store.uri
    if not lake.store.exists():
        raise NotFoundError(f"there is no folder {root}", "check --to")
    if group is not None and not verify and not lake.runs(group):
        raise NotFoundError(f"{root} keeps no exports of group {group}", f"groups that it keeps: {_groups(lake)}")
    if not verify:
        unreadable: list[str] = []
        print_rows(history(lake, None if group is None else [group], unreadable.append), HISTORY, output)
        warn(ctx, unreadable)
        return
    from zkgroup.export.stores.packages import require

    require("pyarrow")
    from zkgroup.export.checks.advice import remedy_for
    from zkgroup.export.checks.verify import verify as check
    from zkgroup.export.lake.clusters import refuse_offsets_of_another_cluster
    from zkgroup.export.lake.leftovers import has_garbage
    from zkgroup.export.model.encoding import DamagedDocumentError
    from zkgroup.export.planning.group import ExportGroup, read_committed

    committed, unfinished, broken = None, False, None
    notes: list[str] = []
    if group is not None:
        with open_registry(connection(ctx)) as registry:
            rows_of_status = status(registry, group, lake)
            unfinished = bool(rows_of_status)
            notes += [
                f"{f'run {row.run}' if row.run else 'an export'} of group {group} is not finished, and may have "
                "published nothing yet: --status tells"
                for row in rows_of_status
                if row.state == "unfinished"
            ]
            with contextlib.suppress(DamagedDocumentError):  # one of the rows
                last = lake.last(group)
                refuse_offsets_of_another_cluster(
                    lake, group, ExportGroup(registry, group, notes.append).clusters(), last
                )
                try:
                    committed = {group: read_committed(registry, group, last.coverage)}
                except MalformedZnodeError as error:  # which tells nothing of the files
                    broken = error
                    notes.append(f"the offsets of group {group} are not compared: {error.message}")
    rows = check(lake, committed, notes.append)
    print_rows(rows, VERIFY, output)
    warn(ctx, notes)
    problems = [row for row in rows if row.problem is not None]
    if group is not None and not problems and not lake.runs(group):
        raise NotFoundError(f"{root} keeps no exports of group {group}", f"groups that it keeps: {_groups(lake)}")
    if problems:
        first = problems[0]
        where = "" if first.topic is None else f"{first.topic}-{first.partition} from offset {first.start} on: "
        raise VerificationError(
            f"{len(problems)} problem{'s' * (len(problems) > 1)} in {root}; {where}{str(first.problem).rstrip('.')}",
            remedy_for(
                problems,
                lake.store.destination,
                unfinished=unfinished or any(has_garbage(lake, one) for one in lake.groups()),
            ),
        )
    if broken is not None:
        raise broken


def _groups(lake: Lake) -> str:
    return ", ".join(group for group in lake.groups() if lake.runs(group)) or "none"
