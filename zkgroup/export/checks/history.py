"""Looking at runs: what was exported, what is under way, what is unfinished and what to do about it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from zkgroup.errors import MalformedZnodeError, RefusedError, ZkgroupError
from zkgroup.export.lake.asking import at_once
from zkgroup.export.lake.holdings import is_taken_back
from zkgroup.export.lake.lake import MANIFEST, Lake
from zkgroup.export.lake.leftovers import works, written
from zkgroup.export.model.accounting import total
from zkgroup.export.model.documents import decode_pointer
from zkgroup.export.model.encoding import DamagedDocumentError
from zkgroup.export.model.rundata import Manifest, Pointer, RunPlan
from zkgroup.export.planning.group import ExportGroup, names_of
from zkgroup.export.runs.claim import ExportClaim, read_holder
from zkgroup.export.runs.last_copies import KEEPS, beside, is_published, kept_elsewhere
from zkgroup.export.runs.late import may_be_committed, standing
from zkgroup.export.runs.refusals import ENDED, NOT_AS_DECIDED, REPLACED, Moved, Remade
from zkgroup.export.stores.store import FolderStore
from zkgroup.protocol import znodes
from zkgroup.protocol.names import TopicPartition
from zkgroup.protocol.ops import Children, Code, Failure, Get, Node
from zkgroup.servers.registry import Registry


@dataclass(frozen=True, slots=True)
class RunRow:
    """A run. ``state``: ``exported``; ``undecided`` (nothing of it counts); ``kept`` and ``withdrawn``: settled by
    hand; ``unreadable``: its documents are damaged. ``gaps``: offsets that are no messages, ``skipped``: offsets that
    were left out knowingly, and were not read. ``planned`` and ``decided`` are milliseconds since 1970."""

    run: str
    group: str
    kind: str | None
    state: Literal["exported", "undecided", "kept", "withdrawn", "unreadable"]
    planned: int | None
    decided: int | None
    partitions: int
    rows: int
    bytes: int
    files: int
    gaps: int
    skipped: int
    undecodable: int = 0
    late: int = 0


@dataclass(frozen=True, slots=True)
class StatusRow:
    """What is under way for a group. ``state``: ``running``, or ``unfinished``: nobody is at work on it. ``step``: the
    pointer's, or ``written``: there is none, and the run's files are there. ``since``: when the work began,
    milliseconds since 1970. ``elsewhere``: whether it is known to be for another destination than the one that was
    asked about."""

    group: str
    run: str | None
    state: Literal["running", "unfinished"]
    step: str
    host: str | None
    pid: int | None
    since: int | None
    output: str | None
    advice: str
    elsewhere: bool = False


_ADVICE = {
    "planned": (
        "run the same command again: it reads the planned ranges again (with --skip-lost where messages of them are "
        "gone); or --settle withdraw"
    ),
    "decided": "run the same command again: it publishes and commits what was read; or end it with --settle",
    "committed": "run the same command again: it publishes what was read; the offsets are committed",
    "withdrawn": (
        "run the same command again: it finishes taking the files back; --settle keep keeps them, if all are there"
    ),
}


_PUBLISHED = (
    "it has published files, so it was decided: --settle keep publishes the rest and commits, or tells what is in the "
    "way"
)
_AT_ENDS = (
    "it may have been decided, as the group stands where it ends: {}; if other members have read that, --skip-lost "
    "drops it"
)
_DAMAGED = (
    "it has files that are not published, and {}: restore it from a copy; where the logs do not have what "
    "they hold any more the next export is refused, and --skip-lost gives it up"
)
_PASSED = (
    "it was written to the end, and run {} came after it: the next export drops it where logs or other files have what "
    "it holds; else {}"
)
_LEFT = (
    "it was written to the end, and ZooKeeper knows nothing of it: the next export reads it again if the logs have it; "
    "else {}"
)


def history(
    lake: Lake, groups: Sequence[str] | None = None, warn: Callable[[str], None] = lambda _: None
) -> Iterator[RunRow]:
    """The runs that a lake keeps, of all groups or of these, the oldest first. ``warn`` is told of what cannot be
    read."""
    for group in lake.groups() if groups is None else groups:
        runs = lake.runs(group)
        for run, answer in zip(runs, at_once(partial(_run_row, lake, group), runs), strict=True):
            try:
                yield answer.result()
            except DamagedDocumentError as error:
                warn(error.message)
                yield RunRow(run, group, None, "unreadable", None, None, 0, 0, 0, 0, 0, 0)


def _run_row(lake: Lake, group: str, run: str) -> RunRow:
    found = lake.manifest(group, run)
    if found is None:
        try:
            plan = lake.plan(group, run)
        except ZkgroupError:
            plan = None
        if plan is None:
            return RunRow(run, group, "export", "undecided", None, None, 0, 0, 0, 0, 0, 0)
        partitions = len({part.partition for part in plan[0].partitions})
        return RunRow(run, group, plan[0].kind, "undecided", plan[0].planned, None, partitions, 0, 0, 0, 0, 0)
    manifest = found[0]
    settled = lake.settled(group, run)
    withdrawn: set[TopicPartition] = set()
    if settled is not None and settled.how == "withdraw":
        withdrawn = set(settled.left)
    counted = [part for part in manifest.parts if part.plan.partition not in withdrawn]
    files = [file for file in manifest.files if not is_taken_back(file, withdrawn)]
    state: Literal["exported", "kept", "withdrawn"] = "exported"
    if settled is not None:
        state = "kept" if settled.how == "keep" else "withdrawn"
    return RunRow(
        run,
        group,
        manifest.kind,
        state,
        manifest.planned,
        manifest.decided,
        len({part.plan.partition for part in counted}),
        sum(part.rows for part in counted),
        sum(file.bytes for file in files),
        len(files),
        sum(total(part.gaps for part in counted).values()),
        sum(part.plan.lost for part in counted),
        sum(part.undecodable for part in counted),
        sum(part.late for part in counted),
    )


def status(registry: Registry, group: str | None = None, lake: Lake | None = None) -> list[StatusRow]:
    """What is under way for a group, or for any. ``lake``: where a decided run's manifest is looked for, to tell
    whether it can still be committed; without it in the run's own folder, if that is here."""
    if group is not None:
        groups = [group]
    else:
        known = names_of(registry.read([Children(znodes.consumers())])[0])
        groups = sorted({*known, *(lake.groups() if lake is not None else ())})
    nodes = registry.read([Get(znodes.export_state(name)) for name in groups])
    rows = (_status_row(registry, name, node, lake) for name, node in zip(groups, nodes, strict=True))
    return [row for row in rows if row is not None]


def _status_row(registry: Registry, group: str, node: object, lake: Lake | None) -> StatusRow | None:
    """What the ``node`` of a group's pointer tells, and who holds its lock; None where nothing is under way."""
    path, pointer, advice, step = znodes.export_state(group), None, "", "planning"
    holder = None
    if not (isinstance(node, Failure) and node.code is Code.NO_NODE):
        holder = read_holder(registry, group)
        if isinstance(node, Node):
            try:
                pointer = decode_pointer(path, node.data)
            except (MalformedZnodeError, ZkgroupError) as error:
                step, advice = "unreadable", str(error)
        elif isinstance(node, Failure):
            why = node.code.value
            step, advice = "unreadable", f"znode {path} cannot be read: {why}: connect as one whom its list admits"
    run = pointer.run if pointer is not None else None
    if pointer is not None:
        step, advice = pointer.state, "" if holder else _advice(registry, group, pointer, lake)
    elif not holder and step != "unreadable":
        found = None if lake is None else _left(registry, lake, group)
        if found is None:
            return None
        step, (run, advice) = "written", found
    return StatusRow(
        group,
        run,
        "running" if holder else "unfinished",
        step,
        str(holder["host"]) if holder else None,
        _number(holder.get("pid")) if holder else None,
        _number(holder.get("since")) if holder else None,
        pointer.output if pointer else None,
        "wait until it is done" if holder and not advice else advice,
        lake is not None and pointer is not None and not _lies_in(lake, group, pointer),
    )


def _advice(registry: Registry, group: str, pointer: Pointer, lake: Lake | None) -> str:
    """What is to be done about a run that nobody works on."""
    if lake is not None and _is_replaced(lake, group, pointer):
        return f"the run's plan is not in {lake.store.uri}: {REPLACED}"
    found = _in_the_way(registry, group, pointer, lake) if pointer.state != "withdrawn" else ""
    return found or _ADVICE[pointer.state]


def _left(registry: Registry, lake: Lake, group: str) -> tuple[str, str] | None:
    """A group's first run that was not decided, but written to the end; and what is to be done about it."""
    for run in [run for run, names in lake.documents(group).items() if MANIFEST not in names]:
        try:
            plan = lake.plan(group, run)
            found = None if plan is None else written(lake, group, run, plan[1])
            if plan is not None and found is not None:
                return run, _advice_on_left(registry, lake, plan[0], found[0])
        except DamagedDocumentError as damage:
            if works(lake, group, run):
                return run, _DAMAGED.format(damage.message)
        except ZkgroupError:
            continue
    return None


def _advice_on_left(registry: Registry, lake: Lake, plan: RunPlan, manifest: Manifest) -> str:
    if (later := lake.later(plan.group, plan.run)) is not None:
        return _PASSED.format(later, kept_elsewhere(lake, plan.group, plan.run))
    if _has_published(lake, manifest):
        return _PUBLISHED
    asked = _AT_ENDS if _may_be_committed(registry, manifest, is_gone=True) else _LEFT
    return asked.format(_keeps(lake, plan, manifest))


def _keeps(lake: Lake, plan: RunPlan, manifest: Manifest) -> str:
    """How the files of a run that is not decided are not lost."""
    in_the_way = None
    with contextlib.suppress(ZkgroupError):  # which whoever tries it is told
        in_the_way = beside(lake, plan, manifest, decided=False)
    if in_the_way is None:
        return KEEPS
    return f"it cannot be kept here ({in_the_way}): {kept_elsewhere(lake, plan.group, plan.run)}"


def _may_be_committed(registry: Registry, manifest: Manifest, *, is_gone: bool) -> bool:
    claim = ExportClaim(registry, manifest.group, manifest.attempt, lambda _: None)
    return may_be_committed(standing(claim, manifest), is_gone=is_gone)


def _has_published(lake: Lake, manifest: Manifest) -> bool:
    return any(is_published(lake, file) for file in manifest.files)


def _lies_in(lake: Lake, group: str, pointer: Pointer) -> bool:
    """Whether a run is for this lake: by its plan, since one place has many names, or by the name."""
    if pointer.output == lake.store.uri:
        return True
    try:
        found = lake.plan(group, pointer.run)
    except DamagedDocumentError:
        return True  # no other run has its name
    return found is not None and found[1] == pointer.plan


def _is_replaced(lake: Lake, group: str, pointer: Pointer) -> bool:
    """Whether this is the place that the pointer names, without its run."""
    try:
        return pointer.output == lake.store.uri and lake.plan(group, pointer.run) is None
    except DamagedDocumentError:
        return False


def _in_the_way(registry: Registry, group: str, pointer: Pointer, lake: Lake | None) -> str:
    """Why a run cannot go on as it stands, and what to do; nothing where it can, or nobody tells."""
    if lake is None:
        if "://" in pointer.output:  # reached with what --to says beside the place
            return ""
        lake = Lake(FolderStore(Path(pointer.output)))
    try:
        planned = lake.plan(group, pointer.run)
        settled = lake.settled(group, pointer.run)
    except DamagedDocumentError as damage:
        return f"{damage.message}: {damage.remedy}"
    except ZkgroupError:
        return ""
    try:
        manifest = None if pointer.state == "planned" else lake.named(group, pointer)
    except DamagedDocumentError as damage:
        return f"{damage.message}: {NOT_AS_DECIDED}"
    except ZkgroupError:
        return ""
    if planned is None:
        return ""
    if manifest is None and pointer.state != "planned":
        return f"its manifest is not in {lake.store.uri}: {NOT_AS_DECIDED}"
    if pointer.state == "committed":
        return ""
    if settled is not None and settled.how == "withdraw" and pointer.state != "planned":
        return f"it was being taken back: {_ADVICE['withdrawn']}"
    look, topics = ExportGroup(registry, group, lambda _: None), planned[0].topics
    remade = [name for name, now in look.identities(topics).items() if not topics[name].same(now)]
    if manifest is None:
        if MANIFEST in lake.store.names(lake.folder(group, pointer.run)):
            return f"it has ended before, and ZooKeeper's data is of an earlier time: {ENDED}"
        try:
            found = written(lake, group, pointer.run, pointer.plan)
        except DamagedDocumentError as damage:
            return _DAMAGED.format(damage.message)
        if found is not None:
            if _has_published(lake, found[0]):
                return _PUBLISHED
            keeps = _keeps(lake, planned[0], found[0])
            if _may_be_committed(registry, found[0], is_gone=False):
                return _AT_ENDS.format(keeps)
            if not remade:
                return f"{_ADVICE['planned']}; where the logs do not have it any more {keeps}"
            return f"topic {remade[0]} was made again since: {keeps}, --settle withdraw --skip-lost gives it up"
        again = "run the same command again, which drops it, and then once more"
        return f"topic {remade[0]} was made again since: {again}" if remade else ""
    moved = ExportClaim(registry, group, pointer.attempt, lambda _: None).conflicts(manifest.parts)
    if remade:
        return f"topic {remade[0]} was made again since, so it cannot be committed: {Remade.again}"
    if moved:
        return f"{moved[0][0].plan.partition} was moved since, so it cannot be committed: {Moved.again}"
    try:
        look.refuse_if_live()
    except RefusedError as error:
        return f"{error.message}: stop the members, then run the same command again"
    return ""


def _number(value: object) -> int | None:
    return value if isinstance(value, int) else None
