"""``zkgroup release-owners``: owner nodes and registrations that no session owns."""

from __future__ import annotations

from typing import Annotated

import typer

from zkgroup.errors import UsageError
from zkgroup.text import counted

from ._completion import complete_member
from ._group_changes import ChangeOptions, change_of, open_applier, with_change
from ._group_views import partitions_option
from ._output import SPARE, print_rows, time_column
from ._shared_options import GroupArgument, OutputOption, option

COLUMNS = ("topic", "partition", "owner", "member", time_column("since"), "note")


@with_change("no_zookeeper_members")
def release_owners(
    ctx: typer.Context,
    group: GroupArgument,
    topic: Annotated[
        list[str] | None,
        partitions_option("The owner nodes of this topic, or of these partitions of it; repeatable."),
    ] = None,
    member: Annotated[
        list[str] | None,
        option(
            "--member", metavar="MEMBER", help="The registration of this member; repeatable.", complete=complete_member
        ),
    ] = None,
    output: OutputOption = "table",
    *,
    options: ChangeOptions,
) -> None:
    """Remove owner nodes and registrations that no session owns.

    Members make ephemeral nodes, which ZooKeeper removes when their session ends. A node that is not ephemeral, made by
    hand or restored from a copy, stays for good, and keeps its partition, or its share, from all members. Only such
    nodes are removed. A node that a session owns is refused (exit 5), as is the registration of a member that owns
    partitions through a session. The group may be active. Without --execute only what would be done is shown. A backup
    is written before; 'delete-group --undo BACKUP' restores the nodes, once all members are stopped. Of several
    backups undo those with registrations last: while a registration is there, nothing else is made.

    \b
    zkgroup release-owners billing --topic orders:1-2
    zkgroup release-owners billing --topic orders --execute
    zkgroup release-owners billing --member billing_app-1 --execute
    """
    if not topic and not member:
        raise UsageError("no owner and no member is given", "give --topic TOPIC[:P,P-P] or --member MEMBER")
    change = change_of(ctx, group, options)
    from zkgroup.groups.changes.group_plans import find_group
    from zkgroup.groups.changes.node_removals import plan_release
    from zkgroup.groups.partition_scope import parse_scope

    scope, members = parse_scope(topic or ()), frozenset(member or ())
    with open_applier(change.settings, [group], "zookeeper") as (applier, _):
        find_group(applier, group, "zookeeper")
        assert applier.registry is not None, "ZooKeeper is meant"
        rows, plan = plan_release(applier.registry, group, scope, members)
        print_rows(rows, COLUMNS, output, spare=("member", *SPARE))
        assert plan.removal is not None, "it removes nodes"
        done = f"{counted(len(plan.removal.tree.nodes), 'node')} of group {group} removed"
        change.apply(applier, plan, done, may_be_active=True)
