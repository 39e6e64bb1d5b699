"""``zkgroup migrate-group``: a group's offsets to Kafka, back to ZooKeeper, or to another cluster."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from zkgroup.errors import UsageError
from zkgroup.text import counted

from ._completion_values import complete_cluster
from ._execution import ChangeOptions, change_of, with_change
from ._group_changes import open_applier
from ._group_views import PartitionsOption, keep_everything
from ._output import SPARE, print_rows
from ._shared_options import GroupArgument, OutputOption, option

OTHER = "To another cluster"
COLUMNS = ("topic", "partition", "source", "current", "target", "change", "log_start", "log_end", "note")


@with_change()
def migrate_group(
    ctx: typer.Context,
    group: GroupArgument,
    to: Annotated[
        Literal["kafka", "zookeeper"] | None,
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
            help="A partition whose message is not found goes to the start of its log, which repeats and never skips."
            " Without this such a group is refused.",
            panel=OTHER,
        ),
    ] = None,
    topic: PartitionsOption = None,
    take: Annotated[
        Literal["source", "larger"] | None,
        option(
            "--prefer",
            help="Where the other store is ahead: its offset goes back to the source's, or the larger one counts. "
            "Without this such a group is refused. An offset outside its log takes the place of a good one with source "
            "only.",
        ),
    ] = None,
    verify: Annotated[
        bool, option("--verify", help="Only compare the two stores; exit with 6 where they do not say the same.")
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

    With --to-cluster the messages around each offset are found in the mirrored topics of another cluster. match says
    how: exact, earlier (so many messages are repeated, none is skipped), or not found, which refuses the group.

    Consumers that must not stop move by themselves: give each member offsets.storage=kafka and
    dual.commit.enabled=true, one after the other, until --verify finds both stores the same; then
    dual.commit.enabled=false, again one after the other.

    \b
    zkgroup migrate-group billing --to kafka
    zkgroup migrate-group billing --to kafka --execute
    zkgroup migrate-group billing --to kafka --verify
    zkgroup migrate-group billing --to-cluster new --topic-map orders=old.orders
    """
    if (topic_map or not_found) and to_cluster is None:
        raise UsageError("--topic-map and --not-found are about --to-cluster", "leave them out, or name a cluster")
    if to is None and to_cluster is None:
        raise UsageError("no place is given", "give --to kafka, --to zookeeper or --to-cluster PROFILE")
    if verify and (options.execute or take is not None or options.backup is not None):
        raise UsageError("--verify only compares", "leave out --execute, --prefer and --backup")
    change = change_of(ctx, group, options)
    keep_everything()
    from zkgroup.groups.changes.migration import describe_retention, plan_migration
    from zkgroup.groups.group_model import STORE_NAMES
    from zkgroup.groups.partition_scope import parse_scope

    scope = parse_scope(topic) if topic else None
    if to_cluster is not None or to is None:
        from ._cluster_migration import migrate_to_cluster

        migrate_to_cluster(
            change, group, to_cluster or "", to or "kafka", topic_map or [], scope, take, output, verify=verify,
            to_earliest=not_found is not None,
        )  # fmt: skip
        return
    with open_applier(change.settings, [group], "zookeeper") as (applier, _):
        migration = plan_migration(applier, group, to, scope, take)
        print_rows(migration.rows, COLUMNS, output, spare=SPARE)
        change.warn(migration.warnings)
        if verify:
            migration.check_same()
            return
        if not migration.plan.is_empty:
            change.examine(applier, migration.plan)
        moved = counted(migration.plan.changes, "offset")
        done = f"{moved} of group {group} moved to {STORE_NAMES[to]} and verified"
        if change.carry_out(applier, migration.plan, done) and to == "kafka":
            change.warn([describe_retention(applier.brokers(), applier.timeout)])
