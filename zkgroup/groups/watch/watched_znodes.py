"""A group's znodes, kept up to date by watches: all are read once, then only those that have changed.

A watch fires once; the next reading that needs the node reads it again and sets a new watch. Offset nodes may change
many times a second: their changes wait for the next reading of offsets. No node is created.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

from zkgroup.clients.kafka.responses import KafkaGroup
from zkgroup.clients.zookeeper.registry import EVERYTHING, Registry
from zkgroup.groups.group_model import GroupSnapshot
from zkgroup.groups.snapshot.raw_group import build_raw_group, build_snapshot
from zkgroup.groups.snapshot.registrations import TopicSelections
from zkgroup.groups.snapshot.znode_reader import NodeCache, ZnodeReader
from zkgroup.protocol import znodes
from zkgroup.protocol.names import TopicPartition
from zkgroup.protocol.operations import Children, Code, Exists, Failure, Get, Op, Stat

if TYPE_CHECKING:
    from zkgroup.clients.kafka.log_offsets import Log


class WatchedNodeCache(NodeCache):
    """A ``NodeCache`` that watches its nodes and reads the changed ones again. One thread, but for ``change``."""

    def __init__(self, patient: str) -> None:
        """``patient``: the path below which changes wait for a reading of everything."""
        super().__init__()
        self._patient = f"{patient}/"
        self._lock = threading.Lock()
        self._changed: set[str] = set()
        self._lost = False
        self._used: set[str] = set()
        self._noticed: int | None = None
        #: How many requests were sent.
        self.requests = 0

    def change(self, path: str) -> bool:
        """Note that a watch fired, on any thread. Returns whether the group is to be read again at once."""
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
        """When the first change since the last call was noted, below ``patient`` excepted (milliseconds since 1970)."""
        with self._lock:
            at, self._noticed = self._noticed, None
        return at

    def begin(self, *, everything: bool) -> None:
        """Before a reading: forget the nodes that have changed; without ``everything`` not those below ``patient``."""
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
        """After a reading: forget the nodes that it did not use, as of a partition that is gone."""
        self._forget([path for path in {*self._lists, *self._nodes} if path not in self._used])

    def _forget(self, paths: Iterable[str]) -> None:
        for path in paths:
            self._lists.pop(path, None)
            self._nodes.pop(path, None)
            self._unreadable.pop(path, None)
        self._children.clear()

    def read(self, registry: Registry, *, lists: Iterable[str] = (), nodes: Iterable[str] = ()) -> None:
        """As ``NodeCache.read``, with watches; a node that is not there is watched for its coming."""
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
                    self._unreadable.setdefault(op.path, str(result.code.value))
        self._children.clear()
        self.requests += len(ops) + len(missing)
        if missing:
            found = registry.read([Exists(path, watch=True) for path in missing])
            for path in (path for path, stat in zip(missing, found, strict=True) if isinstance(stat, Stat)):
                self.change(path)  # it has come meanwhile


class WatchedGroupReader:
    """Reads one group in ZooKeeper again and again. Used by one thread, but for ``nodes.change``."""

    def __init__(self, group: str) -> None:
        self.group = group
        self.nodes = WatchedNodeCache(znodes.offsets(group))
        self._selections: TopicSelections | None = None

    def read(
        self, registry: Registry, at: int, kafka_group: KafkaGroup, logs: dict[TopicPartition, Log], *, offsets: bool
    ) -> GroupSnapshot:
        """The group as it is now; ``kafka_group`` and ``logs`` are the brokers' last answers. Without ``offsets`` those
        are not read again. A group that does not exist has ``in_zookeeper`` false. Raises ``UnreachableError``; nothing
        that was read before is lost then."""
        nodes, group = self.nodes, self.group
        nodes.begin(everything=offsets)
        reader = ZnodeReader(registry, [group], nodes)
        reader.read_members(self._selections)
        self._selections = reader.cluster.selections  # a filter takes a while with thousands of topics
        reader.read_partitions()
        reader.read_topics(reader.concerned_topics(group, kafka_group))
        nodes.end()
        raw = build_raw_group(group, nodes, reader.members[group], kafka_group, reader.cluster)
        return build_snapshot(raw, nodes, reader.cluster, at, logs)
