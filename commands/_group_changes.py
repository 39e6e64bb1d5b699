"""Every change of a group: its options, the plan, ``--execute``, a backup, and a report.

A command shows its plan as rows on stdout, and lets its ``Change`` apply it. All other lines go to stderr.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Final, Literal, TypeAlias

import typer

from zkgroup.config import ConnectionSettings
from zkgroup.errors import (
    Notice,
    RefusedError,
    Remedy,
    UnreachableError,
    UsageError,
    ZkgroupError,
    add_notice,
    notice_of,
    notices_of,
)
from zkgroup.text import are, counted, listed

from ._completion import complete_group
from ._context import connection, done, warn, working
from ._error_output import say
from ._group_views import StoreChoice, brokers_of, open_stores
from ._output import SPARE, Column, Output, is_table, print_rows, time_column
from ._shared_options import option, with_options
from ._terminal_text import one_line

if TYPE_CHECKING:
    from zkgroup.clients.zookeeper.registry import Registry
    from zkgroup.groups.changes.applier import Applier
    from zkgroup.groups.changes.backup import Backup
    from zkgroup.groups.changes.group_plans import WholeGroup
    from zkgroup.groups.changes.plan import OffsetChange, Plan
    from zkgroup.groups.changes.preconditions import UnregisteredCommits

CHANGE: Final = "The change"
SCOPE: Final = "Which partitions"
_option = partial(option, panel=CHANGE)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeOptions:
    """The options of a command that changes something, as they are given. ``with_change`` adds them to a command."""

    backup: Annotated[
        Path | None,
        _option(
            "--backup",
            metavar="FILE",
            dir_okay=False,
            help="Where to write the backup; a new file in the state folder by default.",
        ),
    ] = None
    no_zookeeper_members: Annotated[
        bool,
        _option(
            "--no-zookeeper-members",
            help="Where only brokers are named: vouch that no member is registered in ZooKeeper. Brokers do not"
            " know such members.",
        ),
    ] = False
    execute: Annotated[
        bool, _option("--execute", help="Do it. Without this, the plan is shown and nothing is changed.")
    ] = False
    dry_run: Annotated[bool, _option("--dry-run", help="Only show the plan, as by default.")] = False
    confirm: Annotated[
        str | None,
        _option(
            "--confirm",
            metavar="GROUP",
            help="For a profile that is protected: the name of the group that is changed, instead of being asked for"
            " it.",
            complete=complete_group,
        ),
    ] = None


#: Gives a command the options of a change, but for those that are named, as its parameter ``options``.
with_change = partial(with_options, "options", ChangeOptions)


#: The warning where Kafka is changed.
KAFKA_WINDOW = Notice(
    "Kafka has no compare-and-set: offsets there are read again just before they are changed, but a commit in the "
    "milliseconds between would be lost"
)


@dataclass(frozen=True, slots=True)
class Change:
    """A change, and how far it is to go. ``name``: of the changed group, which a confirmation repeats."""

    ctx: typer.Context
    settings: ConnectionSettings
    options: ChangeOptions
    name: str

    def is_wanted(self, changes: object) -> bool:
        """Whether to change anything now that the plan is shown; ``changes``: whether there is anything to do.

        On a protected profile the group's name is asked for, on the terminal, unless ``--confirm`` gives it. Raises
        ``RefusedError`` where that is not the name.
        """
        if not changes:
            self.done("there is nothing to do")
            return False
        if not self.options.execute:
            self.done("nothing was changed: this is the plan, --execute does it")
            return False
        if self.settings.protected:
            labels = f" ({', '.join(self.settings.labels)})" if self.settings.labels else ""
            _confirm(f"{self.settings.cluster or ''}{labels}", self.name, self.options.confirm)
        return True

    def require_vouched(self, applier: Applier) -> None:
        """Raise ``RefusedError`` where ZooKeeper was not named, unless the cluster has none, or the operator has
        vouched that no member is registered there: brokers do not know members that register there and keep their
        offsets in Kafka."""
        if not self.options.no_zookeeper_members and applier.has_unnamed_zookeeper():
            profile = self.settings.cluster
            naming = f"name it in profile {profile} (zookeeper = …), or give" if profile else "give --zookeeper, or"
            raise RefusedError(
                "members may be registered in ZooKeeper, which was not named: brokers do not know them",
                f"{naming} --no-zookeeper-members if there are surely none",
            )

    def refuse(self, error: RefusedError) -> None:
        """Raise ``error``; with a plan only say that it would be raised."""
        if self.options.execute:
            raise error
        self.warn([notice_of("--execute would be refused", error)])

    @contextmanager
    def refusing(self) -> Iterator[None]:
        """Refuse the change where the block raises ``RefusedError``."""
        try:
            yield
        except RefusedError as refused:
            self.refuse(refused)

    def warn_of_commits(self, registry: Registry | None, group: str) -> float:
        """Say that a consumer commits to the group that is registered nowhere. Returns for how many seconds to wait for
        its next commit."""
        if registry is None:
            return 0.0
        from zkgroup.groups.changes.preconditions import read_unregistered_commits

        found = read_unregistered_commits(registry, group)
        return 0.0 if found is None else self.warn_of_unregistered_commits(group, found)

    def warn_of_unregistered_commits(self, group: str, found: UnregisteredCommits) -> float:
        """The same of commits that were found."""
        waiting = f": waiting {found.wait:.0f} s for the next commit" if self.options.execute else ""
        self.warn([Notice(f"group {group}: {found.text}{waiting}")])
        return found.wait

    def wait_for_commits(self, registry: Registry | None, groups: Iterable[str], seconds: float) -> None:
        """Before a change: refuse it where such a consumer commits meanwhile."""
        if registry is not None and seconds:
            from zkgroup.groups.changes.preconditions import find_committing_groups

            for error in find_committing_groups(registry, groups, seconds).values():
                raise error

    def warn(self, warnings: Iterable[Notice | ZkgroupError]) -> None:
        warn(self.ctx, warnings)

    def examine(self, applier: Applier, *plans: Plan) -> None:
        """Print the warnings of these plans, and check their preconditions."""
        for plan in plans:
            self.warn(plan.warnings)
            for refused in plan.refusals:
                self.refuse(refused)
            with self.refusing():
                applier.check(plan)
        if any(plan.changes_kafka for plan in plans):
            self.warn([KAFKA_WINDOW])
            with self.refusing():
                self.require_vouched(applier)

    def apply(self, applier: Applier, plan: Plan, done: str, *, may_be_active: bool = False) -> bool:
        """Examine a plan whose rows are shown, and carry it out. Returns whether it was carried out."""
        self.examine(applier, plan)
        return self.carry_out(applier, plan, done, may_be_active=may_be_active)

    def carry_out(self, applier: Applier, plan: Plan, done: str, *, may_be_active: bool = False) -> bool:
        """Back up, write and verify an examined plan, if that is wanted, and say ``done``. Returns whether it was
        wanted. Unless the group ``may_be_active``, the next commit of a consumer that is not registered is awaited."""
        wait = 0.0 if may_be_active else self.warn_of_commits(applier.registry, plan.group)
        if not self.is_wanted(not plan.is_empty):
            return False
        self.wait_for_commits(applier.registry, [plan.group], wait)
        self.write(applier, plan)
        self.done(done)
        return True

    def write(self, applier: Applier, plan: Plan) -> None:
        with self.backed_up(applier.backup(plan)):
            with working(self.ctx, f"changing and verifying group {plan.group}"):
                applier.write(plan)
                warnings = applier.verify(plan)
            self.warn(warnings)

    @contextmanager
    def backed_up(self, backup: Backup) -> Iterator[Path]:
        """Write a backup, say where it is, which ``--quiet`` does not hide, and let the change be done. Where an
        error leaves the state unknown, the backup is named again."""
        from zkgroup.groups.changes import backup as backups

        path = backups.write(backup, self.options.backup)
        say(f"backup: {path}")
        try:
            yield path
        except ZkgroupError as error:
            if error.exit_code == UnreachableError.exit_code:
                error.add_remedy(f"the state before is in {path}")
            raise
        except BaseException as stop:
            if notices_of(stop):
                add_notice(stop, Notice(f"the state before is in {path}"))
            raise

    def done(self, what: str) -> None:
        done(self.ctx, what)


def change_of(ctx: typer.Context, name: str | None, options: ChangeOptions) -> Change:
    """The change that the command line means; ``name``: of the group that is changed, if one is named. Opens nothing.

    Raises ``UsageError`` for options that contradict each other, and ``RefusedError`` where the backup's file exists.
    """
    backup = options.backup
    if options.execute and options.dry_run:
        raise UsageError("--execute and --dry-run contradict each other", "give one")
    if backup is not None and str(backup) == "-":
        raise UsageError("--backup takes a file: the backup must outlive this command", "name one")
    if backup is not None and (backup.exists() or backup.is_symlink()):
        raise RefusedError(f"--backup {backup} exists: it may be the only copy of something", "choose another file")
    settings = connection(ctx)
    return Change(ctx, settings, options, name or settings.cluster or "")


def _confirm(cluster: str, name: str, given: str | None) -> None:
    if given is None and sys.stdin is not None and sys.stdin.isatty():
        sys.stderr.write(f"cluster {one_line(cluster)} is protected: type {one_line(name)} to go on: ")
        sys.stderr.flush()
        given = sys.stdin.readline().strip()
    if given != name:
        raise RefusedError(
            f"cluster {cluster} is protected; nothing was changed", f"confirm the change with --confirm {quote(name)}"
        )


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
    from zkgroup.groups.changes.node_removals import plan_topic_removal, unsubscribe_guard
    from zkgroup.groups.partition_scope import parse_scope

    scope = parse_scope(topics)
    guard, done = None, "deleted"
    if command == "unsubscribe":
        guard, done = unsubscribe_guard(group, scope.topics), "removed"
    with open_applier(change.settings, [group], "zookeeper") as (applier, _):
        whole = find_group(applier, group, store, partly=True)
        assert applier.registry is not None, "ZooKeeper is meant"
        plan = plan_topic_removal(command, applier.registry, whole, scope, guard)
        print_rows(plan.rows, DELETE_COLUMNS, output, spare=SPARE)
        empty = " and the empty group" if plan.removal is not None and plan.removal.roots is None else ""
        change.apply(applier, plan, f"{counted(len(plan.rows), 'offset')} of group {group}{empty} {done} in ZooKeeper")


def add_acls(change: Change, registry: Registry | None, source: WholeGroup, target: WholeGroup, plan: Plan) -> Plan:
    """The plan of a copy with the access lists of the nodes that it creates, of which the command warns; refused where
    they are hidden."""
    from zkgroup.groups.changes.group_plans import copied_lists
    from zkgroup.groups.changes.group_tree import read_acls

    if registry is None or source.tree is None:
        return plan
    if plan.source is not None and read_acls(registry, source.tree.paths)[1]:
        return plan  # the deletion of the source is refused, as no backup can hold it
    with change.refusing():
        keys = [row.key for row in plan.moving("zookeeper")]
        lists, warnings = copied_lists(registry, source.tree, target.tree, plan.group, keys)
        change.warn(warnings)
        return replace(plan, acls=lists)
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


def reason_of(error: ZkgroupError) -> str:
    """What is wrong with a group that stands before it; all of the message where that names a cluster."""
    return error.reason if error.where is None else error.message


def describe_many(change: Change, failed: Mapping[str, ZkgroupError]) -> tuple[str, Remedy | None]:
    """The first errors of groups, and their remedy. Where they have several ones, each is printed with its groups."""
    message = listed([f"{group}: {reason_of(error)}" for group, error in failed.items()], "; ")
    groups: dict[Remedy | None, list[str]] = {}
    for group, error in failed.items():
        groups.setdefault(error.remedy, []).append(group)
    if len(groups) == 1:
        return message, next(iter(groups))
    change.warn(Notice(f"what to do about {listed(names)}", one) for one, names in groups.items() if one is not None)
    return message, None
