"""Committed offsets in ZooKeeper: the version and value of each offset node that its owner last saw.

The Scala consumer writes offsets unconditionally, so that a zombie can rewind its successor. Here every write is a
compare-and-set on the version that the owner last saw. A foreign write is detected and never overwritten blindly: the
offset node is read again, and the owner node after it. If that is still ours, the writer did not own the partition.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias, TypeVar

from zkgroup.errors import MalformedZnodeError, Remedy, ZkgroupError
from zkgroup.protocol import znodes
from zkgroup.protocol.names import TopicPartition
from zkgroup.protocol.operations import (
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
    Sync,
    Transaction,
)
from zkgroup.text import group_command

T = TypeVar("T")
#: A generator that yields operations, is sent their results, and returns its outcome. Pure.
Procedure: TypeAlias = Generator[tuple[Op, ...], Sequence[Result], T]

#: How often a commit tries to overtake foreign writes of the same node before it fails.
ROUNDS: Final = 4
#: Offsets written in one transaction.
CHUNK: Final = 250


class CommitError(ZkgroupError):
    """Offsets could not be read or committed. What was not committed will be read again by the next owner."""


@dataclass(slots=True)
class _CommitEntry:
    version: int | None  # None: there is no node
    value: int | None
    sent: int | None = None  # a write of this value whose outcome is not known yet
    hold: int | None = None  # another client moved the offset here: leave it until we are past it


@dataclass(frozen=True, slots=True)
class ForeignWrite:
    """A client that does not own the partition changed its offset node. ``value`` is its content, None if malformed."""

    partition: TopicPartition
    value: int | None


@dataclass(frozen=True, slots=True)
class LoadedOffsets:
    """Committed offsets (None where there is no node), and errors of malformed nodes."""

    offsets: dict[TopicPartition, int | None] = field(default_factory=dict)
    malformed: dict[TopicPartition, MalformedZnodeError] = field(default_factory=dict)


class OffsetVersions:
    """The offset nodes of the partitions that a member owns."""

    def __init__(self, group: str) -> None:
        self.group = group
        self._entries: dict[TopicPartition, _CommitEntry] = {}

    def __contains__(self, partition: TopicPartition) -> bool:
        """Whether the partition's offset was loaded, and the partition was not found to be lost since."""
        return partition in self._entries

    def forget(self) -> None:
        """Forget all: nothing is owned any more."""
        self._entries.clear()

    def load(self, partitions: Iterable[TopicPartition]) -> Procedure[LoadedOffsets]:
        """Read the offsets of ``partitions``, which were claimed before. Raises CommitError where one may not be read.

        Malformed nodes are left out: they will not be written.
        """
        wanted = list(partitions)
        if not wanted:
            return LoadedOffsets()
        results = yield tuple(Get(znodes.offset(self.group, partition)) for partition in wanted)
        loaded = LoadedOffsets()
        for partition, result in zip(wanted, results, strict=True):
            if isinstance(result, Failure) and result.code is not Code.NO_NODE:
                raise _refusal(znodes.offset(self.group, partition), result, "read")
            node = result if isinstance(result, Node) else None
            try:
                value = self._offset_of(partition, node)
            except MalformedZnodeError as error:
                loaded.malformed[partition] = error
                continue
            self._entries[partition] = _CommitEntry(node.stat.version if node else None, value)
            loaded.offsets[partition] = value
        return loaded

    def commit(self, offsets: Mapping[TopicPartition, int], session_id: int) -> Procedure[list[ForeignWrite]]:
        """Write the offsets that differ from the nodes'; returns the foreign writes that were found.

        Partitions that are not loaded, or lost, are left out. May begin again after an interruption: writes whose
        outcome is unknown are checked before anything else is written. Raises CommitError.
        """
        foreign: list[ForeignWrite] = []
        doubtful = [p for p in offsets if p in self._entries and self._entries[p].sent is not None]
        for _ in range(ROUNDS):
            if doubtful:
                foreign += yield from self._inspect(doubtful, session_id)
            wanted = [p for p, offset in offsets.items() if self._differs(p, offset)]
            if not wanted:
                return foreign
            for partition in wanted:
                self._entries[partition].sent = offsets[partition]
            yield from self._make_parents(wanted)
            wanted = yield from self._write_together(wanted, offsets)
            doubtful = yield from self._write_singly(wanted, offsets)
            if not doubtful:
                return foreign
        raise CommitError(
            f"offset of {doubtful[0]} in group {self.group} is changed by another client again and again",
            Remedy("find the other writer; see which members there are", group_command("inspect-group", self.group)),
        )

    def _write_together(
        self, wanted: Sequence[TopicPartition], offsets: Mapping[TopicPartition, int]
    ) -> Procedure[list[TopicPartition]]:
        """Write in transactions; returns the partitions of those that were refused, of which none is written."""
        chunks = [wanted[i : i + CHUNK] for i in range(0, len(wanted), CHUNK)]
        results = yield tuple(Transaction(tuple(self._operation(p, offsets[p]) for p in chunk)) for chunk in chunks)
        refused: list[TopicPartition] = []
        for chunk, result in zip(chunks, results, strict=True):
            if isinstance(result, Failure):
                refused += chunk
                continue
            for partition in chunk:
                version = self._entries[partition].version
                self._written(partition, offsets[partition], 0 if version is None else version + 1)
        return refused

    def _write_singly(
        self, wanted: Sequence[TopicPartition], offsets: Mapping[TopicPartition, int]
    ) -> Procedure[list[TopicPartition]]:
        """Write one by one; returns those that another client has changed. Raises CommitError for other refusals."""
        if not wanted:
            return []
        results = yield tuple(self._operation(p, offsets[p]) for p in wanted)
        doubtful: list[TopicPartition] = []
        refused: tuple[str, Failure] | None = None
        for partition, result in zip(wanted, results, strict=True):
            if not isinstance(result, Failure):
                self._written(partition, offsets[partition], result.version if isinstance(result, Stat) else 0)
                continue
            self._entries[partition].sent = None
            if result.code in (Code.BAD_VERSION, Code.NODE_EXISTS, Code.NO_NODE):
                doubtful.append(partition)
            else:
                refused = refused or (znodes.offset(self.group, partition), result)
        if refused is not None:
            raise _refusal(*refused, "written")
        return doubtful

    def _make_parents(self, wanted: Collection[TopicPartition]) -> Procedure[None]:
        new = [partition for partition in wanted if self._entries[partition].version is None]
        parents = sorted({znodes.offset_topic(self.group, partition.topic) for partition in new})
        if not parents:
            return
        results = yield tuple(Ensure(path) for path in parents)
        for path, result in zip(parents, results, strict=True):
            if isinstance(result, Failure):
                raise _refusal(path, result, "created")

    def _written(self, partition: TopicPartition, offset: int, version: int) -> None:
        entry = self._entries[partition]
        entry.version, entry.value, entry.sent = version, offset, None

    def _differs(self, partition: TopicPartition, offset: int) -> bool:
        entry = self._entries.get(partition)
        return entry is not None and entry.value != offset and (entry.hold is None or offset > entry.hold)

    def _operation(self, partition: TopicPartition, offset: int) -> Create | SetData:
        path, data = znodes.offset(self.group, partition), znodes.encode_offset(offset)
        version = self._entries[partition].version
        return Create(path, data) if version is None else SetData(path, data, version)

    def _inspect(self, partitions: Sequence[TopicPartition], session_id: int) -> Procedure[list[ForeignWrite]]:
        """Read the nodes again, then their owners. The order matters: while the owner node is still ours *after* the
        offset was read, no successor can have written that version. The sync comes first because a write of our own,
        whose reply was lost, may not have reached this server yet."""
        ops: list[Op] = [Sync(znodes.consumers())]
        for partition in partitions:
            ops.append(Get(znodes.offset(self.group, partition)))
            ops.append(Exists(znodes.owner(self.group, partition)))
        _, *results = yield tuple(ops)
        foreign: list[ForeignWrite] = []
        for partition, result, owner in zip(partitions, results[::2], results[1::2], strict=True):
            if not (isinstance(owner, Stat) and owner.owner == session_id):
                del self._entries[partition]
                continue
            if isinstance(result, Failure) and result.code is not Code.NO_NODE:
                raise _refusal(znodes.offset(self.group, partition), result, "read")
            node = result if isinstance(result, Node) else None
            if self._changed_by_others(partition, node):
                foreign.append(ForeignWrite(partition, self._entries[partition].value))
        return foreign

    def _changed_by_others(self, partition: TopicPartition, node: Node | None) -> bool:
        """Take over the content of a node whose partition is ours. Whether another client has written it."""
        entry = self._entries[partition]
        sent, entry.sent = entry.sent, None
        before = -1 if entry.version is None else entry.version
        version = -1 if node is None else node.stat.version
        try:
            value = self._offset_of(partition, node)
        except MalformedZnodeError:
            value = None
        entry.version, entry.value = (node.stat.version if node else None), value
        ours = sent is not None and value == sent and version == before + 1
        if version == before or ours:
            return False
        entry.hold = value
        return True

    def _offset_of(self, partition: TopicPartition, node: Node | None) -> int | None:
        return None if node is None else znodes.decode_offset(znodes.offset(self.group, partition), node.data)


def _refusal(path: str, failure: Failure, what: str) -> CommitError:
    return CommitError(f"{path} cannot be {what}: {failure.words}")
