"""Text that is safe to show: control characters made visible, columns measured as a terminal shows them."""

from __future__ import annotations

import re
import unicodedata
from typing import Final

# C0 and C1 controls, DEL, line and paragraph separators, what reorders text (bidirectional marks), lone surrogates.
_UNSAFE: Final = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufeff]")
_LINE_BREAKS: Final = re.compile(r"\s*[\r\n]+\s*")


def escape(text: str) -> str:
    r"""Names come from ZooKeeper, where anybody may write: ``\x1b`` instead of a character that a terminal obeys."""
    return text if text.isascii() and text.isprintable() else _UNSAFE.sub(_visible, text)


def _visible(match: re.Match[str]) -> str:
    code = ord(match[0])
    return {9: "\\t", 10: "\\n", 13: "\\r"}.get(code) or (f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}")


def one_line(text: str) -> str:
    """A message on one line: its line breaks become blanks, other control characters visible."""
    return escape(_LINE_BREAKS.sub(" ", text.strip()))


def json_escape(encoded: str) -> str:
    """JSON text with every character a terminal might obey written as ``\\uXXXX``: the same value."""
    if encoded.isascii() and "\x7f" not in encoded:
        return encoded
    return _UNSAFE.sub(lambda match: match[0] if match[0] == "\n" else f"\\u{ord(match[0]):04x}", encoded)


def width(text: str) -> int:
    """How many columns a terminal needs."""
    if text.isascii():
        return len(text)
    return sum(map(_columns, text))


def _columns(character: str) -> int:
    if unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
