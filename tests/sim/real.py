"""Sessions on a real ZooKeeper, and results in a form in which they can be compared with the model's."""

from __future__ import annotations

import queue
import threading
from collections.abc import Sequence
from typing import Any

from zkgroup.clients.zookeeper import Session, ZooKeeperSettings
from zkgroup.protocol.operations import (
    Changed,
    Children,
    Connected,
    Create,
    Ensure,
    Exists,
    Failure,
    Get,
    GetAcl,
    Node,
    Op,
    Result,
    SessionEvent,
    SetData,
    Stat,
    Sync,
    Transaction,
)


class Real:
    """A session on a real ZooKeeper. ``notified`` are the nodes that it was reported have changed."""

    def __init__(self, address: str, timeout: float = 6.0) -> None:
        self.notified: list[str] = []
        self._up = threading.Event()
        self.session = Session(ZooKeeperSettings(address, timeout), self._hear)
        self.session.start()
        assert self._up.wait(20), "not connected"

    def _hear(self, event: SessionEvent) -> None:
        if isinstance(event, Connected):
            self._up.set()
        elif isinstance(event, Changed):
            self.notified.append(event.path)

    def apply(self, op: Op) -> Result:
        """One operation."""
        return self.apply_all([op])[0]

    def apply_all(self, ops: Sequence[Op]) -> list[Result]:
        """Operations, pipelined."""
        return self.begin(ops).get(timeout=20)

    def begin(self, ops: Sequence[Op]) -> queue.SimpleQueue[list[Result]]:
        """Send operations; the results come into the queue."""
        box: queue.SimpleQueue[list[Result]] = queue.SimpleQueue()
        self.session.submit(ops, box.put)
        return box


def below(root: str, op: Op) -> Any:
    """The same operation, under a root."""
    match op:
        case Transaction(ops):
            return Transaction(tuple(below(root, part) for part in ops))
        case Sync():
            return op
        case Get() | Exists() | Children():
            return type(op)((root + op.path).rstrip("/"), op.watch)
        case Ensure() | GetAcl():
            return type(op)((root + op.path).rstrip("/"))
        case Create():
            return Create(root + op.path, op.data, op.ephemeral, op.acl)
        case SetData():
            return SetData(root + op.path, op.data, op.version)
        case _:
            return type(op)(root + op.path, op.version)


def shape(result: Result, sessions: Sequence[int]) -> Any:
    """Without what differs from server to server: transaction ids and times."""
    match result:
        case Node():
            return result.data, shape(result.stat, sessions)
        case Stat():
            owner = f"session {sessions.index(result.owner)}" if result.owner in sessions else result.owner
            children_changed = result.pzxid == result.czxid, result.pzxid > result.mzxid
            return result.version, owner, result.children, result.czxid == result.mzxid, children_changed
        case Failure():
            return result.code, result.index
        case tuple():
            return sorted(result)
        case _:
            return None
