"""Parts of messages that all layers share: counts, lists of names, CSV fields."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from typing import Final

MAX_LISTED: Final = 5  # names in a message
#: Characters that a message quotes; names in ZooKeeper may have a megabyte.
MAX_QUOTED: Final = 400

#: The beginning of a CSV field that a spreadsheet runs as a formula, also after ``'`` signs; and a number, which it
#: does not run.
_FORMULA: Final = re.compile("'*[=+\\-@\t\r\n\uff1d\uff0b\uff0d\uff20]")
_NUMBER: Final = re.compile(r"[+-]?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?", re.ASCII)

_UNITS: Final = ((86_400, "d"), (3600, "h"), (60, "min"), (1, "s"))


def without_formula(field: str) -> str:
    """The CSV field, with ``'`` before a formula so that no spreadsheet runs it."""
    return f"'{field}" if _FORMULA.match(field) and not _NUMBER.fullmatch(field) else field


def with_formula(field: str) -> str:
    """The inverse of ``without_formula``."""
    return field[1:] if without_formula(field[1:]) == field else field


def listed(items: Sequence[str], between: str = ", ", most: int = MAX_LISTED) -> str:
    """The first ``most`` items, and the number of the others: ``a, b and 3 more``."""
    more = len(items) - most
    joint = " " if between == ", " else between
    return between.join(items[:most]) + (f"{joint}and {more} more" if more > 0 else "")


def short(text: str, most: int = MAX_QUOTED) -> str:
    """The text, or its beginning and its length if it is too long for a message."""
    return text if len(text) <= most else f"{text[: most - 50]}… ({len(text)} characters)"


def shortened(text: str, most: int = 60) -> str:
    """The text, or its beginning and ``…``."""
    return text if len(text) <= most else text[: most - 1] + "…"


def counted(count: int, what: str) -> str:
    """``1 offset``, ``2 offsets``, ``10000 offsets``."""
    return f"{count} {what}{'' if count == 1 else 's'}"


def offset_text(offset: int | str | None) -> str:
    """An offset, ``none`` where there is none."""
    return "none" if offset is None else str(offset)


def duration_text(seconds: float) -> str:
    """A duration in its two largest units: ``45 s``, ``3 h 12 min``, ``2 d``."""
    rest, parts = int(max(0.0, seconds)), []
    for size, unit in _UNITS:
        count, rest = divmod(rest, size)
        parts.append(f"{count} {unit}" if count else "")
    first = next((place for place, part in enumerate(parts) if part), 0)
    return " ".join(filter(None, parts[first : first + 2])) or "0 s"


def is_matched(name: str, globs: Iterable[str]) -> bool:
    """Whether a pattern matches the whole name: ``*``, ``?``, ``[abc]``; case counts."""
    return any(fnmatchcase(name, glob) for glob in globs)


def are(count: int) -> str:
    """``is`` or ``are``."""
    return "is" if count == 1 else "are"


def error_text(error: BaseException) -> str:
    """The text of an error; empty if it cannot be read, as of a JVM that has died."""
    try:
        return str(error)
    except Exception:  # noqa: BLE001  # it is not the error to report
        return ""
