"""Runs that were never decided, and what they leave in a lake. What is asked of the store does not grow with each run
that is over: of an object store a request for each would take minutes after some weeks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from zkgroup.errors import ZkgroupError
from zkgroup.export.lake.begun import remember
from zkgroup.export.lake.lake import MANIFEST, PLAN, SETTLED, Lake
from zkgroup.export.model.encoding import DamagedDocumentError
from zkgroup.export.model.rundata import Manifest, RunPlan


class HiddenRunError(DamagedDocumentError):
    """The manifest of a run that is not decided, and has files that are not published, cannot be read."""


def undecided(lake: Lake, own: str) -> Iterator[tuple[RunPlan, str]]:
    """Plans of other groups than ``own`` that no manifest is beside, with their hashes: of runs that are under way, or
    were killed. The documents do not tell which."""
    for group, kept in lake.of_groups(lake.documents, but=own).items():
        for run in reversed(kept):
            if MANIFEST not in kept[run]:
                try:
                    found = lake.plan(group, run)
                except ZkgroupError:
                    continue
                if found is not None:
                    yield found


def works(lake: Lake, group: str, run: str, attempt: str = "") -> list[str]:
    """The files of a run that are not published, or of one attempt of it."""
    folder = lake.folder(group, run) + (f"/{attempt}" if attempt else "")
    return [file.name for file in lake.store.walk(folder) if file.name.endswith(".tmp")]


def filed(lake: Lake, group: str, run: str) -> list[str]:
    """The attempts of a run that have filed a manifest, as each does that has written to the end."""
    folder = lake.folder(group, run)
    names = [name for name in lake.store.names(folder) if name not in (PLAN, MANIFEST, SETTLED)]
    return [name for name in names if MANIFEST in lake.store.names(f"{folder}/{name}")]


def remove_attempts(lake: Lake, group: str, run: str, but: str | None = None) -> None:
    """Remove what attempts have left of a run, ``but`` for this one's."""
    for name in lake.store.names(lake.folder(group, run)):
        if name not in (PLAN, MANIFEST, SETTLED, but):
            lake.store.remove(f"{lake.folder(group, run)}/{name}")


def has_garbage(lake: Lake, group: str) -> bool:
    """Whether the newest run left something behind; older ones were tidied up by whoever came after them."""
    newest = lake.runs(group)[-1:]
    names = set(lake.store.names(lake.folder(group, newest[0]))) if newest else {MANIFEST}
    return MANIFEST not in names or bool(names - {PLAN, MANIFEST, SETTLED})


def killed(
    lake: Lake, group: str, cluster: str, kept: Mapping[str, set[str]] | None = None
) -> dict[str, tuple[RunPlan, str] | None]:
    """A group's runs that were never decided, the oldest first, with their plans and the hashes of these.

    ``cluster``: another cluster may have a group of this name, and a lock of its own. ``kept``: what lies in their
    folders, where that is known.
    """
    found: dict[str, tuple[RunPlan, str] | None] = {}
    for run, names in (lake.documents(group) if kept is None else kept).items():
        if MANIFEST in names:
            continue
        try:
            plan = lake.plan(group, run)
        except DamagedDocumentError:
            plan = None  # half of a plan, from before plans were written at once: nobody can go on with it
        if plan is None or plan[0].cluster == cluster:
            found[run] = plan
    return found


def written(lake: Lake, group: str, run: str, plan: str) -> tuple[Manifest, str] | None:
    """Of a run that was not decided the manifest that an attempt has filed, and its hash; of several the latest. None
    where no attempt has, or no file of it is there; raises ``HiddenRunError`` where one cannot be read, and has
    files that are not published. ``plan``: the hash of the run's."""
    store, folder = lake.store, lake.folder(group, run)
    names = set(store.names(folder))
    if MANIFEST in names:  # it counts already, and all of its files are published
        return None
    found: list[tuple[Manifest, str]] = []
    hidden: HiddenRunError | None = None
    for attempt in names - {PLAN, SETTLED}:
        try:
            one = lake.manifest(group, run, attempt)
        except DamagedDocumentError as error:
            if works(lake, group, run, attempt):
                hidden = HiddenRunError(error.message, error.remedy)
            continue
        if one is not None and (one[0].group, one[0].run, one[0].plan) == (group, run, plan):
            found.append(one)
        elif one is not None and works(lake, group, run, attempt):
            name = f"{store.uri}/{folder}/{attempt}/{MANIFEST}"
            hidden = HiddenRunError(f"{name} is of run {one[0].run} of group {one[0].group}", "restore it from a copy")
    found.sort(key=lambda one: one[0].decided, reverse=True)
    for manifest, hashed in found:
        for file in manifest.files:
            if store.size(f"{folder}/{file.work}") is not None or store.size(file.name) == file.bytes:
                return manifest, hashed
    if hidden is not None:
        raise hidden
    return None


def remove_garbage(
    lake: Lake, group: str, cluster: str, look: Callable[[str, tuple[RunPlan, str] | None], None]
) -> int:
    """Remove runs of a group that were ``killed``, and attempts that are over; how many there were.

    Only under the group's lock. ``look`` raises where a run, with its plan as from ``killed``, may not go: then none
    does.
    """
    kept = lake.documents(group)
    gone = killed(lake, group, cluster, kept)
    for run, found in gone.items():
        look(run, found)
    for run, found in gone.items():
        if found is not None:
            remember(lake, found[0])
        lake.store.remove(lake.folder(group, run))
    newest = next(reversed(kept), None)
    if newest is not None and MANIFEST in kept[newest]:  # of which a folder without a file is left behind, too
        folder = lake.folder(group, newest)
        for name in set(lake.store.names(folder)) - {PLAN, MANIFEST, SETTLED}:
            lake.store.remove(f"{folder}/{name}")
    return len(gone)
