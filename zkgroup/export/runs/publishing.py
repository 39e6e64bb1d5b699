"""A decided run's files get their final names. May be repeated."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from zkgroup.errors import RefusedError
from zkgroup.export.lake.lake import MANIFEST, Lake
from zkgroup.export.lake.overlap import refuse_overlap
from zkgroup.export.model.documents import encode_manifest
from zkgroup.export.model.rundata import Manifest, ManifestPart, Pointer, RunPlan
from zkgroup.export.model.words import OffsetRange
from zkgroup.export.runs.surroundings import Surroundings
from zkgroup.export.stores.taken import TAKEN_REMEDY


def publish(lake: Lake, plan: RunPlan, pointer: Pointer, manifest: Manifest, surroundings: Surroundings) -> None:
    """Give the files their final names, and the manifest its own."""
    store, files, folder = lake.store, manifest.files, lake.folder(plan.group, plan.run)
    _refuse_if_taken(lake, plan, pointer, manifest, surroundings)
    works = [(f"{folder}/{file.work}", file.name, file.bytes) for file in files]
    for number, _ in enumerate(store.publish(works), 1):
        surroundings.passed(f"published {number} of {len(files)}")
    store.settle(file.name for file in files)
    surroundings.passed("published for good")
    store.write(f"{folder}/{MANIFEST}", encode_manifest(manifest))
    surroundings.passed("manifest filed")


def _refuse_if_taken(
    lake: Lake, plan: RunPlan, pointer: Pointer, manifest: Manifest, surroundings: Surroundings
) -> None:
    """Raise where files that are not this run's hold what it is to publish: nobody who heeds its pointer has put them
    there. What is committed is published beside them, as nobody can export it again."""
    try:
        refuse_beside(lake, plan, first_time(manifest.parts), {file.name for file in manifest.files})
    except RefusedError as error:
        if pointer.state == "committed":
            surroundings.warn(f"{error.message}; they are committed, and published once more")
            return
        raise RefusedError(
            f"run {plan.run} of group {plan.group} is decided and cannot be published: {error.message}", TAKEN_REMEDY
        ) from None


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
