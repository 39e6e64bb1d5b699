"""How a decided run that cannot be committed is ended by hand. Each step may be repeated."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Set
from dataclasses import replace

from zkgroup.errors import ZkgroupError
from zkgroup.export.lake.begun import carried_out, read_begun, remember
from zkgroup.export.lake.coverage import extended
from zkgroup.export.lake.lake import MANIFEST, SETTLED
from zkgroup.export.lake.overlap import first_time, refuse_beside
from zkgroup.export.model.documents import encode_manifest, encode_settled
from zkgroup.export.model.rundata import Manifest, ManifestFile, Settled, State, TopicCoverage, now_ms
from zkgroup.export.planning.group import ExportGroup
from zkgroup.export.runs.assembling import refuse_shared
from zkgroup.export.runs.last_copies import (
    is_there,
    is_written_by,
    later_run,
    open_partitions,
    refuse_filed_before,
    refuse_last_copies,
)
from zkgroup.export.runs.publishing import publish, publish_some, refuse_gone
from zkgroup.export.runs.under_way import UnderWay
from zkgroup.protocol.names import TopicPartition


def keep(run: UnderWay, manifest: Manifest) -> None:
    """decided → (none): publish a run; offsets that somebody else moved stay as they are, all others are committed.
    One that was being taken back is kept as long as none of its files is gone. Raises ``RefusedError`` where one is, or
    the group has members."""
    run.refuse_beside_members()
    if run.is_taken_back():
        refuse_gone(run, manifest)
        run.lake.store.unpublish(f"{run.folder}/{SETTLED}")  # before the pointer: what is decided is not settled so
        _point(run, "decided")
    publish(run, manifest)
    left = run.claim.persist(lambda: _left(run, manifest))
    _file(run, Settled("keep", now_ms(), tuple(sorted(left)), manifest.coverage, manifest.roll))
    run.claim.commit(run.pointer, manifest.parts, leave=frozenset(left), passed=run.surroundings.passed)
    with contextlib.suppress(ZkgroupError):  # the run tells better
        carried_out(run.lake, run.plan, manifest)


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
        settled, taken_back = None, refuse_withdrawing(run, manifest)
    else:
        taken_back = {*settled.left}
    read_begun(lake, plan.group)  # which is to be written: rather now than when the run cannot be kept any more
    refuse_last_copies(run, manifest, taken_back, "withdraw", skip_lost=skip_lost)
    _point(run, "withdrawn")
    if settled is None:
        taken_back = open_partitions(run, manifest)
        kept = [part for part in manifest.parts if part.plan.partition not in taken_back]
        _publish_kept(run, manifest, taken_back)
        before = lake.last(plan.group, but=plan.run)
        coverage: Mapping[str, TopicCoverage] = (
            extended(before.coverage, plan.topics, kept, fills=fills) if kept else before.coverage
        )
        _file(run, Settled("withdraw", now_ms(), tuple(sorted(taken_back)), coverage, before.roll(plan.run)))
    _refuse_if_ended(run)
    if later_run(run) is None:  # as of a run that was dropped before its decision
        remember(
            lake, replace(plan, partitions=tuple(part for part in plan.partitions if part.partition in taken_back))
        )
    for file in manifest.files:
        if any(TopicPartition(file.topic, one.partition) in taken_back for one in file.slices):
            _take_back(run, file)
    run.surroundings.passed("files taken back")
    lake.store.write(f"{run.folder}/{MANIFEST}", encode_manifest(manifest))
    run.claim.drop(run.pointer)


def refuse_withdrawing(run: UnderWay, manifest: Manifest) -> set[TopicPartition]:
    """What is to be taken back of a run. Raises ``RefusedError`` where that cannot be: others stand behind it, a file
    holds something else, too, or what stays is in the way of another file."""
    taken_back = open_partitions(run, manifest)
    if run.plan.kind != "backfill":
        refuse_shared(manifest, taken_back)
    refuse_filed_before(run, manifest)
    kept = [part for part in manifest.parts if part.plan.partition not in taken_back]
    refuse_beside(run.lake, run.plan, first_time(kept), {file.name for file in manifest.files})
    return taken_back


def _publish_kept(run: UnderWay, manifest: Manifest, taken_back: Set[TopicPartition]) -> None:
    """Publish files of partitions that stand where the run ends, whoever has moved them there: they count as committed,
    and nobody exports them again."""
    files = [
        file
        for file in manifest.files
        if not any(TopicPartition(file.topic, one.partition) in taken_back for one in file.slices)
        and is_there(run, file)
    ]
    publish_some(run, files)


def _point(run: UnderWay, state: State) -> None:
    pointer = replace(run.pointer, state=state)
    run.claim.point(run.pointer, pointer)
    run.pointer = pointer
    run.surroundings.passed(state)


def _refuse_if_ended(run: UnderWay) -> None:
    """Raise ``TakenOver`` where somebody else has ended the run, as while this process stood still."""
    found, _ = run.claim.persist(run.claim.pointer)
    if found != run.pointer:
        raise run.claim.taken_over(found)


def _take_back(run: UnderWay, file: ManifestFile) -> None:
    """Where two runs have a file of one name, only the one that wrote what is there takes it back; and only as long as
    nobody else has ended the run, as while this process stood still."""
    from zkgroup.export.lake.footer import UnreadableFileError  # pyarrow: most exports do without

    store, warn = run.lake.store, run.surroundings.warn
    if store.size(file.name) is None:
        return
    try:
        ours = is_written_by(run.lake, file)
    except UnreadableFileError as error:
        warn(f"{error.message}: it is left where it is")
        return
    if not ours:
        warn(f"{store.uri}/{file.name} was written by another run: it stays")
        return
    _refuse_if_ended(run)
    store.unpublish(file.name)


def _file(run: UnderWay, settled: Settled) -> None:
    _refuse_if_ended(run)
    run.lake.store.write(f"{run.folder}/{SETTLED}", encode_settled(settled))
    run.surroundings.passed("settlement filed")
