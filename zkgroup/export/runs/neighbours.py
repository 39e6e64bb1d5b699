"""Other groups' runs in the same lake: of two that would export the same partition, or in two layouts, one stands back.

A group's lock keeps exports of that group apart. Between groups there is no lock, since nothing names a lake alike on
all machines: a folder is mounted here and there, a bucket has many endpoints. So a run first puts up its plan, in the
lake, and its pointer, in ZooKeeper, and then looks at the pointers of all groups: one that names a plan *which lies in
this lake* is a neighbour. Whoever of two put up the pointer first goes on, and the other one gives way, or sees that
the first has ended, and then finds its files. ZooKeeper has one order of all writes, and who has written sees all that
was written before: so two runs cannot both miss each other, and a run that takes over an attempt looks again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Literal, NamedTuple

from zkgroup.errors import RefusedError, UnreachableError, ZkgroupError
from zkgroup.export.lake.lake import MANIFEST, Lake
from zkgroup.export.lake.leftovers import undecided
from zkgroup.export.model.documents import decode_pointer, encode_pointer
from zkgroup.export.model.encoding import DamagedDocumentError
from zkgroup.export.model.layout import Layout
from zkgroup.export.model.rundata import Pointer, RunPlan
from zkgroup.export.planning.group import ExportGroup, names_of
from zkgroup.export.runs.claim import read_holder
from zkgroup.protocol import znodes
from zkgroup.protocol.ops import CHANGED, Children, Code, Exists, Failure, Get, Node, SetData, Stat, Sync
from zkgroup.servers.registry import Registry
from zkgroup.words import listed


class Neighbour(NamedTuple):
    """A run of another group that lies in the lake. ``pointer`` None: its group may not be read. ``version`` of the
    pointer's node, ``changed``: its ``mzxid``."""

    plan: RunPlan
    pointer: Pointer | None
    version: int
    changed: int


def binding_layout(
    registry: Registry, lake: Lake, own: str, cluster: str | None = None, *, must_tell: bool = False
) -> Layout | None:
    """The layout that group ``own`` has to write in: that of what was exported, or of what another group has under way;
    None where there is nothing. A run that nobody works on, and that is not decided, binds nobody; of one of another
    ``cluster`` nobody here can tell. ``must_tell``: see ``Lake.layout``."""
    if (exported := lake.layout(must_tell=must_tell)) is not None:
        return exported
    for plan, hashed in undecided(lake, own):
        cluster = cluster or ExportGroup(registry, own, lambda _: None).cluster()
        if plan.cluster != cluster or _is_under_way(registry, plan, hashed):
            return plan.layout
    return None


def refuse_layout(lake: Lake, planned: Layout, found: Layout | None) -> None:
    """Raise ``RefusedError`` where a run was planned in another layout than the one that binds it by now."""
    if found is not None and found != planned:
        raise RefusedError(
            f"another export has just begun {lake.store.uri} with {found.told()}",
            "give the same options, or choose another --to",
        )


def _is_under_way(registry: Registry, plan: RunPlan, hashed: str) -> bool:
    node, lock = registry.read([Get(znodes.export_state(plan.group)), Exists(znodes.export_lock(plan.group))])
    if isinstance(node, Failure) and node.code is Code.NO_AUTH:
        return True  # it may be
    pointer = _pointer(plan.group, node) if isinstance(node, Node) else None
    if pointer is None or pointer.plan != hashed:
        return False
    return pointer.state != "planned" or isinstance(lock, Stat)


def give_way(
    registry: Registry, lake: Lake, plan: RunPlan, attempt: str, warn: Callable[[str], None],
    is_needed: Callable[[RunPlan, Pointer], bool],
) -> None:  # fmt: skip
    """Raise ``RefusedError`` if another group's run that came first is to export a partition of ``plan``, whose pointer
    stands, or has another layout. One that nobody works on and that is not decided is fenced off instead, unless it
    ``is_needed``: it cannot decide any more, and who goes on with it finds this run. May be repeated; raises
    ``UnreachableError`` where it is to be."""
    (own,) = registry.read([Get(znodes.export_state(plan.group))])
    own_zxid = own.stat.mzxid if isinstance(own, Node) else 0
    for other in _neighbours(registry, lake, plan.group):
        theirs = {part.partition for part in other.plan.partitions}
        shared = listed([str(one) for one in sorted(theirs & {part.partition for part in plan.partitions})])
        if not shared and other.plan.layout == plan.layout:
            continue
        if other.pointer is None:
            raise _refusal(lake, plan, other, shared, "hidden", "")
        if other.pointer.state == "planned":
            if other.changed > own_zxid:
                continue  # it came later, and looks as we do
            if _fence(registry, other, attempt, is_needed):
                why = shared or f"with {other.plan.layout.told()}"
                warn(
                    f"run {other.plan.run} of group {other.plan.group} is in the way ({why}), and nobody "
                    "works on it: it is put aside"
                )
                continue
        holder = read_holder(registry, other.plan.group)
        who = f" (host {holder['host']}, process {holder['pid']})" if holder else ""
        raise _refusal(lake, plan, other, shared, "running" if holder else "unfinished", who)


def _neighbours(registry: Registry, lake: Lake, own: str) -> Iterator[Neighbour]:
    _, children = registry.read([Sync(znodes.consumers()), Children(znodes.consumers())])
    groups = [group for group in sorted(names_of(children)) if group != own]
    for group, node in zip(groups, registry.read([Get(znodes.export_state(name)) for name in groups]), strict=True):
        if isinstance(node, Failure) and node.code is Code.NO_AUTH:
            if (hidden := _undecided(lake, group)) is not None:
                yield Neighbour(hidden, None, -1, 0)
        elif not isinstance(node, Node):
            names_of(node)  # raises what is no absence
        elif (pointer := _pointer(group, node)) is not None:
            found = lake.plan(group, pointer.run)
            if found is not None and found[1] == pointer.plan:
                yield Neighbour(found[0], pointer, node.stat.version, node.stat.mzxid)


def left_behind(
    registry: Registry, lake: Lake, plan: RunPlan, *, planned: bool = False
) -> Iterator[tuple[RunPlan, str]]:
    """Other groups' runs of the cluster in the lake that no manifest is beside, and no pointer names, with the hashes
    of their plans: killed ones that ZooKeeper has forgotten. ``planned``: also those that a pointer
    names, and that are not decided. Of a group that may not be read nobody tells."""
    for other, hashed in undecided(lake, plan.group):
        if other.cluster != plan.cluster:
            continue
        (node,) = registry.read([Get(znodes.export_state(other.group))])
        if isinstance(node, Failure) and node.code is not Code.NO_NODE:
            continue
        pointer = _pointer(other.group, node) if isinstance(node, Node) else None
        if pointer is None or pointer.plan != hashed or (planned and pointer.state == "planned"):
            yield other, hashed


def _pointer(group: str, node: Node) -> Pointer | None:
    try:
        return decode_pointer(znodes.export_state(group), node.data)
    except DamagedDocumentError:
        return None  # nobody decides from a pointer that cannot be read


def _undecided(lake: Lake, group: str) -> RunPlan | None:
    """The newest run, if it may be under way: for a group that may not be read."""
    newest = lake.runs(group)[-1:]
    if not newest or MANIFEST in lake.store.names(lake.folder(group, newest[0])):
        return None
    found = lake.plan(group, newest[0])
    return found[0] if found is not None else None


def _fence(registry: Registry, other: Neighbour, attempt: str, is_needed: Callable[[RunPlan, Pointer], bool]) -> bool:
    """Take the run's attempt from it, if nobody holds its group's lock. False where somebody does, the run is needed,
    or it is not allowed."""
    assert other.pointer is not None
    path, lock = znodes.export_state(other.plan.group), znodes.export_lock(other.plan.group)
    (held,) = registry.read([Exists(lock)])
    if isinstance(held, Stat):
        return False
    if other.pointer.attempt == attempt:
        return True
    if is_needed(other.plan, other.pointer):
        return False
    refused = registry.write(SetData(path, encode_pointer(replace(other.pointer, attempt=attempt)), other.version))
    if not isinstance(refused, Failure):
        return True
    if refused.code in CHANGED or refused.code is Code.CONNECTION_LOSS:
        raise UnreachableError(f"the export of group {other.plan.group} changed meanwhile: {refused.code.value}")
    if refused.code is Code.NO_AUTH:
        return False
    raise ZkgroupError(f"cannot write {path}: {refused.code.value} {refused.detail}")


def _refusal(
    lake: Lake, plan: RunPlan, other: Neighbour, shared: str,
    how: Literal["running", "unfinished", "hidden"], who: str,
) -> RefusedError:  # fmt: skip
    theirs, where = other.plan.group, lake.store.uri
    of = shared or "other topics"
    what = {
        "running": f"group {theirs} is exporting {of} to {where} now{who}, in run {other.plan.run}",
        "unfinished": f"group {theirs} has not finished its export of {of} to {where} (run {other.plan.run})",
        "hidden": f"run {other.plan.run} of group {theirs} in {where} is to export {of}, and whether it is "
        "under way may not be read",
    }[how]
    first = {
        "running": "wait until it is done",
        "unfinished": f"finish it (the same command again with --group {theirs}) or end it (--settle)",
        "hidden": f"finish that run, or let this user read {znodes.export_state(theirs)}",
    }[how]
    if not shared:
        return RefusedError(
            f"{what}, with {other.plan.layout.told()}, and readers need one layout and one schema",
            f"give the same options, or {first}, or choose another --to",
        )
    return RefusedError(
        f"{what}: group {plan.group} would export the same messages once more",
        f"one group exports a topic to a destination: {first}, or choose another --to",
    )
