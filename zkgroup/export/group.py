"""The group's side of an export: what ZooKeeper tells of it, the lock, and the commit.

``/consumers/G/zkgroup/export/lock`` is ephemeral and keeps two exports of a group apart; its siblings are free for what
a resumable export may keep. The lock is a courtesy that spares work. What makes the commit safe is the version of every
offset node, read when the export was planned: a node that anybody has touched since refuses the whole commit.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

from zkgroup.errors import NotFoundError, RefusedError, UnreachableError, ZkgroupError
from zkgroup.export.plan import ExportPlan, PartitionFacts, PartitionPlan
from zkgroup.protocol import znodes
from zkgroup.protocol.brokers import decode_topic
from zkgroup.protocol.filters import TopicFilter
from zkgroup.protocol.names import TopicPartition
from zkgroup.protocol.ops import (
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
    Result,
    SetData,
)
from zkgroup.servers.kafka import KafkaSettings, LogRange, log_offsets
from zkgroup.servers.registry import Registry, TransactionRefused

log = logging.getLogger(__name__)

# ZooKeeper takes at most 1 MiB a request, and drops the connection above it.
_TRANSACTION_BYTES = 512 << 10
_OPERATION_BYTES = 64  # of an operation, besides its path and its data
_POLL = 0.2
_SHOWN = 5


class ExportGroup:
    """One group, through one registry. ``warn`` is told what the operator should know; used by one thread."""

    def __init__(self, registry: Registry, group: str, warn: Callable[[str], None]) -> None:
        self._registry = registry
        self.group = group
        self._warn = warn

    # --- what there is ----------------------------------------------------------------------------------------------

    def select_topics(self, named: Sequence[str], whitelist: TopicFilter | None) -> dict[str, tuple[int, ...]]:
        """The topics to export, each with its partitions.

        Those named and those that the filter takes; without either, those that the group has offsets for. Raises
        ``NotFoundError`` for a topic that was named and does not exist, and where there is nothing to export.
        """
        existing, with_offsets = self._registry.read([Children(znodes.topics()), Children(znodes.offsets(self.group))])
        there = set(_names(existing))
        if named or whitelist is not None:
            wanted = sorted({*named, *(whitelist.select(there) if whitelist is not None else ())})
            if missing := [topic for topic in named if topic not in there]:
                raise NotFoundError(f"there is no topic {', '.join(missing[:_SHOWN])}", "see the names in ZooKeeper")
            if not wanted:
                raise NotFoundError(f"no topic matches {named or (whitelist and whitelist.expression)}")
        else:
            wanted = sorted(_names(with_offsets))
            if not wanted:
                raise NotFoundError(
                    f"group {self.group} has no committed offsets in ZooKeeper",
                    "name the topics, and say with --from where to begin",
                )
            for topic in [topic for topic in wanted if topic not in there]:
                self._warn(f"group {self.group} has offsets of topic {topic}, which does not exist: it is left out")
                wanted.remove(topic)
            if not wanted:
                raise NotFoundError(f"none of the topics that group {self.group} has offsets of exists")
        paths = [znodes.topic(topic) for topic in wanted]
        nodes = self._registry.read([Get(path) for path in paths])
        partitions: dict[str, tuple[int, ...]] = {}
        for topic, path, node in zip(wanted, paths, nodes, strict=True):
            if not isinstance(node, Node):
                raise NotFoundError(f"there is no topic {topic}", "it was just deleted")
            partitions[topic] = tuple(decode_topic(path, node.data).partitions)
        return partitions

    def refuse_if_live(self) -> None:
        """Raise ``RefusedError`` if the group has members."""
        (listed,) = self._registry.read([Children(znodes.ids(self.group))])
        if members := sorted(_names(listed)):
            more = f" and {len(members) - _SHOWN} more" if len(members) > _SHOWN else ""
            raise RefusedError(
                f"group {self.group} is live: {', '.join(members[:_SHOWN])}{more} consume"
                f"{'s' if len(members) == 1 else ''} and commit{'s' if len(members) == 1 else ''} for it",
                "stop the members, or export under a group of its own",
            )

    def facts(self, topics: dict[str, tuple[int, ...]], kafka: KafkaSettings, timeout: float) -> list[PartitionFacts]:
        """The committed offset and the log of every partition, the ends as a reader of committed messages sees them.

        Raises ``MalformedZnodeError`` for an offset that cannot be read, and what ``log_offsets`` found wrong.
        """
        partitions = [TopicPartition(topic, number) for topic, numbers in topics.items() for number in numbers]
        nodes = self._registry.read([Get(path) for path in self._paths(partitions)])
        committed = [_committed(path, node) for path, node in zip(self._paths(partitions), nodes, strict=True)]
        only_committed = kafka.properties.get("isolation.level", "read_committed") == "read_committed"
        logs = _logs(log_offsets(kafka, partitions, timeout, read_committed=only_committed))
        # A member of the reference reads what is not committed yet: its offset may lie behind an open transaction.
        ahead = [p for p, (offset, _) in zip(partitions, committed, strict=True) if (offset or 0) > logs[p].end]
        high = _logs(log_offsets(kafka, ahead, timeout)) if ahead and only_committed else {}
        return [
            PartitionFacts(
                partition,
                offset,
                version,
                logs[partition].start,
                min(offset or 0, high[partition].end) if partition in high else logs[partition].end,
            )
            for partition, (offset, version) in zip(partitions, committed, strict=True)
        ]

    def _paths(self, partitions: Iterable[TopicPartition]) -> list[str]:
        return [znodes.offset(self.group, partition) for partition in partitions]

    # --- the lock ---------------------------------------------------------------------------------------------------

    @contextmanager
    def lock(self, run: str) -> Iterator[None]:
        """Hold the group's export lock. A lock that a killed export left is waited out, which takes a session time-out.

        Raises ``RefusedError`` while another export holds it.
        """
        parent, path = znodes.export_state(self.group), znodes.export_lock(self.group)
        above = [znodes.group(self.group), parent.rpartition("/")[0], parent]
        missing = [
            node
            for node, there in zip(above, self._registry.read([Exists(node) for node in above]), strict=True)
            if there is None
        ]
        holder = {"host": socket.gethostname(), "pid": os.getpid(), "run": run, "since": int(time.time() * 1000)}
        try:
            self._acquire(parent, path, json.dumps(holder).encode())
            yield
        finally:
            # A group that this export made by locking it, and that has no offsets after all, goes again.
            ours = [Delete(path)] if self._holds(path) else []
            nodes = {*missing, parent, above[1]}
            self._tidy([*ours, *(Delete(node) for node in reversed(above) if node in nodes)])

    def _acquire(self, parent: str, path: str, data: bytes) -> None:
        deadline = time.monotonic() + self._registry.settings.session_timeout + 2.0
        told = False
        while True:
            # Not at one go: making missing parents takes several requests.
            ensured = self._registry.write(Ensure(parent))
            refused = self._registry.write(Create(path, data, ephemeral=True))
            if refused is None or self._holds(path):
                return
            failure = refused if isinstance(refused, Failure) else Failure(Code.OTHER)
            if failure.code is not Code.NODE_EXISTS:
                detail = ensured if isinstance(ensured, Failure) else failure
                raise ZkgroupError(f"cannot lock group {self.group} at {path}: {detail.code.value} {detail.detail}")
            if time.monotonic() > deadline:
                raise RefusedError(
                    f"another export of group {self.group} is running{self._holder(path)}", "wait until it is done"
                )
            if not told:
                self._warn(f"another export of group {self.group} runs or was killed{self._holder(path)}: waiting")
                told = True
            time.sleep(_POLL)

    def _holds(self, path: str) -> bool:
        try:
            (stat,) = self._registry.read([Exists(path)])
        except UnreachableError:
            return False
        return getattr(stat, "owner", None) == self._registry.session_id != 0

    def _holder(self, path: str) -> str:
        (node,) = self._registry.read([Get(path)])
        try:
            found = json.loads(node.data) if isinstance(node, Node) else {}
            return f" (host {found['host']}, process {found['pid']})"
        except (ValueError, KeyError, TypeError):
            return ""

    def _tidy(self, ops: Sequence[Op]) -> None:
        try:
            for result in self._registry.read(ops):
                if isinstance(result, Failure) and result.code not in (Code.NOT_EMPTY, Code.NO_NODE):
                    log.debug("tidying up after the export: %s %s", result.code.value, result.detail)
        except UnreachableError as error:
            log.debug("tidying up after the export: %s", error)

    # --- the commit -------------------------------------------------------------------------------------------------

    def refuse_if_moved(self, plan: ExportPlan) -> None:
        """Raise ``RefusedError`` if members came or an offset node was touched since the plan was made."""
        self.refuse_if_live()
        for partition, (offset, version) in self._offsets(self._registry, plan.partitions):
            if version != partition.version:
                raise self._moved(partition, offset)

    def commit(self, plan: ExportPlan) -> None:
        """Move the group's offsets to the plan's ends, each only from the version that was planned with.

        Raises ``RefusedError`` where somebody moved one meanwhile, ``UnreachableError`` where ZooKeeper cannot be asked
        what became of the commit. Very large groups take several transactions: ``committed`` tells what was done.
        """
        moving = [partition for partition in plan.partitions if partition.moves]
        topics = {partition.partition.topic for partition in moving if partition.version is None}
        self._registry.read([Ensure(znodes.offset_topic(self.group, topic)) for topic in sorted(topics)])
        for piece in self._pieces(moving):
            try:
                self._registry.transaction([self._operation(partition) for partition in piece])
            except TransactionRefused as refused:
                raise self._refusal(piece, refused) from None
            except UnreachableError:
                self._find_out(piece)

    def committed(self, plan: ExportPlan) -> set[TopicPartition]:
        """The partitions whose offset nodes stand where the plan leaves them, asked through a session of its own."""
        with Registry(self._registry.settings, self._registry.timeout) as fresh:
            return {
                partition.partition
                for partition, (offset, version) in self._offsets(fresh, plan.partitions)
                if partition.moves and _is_done(partition, offset, version)
            }

    def _operation(self, partition: PartitionPlan) -> Create | SetData:
        path, data = znodes.offset(self.group, partition.partition), znodes.encode_offset(partition.end)
        return Create(path, data) if partition.version is None else SetData(path, data, partition.version)

    def _pieces(self, partitions: Sequence[PartitionPlan]) -> Iterator[list[PartitionPlan]]:
        piece: list[PartitionPlan] = []
        size = 0
        for partition in partitions:
            operation = self._operation(partition)
            cost = len(operation.path) + len(operation.data) + _OPERATION_BYTES
            if piece and size + cost > _TRANSACTION_BYTES:
                yield piece
                piece, size = [], 0
            piece.append(partition)
            size += cost
        if piece:
            yield piece

    def _find_out(self, piece: Sequence[PartitionPlan]) -> None:
        """The connection went while the commit was under way: look what became of it, and do it if nothing did."""
        deadline = time.monotonic() + max(30.0, 2 * self._registry.timeout)
        while True:
            try:
                with Registry(self._registry.settings, self._registry.timeout) as fresh:
                    found = self._offsets(fresh, piece)
                    if all(_is_done(partition, offset, version) for partition, (offset, version) in found):
                        return
                    try:
                        fresh.transaction([self._operation(partition) for partition in piece])
                    except TransactionRefused as refused:
                        # Perhaps by the first attempt, which was applied after all.
                        found = self._offsets(fresh, piece)
                        if not all(_is_done(partition, offset, version) for partition, (offset, version) in found):
                            raise self._refusal(piece, refused) from None
                    return
            except UnreachableError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(_POLL)

    def _offsets(
        self, registry: Registry, partitions: Sequence[PartitionPlan]
    ) -> list[tuple[PartitionPlan, tuple[int | None, int | None]]]:
        paths = self._paths(partition.partition for partition in partitions)
        nodes = registry.read([Get(path) for path in paths])
        found = [_committed(path, node) for path, node in zip(paths, nodes, strict=True)]
        return list(zip(partitions, found, strict=True))

    def _refusal(self, piece: Sequence[PartitionPlan], refused: TransactionRefused) -> ZkgroupError:
        if refused.failure.code not in (Code.BAD_VERSION, Code.NODE_EXISTS, Code.NO_NODE):
            return ZkgroupError(f"cannot commit for group {self.group}: {refused.message} ({refused.failure.detail})")
        (node,) = self._registry.read([Get(refused.path)])
        return self._moved(piece[refused.index], _committed(refused.path, node)[0])

    def _moved(self, partition: PartitionPlan, offset: int | None) -> RefusedError:
        planned = "no offset" if partition.committed is None else partition.committed
        return RefusedError(
            f"the offset of {partition.partition} was moved by somebody else while group {self.group} was exported "
            f"(it was {planned}, it is {'gone' if offset is None else offset}): nothing is committed for it",
            "find out who commits for the group, then export again",
        )


def _names(result: Result) -> tuple[str, ...]:
    """The children that were listed; none where there is no node."""
    if isinstance(result, tuple):
        return result
    if isinstance(result, Failure) and result.code is not Code.NO_NODE:
        raise ZkgroupError(f"ZooKeeper does not tell: {result.code.value} {result.detail}")
    return ()


def _committed(path: str, result: Result) -> tuple[int | None, int | None]:
    """Offset and version of an offset node; both None where there is no node."""
    if isinstance(result, Node):
        return znodes.decode_offset(path, result.data), result.stat.version
    if isinstance(result, Failure) and result.code is not Code.NO_NODE:
        raise ZkgroupError(f"cannot read {path}: {result.code.value} {result.detail}")
    return None, None


def _is_done(partition: PartitionPlan, offset: int | None, version: int | None) -> bool:
    expected = 0 if partition.version is None else partition.version + 1
    return offset == partition.end and version == expected


def _logs(found: dict[TopicPartition, LogRange | ZkgroupError]) -> dict[TopicPartition, LogRange]:
    logs: dict[TopicPartition, LogRange] = {}
    for partition, log_range in found.items():
        if isinstance(log_range, ZkgroupError):
            raise log_range
        logs[partition] = log_range
    return logs
