"""A decided run's files get their final names. May be repeated."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from zkgroup.errors import RefusedError
from zkgroup.export.lake.lake import MANIFEST, Lake
from zkgroup.export.lake.overlap import refuse_overlap
from zkgroup.export.model.documents import encode_manifest
from zkgroup.export.model.rundata import Manifest, ManifestPart, RunPlan
from zkgroup.export.model.words import OffsetRange
from zkgroup.export.runs.under_way import UnderWay
from zkgroup.export.stores.store import MissingWorkError
from zkgroup.export.stores.taken import TAKEN_REMEDY


def publish(run: UnderWay, manifest: Manifest) -> None:
    """Give the files their final names, and the manifest its own."""
    store, files, passed = run.lake.store, manifest.files, run.surroundings.passed
    _refuse_if_taken(run, manifest)
    works = [(f"{run.folder}/{file.work}", file.name, file.bytes) for file in files]
    try:
        for number, _ in enumerate(store.publish(works), 1):
            passed(f"published {number} of {len(files)}")
    except MissingWorkError as error:
        if run.pointer.attempt == run.claim.attempt:
            raise  # it was written just now, wherever
        ends = "" if run.pointer.state == "committed" else "; --settle withdraw ends the run, which is read again then"
        raise RefusedError(
            f"{run} cannot be published: {error.message}", f"somebody changed the folder: restore it{ends}"
        ) from None
    store.settle(file.name for file in files)
    passed("published for good")
    store.write(f"{run.folder}/{MANIFEST}", encode_manifest(manifest))
    passed("manifest filed")


def _refuse_if_taken(run: UnderWay, manifest: Manifest) -> None:
    """Raise where files that are not this run's hold what it is to publish: nobody who heeds its pointer has put them
    there. What is committed is published beside them, as nobody can export it again."""
    try:
        refuse_beside(run.lake, run.plan, first_time(manifest.parts), {file.name for file in manifest.files})
    except RefusedError as error:
        if run.pointer.state == "committed":
            run.surroundings.warn(f"{error.message}; they are committed, and published once more")
            return
        raise RefusedError(f"{run} is decided and cannot be published: {error.message}", TAKEN_REMEDY) from None


def refuse_beside(lake: Lake, plan: RunPlan, ranges: Iterable[OffsetRange], but: Collection[str] = ()) -> None:
    """Raise where published files, ``but`` for these, hold any of a run's ``ranges``."""
    tags = {topic: identity.tag for topic, identity in plan.topics.items()}
    refuse_overlap(lake, ranges, tags, plan.group, but, fills=plan.kind == "backfill")


def first_time(parts: Iterable[ManifestPart]) -> list[OffsetRange]:
    """What was not exported before."""
    return [
        OffsetRange(part.plan.partition, part.plan.start, part.end)
        for part in parts
        if not part.plan.again and part.plan.start < part.end
    ]
