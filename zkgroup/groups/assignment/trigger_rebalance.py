"""Triggers a rebalance that leaves the assignment as it is.

An id node without a subscription changes the list of members and no share: every member (zkgroup, and the Scala
consumer of 0.8.2.2, 0.10.2.2 and 1.1.1, both strategies) rebalances when it is created and when it is deleted, to the
same owners. The node is ephemeral, so that it never outlives this process.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import secrets
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from zkgroup.clients.zookeeper.registry import Registry, names_in
from zkgroup.errors import Notice, RefusedError, UnreachableError, ZkgroupError
from zkgroup.groups.assignment.strategy_inference import owned_now
from zkgroup.groups.group_model import GroupSnapshot
from zkgroup.groups.snapshot.group_reader import read_group
from zkgroup.groups.snapshot.snapshot_defects import rebalance_obstacles
from zkgroup.protocol import znodes
from zkgroup.protocol.assignors import Assignment
from zkgroup.protocol.names import identify_owner
from zkgroup.protocol.operations import Children, Code, Create, Delete, Failure, Get, Node, Op
from zkgroup.protocol.znodes import Registration, encode_registration
from zkgroup.text import short

log = logging.getLogger(__name__)

#: Seconds that each of the two waits may take.
TIMEOUT: Final = 30.0
#: Owners that have not changed for so many seconds are settled.
REST: Final = 0.5
#: A wait without any change ends after this part of it. The Scala consumer gives up after four attempts two seconds
#: apart; of 30 s this is half as much again.
QUIET: Final = 0.4
_STEP: Final = 0.1
_MARK: Final = "zkgroup-assign"


class Ownership(NamedTuple):
    """The registered members, and path → (owner, transaction that created it) of every owner node."""

    members: frozenset[str]
    claims: Mapping[str, tuple[str, int]]


@dataclass(frozen=True, slots=True)
class Rebalanced:
    """The outcome. ``defects``: the differences between the owners and the plan. ``still``: members that own partitions
    and made new claims neither when the node was created nor when it was deleted. ``seconds``: until the group was
    settled again. ``answered``: whether owner nodes were created or deleted; without that no member rebalanced."""

    snapshot: GroupSnapshot
    defects: tuple[str, ...]
    still: tuple[str, ...]
    seconds: float
    answered: bool = True


def find_objection(snapshot: GroupSnapshot, plan: Assignment | None, refusal: Notice | None) -> ZkgroupError | None:
    """Why a rebalance of this group must not be triggered, None where it may. Pure. The error is a ``RefusedError``,
    unless the outcome is unknown because nodes may not be read.

    ``plan``: the assignment that its members would compute, None (and ``refusal`` says why) where they would refuse.
    The Scala consumer releases its partitions first and fails then: they would have no owner.
    """
    group = snapshot.group
    if not snapshot.members:
        return RefusedError(f"group {group} has no members", "nothing is there that could rebalance")
    is_owned = any(partition.member is not None for partition in snapshot.partitions)
    for obstacle in rebalance_obstacles(snapshot):
        if obstacle.is_unknown:
            what = f"whether group {group} would get through a rebalance is not known: {obstacle.why}"
            return ZkgroupError(what, obstacle.remedy)
        if is_owned or not obstacle.is_after_release:
            return RefusedError(f"group {group} would not get through a rebalance: {obstacle.why}", obstacle.remedy)
    if not is_owned:
        return None
    if refusal is not None:
        refused = RefusedError(
            f"group {group} would lose its owners in a rebalance: {refusal.message}",
            "plan with the strategy and the release that its members run",
        )
        refused.add_remedy(refusal.remedy)
        return refused
    assert plan is not None, "nothing refuses it"
    holders = {partition.member for partition in snapshot.partitions if partition.member is not None}
    for pair, now in owned_now(snapshot).items():
        thread = plan.owners.get(pair)
        if now.member is None and thread is not None and thread.consumer_id in holders:
            return RefusedError(
                f"group {group}: {thread.consumer_id} would lose its share in a rebalance: {pair} of it is owned by"
                f" {short(now.owner or '')}, which is not registered",
                "end the client that owns it, or delete the owner node, first",
            )
    return None


def trigger_rebalance(
    registry: Registry, group: str, check: Callable[[GroupSnapshot], Sequence[str]], *, timeout: float = TIMEOUT
) -> Rebalanced:
    """Trigger two rebalances of a group, by a node and by its deletion, and wait each time until the group is settled.

    ``check`` returns the defects of the owners in a snapshot. A wait ends when there are none and every owner has made
    a new claim, when nothing has changed for ``QUIET`` of ``timeout`` (seconds), or after ``timeout``. Raises
    ``RefusedError`` where the group has no members any more, ``UnreachableError`` where ZooKeeper does not answer.
    """
    started = time.monotonic()
    host = re.sub(r"[^A-Za-z0-9._-]", "_", socket.gethostname())
    node = znodes.member_id(group, f"{group}_{_MARK}-{host}-{os.getpid()}-{secrets.token_hex(4)}")
    try:
        before = read_ownership(registry, group)
        _create(registry, group, node)
        log.info("made znode %s: waiting for the members to claim anew", node)
        answered = _wait_until_settled(registry, group, before, check, started, timeout).answered
        between = read_ownership(registry, group)
        match registry.write(Delete(node)):
            case Failure(code) if code is not Code.NO_NODE:
                raise UnreachableError(f"znode {node} cannot be deleted: {code.value}", "it goes with the session")
        log.info("deleted it after %.1f s: waiting once more", time.monotonic() - started)
    except BaseException:
        if not registry.is_lost:  # it goes with the session as well, but this is sooner
            with contextlib.suppress(ZkgroupError):
                registry.write(Delete(node))
        raise
    rest = _wait_until_settled(registry, group, between, check, started, timeout)
    still = _stale(before, read_ownership(registry, group)).intersection(rest.still) if rest.still else ()
    answered = answered or rest.answered or between.claims != before.claims
    return replace(rest, still=tuple(sorted(still)), answered=answered)


def read_ownership(registry: Registry, group: str) -> Ownership:
    """Members and owner nodes, in three rounds."""
    members, topics = registry.read([Children(znodes.ids(group)), Children(znodes.owners(group))])
    parents = [znodes.owner_topic(group, topic) for topic in names_in(topics)]
    listed = registry.read([Children(parent) for parent in parents])
    ops: list[Op] = [
        Get(f"{parent}/{name}") for parent, names in zip(parents, listed, strict=True) for name in names_in(names)
    ]
    claims = {
        op.path: (node.data.decode("utf-8", "backslashreplace"), node.stat.czxid)
        for op, node in zip(ops, registry.read(ops), strict=True)
        if isinstance(node, Node)
    }
    return Ownership(frozenset(names_in(members)), claims)


def _wait_until_settled(
    registry: Registry,
    group: str,
    before: Ownership,
    check: Callable[[GroupSnapshot], Sequence[str]],
    started: float,
    timeout: float,
) -> Rebalanced:
    deadline = time.monotonic() + timeout
    last, changed, judged = before, time.monotonic(), False
    answered = False
    while True:
        found, now = read_ownership(registry, group), time.monotonic()
        answered = answered or found.claims != before.claims
        if found != last:
            last, changed, judged = found, now, False
        quiet = now - changed
        over = now >= deadline or quiet >= timeout * QUIET
        stale = _stale(before, found)
        if over or (not judged and quiet >= REST and found != before and not stale):
            snapshot = read_group(registry, group)
            defects, judged = check(snapshot), True
            if over or not defects:
                return Rebalanced(snapshot, tuple(defects), tuple(sorted(stale)), now - started, answered)
        time.sleep(_STEP)


def _stale(before: Ownership, now: Ownership) -> frozenset[str]:
    """The registered members that still have owner nodes of ``before``."""
    kept = {owner for path, (owner, made) in before.claims.items() if now.claims.get(path) == (owner, made)}
    found = (identify_owner(owner, now.members) for owner in kept)
    return frozenset(identity.consumer_id for identity in found if identity is not None)


def _create(registry: Registry, group: str, node: str) -> None:
    data = encode_registration(Registration("static", {}, int(time.time() * 1000)))
    match registry.write(Create(node, data, ephemeral=True)):
        case Failure(Code.NO_NODE):
            raise RefusedError(f"group {group} has no members any more", "nothing is there that could rebalance")
        case Failure(Code.CONNECTION_LOSS) as failure:
            raise UnreachableError(f"znode {node}: {failure.code.value}", "try again")
        case Failure(code):
            raise ZkgroupError(f"znode {node} cannot be created: {code.value}", "who may write there?")
