"""What all commands share that change a group: the plan first, then ``--execute``, a backup, and what was done.

A command shows its plan as rows on stdout, asks ``is_wanted`` whether to go on, tells ``backed_up`` and ``done``. What
is said besides the rows goes to stderr.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from zkgroup.config import ConnectionSettings
from zkgroup.errors import RefusedError, UsageError

from ._context import warn
from ._errors import say
from ._options import Given
from ._text import one_line

ExecuteOption: TypeAlias = Annotated[
    bool, typer.Option("--execute", help="Do it. Without this, the plan is shown and nothing is changed.")
]
DryRunOption: TypeAlias = Annotated[bool, typer.Option("--dry-run", help="Only show the plan, as by default.")]
BackupOption: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--backup",
        metavar="FILE",
        dir_okay=False,
        help="Where to write the backup; a new file in the state folder by default.",
        show_default=False,
    ),
]
ConfirmOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--confirm",
        metavar="CLUSTER",
        help="For a profile that is protected: its name, instead of being asked for it.",
        show_default=False,
    ),
]
NoMembersOption: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--no-zookeeper-members",
        help="Where only brokers are named: vouch that no member is registered in ZooKeeper, which they cannot tell.",
    ),
]
#: What remains open where Kafka is changed; ``{done}`` and ``{lost}`` say in which way.
KAFKA_WINDOW = (
    "Kafka has no compare-and-set: offsets there are read again just before they are {done}, but a commit in the "
    "milliseconds between would be {lost}"
)


def check_choice(execute: bool, dry_run: bool, backup: Path | None) -> None:
    """Raise ``UsageError`` for options that contradict each other. To be called before anything is opened."""
    if execute and dry_run:
        raise UsageError("--execute and --dry-run contradict each other", "give one")
    if backup is not None and (backup.exists() or backup.is_symlink()):
        raise RefusedError(f"--backup {backup} exists: it may be the only copy of something", "choose another file")


def check_vouched(ctx: typer.Context, *, registry: object, vouched: bool, execute: bool) -> None:
    """Where there is no ``registry`` to ask, nobody sees the members that keep their offsets in Kafka and register in
    ZooKeeper: raise ``RefusedError``, or say so beside a plan, unless the operator has vouched that there are none."""
    if registry is not None or vouched:
        return
    why = "members may be registered in ZooKeeper, which was not named: brokers do not know them"
    if execute:
        raise RefusedError(why, "give --zookeeper, or --no-zookeeper-members if there are surely none")
    warn(ctx, [f"--execute would be refused without --zookeeper or --no-zookeeper-members: {why}"])


def is_wanted(
    ctx: typer.Context, settings: ConnectionSettings, *, execute: bool, confirm: str | None, changes: int
) -> bool:
    """Whether to change anything now that the plan is shown; ``changes`` is how much there is to do.

    A protected profile is asked for by its name, on the terminal, unless ``confirm`` gives it. Raises ``RefusedError``
    where that is not the name.
    """
    quiet = ctx.ensure_object(Given).quiet
    if not changes:
        if not quiet:
            say("there is nothing to do")
        return False
    if not execute:
        if not quiet:
            say("nothing was changed: this is the plan, --execute does it")
        return False
    if settings.protected:
        _confirm(settings.cluster or "", confirm)
    return True


def _confirm(cluster: str, given: str | None) -> None:
    if given is None and sys.stdin is not None and sys.stdin.isatty():
        sys.stderr.write(f"cluster {one_line(cluster)} is protected: type its name to go on: ")
        sys.stderr.flush()
        given = sys.stdin.readline().strip()
    if given != cluster:
        raise RefusedError(
            f"cluster {cluster} is protected; nothing was changed", f"confirm the change with --confirm {cluster}"
        )


def backed_up(path: Path) -> None:
    """Say where the backup is; ``--quiet`` does not hide that."""
    say(f"backup: {path}")


def done(ctx: typer.Context, what: str) -> None:
    """Say what was done, unless ``--quiet``."""
    if not ctx.ensure_object(Given).quiet:
        say(what)
