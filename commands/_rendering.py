"""Errors, notices and remedies → text: each command in them names the servers that this command line has named, so that
it can be pasted as it is. Pure.

The environment and a profile's file are there for the pasted command, too: what they name is not repeated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from zkgroup.errors import Notice, Remedy, ZkgroupError
from zkgroup.text import Command, command_line

Message: TypeAlias = str | Notice | Remedy | ZkgroupError

#: Options that say where the servers are, as a person would write them. No user, password or key is among them.
_PLACES: Final = {
    "cluster": "-c",
    "zookeeper": "-z",
    "bootstrap_server": "--bootstrap-server",
    "consumer_config": "--consumer-config",
}
#: The only properties that do.
_PLACE_KEYS: Final = ("zookeeper.connect", "zk.connect")
#: Options that ask for help alone, which needs no servers.
_HELP: Final = frozenset({"--help", "--explain"})


def render(message: Message, given: GlobalOptions) -> str:
    """The message as text."""
    return message if isinstance(message, str) else message.rendered(lambda command: render_command(command, given))


def render_command(command: Command, given: GlobalOptions) -> str:
    """The command for a shell."""
    from . import COMMANDS

    connects = {lazy.name for lazy in COMMANDS if lazy.connects}
    is_asking = command[0] in connects and _HELP.isdisjoint(command)
    return command_line(command, place_options(given.values) if is_asking else ())


def place_options(values: Mapping[str, Sequence[Any]]) -> list[str]:
    """The words among ``values`` (by the names of their parameters) that say where the servers are."""
    words: list[str] = []
    for name, option in _PLACES.items():
        for value in dict.fromkeys(values.get(name, ())):
            words += [option, str(value)] if value else []
    for assignment in dict.fromkeys(values.get("property", ())):
        if assignment.partition("=")[0].strip() in _PLACE_KEYS:
            words += ["-X", assignment]
    return words


@dataclass
class GlobalOptions:
    """The shared options. ``values``: parameter to values in their order, collected while the line is parsed.
    ``answers``: question to the password that was typed."""

    values: dict[str, list[Any]] = field(default_factory=dict)
    verbosity: int = 0
    quiet: bool = False
    answers: dict[str, str] = field(default_factory=dict, repr=False)

    def add(self, name: str, values: list[Any]) -> None:
        self.values.setdefault(name, []).extend(values)
