"""A group's nodes in ZooKeeper, kept up to date by watches: read whole once, and then only what has changed.

A watch tells once; the node is then read again with the next look that wants it, and watched anew. Offset nodes may
change many times a second: what is told of them waits for a look at offsets, so that each is read once a look at most.
Nothing is ever created.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

from zkgroup.clients.kafka.responses import KafkaSide
from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.clients.zookeeper.watching_registry import EVERYTHING
from zkgroup.groups.group_model import GroupSnapshot
from zkgroup.groups.snapshot import znode_reader
from zkgroup.groups.snapshot.raw_group import gather, join_group
from zkgroup.groups.snapshot.znode_reader import Nodes, World
from zkgroup.protocol import znodes
from zkgroup.protocol.names import TopicPartition
from zkgroup.protocol.operations import Children, Code, Exists, Failure, Get, Op, Stat

if TYPE_CHECKING:
    from zkgroup.clients.kafka.log_offsets import Log


class WatchedNodes(Nodes):
    """``Nodes`` that watch what they have read, and read again what has changed. Used by one thread, but for
    ``change``."""

    def __init__(self, patient: str) -> None:
        """``patient``: the path below which changes wait for a look at everything."""
        super().__init__()
        self._patient = f"{patient}/"
        self._lock = threading.Lock()
        self._changed: set[str] = set()
        self._lost = False
        self._used: set[str] = set()
        self._noticed: int | None = None
        #: How many requests were sent, for whoever wants to know what a watch costs.
        self.requests = 0

    def change(self, path: str) -> bool:
        """Note what a watch told, on any thread; whether a look is due for it at once."""
        with self._lock:
            if path == EVERYTHING:
                self._lost = True
                return True
            self._changed.add(path)
            if path.startswith(self._patient):
                return False
            if self._noticed is None:
                self._noticed = time.time_ns() // 1_000_000
        return True

    def noticed(self) -> int | None:
        """When the first change was told, of those that are not patient, since this was asked last (milliseconds since
        1970)."""
        with self._lock:
            at, self._noticed = self._noticed, None
        return at

    def begin(self, *, everything: bool) -> None:
        """Before a look: forget what has changed; without ``everything`` not what is patient."""
        with self._lock:
            lost, self._lost = self._lost, False
            changed = {path for path in self._changed if everything or lost or not path.startswith(self._patient)}
            self._changed -= changed
        self._used.clear()
        if lost:
            self._forget([*self._lists, *self._nodes])
        else:
            self._forget(changed)

    def end(self) -> None:
        """After a look: what it did not want is of no use any more, as of a partition that is gone."""
        self._forget([path for path in {*self._lists, *self._nodes} if path not in self._used])

    def _forget(self, paths: Iterable[str]) -> None:
        for path in paths:
            self._lists.pop(path, None)
            self._nodes.pop(path, None)
            self._hidden.pop(path, None)
        self._children.clear()

    def ask(self, registry: Registry, *, lists: Iterable[str] = (), nodes: Iterable[str] = ()) -> None:
        """As ``Nodes.ask``, with watches; a node that is not there is watched for its coming."""
        lists, nodes = list(dict.fromkeys(lists)), list(dict.fromkeys(nodes))
        self._used.update(lists, nodes)
        ops: list[Op] = [Children(path, watch=True) for path in lists if path and path not in self._lists]
        ops += [Get(path, watch=True) for path in nodes if path and path not in self._nodes]
        if not ops:
            return
        results = registry.read(ops)
        missing: dict[str, None] = {}
        for op, result in zip(ops, results, strict=True):
            (self._lists if isinstance(op, Children) else self._nodes)[op.path] = result
            if isinstance(result, Failure):
                if result.code is Code.NO_NODE:
                    missing[op.path] = None
                else:
                    self._hidden.setdefault(op.path, str(result.code.value))
        self._children.clear()
        self.requests += len(ops) + len(missing)
        if missing:
            found = registry.read([Exists(path, watch=True) for path in missing])
            for path in (path for path, stat in zip(missing, found, strict=True) if isinstance(stat, Stat)):
                self.change(path)  # it has come meanwhile


class LiveGroup:
    """One group in ZooKeeper, looked at again and again through one registry. Used by one thread, but for ``change``.

    ``nodes`` may be told of changes by any thread.
    """

    def __init__(self, group: str) -> None:
        self.group = group
        self.nodes = WatchedNodes(znodes.offsets(group))
        self._world: World | None = None

    def look(
        self, registry: Registry, at: int, side: KafkaSide, logs: dict[TopicPartition, Log], *, offsets: bool
    ) -> GroupSnapshot:
        """The group as it is now; ``side`` and ``logs`` are what brokers told last. Without ``offsets`` those are as
        they were. A group that does not exist has ``in_zookeeper`` false. Raises ``UnreachableError``; nothing that was
        read before is lost then."""
        nodes, group = self.nodes, self.group
        nodes.begin(everything=offsets)
        znode_reader.read_names(registry, [group], nodes)
        world, last = World.of_registry(nodes), self._world
        if last is not None and last.known_topics == world.known_topics:
            world.selections = last.selections  # what filters take of thousands of topics takes its time
        self._world = world
        znode_reader.read_members(registry, nodes, [group])
        members = znode_reader.members_of(group, nodes, world.selections)
        znode_reader.read_partitions(registry, nodes, [group], {group: members}, world)
        topics = znode_reader.concerned_topics(group, nodes, members, side)
        znode_reader.read_topics(registry, nodes, topics, world)
        nodes.end()
        return join_group(gather(group, nodes, members, side, world), nodes, world, at, logs)
