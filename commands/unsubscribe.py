"""``zkgroup unsubscribe``: a group's offsets of topics that it reads no more."""

from __future__ import annotations

from typing import Annotated

import typer

from ._group_changes import ChangeOptions, change_of, remove_topics, with_change
from ._group_views import partitions_option
from ._shared_options import GroupArgument, OutputOption


@with_change("no_zookeeper_members")
def unsubscribe(
    ctx: typer.Context,
    group: GroupArgument,
    topic: Annotated[
        list[str],
        partitions_option("This topic, or these partitions of it; repeatable."),
    ],
    output: OutputOption = "table",
    *,
    options: ChangeOptions,
) -> None:
    """Remove a group's offsets of topics that it reads no more.

    Without --execute only what would be done is shown. The group may be active, as long as none of its members
    subscribes to these topics or owns any of them; 'delete-group --topic' does the same, but wants no members at all.
    Only ZooKeeper is changed: offsets in Kafka stay, which a warning says, and where there are no others that is
    refused (exit 5). With the last topic of a group without members the empty group goes, too. If a member subscribes
    meanwhile, the offsets stay, or are put back. A backup is written before; 'reset-offsets GROUP --undo BACKUP' makes
    the offsets again, but only once all members are stopped, those of other topics, too (exit 5).

    \b
    zkgroup unsubscribe billing --topic old-orders
    zkgroup unsubscribe billing --topic old-orders --topic orders:7 --execute
    """
    change = change_of(ctx, group, options)
    remove_topics(change, "unsubscribe", group, topic, output)
