"""Runs that were written to the end, and are not decided as far as ZooKeeper knows: its data was restored from before
that, they were forgotten while their folder was away, or they were killed just then. Their files may be the only copy
by now: they are not dropped unsaid, and can be decided late."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Literal

from zkgroup.errors import RefusedError, UnreachableError
from zkgroup.export.lake.book import Book
from zkgroup.export.lake.lake import MANIFEST
from zkgroup.export.lake.leftovers import written
from zkgroup.export.lake.overlap import first_time, refuse_beside, refuse_returned
from zkgroup.export.model.rundata import Manifest, Pointer, RunPlan
from zkgroup.export.runs.last_copies import is_published, is_there, later_run, refuse_last_copies
from zkgroup.export.runs.neighbours import give_way, refuse_layout
from zkgroup.export.runs.refusals import ENDED
from zkgroup.export.runs.under_way import UnderWay
from zkgroup.protocol.names import TopicPartition
from zkgroup.words import counted


def refuse_dropping(run: UnderWay, *, skip_lost: bool, adopts: bool = False) -> None:
    """Raise where a run that is not decided has been written to the end, and must have been decided, or as
    ``refuse_last_copies`` does. ``adopts``: what is published is entered now."""
    found = _written(run)
    if found is None:
        return
    manifest = found[0]
    if not adopts and (published := _published(run, manifest)):
        raise RefusedError(
            f"{run} has published {counted(published, 'file')}, and ZooKeeper does not know that it was decided: it "
            "was forgotten, or ZooKeeper's data is of an earlier time",
            "--settle keep publishes the rest and commits, --settle withdraw takes all of it back",
        )
    everywhere = {part.plan.partition for part in manifest.parts}
    refuse_last_copies(run, manifest, everywhere, "drop", skip_lost=skip_lost, passed=_passed(run, manifest))


def holds_last_copies(run: UnderWay, plan: RunPlan, pointer: Pointer) -> bool:
    """Whether another group's run in the same lake may not be dropped, or nobody tells."""
    try:
        refuse_dropping(UnderWay(run.claim, run.lake, plan, pointer, run.surroundings), skip_lost=False)
    except (RefusedError, UnreachableError):
        return True
    return False


def is_written(run: UnderWay) -> bool:
    """Whether a run that is not decided can be."""
    return _written(run) is not None


def was_decided(run: UnderWay) -> bool:
    """Whether a run that is not decided has published files, as only happens behind a decision."""
    found = _written(run)
    return found is not None and _published(run, found[0]) > 0


def decide_late(run: UnderWay, how: Literal["keep", "withdraw"]) -> None:
    """(none), planned → decided, of what the run has written, so that it can be settled. Offsets may have moved since,
    as in all that is kept. Raises ``RefusedError`` where there is nothing, or others were here since, or are."""
    found = _written(run)
    if found is None:
        if MANIFEST in run.lake.store.names(run.folder):
            raise RefusedError(f"{run} has ended before, and ZooKeeper's data is of an earlier time", ENDED)
        raise RefusedError(
            f"{run} is not decided: there are no files to keep",
            "the same command without --settle goes on with it, --settle withdraw gives it up",
        )
    manifest, digest = found
    if (later := later_run(run)) is not None:
        raise RefusedError(
            f"{run} is not decided, and run {later} that came after it is in {run.lake.store.uri}",
            f"--settle withdraw --skip-lost drops it; to have what it holds move {run.folder} elsewhere",
        )
    claim, plan, surroundings = run.claim, run.plan, run.surroundings
    if how == "keep":
        _refuse_keeping(run, manifest)
    if claim.persist(claim.pointer)[0] is None:
        claim.point(None, run.pointer)
        surroundings.passed("plan in place")
    if how == "keep":
        others = partial(holds_last_copies, run)
        claim.persist(lambda: give_way(claim.registry, run.lake, plan, claim.attempt, surroundings.warn, others))
    decided = replace(run.pointer, state="decided", manifest=digest, attempt=manifest.attempt)
    claim.point(run.pointer, decided)
    run.pointer = decided
    surroundings.passed("decided")


def _refuse_keeping(run: UnderWay, manifest: Manifest) -> None:
    """Raise where what is to be published is elsewhere, or may be."""
    lake, plan = run.lake, run.plan
    run.refuse_beside_members()
    for partition, offset in sorted(_passed(run, manifest).items()):
        raise RefusedError(
            f"members have read on since {run} was written, which was one of them: {partition} stands at {offset}",
            "--settle withdraw drops the run: what they have not read is exported again",
        )
    refuse_layout(lake, plan.layout, lake.layout())
    refuse_returned(lake, plan.partitions)
    refuse_beside(lake, plan, first_time(manifest.parts), {file.name for file in manifest.files})
    if plan.kind == "export":
        Book(lake, plan.group).refuse_others(plan.partitions, plan.topics)


def _passed(run: UnderWay, manifest: Manifest) -> dict[TopicPartition, int]:
    """Of a run beside members the offsets that these have moved since: below these nothing was left to it."""
    if not manifest.joined or manifest.kind != "export" or run.claim.group != manifest.group:
        return {}
    found = run.claim.persist(lambda: run.claim.offsets([part.plan for part in manifest.parts if part.moves]))
    return {
        plan.partition: offset
        for plan, (offset, _) in found
        if offset is not None and offset > (plan.start if plan.committed is None else plan.committed)
    }


def _written(run: UnderWay) -> tuple[Manifest, str] | None:
    return written(run.lake, run.plan.group, run.plan.run, run.pointer.plan)


def _published(run: UnderWay, manifest: Manifest) -> int:
    """How many of a run's files are published, where it can be settled: all of them are there, and no later run of the
    group stands behind it."""
    if later_run(run) is not None or not all(is_there(run, file) for file in manifest.files):
        return 0
    return sum(is_published(run, file) for file in manifest.files)
