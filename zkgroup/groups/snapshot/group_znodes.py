"""What a group's znodes mean: its registered members and committed offsets, as its clients read them.

The Scala consumer parses the whole text of an offset (``Long.parseLong``, through Scala's ``toLong``; seen with 0.8.2.2
and 1.1.1): a blank or a line break before or behind the number fails every attempt of its rebalance, while decimal
digits of any script are numbers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.errors import MalformedZnodeError, ZkgroupError
from zkgroup.groups.group_model import GroupMember, StoredOffset
from zkgroup.protocol import znodes
from zkgroup.protocol.assignors import TopicSelections
from zkgroup.protocol.names import TopicPartition
from zkgroup.protocol.operations import Code, Failure, Get, Node

_UUID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def decode_member(group: str, name: str, node: Node, selections: TopicSelections) -> GroupMember:
    """A member from its id node. ``error`` says why the registration cannot be read."""
    registration, streams, registered_at, error = None, {}, node.stat.ctime, None
    try:
        registration = znodes.decode_registration("", node.data)
        if registration.timestamp is not None:
            registered_at = registration.timestamp
        streams = selections.streams(registration)
    except MalformedZnodeError as malformed:
        error = malformed.why
    except ZkgroupError as unreadable:  # the expression
        error = unreadable.message
    defects = znodes.registration_defects(node.data) if registration is not None else ()
    return GroupMember(
        name,
        host_of(group, name),
        node.stat.owner,
        registered_at,
        registration,
        streams,
        error,
        defects,
        node.data,
        node.stat.ctime,
        node.stat.czxid,
    )


def read_foreign(group: str, members: Sequence[GroupMember], selections: TopicSelections) -> tuple[GroupMember, ...]:
    """The members as their own clients read them, where none is of the Scala consumer: registrations that would stop it
    do no harm there. The topics that a node does not name come from the owner nodes later."""
    if any(_is_scala(group, member) for member in members):
        return tuple(members)
    return tuple(_as_its_client_reads(member, selections) for member in members)


def _is_scala(group: str, member: GroupMember) -> bool:
    """Whether a member may be one of the Scala consumer. kafka-node calls its members ``GROUP_UUID``."""
    registration = member.registration
    if not member.member.startswith(f"{group}_") or (registration is None and not member.is_unreadable):
        return False
    if (
        registration is not None
        and registration.pattern == "white_list"
        and _UUID.fullmatch(member.member, len(group) + 1)
    ):
        return False
    return not {znodes.SEVERAL_EXPRESSIONS, znodes.OTHER_NUMBERS}.intersection(member.defects)


def _as_its_client_reads(member: GroupMember, selections: TopicSelections) -> GroupMember:
    if not member.session_id:
        return member  # no session owns it
    if not is_stopping_everyone(member):
        if znodes.OTHER_NUMBERS in member.defects:
            member = replace(member, defects=(), foreign=znodes.OTHER_NUMBERS.text)
        if znodes.SEVERAL_EXPRESSIONS not in member.defects:
            return member
    registration = znodes.decode_foreign_registration(member.data, selections.topics)
    try:
        streams = {} if registration is None else selections.streams(registration)
    except ZkgroupError:  # the expression
        registration, streams = None, {}
    why = member.error or znodes.SEVERAL_EXPRESSIONS.text
    return replace(member, registration=registration, streams=streams, error=None, defects=(), foreign=why)


def host_of(group: str, consumer_id: str) -> str | None:
    """The host that a consumer id names, None where it names none.

    The Scala consumer: ``GROUP_HOST-MILLIS-HEX``. pykafka and Go's kazoo: ``HOST:UUID``. Ruby's poseidon_cluster:
    ``GROUP-HOST-PID-SECONDS-N``.
    """
    for pattern in (
        rf"{re.escape(group)}_(.+)-[0-9]{{10,}}-[0-9a-f]{{1,8}}",
        r"([^:]+):[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}",
        rf"{re.escape(group)}-(.+)-[0-9]+-[0-9]+-[0-9]+",
    ):
        match = re.fullmatch(pattern, consumer_id)
        if match is not None:
            return match[1]
    return None


def is_stopping_everyone(member: GroupMember) -> bool:
    """Whether this registration makes every rebalance of the Scala consumer fail."""
    return member.error is not None and not member.is_unreadable and member.registration is None


def read_stored_offsets(
    registry: Registry, group: str, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, StoredOffset]:
    """The offset nodes of these partitions, without those that do not exist. Raises ``UnreachableError``."""
    paths = znodes.offset_paths(group, partitions)
    found = {}
    for partition, result in zip(paths, registry.read(map(Get, paths.values())), strict=True):
        if isinstance(result, Node):
            found[partition] = stored_offset(result)
        elif isinstance(result, Failure) and result.code is not Code.NO_NODE:
            found[partition] = unreadable_offset(f"the znode cannot be read: {result.code.value}")
    return found


def stored_offset(node: Node) -> StoredOffset:
    """The offset of an offset node, or why it has none."""
    offset, error, defect = None, None, None
    number = java_long(node.data)
    try:
        offset = znodes.decode_offset("", node.data)
        if number is None:
            shown = znodes.excerpt(node.data.decode("utf-8", "replace"))
            defect = f"{shown} has more than its number, which no Scala member can read"
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
