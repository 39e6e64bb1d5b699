"""Backup files: written before a change, and read to undo it.

A backup is one JSON object: the command and its time, the cluster, and for each partition the offset before
and the planned one (null: no node, no offset). The backup of a deletion has the nodes as they were. Bytes are in
base64. The file is there wholly or not at all, readable by its owner alone, and never replaces another.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Final, Literal
from urllib.parse import quote

import msgspec

from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.config.setting_files import STATE_VARIABLE, state_dir
from zkgroup.errors import RefusedError, UsageError, ZkgroupError
from zkgroup.groups.group_model import Cluster, OffsetStore
from zkgroup.groups.offset_files.atomic_file import write_new
from zkgroup.protocol import znodes
from zkgroup.protocol.broker_znodes import CLUSTER_ID, decode_cluster_id
from zkgroup.protocol.names import TopicPartition
from zkgroup.protocol.operations import OPEN, Acl, Exists, Get, Node, Stat
from zkgroup.text import Command, group_command

_MAX_REASON: Final = 200  # characters

_Long = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
_Millis = Annotated[int, msgspec.Meta(ge=0, lt=253_402_300_800_000)]  # up to the year 9999


@dataclass(frozen=True, slots=True)
class SavedOffset:
    """An offset before (None: there was none) and the one that was to be written (None: it was to be deleted).

    ``raw``: the bytes of the node, where that was not just an offset's number; ``written_raw``: the same of what was to
    be written. ``metadata``: that of the commit in Kafka.
    """

    store: OffsetStore
    partition: TopicPartition
    before: _Long | None
    written: _Long | None
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
    time: _Millis
    cluster: Cluster
    offsets: tuple[SavedOffset, ...]
    nodes: tuple[SavedNode, ...] = ()


class _BackupFile(msgspec.Struct):
    zkgroup_backup: Literal[2]
    change: Backup


_DECODER: Final = msgspec.json.Decoder(_BackupFile)


def encode(backup: Backup) -> bytes:
    """The file's content."""
    return msgspec.json.format(msgspec.json.encode(_BackupFile(2, backup)), indent=2) + b"\n"


def decode(data: bytes) -> Backup:
    """The content of a file. Raises ``ValueError`` for other files, with the JSON path of the fault."""
    try:
        backup = _DECODER.decode(data).change
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(" ".join(str(error)[:_MAX_REASON].split())) from None
    for (store, partition), count in Counter((one.store, one.partition) for one in backup.offsets).items():
        if count > 1:
            raise ValueError(f"{partition} in {store} is there twice")
        if partition.partition < 0:
            raise ValueError(f"{partition} in {store} is no partition")
    for node in backup.nodes:
        if not all(0 <= entry.permissions < 32 for entry in node.acl):
            raise ValueError(f"{node.path[:120]!r} has permissions that no access list can have")
    return backup


MAX_BACKUP_BYTES: Final = 256 << 20  # bytes of a file that may be a backup
#: The one command that removes owners and registrations for themselves.
RELEASE_OWNERS: Final = "release-owners"


def read_cluster(registry: Registry) -> Cluster:
    """Which cluster the registry belongs to."""
    node, stat = registry.read([Get(CLUSTER_ID), Exists(znodes.consumers())])
    cluster_id = decode_cluster_id(node.data) if isinstance(node, Node) else None
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


def check_cluster(backup: Backup, cluster: Cluster, path: Path) -> None:
    """Raise ``RefusedError`` where the backup was made of another cluster."""
    if not backup.cluster.is_same(cluster):
        raise RefusedError(
            f"{path} was made of another cluster, {backup.cluster.connect}{backup.cluster.description}; this is"
            f" {cluster.connect}{cluster.description}",
            "connect to that one",
        )


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
    number = 0
    while True:
        candidate = _folder() / _name(backup, number)
        try:
            _publish(text, candidate)
        except RefusedError:
            number += 1
        else:
            return candidate


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
    return f"{moment:%Y%m%dT%H%M%SZ}-{backup.command}-{quote(backup.group, safe='')[:100]}{again}.json"


def backup_files() -> list[Path]:
    """The files in the state folder's folder of backups, the oldest first."""
    return sorted((state_dir() / "backups").glob("*.json"))


def undo_command(backup: Backup, path: Path) -> Command:
    """The command that plans to restore what the backup has."""
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
            data = file.read(MAX_BACKUP_BYTES)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}", "check the path") from None
    try:
        return decode(data)
    except ValueError as error:
        raise UsageError(f"{path} is no backup: {error}", _REMEDY) from None


_REMEDY: Final = "give a file that a change of zkgroup has written"
