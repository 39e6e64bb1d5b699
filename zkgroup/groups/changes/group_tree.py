"""All nodes of groups, foreign ones included, and access lists.

Read level by level, pipelined, for many groups at once. Nothing is created. A node that vanishes meanwhile is gone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from zkgroup.clients.zookeeper.registry import Registry, names_in
from zkgroup.errors import RefusedError
from zkgroup.groups.group_model import StoredOffset
from zkgroup.groups.snapshot.group_znodes import stored_offset
from zkgroup.protocol import znodes
from zkgroup.protocol.names import TopicPartition, parse_partition
from zkgroup.protocol.operations import OPEN, Acl, Acls, Children, Code, Failure, Get, GetAcl, Node, Result, Stat
from zkgroup.text import listed

READERS: Final = "connect with credentials that may read the group's nodes"
ADMINISTRATORS: Final = "connect with credentials that may read and administer the group's nodes"


@dataclass(frozen=True, slots=True)
class TreeNode:
    """One node. ``path`` is relative to the chroot."""

    path: str
    data: bytes
    stat: Stat

    @property
    def text(self) -> str:
        """The data as text, as owner nodes have it."""
        return self.data.decode("utf-8", "backslashreplace")

    @property
    def identity(self) -> tuple[int, int, int]:
        """Changes with every write, and with a deletion and re-creation."""
        return self.stat.czxid, self.stat.mzxid, self.stat.version


@dataclass(frozen=True, slots=True)
class GroupTree:
    """A group's nodes, or those below some of its nodes, parents first. ``unreadable``: why some are not known."""

    group: str
    nodes: tuple[TreeNode, ...]
    unreadable: tuple[str, ...] = ()

    def require_readable(self) -> None:
        """Raise ``RefusedError`` where nodes are not known."""
        if self.unreadable:
            raise RefusedError(f"nodes of group {self.group} cannot be read: {listed(self.unreadable)}", READERS)

    @property
    def paths(self) -> list[str]:
        """The paths of all nodes."""
        return [node.path for node in self.nodes]

    @property
    def is_empty(self) -> bool:
        """Whether there are but the nodes in which a group would have something: no member, owner, offset or else."""
        above = (znodes.owners(self.group), znodes.offsets(self.group))
        bare = {znodes.group(self.group), znodes.ids(self.group), *above}
        return not self.unreadable and all(
            not node.data and not node.stat.owner and (node.path in bare or node.path.rpartition("/")[0] in above)
            for node in self.nodes
        )

    @property
    def foreign(self) -> tuple[str, ...]:
        """The nodes that neither consumers nor zkgroup make, such as the state of Storm's spout, or that they make
        without data."""
        return tuple(node.path for node in self.nodes if not self._is_known(node))

    def _is_known(self, node: TreeNode) -> bool:
        root = znodes.group(self.group)
        match node.path.removeprefix(root).split("/")[1:]:
            case [] | ["ids" | "owners" | "offsets"] | ["owners" | "offsets", _]:
                return not node.data
            case ["zkgroup", *_] | ["ids", _] | ["owners", _, _]:
                return True
            case ["offsets", _, number]:
                return parse_partition(number) is not None
        return False

    @property
    def is_foreign(self) -> bool:
        """Whether nothing but nodes of another client would be lost with the group."""
        foreign = frozenset(self.foreign)
        own = tuple(node for node in self.nodes if node.path not in foreign)
        return bool(foreign) and GroupTree(self.group, own, self.unreadable).is_empty

    @property
    def members(self) -> tuple[str, ...]:
        """The names below ``ids``."""
        parent = znodes.ids(self.group) + "/"
        below = (node.path.removeprefix(parent) for node in self.nodes if node.path.startswith(parent))
        return tuple(sorted(name for name in below if "/" not in name))

    @property
    def live_owners(self) -> tuple[str, ...]:
        """Ephemeral nodes: their sessions live."""
        return tuple(node.path for node in self.nodes if node.stat.owner)

    @property
    def export(self) -> bytes:
        """The data of an unfinished export's node; empty where there is none."""
        return self._data(znodes.export_state(self.group))

    @property
    def export_lock(self) -> bytes:
        """The data of the lock of an export; empty where there is none."""
        return self._data(znodes.export_lock(self.group))

    def _data(self, path: str) -> bytes:
        return next((node.data for node in self.nodes if node.path == path), b"")

    @property
    def last_change(self) -> int | None:
        """When any of the nodes was written last, in milliseconds since 1970."""
        return max((node.stat.mtime for node in self.nodes), default=None)

    @property
    def offsets(self) -> dict[TopicPartition, StoredOffset]:
        """The offset nodes, in their order."""
        parent = znodes.offsets(self.group) + "/"
        found = {}
        for node in self.nodes:
            topic, _, name = node.path.removeprefix(parent).partition("/")
            number = parse_partition(name)
            if node.path.startswith(parent) and number is not None:
                found[TopicPartition(topic, number)] = stored_offset(Node(node.data, node.stat))
        return dict(sorted(found.items()))


def read_tree(registry: Registry, group: str, roots: Sequence[str] | None = None) -> GroupTree:
    """A group's nodes; with ``roots``, only those and what is below them. Raises ``UnreachableError``."""
    return read_trees(registry, {group: [znodes.group(group)] if roots is None else roots})[group]


def read_trees(registry: Registry, roots: Mapping[str, Sequence[str]]) -> dict[str, GroupTree]:
    """The trees of many groups, each from its ``roots``. Raises ``UnreachableError``."""
    found: dict[str, list[TreeNode]] = {group: [] for group in roots}
    unreadable: dict[str, list[str]] = {group: [] for group in roots}
    level = [(group, path) for group, paths in roots.items() for path in paths]
    while level:
        parents = []
        for (group, path), result in zip(level, registry.read([Get(path) for _, path in level]), strict=True):
            if isinstance(result, Node):
                found[group].append(TreeNode(path, result.data, result.stat))
                if result.stat.children:
                    parents.append((group, path))
            elif isinstance(result, Failure) and result.code is not Code.NO_NODE:
                unreadable[group].append(f"{path}: {result.code.value}")
        level = []
        for (group, path), names in zip(parents, registry.read([Children(path) for _, path in parents]), strict=True):
            level += [(group, znodes.child(path, name)) for name in sorted(names_in(names))]
    return {group: GroupTree(group, tuple(found[group]), tuple(unreadable[group])) for group in roots}


def readable_acl(path: str, result: Result) -> tuple[Acl, ...]:
    """The access list of ``path``, open where there is no node. Raises ``RefusedError`` where it is not shown whole."""
    if isinstance(result, Failure):
        if result.code is Code.NO_NODE:
            return OPEN
        raise RefusedError(f"the access list of {path} cannot be read: {result.code.value}", ADMINISTRATORS)
    acl = result.acl if isinstance(result, Acls) else OPEN
    if any(entry.scheme == "digest" and entry.id.endswith(":x") for entry in acl):
        raise RefusedError(f"the access list of {path} is shown only to its administrators", ADMINISTRATORS)
    return acl


def read_acls(registry: Registry, paths: Iterable[str]) -> tuple[dict[str, tuple[Acl, ...]], dict[str, RefusedError]]:
    """The access lists of these nodes, and for each that is not shown whole the reason. Raises ``UnreachableError``."""
    wanted = list(paths)
    acls: dict[str, tuple[Acl, ...]] = {}
    unreadable: dict[str, RefusedError] = {}
    for path, result in zip(wanted, registry.read([GetAcl(path) for path in wanted]), strict=True):
        try:
            acls[path] = readable_acl(path, result)
        except RefusedError as refused:
            unreadable[path] = refused
    return acls, unreadable


def require_acls(registry: Registry, paths: Iterable[str]) -> dict[str, tuple[Acl, ...]]:
    """The access lists of these nodes. Raises ``RefusedError`` where one is not shown whole."""
    acls, unreadable = read_acls(registry, paths)
    for refused in unreadable.values():
        raise refused
    return acls
