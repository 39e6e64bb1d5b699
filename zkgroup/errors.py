"""The tree of expected errors. Each class carries the exit code that a command ends with.

Exit codes: 1 failed, 2 wrong usage or unreadable input, 3 servers out of reach, 4 no such group, topic or
partition, 5 refused, 6 checked and found wrong. The message is one line that names the thing; ``remedy`` is what
the reader can do about it.
"""

from __future__ import annotations

import shlex
import sys
from collections import Counter
from collections.abc import Iterable
from typing import Final


def behind(error: BaseException) -> BaseException | None:
    """The error, or what was raised while a library's C code ran, which did not look: Python wraps that in
    ``SystemError``, once for each call that it comes through."""
    found: BaseException | None = error
    while isinstance(found, SystemError):
        found = found.__cause__
    return found


class ZkgroupError(Exception):
    """An expected failure: shown as one line on stderr, never as a traceback."""

    exit_code = 1

    def __init__(self, message: str, remedy: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.message}: {self.remedy}" if self.remedy else self.message


class UsageError(ZkgroupError):
    """Wrong options, wrong configuration, or an input file that cannot be read."""

    exit_code = 2


class MissingExtraError(UsageError):
    """A package that comes with one of zkgroup's extras is not installed."""

    def __init__(self, what: str, packages: str, extra: str) -> None:
        # pip takes the zkgroup that is there, from wherever it came, and adds what its extra names.
        remedy = f"{shlex.quote(sys.executable or 'python3')} -m pip install 'zkgroup[{extra}]'"
        super().__init__(f"{what} needs {packages}, which a part of its own installs", remedy)


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


class VerificationError(ZkgroupError):
    """Checked and found wrong."""

    exit_code = 6


class MalformedZnodeError(ZkgroupError):
    """A znode holds what no reader understands."""

    def __init__(self, path: str, why: str, remedy: str | None = None) -> None:
        super().__init__(f"znode {path}: {why}", remedy)
        self.path = path
        self.why = why


class SessionLostError(ZkgroupError):
    """The ZooKeeper session is gone, and with it every claim made under it."""


class RebalanceFailedError(ZkgroupError):
    """The member could not get its share and has left the group."""


class OffsetOutOfRangeError(ZkgroupError):
    """A stored offset lies outside the log and no reset policy was chosen."""


class AssignmentRefusedError(ZkgroupError):
    """The assignment strategy's precondition does not hold: no reference member of that release would assign."""


class FilterSyntaxError(UsageError):
    """A topic filter's expression is no Java regular expression: no member of the reference can read it either."""


class FilterLimitError(UsageError):
    """Matching a topic filter's expression takes more work than is allowed."""


#: Names of so many letters may be misspelt twice.
LONG_NAME: Final = 6


def near(name: str, known: Iterable[str], most: int = 3) -> list[str]:
    """Which of ``known`` a misspelt ``name`` may stand for, the nearest first: those that it begins, and those one
    letter away from it, or two of a longer name (left out, put in, exchanged, or two in each other's place)."""
    limit = 2 if sum(map(str.isalnum, name)) >= LONG_NAME else 1
    letters = Counter(name)
    found: set[tuple[int, str]] = set()
    for one in known:
        if len(name) > 1 and one.startswith(name):
            found.add((1, one))
        # Among tens of thousands of names few have the letters.
        elif abs(len(one) - len(name)) <= limit and (letters - Counter(one)).total() <= limit:
            distance = _distance(name, one)
            if distance <= limit:
                found.add((distance, one))
    return [one for _, one in sorted(found)[:most]]


def did_you_mean(name: str, known: Iterable[str], otherwise: str) -> str:
    """What an error of a misspelt ``name`` advises; ``otherwise`` where none of ``known`` is near."""
    found = near(name, known)
    return f"did you mean {' or '.join(found)}?" if found else otherwise


def _distance(one: str, other: str) -> int:
    """How many letters are to be changed."""
    before: list[int] = []
    row = list(range(len(other) + 1))
    for index, letter in enumerate(one, 1):
        before, last, row = row, before, [index]
        for place, against in enumerate(other, 1):
            cost = min(before[place] + 1, row[-1] + 1, before[place - 1] + (letter != against))
            if index > 1 < place and (letter, one[index - 2]) == (other[place - 2], against):
                cost = min(cost, last[place - 2] + 1)
            row.append(cost)
    return row[-1]
