"""The tree of expected errors. Each class carries the exit code that a command ends with.

The message is one line that names the thing; ``remedy`` is what the reader can do about it. Remedies and notices are
data until they are printed: ``rendered`` makes one line of each.
"""

from __future__ import annotations

import copyreg
import shlex
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

from zkgroup.text import Command, command_line


def unwrap_system_error(error: BaseException) -> BaseException | None:
    """The error that a library's C code did not handle: Python wraps it in ``SystemError``, once for each call that it
    comes through. Another error is returned as it is."""
    found: BaseException | None = error
    while isinstance(found, SystemError):
        found = found.__cause__
    return found


@dataclass(frozen=True, init=False, slots=True)
class Remedy:
    """What to do, in words, and the commands of zkgroup that do it, in their order."""

    text: str
    commands: tuple[Command, ...]

    def __init__(self, text: str, *commands: Command) -> None:
        object.__setattr__(self, "text", text)
        object.__setattr__(self, "commands", commands)

    def __str__(self) -> str:
        return self.rendered()

    def rendered(self, line: Callable[[Command], str] = command_line) -> str:
        """The words, and behind them the commands as one line for a shell. ``line``: how a command is written."""
        return ": ".join(filter(None, (self.text, " && ".join(map(line, self.commands)))))

    def after(self, first: str) -> Remedy:
        return Remedy(first + self.text, *self.commands) if self.text else self

    def then(self, other: Remedy, between: str = "; then ") -> Remedy:
        """This remedy, and ``other`` after it; only one of them where the other is empty."""
        if not self.text or not other.text:
            return self if self.text else other
        return Remedy(f"{self.text}{between}{other.text}", *self.commands, *other.commands)


def as_remedy(remedy: Remedy | str | None) -> Remedy | None:
    """A remedy, also out of words alone; None where there are no words."""
    found = Remedy(remedy) if isinstance(remedy, str) else remedy
    return found if found is not None and found.text else None


@dataclass(frozen=True, slots=True)
class Notice:
    """A warning or a note: what is so, and what the reader can do about it."""

    message: str
    remedy: Remedy | None = None

    def __str__(self) -> str:
        return self.rendered()

    def rendered(self, line: Callable[[Command], str] = command_line) -> str:
        """One line. ``line``: how a command is written."""
        return self.message if self.remedy is None else f"{self.message}: {self.remedy.rendered(line)}"


def add_notice(stop: BaseException, notice: Notice) -> None:
    """Let an exception carry a notice, as ``BaseException.add_note`` does with text."""
    vars(stop).setdefault("__notes__", []).append(notice)


def notices_of(stop: BaseException) -> list[Any]:
    """The notices, and Python's own notes, that an exception carries."""
    return list(getattr(stop, "__notes__", ()))


class ZkgroupError(Exception):
    """An expected failure: shown as one line on stderr, never as a traceback.

    ``reason``: what is wrong, without the name of the partition or file, for a row that has it; the message by default.
    Errors with one cause have one reason. ``where``: the cluster that the message names, of a command about two.
    """

    exit_code = 1

    def __init__(self, message: str, remedy: Remedy | str | None = None, *, reason: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.remedy = as_remedy(remedy)
        self.where: str | None = None
        self._reason = reason

    def __str__(self) -> str:
        return self.rendered()

    def __reduce__(self) -> tuple[Any, ...]:
        # Executors send errors to the driver. ``__init__`` has other parameters in some classes.
        return copyreg.__newobj__, (type(self), *self.args), vars(self)  # type: ignore[attr-defined]

    def rendered(self, line: Callable[[Command], str] = command_line) -> str:
        """One line. ``line``: how a command is written."""
        return Notice(self.message, self.remedy).rendered(line)

    @property
    def reason(self) -> str:
        return self._reason or self.message

    def add_context(self, context: str) -> None:
        """Say before the message what failed, or where."""
        self.message = f"{context}: {self.message}"

    def add_outcome(self, outcome: str) -> None:
        """Say what became of the change that failed, after the message."""
        self.message += f"; {outcome}"

    def add_remedy(self, remedy: Remedy | str | None) -> None:
        if (more := as_remedy(remedy)) is not None:
            self.remedy = more if self.remedy is None else self.remedy.then(more, "; ")


def notice_of(prefix: str, error: Exception) -> Notice:
    """The error as a notice, behind a prefix that says what failed."""
    if isinstance(error, ZkgroupError):
        return Notice(f"{prefix}: {error.message}", error.remedy)
    return Notice(f"{prefix}: {error}")


class UsageError(ZkgroupError):
    """Wrong options, wrong configuration, or an input file that cannot be read."""

    exit_code = 2


class NoListenerError(UsageError):
    """No registered broker has a PLAINTEXT listener, and no setting names another."""


def is_wrong_setting(error: ZkgroupError) -> bool:
    """Whether a setting about brokers must be corrected: then no reading command goes on without their half."""
    return isinstance(error, UsageError) and not isinstance(error, NoListenerError)


class MissingExtraError(UsageError):
    """A package that comes with one of zkgroup's extras is not installed."""

    def __init__(self, what: str, packages: str, extra: str) -> None:
        # pip takes the zkgroup that is there, from wherever it came, and adds what its extra names.
        remedy = f"{shlex.quote(sys.executable or 'python3')} -m pip install 'zkgroup[{extra}]'"
        super().__init__(f"{what} needs {packages}, which an extra installs", remedy)


class UnreachableError(ZkgroupError):
    """ZooKeeper or the brokers do not answer in the time given."""

    exit_code = 3


class NoAnswerError(UnreachableError):
    """Brokers let a request wait: the next one may be answered, by another of them."""


class NotFoundError(ZkgroupError):
    """No such group, topic or partition."""

    exit_code = 4


class RefusedError(ZkgroupError):
    """Not done, because it would harm the group or lose data."""

    exit_code = 5


class AlreadyRunningError(RefusedError):
    """Another process does this at the moment."""

    exit_code = 7


class VerificationError(ZkgroupError):
    """Checked and found wrong."""

    exit_code = 6


class MalformedZnodeError(ZkgroupError):
    """A znode has a content that no reader understands."""

    def __init__(self, path: str, why: str, remedy: Remedy | str | None = None) -> None:
        super().__init__(f"znode {path}: {why}", remedy)
        self.path = path
        self.why = why


class SessionLostError(ZkgroupError):
    """The ZooKeeper session is gone, and with it every claim made under it."""


class RebalanceFailedError(ZkgroupError):
    """The member could not get its share and has left the group."""


class OffsetOutOfRangeError(ZkgroupError):
    """A stored offset lies outside the log and no reset policy was chosen."""


class OffsetsDeletedError(OffsetOutOfRangeError):
    """Retention has deleted offsets that were to be read."""


class AssignmentRefusedError(ZkgroupError):
    """The assignment strategy's precondition does not hold: no Scala member of that release would assign."""


class FilterSyntaxError(UsageError):
    """A topic filter's expression is no Java regular expression: no Scala member can read it either."""


class FilterLimitError(UsageError):
    """Matching a topic filter's expression takes more work than is allowed."""


Advice = TypeVar("Advice", str, Remedy)


def near(name: str, known: Iterable[str]) -> list[str]:
    """Up to three of ``known`` that a misspelt ``name`` may stand for: those that it begins, then those much alike."""
    from difflib import get_close_matches  # only where a name is misspelt

    names = list(known)
    begun = sorted(one for one in names if len(name) > 1 and one.startswith(name))
    alike = get_close_matches(name, names, 3, 0.8 if len(name) > 4 else 0.6)
    return list(dict.fromkeys([*begun, *alike]))[:3]


def did_you_mean(name: str, known: Iterable[str], otherwise: Advice) -> Advice | str:
    """What an error of a misspelt ``name`` advises; ``otherwise`` where none of ``known`` is near, or it is one of them
    that lies elsewhere."""
    names = set(known)
    found = near(name, names) if name not in names else []
    return f"did you mean {' or '.join(found)}?" if found else otherwise
