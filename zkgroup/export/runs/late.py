"""Runs that were written to the end, and are not decided as far as ZooKeeper knows: its data was restored from before
that, they were forgotten while their folder was away, or they were killed just then. Their files may be the only copy
by now: they are not dropped unsaid, and can be decided late."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Literal, NamedTuple

from zkgroup.errors import RefusedError, UnreachableError
from zkgroup.export.lake.lake import MANIFEST, Lake
from zkgroup.export.lake.leftovers import HiddenRunError, filed, written
from zkgroup.export.lake.overlap import refuse_returned
from zkgroup.export.model.encoding import DamagedDocumentError
from zkgroup.export.model.rundata import Manifest, ManifestPart, Pointer, RunPlan
from zkgroup.export.model.shell import export_command
from zkgroup.export.runs.claim import ExportClaim
from zkgroup.export.runs.last_copies import (
    KEEPS,
    NONE_HAD,
    Held,
    beside,
    is_elsewhere,
    is_published,
    is_there,
    kept_elsewhere,
    later_run,
    refuse_damaged,
    refuse_last_copies,
    refuse_untold,
    way_back,
)
from zkgroup.export.runs.left_runs import follows, had_by, refuse_beside_left
from zkgroup.export.runs.neighbours import give_way, refuse_layout
from zkgroup.export.runs.refusals import ENDED
from zkgroup.export.runs.surroundings import Surroundings
from zkgroup.export.runs.under_way import UnderWay
from zkgroup.export.stores.taken import taken_name
from zkgroup.protocol.names import TopicPartition
from zkgroup.words import counted, listed


class _Found(NamedTuple):
    """A run that was written to the end, by its ``manifest``, and what may be known of its decision.

    ``published``: how many of its files are, as only happens behind a decision. ``passed``: beside members, the offsets
    that have moved since; below these nothing was left to it. ``may_be_committed``: all of them stand where it ends, or
    further on, where nothing at all is known of it some, and nothing tells that it was not the run that moved them.
    """

    manifest: Manifest
    hashed: str
    published: int
    passed: Mapping[TopicPartition, int]
    may_be_committed: bool

    @property
    def had(self) -> Held:
        """What the group's members have read."""
        return {partition: [(0, offset)] for partition, offset in self.passed.items()}


def refuse_dropping(run: UnderWay, *, skip_lost: bool, adopts: bool = False, had: Held = NONE_HAD) -> None:
    """Raise where a run that is not decided has been written to the end, and must have been decided, or may have been,
    or as ``refuse_last_copies`` does; or where that may be, and a damaged document hides it. ``adopts``: what is
    published is entered now."""
    try:
        found = _look(run)
    except HiddenRunError as damage:
        refuse_damaged(run, damage.message, "--skip-lost gives up what only its files hold", skip_lost=skip_lost)
        return
    if found is None:
        return
    manifest = found.manifest
    if found.published and not adopts:
        raise RefusedError(
            f"{run} has published {counted(found.published, 'file')}, and ZooKeeper does not know that it was decided: "
            "it was forgotten, or ZooKeeper's data is of an earlier time",
            _ways_on(run, found),
        )
    if found.may_be_committed:
        if is_elsewhere(run, manifest):
            return
        told = f"{run} may have been decided, as group {manifest.group} stands where it ends"
        if not skip_lost:
            raise RefusedError(
                f"{told}, and ZooKeeper does not tell who has moved it there",
                _ways_on(run, found)
                if found.published
                else f"{way_back(run, manifest, 'drop')}; if other members have read that, --skip-lost drops it",
            )
        run.surroundings.warn(f"{told}: what it has written is given up")
        return
    everywhere = {part.plan.partition for part in manifest.parts}
    refuse_last_copies(run, manifest, everywhere, "drop", skip_lost=skip_lost, had={**had, **found.had})


def _ways_on(run: UnderWay, found: _Found) -> str:
    """What may become of a run that has published files."""
    is_gone, adopt = _is_gone(run), export_command(run.lake.store.destination, "--adopt", run.plan.group)
    if not all(is_there(run, file) for file in found.manifest.files):
        back = "" if found.may_be_committed else "--settle withdraw takes back what is left of it; "
        return (
            f"{back}{'' if is_gone else '--settle forget, and then '}{adopt}{',' * (not is_gone)} enters what is left"
        )
    if found.may_be_committed:
        return f"{KEEPS}; its offsets are committed"
    ways = "--settle keep publishes the rest and commits, --settle withdraw takes all of it back"
    return f"{ways}; {adopt} enters what is published, or move it away" if is_gone else ways


def refuse_hidden(claim: ExportClaim, lake: Lake, run: str, surroundings: Surroundings, *, skip_lost: bool) -> None:
    """Raise where of a run that is not decided neither its plan nor its manifest can be read, and the logs do not have
    what its files tell. With ``skip_lost`` this is only said."""
    damage = "its plan is gone, and its manifest cannot be read"
    try:
        if lake.plan(claim.group, run) is None and not filed(lake, claim.group, run):
            return  # nothing was written to the end
    except DamagedDocumentError as error:
        damage = error.message
    gives_up = "--skip-lost gives up what only its files hold"
    refuse_untold(claim, lake, run, surroundings, damage, gives_up, skip_lost=skip_lost)


def holds_last_copies(run: UnderWay, plan: RunPlan, pointer: Pointer, *, keeps: Manifest | None = None) -> bool:
    """Whether another group's run in the same lake may not be dropped where this one, as it ``keeps``, is published, or
    nobody tells."""
    other = UnderWay(run.claim, run.lake, plan, pointer, run.surroundings)
    try:
        if keeps is not None and _follows(other, keeps):
            return False
        refuse_dropping(other, skip_lost=False, had=had_by(run, keeps, plan))
    except (RefusedError, UnreachableError):
        return True
    return False


def _follows(other: UnderWay, manifest: Manifest) -> bool:
    with contextlib.suppress(HiddenRunError):
        found = _written(other)
        return found is not None and follows(found[0], manifest)
    return False


def is_written(run: UnderWay) -> bool:
    """Whether a run that is not decided can be, or nobody tells."""
    try:
        return _written(run) is not None
    except HiddenRunError:
        return True


def was_decided(run: UnderWay) -> bool:
    """Whether a run that is not decided is known to have published files."""
    with contextlib.suppress(HiddenRunError):
        found = _look(run)
        return found is not None and found.published > 0
    return False


def decide_late(
    run: UnderWay, how: Literal["keep", "withdraw"], look: Callable[[Manifest], None], *, skip_lost: bool
) -> None:
    """(none), planned → decided, of what the run has written, so that it can be settled. Offsets may have moved since,
    as in all that is kept. Raises ``RefusedError`` where there is nothing, or others were here since, or are; without
    ``skip_lost`` also where another group's run could not be kept then; or what ``look`` does, before anything is
    changed."""
    try:
        found = _look(run)
    except HiddenRunError as damage:
        raise RefusedError(
            f"what {run} has written cannot be told: {damage.message}",
            "restore it from a copy; --settle withdraw gives the run up, where the logs have what was "
            "planned, and with --skip-lost all the same",
        ) from None
    if found is None:
        if MANIFEST in run.lake.store.names(run.folder):
            raise RefusedError(f"{run} has ended before, and ZooKeeper's data is of an earlier time", ENDED)
        raise RefusedError(
            f"{run} is not decided: there are no files to keep",
            "the same command without --settle goes on with it, --settle withdraw gives it up",
        )
    manifest, claim, warn = found.manifest, run.claim, run.surroundings.warn
    if (later := later_run(run)) is not None:
        raise RefusedError(
            f"{run} is not decided, and run {later} that came after it is in {run.lake.store.uri}",
            _gives_up(run),
        )
    if how == "keep":
        _refuse_keeping(run, found)
        refuse_beside_left(run, skip_lost=skip_lost, keeps=manifest)
    elif found.may_be_committed:
        raise RefusedError(
            f"the offsets of {run} are committed: without its files their messages would be lost", _ways_on(run, found)
        )
    look(manifest)
    if _is_gone(run):
        claim.point(None, run.pointer)
        run.surroundings.passed("plan in place")
    if how == "keep":
        others = partial(holds_last_copies, run, keeps=manifest)
        claim.persist(lambda: give_way(claim.registry, run.lake, run.plan, claim.attempt, warn, others))
    decided = replace(run.pointer, state="decided", manifest=found.hashed, attempt=manifest.attempt)
    claim.point(run.pointer, decided)
    run.pointer = decided
    run.surroundings.passed("decided")


def _refuse_keeping(run: UnderWay, found: _Found) -> None:
    """Raise where what is to be published is elsewhere, or may be."""
    lake, plan, manifest = run.lake, run.plan, found.manifest
    run.refuse_beside_members()
    if found.passed and not found.published:
        stands = listed([f"{partition} stands at {offset}" for partition, offset in sorted(found.passed.items())])
        told = f"members have read on since {run} was written, which was one of them: {stands}"
        if not _holds_more(run, found):
            raise RefusedError(told, "--settle withdraw drops the run: what they have not read is exported again")
        run.surroundings.warn(
            f"{told}; what they have read of it is in its files, too, and --on-disagreement lake goes on where it ends"
        )
    refuse_layout(lake, plan.layout, lake.layout())
    refuse_returned(lake, plan.partitions)
    if (in_the_way := beside(lake, plan, manifest, decided=False)) is not None:
        raise RefusedError(f"{run} cannot be kept: {in_the_way}", _gives_up(run))
    for file in manifest.files:
        if lake.store.size(file.name) is not None and not is_published(lake, file):
            raise taken_name(f"{lake.store.uri}/{file.name}")


def _gives_up(run: UnderWay) -> str:
    """What may become of a run that cannot be kept here."""
    return (
        "--settle withdraw gives it up where the logs or other files have what it holds, and with --skip-lost all the "
        f"same; else {kept_elsewhere(run.lake, run.plan.group, run.plan.run)}"
    )


def _holds_more(run: UnderWay, found: _Found) -> bool:
    """Whether a run has what members have not read, and no log has any more."""
    everywhere = {part.plan.partition for part in found.manifest.parts}
    try:
        refuse_last_copies(run, found.manifest, everywhere, "drop", skip_lost=False, had=found.had)
    except RefusedError:
        return True
    return False


def _written(run: UnderWay) -> tuple[Manifest, str] | None:
    return written(run.lake, run.plan.group, run.plan.run, run.pointer.plan)


def _look(run: UnderWay) -> _Found | None:
    """None where the run was not written to the end, or counts already."""
    found = _written(run)
    if found is None:
        return None
    manifest, hashed = found
    published = 0
    if later_run(run) is None:  # else they are part of nothing, and only what is open may still be had
        published = sum(is_published(run.lake, file) for file in manifest.files)
    if run.claim.group != manifest.group:  # another group's offsets are not this claim's
        return _Found(manifest, hashed, published, {}, may_be_committed=False)
    stands = run.claim.persist(lambda: standing(run.claim, manifest))
    if may_be_committed(stands, is_gone=_is_gone(run) and not published):
        return _Found(manifest, hashed, published, {}, may_be_committed=True)
    passed = {
        part.plan.partition: offset
        for part, offset in stands
        if offset > (part.plan.start if part.plan.committed is None else part.plan.committed)
    }
    return _Found(manifest, hashed, published, passed, may_be_committed=False)


def standing(claim: ExportClaim, manifest: Manifest) -> list[tuple[ManifestPart, int]]:
    """The parts of a run beside members that move the group, with the offsets that it has now; of others nothing."""
    if not manifest.joined or manifest.kind != "export":
        return []
    moving = [part for part in manifest.parts if part.moves]
    found = claim.offsets([part.plan for part in moving])
    return [(part, offset or 0) for part, (_, (offset, _)) in zip(moving, found, strict=True)]


def may_be_committed(stands: Iterable[tuple[ManifestPart, int]], *, is_gone: bool) -> bool:
    """Whether nothing tells that a run beside members was not committed. Its commit is of all partitions at once, and
    changes the pointer as well: one that is still there was not decided, unless it was put back. Pure."""
    there = [offset >= part.end for part, offset in stands]
    return any(there) and (is_gone or all(there))


def _is_gone(run: UnderWay) -> bool:
    return run.claim.persist(run.claim.pointer)[0] is None
