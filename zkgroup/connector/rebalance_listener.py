"""What a program can learn about rebalances."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

from zkgroup.protocol.names import ConsumerThreadId, TopicPartition


class RebalanceListener(Protocol):
    """Called during rebalances of a group in ZooKeeper, on a thread of its own.

    The rebalance waits until the listener returns. Other members fail after some 8 s of waiting for this share.
    ``Connector.commit()`` may be called in both methods. ``Connector.close()`` would wait for itself and raises
    UsageError; ``leave()`` does not wait. An exception of the listener is logged with its traceback
    (``zkgroup.connector``) and the rebalance goes on, as with the Scala consumer.
    """

    def before_releasing(self, partitions: Mapping[TopicPartition, ConsumerThreadId]) -> None:
        """The member is about to release its share, and owns it until this returns.

        No further message of it is delivered. As with the Scala consumer, every attempt to rebalance begins so, the
        first one with an empty share. With auto-commit the consumed offsets are committed already. Without it this is
        the place for ``commit()``, which commits what was consumed of this share; what is not committed here is read
        again. ``commit()`` raises SessionLostError where the session has ended meanwhile.
        """

    def before_starting(self, assignment: Mapping[TopicPartition, ConsumerThreadId]) -> None:
        """The assignment of the whole group. The member owns its share and is about to read it.

        Nothing of the share is consumed yet: ``commit()`` returns at once.
        """


@dataclass(frozen=True, slots=True)
class Rebalance:
    """One step of a rebalance of a group in Kafka, as its member sees it. ``seconds`` is how long the step took.

    ``assigned``: the member reads its share; the step began when it gave up the share before, or asked to join.
    ``revoked``: the member has finished, committed and given up its share. ``lost``: the coordinator took the member
    for dead and has given its share to others. ``without_offset``: partitions without a committed offset, and the
    offset where reading begins in each.
    """

    kind: Literal["assigned", "revoked", "lost"]
    partitions: tuple[TopicPartition, ...]
    seconds: float
    without_offset: Mapping[TopicPartition, int] = field(default_factory=dict)
