"""Groups that are debris: nobody works for them, and nobody has for long. Found and deleted by the thousand."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from zkgroup.errors import NotFoundError, UnreachableError, ZkgroupError
from zkgroup.groups.backup import Backup, SavedNode, read_cluster
from zkgroup.groups.manage import DebrisRow, find_debris, matching
from zkgroup.groups.removing import BATCH, acls_of, remove_groups
from zkgroup.groups.reports import both
from zkgroup.groups.snapshot import read_groups
from zkgroup.groups.tree import GroupTree, read_trees
from zkgroup.protocol import znodes
from zkgroup.protocol.names import OFFSETS_TOPIC
from zkgroup.protocol.ops import Children, Exists, Stat
from zkgroup.servers.answers import UNLISTED
from zkgroup.servers.registry import Registry

if TYPE_CHECKING:
    from zkgroup.servers.kafka import KafkaSettings


def look_for_debris(
    registry: Registry,
    patterns: Sequence[str],
    now: int,
    older_than: int,
    *,
    brokers: Callable[[], KafkaSettings] | None = None,
    timeout: float = 5.0,
) -> tuple[list[DebrisRow], Mapping[str, GroupTree]]:
    """All groups that a pattern means, judged, and their nodes. Times are milliseconds. ``brokers``: how to find out
    how to reach them, for groups with members in Kafka are none; without it Kafka is not asked. ``timeout`` (seconds)
    is for their answers.

    Raises ``NotFoundError`` where no group matches, ``ZkgroupError`` where brokers do not tell which groups there are.
    """
    (listed,) = registry.read([Children(znodes.consumers())])
    names = matching(listed if isinstance(listed, tuple) else (), patterns)
    if not names:
        raise NotFoundError(f"no group matches {' or '.join(patterns)}", "list-groups shows the groups there are")
    trees: dict[str, GroupTree] = {}
    for start in range(0, len(names), BATCH):
        trees |= read_trees(registry, {name: [znodes.group(name)] for name in names[start : start + BATCH]})
    others = _stats(registry, listed if isinstance(listed, tuple) else ())
    in_kafka = _members_in_kafka(registry, names, brokers, timeout) if brokers is not None else {}
    rows = find_debris(trees.values(), now, older_than, others, in_kafka)
    # As list-groups has it: nodes that are there may be no use.
    broken = {one.group for one in read_groups(registry, [row.group for row in rows]) if one.state == "broken"}
    return [replace(row, state="broken") if row.group in broken else row for row in rows], trees


def _members_in_kafka(
    registry: Registry, names: Iterable[str], brokers: Callable[[], KafkaSettings], timeout: float
) -> dict[str, Sequence[str] | ZkgroupError]:
    """Those of the groups that are in Kafka, each with its members there, or with why they are not known."""
    # Looking makes brokers create that topic; without it nothing is in Kafka.
    (there,) = registry.read([Exists(znodes.topic(OFFSETS_TOPIC))])
    if not isinstance(there, Stat):
        return {}
    from zkgroup.servers.coordinator import Coordinators  # confluent-kafka: 60 ms that not every change needs

    try:
        coordinators = Coordinators(brokers(), timeout)
        known, errors = coordinators.names()
        if missing := [error for error in errors if error != UNLISTED]:
            raise UnreachableError("; ".join(missing))
        described = coordinators.members(sorted(set(names).intersection(known)))
    except ZkgroupError as error:
        error.message = f"which groups have members in Kafka is not known: {error.message}"
        error.remedy = both(error.remedy, "--store zookeeper does not ask for them")
        raise
    return {
        group: ZkgroupError(found) if isinstance(found, str) else [member.member for member in found]
        for group, found in described.items()
    }


def _stats(registry: Registry, groups: Iterable[str]) -> list[Stat]:
    """Nodes that are written once, or seldom, all over the cluster: what tells when a transaction was."""
    parents = [znodes.broker_ids(), znodes.topics()]
    lists = registry.read([Children(path) for path in parents])
    paths = [f"{znodes.consumers()}/{group}" for group in groups]
    paths += [
        f"{parent}/{name}"
        for parent, names in zip(parents, lists, strict=True)
        for name in (names if isinstance(names, tuple) else ())
    ]
    found = registry.read([Exists(path) for path in [*paths, znodes.controller()]])
    return [stat for stat in found if isinstance(stat, Stat)]


def backup_of_debris(registry: Registry, patterns: Sequence[str], trees: Sequence[GroupTree], now: int) -> Backup:
    """All nodes of these groups, as they are."""
    nodes = [node for tree in trees for node in tree.nodes]
    acls = acls_of(registry, nodes)
    saved = tuple(SavedNode(node.path, node.data, acls[node.path]) for node in nodes)
    return Backup("delete-group", " ".join(patterns), now, read_cluster(registry), (), saved)


def delete_debris(registry: Registry, trees: Sequence[GroupTree]) -> dict[str, ZkgroupError | None]:
    """Delete these groups, each only if it is still as it was seen; for each None, or why it was not deleted."""
    return remove_groups(registry, trees)
