"""``zkgroup migrate-group``: a group's offsets to Kafka, back to ZooKeeper, or to another cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from zkgroup.errors import UsageError
from zkgroup.groups.group_choices import OffsetStore, Prefer
from zkgroup.text import counted

from ._completion import complete_cluster
from ._context import working
from ._group_changes import ChangeOptions, change_of, with_change
from ._group_views import PartitionsOption, disable_garbage_collection
from ._output import Output
from ._shared_options import OptionalGroupArgument, OutputOption, option

if TYPE_CHECKING:
    from ._migrations import Migrations

OTHER = "To another cluster"
MANY = "Many groups"


@with_change()
def migrate_group(
    ctx: typer.Context,
    group: OptionalGroupArgument = None,
    to: Annotated[
        OffsetStore | None,
        option("--to", help="The store to which the offsets go. Default with --to-cluster: kafka."),
    ] = None,
    to_cluster: Annotated[
        str | None,
        option(
            "--to-cluster",
            metavar="PROFILE",
            help="Another cluster, to which the topics are mirrored: the offsets of the same messages there. Only the"
            " profile says how to connect to it.",
            complete=complete_cluster,
            panel=OTHER,
        ),
    ] = None,
    topic_map: Annotated[
        list[str] | None,
        option(
            "--topic-map",
            metavar="TOPIC=TOPIC",
            help="A topic, and its name in the other cluster; repeatable.",
            panel=OTHER,
        ),
    ] = None,
    not_found: Annotated[
        Literal["earliest"] | None,
        option(
            "--not-found",
            help="A partition whose message is not found goes to the start of its log: what is missing there stays"
            " missing. Without this such a group is refused.",
            panel=OTHER,
        ),
    ] = None,
    pattern: Annotated[
        list[str] | None,
        option(
            "--pattern",
            metavar="GLOB",
            help="Instead of a group: all with offsets whose name matches; repeatable. --confirm takes the pattern.",
            panel=MANY,
        ),
    ] = None,
    all_groups: Annotated[bool, option("--all", help="All groups with offsets.", panel=MANY)] = False,
    topic: PartitionsOption = None,
    prefer: Annotated[
        Prefer | None,
        option(
            "--prefer",
            help="Where the other store is ahead: its offset goes back to the source's, or the larger one counts. "
            "Without this such a group is refused. An offset outside its log takes the place of a good one with source "
            "only.",
        ),
    ] = None,
    verify: Annotated[
        bool,
        option(
            "--verify",
            help="Only compare; exit with 6 where the offsets differ. In another cluster they may be beyond the plan: a"
            " warning says by how much the group has moved on.",
        ),
    ] = False,
    output: OutputOption = "table",
    *,
    options: ChangeOptions,
) -> None:
    """Move a group's offsets to Kafka, back to ZooKeeper, or to another cluster.

    Without --execute only what would be done is shown. Both stores are compared first: source is the offset where it
    comes from, current the one where it goes to. The group must have no members, in either. An offset outside its log
    goes to the nearer end, with a note. Nothing is removed from the source; a backup of what the other store had is
    written before, for 'reset-offsets --undo', and everything is read again afterwards. In Kafka a window of some
    milliseconds remains in which another's commit would be lost; what was not there before cannot be taken away again
    from Kafka but with the whole group.

    With --to-cluster the unconsumed messages are found in the mirrored topics of another cluster. match says how:
    exact, earlier (so many messages are repeated, none is skipped), or not found, which refuses the group.

    With --pattern or --all a row is shown for each group, the worst first: refused, ready, or done. --execute moves
    those that are ready, each with a backup of its own, and exits with 5 if others are left. Run it again to continue.

    Consumers that must not stop move by themselves: give each member offsets.storage=kafka and
    dual.commit.enabled=true, one after the other, until --verify finds both stores the same. Then give each
    dual.commit.enabled=false.

    \b
    zkgroup migrate-group billing --to kafka
    zkgroup migrate-group billing --to kafka --execute
    zkgroup migrate-group billing --to kafka --verify
    zkgroup migrate-group billing --to-cluster new --execute
    zkgroup migrate-group --all --to-cluster new
    """
    if sum((group is not None, bool(pattern), all_groups)) != 1:
        raise UsageError("no group is given, or more than one choice", "give a group, or --pattern, or --all")
    if topic and group is None:
        raise UsageError("--topic is about one group", "leave it out, or name the group")
    if (topic_map or not_found) and to_cluster is None:
        raise UsageError("--topic-map and --not-found are about --to-cluster", "leave them out, or name a cluster")
    if to is None and to_cluster is None:
        raise UsageError("no place is given", "give --to kafka, --to zookeeper or --to-cluster PROFILE")
    if verify and (options.execute or prefer is not None or options.backup is not None):
        raise UsageError("--verify only compares", "leave out --execute, --prefer and --backup")
    patterns = ["*"] if all_groups else pattern or []
    if patterns and options.backup is not None:
        raise UsageError("each group has a backup of its own", "leave out --backup")
    change = change_of(ctx, group or ",".join(patterns), options)
    disable_garbage_collection()
    from zkgroup.groups.partition_scope import parse_scope

    from ._migrations import MigrationOptions, migrate_many, open_migrations

    scope = parse_scope(topic) if topic else None
    wanted = MigrationOptions(to or "kafka", scope, prefer, not_found is not None, to_cluster, topic_map or [])
    with open_migrations(change, wanted, [group] if group else []) as migrations:
        if group is None:
            migrate_many(migrations, patterns, output, verify=verify)
        else:
            _migrate_one(migrations, group, output, verify=verify)


def _migrate_one(migrations: Migrations, group: str, output: Output, *, verify: bool) -> None:
    with working(migrations.change.ctx, f"reading group {group}"):
        migration = migrations.plan(group)
    migrations.show(migration, output)
    change, applier, plan = migrations.change, migrations.applier, migration.plan
    change.warn(migration.warnings)
    if verify:
        migration.check_same()
        change.warn(migration.moved_on)
        return
    with migrations.named():
        if not plan.is_empty or plan.refusals:
            with migrations.here.refusing():
                migrations.check_origin()
            change.examine(applier, plan)
        else:
            with migrations.here.refusing():
                migrations.check_idle(plan)
        if change.options.execute and not plan.is_empty:
            migrations.wait_for_commits(group)
        moved = counted(plan.changes, "offset")
        if change.carry_out(applier, plan, f"{moved} of group {group} moved to {migrations.place} and verified"):
            migrations.warn_of_retention()
