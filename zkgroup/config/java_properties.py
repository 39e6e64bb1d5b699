"""Java's ``.properties`` format, read as ``java.util.Properties.load`` does (JDK 17).

A logical line ends at a line feed, a carriage return or both, unless an odd number of backslashes is before it; the
blanks at the beginning of the line that continues it are dropped. Blank lines and those whose first character is ``#``
or ``!`` are skipped. A key ends at the first unescaped ``=``, ``:`` or blank. A backslash before ``uXXXX``, ``t``,
``n``, ``r`` or ``f`` makes an escape; any other backslash is dropped.

Two things differ: bytes are UTF-8 where they are valid UTF-8 and ISO-8859-1 otherwise (Java: always the latter), and
blanks at the end of a value are dropped, as the Scala consumer does when it reads one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from zkgroup.config.settings_file import read_settings
from zkgroup.errors import UsageError

_BLANKS = " \t\f"
_TRIMMED = "".join(map(chr, range(33)))  # what String.trim takes off
_NATURAL_LINE = re.compile(r"\r\n|\r|\n")
_KEY = re.compile(r"(?:[^\\=: \t\f]|\\.?)*", re.DOTALL)
_SEPARATOR = re.compile(r"[ \t\f]*[=:]?[ \t\f]*")
_ESCAPE = re.compile(r"\\(?:u(?P<hex>[0-9A-Fa-f]{4})|(?P<bad>u)|(?P<other>.?))", re.DOTALL)
_LETTERS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


class Property(NamedTuple):
    """One setting and where it was written, for messages: ``consumer.properties, line 3``."""

    key: str
    value: str
    origin: str


def read_properties(path: Path) -> list[Property]:
    """Read a file. Raises ``UsageError`` where it cannot be read or has a malformed escape."""
    remedy = "check the path and its permissions"
    try:
        data = read_settings(path, remedy)
    except FileNotFoundError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}", remedy) from None
    return parse_properties(data, str(path))


def parse_properties(data: bytes, name: str) -> list[Property]:
    """Every setting in the order of the file, repeated keys included; ``name`` is the file's, for messages.

    Raises ``UsageError`` for what is no text (it has null bytes, as UTF-16 would) and for malformed escapes.
    """
    if b"\0" in data:
        raise UsageError(f"{name} is no properties file: it has binary data", "give a text file of KEY=VALUE lines")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = data.decode("iso-8859-1")
    found = []
    for number, line in _logical_lines(text):
        origin = f"{name}, line {number}"
        match = _KEY.match(line)
        end = match.end() if match else 0
        separator = _SEPARATOR.match(line, end)
        rest = line[separator.end() if separator else end :]
        found.append(Property(_unescape(line[:end], origin), _unescape(rest, origin).strip(_TRIMMED), origin))
    return found


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Logical lines without comments, each with the number of its first natural line."""
    parts: list[str] = []
    first = 0
    begun = False  # whether the parts have a character
    for number, natural in enumerate(_NATURAL_LINE.split(text), 1):
        line = natural.lstrip(_BLANKS)
        if not begun:
            if not line or line[0] in "#!":
                continue
            first = number
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            parts.append(line[:-1])
            begun = begun or len(line) > 1
            continue
        parts.append(line)
        yield first, "".join(parts)
        parts, begun = [], False
    if begun:
        yield first, "".join(parts)


def _unescape(text: str, origin: str) -> str:
    def replace(match: re.Match[str]) -> str:
        if match["hex"] is not None:
            return chr(int(match["hex"], 16))
        if match["bad"] is not None:
            raise UsageError(
                f"{origin}: malformed \\uXXXX escape", "write four hexadecimal digits, or double the backslash"
            )
        return _LETTERS.get(match["other"], match["other"])

    if "\\" not in text:
        return text
    # Java's escapes are UTF-16 units: a pair of them is one character.
    return _ESCAPE.sub(replace, text).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
