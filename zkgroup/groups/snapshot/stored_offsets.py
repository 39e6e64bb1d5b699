"""Committed offsets in ZooKeeper, as all members of the group read them.

The Scala consumer parses the whole text (``Long.parseLong``, through Scala's ``toLong``; seen with 0.8.2.2 and 1.1.1):
a blank or a line break before or behind the number fails every attempt of its rebalance, while decimal digits of any
script are numbers.
"""

from __future__ import annotations

from collections.abc import Iterable

from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.errors import MalformedZnodeError
from zkgroup.groups.group_model import StoredOffset
from zkgroup.protocol import znodes
from zkgroup.protocol.names import TopicPartition
from zkgroup.protocol.operations import Code, Failure, Get, Node

_SHOWN = 20


def read_stored_offsets(
    registry: Registry, group: str, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, StoredOffset]:
    """The offset nodes of these partitions, without those that do not exist. Raises ``UnreachableError``."""
    paths = znodes.offset_paths(group, partitions)
    found = {}
    for (partition, path), result in zip(paths.items(), registry.read(map(Get, paths.values())), strict=True):
        if isinstance(result, Node):
            found[partition] = stored_offset(path, result)
        elif isinstance(result, Failure) and result.code is not Code.NO_NODE:
            found[partition] = unreadable_offset(f"the znode cannot be read: {result.code.value}")
    return found


def stored_offset(path: str, node: Node) -> StoredOffset:
    """The offset of an offset node, or why it has none."""
    offset, error, defect = None, None, None
    number = java_long(node.data)
    try:
        offset = znodes.decode_offset(path, node.data)
        if number is None:
            shown = node.data.decode("utf-8", "replace")
            shown = repr(shown if len(shown) <= _SHOWN else shown[:_SHOWN] + "…")
            what = -1 if offset is None else offset
            defect = f"{shown} has more than the number {what}, which no Scala member can read"
    except MalformedZnodeError as malformed:
        if number is None:
            error = malformed.why
        else:
            offset = number if number >= 0 else None
    stat = node.stat
    data = None if offset is not None and node.data == znodes.encode_offset(offset) else node.data
    return StoredOffset(offset, stat.version, stat.mzxid, stat.ctime, stat.mtime, error, defect, data=data)


def unreadable_offset(why: str) -> StoredOffset:
    """An offset that may exist and may not be read."""
    return StoredOffset(None, -1, 0, 0, 0, why, is_unreadable=True)


def java_long(data: bytes) -> int | None:
    """The number as ``Long.parseLong`` reads it: a sign, and decimal digits of any script; None where it refuses."""
    text = data.decode("utf-8", "replace")
    digits = text[1:] if text[:1] in ("+", "-") else text
    # It goes by UTF-16 units, so that digits beyond the first plane are none.
    if not digits or not all(one.isdecimal() and ord(one) < 0x10000 for one in digits) or len(digits) > 4000:
        return None
    value = int(digits) if text[0] != "-" else -int(digits)
    return value if -(2**63) <= value < 2**63 else None
