"""Commands that we print can be pasted as they stand: they name the servers that this command line has named. Pure.

What the environment or a profile names needs no words: it is there for the pasted command, too.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from ._global_options import Given

#: Options that say where the servers are, as a person would write them. No user, password or key is among them.
_PLACES: Final = {
    "cluster": "-c",
    "zookeeper": "-z",
    "bootstrap_server": "--bootstrap-server",
    "consumer_config": "--consumer-config",
}
#: The only properties that do.
_PLACE_KEYS: Final = ("zookeeper.connect", "zk.connect")
# As shells read them, and as ``shell_commands.quoted`` writes them; an apostrophe within a word opens nothing.
_QUOTED: Final = r"""(?<!\w)(?:\$'(?:[^'\\]|\\.)*'|'[^']*'|"[^"]*")+"""
# What follows a command's name and belongs to it for sure: quoted words, options, and what they follow.
_WORDS: Final = rf"""(?: (?:-[\w-]*|{_QUOTED}|[^\s'"]+(?= --)))*"""


def completed(text: str, given: Given) -> str:
    """The text with the places of this command line in each of our commands. Done twice it is the same."""
    if "zkgroup " not in text or not (options := place_options(given.values)):  # most lines of a log have none
        return text
    from . import COMMANDS

    return with_options(text, options, [lazy.name for lazy in COMMANDS if lazy.connects])


def place_options(values: Mapping[str, Sequence[Any]]) -> str:
    """The options among ``values`` (by the names of their parameters) that say where the servers are, for a shell."""
    from zkgroup.groups.shell_commands import quoted

    words = [
        f"{option} {quoted(str(value))}"
        for name, option in _PLACES.items()
        for value in dict.fromkeys(values.get(name, ()))
        if value
    ]
    for assignment in dict.fromkeys(values.get("property", ())):
        if assignment.partition("=")[0].strip() in _PLACE_KEYS:
            words.append(f"-X {quoted(assignment)}")
    return " ".join(words)


def with_options(text: str, options: str, names: Collection[str]) -> str:
    """The text with ``options`` behind each ``zkgroup`` that one of ``names`` follows.

    Names of groups that look like our commands stay as they are, as long as they are quoted. A command in quotes
    (which has none itself) loses them where ``options`` has some. What asks for help alone needs no servers.
    """
    named = rf"zkgroup (?=(?:{'|'.join(map(re.escape, names))})(?![\w-])(?! --(?:help|explain)\b))"
    # A command in quotes; a command; any other quoted words.
    hint, bare = rf"(?<![\w'])'{named}(?P<hint>[^']*)'", rf"(?<![\w/.'-]){named}(?P<bare>[a-z-]+{_WORDS})"
    found = re.compile(f"{hint}|{bare}|{_QUOTED}")

    def put(match: re.Match[str]) -> str:
        if match["bare"] is not None:
            return f"zkgroup {options} {match['bare']}"
        if match["hint"] is None:
            return match[0]
        command = f"zkgroup {options} {match['hint']}"
        return command if "'" in options else f"'{command}'"

    return found.sub(put, text)
