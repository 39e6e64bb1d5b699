"""Runs that were written to the end, and are not decided as far as ZooKeeper knows: its data was restored from before
that, they were forgotten while their folder was away, or they were killed just then. Their files may be the only copy
by now: they are not dropped unsaid, and can be decided late."""

from __future__ import annotations

from dataclasses import replace

from zkgroup.errors import RefusedError
from zkgroup.export.lake.book import Book
from zkgroup.export.lake.leftovers import written
from zkgroup.export.lake.overlap import first_time, refuse_beside
from zkgroup.export.model.rundata import Manifest
from zkgroup.export.runs.last_copies import later_run, refuse_last_copies
from zkgroup.export.runs.neighbours import give_way, refuse_layout
from zkgroup.export.runs.under_way import UnderWay


def refuse_dropping(run: UnderWay, *, skip_lost: bool) -> None:
    """Raise as ``refuse_last_copies`` does, where a run that is not decided has been written to the end."""
    if (found := _written(run)) is not None:
        manifest = found[0]
        everywhere = {part.plan.partition for part in manifest.parts}
        refuse_last_copies(run, manifest, everywhere, "drop", skip_lost=skip_lost)


def is_written(run: UnderWay) -> bool:
    """Whether a run that is not decided can be."""
    return _written(run) is not None


def _written(run: UnderWay) -> tuple[Manifest, str] | None:
    return written(run.lake, run.plan.group, run.plan.run, run.pointer.plan)


def decide_late(run: UnderWay) -> None:
    """(none), planned → decided, of what the run has written. Offsets may have moved since, as in all that is kept.
    Raises ``RefusedError`` where there is nothing, or others were here since, or are."""
    found = _written(run)
    if found is None:
        raise RefusedError(
            f"{run} is not decided: there are no files to keep",
            "the same command without --settle goes on with it, --settle withdraw gives it up",
        )
    manifest, digest = found
    if (later := later_run(run)) is not None:
        raise RefusedError(
            f"{run} is not decided, and run {later} that came after it is in {run.lake.store.uri}",
            f"--settle withdraw drops it; to keep what it holds move {run.folder} elsewhere",
        )
    claim, plan, surroundings = run.claim, run.plan, run.surroundings
    run.refuse_beside_members()
    refuse_layout(run.lake, plan.layout, run.lake.layout())
    refuse_beside(run.lake, plan, first_time(manifest.parts), {file.name for file in manifest.files})
    if plan.kind == "export":
        Book(run.lake, plan.group).refuse_others(plan.partitions, plan.topics)
    if claim.persist(claim.pointer)[0] is None:
        claim.point(None, run.pointer)
        surroundings.passed("plan in place")
    claim.persist(lambda: give_way(claim.registry, run.lake, plan, claim.attempt, surroundings.warn))
    decided = replace(run.pointer, state="decided", manifest=digest, attempt=manifest.attempt)
    claim.point(run.pointer, decided)
    run.pointer = decided
    surroundings.passed("decided")
