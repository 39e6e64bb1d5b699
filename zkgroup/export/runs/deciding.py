"""planned → decided, or committed: a run's point of no return."""

from __future__ import annotations

import logging
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from zkgroup.errors import RefusedError
from zkgroup.export.lake.coverage import extended
from zkgroup.export.lake.lake import MANIFEST
from zkgroup.export.lake.overlap import first_time, refuse_beside, refuse_returned
from zkgroup.export.model.documents import encode_manifest
from zkgroup.export.model.encoding import digest
from zkgroup.export.model.rundata import Manifest, now_ms
from zkgroup.export.runs.assembling import Written, refuse_fewer, refuse_unexplained, words_on_gaps
from zkgroup.export.runs.refusals import NotHeld
from zkgroup.export.runs.surroundings import Progress, tell_of
from zkgroup.export.runs.under_way import UnderWay
from zkgroup.protocol.names import TopicPartition

if TYPE_CHECKING:
    from zkgroup.export.runs.membership import Membership

log = logging.getLogger(__name__)

_DECISIONS: Final = 5  # a group at rest needs one


def decide(run: UnderWay, written: Written) -> Manifest:
    """Look for the last time at what the run depends on, file its manifest, and have its pointer name that. May be
    repeated. Raises ``RefusedError`` where anything is not as planned, or messages are missing."""
    plan, parts, surroundings = run.plan, written.parts, run.surroundings
    surroundings.progress(Progress("publishing", 0, 0))
    tell_of(words_on_gaps(parts, "retention"), surroundings.warn)
    if not plan.record_unexplained:
        refuse_unexplained(parts)
    refuse_fewer(parts)
    tell_of(words_on_gaps(parts, "unexplained"), surroundings.warn)
    run.refuse_if_changed()
    refuse_beside(run.lake, plan, first_time(parts))
    refuse_returned(run.lake, plan.partitions)
    run.lake.store.refuse_closed(file.name for file in written.files)
    surroundings.passed("checked")
    if surroundings.member is not None:
        return _decide_held(run, surroundings.member, written)
    manifest, data = _write_manifest(run, written)
    decided = replace(run.pointer, state="decided", manifest=digest(data))
    run.claim.point(run.pointer, decided, [part.plan for part in parts if part.moves])
    run.pointer = decided
    surroundings.passed("decided")
    return manifest


def _decide_held(run: UnderWay, member: Membership, written: Written) -> Manifest:
    """planned → committed: of what the member holds, in one transaction with its offsets. What it does not hold any
    more is left out: its files, which hold nothing else, go with the attempt, and whoever owns it goes on where
    the group stands."""
    claim, store = run.claim, run.lake.store
    parts, files = written.parts, written.files
    for _ in range(_DECISIONS):
        held = claim.persist(lambda: member.held(claim.registry))
        held &= claim.persist(partial(claim.untouched, [part.plan for part in parts]))
        for part in parts:
            if part.plan.partition not in held:
                run.surroundings.warn(f"{part.plan.partition} was taken over by another member: it is not exported")
        parts = [part for part in parts if part.plan.partition in held]
        files = [file for file in files if TopicPartition(file.topic, file.slices[0].partition) in held]
        if not parts:
            raise RefusedError(
                f"another member has taken over all that was to be exported for group {run.plan.group}",
                "nothing was committed: export again",
            )
        # Nobody can export again what is committed: from here on the files must be there, whatever fails.
        store.settle(f"{run.folder}/{file.work}" for file in files)
        manifest, data = _write_manifest(run, Written(parts, files, written.times))
        committed = replace(run.pointer, state="committed", manifest=digest(data))
        try:
            claim.decide_and_commit(run.pointer, committed, parts)
        except NotHeld as error:
            log.info("%s; once more", error.message)
            continue
        run.pointer = committed
        run.surroundings.passed("decided")
        return manifest
    raise RefusedError(
        f"group {run.plan.group} rebalances again and again", "nothing was committed: export when it is at rest"
    )


def _write_manifest(run: UnderWay, written: Written) -> tuple[Manifest, bytes]:
    plan, parts, fills = run.plan, written.parts, run.plan.kind == "backfill"
    previous = run.lake.last(plan.group)
    manifest = Manifest(
        plan.run,
        plan.group,
        plan.kind,
        plan.cluster,
        run.pointer.plan,
        run.claim.attempt,
        plan.planned,
        now_ms(),
        plan.isolation,
        tuple(parts),
        extended(previous.coverage, plan.topics, parts, written.times, fills=fills),
        previous.run,
        tuple(written.files),
        plan.layout,
        previous.joined if fills else run.surroundings.member is not None,
        roll=previous.roll(plan.run),
    )
    data = encode_manifest(manifest)
    run.lake.store.write(f"{run.folder}/{run.claim.attempt}/{MANIFEST}", data)
    run.surroundings.passed("manifest written")
    return manifest, data
