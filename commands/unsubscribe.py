"""``zkgroup unsubscribe``: a group's offsets of topics that it reads no more."""

from __future__ import annotations

from typing import Annotated

import typer

from zkgroup.text import counted

from ._completion_values import complete_partitions
from ._execution import BackupOption, ConfirmOption, DryRunOption, ExecuteOption, change_of
from ._group_changes import open_manager, show_removal
from ._shared_options import GroupArgument, OutputOption


def unsubscribe(
    ctx: typer.Context,
    group: GroupArgument,
    topic: Annotated[
        list[str],
        typer.Option(
            "--topic",
            metavar="TOPIC[:P,P-P]",
            help="This topic, or these partitions of it; repeatable.",
            autocompletion=complete_partitions,
        ),
    ],
    backup: BackupOption = None,
    execute: ExecuteOption = False,
    dry_run: DryRunOption = False,
    confirm: ConfirmOption = None,
    output: OutputOption = "table",
) -> None:
    """Remove a group's offsets of topics that it reads no more.

    Without --execute only what would be done is shown. The group may be at work, as long as none of its members
    subscribes to these topics or owns any of them; 'delete-group --topic' does the same, but wants no members at all.
    Only ZooKeeper is changed: offsets in Kafka stay, which a warning says, and where there are no others that is
    refused (exit 5). With the last topic of a group without members the empty group goes, too. If somebody subscribes
    meanwhile, the offsets stay, or are put back. A backup is written before; 'reset-offsets GROUP --undo BACKUP' makes
    the offsets again, but only once all members are stopped, those of other topics, too (exit 5).

    \b
    zkgroup unsubscribe billing --topic old-orders
    zkgroup unsubscribe billing --topic old-orders --topic orders:7 --execute
    """
    change = change_of(ctx, group, execute=execute, dry_run=dry_run, confirm=confirm, backup=backup)
    from zkgroup.groups.changes.group_manager import Found
    from zkgroup.groups.changes.group_plans import plan_delete
    from zkgroup.groups.changes.topic_znodes import (
        EMPTY_GROUP,
        and_empty_group,
        check_has,
        read_scope,
        staying_in_kafka,
    )
    from zkgroup.groups.changes.unsubscription import unsubscribe_guard
    from zkgroup.groups.changes.znode_deletion import remove_tree
    from zkgroup.groups.partition_scope import parse_scope
    from zkgroup.groups.snapshot.tables import foreign_note

    scope = parse_scope(topic)
    with open_manager(change.settings, [group], "zookeeper") as (manager, _):
        assert manager.registry is not None, "ZooKeeper is meant"
        whole = manager.find(group, None, partly=True)
        tree, roots = read_scope(manager.registry, group, scope)
        check_has(whole, scope, tree)
        rows = plan_delete(tree, {})
        show_removal(rows, output)
        everything = and_empty_group(manager.registry, whole, tree)
        emptied = everything is not tree
        others = foreign_note(tree.foreign, "deleted, too")
        change.warn([*whole.warnings, *staying_in_kafka(whole, scope), *others, *([EMPTY_GROUP] if emptied else [])])
        guard = unsubscribe_guard(group, scope.topics)
        with change.refusing():
            guard(manager.registry)
        found = Found(group, everything)
        change.forewarn(manager.registry, group, manager.needs_of_deletion(found))
        wait = change.forewarn_commits(manager.registry, group)
        if not change.is_wanted(len(everything.nodes)):
            return
        change.wait_for_commits(manager.registry, [group], wait)
        with change.backed_up(manager.backup_of_removal("unsubscribe", group, [found])):
            if emptied:  # it has no members
                remove_tree(manager.registry, everything)
            else:
                remove_tree(manager.registry, tree, roots=roots, guarding=guard, check_after=True)
        and_group = ", and the empty group" if emptied else ""
        change.done(f"{counted(len(rows), 'offset')} of group {group} removed in ZooKeeper{and_group}")
