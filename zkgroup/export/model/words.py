"""The words of an export: facts about partitions, policies, ranges, plans. Plain data; what decides is in ``plan``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from zkgroup.export.model.intervals import Interval
from zkgroup.protocol.names import TopicPartition

Begin = Literal["earliest", "latest"]
#: What to do with a partition in trouble: refuse the whole export, begin at the log's start, begin at its end, or leave
#: the partition out of this export.
Policy = Literal["fail", "earliest", "latest", "skip"]
#: ``committed``: the offset is right for the new topic. ``same``: it is no new topic, but its ZooKeeper's copy.
RecreatedPolicy = Literal["fail", "earliest", "latest", "skip", "committed", "same"]
#: Whom to believe where the group stands elsewhere than the lake ends.
Disagreement = Literal["fail", "lake", "group", "skip"]


@dataclass(frozen=True, slots=True)
class Policies:
    """What to do with partitions in trouble. Whatever is not ``fail`` leaves a note in the manifest."""

    no_offset: Policy = "fail"
    new_partition: Policy = "fail"
    expired: Policy = "fail"
    recreated: RecreatedPolicy = "fail"
    disagreement: Disagreement = "fail"


@dataclass(frozen=True, slots=True)
class PartitionFacts:
    """What was read about one partition.

    ``committed``: the next offset to read, None where there is none. ``version``: that of the offset node, None where
    there is no node. ``log_start`` and ``log_end``: the first offset of the log, and the one behind its last.

    ``begin``: what ``--from`` says, None where it says nothing; ``until``: where to stop at the latest. ``exact``: that
    ``begin`` was given for this very partition. ``coverage``: what the lake accounts for already. ``fresh``: the lake
    knows the topic, and not this partition. ``remade``: the topic is not the one that was committed or exported.
    ``filled``: what backfills hold of what the group has yet to export, which is not in ``coverage``. ``copied``: the
    topic is said to be that one all the same, in a copy of its ZooKeeper.

    ``asked``: what says where to begin, where no offset does and that may be another place later on.
    """

    partition: TopicPartition
    committed: int | None
    version: int | None
    log_start: int
    log_end: int
    begin: int | None = None
    until: int | None = None
    exact: bool = False
    coverage: tuple[Interval, ...] = ()
    fresh: bool = False
    remade: bool = False
    copied: bool = False
    filled: tuple[Interval, ...] = ()
    asked: str | None = None


class OffsetRange(NamedTuple):
    """Offsets ``[start, end)`` of a partition: what one file set holds, and what is read at one go."""

    partition: TopicPartition
    start: int
    end: int


class StoredFile(NamedTuple):
    """A file in a destination: its name there, and its bytes."""

    name: str
    size: int


class Slice(NamedTuple):
    """What a file holds of a partition: ``rows`` messages with ``start`` ≤ offset < ``end``."""

    partition: int
    start: int
    end: int
    rows: int


class Skipped(NamedTuple):
    """Offsets ``[start, end)`` that are knowingly not exported: ``retention`` (deleted before they were read),
    ``moved`` (somebody set the group forward), ``latest`` (asked for), ``recreated`` (a new log begins: of the old one
    nobody knows what is missing), ``filled`` (another run holds them, most often a backfill), ``same`` (none: the
    operator says that the topic was not made again)."""

    kind: str
    start: int
    end: int


class Lost(NamedTuple):
    """A range of a ``file`` that an earlier run published and that is not there any more. ``rows``: those it held."""

    file: str
    start: int
    end: int
    rows: int

    @property
    def folder(self) -> str:
        """Where the file was."""
        return self.file.rpartition("/")[0]


@dataclass(frozen=True, slots=True)
class PartitionPlan:
    """A partition's part: read ``[start, end)``, then move the offset node from ``version`` to ``end``.

    ``commits``: whether the group is to be moved at all (a backfill moves nothing, and of several parts of a partition
    the last one does). ``again``: what is written once more, since it was lost: of what is read only that, if there is
    any. ``asked``: as of its facts.
    """

    partition: TopicPartition
    committed: int | None
    version: int | None
    start: int
    end: int
    skipped: tuple[Skipped, ...] = ()
    commits: bool = True
    again: tuple[Lost, ...] = ()
    asked: str | None = None

    @property
    def moves(self) -> bool:
        """Whether the group's offset changes."""
        return self.commits and self.end != self.committed

    @property
    def lost(self) -> int:
        """Offsets that the group had not read and that are not exported either."""
        return sum(gap.end - gap.start for gap in self.skipped if gap.kind != "filled")


@dataclass(frozen=True, slots=True)
class ExportPlan:
    """All partitions of an export, in order, and the ranges to read. ``left_out``: partitions that were not taken
    along, with the reason. ``notes``: what the bounds that were asked for come to, where that may surprise."""

    group: str
    partitions: tuple[PartitionPlan, ...]
    ranges: tuple[OffsetRange, ...]
    left_out: tuple[tuple[TopicPartition, str], ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def messages(self) -> int:
        """Offsets to read: at least as many as there are messages."""
        return sum(r.end - r.start for r in self.ranges)

    @property
    def moves(self) -> bool:
        """Whether there is anything to read, or to commit."""
        return bool(self.ranges) or any(partition.moves for partition in self.partitions)

    @property
    def passes_over(self) -> bool:
        """Whether there is anything to record of what is not exported."""
        return any(partition.skipped for partition in self.partitions)
