"""A backup as data, and as JSON."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Final, Literal

import msgspec

from zkgroup.groups.group_model import Cluster, OffsetStore
from zkgroup.protocol.names import TopicPartition
from zkgroup.protocol.operations import OPEN, Acl

VERSION: Final = 1
_MAX_REASON: Final = 200  # characters


@dataclass(frozen=True, slots=True)
class SavedOffset:
    """An offset before (None: there was none) and the one that was to be written (None: it was to be deleted).

    ``raw``: the bytes of the node, where that was not just an offset's number; ``written_raw``: the same of what was to
    be written. ``metadata``: that of the commit in Kafka.
    """

    store: OffsetStore
    partition: TopicPartition
    before: int | None
    written: int | None
    raw: bytes | None = None
    metadata: str = ""
    written_raw: bytes | None = None


@dataclass(frozen=True, slots=True)
class SavedNode:
    """A node that was to be deleted, as it was. ``path`` is relative to the chroot."""

    path: str
    data: bytes
    acl: tuple[Acl, ...] = OPEN


@dataclass(frozen=True, slots=True)
class Backup:
    """A change of ``group`` by ``command``, planned at ``time`` (milliseconds since 1970)."""

    command: str
    group: str
    time: int
    cluster: Cluster
    offsets: tuple[SavedOffset, ...]
    nodes: tuple[SavedNode, ...] = ()

    @property
    def stores(self) -> tuple[OffsetStore, ...]:
        """The stores that the change concerns."""
        return tuple(sorted({offset.store for offset in self.offsets}, reverse=True))


# --- the file's objects; bytes are text where they are UTF-8, else base64 -------------------------------------------

_Long = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
_Millis = Annotated[int, msgspec.Meta(ge=0, lt=253_402_300_800_000)]  # up to the year 9999
_AclEntry = tuple[str, str, Annotated[int, msgspec.Meta(ge=0, lt=32)]]


class _Offset(msgspec.Struct, omit_defaults=True):
    store: OffsetStore
    topic: str
    partition: _Long
    before: _Long | None
    written: _Long | None
    raw: str | None = None
    raw_base64: bytes | None = None
    written_raw: str | None = None
    written_raw_base64: bytes | None = None
    metadata: str = ""


class _Node(msgspec.Struct, omit_defaults=True):
    path: str
    data: str | None = None
    base64: bytes | None = None
    acl: list[_AclEntry] | None = None


class _Creation(msgspec.Struct):
    czxid: int
    ctime: int


class _BackupFile(msgspec.Struct):
    zkgroup_backup: Literal[1]
    time: str
    time_ms: _Millis
    command: str
    group: str
    zookeeper: str
    cluster_id: str | None
    consumers_made: _Creation | None
    stores: tuple[OffsetStore, ...]
    offsets: list[_Offset]
    nodes: list[_Node]


def encode(backup: Backup) -> bytes:
    """The file's content."""
    cluster = backup.cluster
    moment = datetime.fromtimestamp(backup.time / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    file = _BackupFile(
        zkgroup_backup=VERSION,
        time=moment,
        time_ms=backup.time,
        command=backup.command,
        group=backup.group,
        zookeeper=cluster.connect,
        cluster_id=cluster.id,
        consumers_made=None if cluster.created is None else _Creation(*cluster.created),
        stores=backup.stores,
        offsets=[
            _Offset(
                one.store,
                *one.partition,
                one.before,
                one.written,
                *_encode_bytes(one.raw),
                *_encode_bytes(one.written_raw),
                one.metadata,
            )
            for one in backup.offsets
        ],
        nodes=[
            _Node(
                one.path,
                *_encode_bytes(one.data),
                None if one.acl == OPEN else [(entry.scheme, entry.id, entry.permissions) for entry in one.acl],
            )
            for one in backup.nodes
        ],
    )
    return msgspec.json.format(msgspec.json.encode(file), indent=2) + b"\n"


def _encode_bytes(data: bytes | None) -> tuple[str | None, bytes | None]:
    """As text, or as bytes where it is none."""
    try:
        return (None if data is None else data.decode()), None
    except UnicodeDecodeError:
        return None, data


def decode(data: bytes) -> Backup:
    """The content of a file. Raises ``ValueError`` for other files, with the JSON path of the fault."""
    try:
        file = msgspec.json.decode(data, type=_BackupFile)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(" ".join(str(error)[:_MAX_REASON].split())) from None
    offsets = tuple(
        SavedOffset(
            one.store,
            TopicPartition(one.topic, one.partition),
            one.before,
            one.written,
            _decode_bytes(one.raw, one.raw_base64),
            one.metadata,
            _decode_bytes(one.written_raw, one.written_raw_base64),
        )
        for one in file.offsets
    )
    seen: set[tuple[str, TopicPartition]] = set()
    for offset in offsets:
        if (offset.store, offset.partition) in seen:
            raise ValueError(f"{offset.partition} in {offset.store} is there twice")
        seen.add((offset.store, offset.partition))
    made = file.consumers_made
    cluster = Cluster(file.zookeeper, file.cluster_id, None if made is None else (made.czxid, made.ctime))
    nodes = tuple(_decode_node(number, node) for number, node in enumerate(file.nodes))
    return Backup(file.command, file.group, file.time_ms, cluster, offsets, nodes)


def _decode_bytes(text: str | None, coded: bytes | None) -> bytes | None:
    return coded if coded is not None or text is None else text.encode()


def _decode_node(number: int, node: _Node) -> SavedNode:
    data = _decode_bytes(node.data, node.base64)
    if data is None:
        raise ValueError(f"Object missing required field `data` - at `$.nodes[{number}]`")
    return SavedNode(node.path, data, OPEN if node.acl is None else tuple(Acl(*entry) for entry in node.acl))
