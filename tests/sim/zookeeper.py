"""A model of ZooKeeper: one tree, sessions, ephemeral nodes, versions, watches, transactions.

It answers the operations of ``zkgroup.protocol.operations`` as a real server does through ``zkgroup.clients``;
``tests/clients/test_zookeeper_contract.py`` and ``test_zookeeper_traces.py`` hold both against each other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from zkgroup.protocol.operations import (
    OPEN,
    Acl,
    Acls,
    Changed,
    Check,
    Children,
    Code,
    Create,
    Delete,
    Ensure,
    Exists,
    Failure,
    Get,
    GetAcl,
    Node,
    Op,
    Result,
    SetData,
    Stat,
    Sync,
    Transaction,
)

Watcher = tuple[int, Literal["data", "children"]]
_KINDS: tuple[Literal["data", "children"], ...] = ("data", "children")


@dataclass(slots=True)
class Znode:
    """A node as the server keeps it. Times are milliseconds."""

    data: bytes
    czxid: int
    mzxid: int
    version: int
    ctime: int
    mtime: int
    owner: int
    pzxid: int
    children: dict[str, None] = field(default_factory=dict)
    acl: tuple[Acl, ...] = OPEN  # kept and reported, not enforced

    @property
    def stat(self) -> Stat:
        children = len(self.children)
        return Stat(self.czxid, self.mzxid, self.version, self.ctime, self.mtime, self.owner, children, self.pzxid)


@dataclass(frozen=True, slots=True)
class Change:
    """What was done to a node, by which session (0: the server, at the end of the session that owned it)."""

    session: int
    path: str
    before: Znode | None
    after: Znode | None


def parent_of(path: str) -> str:
    return path.rpartition("/")[0] or "/"


class Tree:
    """What one server sees: nodes, and who watches them. ``tell`` gets watch events."""

    def __init__(self) -> None:
        self.nodes = {"/": Znode(b"", 0, 0, 0, 0, 0, 0, 0)}
        self.tell: Callable[[int, Changed], None] = lambda session, event: None
        self._watches: dict[str, dict[Watcher, None]] = {}

    def forget_watches(self, session: int) -> None:
        """The session's connection has dropped: its watches are gone."""
        self.take_watches(session)

    def take_watches(self, session: int) -> list[tuple[str, Literal["data", "children"]]]:
        """The session's watches, which are gone from here."""
        taken: list[tuple[str, Literal["data", "children"]]] = []
        for path in list(self._watches):
            watchers = self._watches[path]
            for kind in _KINDS:
                if (session, kind) in watchers:
                    del watchers[session, kind]
                    taken.append((path, kind))
            if not watchers:
                del self._watches[path]
        return taken

    def give_watches(self, session: int, watches: Sequence[tuple[str, Literal["data", "children"]]]) -> None:
        """What another server has watched for the session is watched here from now on."""
        for path, kind in watches:
            self._watch(session, path, kind, True)

    def read(self, session: int, op: Get | Children | Exists | GetAcl) -> Result:
        """Answer a read."""
        node = self.nodes.get(op.path)
        match op:
            case Get(path, watch):
                if node is None:
                    return Failure(Code.NO_NODE)
                self._watch(session, path, "data", watch)
                return Node(node.data, node.stat)
            case Children(path, watch):
                if node is None:
                    return Failure(Code.NO_NODE)
                self._watch(session, path, "children", watch)
                return tuple(node.children)
            case Exists(path, watch):
                self._watch(session, path, "data", watch)
                return None if node is None else node.stat
            case GetAcl():
                return Failure(Code.NO_NODE) if node is None else Acls(node.acl)

    def _watch(self, session: int, path: str, kind: Literal["data", "children"], wanted: bool) -> None:
        if wanted:
            self._watches.setdefault(path, {})[session, kind] = None

    def _fire(self, change: Change) -> None:
        created, deleted = change.before is None, change.after is None
        if deleted:
            self._trigger(change.path, ("data", "children"))
        else:
            self._trigger(change.path, ("data",))
        if created or deleted:
            self._trigger(parent_of(change.path), ("children",))

    def _trigger(self, path: str, kinds: tuple[Literal["data", "children"], ...]) -> None:
        watchers = self._watches.get(path)
        if watchers is None:
            return
        message: dict[int, None] = {}
        for session, kind in list(watchers):
            if kind in kinds:
                del watchers[session, kind]
                message[session] = None
        if not watchers:
            self._watches.pop(path, None)
        for session in message:
            self.tell(session, Changed(path))


class ModelZooKeeper(Tree):
    """The leader. ``observe`` gets every change, in order; ``publish`` those of one transaction, with its zxid."""

    def __init__(self, clock: Callable[[], float] = lambda: 0.0) -> None:
        super().__init__()
        self.sessions: dict[int, None] = {}
        self.publish: Callable[[int, Sequence[Change]], None] = lambda zxid, changes: None
        self.observe: Callable[[Change], None] = lambda change: None
        self._clock = clock
        self._zxid = 0
        self._ids = 0x1000

    @property
    def zxid(self) -> int:
        """The number of the last transaction."""
        return self._zxid

    # ------------------------------------------------------------ sessions

    def open_session(self) -> int:
        """A new session's id."""
        self._ids += 1
        self.sessions[self._ids] = None
        return self._ids

    def end_session(self, session: int) -> None:
        """The session is closed or has expired: its ephemeral nodes go."""
        if session in self.sessions:
            del self.sessions[session]
            self.forget_watches(session)
            self._zxid += 1
            gone = [path for path, node in self.nodes.items() if node.owner == session]
            self._announce([self._take(0, path, []) for path in gone])

    # ------------------------------------------------------------ operations

    def apply(self, session: int, op: Op) -> Result:
        """Carry out one operation."""
        if session not in self.sessions:
            return Failure(Code.SESSION_EXPIRED)
        match op:
            case Get() | Children() | Exists() | GetAcl():
                return self.read(session, op)
            case Sync():
                return None
            case Ensure(path):
                return self._ensure(session, path)
            case Transaction(ops):
                return self._together(session, ops)
            case Create() | SetData() | Delete():
                failure = self._together(session, (op,))
                if isinstance(failure, Failure):
                    return replace(failure, index=None)
                return self.nodes[op.path].stat if isinstance(op, SetData) else None

    def _ensure(self, session: int, path: str) -> Result:
        if path in self.nodes:
            return None
        if isinstance(refused := self._ensure(session, parent_of(path)), Failure):
            return refused
        failure = self._together(session, (Create(path),))
        return None if failure is None else replace(failure, index=None)

    def _together(self, session: int, ops: tuple[Create | SetData | Delete | Check, ...]) -> Failure | None:
        undo: list[Callable[[], None]] = []
        changes: list[Change] = []
        self._zxid += 1
        for index, op in enumerate(ops):
            code = self._obstacle(op)
            if code is not None:
                for step in reversed(undo):
                    step()
                self.publish(self._zxid, ())  # a transaction that fails has its number, too
                return Failure(code, index=index)
            match op:
                case Create(path, data, ephemeral, acl):
                    changes.append(self._add(session, path, data, session if ephemeral else 0, acl, undo))
                case SetData(path, data):
                    changes.append(self._change(session, path, data, undo))
                case Delete(path):
                    changes.append(self._take(session, path, undo))
                case Check():
                    pass
        self._announce(changes)
        return None

    def _obstacle(self, op: Create | SetData | Delete | Check) -> Code | None:
        node = self.nodes.get(op.path)
        if isinstance(op, Create):
            parent = self.nodes.get(parent_of(op.path))
            if parent is None:
                return Code.NO_NODE
            if node is not None:
                return Code.NODE_EXISTS
            return Code.EPHEMERAL if parent.owner else None
        if node is None:
            return Code.NO_NODE
        if op.version not in (-1, node.version):
            return Code.BAD_VERSION
        return Code.NOT_EMPTY if isinstance(op, Delete) and node.children else None

    def _now(self) -> int:
        return int(self._clock() * 1000)

    def _add(
        self, session: int, path: str, data: bytes, owner: int, acl: tuple[Acl, ...], undo: list[Callable[[], None]]
    ) -> Change:
        node = Znode(data, self._zxid, self._zxid, 0, self._now(), self._now(), owner, self._zxid, acl=acl or OPEN)
        parent, name = self.nodes[parent_of(path)], path.rpartition("/")[2]
        self.nodes[path] = node
        parent.children[name] = None
        before, parent.pzxid = parent.pzxid, self._zxid

        def back() -> None:
            del self.nodes[path]
            del parent.children[name]
            parent.pzxid = before

        undo.append(back)
        return Change(session, path, None, node)

    def _change(self, session: int, path: str, data: bytes, undo: list[Callable[[], None]]) -> Change:
        before = self.nodes[path]
        after = replace(before, data=data, mzxid=self._zxid, version=before.version + 1, mtime=self._now())
        self.nodes[path] = after
        undo.append(lambda: self.nodes.__setitem__(path, before))
        return Change(session, path, before, after)

    def _take(self, session: int, path: str, undo: list[Callable[[], None]]) -> Change:
        before = self.nodes.pop(path)
        parent, name = self.nodes[parent_of(path)], path.rpartition("/")[2]
        del parent.children[name]
        changed, parent.pzxid = parent.pzxid, self._zxid

        def back() -> None:
            self.nodes[path] = before
            parent.children[name] = None
            parent.pzxid = changed

        undo.append(back)
        return Change(session, path, before, None)

    def _announce(self, changes: Sequence[Change]) -> None:
        for change in changes:
            self.observe(change)
            self._fire(change)
        self.publish(self._zxid, changes)
