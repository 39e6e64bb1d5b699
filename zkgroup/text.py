"""Parts of messages that all layers share: counts, lists of names, CSV fields, and command lines. Pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from typing import Final, TypeAlias

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


def one_line(text: str) -> str:
    """The beginning of the text, on one line."""
    return text[:80] if text[:80].isprintable() else repr(text[:80])


def counted(count: int, what: str) -> str:
    """``1 offset``, ``2 offsets``, ``10000 offsets``."""
    return f"{count} {what}{'' if count == 1 else 's'}"


def offset_text(offset: int | str | None) -> str:
    """An offset, ``none`` where there is none."""
    return "none" if offset is None else str(offset)


def duration_text(seconds: float, units: int = 2) -> str:
    """A duration in its largest ``units``: ``45 s``, ``3 h 12 min``, ``2 d``."""
    rest, parts = int(max(0.0, seconds)), []
    for size, unit in _UNITS:
        count, rest = divmod(rest, size)
        parts.append(f"{count} {unit}" if count else "")
    first = next((place for place, part in enumerate(parts) if part), 0)
    return " ".join(filter(None, parts[first : first + units])) or "0 s"


def is_matched(name: str, globs: Iterable[str]) -> bool:
    """Whether a pattern matches the whole name: ``*``, ``?``, ``[abc]``; case counts."""
    return any(fnmatchcase(name, glob) for glob in globs)


def are(count: int) -> str:
    return "is" if count == 1 else "are"


def error_text(error: BaseException) -> str:
    """The text of an error; empty if it cannot be read, as of a JVM that has died."""
    try:
        return str(error)
    except Exception:  # noqa: BLE001  # it is not the error to report
        return ""


#: The words behind ``zkgroup``: ``("reset-offsets", "billing", "--to-earliest")``.
Command: TypeAlias = tuple[str, ...]


def group_command(name: str, group: str, *options: str) -> Command:
    """A command about a group. A group whose name begins as an option comes last, behind ``--``."""
    return (name, *options, "--", group) if group.startswith("-") else (name, group, *options)


def command_line(command: Command, places: Sequence[str] = ()) -> str:
    """A command for a shell. ``places``: options before its name."""
    return " ".join(["zkgroup", *map(quoted, (*places, *command))])


def quoted(text: str) -> str:
    """A word for a shell. A character that a terminal obeys, or does not show, is written as ``$'\\x1b'``, in bytes."""
    if text.isprintable():
        return shlex.quote(text)
    plain = {"\\": "\\\\", "'": "\\'"}
    # Lone surrogates stand for bytes that were no UTF-8.
    bytes_of = (
        plain.get(one) or (one if one.isprintable() else "".join(f"\\x{byte:02x}" for byte in _encoded(one)))
        for one in text
    )
    return f"$'{''.join(bytes_of)}'"


def _encoded(character: str) -> bytes:
    if "\udc80" <= character <= "\udcff":
        return character.encode("utf-8", "surrogateescape")
    return character.encode("utf-8", "surrogatepass")
