"""Runs that were never decided, and what they leave in a lake. What is asked of the store does not grow with each run
that is over: of an object store a request for each would take minutes after some weeks."""

from __future__ import annotations

from collections.abc import Iterator

from zkgroup.errors import ZkgroupError
from zkgroup.export.lake.begun import remember
from zkgroup.export.lake.lake import MANIFEST, PLAN, SETTLED, Lake
from zkgroup.export.model.encoding import DamagedDocumentError
from zkgroup.export.model.rundata import RunPlan


def undecided(lake: Lake, own: str) -> Iterator[tuple[RunPlan, str]]:
    """Plans of other groups than ``own`` that no manifest is beside, with their hashes: of runs that are under way, or
    were killed. The documents do not tell which."""
    for group in lake.groups():
        kept = lake.documents(group) if group != own else {}
        for run in reversed(kept):
            if MANIFEST not in kept[run]:
                try:
                    found = lake.plan(group, run)
                except ZkgroupError:
                    continue
                if found is not None:
                    yield found


def has_garbage(lake: Lake, group: str) -> bool:
    """Whether the newest run left something behind; older ones were tidied up by whoever came after them."""
    newest = lake.runs(group)[-1:]
    names = set(lake.store.names(lake.folder(group, newest[0]))) if newest else {MANIFEST}
    return MANIFEST not in names or bool(names - {PLAN, MANIFEST, SETTLED})


def remove_garbage(lake: Lake, group: str, cluster: str) -> int:
    """Remove runs of a group that were never decided, and attempts that are over; how many there were.

    Only under the group's lock. ``cluster``: another cluster may have a group of this name, and a lock of its own.
    """
    removed = 0
    kept = lake.documents(group)
    newest = next(reversed(kept), None)
    for run, names in kept.items():
        folder = lake.folder(group, run)
        if MANIFEST not in names:
            try:
                plan = lake.plan(group, run)
            except DamagedDocumentError:
                plan = None  # half of a plan, from before plans were written at once: nobody can go on with it
            if plan is not None:
                if plan[0].cluster != cluster:
                    continue
                remember(lake, plan[0])
            lake.store.remove(folder)
            removed += 1
        elif run == newest:  # of which a folder without a file is left behind, too
            for name in set(lake.store.names(folder)) - {PLAN, MANIFEST, SETTLED}:
                lake.store.remove(f"{folder}/{name}")
    return removed
