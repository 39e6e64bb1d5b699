"""What was there before a change, in a file: written before anything is changed, and read to undo it.

A backup is one JSON object: who changed what and when, which cluster it was, and for each partition the offset before
and the one that was to be written (null: no node, no offset). What deletes nodes adds them as they were. The file is
there wholly or not at all, readable by its owner alone, and never replaces another.
"""

from __future__ import annotations

import base64
import contextlib
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias
from urllib.parse import quote

import orjson

from zkgroup.config.folders import STATE_VARIABLE, state_dir
from zkgroup.errors import RefusedError, UsageError, ZkgroupError
from zkgroup.protocol import znodes
from zkgroup.protocol.names import TopicPartition
from zkgroup.protocol.ops import OPEN, Acl, Exists, Get, Node, Stat
from zkgroup.servers.registry import Registry

VERSION: Final = 1
LARGEST: Final = 256 << 20  # bytes of a file that may be a backup
_CLUSTER_ID: Final = "/cluster/id"

#: Which of the two stores holds an offset.
OffsetStore: TypeAlias = Literal["zookeeper", "kafka"]


@dataclass(frozen=True, slots=True)
class Cluster:
    """Which cluster it is. ``id`` is Kafka's own, None before 0.10.1. ``made`` identifies the registry by the creation
    of its ``/consumers`` node (transaction id and milliseconds), None where there is none."""

    connect: str
    id: str | None = None
    made: tuple[int, int] | None = None

    def is_same(self, other: Cluster) -> bool:
        """Whether both are one: by their ids, else by their registries, else by their addresses."""
        if self.id is not None and other.id is not None:
            return self.id == other.id
        if self.made is not None and other.made is not None:
            return self.made == other.made
        return self.connect == other.connect


@dataclass(frozen=True, slots=True)
class SavedOffset:
    """An offset before (None: there was none) and the one that was to be written (None: it was to be deleted).

    ``raw``: what the node held where that was no offset. ``metadata``: what Kafka kept beside it.
    """

    store: OffsetStore
    partition: TopicPartition
    before: int | None
    written: int | None
    raw: str | None = None
    metadata: str = ""


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


def read_cluster(registry: Registry) -> Cluster:
    """Which cluster the registry belongs to."""
    node, stat = registry.read([Get(_CLUSTER_ID), Exists(znodes.consumers())])
    cluster_id = None
    if isinstance(node, Node):
        with contextlib.suppress(ValueError):
            parsed = orjson.loads(node.data)
            found = parsed.get("id") if isinstance(parsed, dict) else None
            cluster_id = found if isinstance(found, str) else None
    made = (stat.czxid, stat.ctime) if isinstance(stat, Stat) else None
    return Cluster(registry.settings.hosts, cluster_id, made)


def check_fits(backup: Backup, cluster: Cluster, group: str, path: Path) -> None:
    """Raise ``RefusedError`` where the backup was made of another group or cluster, ``UsageError`` where it was
    tampered with."""
    if backup.group != group:
        raise RefusedError(f"{path} was made of group {backup.group}, not of {group}", "name that group")
    check_nodes(backup, path)
    check_cluster(backup, cluster, path)


def check_nodes(backup: Backup, path: Path) -> None:
    """Raise ``UsageError`` where a backup of one group's offsets holds nodes of something else."""
    root = f"{znodes.consumers()}/{backup.group}"
    for node in backup.nodes if backup.offsets else ():
        if node.path != root and not node.path.startswith(f"{root}/"):
            raise UsageError(
                f"{path} holds {node.path[:120]!r}, which is no node of group {backup.group}",
                "the backup was tampered with",
            )


def check_cluster(backup: Backup, cluster: Cluster, path: Path) -> None:
    """Raise ``RefusedError`` where the backup was made of another cluster."""
    if not backup.cluster.is_same(cluster):
        raise RefusedError(
            f"{path} was made of another cluster, {_called(backup.cluster)}; this is {_called(cluster)}",
            "connect to that one",
        )


def _called(cluster: Cluster) -> str:
    return f"{cluster.connect} (id {cluster.id})" if cluster.id else cluster.connect


# --- writing --------------------------------------------------------------------------------------------------------


def write(backup: Backup, path: Path | None = None) -> Path:
    """Write it to ``path``, by default to a new file in the state folder, and return where it is.

    Raises ``RefusedError`` if there is a file already: it may be the only copy of something. Raises ``ZkgroupError``
    where it cannot be written.
    """
    text = orjson.dumps(_encode(backup), option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
    if path is not None:
        _publish(text, path)
        return path
    for number in range(1000):
        candidate = _folder() / _name(backup, number)
        try:
            _publish(text, candidate)
        except RefusedError:
            continue
        return candidate
    raise ZkgroupError(f"no free name for a backup in {_folder()}", "remove old ones")


def _folder() -> Path:
    folder = state_dir() / "backups"
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise ZkgroupError(
            f"no backup can be written: {folder}: {error.strerror}", f"--backup FILE, or set {STATE_VARIABLE}"
        ) from None
    return folder


def _name(backup: Backup, number: int) -> str:
    moment = datetime.fromtimestamp(backup.time / 1000, UTC)
    group = quote(backup.group, safe="")[:100]
    again = f"-{number}" if number else ""
    return f"{moment:%Y%m%dT%H%M%SZ}-{backup.command}-{group}{again}.json"


def _publish(text: bytes, path: Path) -> None:
    """Write the file, whole and safe on the disk, where there is none yet."""
    temporary = None
    try:
        handle, temporary = tempfile.mkstemp(prefix=".zkgroup-", dir=path.absolute().parent)  # mode 0600
        with os.fdopen(handle, "wb") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        _link(temporary, path)
        directory = os.open(path.absolute().parent, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
    except FileExistsError:
        raise RefusedError(f"{path} exists: it may be the only copy of something", "choose another --backup") from None
    except OSError as error:
        raise ZkgroupError(
            f"the backup cannot be written: {path}: {error.strerror}; nothing was changed", "choose another --backup"
        ) from None
    finally:
        if temporary is not None:
            with contextlib.suppress(FileNotFoundError):
                Path(temporary).unlink()


def _link(temporary: str, path: Path) -> None:
    try:
        os.link(temporary, path)
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links
        os.close(os.open(path, os.O_CREAT | os.O_EXCL, 0o600))
        Path(temporary).replace(path)


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
    if offset.raw is not None:
        encoded["raw"] = offset.raw
    if offset.metadata:
        encoded["metadata"] = offset.metadata
    return encoded


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


def read(path: Path) -> Backup:
    """Read a backup. Raises ``UsageError`` for what is none."""
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST + 1)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}", "check the path") from None
    if len(data) > LARGEST:
        raise UsageError(f"{path} is larger than any backup", _REMEDY)
    try:
        return _decode(orjson.loads(data))
    except orjson.JSONDecodeError as error:
        raise UsageError(f"{path} is no backup: line {error.lineno}: {error.msg}", _REMEDY) from None
    except (KeyError, TypeError, ValueError) as error:
        why = f"{error.args[0]} is missing" if isinstance(error, KeyError) else str(error)
        raise UsageError(f"{path} is no backup: {why}", _REMEDY) from None


_REMEDY: Final = "give a file that a change of zkgroup has written"


def _decode(found: Any) -> Backup:
    if not isinstance(found, dict) or "zkgroup_backup" not in found:
        raise ValueError("it has no zkgroup_backup")
    if found["zkgroup_backup"] != VERSION:
        raise ValueError(f"its version is {str(found['zkgroup_backup'])[:20]}, this zkgroup reads {VERSION}")
    made = found["consumers_made"]
    offsets = tuple(_decode_offset(entry) for entry in _list(found, "offsets"))
    seen: set[tuple[str, TopicPartition]] = set()
    for offset in offsets:
        if (offset.store, offset.partition) in seen:
            raise ValueError(f"{offset.partition} in {offset.store} is there twice")
        seen.add((offset.store, offset.partition))
    return Backup(
        command=_text(found, "command"),
        group=_text(found, "group"),
        time=_number(found, "time_ms"),
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
                       _optional_text(entry, "raw"), metadata)  # fmt: skip


def _decode_node(entry: Any) -> SavedNode:
    path = _text(entry, "path")
    coded = _optional_text(entry, "base64")
    data = _text(entry, "data").encode() if coded is None else base64.b64decode(coded, validate=True)
    acl = entry.get("acl")
    entries = OPEN if acl is None else tuple(Acl(str(scheme), str(who), int(what)) for scheme, who, what in acl)
    return SavedNode(path, data, entries)


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


def _list(found: Mapping[str, Any], key: str) -> list[Any]:
    value = found[key]
    if not isinstance(value, list) or not all(isinstance(entry, dict) for entry in value):
        raise TypeError(f"{key} is no list of objects")
    return value
