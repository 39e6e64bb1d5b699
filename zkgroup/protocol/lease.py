"""The lease on a ZooKeeper session: how long a member may assume that the session lives.

A follower that is cut off from its leader goes on answering reads and pings while the majority has expired the
session. Only the answer to a write or a sync proves that the session lived, at the time when the request was *sent*.
So a member delivers messages and begins writes only within half of the session timeout since then; within the other
half what was begun can end. The clock runs while the machine sleeps.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from zkgroup.protocol.operations import Code, Create, Delete, Failure, Op, Result, SetData, Sync, Transaction

BEATS_PER_TIMEOUT: Final = 6

#: The leader answers these. ``Ensure`` is no proof: where the node exists it only reads.
_PROOFS: Final = (Sync, Create, SetData, Delete, Transaction)
#: Refusals that come from the leader, too.
_SERVER_SAYS: Final = (Code.NO_NODE, Code.NODE_EXISTS, Code.BAD_VERSION, Code.NOT_EMPTY)


class Lease:
    """``until`` is the moment after which nothing may be delivered or written."""

    __slots__ = ("beat_at", "timeout", "until")

    def __init__(self) -> None:
        self.timeout = 0.0
        self.until = float("-inf")
        self.beat_at = float("inf")

    def begin(self, timeout: float, now: float) -> None:
        """Connected, with this negotiated time-out: the first proof is due at once."""
        self.timeout = timeout
        self.beat_at = now

    def end(self) -> None:
        """The session is over."""
        self.until = float("-inf")
        self.beat_at = float("inf")

    def pause(self) -> None:
        """Disconnected: no proof is due. The rest of the lease stays valid."""
        self.beat_at = float("inf")

    def due(self, now: float) -> bool:
        """Whether a new proof is due. If so the next time is set."""
        if now < self.beat_at:
            return False
        self.beat_at = now + self.timeout / BEATS_PER_TIMEOUT
        return True

    def renew(self, ops: Sequence[Op], results: Sequence[Result], sent_at: float) -> None:
        """Renew by the answers to operations, the first of which was sent at ``sent_at``."""
        for op, result in zip(ops, results, strict=True):
            if isinstance(op, _PROOFS) and (not isinstance(result, Failure) or result.code in _SERVER_SAYS):
                self.until = max(self.until, sent_at + self.timeout / 2)
                return

    def is_valid(self, now: float) -> bool:
        """Whether messages may be delivered and writes begun."""
        return now < self.until
