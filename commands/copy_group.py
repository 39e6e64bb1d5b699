"""``zkgroup copy-group``: a group's offsets for another group."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from zkgroup.errors import Notice, UsageError
from zkgroup.text import counted

from ._group_changes import (
    ChangeOptions,
    OtherGroupArgument,
    add_acls,
    change_of,
    open_applier,
    show_offsets,
    with_change,
)
from ._group_views import PartitionsOption, StoreOption
from ._shared_options import GroupArgument, OutputOption, option

if TYPE_CHECKING:
    from zkgroup.groups.changes.group_plans import WholeGroup


@with_change()
def copy_group(
    ctx: typer.Context,
    group: GroupArgument,
    to: OtherGroupArgument,
    topic: PartitionsOption = None,
    store: StoreOption = None,
    overwrite: Annotated[
        bool, option("--overwrite", help="Also replace offsets that the other group has, and that differ.")
    ] = False,
    output: OutputOption = "table",
    *,
    options: ChangeOptions,
) -> None:
    """Copy a group's offsets to another group.

    Without --execute only what would be done is shown. The group itself is only read, and may be active: what is
    copied are its offsets as they are at that moment. The other group, which need not exist, must have no members; what
    it has already and differs is replaced only with --overwrite. In ZooKeeper nothing is overwritten that has changed
    since the plan; in Kafka a window of some milliseconds remains. Nodes that are made get the access lists of those
    that they are copied from, unless --zookeeper-acl gives another. A backup of what the other group had is written
    before; 'reset-offsets TO --undo BACKUP' puts that back.

    \b
    zkgroup copy-group billing billing-test
    zkgroup copy-group billing billing-test --topic orders --execute
    """
    if group == to:
        raise UsageError(f"group {group} cannot be copied to itself", "name another group")
    change = change_of(ctx, to, options)
    from zkgroup.groups.changes.group_plans import find_group, plan_group_copy, read_whole_group
    from zkgroup.groups.partition_scope import parse_scope
    from zkgroup.groups.snapshot.snapshot_defects import foreign_note
    from zkgroup.protocol.names import validate_group_id

    scope = parse_scope(topic) if topic else None
    with open_applier(change.settings, [group, to], store) as (applier, store):
        source, target = find_group(applier, group, store), read_whole_group(applier, to, store)
        plan = plan_group_copy(source, target, scope, overwrite=overwrite)
        if not plan.exists:
            validate_group_id(to)  # members could not join it
        show_offsets(plan.rows, output)
        left = foreign_note(source.tree.foreign if source.tree is not None else (), "not copied")
        change.warn([*_of_life(source), *left])
        plan = add_acls(change, applier.registry, source, target, plan)
        change.warn_of_commits(applier.registry, group)
        change.apply(applier, plan, f"{counted(plan.changes, 'offset')} of group {group} copied to {to} and verified")


def _of_life(source: WholeGroup) -> list[Notice]:
    from zkgroup.groups.changes.preconditions import describe_unfinished_export

    alive = source.tree is not None and bool(source.tree.members or source.tree.live_owners)
    alive = alive or (
        source.kafka_group is not None
        and source.kafka_group.group is not None
        and bool(source.kafka_group.group.members)
    )
    warnings = []
    if alive:
        warnings.append(Notice(f"group {source.group} is active: its offsets move on while they are copied"))
    export = describe_unfinished_export(source.group, source.tree.export) if source.tree is not None else None
    return warnings if export is None else [*warnings, Notice(f"{export}: the offsets are those before it")]
