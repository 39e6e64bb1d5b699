"""Groups of plain nodes for ``zkgroup assign``, and its answers."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, TypeAlias

from cli import run

from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.protocol import znodes
from zkgroup.protocol.names import TopicPartition
from zkgroup.protocol.operations import Children, Create, Ensure, Failure
from zkgroup.protocol.znodes import Registration, encode_registration
from zkgroup.sandbox.local_cluster import Sandbox

STAMP = 1411294187842
COLUMNS = ["topic", "partition", "owner", "member", "current", "change"]
Build: TypeAlias = Callable[[Mapping[str, bytes | Mapping[str, int]], Mapping[TopicPartition, str]], str]


@contextmanager
def builder(registry: Registry, unique: Callable[[str], str]) -> Iterator[Build]:
    """``build(members, owners)`` writes a group's nodes, ``G`` in a name being the group's, and returns its name."""
    with ExitStack() as stack:

        def build(members: Mapping[str, bytes | Mapping[str, int]], claims: Mapping[TopicPartition, str]) -> str:
            group = unique("planned")
            session = stack.enter_context(Registry(registry.settings, 30.0))
            for path in (znodes.ids(group), *(znodes.owner_topic(group, pair.topic) for pair in claims)):
                assert session.write(Ensure(path)) is None
            nodes = {znodes.member_id(group, name.replace("G", group)): data_of(data) for name, data in members.items()}
            nodes |= {znodes.owner(group, pair): owner.replace("G", group).encode() for pair, owner in claims.items()}
            for path, data in nodes.items():
                assert not isinstance(session.write(Create(path, data, ephemeral=True)), Failure)
            return group

        yield build


def data_of(registration: bytes | Mapping[str, int]) -> bytes:
    """An id node's data: static, or as it is."""
    if isinstance(registration, bytes):
        return registration
    return encode_registration(Registration("static", registration, STAMP))


def assigned(cluster: Sandbox, *args: str) -> dict[str, Any]:
    """The plan as JSON."""
    result = run("assign", *args, "-z", cluster.connect, "--output", "json")
    assert result.returncode == 0, result.stderr
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def id_nodes(registry: Registry, group: str) -> set[str]:
    """Who is registered."""
    (ids,) = registry.read([Children(znodes.ids(group))])
    return set(ids) if isinstance(ids, tuple) else set()
