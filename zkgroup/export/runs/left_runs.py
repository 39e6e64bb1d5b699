"""Other groups' runs in the lake that were written to the end, are not decided, and may have what is nowhere else: past
what a group has exported nobody can publish them any more."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import NamedTuple

from zkgroup.errors import RefusedError, ZkgroupError
from zkgroup.export.lake.lake import Lake
from zkgroup.export.lake.leftovers import HiddenRunError, undecided, written
from zkgroup.export.model.rundata import Manifest, RunPlan
from zkgroup.export.model.shell import export_command
from zkgroup.export.runs.claim import ExportClaim
from zkgroup.export.runs.last_copies import (
    KEEPS,
    Held,
    kept_elsewhere,
    offsets_held,
    refuse_damaged,
    refuse_last_copies,
    way_back,
)
from zkgroup.export.runs.neighbours import left_behind
from zkgroup.export.runs.surroundings import Surroundings
from zkgroup.export.runs.under_way import UnderWay
from zkgroup.protocol.names import TopicPartition
from zkgroup.servers.registry import Registry
from zkgroup.words import listed

_GOES_ON = "--skip-lost goes on without it"


class _Missed(NamedTuple):
    """A run that would be passed over, and what it has alone, in words."""

    run: UnderWay
    manifest: Manifest
    text: str


def refuse_beside_left(run: UnderWay, *, skip_lost: bool, keeps: Manifest | None = None) -> None:
    """Raise where another group's run in the lake has been written to the end, shares a partition with this one, and
    has what is nowhere else: of those that no pointer names, as others stand in the way, or give way. With
    ``skip_lost`` this is only said. ``keeps``: this one is not decided, and is to be kept as this tells, beside any."""
    partitions = {part.partition for part in run.plan.partitions}
    missed: list[_Missed] = []
    for plan, hashed in left_behind(run.claim.registry, run.lake, run.plan, planned=keeps is not None):
        if partitions.isdisjoint(part.partition for part in plan.partitions):
            continue
        left = UnderWay.killed(run.claim, run.lake, plan, hashed, run.surroundings)
        try:
            found = written(run.lake, plan.group, plan.run, hashed)
        except HiddenRunError as damage:
            refuse_damaged(left, damage.message, _GOES_ON, skip_lost=skip_lost)
            continue
        if found is None or (keeps is not None and follows(found[0], keeps)):
            continue
        try:
            _refuse(left, found[0], had_by(run, keeps, plan), skip_lost=skip_lost)
        except RefusedError as error:
            missed.append(_Missed(left, found[0], error.message))
    if missed:
        kept = [] if keeps is None else [_Missed(run, keeps, "")]
        best = next((one for one in missed if _has_all(one, [*missed, *kept])), None)
        texts = [one.text for one in missed if one is not best]
        raise RefusedError(
            listed(texts if best is None else [best.text, *texts], "; ", most=3),
            f"{_way_on(best or missed[0], alone=best is not None)}; {_GOES_ON}",
        )


def _refuse(left: UnderWay, manifest: Manifest, had: Held, *, skip_lost: bool) -> None:
    everywhere = {part.plan.partition for part in manifest.parts}
    refuse_last_copies(left, manifest, everywhere, "drop", skip_lost=skip_lost, had=had)


def _has_all(one: _Missed, missed: list[_Missed]) -> bool:
    """Whether nothing of the others is lost where this one is kept first."""
    for other in missed:
        if other is not one and not follows(other.manifest, one.manifest):
            try:
                _refuse(other.run, other.manifest, had_by(one.run, one.manifest, other.run.plan), skip_lost=False)
            except RefusedError:
                return False
    return True


def follows(other: Manifest, one: Manifest) -> bool:
    """Whether of each partition that both have the ``other`` begins where this one ends, as of a group that goes on
    under another name: it can be kept after it. Pure."""
    ends: dict[TopicPartition, int] = {}
    for part in one.parts:
        ends[part.plan.partition] = max(part.end, ends.get(part.plan.partition, part.end))
    begins: dict[TopicPartition, int] = {}
    for part in other.parts:
        first = min([part.plan.start, *(gap.start for gap in part.plan.skipped)])
        begins[part.plan.partition] = min(first, begins.get(part.plan.partition, first))
    return all(begins[partition] == ends[partition] for partition in begins.keys() & ends.keys())


def _way_on(one: _Missed, *, alone: bool) -> str:
    """What may become of a run that is in the way, before others go on; ``alone``: none is in its own."""
    lake, plan = one.run.lake, one.run.plan
    way = way_back(one.run, one.manifest, "drop")
    if way == KEEPS:
        if not alone:
            return f"not all of these can be kept here: {kept_elsewhere(lake, plan.group, plan.run)}"
        return f"{_keep(lake, plan)} publishes it"
    return f"with --group {plan.group} {way}" if way.startswith("--") else way


def had_by(run: UnderWay, manifest: Manifest | None, other: RunPlan) -> Held:
    """What of another run's topics, as that has read them, this one's files hold."""
    held = {} if manifest is None else offsets_held(run, manifest)
    mine, theirs = run.plan.topics, other.topics
    return {
        partition: pieces
        for partition, pieces in held.items()
        if (topic := partition.topic) in theirs and theirs[topic].same(mine[topic])
    }


def told_of_left(registry: Registry, lake: Lake, group: str, surroundings: Surroundings) -> Iterator[str]:
    """What other groups' runs may have of what this one has lost, as before the group was renamed; in words."""
    for plan, hashed in undecided(lake, group):
        with contextlib.suppress(ZkgroupError):
            found = written(lake, plan.group, plan.run, hashed)
            if found is not None:
                claim = ExportClaim(registry, plan.group, found[0].attempt, surroundings.warn)
                left = UnderWay.killed(claim, lake, plan, hashed, surroundings)
                way = way_back(left, found[0], "drop")
                yield (
                    f"run {plan.run} of group {plan.group} was written to the end, and is not decided: "
                    f"{f'{_keep(lake, plan)} publishes what it has written' if way == KEEPS else way}"
                )


def _keep(lake: Lake, plan: RunPlan) -> str:
    return export_command(lake.store.destination, "--settle keep", plan.group)
