"""Runs that were never decided, and what they leave in a lake. What is asked of the store does not grow with each run
that is over: of an object store a request for each would take minutes after some weeks."""

from __future__ import annotations

from collections.abc import Iterator

from zkgroup.errors import ZkgroupError
from zkgroup.export.lake import MANIFEST, PLAN, SETTLED, WORK, Lake
from zkgroup.export.rundata import RunPlan


def undecided(lake: Lake, own: str) -> Iterator[tuple[RunPlan, str]]:
    """Plans of other groups than ``own`` that no manifest is beside, with their hashes: of runs that are under way, or
    were killed. The documents do not tell which."""
    for group in lake.groups():
        kept = _kept(lake, group) if group != own else {}
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
    kept = _kept(lake, group)
    newest = next(reversed(kept), None)
    for run, names in kept.items():
        folder = lake.folder(group, run)
        if MANIFEST not in names:
            try:
                plan = lake.plan(group, run)
            except ZkgroupError:
                plan = None  # half of a plan, from before plans were written at once: nobody can go on with it
            if plan is not None and plan[0].cluster != cluster:
                continue
            lake.store.remove(folder)
            removed += 1
        elif run == newest:  # of which a folder without a file is left behind, too
            for name in set(lake.store.names(folder)) - {PLAN, MANIFEST, SETTLED}:
                lake.store.remove(f"{folder}/{name}")
    return removed


def _kept(lake: Lake, group: str) -> dict[str, set[str]]:
    """What lies in the folders of a group's runs, the oldest first: two listings, however many runs there are."""
    kept: dict[str, set[str]] = {run: set() for run in lake.runs(group)}
    folder = f"{WORK}/{group}/"
    unlisted: list[str] = []
    for file in lake.store.walk(folder[:-1], unlisted.append):
        run, _, name = file.name.removeprefix(folder).partition("/")
        if run in kept:
            kept[run].add(name.partition("/")[0])
    for run, names in kept.items():
        if unlisted and MANIFEST not in names:  # it may be the run's own folder that cannot be listed
            names.update(lake.store.names(lake.folder(group, run)))
    return kept
