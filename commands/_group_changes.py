"""The pieces that commands share that change whole groups."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

import typer

from zkgroup.config import ConnectionSettings
from zkgroup.errors import Notice, RefusedError, Remedy, UnreachableError, ZkgroupError
from zkgroup.text import are, counted, listed

from ._completion_values import complete_group
from ._execution import Change
from ._group_views import StoreChoice, brokers_of, open_stores
from ._output import SPARE, Column, Output, is_table, print_rows, time_column

if TYPE_CHECKING:
    from zkgroup.clients.zookeeper.registry import Registry
    from zkgroup.groups.changes.applier import Applier
    from zkgroup.groups.changes.group_plans import WholeGroup
    from zkgroup.groups.changes.plan import OffsetChange, Plan

OtherGroupArgument: TypeAlias = Annotated[
    str,
    typer.Argument(metavar="TO", help="The other group.", show_default=False, autocompletion=complete_group),
]
DELETE_COLUMNS = (
    "topic", "partition", "store", Column("committed", attribute="current"), time_column("committed_at"), "note",
)  # fmt: skip


@contextmanager
def open_applier(
    settings: ConnectionSettings, groups: Sequence[str], store: StoreChoice
) -> Iterator[tuple[Applier, StoreChoice]]:
    """The applier of plans, and the store that is meant. Names that no group can have in ZooKeeper are refused before
    anything is opened."""
    from zkgroup.groups.changes.applier import Applier

    with open_stores(settings, store, groups) as (registry, store):
        yield Applier(registry, brokers_of(settings, registry), settings.timeout), store


def show_offsets(
    rows: Sequence[OffsetChange], output: Output, *, with_store: bool | None = None, with_time: bool = False
) -> None:
    """The offsets that change; with their store, by default where there is more than one. ``with_time``: with the time
    of the message at each target."""
    several = len({row.store for row in rows}) > 1 if with_store is None else with_store
    columns: list[Column | str] = ["topic", "partition", *(("store",) if several else ()), "current", "target"]
    columns += ["change", "note"]
    if with_time:  # before the note, which may be long; scripts read CSV by the place of its columns
        columns.insert(-1 if is_table(output) else len(columns), time_column("target_time"))
    print_rows(rows, columns, output, spare=SPARE)


def show_removal(plan: Plan, output: Output) -> None:
    """The offsets that are to go."""
    print_rows(plan.rows, DELETE_COLUMNS, output, spare=SPARE)


def remove_topics(
    change: Change,
    command: Literal["delete-group", "unsubscribe"],
    group: str,
    topics: Sequence[str],
    output: Output,
    store: StoreChoice = None,
) -> None:
    """Remove the group's nodes of these topics in ZooKeeper; ``unsubscribe`` does so while members read other topics.
    ``store``: where the group has to be."""
    from zkgroup.groups.changes.group_plans import find_group
    from zkgroup.groups.changes.topic_removal import plan_topic_removal, unsubscribe_guard
    from zkgroup.groups.partition_scope import parse_scope

    scope = parse_scope(topics)
    guard, done = None, "deleted"
    if command == "unsubscribe":
        guard, done = unsubscribe_guard(group, scope.topics), "removed"
    with open_applier(change.settings, [group], "zookeeper") as (applier, _):
        whole = find_group(applier, group, store, partly=True)
        assert applier.registry is not None, "ZooKeeper is meant"
        plan = plan_topic_removal(command, applier.registry, whole, scope, guard)
        show_removal(plan, output)
        empty = " and the empty group" if plan.removal is not None and plan.removal.roots is None else ""
        change.apply(applier, plan, f"{counted(len(plan.rows), 'offset')} of group {group}{empty} {done} in ZooKeeper")


def add_acls(change: Change, registry: Registry | None, source: WholeGroup, target: WholeGroup, plan: Plan) -> Plan:
    """The plan of a copy with the access lists of the nodes that it creates, of which the command warns; refused where
    they are hidden, or would be in the way."""
    from zkgroup.groups.changes.access_lists import copied_lists, read_acls

    if registry is None or source.tree is None:
        return plan
    is_rename = plan.source is not None
    if is_rename and read_acls(registry, source.tree.paths)[1]:
        return plan  # the deletion of the source is refused, as no backup can hold it
    with change.refusing():
        keys = [row.key for row in plan.moving("zookeeper")]
        copied = copied_lists(registry, source.tree, target.tree, plan.group, keys, renaming=is_rename)
        change.warn(copied.warnings)
        return replace(plan, acls=copied.lists)
    return plan


def error_of_many(
    change: Change,
    failed: Mapping[str, ZkgroupError],
    count: int,
    what: str,
    kind: type[ZkgroupError] = RefusedError,
) -> ZkgroupError:
    """The error of some of ``count`` groups that are not ``what``: of that ``kind``, or that servers do not answer.
    Warns as ``describe_many`` does."""
    lost = any(isinstance(error, UnreachableError) for error in failed.values())
    message, remedy = describe_many(change, failed)
    return (UnreachableError if lost else kind)(
        f"{len(failed)} of {counted(count, 'group')} {are(count)} not {'surely ' if lost else ''}{what}: {message}",
        remedy,
    )


def describe_many(change: Change, failed: Mapping[str, ZkgroupError]) -> tuple[str, Remedy | None]:
    """The first errors of groups, and their remedy. Where they have several ones, each is printed with its groups."""
    reasons = {group: error.message.removeprefix(f"group {group} ") for group, error in failed.items()}
    message = listed([f"{group}: {reason}" for group, reason in reasons.items()], "; ")
    groups: dict[Remedy | None, list[str]] = {}
    for group, error in failed.items():
        groups.setdefault(error.remedy, []).append(group)
    if len(groups) == 1:
        return message, next(iter(groups))
    change.warn(Notice(f"what to do about {listed(names)}", one) for one, names in groups.items() if one is not None)
    return message, None
