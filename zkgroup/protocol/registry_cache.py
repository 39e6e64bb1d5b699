"""Nodes of the registry that a member has read with a watch: it reads again only those that have changed.

A registration does not change while its node lives, and topics change seldom. Without the cache a group of M members
would cost ZooKeeper M² reads for each member that joins.

Why a cached node is valid: ZooKeeper sends a watch's event before it answers a read that has seen the change, on the
same connection. The event removes the node from the cache. Watches end with the connection, and the cache with them.
"""

from __future__ import annotations

from collections.abc import Sequence

from zkgroup.protocol.offset_versions import Procedure
from zkgroup.protocol.operations import Get, Node, Result


class RegistryCache:
    """Nodes by path. One procedure at a time reads through it."""

    def __init__(self) -> None:
        self._nodes: dict[str, Node] = {}
        self._changed: set[str] = set()  # while something is being read
        self._era = 0

    def __len__(self) -> int:
        return len(self._nodes)

    def changed(self, path: str) -> None:
        """A watch event came for this path."""
        self._nodes.pop(path, None)
        # The answers of one batch come one after the other, and all are returned with the last of them. An answer from
        # before the event is outdated, and its watch is gone.
        self._changed.add(path)

    def forget(self) -> None:
        """Watches are gone, or the cached nodes are in doubt."""
        self._nodes.clear()
        self._era += 1

    def read(self, wanted: Sequence[Get]) -> Procedure[list[Result]]:
        """The results of ``wanted``, in their order. Those with a watch are read only where they are not cached."""
        known = {get.path: self._nodes[get.path] for get in wanted if get.watch and get.path in self._nodes}
        missing = tuple(get for get in wanted if get.path not in known)
        if not missing:
            return [known[get.path] for get in wanted]
        self._changed.clear()
        era = self._era
        found = dict(zip((get.path for get in missing), (yield missing), strict=True))
        if era == self._era:
            for get in missing:
                node = found[get.path]
                if get.watch and isinstance(node, Node) and get.path not in self._changed:
                    self._nodes[get.path] = node
        return [known[get.path] if get.path in known else found[get.path] for get in wanted]
