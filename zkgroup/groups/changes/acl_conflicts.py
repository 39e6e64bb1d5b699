"""Members of a group that could not change the nodes of a member with an access list of its own.

Members create each other's parents and write the same offset nodes. The Scala consumer gives its nodes (but ``ids``) to
its own credentials, where it has some (0.9 to 1.1.1), else to everyone: the access lists of a member's owner nodes show
its identity.
"""

from __future__ import annotations

from typing import Final

from zkgroup.clients.zookeeper import ZooKeeperSettings
from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.errors import RefusedError
from zkgroup.groups.changes.access_lists import READ, WRITE, admits_anyone, identities, unknown_schemes
from zkgroup.protocol import znodes
from zkgroup.protocol.acls import EVERYTHING
from zkgroup.protocol.names import TopicPartition, parse_partition
from zkgroup.protocol.operations import OPEN, Acl, Acls, Children, Get, GetAcl, Node
from zkgroup.text import listed

#: Owner nodes that are read: enough to have some of each member.
_MAX_OWNERS: Final = 500


def find_acl_conflicts(registry: Registry, group: str) -> list[str]:
    """The owners (as their nodes hold them) of partitions of ``group`` whose identities the access list of
    ``registry``'s settings does not let write. Empty where that list is open, or they are not known."""
    acl = registry.settings.acl
    if acl is None or admits_anyone(acl, WRITE):
        return []
    listing = registry.read([Children(znodes.owners(group))])[0]
    topics = sorted(listing) if isinstance(listing, tuple) else []
    children = registry.read([Children(znodes.owner_topic(group, topic)) for topic in topics])
    partitions = [
        TopicPartition(topic, number)
        for topic, numbers in zip(topics, children, strict=True)
        if isinstance(numbers, tuple)
        for number in map(parse_partition, numbers)
        if number is not None
    ][:_MAX_OWNERS]
    paths = [znodes.owner(group, partition) for partition in partitions]
    found = registry.read([op for path in paths for op in (Get(path), GetAcl(path))])
    return sorted(
        {
            node.data.decode("utf-8", "replace")[:200]
            for node, theirs in zip(found[::2], found[1::2], strict=True)
            if isinstance(node, Node) and isinstance(theirs, Acls) and _is_other(theirs.acl, registry.settings)
        }
    )


def describe_acl_conflicts(registry: Registry, group: str) -> str | None:
    """The conflicts as text, before a member joins the group, or a registration is made for it; None where there is
    none.

    Raises ``RefusedError`` where they could not even read the registration: each of them would fail to rebalance, and
    own nothing until it goes.
    """
    found = find_acl_conflicts(registry, group)
    if not found:
        return None
    conflict = f"owners that come to ZooKeeper with other credentials, or none: {listed(found)}"
    if not admits_anyone(registry.settings.acl or (), READ):
        raise RefusedError(
            f"group {group} has {conflict}: a registration that they may not read stops the whole group",
            "give --zookeeper-acl creator-read-world or open, or all members the same credentials",
        )
    return (
        f"group {group} has {conflict}: they cannot commit to offset nodes that this member makes: give all members "
        "the same, or --zookeeper-acl open"
    )


def _is_other(theirs: tuple[Acl, ...], settings: ZooKeeperSettings) -> bool:
    if theirs == OPEN:
        return True
    full = {(entry.scheme, entry.id) for entry in theirs if entry.permissions == EVERYTHING}
    ours = {(entry.scheme, entry.id) for entry in settings.acl or () if entry.permissions & WRITE}
    if ("auth", "") in ours:
        ours |= identities(settings)
        if unknown_schemes(settings) & {scheme for scheme, _ in full}:
            return False
    return not full & {*ours, *((scheme, _shown(name)) for scheme, name in ours if scheme == "digest")}


def _shown(name: str) -> str:
    """A digest as servers show it to all but administrators of the node."""
    return f"{name.partition(':')[0]}:x"
