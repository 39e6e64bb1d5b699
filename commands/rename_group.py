"""``zkgroup rename-group``: a group's offsets under another name."""

from __future__ import annotations

import typer

from zkgroup.errors import NotFoundError, RefusedError, UsageError, ZkgroupError

from ._changing import (
    KAFKA_WINDOW,
    BackupOption,
    ConfirmOption,
    DryRunOption,
    ExecuteOption,
    NoMembersOption,
    change_of,
)
from ._managing import OtherGroupArgument, StoreOption, check_at_rest, check_deletable, counted, open_manager, show_copy
from ._options import GroupArgument, OutputOption


def rename_group(
    ctx: typer.Context,
    group: GroupArgument,
    to: OtherGroupArgument,
    store: StoreOption = None,
    backup: BackupOption = None,
    no_zookeeper_members: NoMembersOption = False,
    execute: ExecuteOption = False,
    dry_run: DryRunOption = False,
    confirm: ConfirmOption = None,
    output: OutputOption = "table",
) -> None:
    """Rename a group; without --execute only show what would be done.

    Its offsets are copied to the other name, read again to see that they are there, and only then the group is
    deleted, if it is still as it was. Neither of the two may have members. Where the other group has offsets of its own
    for the same partitions, which differ, nothing is done. Interrupted at any point, run it again: it goes on. Kafka
    deletes without comparing: offsets there are read again just before, and a commit in the milliseconds between would
    be lost. A backup of the whole group is written before; 'reset-offsets GROUP --undo BACKUP' makes its offsets again.

    \b
    zkgroup rename-group billing billing-v2
    zkgroup rename-group billing billing-v2 --execute
    """
    if group == to:
        raise UsageError(f"group {group} has that name already", "name another")
    change = change_of(
        ctx, execute=execute, dry_run=dry_run, confirm=confirm, backup=backup, vouched=no_zookeeper_members
    )
    from zkgroup.groups.manage import foreign_nodes
    from zkgroup.groups.managing import conflict
    from zkgroup.protocol.names import validate_group_id

    with open_manager(change.settings, [group, to], store) as (manager, store):
        try:
            source = manager.find(group, store)
        except NotFoundError as error:
            if manager.look(to, store).stores:
                error.remedy = f"group {to} exists: it may be renamed already"
            raise
        rows, target = manager.plan_copy(source, to)
        if not target.stores:
            validate_group_id(to)  # members could not join it
        show_copy(rows, output)
        foreign = foreign_nodes(source.tree) if source.tree is not None else []
        lost = [f"{path} is not copied, only deleted: the backup has it" for path in foreign]
        change.warn([*source.warnings, *target.warnings, *lost])
        if "kafka" in source.stores:
            change.warn([KAFKA_WINDOW.format(done="copied and deleted", lost="lost")])
        check_at_rest(change, manager, [source, target])
        check_deletable(change, manager, source)
        change.check_vouched(manager.registry)
        refused = conflict(to, rows, "choose another name, or delete these offsets first")
        if unreadable := [f"{row.key} in {row.store}" for row in rows if row.unreadable]:
            refused = RefusedError(
                f"offsets of group {group} that nobody can read would be lost: {', '.join(unreadable[:5])}",
                "reset them, or delete them, first",
            )
        if refused:
            change.refuse(refused)
        if not change.is_wanted(1):
            return
        change.back_up(manager.backup_of_removal("rename-group", group, [source]))
        manager.copy(target, rows, moved=source)
        manager.verify_copy(to, rows)
        try:
            manager.delete(source)
        except ZkgroupError as error:
            error.message += f"; its offsets are copied to {to}"
            if isinstance(error, RefusedError):
                error.message += ", it is not deleted"
                error.remedy = (
                    f"find out who works for {group}; once it rests, 'copy-group {group} {to} --overwrite --execute' "
                    "takes over what has moved, and then rename it again"
                )
            raise
        copied = sum(row.target is not None for row in rows)
        change.done(f"group {group} is now {to}: {counted(copied, 'offset')} copied and verified, {group} deleted")
