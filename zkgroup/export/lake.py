"""The destination as a whole: its files, the runs that it keeps, and what they account for.

Files are ``OUT/topic=T/…/START-END.parquet``: ``layout`` says which folders there are, and what names tell. Names alone
prove that nothing is there twice: no two files of a folder have an offset in common, and a message has one folder.
Where a file holds more than one range, its footer, or its run's manifest, lists them. Where the topic was deleted and
made again, names of the later incarnation are marked. No file is ever replaced.

Folders are Hive's, and what they tell is not repeated inside the files: Spark, pyarrow, pandas, DuckDB, Hive and Trino
all make columns of them and read only the folders asked for. A column that is both is refused by pyarrow
(``pq.read_table``), and files side by side in one folder, named by topic, would hide topics that start with ``_`` or
``.`` from Spark and pyarrow. The price: readers guess a folder's type. ``partition`` and ``hour`` become integers, as
they should, ``date`` a date in Spark and DuckDB; ``topic`` a string, *unless every topic of the folder looks like a
number* (``123``): then an integer too. Whoever has such topics tells the reader:
``spark.sql.sources.partitionColumnTypeInference.enabled=false`` in Spark,
``partitioning=ds.partitioning(pa.schema([("topic", pa.string()), ("partition", pa.int32())]), flavor="hive")`` in
pyarrow and pandas, ``hive_types={'topic': VARCHAR}`` in DuckDB.

Runs are ``OUT/_zkgroup/GROUP/NUMBER-UUID/``, which no reader takes for data (nothing there ends in ``.parquet``, and
names that begin with ``_`` are passed over): ``plan.json``, ``manifest.json`` from its decision on, and while it is
under way ``ATTEMPT/`` with the tasks' files. Numbers grow, so that the last run is known without reading any other.

All runs of a lake have one layout, since readers take all of it for one table: that of what was exported, or is under
way. Where manifests are gone, footers tell it (``layout_of_files``). Of two that begin at the same time, with different
wishes, the second gives way (``neighbours``); what was killed before anything came of it binds nobody.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

from zkgroup.errors import RefusedError
from zkgroup.export.documents import decode_manifest, decode_plan, decode_settled, digest
from zkgroup.export.holdings import is_of_times, offsets_of
from zkgroup.export.intervals import Interval
from zkgroup.export.layout import FileName, Layout, read_name
from zkgroup.export.layout_of_files import layout_of_files
from zkgroup.export.rundata import Manifest, Pointer, RunPlan, Settled, TopicCoverage, TopicIdentity
from zkgroup.export.shell import export_command
from zkgroup.export.store import Store
from zkgroup.export.words import OffsetRange, Slice, StoredFile
from zkgroup.protocol.names import TopicPartition

WORK = "_zkgroup"
PLAN, MANIFEST, SETTLED = "plan.json", "manifest.json", "settled.json"
# Where so few are asked for, their folders are listed one by one.
_FEW_PARTITIONS = 16
_ADOPTION = "-adopted"
_RUN = re.compile(rf"([0-9]{{8,}})-[0-9a-f]{{8}}(?:{_ADOPTION})?", re.ASCII)


class Published(NamedTuple):
    """A file under its final name, as the name tells."""

    name: str
    size: int
    told: FileName


@dataclass(frozen=True, slots=True)
class LastRun:
    """The newest run that was decided, and what it and all before it account for; which ``cluster`` it read, and
    whether it was ``joined`` (see ``Manifest``)."""

    run: str | None
    coverage: Mapping[str, TopicCoverage]
    cluster: str | None = None
    joined: bool = False


class Lake:
    """A destination, through its store."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._slices: dict[str, tuple[Slice, ...]] = {}  # no file is ever replaced, and an export looks five times
        self._exact: dict[str, Mapping[int, Sequence[Interval]]] = {}

    # --- names ------------------------------------------------------------------------------------------------------

    @staticmethod
    def folder(group: str, run: str) -> str:
        """A run's."""
        return f"{WORK}/{group}/{run}"

    def groups(self) -> list[str]:
        """Whose runs are here."""
        return self.store.names(WORK)

    def runs(self, group: str) -> list[str]:
        """A group's runs, the oldest first; not all of them were decided."""
        found = [name for name in self.store.names(f"{WORK}/{group}") if _RUN.fullmatch(name)]
        return sorted(found, key=_number)

    def new_run(self, group: str, *, adoption: bool = False) -> str:
        """A name for a run: behind all that are there. Those that adopt files of other runs are named so."""
        last = self.runs(group)[-1:]
        number = _number(last[0]) + 1 if last else 1
        return f"{number:08d}-{uuid.uuid4().hex[:8]}{_ADOPTION if adoption else ''}"

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

    def named(self, group: str, pointer: Pointer) -> Manifest | None:
        """The manifest that a pointer names; None where it is not here, or not as it was decided."""
        for attempt in (pointer.attempt, None):
            found = self.manifest(group, pointer.run, attempt)
            if found is not None and found[1] == pointer.manifest:
                return found[0]
        return None

    def settled(self, group: str, run: str) -> Settled | None:
        """How a run was ended by hand, if it was."""
        name = f"{self.folder(group, run)}/{SETTLED}"
        data = self.store.read(name)
        return None if data is None else decode_settled(f"{self.store.uri}/{name}", data)

    def last(self, group: str) -> LastRun:
        """The newest run of a group that was decided. What is covered is told by this one alone."""
        for run in reversed(self.runs(group)):
            if MANIFEST in self.store.names(self.folder(group, run)):
                found = self.manifest(group, run)
                if found is None:
                    return LastRun(run, {})
                settled = self.settled(group, run)
                coverage = settled.coverage if settled else found[0].coverage
                return LastRun(run, coverage, found[0].cluster, found[0].joined)
        return LastRun(None, {})

    def settled_coverage(self, group: str, run: str | None) -> Mapping[str, TopicCoverage]:
        """What all runs up to this one account for."""
        found = None if run is None else self.manifest(group, run)
        if run is None or found is None:
            return {}
        settled = self.settled(group, run)
        return settled.coverage if settled else found[0].coverage

    # --- files ------------------------------------------------------------------------------------------------------

    def published(self, topic: str, partition: int | None = None) -> Iterator[Published]:
        """What final names tell of a topic; with ``partition`` at least its files, of its own folder if it has one."""
        folder = f"topic={topic}"
        if partition is not None and f"partition={partition}" in self.store.names(folder):
            folder += f"/partition={partition}"
        yield from self._named_below(folder)

    def _named_below(self, folder: str) -> Iterator[Published]:
        for file in self.store.walk(folder):
            if told := read_name(file.name):
                yield Published(file.name, file.size, told)

    def published_in(self, folder: str) -> Iterator[Published]:
        """What final names tell of the files of one folder."""
        for name in self.store.names(folder):
            if told := read_name(f"{folder}/{name}"):
                yield Published(f"{folder}/{name}", 0, told)

    def strangers(self) -> list[str]:
        """What lies beside the folders of topics: a look at the destination itself alone."""
        return [name for name in self.store.names("") if name != WORK and not name.startswith("topic=")]

    def contents(self, unlisted: Callable[[str], None] = lambda _: None) -> Iterator[list[StoredFile]]:
        """All files but those that runs keep of themselves: of one topic's folder after the other, and of whatever else
        is here; ``unlisted`` as in ``below``."""
        for name in self.store.names(""):
            if name != WORK:
                yield list(self.below(name, unlisted))

    def below(self, name: str, unlisted: Callable[[str], None] = lambda _: None) -> Iterator[StoredFile]:
        """All files of a folder; or the file that has this name. Where it is no topic's, and may not be looked into,
        ``unlisted`` is told."""
        seen = False

        def tell(why: str) -> None:
            nonlocal seen
            seen = True
            unlisted(why)

        for file in self.store.walk(name, None if name.startswith("topic=") else tell):
            seen = True
            yield file
        if not seen and (size := self.store.size(name)) is not None:
            yield StoredFile(name, size)

    def intervals(
        self, partition: TopicPartition, tag: str | None, known: Set[str], *, exact: bool = False
    ) -> list[Interval]:
        """What published files of a partition stand for, whoever wrote them; without those of several ranges that are
        ``known`` by their names, as documents tell of them. ``exact``: in folders of times the offsets that they hold,
        and nothing of what is known."""
        found: list[Interval] = []
        for file in self.published(*partition):
            reads = exact and is_of_times(file.name)
            if file.told.tag == tag and not ((file.told.more or reads) and file.name in known):
                for one in self.slices(file):
                    if one.partition == partition.partition:
                        found += offsets_of(file.name, one, self.exact) if reads else [(one.start, one.end)]
        return found

    def exact(self, name: str) -> Mapping[int, Sequence[Interval]] | None:
        """The offsets of a file's rows, of each partition; None where it is not there, or cannot be read."""
        from zkgroup.export.footer import UnreadableFileError, offsets_held

        if name not in self._exact:
            try:
                self._exact[name] = offsets_held(self.store, name)
            except UnreadableFileError:
                return None
        return self._exact[name]

    def slices(self, file: Published) -> tuple[Slice, ...]:
        """The ranges of a file. Of several its footer has the list."""
        from zkgroup.export.footer import read_footer

        told = file.told
        if not told.more:
            return (Slice(told.partition, told.start, told.end, 0),)
        if file.name not in self._slices:
            self._slices[file.name] = read_footer(self.store, file.name).slices
        return self._slices[file.name]

    def refuse_overlap(
        self, ranges: Iterable[OffsetRange], tags: Mapping[str, str | None], own: str, but: Collection[str] = (),
        *, fills: bool = False,
    ) -> None:  # fmt: skip
        """Raise ``RefusedError`` if published files, ``but`` for these, already hold an offset of ``ranges``, which
        group ``own`` is to export: it would be there twice. ``fills``: in a backfill."""
        wanted: dict[str, dict[int, list[OffsetRange]]] = {}
        for piece in ranges:
            wanted.setdefault(piece.partition.topic, {}).setdefault(piece.partition.partition, []).append(piece)
        suspects: dict[str, bool] = {}  # runs: whether what their group has exported is in the way
        for topic, pieces in wanted.items():
            for file in self._near(topic, pieces):
                told = file.told
                if told.tag != tags.get(topic) or file.name in but:
                    continue
                # A group's last manifest tells of all its runs: most often it is enough to look there.
                if told.more and not suspects:
                    suspects = self._suspects(wanted)
                is_suspect = not told.more or suspects.get(file.name, suspects.get(str(told.run), True))
                for one in self.slices(file) if is_suspect else ():
                    for piece in pieces.get(one.partition, ()):
                        low, high = max(one.start, piece.start), min(one.end, piece.end)
                        if low < high and offsets_of(file.name, Slice(one.partition, low, high, 0), self.exact):
                            raise self._overlap(file, one, piece, own, fills=fills)

    def _overlap(self, file: Published, held: Slice, piece: OffsetRange, own: str, *, fills: bool) -> RefusedError:
        from zkgroup.export.footer import UnreadableFileError, read_footer

        what = f"{self.store.uri}/{file.name} already holds offsets {held.start} to {held.end - 1} of {piece.partition}"
        group, run = own, ""
        with suppress(UnreadableFileError):
            footer = read_footer(self.store, file.name)
            group, run = footer.told.get("group", own), footer.run
        adopt = export_command(self.store.destination, "--adopt", group)
        if group != own:
            theirs = self._told(group, piece.partition, file.told.tag)
            if not any(low < held.end and held.start < high for low, high in theirs):
                return RefusedError(
                    f"{what}: group {group} exported them (run {run}), and no manifest tells of it any more",
                    f"{adopt} enters them; then go on with that group, or where its exports end, as "
                    "--on-disagreement lake does",
                )
            return RefusedError(
                f"{what}: group {group} exported them (run {run})",
                f"one group exports a topic to a destination: go on with group {group}, choose another --to, "
                "or take over where its exports end, as --on-disagreement lake does (of a topic that was made again, "
                "reset-offsets and then --on-recreated committed)",
            )
        if not any(piece.start < high for _, high in self._told(own, piece.partition, file.told.tag)):
            return RefusedError(
                f"{what}, and no run accounts for it: {f'its run {run}' if run else 'the run that wrote it'} was "
                "forgotten (--settle forget), or its manifest is gone",
                f"{adopt} enters it, with all others that no manifest names (--verify lists them); to have its "
                "messages read anew move it away",
            )
        if fills:
            return RefusedError(
                f"{what}: a backfill writes nothing twice", "name what is missing alone: --verify tells which offsets"
            )
        return RefusedError(
            f"{what}, which the group has not committed: it stands at {piece.start}",
            "if another export of the group has just ended, run it again; if the group was set back, --on-disagreement "
            "lake goes on where the export ended; to have the messages again choose another --to",
        )

    def _told(self, group: str, partition: TopicPartition, tag: str | None) -> Sequence[Interval]:
        """What the group's last manifest accounts for of the log with this mark."""
        known = self.last(group).coverage.get(partition.topic)
        return () if known is None or known.identity.tag != tag else known.partitions.get(partition.partition, ())

    def _near(self, topic: str, partitions: Collection[int]) -> Iterator[Published]:
        folders = {f"partition={number}" for number in partitions}
        names = self.store.names(f"topic={topic}") if len(partitions) <= _FEW_PARTITIONS else ()
        if not folders.issubset(names):
            yield from self.published(topic)
            return
        for partition in sorted(partitions):
            yield from self._named_below(f"topic={topic}/partition={partition}")

    def _suspects(self, wanted: Mapping[str, Mapping[int, list[OffsetRange]]]) -> dict[str, bool]:
        """Runs that their group's last manifest tells of, not of a run that has lost its own since; and files that were
        adopted, as others of their run may not have been."""
        found: dict[str, bool] = {"": False}
        for group in self.groups():
            last = self.last(group)
            if last.run is None:
                continue
            coverage = last.coverage
            in_the_way = any(
                low < piece.end and piece.start < high
                for topic, partitions in wanted.items()
                if topic in coverage
                for partition, pieces in partitions.items()
                for piece in pieces
                for low, high in coverage[topic].partitions.get(partition, ())
            )
            runs = [run for run in self.runs(group) if _number(run) <= _number(last.run)]
            for adoption in [run for run in runs if run.endswith(_ADOPTION)]:
                told = self.manifest(group, adoption)
                runs += [file.name for file in told[0].files] if told is not None else []
            found |= dict.fromkeys(runs, in_the_way)
        return found

    # --- the layout -------------------------------------------------------------------------------------------------

    def layout(self, *, must_tell: bool = False) -> Layout | None:
        """The layout of what was exported, as manifests tell it, or else files; None where there is nothing yet. For
        files that tell none: None, or with ``must_tell`` a ``RefusedError``."""
        for group in self.groups():
            for run in reversed(self.runs(group)):
                if MANIFEST in self.store.names(self.folder(group, run)):
                    found = self.manifest(group, run)
                    settled = self.settled(group, run)
                    if found is not None and (settled or found[0]).coverage:
                        return found[0].layout
        return layout_of_files(self.store, must_tell=must_tell)


def of_log(lasts: Iterable[LastRun], topic: str, log: TopicIdentity) -> list[TopicCoverage]:
    """What these runs account for of one log of a topic."""
    known = [one.coverage[topic] for one in lasts if topic in one.coverage]
    return [found for found in known if found.identity.same(log)]


def _number(run: str) -> int:
    return int(run.partition("-")[0])
