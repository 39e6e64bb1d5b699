"""``zkgroup owners``: who owns each partition of a group."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from zkgroup.errors import NotFoundError, VerificationError

from ._context import connection, open_registry, warn
from ._options import GroupArgument, OutputOption, TopicsOption
from ._render import print_rows, time_column

if TYPE_CHECKING:
    from zkgroup.groups.snapshot import GroupSnapshot

COLUMNS = ("topic", "partition", "owner", "member", "host", "registered", time_column("since"))
SHOWN_DEFECTS = 5


def owners(
    ctx: typer.Context,
    group: GroupArgument,
    topic: TopicsOption = None,
    verify: Annotated[
        bool,
        typer.Option(
            "--verify",
            help="Exit with 6 unless every partition of every subscribed topic has one owner: a registered member "
            "that may own it.",
        ),
    ] = False,
    output: OutputOption = "table",
) -> None:
    """Show who owns each partition of a group.

    One row for every partition of every topic that a member subscribes to, and for every partition that somebody owns.
    """
    from zkgroup.groups.snapshot import ownership_defects, read_group  # brings kazoo, which --help must not
    from zkgroup.protocol import znodes

    znodes.group(group)  # a name that no group can have is refused before anything is opened
    with open_registry(connection(ctx)) as registry:
        snapshot = read_group(registry, group)
    concerned = tuple(
        p for p in snapshot.partitions if p.owner or p.error or (p.exists and p.topic in snapshot.subscribed)
    )
    snapshot = replace(snapshot, partitions=concerned)
    if topic:
        _check_topics(snapshot, topic)
        snapshot = replace(snapshot, partitions=tuple(p for p in concerned if p.topic in topic))
    hosts = {member.member: member.host for member in snapshot.members}
    rows = [
        {
            "topic": partition.topic,
            "partition": partition.partition,
            "owner": partition.owner,
            "member": partition.member,
            "host": hosts.get(partition.member or ""),
            "registered": partition.member is not None,
            "since": partition.since,
        }
        for partition in snapshot.partitions
    ]
    print_rows(rows, COLUMNS, output)
    defects = ownership_defects(snapshot)
    if verify and defects:
        more = len(defects) - SHOWN_DEFECTS
        listed = "; ".join(defects[:SHOWN_DEFECTS]) + (f"; and {more} more" if more > 0 else "")
        raise VerificationError(f"group {group} is not owned as it should be: {listed}")
    warn(ctx, [*snapshot.problems, *(f"member {m.member}: {m.error}" for m in snapshot.members if m.error)])


def _check_topics(snapshot: GroupSnapshot, topics: list[str]) -> None:
    known = snapshot.subscribed | {partition.topic for partition in snapshot.partitions}
    for name in topics:
        if name not in known:
            raise NotFoundError(
                f"group {snapshot.group} neither subscribes to topic {name!r} nor owns any of it",
                f"its topics: {', '.join(sorted(known)[:10]) or 'none'}",
            )
