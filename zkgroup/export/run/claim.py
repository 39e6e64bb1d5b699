"""The group's export claim: the lock, the pointer under it, and the commit that ends both.

``/consumers/G/zkgroup/export`` has the pointer, or does not exist; ``lock`` below it is ephemeral and keeps two exports
of a group apart. The lock saves work and names its process. Versions make the protocol safe: every change of the
pointer is a compare-and-set by a process that has read it under this lock, and every offset moves only from its planned
version. A claim survives its session: it takes the lock again under a new one and reads the pointer anew.
"""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final, Self, TypeVar

import msgspec

from zkgroup.clients.zookeeper import ZooKeeperSettings
from zkgroup.clients.zookeeper.registry import Registry, TransactionRefusedError
from zkgroup.errors import AlreadyRunningError, Notice, RefusedError, Remedy, UnreachableError, ZkgroupError
from zkgroup.export.model.plan_types import PartitionPlan
from zkgroup.export.model.run_record import RecordPart, now_ms
from zkgroup.export.planning.export_request import status_command
from zkgroup.export.planning.group_state import read_committed
from zkgroup.groups.changes.export_znodes import (
    Exporter,
    Pointer,
    decode_exporter,
    decode_pointer,
    encode_pointer,
)
from zkgroup.groups.changes.znode_transactions import MAX_TRANSACTION_BYTES, cost, first_batch, not_allowed
from zkgroup.protocol import znodes
from zkgroup.protocol.names import TopicPartition
from zkgroup.protocol.operations import (
    CHANGED,
    Check,
    Children,
    Code,
    Create,
    Delete,
    Ensure,
    Exists,
    Failure,
    Get,
    Node,
    Op,
    SetData,
    Sync,
)


class OffsetMovedError(RefusedError):
    """An offset node is not as the plan found it."""

    def __init__(self, group: str, plan: PartitionPlan, offset: int | None) -> None:
        planned = "no offset" if plan.committed is None else plan.committed
        super().__init__(
            f"the offset of {plan.partition} was moved by somebody else while group {group} was exported (it was "
            f"{planned}, it is {'gone' if offset is None else offset}): nothing is committed for it",
            "find the client that commits for the group, then export again",
        )


class PartitionLostError(RefusedError):
    """A partition is not this member's any more, or its offset was moved: decide without it."""


class TakenOverError(RefusedError):
    """Another process works on the export, or has ended it."""


_CLOSED: Final = "run the same command again as a user who may write the group's nodes"


log = logging.getLogger(__name__)

T = TypeVar("T")
Part = TypeVar("Part", bound=PartitionPlan)

_POLL = 0.2
#: Of an owner node that its owner has marked: see ``export_member``.
HELD_VERSION = 1


class ExportClaim:
    """The claim of one process: a context manager, for one thread. ``on_warning``: for the operator."""

    def __init__(self, registry: Registry, group: str, on_warning: Callable[[Notice], None]) -> None:
        self.group = group
        self._first = registry
        self.registry = registry
        self._on_warning = on_warning
        self._path, self._lock = znodes.export_state(group), znodes.export_lock(group)
        self._above = [znodes.group(group), self._path.rpartition("/")[0], self._path]
        self._made: set[str] = set()
        self._locked = False
        self._reconnect_timeout = max(30.0, 2 * registry.timeout)

    def __enter__(self) -> Self:
        there = self.registry.read([Exists(node) for node in self._above])
        self._made = {node for node, stat in zip(self._above, there, strict=True) if stat is None}
        try:
            self._acquire()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        try:
            self._release()
        except UnreachableError as error:
            log.debug("letting the claim go: %s", error)  # the lock goes with its session
        finally:
            if self.registry is not self._first:
                self.registry.close()

    # --- the lock ---------------------------------------------------------------------------------------------------

    def _acquire(self) -> None:
        deadline = time.monotonic() + self.registry.settings.session_timeout + 2.0
        data = msgspec.json.encode(Exporter(socket.gethostname(), os.getpid(), now_ms()))
        has_warned = False
        while True:
            # Not at one go: making missing parents takes several requests.
            ensured = self.registry.write(Ensure(self._path))
            refused = self.registry.write(Create(self._lock, data, ephemeral=True))
            if refused is None or self._holds():
                self._locked = True
                return
            failure = refused if isinstance(refused, Failure) else Failure(Code.OTHER)
            late = time.monotonic() > deadline
            if failure.code is Code.NODE_EXISTS:
                if late:
                    raise AlreadyRunningError(
                        f"another export of group {self.group} is running{self._holder()}", "wait until it is done"
                    )
                if not has_warned:
                    what = f"another export of group {self.group} runs or was killed{self._holder()}"
                    self._on_warning(Notice(f"{what}: waiting"))
                    has_warned = True
            # Else another process tidied up at this very moment, or it is unknown whether the node was made.
            elif late or failure.code not in (Code.NO_NODE, Code.CONNECTION_LOSS):
                found = ensured if isinstance(ensured, Failure) else failure
                if found.code is Code.CONNECTION_LOSS:
                    raise UnreachableError(f"ZooKeeper at {self.registry.settings.hosts}: the connection is lost")
                raise not_allowed(f"cannot lock group {self.group} at {self._lock}", found)
            time.sleep(_POLL)

    def _holds(self) -> bool:
        (stat,) = self.registry.read([Exists(self._lock)])
        return getattr(stat, "owner", None) == self.registry.session_id != 0

    def _holder(self) -> str:
        found = read_holder(self.registry, self.group)
        return f" (host {found.host}, process {found.pid})" if found else ""

    def _release(self) -> None:
        """Delete our lock, and what only it was there for. A group that this claim made goes, too."""
        (node,) = self.registry.read([Get(self._path)])
        ops: list[Op] = [Delete(self._lock)] if self._holds() else []
        if isinstance(node, Node) and not node.data:
            ops.append(Delete(self._path, node.stat.version))
        ops.append(Delete(self._above[1]))
        ops += [Delete(self._above[0])] if self._above[0] in self._made else []
        for result in self.registry.read(ops):
            if isinstance(result, Failure) and result.code not in (Code.NOT_EMPTY, Code.NO_NODE):
                log.debug("tidying up after the export: %s %s", result.code.value, result.detail)

    def persist(self, step: Callable[[], T], *, asks_brokers: bool = False) -> T:
        """Do a step that may be repeated, over as many sessions as it takes.

        ``asks_brokers``: that something cannot be reached only counts as ZooKeeper if the session is over. Raises
        ``UnreachableError`` when ZooKeeper stays away too long, and ``RefusedError`` when somebody else got the lock
        meanwhile.
        """
        deadline = time.monotonic() + self._reconnect_timeout
        while True:
            try:
                if self.registry.is_lost:
                    self._renew()
                if not self._locked:
                    self._acquire()
                return step()
            except UnreachableError as error:
                if time.monotonic() > deadline or (asks_brokers and not self.registry.is_lost):
                    raise
                log.info("ZooKeeper: %s; once more", error)
                time.sleep(_POLL)

    def _renew(self) -> None:
        """A new session, and the lock under it. A sync makes the result of the old session's last request visible."""
        fresh = Registry(self._first.settings, self._first.timeout).__enter__()
        if self.registry is not self._first:
            self.registry.close()
        self.registry, self._locked = fresh, False
        fresh.read([Sync(znodes.consumers())])

    # --- the pointer ------------------------------------------------------------------------------------------------

    def pointer(self) -> tuple[Pointer | None, int]:
        """What is under way, and the version to change it from."""
        return read_pointer(self.registry, self.group)

    def point(self, before: Pointer | None, after: Pointer, unmoved: Sequence[RecordPart] = ()) -> None:
        """Change the pointer from ``before`` to ``after``, if no offset of ``unmoved`` has changed; may be repeated.

        Raises ``TakenOverError`` where the pointer is neither, ``OffsetMovedError`` where an offset node is not as
        planned.
        """

        def change(pointing: SetData) -> None:
            self.refuse_if_moved(unmoved)
            checks = self._checks(unmoved)
            try:
                self.registry.transaction([*checks, pointing])
            except TransactionRefusedError as refused:
                if refused.index < len(checks):
                    self.refuse_if_moved(unmoved)
                    raise UnreachableError(f"an offset changed back and forth: {refused.message}") from None
                raise self.taken_over(self.pointer()[0]) from None

        self._advance(before, after, change)

    def decide_and_commit(self, before: Pointer, after: Pointer, parts: Sequence[RecordPart]) -> None:
        """Change the pointer from ``before`` to ``after`` and move the offsets of ``parts``, in one transaction, if
        this member owns all of them (see ``export_member``); may be repeated.

        Raises ``PartitionLostError`` where it does not, or an offset node is not as planned, ``TakenOverError`` as
        ``point`` does.
        """
        moving = [part for part in parts if part.moves]
        conditions: list[Check | Create | SetData] = [
            Check(znodes.owner(self.group, part.partition), HELD_VERSION) for part in parts
        ]
        conditions += [self._operation(part) for part in moving]

        def change(pointing: SetData) -> None:
            self._ensure_topics(moving)
            try:
                self.registry.transaction([*conditions, pointing])
            except TransactionRefusedError as refused:
                if refused.failure.code not in CHANGED:
                    raise self._not_committed(refused) from None
                if refused.index < len(conditions):
                    raise PartitionLostError(f"group {self.group} changed: {refused.message}", "export again") from None
                raise self.taken_over(self.pointer()[0]) from None

        self._advance(before, after, change)

    def _advance(self, before: Pointer | None, after: Pointer, change: Callable[[SetData], None]) -> None:
        """Let ``change`` do it, from the version of ``before``, unless it is done; may be repeated."""

        def step() -> None:
            found, version = self.pointer()
            if found == after:
                return
            if found != before:
                raise self.taken_over(found)
            change(SetData(self._path, encode_pointer(after), version))

        self.persist(step)

    def unmoved(self, parts: Sequence[RecordPart]) -> set[TopicPartition]:
        return {part.partition for part, (_, version) in self.offsets(parts) if version == part.version}

    def drop(self, pointer: Pointer) -> bool:
        """End the run of ``pointer`` without a commit. False where the pointer is another's."""

        def step() -> bool:
            found, version = self.pointer()
            if found == pointer:
                refused = self.registry.write(SetData(self._path, b"", version))
                if isinstance(refused, Failure):
                    raise UnreachableError(f"the plan of group {self.group} cannot be dropped: {refused.code.value}")
                self._made.add(self._above[0])  # if there is nothing else in it: perhaps the run made it
                return True
            return found is None

        return self.persist(step)

    def taken_over(self, found: Pointer | None) -> TakenOverError:
        what = "it was ended" if found is None else f"run {found.run} is {found.state}"
        return TakenOverError(
            f"another process took over the export of group {self.group} while this one was cut off: {what}",
            Remedy("nothing is lost: see its state", status_command(self.group)),
        )

    # --- the offsets ------------------------------------------------------------------------------------------------

    def refuse_if_moved(self, plans: Sequence[PartitionPlan]) -> None:
        """Raise ``OffsetMovedError`` for an offset node that is not as planned."""
        for plan, (offset, version) in self.offsets(plans):
            if version != plan.version:
                raise OffsetMovedError(self.group, plan, offset)

    def offsets(self, plans: Sequence[Part]) -> list[tuple[Part, tuple[int | None, int | None]]]:
        """The committed offset of each, and the version of its node."""
        found = read_committed(self.registry, self.group, [plan.partition for plan in plans])
        versions = {partition: (one.offset, one.version) for partition, one in found.items()}
        return [(plan, versions.get(plan.partition, (None, None))) for plan in plans]

    def _checks(self, plans: Sequence[RecordPart]) -> list[Check]:
        """As many as fit into one request; the others were read just before."""
        checks = [
            Check(znodes.offset(self.group, plan.partition), plan.version) for plan in plans if plan.version is not None
        ]
        settings = self.registry.settings
        return first_batch(checks, lambda check: cost(check.path, settings), MAX_TRANSACTION_BYTES)

    def commit(
        self,
        pointer: Pointer,
        parts: Sequence[RecordPart],
        *,
        leave: Collection[TopicPartition] = (),
        on_point: Callable[[str], None] = lambda _: None,
    ) -> list[tuple[RecordPart, int | None]]:
        """Move the offsets to the parts' ends, and end what ``pointer`` says with the last of them; may be repeated.

        An offset that somebody else has moved, and those to ``leave``, stay as they are; the moved ones are returned,
        with their offsets. Raises ``TakenOverError`` where the pointer says something else, ``UnreachableError`` where
        ZooKeeper cannot be asked what became of it.
        """

        moved: list[tuple[RecordPart, int | None]] = []

        def step() -> None:
            nonlocal moved
            found, version = self.pointer()
            if found is None:
                return  # the last transaction was applied and its answer was lost, or another process has ended it
            moving = [part for part in parts if part.moves and part.partition not in leave]
            states = [(part, offset, _state(part, offset, version)) for part, (offset, version) in self.offsets(moving)]
            moved = [(part, offset) for part, offset, state in states if state == "moved"]
            if found != pointer:
                raise self.taken_over(found)
            todo = [part for part, _, state in states if state == "planned"]
            self._ensure_topics(todo)
            pieces = split_transaction([self._operation(part) for part in todo], self.registry.settings) or [[]]
            for number, piece in enumerate(pieces, 1):
                last: list[Delete] = []
                if number == len(pieces):
                    last = [Delete(self._lock), Delete(self._path, version)]
                    (others,) = self.registry.read([Children(self._above[1])])
                    last += [Delete(self._above[1])] if others == (self._path.rpartition("/")[2],) else []
                on_point(f"transaction {number} of {len(pieces)}")
                self._transact(piece, last)

        self.persist(step)
        return moved

    def _ensure_topics(self, parts: Iterable[RecordPart]) -> None:
        topics = {part.partition.topic for part in parts if part.version is None}
        ops = [Ensure(znodes.offset_topic(self.group, topic)) for topic in sorted(topics)]
        answers = zip(ops, self.registry.read(ops), strict=True)
        closed = [op.path for op, answer in answers if isinstance(answer, Failure) and answer.code is Code.NO_AUTH]
        for path, found in zip(closed, self.registry.read([Exists(path) for path in closed]), strict=True):
            # From 3.8 on a server keeps it to itself that a node is there that may not be read; it may take others.
            if not (isinstance(found, Failure) and found.code is Code.NO_AUTH):
                raise ZkgroupError(f"cannot commit for group {self.group}: no right to make {path}", _CLOSED)

    def _transact(self, piece: Sequence[Create | SetData], last: Sequence[Delete]) -> None:
        try:
            self.registry.transaction([*piece, *last])
        except TransactionRefusedError as refused:
            if refused.failure.code is Code.NO_AUTH and refused.path == self._above[1]:
                self._transact(piece, last[:-1])  # nothing but tidying up: the group's node does not let it go
                return
            if refused.failure.code not in CHANGED:
                raise self._not_committed(refused) from None
            # The step begins again with a read, which finds and names the conflict.
            self._locked = self._holds()
            raise UnreachableError(
                f"group {self.group}: {refused.message}", Remedy("see its state", status_command(self.group))
            ) from None

    def _not_committed(self, refused: TransactionRefusedError) -> ZkgroupError:
        what = f"cannot commit for group {self.group}: transaction refused at {refused.path}: {refused.failure.words}"
        return ZkgroupError(what, _CLOSED if refused.failure.code is Code.NO_AUTH else None)

    def _operation(self, part: RecordPart) -> Create | SetData:
        path, data = znodes.offset(self.group, part.partition), znodes.encode_offset(part.end)
        return Create(path, data) if part.version is None else SetData(path, data, part.version)


def read_pointer(registry: Registry, group: str) -> tuple[Pointer | None, int]:
    """A group's pointer and its node's version; None and −1 without a node. Raises ``MalformedZnodeError``."""
    path = znodes.export_state(group)
    (node,) = registry.read([Get(path)])
    if isinstance(node, Node):
        return decode_pointer(path, node.data), node.stat.version
    if isinstance(node, Failure) and node.code is not Code.NO_NODE:
        raise ZkgroupError(f"cannot read {path}: {node.words}")
    return None, -1


def read_holder(registry: Registry, group: str) -> Exporter | None:
    """The process that has the group's lock; None if it is unknown."""
    (node,) = registry.read([Get(znodes.export_lock(group))])
    return decode_exporter(node.data) if isinstance(node, Node) else None


def split_transaction(ops: Sequence[Create | SetData], settings: ZooKeeperSettings) -> list[list[Create | SetData]]:
    """Operations in pieces of the size of a request."""

    def bytes_of(operation: Create | SetData) -> int:
        acl = settings.acl or () if isinstance(operation, Create) else ()
        return cost(operation.path, settings, acl) + len(operation.data)

    pieces, done = [], 0
    while done < len(ops):
        pieces.append(first_batch(ops[done:], bytes_of, MAX_TRANSACTION_BYTES))
        done += len(pieces[-1])
    return pieces


def _state(part: RecordPart, offset: int | None, version: int | None) -> str:
    if version == part.version:
        return "planned"
    after = 0 if part.version is None else part.version + 1
    return "done" if offset == part.end and version == after else "moved"
