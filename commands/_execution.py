"""What all commands share that change a group: the plan first, then ``--execute``, a backup, and what was done.

A command shows its plan as rows on stdout and asks its ``Change`` whether to go on. What is said besides the rows goes
to stderr.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Final, TypeAlias

import typer

from zkgroup.config import ConnectionSettings
from zkgroup.errors import (
    Notice,
    RefusedError,
    UnreachableError,
    UsageError,
    ZkgroupError,
    add_notice,
    notice_of,
    notices_of,
)

from ._completion_values import complete_group
from ._context import connection, done, warn
from ._error_output import say
from ._rendering import Message
from ._shared_options import option
from ._terminal_text import one_line

if TYPE_CHECKING:
    from zkgroup.clients.zookeeper.registry import Registry
    from zkgroup.groups.changes.applier import Applier
    from zkgroup.groups.changes.backup_json import Backup
    from zkgroup.groups.changes.missing_permissions import Need
    from zkgroup.groups.changes.plan import Plan
    from zkgroup.groups.changes.unregistered_committers import UnregisteredCommits

CHANGE: Final = "The change"
SCOPE: Final = "Which partitions"

ExecuteOption: TypeAlias = Annotated[
    bool, option("--execute", help="Do it. Without this, the plan is shown and nothing is changed.", panel=CHANGE)
]
DryRunOption: TypeAlias = Annotated[bool, option("--dry-run", help="Only show the plan, as by default.", panel=CHANGE)]
BackupOption: TypeAlias = Annotated[
    Path | None,
    option(
        "--backup",
        metavar="FILE",
        dir_okay=False,
        help="Where to write the backup; a new file in the state folder by default.",
        panel=CHANGE,
    ),
]
_CONFIRM = "For a profile that is protected: the name of the group that is changed, instead of being asked for it"


_confirm_option = partial(option, "--confirm", metavar="GROUP", panel=CHANGE, complete=complete_group)
ConfirmOption: TypeAlias = Annotated[str | None, _confirm_option(help=f"{_CONFIRM}.")]
ConfirmManyOption: TypeAlias = Annotated[str | None, _confirm_option(help=f"{_CONFIRM}; with --pattern, the pattern.")]
NoMembersOption: TypeAlias = Annotated[
    bool,
    option(
        "--no-zookeeper-members",
        help="Where only brokers are named: vouch that no member is registered in ZooKeeper, which they cannot tell.",
        panel=CHANGE,
    ),
]
#: What remains open where Kafka is changed; ``{done}`` and ``{lost}`` say in which way.
KAFKA_WINDOW = (
    "Kafka has no compare-and-set: offsets there are read again just before they are {done}, but a commit in the "
    "milliseconds between would be {lost}"
)


@dataclass(frozen=True, slots=True)
class Change:
    """How far a command that changes something is to go, as its command line says."""

    ctx: typer.Context
    settings: ConnectionSettings
    execute: bool
    confirm: str | None = None
    backup: Path | None = None
    vouched: bool = False
    name: str = ""  # of the changed thing, which a confirmation repeats

    def is_wanted(self, changes: object) -> bool:
        """Whether to change anything now that the plan is shown; ``changes``: whether there is anything to do.

        On a protected profile the group's name is asked for, on the terminal, unless ``--confirm`` gives it. Raises
        ``RefusedError`` where that is not the name.
        """
        if not changes:
            self.done("there is nothing to do")
            return False
        if not self.execute:
            self.done("nothing was changed: this is the plan, --execute does it")
            return False
        if self.settings.protected:
            labels = f" ({', '.join(self.settings.labels)})" if self.settings.labels else ""
            _confirm(f"{self.settings.cluster or ''}{labels}", self.name, self.confirm)
        return True

    def check_vouched(self, registry: object) -> None:
        """Where there is no ``registry`` to ask, nobody sees the members that keep their offsets in Kafka and register
        in ZooKeeper: that is refused, unless the operator has vouched that there are none."""
        if registry is None and not self.vouched:
            why = "members may be registered in ZooKeeper, which was not named: brokers do not know them"
            self.refuse(RefusedError(why, "give --zookeeper, or --no-zookeeper-members if there are surely none"))

    def refuse(self, error: RefusedError) -> None:
        """Raise ``error``; with a plan only say that it would be raised."""
        if self.execute:
            raise error
        self.warn([notice_of("--execute would be refused", error)])

    @contextmanager
    def refusing(self) -> Iterator[None]:
        """What is refused in here is refused by this command."""
        try:
            yield
        except RefusedError as refused:
            self.refuse(refused)

    def forewarn(self, registry: Registry | None, group: str, needs: Sequence[Need]) -> None:
        """With a plan say which permissions are missing, in ZooKeeper; what ``--execute`` lacks ZooKeeper
        itself refuses."""
        if registry is not None and needs and not self.execute:
            from zkgroup.groups.changes.missing_permissions import refusal

            if missing := refusal(registry, group, needs):
                self.refuse(missing)

    def forewarn_commits(self, registry: Registry | None, group: str) -> float:
        """Say that a consumer commits to the group that is registered nowhere, and for how many seconds to wait for its
        next commit."""
        if registry is None:
            return 0.0
        from zkgroup.groups.changes.unregistered_committers import read_unregistered_commits

        found = read_unregistered_commits(registry, group)
        return 0.0 if found is None else self.tell_commits(group, found)

    def tell_commits(self, group: str, found: UnregisteredCommits) -> float:
        """The same of commits that were found."""
        waiting = f": waiting {found.wait:.0f} s for the next commit" if self.execute else ""
        self.warn([f"group {group}: {found.text}{waiting}"])
        return found.wait

    def wait_for_commits(self, registry: Registry | None, groups: Iterable[str], seconds: float) -> None:
        """Before a change: refuse it where such a consumer commits meanwhile."""
        if registry is not None and seconds:
            from zkgroup.groups.changes.unregistered_committers import wait_for_commits

            wait_for_commits(registry, groups, seconds)

    def warn(self, warnings: Iterable[Message]) -> None:
        """Say what should be known besides the rows."""
        warn(self.ctx, warnings)

    def examine(self, applier: Applier, *plans: Plan) -> None:
        """Warn of what should be known of these plans besides their rows, and refuse what may not be done now."""
        for plan in plans:
            self.warn(plan.warnings)
            if plan.changes_kafka:
                done, lost = ("deleted", "lost") if plan.is_removal else ("written", "overwritten")
                self.warn([KAFKA_WINDOW.format(done=done, lost=lost)])
            for refusal in plan.refusals:
                self.refuse(refusal)
            for check in applier.preconditions():
                with self.refusing():
                    check(plan)
            self.forewarn(applier.registry, plan.group, applier.needs(plan))
        if any(plan.changes_kafka for plan in plans):
            self.check_vouched(applier.registry)

    def carry_out(self, applier: Applier, plan: Plan, *, may_be_active: bool = False) -> bool:
        """Apply a plan, if that is wanted; whether it was. A backup is written first, and, unless the group
        ``may_be_active``, the next commit of a consumer that is not registered is waited for."""
        wait = 0.0 if may_be_active else self.forewarn_commits(applier.registry, plan.group)
        if not self.is_wanted(not plan.is_empty):
            return False
        self.wait_for_commits(applier.registry, [plan.group], wait)
        with self.backed_up(applier.backup(plan)):
            applier.write(plan)
            self.warn(applier.verify(plan))
        return True

    @contextmanager
    def backed_up(self, backup: Backup) -> Iterator[Path]:
        """Write a backup, say where it is, which ``--quiet`` does not hide, and let the change be done. Where that ends
        so that the state is unknown, the backup is named again."""
        from zkgroup.groups.changes import backup as backups

        path = backups.write(backup, self.backup)
        say(f"backup: {path}")
        try:
            yield path
        except ZkgroupError as error:
            if error.exit_code == UnreachableError.exit_code:
                error.add_remedy(f"what was there before is in {path}")
            raise
        except BaseException as stop:
            if notices_of(stop):
                add_notice(stop, Notice(f"what was there before is in {path}"))
            raise

    def done(self, what: str) -> None:
        """Say what was done, unless ``--quiet``."""
        done(self.ctx, what)


def change_of(
    ctx: typer.Context,
    name: str | None,
    *,
    execute: bool,
    dry_run: bool,
    confirm: str | None,
    backup: Path | None = None,
    vouched: bool = False,
) -> Change:
    """What the command line says; ``name``: of the group that is changed, if one is named. Opens nothing.

    Raises ``UsageError`` for options that contradict each other, and ``RefusedError`` where the backup's file exists.
    """
    if execute and dry_run:
        raise UsageError("--execute and --dry-run contradict each other", "give one")
    if backup is not None and str(backup) == "-":
        raise UsageError("--backup takes a file: what was there before must outlive this command", "name one")
    if backup is not None and (backup.exists() or backup.is_symlink()):
        raise RefusedError(f"--backup {backup} exists: it may be the only copy of something", "choose another file")
    settings = connection(ctx)
    return Change(ctx, settings, execute, confirm, backup, vouched, name or settings.cluster or "")


def _confirm(cluster: str, name: str, given: str | None) -> None:
    if given is None and sys.stdin is not None and sys.stdin.isatty():
        sys.stderr.write(f"cluster {one_line(cluster)} is protected: type {one_line(name)} to go on: ")
        sys.stderr.flush()
        given = sys.stdin.readline().strip()
    if given != name:
        raise RefusedError(
            f"cluster {cluster} is protected; nothing was changed", f"confirm the change with --confirm {quote(name)}"
        )
