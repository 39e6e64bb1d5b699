"""Commands about exports. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from zkgroup.export.model.address import Address
from zkgroup.export.model.intervals import Interval
from zkgroup.protocol.names import TopicPartition
from zkgroup.shell_commands import Command

#: So many partitions a command names one by one.
PARTITIONS: Final = 50
#: Replaces a destination that contains a secret.
_SOMEWHERE: Final = "URI"


def export_command(
    destination: Address, *options: str, group: str | None = None, topics: Iterable[str] = ()
) -> Command:
    """``zkgroup export`` of these topics, or of all where there are none, or very many."""
    words = ["export", *(("--group", group) if group is not None else ()), "--to", name_address(destination), *options]
    named = sorted(topics)
    if 0 < len(named) <= PARTITIONS:
        words += ["--"] * any(name.startswith("-") for name in named) + named
    return tuple(words)


def status_command(group: str) -> Command:
    """``zkgroup export`` that shows the runs of a group."""
    return "export", "--group", group, "--status"


def backfill_options(ranges: Mapping[TopicPartition, Interval]) -> list[str]:
    """The options of a backfill of these offsets."""
    begin, end = (_places({key: edges[side] for key, edges in ranges.items()}) for side in (0, 1))
    return ["--backfill", "--from", begin, "--until", end]


def _places(offsets: Mapping[TopicPartition, int]) -> str:
    """Offsets, as ``--from`` and ``--until`` take them."""
    return ",".join(f"{topic}:{number}={offset}" for (topic, number), offset in sorted(offsets.items()))


def name_address(destination: Address) -> str:
    """A place as a command names it: S3's options are no secrets, and without them it is another one."""
    if isinstance(destination, Path):
        return str(destination)
    query = destination.uri.partition("?")[2]
    if query and destination.scheme != "s3":
        return _SOMEWHERE
    return f"{destination.shown}?{query}" if query else destination.shown
