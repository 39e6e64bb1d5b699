"""Whether ZooKeeper will permit a change that comes second, after another one: the server is asked before.

Other changes need no question: one that it does not allow is refused as a whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate, chain
from typing import Final

from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.errors import RefusedError, UnreachableError
from zkgroup.groups.changes.access_lists import CREATE, DELETE, WRITE
from zkgroup.groups.changes.batching import MAX_TRANSACTION_BYTES, cost
from zkgroup.groups.changes.group_tree import GroupTree
from zkgroup.protocol import znodes
from zkgroup.protocol.names import TopicPartition
from zkgroup.protocol.operations import (
    Check,
    Code,
    Create,
    Delete,
    Exists,
    Failure,
    Result,
    SetData,
    Transaction,
)
from zkgroup.text import listed

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
        ends = accumulate(cost(f"{path}/{_PROBE}", settings, settings.acl or ()) for path, _ in needs)
        some = needs[: max(1, sum(end <= MAX_TRANSACTION_BYTES for end in ends))]
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
