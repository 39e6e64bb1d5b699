"""Groups of which a part may not be read: an access list keeps everybody out but the application."""

from __future__ import annotations

import base64
import hashlib
from typing import Final

from group_nodes import static

from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.protocol import znodes
from zkgroup.protocol.names import TopicPartition
from zkgroup.protocol.operations import OPEN, Acl, Create, Ensure, Failure

#: What may be closed of a group, and what it has.
PARTS: Final = (
    *("group", "ids", "member", "owners", "owners of a topic", "owner"),
    *("offsets", "offsets of a topic", "offset"),
)
AUTH: Final = ("digest", "app:secret")
_HASH = base64.b64encode(hashlib.sha1(AUTH[1].encode()).digest()).decode()
CLOSED: Final = (Acl("digest", f"app:{_HASH}", 31),)


def make_hiding(session: Registry, group: str, topic: str, part: str | None) -> str:
    """A healthy group: two members that read two partitions of ``topic``, with offsets; ``part`` of it is closed.

    Returns the path of that. ``session`` is the application's, and has what is ephemeral.
    """
    first = TopicPartition(topic, 0)
    paths = {
        "group": znodes.group(group),
        "ids": znodes.ids(group),
        "member": znodes.member_id(group, f"{group}_b"),
        "owners": znodes.owners(group),
        "owners of a topic": znodes.owner_topic(group, topic),
        "owner": znodes.owner(group, first),
        "offsets": znodes.offsets(group),
        "offsets of a topic": znodes.offset_topic(group, topic),
        "offset": znodes.offset(group, first),
    }
    nodes: list[tuple[str, bytes, bool]] = [(znodes.group(group), b"", False)]
    nodes += [(path(group), b"", False) for path in (znodes.ids, znodes.owners, znodes.offsets)]
    nodes += [(znodes.member_id(group, f"{group}_{name}"), static({topic: 1}), True) for name in "ab"]
    nodes += [(znodes.owner_topic(group, topic), b"", False), (znodes.offset_topic(group, topic), b"", False)]
    for number, name in enumerate("ab"):
        partition = TopicPartition(topic, number)
        nodes += [(znodes.owner(group, partition), f"{group}_{name}-0".encode(), True)]
        nodes += [(znodes.offset(group, partition), b"5", False)]
    closed = paths.get(part or "", "")
    assert not isinstance(session.write(Ensure("/consumers")), Failure)
    for path, data, ephemeral in nodes:
        made = session.write(Create(path, data, ephemeral, CLOSED if path == closed else OPEN))
        assert not isinstance(made, Failure), (path, made)
    return closed
