"""Which access lists the nodes of a copied group get: each that of the node that it is made of.

A copy of a protected group must not be open. A copy that was interrupted and goes on must be like one that was not: so
it does not matter whether the other group exists. ``--zookeeper-acl``, or a profile, sets another list; nodes that
exist keep theirs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.errors import RefusedError
from zkgroup.groups.changes.access_lists import readable_acl
from zkgroup.groups.changes.group_tree import GroupTree
from zkgroup.protocol import znodes
from zkgroup.protocol.acls import format_acl
from zkgroup.protocol.names import TopicPartition
from zkgroup.protocol.operations import OPEN, Acl, Acls, Code, Failure, GetAcl
from zkgroup.text import listed

Lists = Mapping[str, tuple[Acl, ...]]


@dataclass(frozen=True, slots=True)
class CopiedLists:
    """``lists``: of nodes that are to be made, by their paths; other nodes get the list that was asked for, or that
    of the node above. ``warnings``: of the plan."""

    lists: Lists = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


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
    ``target`` if it is there. ``renaming``: ``ids`` and ``owners`` come as well, where they are not open.

    Raises ``RefusedError`` where a list is hidden.
    """
    there = frozenset(node.path for node in target.nodes) if target is not None else frozenset[str]()
    pairs = {new: old for new, old in _pairs(source.group, to, partitions, renaming=renaming) if new not in there}
    empty = (znodes.ids(to), znodes.owners(to))
    if set(pairs) <= set(empty):
        return CopiedLists()
    theirs = _lists_of(registry, pairs, renaming=renaming)
    found = {new: acl for new, acl in (theirs or {}).items() if new not in empty or acl != OPEN}
    closed = list(dict.fromkeys(acl for acl in found.values() if acl != OPEN))
    if registry.settings.acl is not None:
        has = "lists that are not shown to these credentials" if theirs is None else _describe(closed)
        warning = f"group {to} gets the access list of zookeeper-acl; group {source.group} has {has}"
        return CopiedLists(warnings=(warning,) if closed or theirs is None else ())
    warnings = []
    if closed:
        subject = f"group {to} gets" if target is None else f"new nodes of group {to} get"
        those = "lists" if len(closed) > 1 else "list"
        warnings.append(f"{subject} the access {those} of group {source.group}: {_describe(closed)}")
    if opened := _opened(registry, found, there):
        warnings.append(
            f"{listed(opened)} will be open to all clients, as in group {source.group}, unlike the nodes above"
        )
    return CopiedLists(found, tuple(warnings))


def _lists_of(registry: Registry, pairs: Mapping[str, str], *, renaming: bool) -> Lists | None:
    """New path → the list of the node it is made of, where that is there. None where they are hidden, and others were
    asked for; else that is a ``RefusedError``."""
    answers = dict(zip(pairs, registry.read([GetAcl(old) for old in pairs.values()]), strict=True))
    gone = {new for new, answer in answers.items() if isinstance(answer, Failure) and answer.code is Code.NO_NODE}
    try:
        return {new: readable_acl(old, answers[new]) for new, old in pairs.items() if new not in gone}
    except RefusedError as refused:
        if registry.settings.acl is not None:
            return None
        if not renaming:  # where the source is deleted, its backup needs the list in any case
            refused.add_remedy("or give --zookeeper-acl")
        raise


def _opened(registry: Registry, lists: Lists, there: frozenset[str]) -> list[str]:
    """The topmost of the nodes that are to be open, and come below a node that is there and is not."""
    above = {new: new.rpartition("/")[0] for new, acl in lists.items() if acl == OPEN}
    parents = list(dict.fromkeys(parent for parent in above.values() if parent in there))
    answers = registry.read([GetAcl(parent) for parent in parents])
    closed = {
        parent for parent, one in zip(parents, answers, strict=True) if not isinstance(one, Acls) or one.acl != OPEN
    }
    return [new for new, parent in above.items() if parent in closed]


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


def _describe(acls: Sequence[tuple[Acl, ...]]) -> str:
    return listed([format_acl(acl) for acl in acls], "; ")
