"""``zkgroup rename-group``: a group's offsets under another name."""

from __future__ import annotations

import typer

from zkgroup.errors import RefusedError, Remedy, UsageError
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
from ._group_views import StoreOption
from ._shared_options import GroupArgument, OutputOption


@with_change()
def rename_group(
    ctx: typer.Context,
    group: GroupArgument,
    to: OtherGroupArgument,
    store: StoreOption = None,
    output: OutputOption = "table",
    *,
    options: ChangeOptions,
) -> None:
    """Rename a group.

    Without --execute only what would be done is shown. Its offsets are copied to the other name, read again to see that
    they are there, and only then the group is deleted, if it is still as it was. Neither of the two may have members.
    Where the other group has offsets of its own for the same partitions, which differ, nothing is done. Interrupted at
    any point, run it again: it goes on. Kafka deletes without comparing: offsets there are read again just before, and
    a commit in the milliseconds between would be lost. Access lists in ZooKeeper come along, unless --zookeeper-acl
    gives another. A backup of the whole group is written before; 'reset-offsets
    GROUP --undo BACKUP' restores its offsets. The backup of a run that goes on has what was left of the group:
    undoing takes those of all runs, which 'backups' lists.

    \b
    zkgroup rename-group billing billing-v2
    zkgroup rename-group billing billing-v2 --execute
    """
    if group == to:
        raise UsageError(f"group {group} has that name already", "name another")
    change = change_of(ctx, group, options)
    from zkgroup.groups.changes.change_reports import after
    from zkgroup.groups.changes.group_plans import find_group, plan_group_copy, plan_group_deletion, read_whole_group
    from zkgroup.groups.changes.plan import GO_ON
    from zkgroup.protocol.names import validate_group_id

    with open_applier(change.settings, [group, to], store) as (applier, store):
        source, target = find_group(applier, group, store), read_whole_group(applier, to, store)
        copy = plan_group_copy(source, target, is_rename=True)
        deletion = plan_group_deletion(source, "rename-group", is_rename=True)
        if not copy.exists:
            validate_group_id(to)  # members could not join it
        show_offsets(copy.rows, output)
        copy = add_acls(change, applier.registry, source, target, copy)
        change.examine(applier, deletion, copy)
        wait = change.warn_of_commits(applier.registry, group)
        if not change.is_wanted(1):
            return
        change.wait_for_commits(applier.registry, [group], wait)
        with change.backed_up(applier.backup(deletion)):
            applier.write(copy)
            with after(f"group {group} is not deleted", GO_ON):
                change.warn(applier.verify(copy))
            try:
                with after(f"its offsets are copied to {to}"):
                    applier.write(deletion)
            except RefusedError as error:
                error.add_outcome("it is not deleted")
                ends = ("--",) if group.startswith("-") or to.startswith("-") else ()
                copying = ("copy-group", "--overwrite", "--execute", *ends, group, to)
                error.add_remedy(Remedy("copy the offsets that have moved, then rename it again", copying))
                raise
        copied = counted(sum(row.target is not None for row in copy.rows), "offset")
        change.done(f"group {group} is now {to}: {copied} copied and verified, {group} deleted")
