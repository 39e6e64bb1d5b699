"""Where a group's runs that came to nothing were to begin: kept beside its runs, so that none of them is missed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from zkgroup.export.lake.lake import WORK, Lake
from zkgroup.export.model.begun import Begun, begun_by, decode_begun, encode_begun, still_begun, together
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
        _write(lake, plan.group, known, together(known, new))


def carried_out(lake: Lake, plan: RunPlan, manifest: Manifest) -> None:
    """Forget what this run tells from now on. Of what it has left to other members it tells nothing."""
    known = read_begun(lake, plan.group)
    _write(lake, plan.group, known, still_begun(together(known, begun_by(plan)), manifest))


def _write(lake: Lake, group: str, known: Sequence[Begun], begun: Sequence[Begun]) -> None:
    if begun == known:
        return
    if begun:
        lake.store.write(_name(group), encode_begun(begun))
    else:
        lake.store.unpublish(_name(group))


def _name(group: str) -> str:
    return f"{WORK}/{group}/{BEGUN}"
