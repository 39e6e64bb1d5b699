"""A backup as data, and as JSON."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Literal, TypeAlias

import orjson

from zkgroup.groups.group_model import Cluster
from zkgroup.protocol.names import TopicPartition
from zkgroup.protocol.operations import OPEN, Acl
from zkgroup.protocol.znode_json import excerpt

VERSION: Final = 1
_YEAR_10000: Final = 253_402_300_800_000  # milliseconds since 1970; no calendar goes on

#: Which of the two stores holds an offset.
OffsetStore: TypeAlias = Literal["zookeeper", "kafka"]


@dataclass(frozen=True, slots=True)
class SavedOffset:
    """An offset before (None: there was none) and the one that was to be written (None: it was to be deleted).

    ``raw``: what the node held, where that was not just an offset's number; ``written_raw``: the same of what was to be
    written. ``metadata``: what Kafka kept beside it.
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


# --- writing --------------------------------------------------------------------------------------------------------


def encode(backup: Backup) -> bytes:
    """The file's content."""
    return orjson.dumps(_encode(backup), option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)


def _encode(backup: Backup) -> dict[str, Any]:
    cluster = backup.cluster
    return {
        "zkgroup_backup": VERSION,
        "time": _iso(backup.time),
        "time_ms": backup.time,
        "command": backup.command,
        "group": backup.group,
        "zookeeper": cluster.connect,
        "cluster_id": cluster.id,
        "consumers_made": None if cluster.made is None else {"czxid": cluster.made[0], "ctime": cluster.made[1]},
        "stores": backup.stores,
        "offsets": [_encode_offset(offset) for offset in backup.offsets],
        "nodes": [_encode_node(node) for node in backup.nodes],
    }


def _iso(millis: int) -> str:
    return datetime.fromtimestamp(millis / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _encode_offset(offset: SavedOffset) -> dict[str, Any]:
    encoded: dict[str, Any] = {
        "store": offset.store,
        "topic": offset.partition.topic,
        "partition": offset.partition.partition,
        "before": offset.before,
        "written": offset.written,
    }
    for name, data in (("raw", offset.raw), ("written_raw", offset.written_raw)):
        if data is not None:
            _encode_raw(encoded, name, data)
    if offset.metadata:
        encoded["metadata"] = offset.metadata
    return encoded


def _encode_raw(encoded: dict[str, Any], name: str, data: bytes) -> None:
    """As text for people; what is no text, byte by byte."""
    try:
        encoded[name] = data.decode()
    except UnicodeDecodeError:
        encoded[f"{name}_base64"] = base64.b64encode(data).decode()


def _encode_node(node: SavedNode) -> dict[str, Any]:
    encoded: dict[str, Any] = {"path": node.path}
    try:
        encoded["data"] = node.data.decode()
    except UnicodeDecodeError:
        encoded["base64"] = base64.b64encode(node.data).decode()
    if node.acl != OPEN:
        encoded["acl"] = [[entry.scheme, entry.id, entry.permissions] for entry in node.acl]
    return encoded


# --- reading --------------------------------------------------------------------------------------------------------


def decode(data: bytes) -> Backup:
    """What a file holds. Raises ``ValueError``, in words for people, for what is no backup."""
    if not data.strip():
        raise ValueError("it is empty")
    try:
        found = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise ValueError(f"line {error.lineno}, column {error.colno}: it is no JSON, or ends too early") from None
    try:
        return _decode(found)
    except KeyError as error:
        raise ValueError(f"{error.args[0]} is missing") from None
    except TypeError as error:
        raise ValueError(str(error)) from None


def _decode(found: Any) -> Backup:
    if not isinstance(found, dict) or "zkgroup_backup" not in found:
        raise ValueError("it has no zkgroup_backup")
    if type(found["zkgroup_backup"]) is not int or found["zkgroup_backup"] != VERSION:
        raise ValueError(f"its version is {excerpt(found['zkgroup_backup'])}, this zkgroup reads {VERSION}")
    made = found.get("consumers_made")
    if made is not None and not isinstance(made, dict):
        raise TypeError("consumers_made is no object")
    offsets = tuple(_decode_offset(entry) for entry in _list(found, "offsets"))
    seen: set[tuple[str, TopicPartition]] = set()
    for offset in offsets:
        if (offset.store, offset.partition) in seen:
            raise ValueError(f"{offset.partition} in {offset.store} is there twice")
        seen.add((offset.store, offset.partition))
    return Backup(
        command=_text(found, "command"),
        group=_text(found, "group"),
        time=_time(found),
        cluster=Cluster(
            _text(found, "zookeeper"),
            _optional_text(found, "cluster_id"),
            None if made is None else (_number(made, "czxid"), _number(made, "ctime")),
        ),
        offsets=offsets,
        nodes=tuple(_decode_node(entry) for entry in _list(found, "nodes")),
    )


def _decode_offset(entry: Any) -> SavedOffset:
    store = _text(entry, "store")
    if store not in ("zookeeper", "kafka"):
        raise ValueError(f"{store[:40]!r} is no store")
    partition = TopicPartition(_text(entry, "topic"), _number(entry, "partition"))
    before, written = (None if entry[key] is None else _number(entry, key) for key in ("before", "written"))
    for number in (partition.partition, before, written):
        if number is not None and not 0 <= number < 2**63:
            raise ValueError(f"{partition} has {number}, which is negative or too large")
    metadata = _optional_text(entry, "metadata") or ""
    return SavedOffset("kafka" if store == "kafka" else "zookeeper", partition, before, written,
                       _decode_raw(entry, "raw"), metadata, _decode_raw(entry, "written_raw"))  # fmt: skip


def _decode_raw(entry: Any, name: str) -> bytes | None:
    coded = _optional_text(entry, f"{name}_base64")
    if coded is None:
        text = _optional_text(entry, name)
        return None if text is None else text.encode()
    try:
        return base64.b64decode(coded, validate=True)
    except ValueError:
        raise ValueError(f"{name}_base64 is not to be read") from None


def _decode_node(entry: Any) -> SavedNode:
    path = _text(entry, "path")
    coded = _optional_text(entry, "base64")
    try:
        data = _text(entry, "data").encode() if coded is None else base64.b64decode(coded, validate=True)
    except ValueError:
        raise ValueError(f"what {path[:120]!r} held is not to be read") from None
    acl = entry.get("acl")
    return SavedNode(path, data, OPEN if acl is None else _decode_acl(path, acl))


def _decode_acl(path: str, found: Any) -> tuple[Acl, ...]:
    why = f"the access list of {path[:120]!r} is no list of [scheme, id, permissions]"
    if not isinstance(found, list):
        raise ValueError(why)
    entries = []
    for entry in found:
        if not isinstance(entry, list) or [type(part) for part in entry] != [str, str, int] or not 0 <= entry[2] < 32:
            raise ValueError(why)
        entries.append(Acl(*entry))
    return tuple(entries)


def _text(found: Mapping[str, Any], key: str) -> str:
    value = found[key]
    if not isinstance(value, str):
        raise TypeError(f"{key} is no text")
    return value


def _optional_text(found: Mapping[str, Any], key: str) -> str | None:
    return None if found.get(key) is None else _text(found, key)


def _number(found: Mapping[str, Any], key: str) -> int:
    value = found[key]
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{key} is no number")
    return value


def _time(found: Mapping[str, Any]) -> int:
    time = _number(found, "time_ms")
    if not 0 <= time < _YEAR_10000:
        raise ValueError("time_ms is no time")
    return time


def _list(found: Mapping[str, Any], key: str) -> list[Any]:
    value = found[key]
    if not isinstance(value, list) or not all(isinstance(entry, dict) for entry in value):
        raise TypeError(f"{key} is no list of objects")
    return value
