"""The entries of an offset file of any format, and the errors of a malformed one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple, NoReturn, TypeAlias

from zkgroup.errors import UsageError
from zkgroup.groups.group_model import Cluster
from zkgroup.protocol import znodes
from zkgroup.protocol.names import TopicPartition
from zkgroup.protocol.znodes import INT32_MAX, excerpt
from zkgroup.text import listed, offset_text

FileFormat: TypeAlias = Literal["zk", "csv", "json", "rpk", "spark"]

#: An offset, one of Spark's two places, or None where the file says that there is none.
Wanted: TypeAlias = int | Literal["earliest", "latest"] | None

#: The place of an entry: a line's number, or its names and indices in a JSON document.
Place: TypeAlias = int | tuple[str | int, ...]

_NUMBER = re.compile(r"\+?[0-9]{1,19}", re.ASCII)
_NONE = ("", "-", "null", "unknown")
_MOST: Final = 2**63 - 1

ELSEWHERE: Final = "see whether it is the right file"
#: Kafka's clusters on ZooKeeper have up to 200,000 partitions; a file may have several groups.
MAX_ENTRIES: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class OffsetFile:
    """Offsets by group; the group None fits any. ``clusters``: those that the file names."""

    name: str
    format: FileFormat
    groups: Mapping[str | None, Mapping[TopicPartition, Wanted]]
    clusters: tuple[Cluster, ...] = ()

    def offsets_of(self, group: str) -> Mapping[TopicPartition, Wanted]:
        """The offsets for ``group``. Raises ``UsageError`` where the file has only other groups."""
        found = self.groups.get(group, self.groups.get(None))
        if found is None:
            named = sorted(str(name) for name in self.groups)
            others = listed([excerpt(name) for name in named], most=3)
            raise UsageError(
                f"{self.name} has offsets of group {others}, not of {group}",
                f"say whose are meant: --from-group {named[0]}",
            )
        return found


class Entry(NamedTuple):
    """One offset and its place."""

    offset: Wanted
    place: Place


class Entries:
    """The entries of one file while it is read. ``name`` is the file's."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.groups: dict[str | None, dict[TopicPartition, Entry]] = {}
        self.clusters: list[Cluster] = []
        self._count = 0
        self._topics: set[str] = set()  # that were checked

    def refuse_many(self, most: int, what: str) -> NoReturn:
        """Refuse the file for its size."""
        raise UsageError(f"{self.name} has more than {most:,} {what}", ELSEWHERE)

    def fail(self, place: Place, why: str, remedy: str | None = None) -> NoReturn:
        """Refuse the file for an entry."""
        where = f", {_place_text(place)}" if place != () else ""
        raise UsageError(f"{self.name}{where}: {why}", remedy)

    def add(self, place: Place, group: str | None, topic: str, partition: int, offset: Wanted) -> None:
        """Add an entry. An equal one is accepted twice, another offset for the same partition is not."""
        self._count += 1
        if self._count > MAX_ENTRIES:
            self.refuse_many(MAX_ENTRIES, "offsets")
        key = TopicPartition(topic, partition)
        before = self.groups.setdefault(group, {}).setdefault(key, Entry(offset, place))
        if before.offset != offset:
            other = f"{offset_text(before.offset)} in {_place_text(before.place)}"
            self.fail(place, f"{key} is to have offset {offset_text(offset)}, but {other}", "keep one of the two")

    def topic(self, place: Place, name: str) -> str:
        """Check a topic's name: one that a znode can have."""
        if name not in self._topics:
            try:
                znodes.offset_topic("group", name)
            except UsageError:
                self.fail(place, f"{excerpt(name)} cannot be a topic")
            self._topics.add(name)
        return name

    def partition(self, place: Place, text: str) -> int:
        """Parse a partition's number."""
        if not _NUMBER.fullmatch(text) or int(text) > INT32_MAX:
            self.fail(place, f"{excerpt(text)} is no partition", "partitions are numbers from 0")
        return int(text)

    def offset(self, place: Place, text: str, *, none: bool) -> int | None:
        """Parse an offset; with ``none``, an empty text, ``-``, ``null``, ``unknown`` and -1 are no offset."""
        if none and (text in _NONE or text == "-1"):
            return None
        if not _NUMBER.fullmatch(text) or int(text) > _MOST:
            self.fail(place, f"{excerpt(text)} is no offset", "offsets are numbers from 0")
        return int(text)

    def finished(self, form: FileFormat) -> OffsetFile:
        """All entries. Raises ``UsageError`` where there are none."""
        if not any(self.groups.values()):
            raise UsageError(f"{self.name} has no offsets", ELSEWHERE)
        groups = {
            group: {key: entry.offset for key, entry in found.items()} for group, found in self.groups.items() if found
        }
        return OffsetFile(self.name, form, groups, tuple(self.clusters))


def _place_text(place: Place) -> str:
    if isinstance(place, int):
        return f"line {place}"
    return "$" + "".join(f"[{part}]" if isinstance(part, int) else f".{excerpt(part)[1:-1]}" for part in place)
