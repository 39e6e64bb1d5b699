"""``migrate-group --to-cluster``: the two clusters of a migration, each with its own settings and commands."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import typer

from zkgroup.config import ConnectionSettings
from zkgroup.errors import Remedy, UsageError, ZkgroupError
from zkgroup.text import counted

from ._context import cluster_connection
from ._execution import Change
from ._global_options import GlobalOptions
from ._group_changes import open_applier
from ._output import SPARE, Output, is_table, print_rows
from ._rendering import render
from ._spinner import working

if TYPE_CHECKING:
    from zkgroup.groups.changes.applier import Applier
    from zkgroup.groups.changes.cluster_migration import ClusterMigration
    from zkgroup.groups.changes.migration import Take
    from zkgroup.groups.group_model import OffsetStore
    from zkgroup.groups.partition_scope import Scope

COLUMNS = (
    "topic", "partition", "source", "to_topic", "match", "repeated", "current", "target", "change", "log_start",
    "log_end", "note",
)  # fmt: skip


def migrate_to_cluster(
    change: Change,
    group: str,
    profile: str,
    to: OffsetStore,
    topic_map: Sequence[str],
    scope: Scope | None,
    take: Take | None,
    output: Output,
    *,
    verify: bool,
    to_earliest: bool,
) -> None:
    """Move the offsets of a group to the cluster of a profile, or compare them."""
    from zkgroup.groups.changes.cluster_migration import (
        check_source,
        parse_topic_map,
        plan_cluster_migration,
        read_source_offsets,
        translate,
    )
    from zkgroup.groups.changes.migration import describe_retention

    topics = parse_topic_map(topic_map)
    settings = cluster_connection(change.ctx, profile)
    there = replace(change, ctx=_context_of(change.ctx, profile), settings=settings)
    where = f"cluster {profile}"
    with (
        open_applier(change.settings, [group], None) as (source, _),
        _open_target(there.ctx, settings, group, to, where) as target,
    ):
        if source.cluster().is_same(target.cluster()):
            raise UsageError(f"{where} is the one that the group is in", "name another with --to-cluster")
        found = read_source_offsets(source, group, scope)
        with working(change.ctx, f"finding the messages of group {group} in {where}"):
            partitions, positions = translate(source, target, found.offsets, topics)

        def check() -> None:
            with _named(change.ctx, "at the source"):
                check_source(source, found)

        with _named(there.ctx, where):
            migration = plan_cluster_migration(
                target, found, partitions, positions, to, check, take=take, to_earliest=to_earliest
            )
        _show(migration, output)
        change.warn(found.warnings)
        if verify:
            migration.check_same()
            return
        change.check_vouched(source.registry)
        wait = change.warn_of_commits(source.registry, group)
        with _named(there.ctx, where):
            plan = migration.plan
            if not plan.is_empty or plan.refusals:
                there.examine(target, plan)
            if change.options.execute and not plan.is_empty:
                change.wait_for_commits(source.registry, [group], wait)
            moved = f"{counted(plan.changes, 'offset')} of group {group} moved to {where} and verified"
            if there.carry_out(target, plan, moved) and to == "kafka":
                there.warn([describe_retention(target.brokers(), target.timeout)])


def _context_of(ctx: typer.Context, profile: str) -> typer.Context:
    """A context whose commands name the profile alone."""
    given = ctx.ensure_object(GlobalOptions)
    options = GlobalOptions({"cluster": [profile]}, given.verbosity, given.quiet)
    return typer.Context(ctx.command, info_name=ctx.info_name, obj=options)


@contextmanager
def _open_target(
    ctx: typer.Context, settings: ConnectionSettings, group: str, to: OffsetStore, where: str
) -> Iterator[Applier]:
    with ExitStack() as stack:
        with _named(ctx, where):
            applier, _ = stack.enter_context(open_applier(settings, [group], to))
        yield applier


@contextmanager
def _named(ctx: typer.Context, where: str) -> Iterator[None]:
    """Errors in here say in which cluster they are, and their commands name it."""
    try:
        yield
    except ZkgroupError as error:
        if vars(error).setdefault("cluster", where) == where and not error.message.startswith(where):
            error.message = f"{where}: {error.message}"
            if error.remedy is not None:
                error.remedy = Remedy(render(error.remedy, ctx.ensure_object(GlobalOptions)))
        raise


def _show(migration: ClusterMigration, output: Output) -> None:
    """The rows; a table has the repeated messages in the column of the match."""
    if not is_table(output):
        print_rows(migration.rows, COLUMNS, output)
        return
    rows: list[dict[str, Any]] = migration.rows
    for row in rows:
        if row["repeated"]:
            row["match"] = f"{row['match']} (+{row['repeated']} repeated)"
    columns = [name for name in COLUMNS if name != "repeated"]
    print_rows(rows, columns, output, spare=("to_topic", *SPARE))
