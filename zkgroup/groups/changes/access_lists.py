"""Access lists of znodes: reading them whole, those of a copied group, and what they allow a session.

A copy of a protected group must not be open: each of its nodes gets the list of the node that it is made of.
``--zookeeper-acl``, or a profile, sets another list; nodes that exist keep theirs. Members create each other's parents
and write the same offset nodes. The Scala consumer gives its nodes (but ``ids``) to its own credentials, where it has
some (0.9 to 1.1.1), else to everyone: the access lists of a member's owner nodes show its identity. Whether ZooKeeper
will permit a change is asked where it comes second, after another one; any other change is refused as a whole.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Final

from zkgroup.clients.zookeeper import ZooKeeperSettings
from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.config.connection_settings import KerberosSettings
from zkgroup.errors import RefusedError, UnreachableError
from zkgroup.groups.changes.group_tree import GroupTree
from zkgroup.groups.changes.znode_transactions import MAX_TRANSACTION_BYTES, cost, first_batch
from zkgroup.protocol import znodes
from zkgroup.protocol.names import TopicPartition, parse_partition
from zkgroup.protocol.operations import (
    EVERYTHING,
    OPEN,
    Acl,
    Acls,
    Check,
    Children,
    Code,
    Create,
    Delete,
    Exists,
    Failure,
    Get,
    GetAcl,
    Node,
    Result,
    SetData,
    Transaction,
    format_acl,
)
from zkgroup.text import listed

READ: Final = 1
WRITE: Final = 2
CREATE: Final = 4
DELETE: Final = 8
ANYONE: Final = ("world", "anyone")

CREDENTIALS: Final = "connect with credentials that may read and administer the group's nodes"


def readable_acl(path: str, result: Result) -> tuple[Acl, ...]:
    """The access list of ``path``, open where there is no node. Raises ``RefusedError`` where it is not shown whole."""
    if isinstance(result, Failure):
        if result.code is Code.NO_NODE:
            return OPEN
        raise RefusedError(f"the access list of {path} cannot be read: {result.code.value}", CREDENTIALS)
    acl = result.acl if isinstance(result, Acls) else OPEN
    if any(entry.scheme == "digest" and entry.id.endswith(":x") for entry in acl):
        raise RefusedError(f"the access list of {path} is shown only to its administrators", CREDENTIALS)
    return acl


def read_acls(registry: Registry, paths: Iterable[str]) -> tuple[dict[str, tuple[Acl, ...]], dict[str, RefusedError]]:
    """The access lists of these nodes, and for each that is not shown whole the reason. Raises ``UnreachableError``."""
    wanted = list(paths)
    acls: dict[str, tuple[Acl, ...]] = {}
    unreadable: dict[str, RefusedError] = {}
    for path, result in zip(wanted, registry.read([GetAcl(path) for path in wanted]), strict=True):
        try:
            acls[path] = readable_acl(path, result)
        except RefusedError as refused:
            unreadable[path] = refused
    return acls, unreadable


def require_acls(registry: Registry, paths: Iterable[str]) -> dict[str, tuple[Acl, ...]]:
    """The access lists of these nodes. Raises ``RefusedError`` where one is not shown whole."""
    acls, unreadable = read_acls(registry, paths)
    for refused in unreadable.values():
        raise refused
    return acls


def identities(settings: ZooKeeperSettings) -> set[tuple[str, str]]:
    """Schemes and names of a session with these settings, as far as they are known here: ``unknown_schemes``. Of a
    principal the whole and its first part."""
    match settings.sasl:
        case KerberosSettings(principal=str(principal)):
            found = {("sasl", principal), ("sasl", re.split("[/@]", principal)[0])}
        case (user, _):
            found = {("sasl", user)}
        case _:
            found = set()
    for credentials in (one for scheme, one in settings.auth if scheme == "digest"):
        hashed = base64.b64encode(hashlib.sha1(credentials.encode(), usedforsecurity=False).digest()).decode()
        found.add(("digest", f"{credentials.partition(':')[0]}:{hashed}"))
    return found


def unknown_schemes(settings: ZooKeeperSettings) -> set[str]:
    """Schemes of which the server alone knows the name of a session with these settings: that in a client certificate,
    and what its rules make of a Kerberos principal."""
    certified = settings.tls is not None and settings.tls.certificate_file is not None
    kerberos = isinstance(settings.sasl, KerberosSettings)
    return ({"x509"} if certified else set()) | ({"sasl"} if kerberos else set())


def admits_anyone(acl: Iterable[Acl], permission: int) -> bool:
    """Whether an entry of the list gives this permission to anyone."""
    return any(entry.permissions & permission and (entry.scheme, entry.id) == ANYONE for entry in acl)


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
    # Servers show digests as ``USER:x`` to all but administrators of the node.
    return not full & {*ours, *((scheme, f"{name.partition(':')[0]}:x") for scheme, name in ours if scheme == "digest")}


Lists = Mapping[str, tuple[Acl, ...]]


def copied_lists(
    registry: Registry,
    source: GroupTree,
    target: GroupTree | None,
    to: str,
    partitions: Iterable[TopicPartition],
    *,
    renaming: bool,
) -> tuple[Lists, tuple[str, ...]]:
    """The lists for offsets of ``partitions`` that are copied from ``source`` to the group ``to``, whose nodes are
    ``target`` if it is there: by the paths of nodes that are to be made; others get the list that was asked for, or
    that of the node above. And warnings of the plan. ``renaming``: ``ids`` and ``owners`` come as well, where they are
    not open.

    Raises ``RefusedError`` where a list is hidden.
    """
    there = frozenset(node.path for node in target.nodes) if target is not None else frozenset[str]()
    pairs = {new: old for new, old in _pairs(source.group, to, partitions, renaming=renaming) if new not in there}
    empty = (znodes.ids(to), znodes.owners(to))
    if set(pairs) <= set(empty):
        return {}, ()
    if registry.settings.acl is not None:
        return {}, (f"new nodes of group {to} get the access list of zookeeper-acl, not those of group {source.group}",)
    answers = dict(zip(pairs, registry.read([GetAcl(old) for old in pairs.values()]), strict=True))
    gone = {new for new, answer in answers.items() if isinstance(answer, Failure) and answer.code is Code.NO_NODE}
    try:
        theirs = {new: readable_acl(old, answers[new]) for new, old in pairs.items() if new not in gone}
    except RefusedError as refused:
        if not renaming:  # where the source is deleted, its backup needs the list in any case
            refused.add_remedy("or give --zookeeper-acl")
        raise
    found = {new: acl for new, acl in theirs.items() if new not in empty or acl != OPEN}
    closed = list(dict.fromkeys(acl for acl in found.values() if acl != OPEN))
    warnings = []
    if closed:
        lists = listed([format_acl(acl) for acl in closed], "; ")
        warnings.append(f"new nodes of group {to} get the access lists of group {source.group}: {lists}")
    if opened := _opened(registry, found, there):
        warnings.append(
            f"{listed(opened)} will be open to all clients, as in group {source.group}, unlike the nodes above"
        )
    return found, tuple(warnings)


def _opened(registry: Registry, lists: Lists, there: frozenset[str]) -> list[str]:
    """The topmost of the nodes that are to be open, and come below a node that is there and is not."""
    above = {new: new.rpartition("/")[0] for new, acl in lists.items() if acl == OPEN}
    parents = list(there.intersection(above.values()))
    acls = dict(zip(parents, registry.read([GetAcl(parent) for parent in parents]), strict=True))
    return [new for new, parent in above.items() if parent in acls and acls[parent] != Acls(OPEN)]


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


_WORDS: Final = {
    WRITE: "its data may not be changed",
    CREATE: "children may not be created there",
    DELETE: "its children may not be deleted",
}


def refuse_removal(registry: Registry, tree: GroupTree, *, is_split: bool) -> None:
    """Raise ``RefusedError`` where ZooKeeper will not let these nodes be removed (``is_split``: in more than one
    transaction): for a change that does something else first. Changes nothing.

    The server itself is asked, whatever it is set to: it checks permissions before versions (3.4.6,
    3.5.9, 3.8.4), and no node has the version -2. Raises ``UnreachableError`` where the answer is lost.
    """
    one_below = {node.path.rpartition("/")[0]: node.path for node in tree.nodes}
    probes: list[Delete | Transaction] = [Delete(path, _NO_VERSION) for path in one_below.values()]
    above = znodes.group(tree.group)
    words = [_describe_need(path, DELETE) for path in one_below]
    if is_split:  # their guard makes and deletes nodes below the group's
        probe = f"{above}/{_PROBE}"
        probes.append(Transaction((Create(probe), Delete(probe))))
        words.append(f"{above} ({_WORDS[CREATE]}, and deleted again)")
    answers = zip(words, registry.read(probes), strict=True)
    failed = [(message, one.code) for message, one in answers if isinstance(one, Failure)]
    if any(code is Code.CONNECTION_LOSS for _, code in failed):
        raise UnreachableError("ZooKeeper went away before anything was changed", "run it again once it is back")
    if denied := [message for message, code in failed if code is Code.NO_AUTH]:
        raise _refused(tree.group, denied)


def refuse_unwritable(
    registry: Registry, group: str, stored: Iterable[TopicPartition], unstored: Iterable[TopicPartition]
) -> None:
    """Raise ``RefusedError`` where ZooKeeper will not let offsets be written, to nodes that are there (``stored``) or
    are to be made: for a change that does something else first. Changes nothing; the server is asked as
    ``refuse_removal`` asks it, by transactions that fail at their end: its log has a line for each request that it
    refuses."""
    settings = registry.settings
    tops = sorted({znodes.offset_topic(group, one.topic) for one in unstored})
    ways = [[top, top.rpartition("/")[0], znodes.group(group)] for top in tops]
    found = registry.read([Exists(path) for way in ways for path in way])
    # From 3.8 on a server keeps it to itself whether a node is there that may not be read: then it is.
    there = {path for path, one in zip(chain.from_iterable(ways), found, strict=True) if not _is_missing(one)}
    above = sorted({next(path for path in way if path in there) for way in ways if not there.isdisjoint(way)})
    written = znodes.offset_paths(group, stored).values()
    needs = [*((path, WRITE) for path in written), *((path, CREATE) for path in above)]
    while needs:
        some = first_batch(
            needs, lambda need: cost(f"{need[0]}/{_PROBE}", settings, settings.acl or ()), MAX_TRANSACTION_BYTES
        )
        ops = [SetData(path, b"") if need == WRITE else Create(f"{path}/{_PROBE}") for path, need in some]
        (answer,) = registry.read([Transaction((*ops, Check(some[0][0], _NO_VERSION)))])
        if isinstance(answer, Failure) and answer.code is Code.CONNECTION_LOSS:
            raise UnreachableError("ZooKeeper went away before anything was read", "run it again once it is back")
        place = answer.index if isinstance(answer, Failure) and answer.code is Code.NO_AUTH else None
        if place is not None and place < len(some):
            raise _refused(group, [_describe_need(*some[place])])
        needs = needs[len(some) :]


def _is_missing(found: Result) -> bool:
    return found is None or (isinstance(found, Failure) and found.code is Code.NO_NODE)


_NO_VERSION: Final = -2
_PROBE: Final = "zkgroup-probe"


def _describe_need(path: str, permission: int) -> str:
    return f"{path} ({_WORDS[permission]})"


def _refused(group: str, missing: Sequence[str]) -> RefusedError:
    return RefusedError(
        f"nodes of group {group} may not be changed: {listed(missing)}",
        "connect with credentials that may change the group's nodes",
    )
