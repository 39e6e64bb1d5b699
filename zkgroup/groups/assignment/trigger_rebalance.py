"""Making a group rebalance without disturbing its assignment.

An id node that subscribes to nothing changes the list of members, and nobody's share: every member (zkgroup, and the
reference of 0.8.2.2, 0.10.2.2 and 1.1.1, both strategies) rebalances when it comes and when it goes, to the same
owners. The node is ephemeral, so that it goes with us whatever happens.
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
from dataclasses import dataclass
from typing import Final, NamedTuple

from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.errors import RefusedError, UnreachableError, ZkgroupError
from zkgroup.groups.assignment.assignment_diff import owned_now
from zkgroup.groups.changes.acl_conflicts import describe_acl_conflicts
from zkgroup.groups.group_model import GroupSnapshot
from zkgroup.groups.snapshot.group_reader import read_group
from zkgroup.groups.snapshot.ownership import not_judged, stops_rebalances
from zkgroup.protocol import znodes
from zkgroup.protocol.assignors import Assignment
from zkgroup.protocol.names import TopicPartition, identify_owner, spans
from zkgroup.protocol.operations import Children, Code, Create, Delete, Failure, Get, Node, Op
from zkgroup.protocol.znodes import Registration, encode_registration
from zkgroup.text import listed, short

log = logging.getLogger(__name__)

#: How long each of the two waits may take, in seconds.
TIMEOUT: Final = 30.0
#: Owners that have not changed for so many seconds are at rest, and worth a judgement.
REST: Final = 0.5
#: The part of a wait after which nothing more is expected if nothing changes. The reference gives up after four
#: attempts two seconds apart; of 30 s this is half as much again.
QUIET: Final = 0.4
_STEP: Final = 0.1
_MARK: Final = "zkgroup-assign"


class Look(NamedTuple):
    """Who is registered, and path → (owner, transaction that made it) of every owner node."""

    members: frozenset[str]
    claims: Mapping[str, tuple[str, int]]


class _Rest(NamedTuple):
    """A group after a wait: what is wrong with its owners, who has not claimed anew, whether any owner node changed."""

    snapshot: GroupSnapshot
    defects: Sequence[str]
    stale: frozenset[str]
    answered: bool


@dataclass(frozen=True, slots=True)
class Rebalanced:
    """What came of it. ``defects``: why the owners are not what they should be. ``still``: members that own something
    and claimed it anew neither when the node came nor when it went. ``seconds``: until the group was at rest again.
    ``answered``: whether any owner node was made or deleted meanwhile; without that nobody has rebalanced."""

    snapshot: GroupSnapshot
    defects: tuple[str, ...]
    still: tuple[str, ...]
    seconds: float
    answered: bool = True


def objection(snapshot: GroupSnapshot, plan: Assignment | None, refusal: str | None) -> ZkgroupError | None:
    """Why this group must not be made to rebalance; None where nothing speaks against it. Pure. ``RefusedError``, but
    where it is not known what would come of it, as something may not be read.

    ``plan`` is what its members would come to, None (and ``refusal`` says why) where they would refuse. Members of the
    reference release first and fail then: what they own would be lost to nobody.
    """
    group = snapshot.group
    if not snapshot.members:
        return RefusedError(f"group {group} has no members", "nothing is there that could rebalance")
    if not snapshot.broker_ids and znodes.broker_ids() not in snapshot.hidden:
        return RefusedError(
            f"group {group} would not rebalance: no broker is registered, and members keep what they own until one is",
            "start the brokers; if they run, compare the chroot in their zookeeper.connect with the one given here",
        )
    if unknown := not_judged(snapshot):
        return ZkgroupError(
            f"whether group {group} would get through a rebalance is not known: {'; '.join(unknown[:3])}",
            "connect with credentials that its access list admits",
        )
    if not any(partition.member is not None for partition in snapshot.partitions):
        return None
    stopping = [member for member in snapshot.members if member.error is not None]
    if stopping:
        stops = "; ".join(f"{member.member}: {member.error}" for member in stopping[:3])
        return RefusedError(
            f"group {group} would lose its owners in a rebalance: no member gets past the registration of {stops}",
            "stop the client that wrote it, or delete the node, first: the members rebalance by themselves then",
        )
    for broker in snapshot.faulty_brokers:
        if stops_rebalances(snapshot, broker):
            return RefusedError(
                f"group {group} would lose its owners in a rebalance: no member gets past {broker.path}, which"
                f" {broker.fault.why}",
                "restart that broker, so that it registers anew, or delete the node if it is no broker's",
            )
    if plan is None:
        return RefusedError(
            f"group {group} would lose its owners in a rebalance: {refusal}",
            "plan with the strategy and the release that its members run",
        )
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


def departures(before: GroupSnapshot, after: GroupSnapshot) -> list[str]:
    """The members that left between two looks, each with what became of what it owned, in words. Pure."""
    left = {member.member for member in before.members} - {member.member for member in after.members}
    owners = {partition.key: partition.member or partition.owner for partition in after.partitions}
    found = []
    for name in sorted(left):
        heirs: dict[str | None, list[TopicPartition]] = {}
        for partition in before.partitions:
            if partition.member == name:
                heirs.setdefault(owners.get(partition.key), []).append(partition.key)
        became = [
            f"{spans(keys)} went to {short(heir)}" if heir is not None else f"nobody owns {spans(keys)}"
            for heir, keys in heirs.items()
        ]
        found.append(f"member {name} left meanwhile: {listed(became, '; ') or 'it owned nothing'}")
    return found


def rebalance(
    registry: Registry, group: str, judge: Callable[[GroupSnapshot], Sequence[str]], *, timeout: float = TIMEOUT
) -> Rebalanced:
    """Make a group rebalance, once with a node and once without it again, and wait each time until it is at rest.

    ``judge`` says what is wrong with the owners that a snapshot has. A wait is over when that is nothing and every
    owner has claimed anew, when nothing has changed for ``QUIET`` of ``timeout`` (seconds), or after ``timeout``.
    Raises ``RefusedError`` where the group is gone, ``UnreachableError`` where ZooKeeper is.
    """
    started = time.monotonic()
    node = _node_of_ours(group)
    try:
        before = look_at(registry, group)
        _create(registry, group, node)
        log.info("made znode %s: waiting for the members to claim anew", node)
        answered = _wait(registry, group, before, judge, timeout).answered
        between = look_at(registry, group)
        _delete(registry, node)
        log.info("deleted it after %.1f s: waiting once more", time.monotonic() - started)
    except BaseException:
        if not registry.lost:  # it goes with the session as well, but this is sooner
            with contextlib.suppress(ZkgroupError):
                registry.write(Delete(node))
        raise
    rest = _wait(registry, group, between, judge, timeout)
    stale = rest.stale & _stale(before, look_at(registry, group)) if rest.stale else rest.stale
    seconds = time.monotonic() - started
    answered = answered or rest.answered or between.claims != before.claims
    return Rebalanced(rest.snapshot, tuple(rest.defects), tuple(sorted(stale)), seconds, answered)


def look_at(registry: Registry, group: str) -> Look:
    """Members and owner nodes, in three rounds."""
    members, topics = registry.read([Children(znodes.ids(group)), Children(znodes.owners(group))])
    parents = [znodes.owner_topic(group, topic) for topic in topics] if isinstance(topics, tuple) else []
    listed = registry.read([Children(parent) for parent in parents])
    ops: list[Op] = [
        Get(f"{parent}/{name}")
        for parent, names in zip(parents, listed, strict=True)
        if isinstance(names, tuple)
        for name in names
    ]
    claims = {
        op.path: (node.data.decode("utf-8", "backslashreplace"), node.stat.czxid)
        for op, node in zip(ops, registry.read(ops), strict=True)
        if isinstance(node, Node)
    }
    return Look(frozenset(members) if isinstance(members, tuple) else frozenset(), claims)


def _wait(
    registry: Registry, group: str, before: Look, judge: Callable[[GroupSnapshot], Sequence[str]], timeout: float
) -> _Rest:
    """Wait for rest, beside what was ``before``."""
    deadline = time.monotonic() + timeout
    last, changed, judged = before, time.monotonic(), False
    answered = False
    while True:
        look, now = look_at(registry, group), time.monotonic()
        answered = answered or look.claims != before.claims
        if look != last:
            last, changed, judged = look, now, False
        quiet = now - changed
        over = now >= deadline or quiet >= timeout * QUIET
        stale = _stale(before, look)
        if over or (not judged and quiet >= REST and look != before and not stale):
            snapshot = read_group(registry, group)
            defects, judged = judge(snapshot), True
            if over or not defects:
                return _Rest(snapshot, defects, stale, answered)
        time.sleep(_STEP)


def _stale(before: Look, now: Look) -> frozenset[str]:
    """The members, still registered, that have owner nodes of before."""
    kept = {owner for path, (owner, made) in before.claims.items() if now.claims.get(path) == (owner, made)}
    found = (identify_owner(owner, now.members) for owner in kept)
    return frozenset(identity.consumer_id for identity in found if identity is not None)


def _node_of_ours(group: str) -> str:
    """Named so that whoever finds it sees what it is, and whose."""
    host = re.sub(r"[^A-Za-z0-9._-]", "_", socket.gethostname())
    return znodes.member_id(group, f"{group}_{_MARK}-{host}-{os.getpid()}-{secrets.token_hex(4)}")


def _create(registry: Registry, group: str, node: str) -> None:
    describe_acl_conflicts(registry, group)
    data = encode_registration(Registration("static", {}, int(time.time() * 1000)))
    match registry.write(Create(node, data, ephemeral=True)):
        case Failure(Code.NO_NODE):
            raise RefusedError(f"group {group} has no members any more", "nothing is there that could rebalance")
        case Failure(Code.CONNECTION_LOSS) as failure:
            raise UnreachableError(f"znode {node}: {failure.code.value}", "try again")
        case Failure(code):
            raise ZkgroupError(f"znode {node} cannot be created: {code.value}", "who may write there?")


def _delete(registry: Registry, node: str) -> None:
    match registry.write(Delete(node)):
        case Failure(Code.NO_NODE):
            pass
        case Failure(code):
            raise UnreachableError(f"znode {node} cannot be deleted: {code.value}", "it goes with the session")
