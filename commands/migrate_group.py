"""``zkgroup migrate-group``: a group's offsets from ZooKeeper to Kafka, or back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from zkgroup.errors import RefusedError, UsageError, VerificationError
from zkgroup.protocol.names import spans
from zkgroup.text import counted, listed

from ._context import open_registry
from ._execution import KAFKA_WINDOW, BackupOption, Change, ConfirmOption, DryRunOption, ExecuteOption, change_of
from ._group_views import brokers_of, keep_everything
from ._output import SPARE, print_rows
from ._shared_options import GroupArgument, OutputOption
from .offsets import ScopeOption

if TYPE_CHECKING:
    from zkgroup.groups.changes.applier import Applier
    from zkgroup.groups.changes.migration import Migration, Take

COLUMNS = ("topic", "partition", "source", "current", "target", "change", "log_start", "log_end", "note")


def migrate_group(
    ctx: typer.Context,
    group: GroupArgument,
    to: Annotated[Literal["kafka", "zookeeper"], typer.Option("--to", help="Where the offsets are to go.")],
    topic: ScopeOption = None,
    take: Annotated[
        Literal["source", "larger"] | None,
        typer.Option(
            "--prefer",
            help="Where the other store is ahead: its offset goes back to the source's, or the larger one counts. "
            "Without this such a group is refused. An offset outside its log takes the place of a good one with source "
            "only.",
            show_default=False,
        ),
    ] = None,
    verify: Annotated[
        bool,
        typer.Option("--verify", help="Only compare the two stores; exit with 6 where they do not say the same."),
    ] = False,
    backup: BackupOption = None,
    execute: ExecuteOption = False,
    dry_run: DryRunOption = False,
    confirm: ConfirmOption = None,
    output: OutputOption = "table",
) -> None:
    """Move a group's offsets from ZooKeeper to Kafka, or back, verified.

    Without --execute only what would be done is shown. Both stores are compared first: source is the offset where it
    comes from, current the one where it goes to. The group must have no members, in either. An offset outside its log
    goes to the nearer end, with a note. Nothing is removed from the source; a backup of what the other store had is
    written before, for 'reset-offsets --undo', and everything is read again afterwards. In Kafka a window of some
    milliseconds remains in which another's commit would be lost; what was not there before cannot be taken away again
    from Kafka but with the whole group.

    Consumers that must not stop move by themselves: give each member offsets.storage=kafka and
    dual.commit.enabled=true, one after the other, until --verify finds both stores the same; then
    dual.commit.enabled=false, again one after the other.

    \b
    zkgroup migrate-group billing --to kafka
    zkgroup migrate-group billing --to kafka --execute
    zkgroup migrate-group billing --to kafka --verify
    """
    if verify and (execute or take is not None or backup is not None):
        raise UsageError("--verify only compares", "leave out --execute, --prefer and --backup")
    change = change_of(ctx, group, execute=execute, dry_run=dry_run, confirm=confirm, backup=backup)
    keep_everything()
    from zkgroup.groups.changes.applier import Applier
    from zkgroup.groups.changes.migration import describe_retention, plan_migration
    from zkgroup.groups.group_model import STORE_NAMES
    from zkgroup.groups.partition_scope import parse_scope

    scope = parse_scope(topic) if topic else None
    settings = change.settings
    with open_registry(settings) as registry:
        applier = Applier(registry, brokers_of(settings, registry), settings.timeout)
        migration = plan_migration(applier, group, to, scope, take or "source")
        print_rows(migration.rows, COLUMNS, output, spare=SPARE)
        change.warn(migration.warnings)
        if verify:
            _verify(migration)
            return
        _check(change, applier, migration, take)
        count = migration.plan.changes
        if change.carry_out(applier, migration.plan, count):
            change.done(f"{counted(count, 'offset')} of group {group} moved to {STORE_NAMES[to]} and verified")
            if to == "kafka":
                change.warn([describe_retention(applier.brokers(), settings.timeout)])


def _verify(migration: Migration) -> None:
    """Raise ``VerificationError`` where the stores differ."""
    from zkgroup.groups.group_model import STORE_NAMES

    if differing := migration.differences:
        origin, to = STORE_NAMES[migration.origin], STORE_NAMES[migration.to]
        said = [f"{row.key} is {row.source} in {origin} and {_shown(row.current)} in {to}" for row in differing]
        raise VerificationError(
            f"group {migration.group} is not the same in both stores: {listed(said, most=3)}",
            "at work it may differ for a moment: look again; at rest migrate-group moves it",
        )


def _check(change: Change, applier: Applier, migration: Migration, take: Take | None) -> None:
    """What should be known of a plan besides its rows, and whether it may be carried out as things are."""
    from zkgroup.groups.group_model import STORE_NAMES

    if not migration.plan.changes:
        return
    origin, to = STORE_NAMES[migration.origin], STORE_NAMES[migration.to]
    change.warn(migration.plan.warnings)
    if migration.to == "kafka":
        change.warn([KAFKA_WINDOW.format(done="written", lost="overwritten")])
    if migration.ahead and take is None:
        change.refuse(
            RefusedError(
                f"{to} is ahead of {origin} in {spans(migration.ahead)}: somebody has committed there",
                "find out which is right: --prefer larger keeps those, --prefer source sets them back",
            )
        )
    if migration.adrift and take != "source":
        change.refuse(
            RefusedError(
                f"{spans(migration.adrift)}: outside the log in {origin}, and not in {to}",
                f"reset them in {origin} first, or leave them out with --topic; --prefer source takes the nearer"
                " ends of their logs",
            )
        )
    with change.refusing():
        applier.check(migration.plan)


def _shown(offset: int | None) -> str:
    return "none" if offset is None else str(offset)
