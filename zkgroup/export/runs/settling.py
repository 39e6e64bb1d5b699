"""How a decided run that cannot be committed is ended by hand. Each step may be repeated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from zkgroup.errors import RefusedError, ZkgroupError
from zkgroup.export.lake.begun import read_begun, remember
from zkgroup.export.lake.coverage import extended
from zkgroup.export.lake.lake import MANIFEST, SETTLED, Lake
from zkgroup.export.model.documents import encode_manifest, encode_settled
from zkgroup.export.model.rundata import Manifest, ManifestFile, Pointer, Settled, TopicCoverage, now_ms
from zkgroup.export.model.shell import export_command
from zkgroup.export.planning.group import ExportGroup
from zkgroup.export.runs.assembling import refuse_shared
from zkgroup.export.runs.claim import ExportClaim
from zkgroup.export.runs.last_copies import is_there, is_written_by, later_run, refuse_filed_before, refuse_last_copies
from zkgroup.export.runs.publishing import publish
from zkgroup.export.runs.surroundings import Surroundings
from zkgroup.export.runs.under_way import UnderWay
from zkgroup.protocol.names import TopicPartition
from zkgroup.words import are, counted, listed


def keep(run: UnderWay, manifest: Manifest) -> None:
    """decided → (none): publish a run; offsets that somebody else moved stay as they are, all others are committed.
    One that was being taken back is kept as long as none of its files is gone."""
    if run.is_taken_back():
        _bring_back(run, manifest)
    publish(run, manifest)
    left = run.claim.persist(lambda: _left(run, manifest))
    _file(run, Settled("keep", now_ms(), tuple(sorted(left)), manifest.coverage, manifest.roll))
    run.claim.commit(run.pointer, manifest.parts, leave=frozenset(left), passed=run.surroundings.passed)


def _bring_back(run: UnderWay, manifest: Manifest) -> None:
    """withdrawn → decided. Raises ``RefusedError`` where files are gone."""
    if gone := [file.name for file in manifest.files if not is_there(run, file)]:
        raise RefusedError(
            f"{run} is being taken back, and {counted(len(gone), 'file')} of it {are(len(gone))} gone "
            f"({listed(gone, most=3)})",
            "--settle withdraw goes on with that",
        )
    run.lake.store.unpublish(f"{run.folder}/{SETTLED}")  # before the pointer: what is decided is not settled so
    decided = replace(run.pointer, state="decided")
    run.claim.point(run.pointer, decided)
    run.pointer = decided
    run.surroundings.passed("decided again")


def _left(run: UnderWay, manifest: Manifest) -> set[TopicPartition]:
    """The partitions whose offset is not ours to move any more."""
    claim, plan = run.claim, run.plan
    found = ExportGroup(claim.registry, plan.group, run.surroundings.warn).identities(plan.topics)
    remade = {topic for topic, planned in plan.topics.items() if topic in found and not found[topic].same(planned)}
    moved = {part.plan.partition for part, _ in claim.conflicts(manifest.parts)}
    return moved | {p.plan.partition for p in manifest.parts if p.moves and p.plan.partition.topic in remade}


def withdraw(run: UnderWay, manifest: Manifest, *, skip_lost: bool) -> None:
    """decided → withdrawn → (none): take back the files of what is not committed. Before anything more of it goes
    raises ``RefusedError`` where that would lose messages, without ``skip_lost`` also those that only these files
    hold."""
    lake, plan, fills = run.lake, run.plan, run.plan.kind == "backfill"
    settled = lake.settled(plan.group, plan.run)
    if settled is None or settled.how != "withdraw":
        settled, taken_back = None, _open(run, manifest)
        if not fills:
            refuse_shared(manifest, taken_back)
        refuse_filed_before(run)
    else:
        taken_back = {*settled.left}
    read_begun(lake, plan.group)  # which is to be written: rather now than when the run cannot be kept any more
    refuse_last_copies(run, manifest, taken_back, "withdraw", skip_lost=skip_lost)
    withdrawn = replace(run.pointer, state="withdrawn")
    run.claim.point(run.pointer, withdrawn)
    run.pointer = withdrawn
    run.surroundings.passed("withdrawn")
    if settled is None:
        taken_back = _open(run, manifest)
        kept = [part for part in manifest.parts if part.plan.partition not in taken_back]
        before = lake.last(plan.group, but=plan.run)
        coverage: Mapping[str, TopicCoverage] = (
            extended(before.coverage, plan.topics, kept, fills=fills) if kept else before.coverage
        )
        _file(run, Settled("withdraw", now_ms(), tuple(sorted(taken_back)), coverage, before.roll(plan.run)))
    if later_run(run) is None:  # as of a run that was dropped before its decision
        remember(
            lake, replace(plan, partitions=tuple(part for part in plan.partitions if part.partition in taken_back))
        )
    for file in manifest.files:
        if any(TopicPartition(file.topic, one.partition) in taken_back for one in file.slices):
            _take_back(run, file)
    run.surroundings.passed("files taken back")
    lake.store.write(f"{run.folder}/{MANIFEST}", encode_manifest(manifest))
    run.claim.drop(withdrawn)


def _open(run: UnderWay, manifest: Manifest) -> set[TopicPartition]:
    """The partitions of which nothing is committed."""
    if run.plan.kind == "backfill":
        return {part.plan.partition for part in manifest.parts}
    return run.claim.persist(lambda: run.claim.unmoved(manifest.parts))


def forget(claim: ExportClaim, lake: Lake, pointer: Pointer, surroundings: Surroundings, *, skip_lost: bool) -> None:
    """End what the pointer says, and nothing else: for a lake that is lost. Where it is not, tell what stays there, and
    what that means for the next export. Raises ``RefusedError`` where messages would be in no file, and in no log."""
    group, name = claim.group, pointer.run
    try:
        manifest = lake.named(group, pointer) if pointer.manifest is not None else None
        published = [file for file in manifest.files if lake.store.size(file.name) == file.bytes] if manifest else []
        filed = MANIFEST in lake.store.names(lake.folder(group, name))
        plan = lake.plan(group, name)
    except ZkgroupError:
        manifest, published, filed, plan = None, [], False, None  # lost
    if manifest is not None and pointer.state == "committed":
        raise RefusedError(
            f"the offsets of run {name} are committed, and its files are in {lake.store.uri}: forgotten, their "
            "messages would be lost",
            "--settle keep publishes them, as the same command without --settle does",
        )
    counts = filed and pointer.state == "decided"
    if manifest is not None and plan is not None:
        run = UnderWay(claim, lake, plan[0], pointer, surroundings)
        refuse_last_copies(run, manifest, _open(run, manifest), "forget", skip_lost=skip_lost)
        counts = counts and not run.is_taken_back()
    if not claim.drop(pointer):
        return
    if counts:
        surroundings.warn(
            f"run {name} of group {group} stays among the exports in {lake.store.uri}, and the group stands behind it: "
            "--on-disagreement lake goes on where it ends"
        )
    elif published:
        surroundings.warn(
            f"run {name} of group {group} is forgotten, and {counted(len(published), 'file')} of it "
            f"{are(len(published))} published in {lake.store.uri} ({listed([file.name for file in published])}): "
            f"the next export is refused until {export_command(lake.store.destination, '--adopt', group)} enters what "
            "is there, or it is moved away"
        )


def _take_back(run: UnderWay, file: ManifestFile) -> None:
    """Where two runs have a file of one name, only the one that wrote what is there takes it back; and only as long as
    nobody else has ended the run, as while this process stood still."""
    from zkgroup.export.lake.footer import UnreadableFileError  # pyarrow: most exports do without

    store, warn = run.lake.store, run.surroundings.warn
    if store.size(file.name) is None:
        return
    try:
        ours = is_written_by(run, file)
    except UnreadableFileError as error:
        warn(f"{error.message}: it is left where it is")
        return
    if not ours:
        warn(f"{store.uri}/{file.name} was written by another run: it stays")
        return
    found, _ = run.claim.persist(run.claim.pointer)
    if found != run.pointer:
        raise run.claim.taken_over(found)
    store.unpublish(file.name)


def _file(run: UnderWay, settled: Settled) -> None:
    run.lake.store.write(f"{run.folder}/{SETTLED}", encode_settled(settled))
    run.surroundings.passed("settlement filed")
