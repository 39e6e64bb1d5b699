"""What a member has read of the registry and watches since, so that it reads again only what has changed.

A registration does not change while its node lives, and topics change seldom: a group of M members that all read all
registrations in every rebalance costs ZooKeeper M² reads for the one that has come.

Why a node that is known may be believed: ZooKeeper tells a watch's event before it answers a read that has seen the
change, on the same connection and in that order; a watch is told once, and then the node is not known any more. Watches
end with the connection, and so does all that is known.
"""

from __future__ import annotations

from collections.abc import Sequence

from zkgroup.protocol.offset_versions import Procedure
from zkgroup.protocol.operations import Get, Node, Result


class Known:
    """Nodes by path, as they are. One procedure at a time reads through it."""

    def __init__(self) -> None:
        self._nodes: dict[str, Node] = {}
        self._changed: set[str] = set()  # while something is being read
        self._era = 0

    def __len__(self) -> int:
        return len(self._nodes)

    def changed(self, path: str) -> None:
        """A watch has told of this path."""
        self._nodes.pop(path, None)
        # The answers of one request come one after the other, and an event may come between them: what was answered
        # before it, and is handed on with the last of them, is outdated, and its watch is gone.
        self._changed.add(path)

    def forget(self) -> None:
        """Watches are gone, or what is known is doubted."""
        self._nodes.clear()
        self._era += 1

    def read(self, wanted: Sequence[Get]) -> Procedure[list[Result]]:
        """The results of ``wanted``, in their order. Those that watch are asked for only where they are not known."""
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
