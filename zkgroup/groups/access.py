"""Which access lists the nodes of a copied group get: those of the group that it is made of.

A copy of a protected group must not be open. ``--zookeeper-acl``, or a profile, says otherwise; nodes that are there
already keep theirs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from zkgroup.errors import RefusedError
from zkgroup.groups.guard import readable_acl
from zkgroup.groups.permissions import CREATE, DELETE, lacks
from zkgroup.groups.strangers import identities
from zkgroup.groups.tree import GroupTree
from zkgroup.protocol import znodes
from zkgroup.protocol.acls import LETTERS
from zkgroup.protocol.names import TopicPartition
from zkgroup.protocol.ops import OPEN, Acl, Code, Failure, GetAcl
from zkgroup.servers.registry import Registry
from zkgroup.servers.zookeeper import ZooKeeperSettings
from zkgroup.words import listed

Lists = Mapping[str, tuple[Acl, ...]]


@dataclass(frozen=True, slots=True)
class CopiedLists:
    """``lists``: of nodes that are to be made, by their paths; what is not among them gets the list that was asked for,
    or that of the node above. ``told``: what a plan should say of them."""

    lists: Lists = field(default_factory=dict)
    told: tuple[str, ...] = ()


def copied_lists(
    registry: Registry,
    source: GroupTree,
    target: GroupTree | None,
    to: str,
    partitions: Iterable[TopicPartition],
    *,
    renaming: bool,
) -> CopiedLists:
    """The lists for offsets of ``partitions`` that are copied from ``source`` to the group ``to``, whose nodes are
    ``target`` if it is there. ``renaming``: ``ids`` and ``owners`` come as well, where not everybody may use them.

    Raises ``RefusedError`` where a list is not told, or would keep these credentials from making what is below.
    """
    there = frozenset(node.path for node in target.nodes) if target is not None else frozenset[str]()
    pairs = {new: old for new, old in _pairs(source.group, to, partitions, renaming=renaming) if new not in there}
    if set(pairs) <= {znodes.ids(to), znodes.owners(to)}:
        return CopiedLists()
    answers = dict(zip(pairs, registry.read([GetAcl(old) for old in pairs.values()]), strict=True))
    gone = {new for new, answer in answers.items() if isinstance(answer, Failure) and answer.code is Code.NO_NODE}
    wanted = registry.settings.acl
    try:
        found = {new: readable_acl(old, answers[new]) for new, old in pairs.items() if new not in gone}
    except RefusedError as refused:
        if wanted is not None:
            return CopiedLists(told=(f"group {to} gets {_ASKED}, not those of group {source.group}, {_HIDDEN}",))
        refused.remedy = f"{refused.remedy}, or give --zookeeper-acl"
        raise
    beside = (znodes.ids(to), znodes.owners(to))
    found = {new: acl for new, acl in found.items() if new not in beside or acl != OPEN}
    closed = list(dict.fromkeys(acl for acl in found.values() if acl != OPEN))
    those = "those" if len(closed) > 1 else "that"
    if wanted is not None:
        differs = any(not is_asked_for(acl, registry.settings) for acl in closed)
        told = f"group {to} gets {_ASKED}, not {those} of group {source.group}: {_told(closed)}"
        return CopiedLists(told=(told,) if differs else ())
    if target is not None and not renaming:
        told = f"new nodes of group {to} get the access lists of that group's own nodes, not {those} of group"
        return CopiedLists(told=(f"{told} {source.group}: {_told(closed)}",) if closed else ())
    if target is not None:  # what is open gets no more open than the group is that it comes into
        found = {new: acl for new, acl in found.items() if acl != OPEN}
    _check_below(found, to, registry.settings)
    lists = "lists" if len(closed) > 1 else "list"
    told = f"group {to} gets the access {lists} of group {source.group}: {_told(closed)}"
    return CopiedLists(found, (told,) if closed else ())


_ASKED: Final = "the access list that was asked for (zookeeper-acl)"
_HIDDEN: Final = "which are not shown to these credentials"


def _pairs(group: str, to: str, partitions: Iterable[TopicPartition], *, renaming: bool) -> Iterable[tuple[str, str]]:
    """Each node that may have to be made, from the top, and the one whose list it gets."""
    keys = list(partitions)
    yield znodes.group(to), znodes.group(group)
    if renaming:
        yield znodes.ids(to), znodes.ids(group)
        yield znodes.owners(to), znodes.owners(group)
    yield znodes.offsets(to), znodes.offsets(group)
    for topic in dict.fromkeys(key.topic for key in keys):
        yield znodes.offset_topic(to, topic), znodes.offset_topic(group, topic)
    old, new = znodes.offset_paths(group, keys), znodes.offset_paths(to, keys)
    for key in keys:
        yield new[key], old[key]


def _check_below(lists: Lists, to: str, settings: ZooKeeperSettings) -> None:
    """Raise ``RefusedError`` where a node's list surely keeps us from what is to come below it: a copy in several
    transactions would get stuck half way."""
    needs = {
        path: (CREATE, DELETE) if path == znodes.group(to) else (CREATE,)  # the guard makes and deletes ``ids`` there
        for path in lists
        if path not in (znodes.ids(to), znodes.owners(to)) and path.count("/") < _OFFSET_DEPTH
    }
    stuck = [path for path, wants in needs.items() if any(lacks(lists[path], settings.auth, one) for one in wants)]
    if stuck:
        raise RefusedError(
            f"{listed(stuck)} would get an access list that keeps these credentials from making its offsets",
            "connect with credentials that may change the group's nodes, or give --zookeeper-acl",
        )


_OFFSET_DEPTH: Final = 5  # slashes in /consumers/G/offsets/T/P


def is_asked_for(acl: Sequence[Acl], settings: ZooKeeperSettings) -> bool:
    """Whether a list is what ZooKeeper makes of the one that these settings ask for, with all credentials of the
    session in place of ``auth``. Nobody here can tell the name in a client certificate as the server does."""
    wanted: set[Acl] = set()
    for entry in settings.acl or ():
        named = sorted(identities(settings)) if entry.scheme == "auth" else [(entry.scheme, entry.id)]
        wanted |= {Acl(scheme, name, entry.permissions) for scheme, name in named}
    certified = settings.tls is not None and settings.tls.certificate_file is not None
    return wanted == {entry for entry in acl if not (certified and entry.scheme == "x509") or entry in wanted}


def _told(acls: Sequence[tuple[Acl, ...]]) -> str:
    return listed([told_list(acl) for acl in acls], "; ")


def told_list(acl: Iterable[Acl]) -> str:
    """An access list as ``--zookeeper-acl`` takes it, without digests, which could be tried against words."""
    return ",".join(f"{entry.scheme}:{_name(entry)}:{_letters(entry.permissions)}" for entry in acl)


def _name(entry: Acl) -> str:
    return entry.id.partition(":")[0] if entry.scheme == "digest" else entry.id


def _letters(permissions: int) -> str:
    return "".join(letter for letter in "cdrwa" if permissions & LETTERS[letter])
