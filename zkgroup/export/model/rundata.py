"""What is known of a run, as data: its plan, its manifest, the pointer to it. ``documents`` writes and reads them.

Times are milliseconds since 1970. Offsets are the next one to read, intervals exclude their end.
"""

from __future__ import annotations

import time
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Literal, NamedTuple

from zkgroup.export.model.intervals import Interval, beyond
from zkgroup.export.model.layout import Layout
from zkgroup.export.model.words import PartitionPlan, Slice
from zkgroup.protocol.names import TopicPartition

#: ``adoption``: files that were there, and in no manifest.
Kind = Literal["export", "backfill", "adoption"]
State = Literal["planned", "decided", "committed", "withdrawn"]


@dataclass(frozen=True, slots=True)
class TopicIdentity:
    """Which incarnation of a topic this is. ``czxid`` is its znode's, ``topic_id`` that of 2.8 and later.

    ``cleanup``: its ``cleanup.policy``, None where nobody tells. ``tag``: marks the names of its files where the folder
    holds files of an earlier incarnation, None otherwise. ``before``: the births of the same log's node in ZooKeepers
    that this one was copied from.
    """

    czxid: int
    topic_id: str | None = None
    cleanup: str | None = None
    tag: str | None = None
    before: tuple[int, ...] = ()

    def same(self, other: TopicIdentity) -> bool:
        """Whether both are the same log."""
        if self.topic_id is not None and other.topic_id is not None:
            return self.topic_id == other.topic_id
        return self.czxid == other.czxid or self.czxid in other.before or other.czxid in self.before

    def after(self, known: TopicIdentity) -> TopicIdentity:
        """This one, as the same log as the one that was ``known``."""
        return replace(self, before=tuple(sorted({*self.before, *known.before, known.czxid} - {self.czxid})))


#: Of an export that is not told otherwise: how large its files are to be, and about how many messages one task reads.
TARGET_BYTES, RANGE_MESSAGES, COMPRESSION = 512 << 20, 1_000_000, "zstd"


@dataclass(frozen=True, slots=True)
class RunPlan:
    """What a run does, fixed before anything is read. ``max_bytes``: what one partition may take, None: no limit.
    ``compression``: ``CODEC`` or ``CODEC:LEVEL``.

    ``skip_deleted``: what retention takes away while it is read is a recorded gap, not a failure.
    ``record_unexplained``: the same for offsets that are missing and nobody knows why.
    """

    run: str
    group: str
    kind: Kind
    cluster: str
    planned: int
    isolation: str
    compression: str
    target_bytes: int
    range_messages: int
    max_bytes: int | None
    skip_deleted: bool
    record_unexplained: bool
    topics: Mapping[str, TopicIdentity]
    partitions: tuple[PartitionPlan, ...]
    previous: str | None = None
    host: str = ""
    release: str = ""
    layout: Layout = field(default_factory=Layout)


class ManifestFile(NamedTuple):
    """A file: ``work`` below the run's folder, ``name`` below the destination; what it holds of each partition."""

    work: str
    name: str
    topic: str
    rows: int
    bytes: int
    slices: tuple[Slice, ...]


@dataclass(frozen=True, slots=True)
class ManifestPart:
    """What became of one part of the plan. ``end`` may lie below the planned one (a limit of bytes).

    ``end − start = rows + undecodable + sum(gaps)``; ``gaps`` counts offsets by kind, see ``accounting``.
    ``undecodable`` are messages in the files whose key or value is not what it should be. ``late`` (see
    ``punctuality``) and ``undated`` (without a usable time) count among the others.
    """

    plan: PartitionPlan
    end: int
    rows: int
    undecodable: int
    gaps: Mapping[str, int]
    late: int = 0
    undated: int = 0

    @property
    def moves(self) -> bool:
        """Whether the group's offset changes."""
        return self.plan.commits and self.end != self.plan.committed

    @property
    def accounted(self) -> list[Interval]:
        """The offsets that it tells of: what it has read, and what it has passed over."""
        return [*((gap.start, gap.end) for gap in self.plan.skipped), (self.plan.start, self.end)]

    @property
    def balanced(self) -> bool:
        """Whether every offset is accounted for."""
        return self.end - self.plan.start == self.rows + self.undecodable + sum(self.gaps.values())


def slices_held(parts: Iterable[ManifestPart], files: Iterable[ManifestFile]) -> list[list[tuple[str, Slice]]]:
    """The ranges that ``files``, named, hold of each part."""
    by_partition: dict[TopicPartition, list[tuple[Slice, str]]] = {}
    for file in files:
        for one in file.slices:
            by_partition.setdefault(TopicPartition(file.topic, one.partition), []).append((one, file.name))
    for held in by_partition.values():
        held.sort(key=_start)
    found: list[list[tuple[str, Slice]]] = []
    for part in parts:  # of which a partition may have very many
        held = by_partition.get(part.plan.partition, [])
        first = bisect_left(held, part.plan.start, key=_start)
        last = bisect_right(held, part.end, key=_start)
        found.append([(name, one) for one, name in islice(held, first, last) if one.end <= part.end])
    return found


def _start(held: tuple[Slice, str]) -> int:
    return held[0].start


def rows_held(parts: Sequence[ManifestPart], files: Sequence[ManifestFile]) -> list[int]:
    """The rows that ``files`` hold of each part."""
    return [sum(one.rows for _, one in held) for held in slices_held(parts, files)]


def shares(manifest: Manifest) -> Iterator[tuple[ManifestPart, int, int]]:
    """Each part with its share of the files' bytes, by rows, and the number of files that hold something of it. The
    shares add up to all bytes."""
    sizes: dict[tuple[str, Slice], int] = {}
    by_partition: dict[TopicPartition, list[tuple[str, Slice]]] = {}
    for file in manifest.files:
        rows = given = 0
        for one in file.slices:
            rows += one.rows
            upto = file.bytes * rows // max(1, file.rows)
            sizes[file.name, one] = upto - given
            given = upto
            by_partition.setdefault(TopicPartition(file.topic, one.partition), []).append((file.name, one))
    for part in manifest.parts:
        held = [
            (name, one)
            for name, one in by_partition.get(part.plan.partition, ())
            if part.plan.start <= one.start and one.end <= part.end
        ]
        yield part, sum(sizes[key] for key in held), len({name for name, _ in held})


@dataclass(frozen=True, slots=True)
class TopicCoverage:
    """What the lake accounts for of one incarnation of a topic. ``newest``: the newest day or hour of each partition's
    messages, where folders are of times. ``ends``: how far exports have come, where there were any."""

    identity: TopicIdentity
    partitions: Mapping[int, tuple[Interval, ...]] = field(default_factory=dict)
    newest: Mapping[int, int] = field(default_factory=dict)
    ends: Mapping[int, int] = field(default_factory=dict)

    def exported(self, partition: int) -> list[Interval]:
        """What it holds up to where exports have come, which an empty interval tells; nothing where there were none."""
        end = self.ends.get(partition)
        held = self.partitions.get(partition, ())
        return [] if end is None else [*((low, min(high, end)) for low, high in held if low < end), (end, end)]

    def ahead(self, partition: int) -> list[Interval]:
        """What it holds from there on: backfills, most often."""
        return beyond(self.partitions.get(partition, ()), self.ends.get(partition, 0))


class Roll(NamedTuple):
    """Of which of the runs before it a coverage tells: of those whose folders were there, but for ``undecided``, which
    had no manifest. ``names``: a hash of theirs."""

    names: str
    undecided: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a run has written. ``coverage``: what all the group's runs up to this one account for, ``roll``: which these
    are (not told by older releases). ``joined``: as a member, beside others; of a backfill: the export before it.
    ``topics``: the logs that ``parts`` are of, where these are not those of ``coverage``."""

    run: str
    group: str
    kind: Kind
    cluster: str
    plan: str
    attempt: str
    planned: int
    decided: int
    isolation: str
    parts: tuple[ManifestPart, ...]
    coverage: Mapping[str, TopicCoverage]
    previous: str | None = None
    files: tuple[ManifestFile, ...] = ()
    layout: Layout = field(default_factory=Layout)
    joined: bool = False
    topics: Mapping[str, TopicIdentity] = field(default_factory=dict)
    roll: Roll | None = None

    @property
    def logs(self) -> dict[str, TopicIdentity]:
        """The logs of all topics that it tells of: those of ``parts``, where two are known of one."""
        return {topic: found.identity for topic, found in self.coverage.items()} | dict(self.topics)

    @property
    def planned_as(self) -> RunPlan:
        """The plan, as far as the manifest tells it: of the ranges that were planned of what it has written."""
        logs, plans = self.logs, [part.plan for part in self.parts]
        topics = {topic: logs[topic] for topic in dict.fromkeys(one.partition.topic for one in plans)}
        told = plan_of(self.run, self.group, self.cluster, topics, plans)
        return replace(
            told,
            kind=self.kind,
            planned=self.planned,
            isolation=self.isolation,
            previous=self.previous,
            layout=self.layout,
        )


def plan_of(
    run: str, group: str, cluster: str, topics: Mapping[str, TopicIdentity], parts: Iterable[PartitionPlan]
) -> RunPlan:
    """A plan of these, where it is not known any more what else it said."""
    return RunPlan(
        run,
        group,
        "export",
        cluster,
        0,
        "read_committed",
        COMPRESSION,
        TARGET_BYTES,
        RANGE_MESSAGES,
        None,
        skip_deleted=False,
        record_unexplained=False,
        topics=topics,
        partitions=tuple(parts),
    )


@dataclass(frozen=True, slots=True)
class Settled:
    """How a run that could not be committed was ended by hand. ``left``: partitions whose offset was left as it was;
    ``coverage`` and ``roll`` stand for those of its manifest."""

    how: Literal["keep", "withdraw"]
    when: int
    left: tuple[TopicPartition, ...]
    coverage: Mapping[str, TopicCoverage]
    roll: Roll | None = None


@dataclass(frozen=True, slots=True)
class Pointer:
    """What ``/consumers/G/zkgroup/export`` says. ``plan`` and ``manifest`` are hashes."""

    state: State
    run: str
    output: str
    plan: str
    attempt: str
    manifest: str | None = None


def now_ms() -> int:
    """This moment, as runs note it: in milliseconds since 1970."""
    return time.time_ns() // 1_000_000
