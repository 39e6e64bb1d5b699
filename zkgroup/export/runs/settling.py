"""How a decided run that cannot be committed is ended by hand. Each step may be repeated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from zkgroup.errors import RefusedError, ZkgroupError
from zkgroup.export.lake.begun import remember
from zkgroup.export.lake.coverage import extended
from zkgroup.export.lake.lake import MANIFEST, SETTLED, Lake
from zkgroup.export.model.documents import encode_manifest, encode_settled
from zkgroup.export.model.rundata import Manifest, ManifestFile, Pointer, Settled, TopicCoverage, now_ms
from zkgroup.export.model.shell import export_command
from zkgroup.export.planning.group import ExportGroup
from zkgroup.export.runs.assembling import refuse_shared
from zkgroup.export.runs.claim import ExportClaim
from zkgroup.export.runs.last_copies import refuse_filed_before, refuse_last_copies
from zkgroup.export.runs.surroundings import Surroundings
from zkgroup.export.runs.under_way import UnderWay
from zkgroup.protocol.names import TopicPartition
from zkgroup.words import are, counted, listed


def keep(run: UnderWay, manifest: Manifest) -> None:
    """End a published run: offsets that somebody else moved stay as they are, all others are committed."""
    left = run.claim.persist(lambda: _left(run, manifest))
    _file(run, Settled("keep", now_ms(), tuple(sorted(left)), manifest.coverage, manifest.roll))
    run.claim.commit(run.pointer, manifest.parts, leave=frozenset(left), passed=run.surroundings.passed)


def _left(run: UnderWay, manifest: Manifest) -> set[TopicPartition]:
    """The partitions whose offset is not ours to move any more."""
    claim, plan = run.claim, run.plan
    found = ExportGroup(claim.registry, plan.group, run.surroundings.warn).identities(plan.topics)
    remade = {topic for topic, planned in plan.topics.items() if topic in found and not found[topic].same(planned)}
    moved = {part.plan.partition for part, _ in claim.conflicts(manifest.parts)}
    return moved | {p.plan.partition for p in manifest.parts if p.moves and p.plan.partition.topic in remade}


def withdraw(run: UnderWay, manifest: Manifest, *, skip_lost: bool) -> None:
    """decided → withdrawn → (none): take back the files of what is not committed. Before anything is changed raises
    ``RefusedError`` where that would lose messages, without ``skip_lost`` also those that only these files hold."""
    lake, plan = run.lake, run.plan
    if run.pointer.state == "decided":
        open_parts = _open(run, manifest)
        if plan.kind == "export":
            refuse_shared(manifest, open_parts)
        refuse_filed_before(run)
        refuse_last_copies(run, manifest, open_parts, skip_lost=skip_lost)
    withdrawn = replace(run.pointer, state="withdrawn")
    run.claim.point(run.pointer, withdrawn)
    settled = lake.settled(plan.group, plan.run)
    if settled is None or settled.how != "withdraw":
        open_parts = _open(run, manifest)
        kept = [part for part in manifest.parts if part.plan.partition not in open_parts]
        before = lake.last(plan.group, but=plan.run)
        coverage: Mapping[str, TopicCoverage] = (
            extended(before.coverage, plan.topics, kept, fills=plan.kind == "backfill") if kept else before.coverage
        )
        settled = Settled("withdraw", now_ms(), tuple(sorted(open_parts)), coverage, before.roll(plan.run))
        _file(run, settled)
    # As of a run that was dropped before its decision.
    remember(lake, replace(plan, partitions=tuple(part for part in plan.partitions if part.partition in settled.left)))
    for file in manifest.files:
        if any(TopicPartition(file.topic, one.partition) in settled.left for one in file.slices):
            _take_back(run, file)
    run.surroundings.passed("files taken back")
    lake.store.write(f"{run.folder}/{MANIFEST}", encode_manifest(manifest))
    run.claim.drop(withdrawn)


def _open(run: UnderWay, manifest: Manifest) -> set[TopicPartition]:
    """The partitions of which nothing is committed."""
    if run.plan.kind == "backfill":
        return {part.plan.partition for part in manifest.parts}
    return run.claim.persist(lambda: run.claim.unmoved(manifest.parts))


def forget(claim: ExportClaim, lake: Lake, pointer: Pointer, surroundings: Surroundings) -> None:
    """End what the pointer says, and nothing else: for a lake that is lost. Where it is not, tell what stays there, and
    what that means for the next export. Raises ``RefusedError`` where messages would be in no file."""
    group, run = claim.group, pointer.run
    try:
        manifest = lake.named(group, pointer) if pointer.manifest is not None else None
        published = [file for file in manifest.files if lake.store.size(file.name) == file.bytes] if manifest else []
        filed = MANIFEST in lake.store.names(lake.folder(group, run))
    except ZkgroupError:
        manifest, published, filed = None, [], False  # lost
    if manifest is not None and pointer.state == "committed":
        raise RefusedError(
            f"the offsets of run {run} are committed, and its files are in {lake.store.uri}: forgotten, their messages "
            "would be lost",
            "--settle keep publishes them, as the same command without --settle does",
        )
    if not claim.drop(pointer):
        return
    if filed and pointer.state == "decided":
        surroundings.warn(
            f"run {run} of group {group} stays among the exports in {lake.store.uri}, and the group stands behind it: "
            "--on-disagreement lake goes on where it ends"
        )
    elif published:
        surroundings.warn(
            f"run {run} of group {group} is forgotten, and {counted(len(published), 'file')} of it "
            f"{are(len(published))} published in {lake.store.uri} ({listed([file.name for file in published])}): "
            f"the next export is refused until {export_command(lake.store.destination, '--adopt', group)} enters what "
            "is there, or it is moved away"
        )


def _take_back(run: UnderWay, file: ManifestFile) -> None:
    """Where two runs have a file of one name, only the one that wrote what is there takes it back."""
    from zkgroup.export.lake.footer import UnreadableFileError, read_footer  # pyarrow: most exports do without

    store, warn = run.lake.store, run.surroundings.warn
    if store.size(file.name) is None:
        return
    try:
        written = read_footer(store, file.name).told.get("file")
    except UnreadableFileError as error:
        warn(f"{error.message}: it is left where it is")
        return
    if written == file.work.rpartition("/")[2].removesuffix(".tmp"):
        store.unpublish(file.name)
    else:
        warn(f"{store.uri}/{file.name} was written by another run: it stays")


def _file(run: UnderWay, settled: Settled) -> None:
    run.lake.store.write(f"{run.folder}/{SETTLED}", encode_settled(settled))
    run.surroundings.passed("settlement filed")
