"""How much goes into one transaction of ZooKeeper's: pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from zkgroup.clients.zookeeper import ZooKeeperSettings
from zkgroup.groups.changes.batching import cost
from zkgroup.protocol import znodes
from zkgroup.protocol.names import TopicPartition
from zkgroup.protocol.operations import Create, SetData

# ZooKeeper takes at most 1 MiB a request, and drops the connection above it.
TRANSACTION_BYTES: Final = 512 << 10
OPERATION_BYTES: Final = 64  # of an operation, besides its path and its data


def split_transaction(ops: Sequence[Create | SetData], settings: ZooKeeperSettings) -> Iterator[list[Create | SetData]]:
    """Operations in pieces of the size of a request."""
    piece: list[Create | SetData] = []
    size = 0
    for operation in ops:
        lists = settings.acl or () if isinstance(operation, Create) else ()
        more = cost(operation.path, settings, lists) + len(operation.data)
        if piece and size + more > TRANSACTION_BYTES:
            yield piece
            piece, size = [], 0
        piece.append(operation)
        size += more
    if piece:
        yield piece


def first_that_fit(
    group: str, partitions: Sequence[TopicPartition], settings: ZooKeeperSettings
) -> list[TopicPartition]:
    """As many as ``decide_and_commit`` takes in one transaction, the first ones."""
    size, taken = 0, []
    for partition in partitions:
        owner, offset = znodes.owner(group, partition), znodes.offset(group, partition)
        size += cost(owner, settings) + cost(offset, settings, settings.acl or ()) + OPERATION_BYTES
        if size > TRANSACTION_BYTES:
            break
        taken.append(partition)
    return taken
