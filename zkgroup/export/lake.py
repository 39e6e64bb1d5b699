"""The destination as a whole: its layout, the runs that it keeps, and what they account for.

Files are ``OUT/topic=T/partition=P/START-END.parquet``. A name tells which offsets the file stands for, END being the
next one, so that names alone prove that nothing is there twice. Where the topic was deleted and made again, files of
the later incarnation are ``START-END.gTAG.parquet``. No file is ever replaced.

Topic and partition are folders, in Hive's manner, and are not repeated inside the files: Spark, pyarrow, pandas,
DuckDB, Hive and Trino all make columns of them and read only the folders asked for. A column that is both is refused by
pyarrow (``pq.read_table``), and files side by side in one folder, named by topic, would hide topics that start with
``_`` or ``.`` from Spark and pyarrow. The price: readers guess a folder's type. ``partition`` becomes an integer, as it
should; ``topic`` a string, *unless every topic of the folder looks like a number* (``123``): then an integer too.
Whoever has such topics tells the reader: ``spark.sql.sources.partitionColumnTypeInference.enabled=false`` in Spark,
``partitioning=ds.partitioning(pa.schema([("topic", pa.string()), ("partition", pa.int32())]), flavor="hive")`` in
pyarrow and pandas, ``hive_types={'topic': VARCHAR}`` in DuckDB.

Runs are ``OUT/_zkgroup/GROUP/NUMBER-UUID/``, which no reader takes for data (nothing there ends in ``.parquet``, and
names that begin with ``_`` are passed over): ``plan.json``, ``manifest.json`` from its decision on, and while it is
under way ``ATTEMPT/`` with the tasks' files. Numbers grow, so that the last run is known without reading any other.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from zkgroup.errors import RefusedError, ZkgroupError
from zkgroup.export.documents import (
    Manifest,
    ManifestPart,
    RunPlan,
    Settled,
    TopicCoverage,
    TopicIdentity,
    decode_manifest,
    decode_plan,
    decode_settled,
    digest,
)
from zkgroup.export.intervals import Interval, union
from zkgroup.export.store import Store
from zkgroup.export.words import OffsetRange
from zkgroup.protocol.names import TopicPartition

WORK = "_zkgroup"
PLAN, MANIFEST, SETTLED = "plan.json", "manifest.json", "settled.json"
_NAME = re.compile(r"([0-9]+)-([0-9]+)(?:\.g([0-9a-f]+))?\.parquet", re.ASCII)
_RUN = re.compile(r"([0-9]{8,})-[0-9a-f]{8}", re.ASCII)


class Published(NamedTuple):
    """A file under its final name, as the name tells."""

    name: str
    start: int
    end: int
    tag: str | None


@dataclass(frozen=True, slots=True)
class LastRun:
    """The newest run that was decided, and what it and all before it account for."""

    run: str | None
    coverage: Mapping[str, TopicCoverage]


class Lake:
    """A destination, through its store."""

    def __init__(self, store: Store) -> None:
        self.store = store

    # --- names ------------------------------------------------------------------------------------------------------

    @staticmethod
    def folder(group: str, run: str) -> str:
        """A run's."""
        return f"{WORK}/{group}/{run}"

    @staticmethod
    def file(partition: TopicPartition, start: int, end: int, tag: str | None = None) -> str:
        """The final name of the file for offsets ``[start, end)``."""
        mark = f".g{tag}" if tag else ""
        return f"topic={partition.topic}/partition={partition.partition}/{start}-{end}{mark}.parquet"

    def groups(self) -> list[str]:
        """Whose runs are here."""
        return self.store.names(WORK)

    def runs(self, group: str) -> list[str]:
        """A group's runs, the oldest first; not all of them were decided."""
        found = [name for name in self.store.names(f"{WORK}/{group}") if _RUN.fullmatch(name)]
        return sorted(found, key=_number)

    def new_run(self, group: str) -> str:
        """A name for a run: behind all that are there."""
        last = self.runs(group)[-1:]
        return f"{_number(last[0]) + 1 if last else 1:08d}-{uuid.uuid4().hex[:8]}"

    # --- documents --------------------------------------------------------------------------------------------------

    def plan(self, group: str, run: str) -> tuple[RunPlan, str] | None:
        """A run's plan and its hash; None where there is none."""
        name = f"{self.folder(group, run)}/{PLAN}"
        data = self.store.read(name)
        return None if data is None else (decode_plan(f"{self.store.uri}/{name}", data), digest(data))

    def manifest(self, group: str, run: str, attempt: str | None = None) -> tuple[Manifest, str] | None:
        """A run's manifest and its hash. With ``attempt``: the one of that attempt, decided or not."""
        folder = self.folder(group, run) + (f"/{attempt}" if attempt else "")
        data = self.store.read(f"{folder}/{MANIFEST}")
        if data is None:
            return None
        return decode_manifest(f"{self.store.uri}/{folder}/{MANIFEST}", data), digest(data)

    def settled(self, group: str, run: str) -> Settled | None:
        """How a run was ended by hand, if it was."""
        name = f"{self.folder(group, run)}/{SETTLED}"
        data = self.store.read(name)
        return None if data is None else decode_settled(f"{self.store.uri}/{name}", data)

    def last(self, group: str) -> LastRun:
        """The newest run of a group that was decided. What is covered is told by this one alone."""
        for run in reversed(self.runs(group)):
            if MANIFEST in self.store.names(self.folder(group, run)):
                return LastRun(run, self.settled_coverage(group, run))
        return LastRun(None, {})

    def settled_coverage(self, group: str, run: str | None) -> Mapping[str, TopicCoverage]:
        """What all runs up to this one account for."""
        found = None if run is None else self.manifest(group, run)
        if run is None or found is None:
            return {}
        settled = self.settled(group, run)
        return settled.coverage if settled else found[0].coverage

    # --- files ------------------------------------------------------------------------------------------------------

    def published(self, partition: TopicPartition) -> Iterator[Published]:
        """What final names tell of a partition."""
        folder = f"topic={partition.topic}/partition={partition.partition}"
        for name in self.store.names(folder):
            if match := _NAME.fullmatch(name):
                yield Published(f"{folder}/{name}", int(match[1]), int(match[2]), match[3])

    def partitions(self) -> Iterator[TopicPartition]:
        """All partitions that have a folder here."""
        for topic in self.store.names(""):
            if not topic.startswith("topic="):
                continue
            for partition in self.store.names(topic):
                number = partition.removeprefix("partition=")
                if partition.startswith("partition=") and number.isdecimal():
                    yield TopicPartition(topic.removeprefix("topic="), int(number))

    def refuse_overlap(self, ranges: Iterable[OffsetRange], tags: Mapping[str, str | None]) -> None:
        """Raise ``RefusedError`` if published files already hold an offset of ``ranges``: it would be there twice."""
        wanted: dict[TopicPartition, list[OffsetRange]] = {}
        for piece in ranges:
            wanted.setdefault(piece.partition, []).append(piece)
        for partition, pieces in wanted.items():
            for found in self.published(partition):
                if found.tag != tags.get(partition.topic):
                    continue
                for piece in pieces:
                    if found.start < piece.end and piece.start < found.end:
                        raise RefusedError(
                            f"{self.store.uri}/{found.name} already holds offsets {found.start} to {found.end - 1} of "
                            f"{partition}, which the group has not committed: it stands at {pieces[0].start}",
                            "the group was set back, or another one was exported here: --on-disagreement lake goes on "
                            "where the export ended; to have the messages again choose another --to",
                        )

    def has_garbage(self, group: str) -> bool:
        """Whether the newest run left something behind; older ones were tidied up by whoever came after them."""
        newest = self.runs(group)[-1:]
        names = set(self.store.names(self.folder(group, newest[0]))) if newest else {MANIFEST}
        return MANIFEST not in names or bool(names - {PLAN, MANIFEST, SETTLED})

    def remove_garbage(self, group: str, cluster: str, keep: str | None) -> int:
        """Remove runs of this group that were never decided, and attempts that are over; how many there were.

        Only under the group's lock. ``cluster``: another cluster may have a group of this name, and a lock of its own.
        """
        removed = 0
        runs = self.runs(group)
        for place, run in enumerate(runs):
            if run == keep:
                continue
            folder = self.folder(group, run)
            names = self.store.names(folder)
            if MANIFEST not in names:
                try:
                    plan = self.plan(group, run)
                except ZkgroupError:
                    plan = None  # half of a plan, from before plans were written at once: nobody can go on with it
                if plan is not None and plan[0].cluster != cluster:
                    continue
                self.store.remove(folder)
                removed += 1
            elif place == len(runs) - 1:
                for name in set(names) - {PLAN, MANIFEST, SETTLED}:
                    self.store.remove(f"{folder}/{name}")
        return removed


def _number(run: str) -> int:
    return int(run.partition("-")[0])


def extended(
    coverage: Mapping[str, TopicCoverage], topics: Mapping[str, TopicIdentity], parts: Iterable[ManifestPart]
) -> dict[str, TopicCoverage]:
    """What is accounted for when ``parts`` are, too. An incarnation that is gone is forgotten: its files have other
    names than those to come."""
    grown: dict[str, dict[int, list[Interval]]] = {}
    for topic, identity in topics.items():
        known = coverage.get(topic)
        same = known is not None and known.identity.same(identity)
        grown[topic] = {p: list(found) for p, found in known.partitions.items()} if known and same else {}
    for part in parts:
        place = grown[part.plan.partition.topic].setdefault(part.plan.partition.partition, [])
        place += [(gap.start, gap.end) for gap in part.plan.skipped]
        place.append((part.plan.start, part.end))
    updated = {
        topic: TopicCoverage(topics[topic], {p: union(found) for p, found in partitions.items()})
        for topic, partitions in grown.items()
    }
    return {**coverage, **updated}


def tag_for(identity: TopicIdentity, known: TopicCoverage | None) -> str | None:
    """The mark in file names: none for the first incarnation that the lake sees, that of the log's birth for others."""
    if known is None:
        return None
    if known.identity.same(identity):
        return known.identity.tag
    return f"{identity.czxid:x}"
