"""Command lines of zkgroup: as data the words of one, as text what a shell runs. Pure.

A word is a subcommand, an option, or a value; none is quoted. ``command_line`` quotes them.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import TypeAlias

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
