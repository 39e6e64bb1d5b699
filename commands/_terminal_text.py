"""Text for terminals: control characters become visible, and widths are counted in columns."""

from __future__ import annotations

import os
import re
import textwrap
import unicodedata
from typing import Final, TextIO

from zkgroup.text import shortened

# Characters that a terminal obeys or hides: C0 and C1 controls, DEL, format characters (category Cf: zero-width ones,
# bidirectional marks, tags), line and paragraph separators, lone surrogates, and letters that are blank (fillers).
_UNSAFE: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f\xad\u034f\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u115f\u1160"
    "\u17b4\u17b5\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ud800-\udfff\ufeff\uffa0"
    "\ufff9-\ufffb\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\U000e0001\U000e0020-\U000e007f]"
)
_LINE_BREAKS: Final = re.compile(r"[\r\n]+")
MAX_LINE: Final = 10_000  # characters


def escape(text: str) -> str:
    r"""Replace characters that a terminal obeys by escapes such as ``\x1b``: anybody may write names into ZooKeeper."""
    return text if text.isascii() and text.isprintable() else _UNSAFE.sub(_visible, text)


def _visible(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code > 0xFFFF:
        return f"\\U{code:08x}"
    return {9: "\\t", 10: "\\n", 13: "\\r"}.get(code) or (f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}")


def one_line(text: str) -> str:
    """A message on one line: line breaks become blanks, other control characters become visible."""
    # ASCII blanks alone: other ones may be part of a name.
    lines = (line.strip(" \t") for line in _LINE_BREAKS.split(shortened(text.strip(" \t\r\n"), MAX_LINE)))
    return escape(" ".join(line for line in lines if line))


def json_escape(encoded: str) -> str:
    """JSON text with every character that a terminal obeys written as ``\\uXXXX``: the same value."""
    if encoded.isascii() and "\x7f" not in encoded:
        return encoded
    return _UNSAFE.sub(lambda match: match[0] if match[0] == "\n" else _json_escaped(match[0]), encoded)


def _json_escaped(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at] << 8 | units[at + 1]:04x}" for at in range(0, len(units), 2))


def width(text: str) -> int:
    """The number of columns that a terminal needs."""
    if text.isascii():
        return len(text)
    return sum(map(_columns, text))


def fitting(text: str, room: int) -> str:
    """The longest beginning of a text that fits ``room`` columns."""
    used = 0
    for index, character in enumerate(text):
        used += _columns(character)
        if used > room:
            return text[:index]
    return text


def folded(text: str, columns: int, first: str, rest: str) -> str:
    """The text in lines that begin with ``first`` and ``rest``; no word is broken."""
    wrapper = textwrap.TextWrapper(columns, first, rest, break_long_words=False, break_on_hyphens=False)
    return wrapper.fill(text)


def _columns(character: str) -> int:
    if unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def rewrites(stream: TextIO) -> bool:
    """True for a terminal that can overwrite a line."""
    return stream.isatty() and (os.environ.get("TERM") or "dumb") != "dumb"
