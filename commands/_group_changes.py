"""What the commands share that change whole groups."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from zkgroup.config import ConnectionSettings

from ._completion_values import complete_group, complete_partitions
from ._execution import Change
from ._group_views import StoreChoice, brokers_of, open_stores
from ._output import SPARE, Output, print_rows, time_column

if TYPE_CHECKING:
    from zkgroup.groups.changes.group_manager import Found, Manager
    from zkgroup.groups.changes.group_plans import CopyRow, DeleteRow
    from zkgroup.groups.changes.missing_permissions import Need
    from zkgroup.protocol.operations import Acl

StoreOption: TypeAlias = Annotated[
    StoreChoice,
    typer.Option("--store", help="Which of the group's stores; by default wherever it is.", show_default=False),
]
OtherGroupArgument: TypeAlias = Annotated[
    str,
    typer.Argument(metavar="TO", help="The other group.", show_default=False, autocompletion=complete_group),
]
SomeTopicsOption: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--topic",
        metavar="TOPIC[:P,P-P]",
        help="Only this topic, or these partitions of it; repeatable.",
        show_default=False,
        autocompletion=complete_partitions,
    ),
]

COPY_COLUMNS = ("topic", "partition", "current", "target", "change", "note")
COPY_BOTH_COLUMNS = ("topic", "partition", "store", "current", "target", "change", "note")
DELETE_COLUMNS = ("topic", "partition", "store", "committed", time_column("committed_at"), "note")


@contextmanager
def open_manager(
    settings: ConnectionSettings, groups: Sequence[str], store: StoreChoice
) -> Iterator[tuple[Manager, StoreChoice]]:
    """A manager, and the store that is meant. Names that no group can have in ZooKeeper are refused before anything is
    opened."""
    from zkgroup.groups.changes.group_manager import Manager

    with open_stores(settings, store, groups) as (registry, store):
        yield Manager(registry, brokers_of(settings, registry), settings.timeout), store


def show_copy(rows: Sequence[CopyRow], output: Output) -> None:
    """The rows of a copy; with the store, where there is more than one."""
    several = len({row.store for row in rows}) > 1
    print_rows(rows, COPY_BOTH_COLUMNS if several else COPY_COLUMNS, output)


def show_removal(rows: Sequence[DeleteRow], output: Output) -> None:
    """The offsets that are to go."""
    print_rows(rows, DELETE_COLUMNS, output, spare=SPARE)


def check_at_rest(change: Change, manager: Manager, groups: Iterable[Found]) -> None:
    """Refuse to change groups that somebody works for."""
    for found in groups:
        with change.refusing():
            manager.refuse_if_active(found)


def check_deletable(change: Change, manager: Manager, found: Found) -> None:
    """Refuse to delete what cannot be deleted where it is."""
    with change.refusing():
        manager.refuse_if_undeletable(found)


def check_shown(change: Change, manager: Manager, found: Found) -> None:
    """Beside a plan say that a backup cannot be written for want of an access list; else writing it is refused."""
    if not change.execute:
        with change.refusing():
            manager.refuse_if_hidden(found)


def check_lists(
    change: Change,
    manager: Manager,
    source: Found,
    target: Found,
    rows: Iterable[CopyRow],
    *,
    renaming: bool = False,
) -> Mapping[str, tuple[Acl, ...]]:
    """The access lists of the nodes that a copy makes, of which the plan tells; refuse where they are not known, or
    would be in the way. ``renaming``: where those of the source, whose backup needs them all, are not."""
    with change.refusing():
        if renaming:
            manager.refuse_if_hidden(source)
        copied = manager.lists(source, target, rows, renaming=renaming)
        change.warn(copied.told)
        return copied.lists
    return {}


def needs_of_copy(to: str, rows: Iterable[CopyRow]) -> list[Need]:
    """The permissions in ZooKeeper that it takes to write these rows."""
    from zkgroup.groups.changes.missing_permissions import needs_of_writes

    moving = [row.key for row in rows if row.store == "zookeeper" and row.moves]
    return needs_of_writes(to, moving) if moving else []
