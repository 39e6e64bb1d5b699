"""Where a group's runs that came to nothing were to begin: kept beside its runs, so that none of them is missed."""

from __future__ import annotations

from typing import Final

from zkgroup.export.lake.lake import WORK, Lake
from zkgroup.export.model.begun import Begun, begun_by, decode_begun, encode_begun, together
from zkgroup.export.model.rundata import Manifest, RunPlan

BEGUN: Final = "begun.json"


def read_begun(lake: Lake, group: str) -> list[Begun]:
    """What is known of a group's runs that came to nothing. Raises ``DamagedDocumentError``."""
    name = _name(group)
    data = lake.store.read(name)
    return [] if data is None else decode_begun(f"{lake.store.uri}/{name}", data)


def remember(lake: Lake, plan: RunPlan) -> None:
    """Keep where ``plan`` was to begin. Nobody removes a plan that was not carried out before this is done."""
    if new := begun_by(plan):
        known = read_begun(lake, plan.group)
        if (both := together(known, new)) != known:
            lake.store.write(_name(plan.group), encode_begun(both))


def carried_out(lake: Lake, manifest: Manifest) -> None:
    """Forget what this run tells from now on: of an export, wherever it began; of a backfill, of the same question."""
    asked = {part.plan.partition: part.plan.asked for part in manifest.parts}
    known = read_begun(lake, manifest.group)
    left = [
        one
        for one in known
        if one.kind != manifest.kind
        or one.partition not in asked
        or (one.kind == "backfill" and one.asked != asked[one.partition])
    ]
    if known and not left:
        lake.store.unpublish(_name(manifest.group))
    elif left != known:
        lake.store.write(_name(manifest.group), encode_begun(left))


def _name(group: str) -> str:
    return f"{WORK}/{group}/{BEGUN}"
