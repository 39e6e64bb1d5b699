"""Backup files: written before a change, and read to undo it.

A backup is one JSON object: the command and its time, the cluster, and for each partition the offset before
and the planned one (null: no node, no offset). The backup of a deletion has the nodes as they were. The file is
there wholly or not at all, readable by its owner alone, and never replaces another.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal
from urllib.parse import quote

import msgspec

from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.config.files import STATE_VARIABLE, state_dir
from zkgroup.errors import RefusedError, UsageError, ZkgroupError
from zkgroup.groups.group_model import Cluster, OffsetStore
from zkgroup.groups.offset_files.atomic_file import write_new
from zkgroup.protocol import znodes
from zkgroup.protocol.broker_znodes import CLUSTER_ID, decode_cluster_id
from zkgroup.protocol.names import TopicPartition
from zkgroup.protocol.operations import OPEN, Acl, Exists, Get, Node, Stat
from zkgroup.text import Command, group_command

if TYPE_CHECKING:
    from zkgroup.clients.kafka.client import KafkaSettings  # confluent-kafka: 60 ms that not every change needs


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


LARGEST: Final = 256 << 20  # bytes of a file that may be a backup
#: The one command that removes owners and registrations for themselves.
RELEASE_OWNERS: Final = "release-owners"


def read_cluster(registry: Registry) -> Cluster:
    """Which cluster the registry belongs to."""
    node, stat = registry.read([Get(CLUSTER_ID), Exists(znodes.consumers())])
    cluster_id = decode_cluster_id(node.data) if isinstance(node, Node) else None
    made = (stat.czxid, stat.ctime) if isinstance(stat, Stat) else None
    return Cluster(registry.settings.hosts, cluster_id, made)


def cluster_of(registry: Registry | None, brokers: Callable[[], KafkaSettings], timeout: float) -> Cluster:
    """The same, as the brokers know it where there is no registry."""
    if registry is not None:
        return read_cluster(registry)
    from zkgroup.clients.kafka.client import cluster_id

    settings = brokers()
    return Cluster(settings.bootstrap, cluster_id(settings, timeout))


def check_fits(backup: Backup, cluster: Cluster, group: str, path: Path) -> list[str]:
    """Raise ``RefusedError`` where the backup was made of another group or cluster, ``UsageError`` where it was
    tampered with. Returns warnings."""
    if backup.group != group:
        raise RefusedError(f"{path} was made of group {backup.group}, not of {group}", "name that group")
    check_nodes(backup, path)
    return check_cluster(backup, cluster, path)


def check_nodes(backup: Backup, path: Path) -> None:
    """Raise ``UsageError`` where a backup has nodes that no deletion can have removed: such that lie outside its
    group (of inactive groups: outside all groups), members, and offsets of impossible topics."""
    root = f"{znodes.consumers()}/{backup.group}"
    try:
        znodes.offset_paths(backup.group, [offset.partition for offset in backup.offsets])
        for node in backup.nodes:
            group = group_of(node.path)
            if backup.offsets and node.path != root and not node.path.startswith(f"{root}/"):
                raise UsageError(f"{node.path[:120]!r} is no node of group {backup.group}")
            if node.path.startswith(f"{znodes.ids(group)}/") and backup.command != RELEASE_OWNERS:
                raise UsageError(f"{node.path[:120]!r} is a member, which no deletion removes")
    except UsageError as error:
        raise UsageError(f"{path} was tampered with: {error.message}", _REMEDY) from None


def group_of(path: str) -> str:
    """The group that a node belongs to. Raises ``UsageError`` for a path that is none below a group."""
    names = path.removeprefix(f"{znodes.consumers()}/").split("/")
    if not path.startswith(f"{znodes.consumers()}/"):
        raise UsageError(f"{path[:120]!r} is no node of a group", "check the backup: it was tampered with")
    parent = znodes.consumers()
    for name in names:
        parent = znodes.child(parent, name)
    return names[0]


def check_cluster(backup: Backup, cluster: Cluster, path: Path) -> list[str]:
    """Raise ``RefusedError`` where the backup was made of another cluster. Returns warnings."""
    if not backup.cluster.is_same(cluster):
        raise RefusedError(
            f"{path} was made of another cluster, {_called(backup.cluster)}; this is {_called(cluster)}",
            "connect to that one",
        )
    if backup.cluster.id is None and backup.cluster.created is None and (cluster.id or cluster.created):
        return [f"{path} names no cluster: zkgroup assumes this one, which has the same address"]
    return []


def _called(cluster: Cluster) -> str:
    return cluster.connect + cluster.description


# --- writing --------------------------------------------------------------------------------------------------------


def write(backup: Backup, path: Path | None = None) -> Path:
    """Write it to ``path``, by default to a new file in the state folder, and return where it is.

    Raises ``RefusedError`` if there is a file already: it may be the only copy of something. Raises ``ZkgroupError``
    where it cannot be written.
    """
    text = encode(backup)
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
    again = f"-{number}" if number else ""
    return f"{moment:%Y%m%dT%H%M%SZ}-{backup.command}-{_quoted(backup.group)}{again}.json"


def _quoted(group: str) -> str:
    return quote(group, safe="")[:100]


def backup_files() -> list[Path]:
    """The files in the state folder's folder of backups, the oldest first."""
    try:
        return sorted((state_dir() / "backups").glob("*.json"))
    except OSError:  # it may not be there
        return []


def earlier(command: str, group: str) -> list[Path]:
    """The backups of changes of that kind and group that are in the state folder, the oldest first."""
    wanted = re.compile(rf"[0-9TZ]+-{re.escape(command)}-{re.escape(_quoted(group))}(-[0-9]+)?\.json")
    return [path for path in backup_files() if wanted.fullmatch(path.name)]


def undo_command(backup: Backup, path: Path) -> Command:
    """The command that restores what the backup has."""
    if backup.nodes:
        return ("delete-group", "--undo", str(path))
    return group_command("reset-offsets", backup.group, "--undo", str(path))


def _publish(text: bytes, path: Path) -> None:
    """Write the file, whole and safe on the disk, where there is none yet."""
    try:
        write_new(path, text)
    except FileExistsError:
        raise RefusedError(f"{path} exists: it may be the only copy of something", "choose another --backup") from None
    except OSError as error:
        raise ZkgroupError(
            f"the backup cannot be written: {path}: {error.strerror}; nothing was changed", "choose another --backup"
        ) from None


# --- reading --------------------------------------------------------------------------------------------------------


def read(path: Path) -> Backup:
    """Read a backup. Raises ``UsageError`` for other files."""
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST + 1)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}", "check the path") from None
    if len(data) > LARGEST:
        raise UsageError(f"{path} is larger than any backup", _REMEDY)
    try:
        return decode(data)
    except ValueError as error:
        raise UsageError(f"{path} is no backup: {error}", _REMEDY) from None


_REMEDY: Final = "give a file that a change of zkgroup has written"
