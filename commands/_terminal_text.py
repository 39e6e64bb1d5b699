"""Text for terminals: control characters become visible, and widths are counted in columns."""

from __future__ import annotations

import json
import os
import re
import textwrap
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
    return _UNSAFE.sub(lambda match: match[0] if match[0] == "\n" else json.dumps(match[0])[1:-1], encoded)


def width(text: str) -> int:
    """The number of columns that a terminal needs."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len  # 6 ms

    return cell_len(text)


def fitting(text: str, room: int) -> str:
    """The text, cut to ``room`` columns."""
    if width(text) <= room:
        return text
    from rich.cells import set_cell_size

    return set_cell_size(text, room).rstrip(" ")  # it puts a blank in place of half a character


def fit(text: str, room: int) -> str:
    """The text, cut so that it takes no more columns."""
    return text if width(text) <= room else fitting(text, room - 1) + ("…" if room > 0 else "")


def folded(text: str, columns: int, first: str, rest: str) -> str:
    """The text in lines that begin with ``first`` and ``rest``; no word is broken."""
    wrapper = textwrap.TextWrapper(columns, first, rest, break_long_words=False, break_on_hyphens=False)
    return wrapper.fill(text)


def rewrites(stream: TextIO) -> bool:
    """True for a terminal that can overwrite a line."""
    return stream.isatty() and (os.environ.get("TERM") or "dumb") != "dumb"
