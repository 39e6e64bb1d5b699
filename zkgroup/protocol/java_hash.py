"""Java's ``String.hashCode``."""

from __future__ import annotations

from typing import Final

_MASK: Final = 0xFFFF_FFFF


def extend_hash(state: int, text: str) -> int:
    """Go on hashing with ``text``, from the unsigned 32-bit state that the text before it led to (0 at the start)."""
    if text.isascii():
        for unit in text.encode("ascii"):
            state = (31 * state + unit) & _MASK
        return state
    units = text.encode("utf-16-be", "surrogatepass")
    for high, low in zip(units[::2], units[1::2], strict=True):
        state = (31 * state + (high << 8 | low)) & _MASK
    return state


def signed(state: int) -> int:
    """The hash code of a state, a signed 32-bit integer."""
    return state - 0x1_0000_0000 if state & 0x8000_0000 else state
