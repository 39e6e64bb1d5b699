"""What a lake's runs have left there, by their manifests: which offsets are held, and which files are to be there.

Pure. Runs are taken in their order: a later one may have filled what an earlier one passed over, or have written again
what was lost of it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from typing import Final, NamedTuple, TypeAlias

from zkgroup.export.model.intervals import Interval, difference, subtract
from zkgroup.export.model.layout import Layout
from zkgroup.export.model.rundata import Manifest, ManifestFile, ManifestPart, slices_held
from zkgroup.export.model.words import Lost, Slice
from zkgroup.protocol.names import TopicPartition

#: What was passed over for these reasons may still be in the log: a backfill takes it.
FILLABLE = frozenset({"moved", "latest", "filled"})


#: The isolation of what was adopted: footers do not tell.
UNKNOWN: Final = "unknown"

#: Tells the offsets of a named file's rows, of each partition; None where it is not there, or cannot be read.
Exact: TypeAlias = Callable[[str], Mapping[int, Sequence[Interval]] | None]


class Incarnation(NamedTuple):
    """One log of a partition: ``tag`` is the mark of its topic's incarnation in file names."""

    topic: str
    partition: int
    tag: str | None


class LiveFile(NamedTuple):
    """A file that is to be there. Of its ranges, those that were not written again elsewhere. ``isolation``: its run's,
    as far as that is known."""

    file: ManifestFile
    group: str
    run: str
    tag: str | None
    layout: Layout
    isolation: str = UNKNOWN


class Holdings:
    """What decided runs hold; ``add`` them in their order, group by group. ``exact`` is asked of files in folders of
    times, where their ranges do not tell."""

    def __init__(self, exact: Exact = lambda _: None) -> None:
        self._exact = exact
        self.files: dict[str, LiveFile] = {}
        #: What runs tell of that later ones have written again without knowing of them.
        self.followed: list[tuple[LiveFile, Slice]] = []
        #: Files of which all was written again since they were lost, with the run that has it.
        self.replaced: dict[str, str] = {}
        self._held: dict[Incarnation, list[Interval]] = {}
        self._gone: dict[Incarnation, list[Interval]] = {}

    def add(self, manifest: Manifest, withdrawn: Set[TopicPartition]) -> None:
        """A run; what was ``withdrawn`` of it is not there."""
        tags = tags_of(manifest)
        slices = slices_held(manifest.parts, manifest.files)
        for part, held in zip(manifest.parts, slices, strict=True):
            topic, partition = part.plan.partition
            if part.plan.partition in withdrawn:
                continue
            place = self._held.setdefault(Incarnation(topic, partition, tags.get(topic)), [])
            gone = self._gone.setdefault(Incarnation(topic, partition, tags.get(topic)), [])
            gone += [(gap.start, gap.end) for gap in part.plan.skipped if gap.kind not in FILLABLE]
            for lost in part.plan.again:
                if lost.file in self.files:
                    self.forget(lost, partition)
                    if lost.file not in self.files:
                        self.replaced[lost.file] = manifest.run
            if is_among_others(part):
                place += held_again(part, held, place, timed=manifest.layout.timed, exact=self._exact)
            else:
                place.append((part.plan.start, part.end))
        for file in manifest.files:
            if not is_taken_back(file, withdrawn):
                if (before := self.files.get(file.name)) is not None and before.run != manifest.run:
                    self.followed += [(before, one) for one in before.file.slices]
                self.replaced.pop(file.name, None)
                self.files[file.name] = LiveFile(
                    file, manifest.group, manifest.run, tags.get(file.topic), manifest.layout, manifest.isolation
                )

    def forget(self, lost: Lost, partition: int) -> None:
        """What was written again elsewhere is not to be in this file."""
        live = self.files.get(lost.file)
        if live is None:
            return
        left = tuple(
            piece
            for one in live.file.slices
            for piece in (without(one, lost) if one.partition == partition else (one,))
        )
        if left:
            self.files[lost.file] = live._replace(file=live.file._replace(slices=left))
        else:
            del self.files[lost.file]

    def held(self, key: Incarnation) -> list[Interval]:
        """The offsets that are accounted for: exported, or gone for good."""
        return [*self._held.get(key, ()), *self._gone.get(key, ())]

    def taken(self, key: Incarnation) -> list[Interval]:
        """Those of them that are in no file which no run names: what was recorded as gone may be there again, from a
        copy, or, in a folder of times, be others' messages."""
        return difference(self._held.get(key, ()), self._gone.get(key, ()))

    def lost(self, there: Collection[str], tags: Mapping[str, str | None]) -> dict[TopicPartition, list[Lost]]:
        """The ranges of files that are not ``there``, of the topics of ``tags`` in these incarnations."""
        found: dict[TopicPartition, list[Lost]] = {}
        for live, partition, lost in missing_ranges(self.files, there):
            topic = live.file.topic
            if topic in tags and tags[topic] == live.tag:
                found.setdefault(TopicPartition(topic, partition), []).append(lost)
        return found

    def lost_of_earlier(self, there: Collection[str], tags: Mapping[str, str | None]) -> list[str]:
        """Files that are not ``there``, of other incarnations of these topics: their logs are gone."""
        return [
            name
            for name, live in self.files.items()
            if live.file.topic in tags and tags[live.file.topic] != live.tag and name not in there
        ]


def missing_ranges(files: Mapping[str, LiveFile], there: Collection[str]) -> Iterator[tuple[LiveFile, int, Lost]]:
    """Each range of those files that are not ``there``, with its file and its partition."""
    for name, live in files.items():
        for one in live.file.slices if name not in there else ():
            yield live, one.partition, Lost(name, one.start, one.end, one.rows)


def without(one: Slice, lost: Lost) -> list[Slice]:
    """What is still missing of a range where ``lost`` of it was written again: the beginning, if retention had taken
    that. No more rows than there is room for; nothing where there are none."""
    if lost.end <= one.start or one.end <= lost.start or lost.start == lost.end:
        return [one]
    left: list[Slice] = []
    rows = max(0, one.rows - lost.rows)
    for start, end in ((one.start, lost.start), (lost.end, one.end)):
        if some := max(0, min(rows, end - start)):
            left.append(Slice(one.partition, start, end, some))
            rows -= some
    return left


def is_among_others(part: ManifestPart) -> bool:
    """Whether other parts account for what lies between its messages: it was written again, or adopted, there."""
    return bool(part.plan.again) or "elsewhere" in part.gaps


def held_again(
    part: ManifestPart, files: Iterable[tuple[str, Slice]], known: Iterable[Interval], *, timed: bool, exact: Exact
) -> Iterator[Interval]:
    """Offsets that a part with these ranges of ``files`` holds among others': whoever wrote them first, and whether or
    not there is still a run that tells so. In folders of times these are the files' own; of one that is gone, the first
    and the last one. Nothing is read where all is ``known`` anyway."""
    whole = part.plan.start, part.end
    files = list(files)
    if not timed or sum(one.rows for _, one in files) == whole[1] - whole[0]:
        yield whole
    elif subtract(whole, known):
        for name, one in files:
            yield from offsets_of(name, one, exact, ((one.start, one.start + 1), (one.end - 1, one.end)))


def offsets_of(name: str, one: Slice, exact: Exact, otherwise: Sequence[Interval] = ()) -> Sequence[Interval]:
    """The offsets of a file's range, whose first and last one it tells; of a file that does not tell the rest
    ``otherwise``, or the whole range."""
    whole = ((one.start, one.end),)
    if not is_of_times(name) or one.rows == one.end - one.start:
        return whole
    told = exact(name)
    if told is None:
        return otherwise or whole
    held = told.get(one.partition, ())
    first = bisect_right(held, one.start, key=lambda interval: interval[1])
    found: list[Interval] = []
    for place in range(first, len(held)):
        low, high = held[place]
        if low >= one.end:
            break
        found.append((max(low, one.start), min(high, one.end)))
    return found


def is_of_times(name: str) -> bool:
    """Whether a file's folder is one of times: others have what lies between its messages."""
    return "/date=" in name


def tags_of(manifest: Manifest) -> dict[str, str | None]:
    """The marks of the run's topics."""
    topics = {part.plan.partition.topic for part in manifest.parts}
    return {topic: identity.tag for topic, identity in manifest.logs.items() if topic in topics}


def is_taken_back(file: ManifestFile, withdrawn: Set[TopicPartition]) -> bool:
    """Whether the file went with what was taken back."""
    return any(TopicPartition(file.topic, one.partition) in withdrawn for one in file.slices)
