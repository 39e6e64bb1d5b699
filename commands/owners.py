"""``zkgroup owners``: the owner of each partition of a group."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from zkgroup.config import ConnectionSettings
from zkgroup.errors import NotFoundError, Notice, UsageError, VerificationError, ZkgroupError
from zkgroup.text import listed

from ._context import connection, warn
from ._group_views import StoreOption, brokers_of, check_topics, disable_garbage_collection, open_stores
from ._output import SPARE, RowLayout, print_rows, time_column
from ._shared_options import ColumnsOption, GroupArgument, NoHeaderOption, OutputOption, TopicsOption, option

if TYPE_CHECKING:
    from zkgroup.groups.group_model import GroupSnapshot, Store

COLUMNS = ("topic", "partition", "owner", "member", "host", "registered", time_column("since"))


def owners(
    ctx: typer.Context,
    group: GroupArgument,
    topic: TopicsOption = None,
    store: StoreOption = None,
    verify: Annotated[
        bool,
        option(
            "--verify",
            help="Exit with 6 unless every partition of every subscribed topic has one owner: a registered member "
            "that may own it; and no member in Kafka reads it as well. Exit with 1 where that is unknown: what "
            "it depends on may not be read.",
        ),
    ] = False,
    columns: ColumnsOption = None,
    no_header: NoHeaderOption = False,
    output: OutputOption = "table",
) -> None:
    """Show the owner of each partition of a group.

    One row for every partition of every subscribed topic, and for every owned partition. zkgroup asks brokers only
    about a group without members in ZooKeeper, and for --verify; if they do not answer, --verify uses ZooKeeper alone
    and zkgroup warns. With --store both, zkgroup always asks them, and the column store shows each owner's store.

    \b
    zkgroup owners billing --topic orders
    zkgroup owners billing --verify
    """
    from zkgroup.groups.snapshot.snapshot_defects import notes, ownership_defects, unreadable_ownership
    from zkgroup.groups.snapshot.table_rows import only_topics, owner_rows  # imports kazoo, which --help must not

    snapshot = _read_snapshot(connection(ctx), group, store, verify=verify)
    if topic:
        check_topics(snapshot, topic)
        snapshot = only_topics(snapshot, topic)
    # Without --store the rows are those of the store that has members.
    shown = "zookeeper" if store is None and snapshot.members else store
    rows = [row for row in owner_rows(snapshot) if shown in (None, "both", row.store)]
    shown_columns = (*COLUMNS, "store") if store == "both" else COLUMNS
    layout = RowLayout.of(columns, no_header)
    print_rows(rows, shown_columns, output, spare=("member", *SPARE, "store"), layout=layout)
    defects = ownership_defects(snapshot)
    unknown = unreadable_ownership(snapshot) if verify else []
    if verify and defects:
        warn(ctx, [*snapshot.all_warnings, *map(Notice, unknown)])
        raise VerificationError(f"group {group} is not owned as it should be: {listed(defects, '; ')}")
    warn(ctx, notes(snapshot, "zookeeper"))
    if unknown:
        raise ZkgroupError(
            f"whether group {group} has unowned partitions is unknown: {listed(unknown, '; ')}",
            "connect with credentials that its access list admits",
        )


def _read_snapshot(settings: ConnectionSettings, group: str, store: Store | None, *, verify: bool) -> GroupSnapshot:
    """The group's owners, from ZooKeeper alone where that suffices; to ``verify``, also from Kafka."""
    from zkgroup.groups.snapshot.group_reader import read_group  # imports kazoo, as above

    disable_garbage_collection()
    with open_stores(settings, None) as (registry, _):
        if registry is not None and (store == "zookeeper" or (store is None and not verify)):
            try:
                snapshot = read_group(registry, group)
            except (NotFoundError, UsageError):  # Kafka takes names that no node can have
                if store is not None:
                    raise
            else:
                if snapshot.members or store is not None:
                    return snapshot
        kafka = brokers_of(settings, registry)
        return read_group(registry, group, kafka=kafka, logs=False, timeout=settings.timeout)
