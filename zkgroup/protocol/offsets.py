"""Offsets kept in ZooKeeper: which version and value of each offset node its owner last saw.

The reference writes offsets unconditionally, so that a zombie can rewind its successor. Here every write is a
compare-and-set on the version that the owner last saw. A foreign write shows as what it is, and is never overwritten
blindly: the node is read again, and the owner node after it. If that is still ours, whoever wrote was not its owner.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from zkgroup.errors import MalformedZnodeError, ZkgroupError
from zkgroup.protocol import znodes
from zkgroup.protocol.names import TopicPartition
from zkgroup.protocol.ops import (
    Code,
    Create,
    Ensure,
    Exists,
    Failure,
    Get,
    Node,
    Op,
    Result,
    SetData,
    Stat,
    Transaction,
)

T = TypeVar("T")
#: A conversation with ZooKeeper: yields operations, is sent their results, returns its outcome. Pure.
Procedure: TypeAlias = Generator[tuple[Op, ...], Sequence[Result], T]

#: How often a commit tries to get past foreign writes of the same node before it says so.
ROUNDS = 4
#: Offsets written in one transaction.
CHUNK = 250


class CommitError(ZkgroupError):
    """Offsets could not be committed. What was not committed will be read again by the next owner."""


@dataclass(slots=True)
class _Entry:
    version: int | None  # None: there is no node
    value: int | None
    sent: int | None = None  # a write of this value has an outcome that is not known yet
    hold: int | None = None  # somebody else moved the offset ahead of us: leave it until we are past it


@dataclass(frozen=True, slots=True)
class ForeignWrite:
    """Somebody who is not the owner changed an offset node: ``value`` is what it holds now (None: deleted)."""

    partition: TopicPartition
    value: int | None


class OffsetBook:
    """The offset nodes of the partitions that a member owns."""

    def __init__(self, group: str) -> None:
        self.group = group
        self._entries: dict[TopicPartition, _Entry] = {}

    def forget(self) -> None:
        """Nothing is owned any more."""
        self._entries.clear()

    def enter(self, partition: TopicPartition, node: Node | None) -> int | None:
        """Note a node as it was read after the claim; returns its offset.

        Raises MalformedZnodeError where it is not a number.
        """
        value = _offset_of(self.group, partition, node)
        self._entries[partition] = _Entry(node.stat.version if node else None, value)
        return value

    def load(self, partitions: Iterable[TopicPartition]) -> Procedure[dict[TopicPartition, int | None]]:
        """Read the offsets of ``partitions``, None where there is none.

        Raises MalformedZnodeError (the first), CommitError where a node may not be read.
        """
        wanted = list(partitions)
        results = yield tuple(Get(znodes.offset(self.group, partition)) for partition in wanted)
        offsets: dict[TopicPartition, int | None] = {}
        for partition, result in zip(wanted, results, strict=True):
            if isinstance(result, Failure) and result.code is not Code.NO_NODE:
                raise CommitError(f"offset of {partition} cannot be read: {result.code.value}")
            offsets[partition] = self.enter(partition, result if isinstance(result, Node) else None)
        return offsets

    def commit(self, offsets: Mapping[TopicPartition, int], session_id: int) -> Procedure[list[ForeignWrite]]:
        """Write what differs from what the nodes hold; returns the foreign writes met on the way.

        Partitions that are not in the book (not owned, or found to be somebody else's) are left out. May be started
        again after an interruption: writes whose outcome is unknown are looked up before anything else is written.
        Raises CommitError.
        """
        foreign: list[ForeignWrite] = []
        doubtful = [p for p in offsets if p in self._entries and self._entries[p].sent is not None]
        for _ in range(ROUNDS):
            if doubtful:
                foreign += yield from self._inspect(doubtful, session_id)
            doubtful = yield from self._write(offsets)
            if not doubtful:
                return foreign
        raise CommitError(
            f"offset of {doubtful[0]} in group {self.group} is changed by somebody else again and again",
            "find the other writer: owners and inspect-group show who is there",
        )

    def _write(self, offsets: Mapping[TopicPartition, int]) -> Procedure[list[TopicPartition]]:
        """One round of writes; returns the partitions whose outcome needs a look."""
        wanted = [p for p, offset in offsets.items() if self._differs(p, offset)]
        doubtful: list[TopicPartition] = []
        missing: set[str] = set()
        refused: Failure | None = None
        if not wanted:
            return doubtful
        for partition in wanted:
            self._entries[partition].sent = offsets[partition]
        wanted = yield from self._write_together(wanted, offsets)
        if not wanted:
            return doubtful
        results = yield tuple(self._operation(p, offsets[p]) for p in wanted)
        for partition, result in zip(wanted, results, strict=True):
            entry = self._entries[partition]
            if not isinstance(result, Failure):
                entry.version = result.version if isinstance(result, Stat) else 0
                entry.value, entry.sent = offsets[partition], None
            elif result.code is Code.NO_NODE and entry.version is None:
                entry.sent = None
                missing.add(znodes.offset_topic(self.group, partition.topic))
            elif result.code in (Code.BAD_VERSION, Code.NODE_EXISTS, Code.NO_NODE):
                entry.sent = None
                doubtful.append(partition)
            else:
                entry.sent = None
                refused = result
        if refused is not None:
            raise CommitError(f"offsets of group {self.group} cannot be written: {refused.code.value}")
        if missing:
            yield tuple(Ensure(path) for path in sorted(missing))
            doubtful += yield from self._write(offsets)
        return doubtful

    def _write_together(
        self, wanted: Sequence[TopicPartition], offsets: Mapping[TopicPartition, int]
    ) -> Procedure[list[TopicPartition]]:
        """Write in transactions; returns what was in those that were refused, of which nothing was written."""
        chunks = [wanted[i : i + CHUNK] for i in range(0, len(wanted), CHUNK)]
        results = yield tuple(Transaction(tuple(self._operation(p, offsets[p]) for p in chunk)) for chunk in chunks)
        refused: list[TopicPartition] = []
        for chunk, result in zip(chunks, results, strict=True):
            if isinstance(result, Failure):
                refused += chunk
                continue
            for partition in chunk:
                entry = self._entries[partition]
                entry.version = 0 if entry.version is None else entry.version + 1
                entry.value, entry.sent = offsets[partition], None
        return refused

    def _differs(self, partition: TopicPartition, offset: int) -> bool:
        entry = self._entries.get(partition)
        return entry is not None and entry.value != offset and (entry.hold is None or offset > entry.hold)

    def _operation(self, partition: TopicPartition, offset: int) -> Create | SetData:
        path, data = znodes.offset(self.group, partition), znodes.encode_offset(offset)
        version = self._entries[partition].version
        return Create(path, data) if version is None else SetData(path, data, version)

    def _inspect(self, partitions: Sequence[TopicPartition], session_id: int) -> Procedure[list[ForeignWrite]]:
        """Read the nodes again, then their owners. The order matters: while the owner node is still ours *after* the
        offset was read, no successor can have written that version."""
        ops: list[Op] = []
        for partition in partitions:
            ops.append(Get(znodes.offset(self.group, partition)))
            ops.append(Exists(znodes.owner(self.group, partition)))
        results = yield tuple(ops)
        foreign: list[ForeignWrite] = []
        for partition, result, owner in zip(partitions, results[::2], results[1::2], strict=True):
            if not (isinstance(owner, Stat) and owner.owner == session_id):
                del self._entries[partition]
                continue
            node = result if isinstance(result, Node) else None
            entry = self._entries[partition]
            sent, entry.sent = entry.sent, None
            before = -1 if entry.version is None else entry.version
            try:
                value = _offset_of(self.group, partition, node)
            except MalformedZnodeError:
                value = None
            unchanged = node is not None and node.stat.version == before
            ours = node is not None and sent is not None and value == sent and node.stat.version == before + 1
            entry.version, entry.value = (node.stat.version if node else None), value
            if unchanged or ours or (node is None and before == -1):
                continue
            foreign.append(ForeignWrite(partition, value))
            entry.hold = value
        return foreign


def _offset_of(group: str, partition: TopicPartition, node: Node | None) -> int | None:
    return None if node is None else znodes.decode_offset(znodes.offset(group, partition), node.data)
