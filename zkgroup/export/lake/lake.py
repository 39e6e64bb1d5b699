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
under way ``ATTEMPT/`` with the tasks' files. Numbers grow, and each manifest tells what all runs before it account
for, and which these were: so the last one is enough, as long as no other has come to light since.

All runs of a lake have one layout, since readers take all of it for one table: that of what was exported, or is under
way. Where manifests are gone, footers tell it (``layout_of_files``). Of two that begin at the same time, with different
wishes, the second gives way (``neighbours``); what was killed before anything came of it binds nobody.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, TypeVar

from zkgroup.export.lake.asking import at_once
from zkgroup.export.lake.coverage import Accounted, accounted_by, merged
from zkgroup.export.lake.holdings import is_of_times, offsets_of
from zkgroup.export.lake.layout_of_files import layout_of_files
from zkgroup.export.model.documents import decode_manifest, decode_plan, decode_settled
from zkgroup.export.model.encoding import DamagedDocumentError, digest
from zkgroup.export.model.intervals import Interval
from zkgroup.export.model.layout import FileName, Layout, read_name
from zkgroup.export.model.rundata import Manifest, Pointer, Roll, RunPlan, Settled, TopicCoverage, TopicIdentity
from zkgroup.export.model.words import Slice, StoredFile
from zkgroup.export.stores.store import Store
from zkgroup.protocol.names import TopicPartition

WORK = "_zkgroup"
PLAN, MANIFEST, SETTLED = "plan.json", "manifest.json", "settled.json"
ADOPTION = "-adopted"
_RUN = re.compile(rf"([0-9]{{8,}})-[0-9a-f]{{8}}(?:{ADOPTION})?", re.ASCII)
T = TypeVar("T")


class Published(NamedTuple):
    """A file under its final name, as the name tells."""

    name: str
    size: int
    told: FileName


@dataclass(frozen=True, slots=True)
class LastRun:
    """The newest run that was decided, and what it and all others account for; which ``cluster`` it read, and whether
    it was ``joined`` (see ``Manifest``). ``told``: the runs that the coverage is of; ``undecided``: those that have no
    manifest; ``clusters``: all that are known to have something in it."""

    run: str | None
    coverage: Mapping[str, TopicCoverage]
    cluster: str | None = None
    joined: bool = False
    told: frozenset[str] = frozenset()
    undecided: tuple[str, ...] = ()
    clusters: frozenset[str] = frozenset()

    def roll(self, run: str) -> Roll:
        """What ``run``, whose coverage is made from this one, knows of the others."""
        before = (one for one in self.told if _order(one) < _order(run))
        return roll_of(before, [one for one in self.undecided if one != run])


class Lake:
    """A destination, through its store."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._slices: dict[str, tuple[Slice, ...]] = {}  # no file is ever replaced, and an export looks five times
        self._exact: dict[str, Mapping[int, Sequence[Interval]]] = {}
        self._together: dict[tuple[str, tuple[str, ...]], tuple[Mapping[str, TopicCoverage], frozenset[str]]] = {}

    # --- names ------------------------------------------------------------------------------------------------------

    @staticmethod
    def folder(group: str, run: str) -> str:
        """A run's."""
        return f"{WORK}/{group}/{run}"

    def groups(self) -> list[str]:
        """Whose runs are here."""
        return self.store.names(WORK)

    def of_groups(self, ask: Callable[[str], T], but: str | None = None) -> dict[str, T]:
        """What is asked of all groups ``but`` one."""
        groups = [group for group in self.groups() if group != but]
        answers = at_once(ask, groups)
        return {group: answer.result() for group, answer in zip(groups, answers, strict=True)}

    def runs(self, group: str) -> list[str]:
        """A group's runs, the oldest first; not all of them were decided."""
        found = [name for name in self.store.names(f"{WORK}/{group}") if _RUN.fullmatch(name)]
        return sorted(found, key=_order)

    def new_run(self, group: str, *, adoption: bool = False) -> str:
        """A name for a run: behind all that are there. Those that adopt files of other runs are named so."""
        last = self.runs(group)[-1:]
        number = _number(last[0]) + 1 if last else 1
        return f"{number:08d}-{uuid.uuid4().hex[:8]}{ADOPTION if adoption else ''}"

    # --- documents --------------------------------------------------------------------------------------------------

    def plan(self, group: str, run: str) -> tuple[RunPlan, str] | None:
        """A run's plan and its hash; where it is gone, or is not as it was, as the run's manifest tells it; or None."""
        name = f"{self.folder(group, run)}/{PLAN}"
        data, told = self.store.read(name), self._plan_of_manifest(group, run)
        if data is None or (told is not None and told[1] != digest(data)):
            return told
        return decode_plan(f"{self.store.uri}/{name}", data), digest(data)

    def _plan_of_manifest(self, group: str, run: str) -> tuple[RunPlan, str] | None:
        for name in self.store.names(self.folder(group, run)):
            if name not in (PLAN, SETTLED):
                with suppress(DamagedDocumentError):
                    found = self.manifest(group, run, None if name == MANIFEST else name)
                    if found is not None and (found[0].group, found[0].run) == (group, run):
                        return found[0].planned_as, found[0].plan
        return None

    def manifest(self, group: str, run: str, attempt: str | None = None) -> tuple[Manifest, str] | None:
        """A run's manifest and its hash. With ``attempt``: the one of that attempt, decided or not."""
        folder = self.folder(group, run) + (f"/{attempt}" if attempt else "")
        data = self.store.read(f"{folder}/{MANIFEST}")
        if data is None:
            return None
        return decode_manifest(f"{self.store.uri}/{folder}/{MANIFEST}", data), digest(data)

    def named(self, group: str, pointer: Pointer) -> Manifest | None:
        """The manifest that a pointer names; None where it is not here, or not as it was decided. Raises
        ``DamagedDocumentError`` where one is here, and cannot be read."""
        damage: DamagedDocumentError | None = None
        for attempt in (pointer.attempt, None):
            try:
                found = self.manifest(group, pointer.run, attempt)
            except DamagedDocumentError as error:
                damage = error
                continue
            if found is not None and found[1] == pointer.manifest:
                return found[0]
        if damage is not None:
            raise damage
        return None

    def later(self, group: str, run: str) -> str | None:
        """The newest run of a group that was decided, if that is not this one but came after it."""
        newest = self.last(group, but=run).run
        if newest is None or _number(newest) < _number(run):
            return None
        if _number(newest) == _number(run):  # one was elsewhere when the other was planned
            mine, theirs = self.plan(group, run), self.plan(group, newest)
            if mine is not None and theirs is not None and mine[0].planned > theirs[0].planned:
                return None
        return newest

    def settled(self, group: str, run: str) -> Settled | None:
        """How a run was ended by hand, if it was."""
        name = f"{self.folder(group, run)}/{SETTLED}"
        data = self.store.read(name)
        return None if data is None else decode_settled(f"{self.store.uri}/{name}", data)

    def last(self, group: str, but: str | None = None) -> LastRun:
        """The newest run of a group that was decided, ``but`` for this one, and what it and all others account for.

        Its own document tells that, as long as it knew of all runs that are here. Those that it did not, since they
        were elsewhere for a while, or were filed late, are read; so are all, where some have gone since.
        """
        before = [run for run in self.runs(group) if run != but]
        undecided: list[str] = []
        while before:
            run = before.pop()
            names = self.store.names(self.folder(group, run))
            if MANIFEST in names and (found := self.manifest(group, run)):
                settled = self.settled(group, run) if SETTLED in names else None
                return self._with_others(group, run, found[0], settled, before, undecided)
            undecided.append(run)
        return LastRun(None, {}, undecided=tuple(undecided))

    def _with_others(
        self,
        group: str,
        newest: str,
        manifest: Manifest,
        settled: Settled | None,
        before: Sequence[str],
        later: Iterable[str],
    ) -> LastRun:
        roll, coverage = (settled or manifest).roll, (settled or manifest).coverage
        doubtful: list[str] = []
        if roll is not None:  # those of older releases are taken at their word
            doubtful = [run for run in before if run in roll.undecided]
            if roll_of(set(before) - set(doubtful)).names != roll.names:
                doubtful = list(before)
        undecided = {*later}
        if doubtful:
            documents = self.documents(group)
            undecided |= {run for run in doubtful if MANIFEST not in documents.get(run, ())}
        clusters = frozenset({manifest.cluster} if coverage else ())
        if read := [run for run in doubtful if run not in undecided]:
            coverage, clusters = self._merged(group, newest, accounted_by(manifest, settled), tuple(read))
        told = {*before, newest} - undecided
        missing = tuple(sorted(undecided, key=_order))
        return LastRun(newest, coverage, manifest.cluster, manifest.joined, frozenset(told), missing, clusters)

    def _merged(
        self, group: str, newest: str, word: Accounted, runs: tuple[str, ...]
    ) -> tuple[Mapping[str, TopicCoverage], frozenset[str]]:
        """What the newest run accounts for, with what these do, the oldest first; and of which clusters that is."""
        key = (group, (*runs, newest))
        if key not in self._together:
            answers = at_once(partial(self.accounted, group), runs)
            told = {run: answer.result() for run, answer in zip(runs, answers, strict=True)}
            # From one to the one that it followed, as far as these are there; what is older counts as known.
            known, last = {newest}, word.previous
            while last is not None and last not in known:
                known.add(last)
                found = told.get(last)
                last = found.previous if found is not None else None
            oldest = min(map(_number, known))
            others = (
                (one, run not in known and _number(run) >= oldest) for run, one in told.items() if one is not None
            )
            clusters = (one.cluster for one in (word, *told.values()) if one is not None and one.coverage)
            self._together[key] = merged(word, others), frozenset(clusters)
        return self._together[key]

    def accounted(self, group: str, run: str) -> Accounted | None:
        """What a run and those that it knew of account for; None where it has no manifest."""
        found = self.manifest(group, run)
        return None if found is None else accounted_by(found[0], self.settled(group, run))

    def documents(self, group: str) -> dict[str, set[str]]:
        """What lies in the folders of a group's runs, the oldest first: two listings, however many runs there are."""
        kept: dict[str, set[str]] = {run: set() for run in self.runs(group)}
        folder = f"{WORK}/{group}/"
        unlisted: list[str] = []
        for file in self.store.walk(folder[:-1], unlisted.append):
            run, _, name = file.name.removeprefix(folder).partition("/")
            if run in kept:
                kept[run].add(name.partition("/")[0])
        for run, names in kept.items():
            if unlisted and MANIFEST not in names:  # it may be the run's own folder that cannot be listed
                names.update(self.store.names(self.folder(group, run)))
        return kept

    # --- files ------------------------------------------------------------------------------------------------------

    def published(self, topic: str, partition: int | None = None) -> Iterator[Published]:
        """What final names tell of a topic; with ``partition`` at least its files, of its own folder if it has one."""
        folder = f"topic={topic}"
        if partition is not None and f"partition={partition}" in self.store.names(folder):
            folder += f"/partition={partition}"
        yield from self.named_below(folder)

    def named_below(self, folder: str) -> Iterator[Published]:
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

    def exact(self, name: str, final: str | None = None) -> Mapping[int, Sequence[Interval]] | None:
        """The offsets of a file's rows, of each partition; None where it is not there, or cannot be read. ``final``:
        see ``offsets_held``."""
        from zkgroup.export.lake.footer import UnreadableFileError, offsets_held

        if name not in self._exact:
            try:
                self._exact[name] = offsets_held(self.store, name, final)
            except UnreadableFileError:
                return None
        return self._exact[name]

    def slices(self, file: Published) -> tuple[Slice, ...]:
        """The ranges of a file. Of several its footer has the list."""
        from zkgroup.export.lake.footer import read_footer

        told = file.told
        if not told.more:
            return (Slice(told.partition, told.start, told.end, 0),)
        if file.name not in self._slices:
            self._slices[file.name] = read_footer(self.store, file.name).slices
        return self._slices[file.name]

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


def roll_of(runs: Iterable[str], undecided: Iterable[str] = ()) -> Roll:
    """The roll of these runs."""
    return Roll(digest("\n".join(sorted(runs)).encode()), tuple(undecided))


def _number(run: str) -> int:
    return int(run.partition("-")[0])


def _order(run: str) -> tuple[int, str]:
    return _number(run), run
