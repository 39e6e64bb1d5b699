"""Whether a group is active, or has an unfinished export, and what makes a transaction fail once it becomes active.

A member is a child of ``ids``. Deleting and re-creating that node in a transaction fails with ``NOT_EMPTY`` once a
member has registered; a check of its version would not notice, as children do not count there. Live owner nodes count
too: their members read and commit, registered or not. So does a running export. Reading creates nothing.

``zkgroup.export`` documents the states of an export's node. A run that is only ``planned`` binds nothing: its lock
shows that it runs, and a change of the group makes its decision fail. One that is decided goes on from the group's
offsets, and is lost with the node.
"""

from __future__ import annotations

import json
import socket
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec

from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.errors import RefusedError, Remedy
from zkgroup.groups.changes.group_tree import ADMINISTRATORS, read_tree, readable_acl
from zkgroup.groups.snapshot.group_znodes import host_of
from zkgroup.protocol import znodes
from zkgroup.protocol.names import session_text
from zkgroup.protocol.operations import (
    Acl,
    Children,
    Code,
    Create,
    Delete,
    Exists,
    Failure,
    Get,
    GetAcl,
    Node,
    Op,
    Result,
    Stat,
    Sync,
)
from zkgroup.protocol.znodes import excerpt
from zkgroup.text import group_command, listed

_UNKNOWN: Final = "its state cannot be read"


_LONGEST = 1000  # characters of a place


class UnfinishedExportError(RefusedError):
    """Refused because an export of the group was decided and is not finished, though no process may work on it now."""

    def __init__(self, group: str, data: bytes) -> None:
        output = _read_pointer(data).get("output")
        place = ("--to", output) if isinstance(output, str) and len(output) < _LONGEST else ()
        text = (
            "run that export again, which finishes it, or give it up with --abandon if its destination is lost; see its"
            " state"
        )
        status = ("export", "--group", group, *place, "--status")
        super().__init__(describe_unfinished_export(group, data) or "", Remedy(text, status))


def describe_unfinished_export(group: str, data: bytes) -> str | None:
    """The unfinished export in the node ``/consumers/G/zkgroup/export``, as text; None where there is none."""
    state, run, output = (_read_pointer(data).get(key) for key in ("state", "run", "output"))
    if not data or state == "planned":
        return None
    found = f"{excerpt(state)}, run {excerpt(run)}, to {excerpt(output)}" if isinstance(state, str) else _UNKNOWN
    return f"an export of group {group} is unfinished: {found}"


def _read_pointer(data: bytes) -> Mapping[str, Any]:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


class GroupActiveError(RefusedError):
    """Refused because the group is active: ``members`` are registered; ``holders`` are other owners and exports, as
    text; ``exporting``: an export runs."""

    def __init__(self, group: str, members: Sequence[str], holders: Sequence[str], *, exporting: bool = False) -> None:
        parts = []
        if members:
            noun = "member" if len(members) == 1 else "members"
            parts.append(f"{noun} {listed([_with_host(group, member) for member in members])}")
        parts += holders
        super().__init__(f"group {group} is active: {'; '.join(parts)}", "stop its clients, then try again")
        self.exporting = exporting


@dataclass(frozen=True, slots=True)
class InactiveGroup:
    """An inactive group. Nodes are None where there is none."""

    group: str
    exists: bool
    ids: Node | None
    ids_acl: tuple[Acl, ...]
    exports: tuple[str, ...]  # which of …/zkgroup and …/zkgroup/export are there

    @property
    def export_probe(self) -> str:
        """The node that a beginning export creates next; while it is missing no export runs."""
        below = (_export_parent(self.group), znodes.export_state(self.group), znodes.export_lock(self.group))
        return below[len(self.exports)]

    def operations(self) -> list[Create | Delete]:
        """Fails in a transaction once a member has registered or an export has begun; changes nothing in effect."""
        probe = self.export_probe
        return [*self._ids(), Create(probe), Delete(probe)] if self.exists else []

    def _ids(self) -> list[Create | Delete]:
        path = znodes.ids(self.group)
        if self.ids is None:
            return [Create(path), Delete(path)]
        return [Delete(path, self.ids.stat.version), Create(path, self.ids.data, acl=self.ids_acl)]


def read_inactive_group(registry: Registry, group: str, *, settled: bool = True) -> InactiveGroup:
    """Check that ``group`` is inactive, on a server that has caught up with its leader.

    Raises ``GroupActiveError`` if it is; ``UnfinishedExportError`` if an export of it waits to be finished and it is to
    be ``settled``; ``RefusedError`` where that is not known, or where the access list of
    ``ids`` is shown in part only, so that the node could not be recreated as it is.
    """
    parent, exports, lock = _export_parent(group), znodes.export_state(group), znodes.export_lock(group)
    ids, owners = znodes.ids(group), znodes.owners(group)
    ops: list[Op] = [
        Sync(znodes.consumers()),
        Exists(znodes.group(group)),
        Get(ids),
        GetAcl(ids),
        Children(ids),
        Children(owners),
        Exists(parent),
        Get(exports),
        Get(lock),
    ]
    _, there, node, acl, members, topics, *exporting = registry.read(ops)
    registered = _children(ids, members)
    # Owners that are registered members need no line of their own.
    holders = [] if registered else _live_owners(registry, group, _children(owners, topics))
    if isinstance(exporting[2], Node):
        exporter = decode_exporter(exporting[2].data)
        if exporter is not None and exporter.is_killed and not registered and not holders:
            if settled:
                _refuse_unfinished(group, exporting[1])
            raise RefusedError(f"group {group}: {exporter.text}", "wait until its session has ended, then try again")
        holders.append("an export runs" if exporter is None else exporter.text)
    if registered or holders:
        lasting = _persistent(registry, group, registered)
        if lasting and len(lasting) == len(registered) and not holders:
            raise _lasting_members(group, lasting)
        raise GroupActiveError(group, registered, holders, exporting=isinstance(exporting[2], Node))
    if settled:
        _refuse_unfinished(group, exporting[1])
    return InactiveGroup(
        group=group,
        exists=isinstance(there, Stat),
        ids=node if isinstance(node, Node) else None,
        ids_acl=readable_acl(ids, acl),
        exports=tuple(
            path for path, stat in zip((parent, exports), exporting, strict=False) if isinstance(stat, Stat | Node)
        ),
    )


def refuse_unfinished(registry: Registry, group: str) -> None:
    """Raise ``UnfinishedExportError`` if an export of the group waits to be finished."""
    _refuse_unfinished(group, registry.read([Get(znodes.export_state(group))])[0])


def _refuse_unfinished(group: str, pointer: Result) -> None:
    if isinstance(pointer, Node) and describe_unfinished_export(group, pointer.data):
        raise UnfinishedExportError(group, pointer.data)
    if isinstance(pointer, Failure) and pointer.code is not Code.NO_NODE:
        raise _not_known(f"{znodes.export_state(group)}: {pointer.code.value}")


def _with_host(group: str, member: str) -> str:
    host = host_of(group, member)
    return f"{member} on {host}" if host else member


def _persistent(registry: Registry, group: str, members: Sequence[str]) -> list[str]:
    """The nodes of those members that no session owns: they stay when all clients are stopped."""
    paths = [f"{znodes.ids(group)}/{member}" for member in members]
    stats = registry.read([Exists(path) for path in paths])
    return [path for path, stat in zip(paths, stats, strict=True) if isinstance(stat, Stat) and not stat.owner]


def _lasting_members(group: str, paths: Sequence[str]) -> GroupActiveError:
    error = GroupActiveError(group, [path.rpartition("/")[2] for path in paths], [])
    error.add_outcome(f"no client removes such a node, which is not ephemeral: {listed(paths)}")
    names = [word for path in paths for word in ("--member", path.rpartition("/")[2])]
    releasing = group_command("release-owners", group, *names, "--execute")
    error.remedy = Remedy("make sure that no client uses that name, then remove its registration", releasing)
    return error


def _live_owners(registry: Registry, group: str, topics: Iterable[str]) -> list[str]:
    """Owner nodes that a session owns; persistent ones do not make a group active."""
    tree = read_tree(registry, group, [znodes.owner_topic(group, topic) for topic in topics])
    if tree.unreadable:
        raise _not_known(tree.unreadable[0])
    owned = Counter((node.text, node.stat.owner) for node in tree.nodes if node.stat.owner)
    owners = [
        f"{name or 'an unnamed owner'} (session {session_text(session)}, {count})"
        for (name, session), count in owned.items()
    ]
    return [f"partitions are owned by {listed(owners)}"] if owners else []


def _children(path: str, result: Result) -> tuple[str, ...]:
    if isinstance(result, tuple):
        return tuple(sorted(result))
    if isinstance(result, Failure) and result.code is not Code.NO_NODE:
        raise _not_known(f"{path}: {result.code.value}")
    return ()


def _not_known(why: str) -> RefusedError:
    return RefusedError(f"whether the group is active is unknown: {why}", ADMINISTRATORS)


def _export_parent(group: str) -> str:
    return znodes.export_state(group).rpartition("/")[0]


class Exporter(msgspec.Struct):
    """The process that has an export's lock, and ``since`` when (milliseconds since 1970)."""

    host: Annotated[str, msgspec.Meta(max_length=255)]
    pid: int
    since: int | None = None

    @property
    def is_killed(self) -> bool:
        """Whether its process on this host is gone: the lock stays until its session ends."""
        return self.host == socket.gethostname() and not Path(f"/proc/{self.pid}").exists()

    @property
    def text(self) -> str:
        """The export, as text."""
        place = f"on {self.host}, process {self.pid}"
        return f"an export {place}, was killed" if self.is_killed else f"an export runs {place}"


def decode_exporter(data: bytes) -> Exporter | None:
    """Read an export's lock; None where it names no process."""
    with suppress(msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return msgspec.json.decode(data, type=Exporter)
    return None
