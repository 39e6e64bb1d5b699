"""What mends what ``verify`` finds, in commands that can be pasted; pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from zkgroup.export.verify import VerifyRow
from zkgroup.groups.shell import in_quotes, quoted
from zkgroup.words import listed

# More are not named one by one.
_TOPICS: Final = 5
_GROUPS: Final = 3


def remedy_for(problems: Iterable[VerifyRow], destination: str | None) -> str:
    """What mends these: files and manifests by a backfill of each group that had exported them, where a group stands by
    saying whom the next export is to believe.

    ``destination``: as the commands are to name it; None where it has what nobody is to see.
    """
    found = list(problems)
    ways = [f"finish what is unfinished ({_command(destination, '--status')})"]
    if damaged := [row for row in found if row.stands is None]:
        fill = "--backfill --from earliest --until committed"
        in_the_way = not all(row.gone for row in damaged)
        if in_the_way:
            ways.append("move away what is damaged or in no manifest")
        if again := _commands(damaged, destination, fill):
            then = "then " if in_the_way else ""
            ways.append(f"{then}{again} exports again what is missing, where the log still has it")
    if standing := [row for row in found if row.stands is not None]:
        ways.append(
            f"if the group was moved: {_commands(standing, destination, '--on-disagreement lake')} "
            "goes on where its exports end"
        )
    if ahead := [row for row in standing if row.stands == "ahead"]:
        ways.append(
            f"{_commands(ahead, destination, '--on-disagreement group')} goes on where it stands, and notes the gap"
        )
    if len(ahead) < len(standing):
        ways.append("to have the messages again choose another --to")
    hidden = "" if destination is not None else " (each with the --to of this command)"
    return "; ".join(ways) + hidden


def _commands(rows: Iterable[VerifyRow], destination: str | None, options: str) -> str:
    """A command for each group, with the topics that are concerned; none for what nobody is known to have exported."""
    topics: dict[str, set[str]] = {}
    everything: set[str] = set()
    for row in rows:
        if row.group is not None:
            topics.setdefault(row.group, set()).update(() if row.topic is None else (row.topic,))
            if row.topic is None:
                everything.add(row.group)
    commands = [
        _command(destination, options, group, () if group in everything else found)
        for group, found in sorted(topics.items())
    ]
    return listed(commands, " and ", most=_GROUPS)


def _command(destination: str | None, options: str, group: str | None = None, topics: Iterable[str] = ()) -> str:
    words = ["zkgroup export"]
    if group is not None:
        words.append(f"--group {quoted(group)}")
    if destination is not None:
        words.append(f"--to {quoted(destination)}")
    words.append(options)
    named = sorted(topics)
    if 0 < len(named) <= _TOPICS:
        words.append("-- " * any(name.startswith("-") for name in named) + " ".join(map(quoted, named)))
    return in_quotes(" ".join(words))
