"""Words of messages that every layer puts alike: counts, and the first few of many names."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

SHOWN: Final = 5  # names that a message gives where nothing else is said
#: Characters of what a message quotes: ZooKeeper takes names and data of a megabyte, and a good name is far shorter.
QUOTED: Final = 400


#: What makes a spreadsheet take a field of CSV for a formula, also behind the sign that it is none, so that each field
#: has its own; and what is a number all the same.
_FORMULA: Final = re.compile("'*[=+\\-@\t\r\n\uff1d\uff0b\uff0d\uff20]")
_NUMBER: Final = re.compile(r"[+-]?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?", re.ASCII)


def without_formula(field: str) -> str:
    """A field of CSV that no spreadsheet runs: with ``'`` before what it would take for a formula."""
    return f"'{field}" if _FORMULA.match(field) and not _NUMBER.fullmatch(field) else field


def with_formula(field: str) -> str:
    """The field of which ``without_formula`` has made this one."""
    return field[1:] if without_formula(field[1:]) == field else field


def listed(items: Sequence[str], between: str = ", ", most: int = SHOWN) -> str:
    """The first few of many, and how many more there are: ``a, b and 3 more``."""
    more = len(items) - most
    joint = " " if between == ", " else between
    return between.join(items[:most]) + (f"{joint}and {more} more" if more > 0 else "")


def short(text: str, most: int = QUOTED) -> str:
    """The text, or the beginning of one that is too long for a message, and how long it is."""
    return text if len(text) <= most else f"{text[: most - 50]}… ({len(text)} characters)"


def counted(count: int, what: str) -> str:
    """``1 offset``, ``2 offsets``, ``10000 offsets``."""
    return f"{count} {what}{'' if count == 1 else 's'}"


def are(count: int) -> str:
    """The verb for so many."""
    return "is" if count == 1 else "are"


def said_by(error: BaseException) -> str:
    """What an error says; those of a JVM that has died fail at it, and say nothing."""
    try:
        return str(error)
    except Exception:  # noqa: BLE001  # whatever it is, it is not what went wrong
        return ""
