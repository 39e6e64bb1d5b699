"""Manifests for files that none names any more: somebody has deleted ``_zkgroup``, or a run of it, or has damaged it.

A footer tells its file's group, ranges, layout and log: enough to enter it anew. What it does not tell is why offsets
are in no file: control records, compaction, or a file that is missing too. Where folders are not of times, a file has
all messages of its ranges, and the rest is recorded as ``unrecorded``. Where they are, the messages of a range lie in
many files: unless their rows are as many as their offsets, or runs that are known account for the others, nobody can
tell whether one is missing, and the operator has to say that none is.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from zkgroup.errors import NotFoundError, RefusedError
from zkgroup.export.lake.coverage import extended
from zkgroup.export.lake.decided import decided
from zkgroup.export.lake.footer import Footer
from zkgroup.export.lake.holdings import UNKNOWN, Exact, Holdings, Incarnation, is_of_times, offsets_of
from zkgroup.export.lake.judging import LOOKS, look_at, wrong_with
from zkgroup.export.lake.lake import MANIFEST, Lake
from zkgroup.export.lake.replacing import Place, follow, missing_from, replaced
from zkgroup.export.lake.strays import stray_files
from zkgroup.export.model.documents import decode_layout, decode_log, encode_manifest
from zkgroup.export.model.encoding import DamagedDocumentError
from zkgroup.export.model.intervals import Interval, holes, overlaps, subtract, union
from zkgroup.export.model.layout import Layout
from zkgroup.export.model.rundata import Manifest, ManifestFile, ManifestPart, TopicCoverage, TopicIdentity, now_ms
from zkgroup.export.model.words import Lost, PartitionPlan, Skipped, Slice
from zkgroup.protocol.names import TopicPartition
from zkgroup.words import counted, listed

_SHOWN: Final = 3


class Orphan(NamedTuple):
    """A whole file that no manifest names, as it tells of itself."""

    file: ManifestFile
    run: str
    identity: TopicIdentity
    layout: Layout

    def place(self, one: Slice) -> Place:
        """Where a range of it is."""
        return Place(self.file.name.rpartition("/")[0], one.partition, self.identity.tag)


@dataclass
class _Known:
    """What manifests of all groups tell: of files, of offsets that are accounted for, and of each mark's log; the files
    that are there; and what is missing of this group's."""

    holdings: Holdings
    logs: dict[tuple[str, str | None], TopicIdentity]
    there: Collection[str]
    missing: Mapping[Place, Sequence[Lost]]
    adopted: Mapping[Incarnation, Sequence[tuple[Interval, str]]]  # what adoptions account for, and their folders
    # What files hold that are not to be entered now: those of other groups, and those under other names than theirs.
    foreign: dict[Incarnation, list[tuple[str, Slice]]] = field(default_factory=lambda: defaultdict(list))

    def accounted(self, key: Incarnation, exact: Exact) -> list[Interval]:
        """What runs account for, and what is in such files."""
        found = list(self.holdings.held(key))
        for name, one in self.foreign.get(key, ()):
            told = exact(name)
            found += [(one.start, one.end)] if told is None else told.get(one.partition, ())
        return found


def adopt(
    lake: Lake, group: str, cluster: str, attempt: str, topics: Collection[str] = (), *, skip_lost: bool,
    warn: Callable[[str], None],
) -> list[Manifest]:  # fmt: skip
    """Write manifests for the ``group``'s files that none names, of these topics, or of all; the group stays where it
    is. To be called under its claim, while no run of it is under way. ``warn`` is told of each file that is not
    adopted, and why.

    A file is left where it is unless it is whole, of this ``cluster``, and alone with its messages; those of a file
    that is missing it may hold in its place. Several manifests where there are files of several incarnations of a
    topic; a call that is killed between them may be repeated.

    Raises ``NotFoundError`` where there is no file to adopt, ``RefusedError`` for files in folders of times with fewer
    rows than offsets, unless ``skip_lost``, and where a manifest cannot be read.
    """
    folders = [name.removeprefix("topic=") for name in lake.store.names("") if name.startswith("topic=")]
    if not folders:
        raise NotFoundError(f"{lake.store.uri} has no files of any topic", "check --to")
    chosen = [topic for topic in folders if not topics or topic in topics]
    if unknown := sorted(set(topics) - set(folders)):
        raise NotFoundError(f"{lake.store.uri} has no files of topic {listed(unknown)}", "check the names")
    known = _read_known(lake, group, chosen)
    orphans, again = _alone(list(_whole(lake, group, cluster, chosen, known, warn)), known, lake.exact, warn)
    if not orphans:
        raise NotFoundError(
            f"{lake.store.uri} has no file of group {group} to adopt",
            "--verify tells which files no manifest names, and what is to be done about those that cannot be adopted",
        )
    binding = lake.layout()
    if alien := next((orphan for orphan in orphans if orphan.layout != binding), None):
        told = "another one" if binding is None else binding.told()
        raise RefusedError(
            f"{lake.store.uri}/{alien.file.name} was written with {alien.layout.told()}, and the lake has {told}",
            "readers need one layout and one schema: move the files of one of the two away",
        )
    of_times = orphans[0].layout.timed
    spanning = skip_lost and of_times
    entered = [(files, _parts(files, again, known, lake.exact, spanning=spanning)) for files in _generations(orphans)]
    doubtful = [
        part for _, parts in entered for part in parts if of_times and "unrecorded" in part.gaps and not part.plan.again
    ]
    if doubtful and not skip_lost:
        count = counted(sum(part.gaps["unrecorded"] for part in doubtful), "offset")
        few = listed([f"{part.plan.partition} {part.plan.start} to {part.end - 1}" for part in doubtful], most=_SHOWN)
        runs = {
            orphan.run
            for part in doubtful
            for orphan in orphans
            for one in orphan.file.slices
            if (orphan.file.topic, one.partition) == part.plan.partition and _meets((part.plan.start, part.end), one)
        }
        raise RefusedError(
            f"{count} among those of the files are in none of them ({few}): aborted or compacted messages, or files "
            "that are missing as well, which no footer tells where folders are of times",
            "restore the manifests from a copy; if a run among these was never finished, move its files away "
            f"({listed(sorted(runs), most=_SHOWN)}); if no file is missing, --skip-lost adopts them and records that",
        )
    return [_write(lake, group, cluster, attempt, files, parts) for files, parts in entered]


def _read_known(lake: Lake, group: str, topics: Iterable[str]) -> _Known:
    holdings, logs = Holdings(lake.exact), dict[tuple[str, str | None], TopicIdentity]()
    adopted: dict[Incarnation, list[tuple[Interval, str]]] = defaultdict(list)
    for one in lake.groups():
        try:
            for manifest, withdrawn in decided(lake, one):
                holdings.add(manifest, withdrawn)
                told = manifest.logs
                logs |= {(topic, identity.tag): identity for topic, identity in told.items()}
                for part in manifest.parts if manifest.kind == "adoption" else ():
                    topic, number = part.plan.partition
                    key = Incarnation(topic, number, told[topic].tag)
                    adopted[key].append(((part.plan.start, part.end), lake.folder(one, manifest.run)))
        except DamagedDocumentError as error:
            raise RefusedError(
                error.message, "restore it from a copy, or move it away, and run this again: its files are adopted then"
            ) from None
    there = {file.name for topic in topics for file in lake.published(topic)}
    follow(holdings, there)
    own = {name: live for name, live in holdings.files.items() if live.group == group}
    return _Known(holdings, logs, there, missing_from(own, there), adopted)


def _whole(
    lake: Lake, group: str, cluster: str, topics: Collection[str], known: _Known, warn: Callable[[str], None]
) -> Iterator[Orphan]:
    """The group's files that no manifest names and that are as they were written; ``known`` is told of the others."""
    with ThreadPoolExecutor(LOOKS, thread_name_prefix="zkgroup-adopt") as pool:
        for topic in topics:
            unnamed = [file for file in lake.published(topic) if file.name not in known.holdings.files]
            for file, look in pool.map(lambda file: (file, look_at(lake, file)), unnamed):
                if look.unopened is not None and file.size:
                    raise look.unopened  # what it holds may be what would be entered as lost
                told = {} if look.footer is None else look.footer.told
                wrong = wrong_with(file, look, None)
                if look.footer is not None and (wrong or told.get("group") != group):
                    _enter_foreign(known, file.name, look.footer)
                if look.footer is not None and told.get("group") != group:
                    continue
                found = decode_log(told.get("log", ""))
                if wrong or look.footer is None:
                    warn(f"{file.name}{wrong[0]}: it is not adopted")
                elif found is None or "layout" not in told:
                    warn(f"{file.name} does not tell its log (an older release wrote it): it is not adopted")
                elif found[0] != cluster:
                    warn(f"{file.name} is of cluster {found[0]}, and this is {cluster}: it is not adopted")
                else:
                    slices = look.footer.slices
                    rows = look.footer.metadata.num_rows
                    entry = ManifestFile(told.get("file", ""), file.name, topic, rows, file.size, slices)
                    layout = decode_layout(f"the layout in {lake.store.uri}/{file.name}", told["layout"])
                    yield Orphan(entry, look.footer.run, found[1], layout)
    for name, footer in stray_files(lake, topics):
        _enter_foreign(known, name, footer)


def _enter_foreign(known: _Known, name: str, footer: Footer) -> None:
    log = decode_log(footer.told.get("log", ""))
    for one in footer.slices:
        key = Incarnation(footer.told.get("topic", ""), one.partition, None if log is None else log[1].tag)
        known.foreign[key].append((name, one))


def _alone(
    orphans: list[Orphan], known: _Known, exact: Exact, warn: Callable[[str], None]
) -> tuple[list[Orphan], Mapping[Place, Sequence[Lost]]]:
    """Those whose messages are in no other file, and in no run's account, unless they take the place of files that are
    missing; and what they are in the place of."""
    while True:
        ground = _Ground(orphans, known, exact)
        whys = [ground.against(orphan) for orphan in orphans]
        alone = [orphan for orphan, why in zip(orphans, whys, strict=True) if why is None]
        for why in filter(None, whys):
            warn(f"{why}: it is not adopted")
        if len(alone) == len(orphans):
            return alone, ground.again
        orphans = alone  # without the others, what is left may take nobody's place any more


class _Ground:
    """What these files meet in the lake, and one another."""

    def __init__(self, orphans: Sequence[Orphan], known: _Known, exact: Exact) -> None:
        slices: dict[Place, list[Slice]] = defaultdict(list)
        for orphan in orphans:
            for one in orphan.file.slices:
                slices[orphan.place(one)].append(one)
        self._known = known
        self._exact = exact
        timed = any(orphan.layout.timed for orphan in orphans)
        self.again = {
            place: replaced(lost, slices[place], timed=timed)
            for place, lost in known.missing.items()
            if place in slices
        }
        ranges = {place: [(one.start, one.end) for one in some] for place, some in slices.items()}
        for name, live in known.holdings.files.items():
            for one in live.file.slices if name in known.there else ():
                place = Place(name.rpartition("/")[0], one.partition, live.tag)
                ranges.setdefault(place, []).append((one.start, one.end))
        self._twice = {place: overlaps(intervals) for place, intervals in ranges.items()}
        keys = {Incarnation(o.file.topic, one.partition, o.identity.tag) for o in orphans for one in o.file.slices}
        self._taken = {key: union(known.holdings.taken(key)) for key in keys}
        self._logs = dict(known.logs)

    def against(self, orphan: Orphan) -> str | None:
        """Why a file is not to be entered, if it is not."""
        name, topic, tag = orphan.file.name, orphan.file.topic, orphan.identity.tag
        if not self._logs.setdefault((topic, tag), orphan.identity).same(orphan.identity):
            return f"{name} is of another log than files beside it whose names are marked alike"
        for one in orphan.file.slices:
            place = orphan.place(one)
            for low, high in self._twice[place]:
                if _meets((low, high), one):
                    return f"{name} and another file hold offsets {low} to {high - 1} of {topic}-{one.partition}"
            if any(_meets((lost.start, lost.end), one) for lost in self.again.get(place, ())):
                continue
            few = f"{name} holds offsets {one.start} to {one.end - 1} of {topic}-{one.partition}"
            for lost in self._known.missing.get(place, ()):
                if _meets((lost.start, lost.end), one):
                    return f"{few}, and {lost.file}, which is missing, held other messages of these"
            key = Incarnation(topic, one.partition, tag)
            near = [interval for interval in self._taken[key] if _meets(interval, one)]
            if near and overlaps([*near, *offsets_of(name, one, self._exact)]):
                why = f"{few}, which runs account for that do not name it"
                folders = [folder for interval, folder in self._known.adopted.get(key, ()) if _meets(interval, one)]
                # Without folders of times it holds what another file holds, or held.
                return (
                    f"{why} (remove {folders[-1]}, and --adopt enters both)" if folders and orphan.layout.timed else why
                )
        return None


def _meets(interval: Interval, one: Slice) -> bool:
    return one.start < interval[1] and interval[0] < one.end


def _generations(orphans: Iterable[Orphan]) -> list[list[Orphan]]:
    """Dealt out so that none has two incarnations of a topic; the oldest of each first."""
    by_log: dict[str, dict[str | None, list[Orphan]]] = defaultdict(lambda: defaultdict(list))
    for orphan in orphans:
        by_log[orphan.file.topic][orphan.identity.tag].append(orphan)
    dealt: list[list[Orphan]] = []
    for logs in by_log.values():
        for place, some in enumerate(sorted(logs.values(), key=lambda some: some[0].identity.czxid)):
            if place == len(dealt):
                dealt.append([])
            dealt[place] += some
    return dealt


def _parts(
    orphans: Iterable[Orphan],
    again: Mapping[Place, Sequence[Lost]],
    known: _Known,
    exact: Exact,
    *,
    spanning: bool,
) -> list[ManifestPart]:
    """What these files account for; ``spanning``: and what lies between them, in no run's account, is known to be no
    messages."""
    fresh: dict[TopicPartition, list[tuple[str, Slice]]] = defaultdict(list)
    instead: dict[TopicPartition, set[Lost]] = defaultdict(set)
    held: dict[TopicPartition, list[tuple[str, Slice]]] = defaultdict(list)  # in their place
    tags: dict[str, str | None] = {}
    for orphan in orphans:
        tags[orphan.file.topic] = orphan.identity.tag
        for one in orphan.file.slices:
            partition = TopicPartition(orphan.file.topic, one.partition)
            if lost := [lost for lost in again.get(orphan.place(one), ()) if _meets((lost.start, lost.end), one)]:
                instead[partition].update(lost)
                held[partition].append((orphan.file.name, one))
            else:
                fresh[partition].append((orphan.file.name, one))
    parts: list[ManifestPart] = []
    for partition, some in fresh.items():
        whole = union((one.start, one.end) for _, one in some)
        of_times = any(is_of_times(name) for name, _ in some)  # elsewhere a file has its range alone
        taken = known.accounted(Incarnation(*partition, tags[partition.topic]), exact) if of_times else []
        between = [piece for hole in holes(whole) for piece in subtract(hole, taken)] if spanning else []
        for low, high in whole:
            skipped = tuple(Skipped("unrecorded", *piece) for piece in between if piece[1] <= low)
            between = between[len(skipped) :]
            here = [(name, one) for name, one in some if low <= one.start and one.end <= high]
            plan = PartitionPlan(partition, None, None, low, high, skipped, commits=False)
            nowhere = _nowhere((low, high), here, held[partition], taken, exact)
            parts.append(_part(plan, sum(one.rows for _, one in here), nowhere))
    for partition, files in instead.items():
        ranges = [*((lost.start, lost.end) for lost in files), *((one.start, one.end) for _, one in held[partition])]
        for low, high in union(ranges):
            them = tuple(sorted(lost for lost in files if low <= lost.start < high))
            plan = PartitionPlan(partition, None, None, low, high, commits=False, again=them)
            parts.append(_part(plan, sum(one.rows for _, one in held[partition] if low <= one.start < high)))
    return sorted(parts, key=lambda part: (part.plan.partition, part.plan.start))


def _nowhere(
    whole: Interval, here: Sequence[tuple[str, Slice]], instead: Sequence[tuple[str, Slice]], taken: Sequence[Interval],
    exact: Exact,
) -> list[Interval] | None:  # fmt: skip
    """Offsets that neither these files hold nor those ``instead`` of missing ones, and that no run accounts for; None
    where these files have their range alone."""
    if not any(
        low < whole[1] and whole[0] < high for low, high in (*taken, *((one.start, one.end) for _, one in instead))
    ):
        return None
    return subtract(
        whole, [*taken, *(held for name, one in (*here, *instead) for held in offsets_of(name, one, exact))]
    )


def _part(plan: PartitionPlan, rows: int, nowhere: Sequence[Interval] | None = None) -> ManifestPart:
    """``nowhere``: what is unrecorded; without it all that is no row."""
    offsets = plan.end - plan.start - rows
    unrecorded = offsets if nowhere is None else sum(high - low for low, high in nowhere)
    if offsets > unrecorded:  # others account for what lies between: what is unrecorded there is not to be missed
        skipped = (*plan.skipped, *(Skipped("unrecorded", *piece) for piece in nowhere or ()))
        plan = replace(plan, skipped=skipped)
    gaps = {"unrecorded": unrecorded, "elsewhere": offsets - unrecorded}
    return ManifestPart(plan, plan.end, rows, 0, {kind: count for kind, count in gaps.items() if count})


def _write(
    lake: Lake, group: str, cluster: str, attempt: str, orphans: Sequence[Orphan], parts: Sequence[ManifestPart]
) -> Manifest:
    topics = {orphan.file.topic: orphan.identity for orphan in orphans}
    last = lake.last(group)
    # Of a log that a newer one has followed, coverage says no more: exports go on in the newer one.
    newest = {topic: now for topic, now in topics.items() if not _is_followed(last.coverage.get(topic), now)}
    coverage = extended(last.coverage, newest, [part for part in parts if part.plan.partition.topic in newest])
    now = now_ms()
    run = lake.new_run(group, adoption=True)
    manifest = Manifest(
        run,
        group,
        "adoption",
        cluster,
        "",
        attempt,
        now,
        now,
        UNKNOWN,
        tuple(parts),
        coverage,
        last.run,
        tuple(orphan.file for orphan in orphans),
        orphans[0].layout,
        last.joined,
        {topic: identity for topic, identity in topics.items() if topic not in newest},
        last.roll(run),
    )
    lake.store.write(f"{lake.folder(group, manifest.run)}/{MANIFEST}", encode_manifest(manifest))
    return manifest


def _is_followed(known: TopicCoverage | None, now: TopicIdentity) -> bool:
    return known is not None and not known.identity.same(now) and known.identity.czxid > now.czxid
