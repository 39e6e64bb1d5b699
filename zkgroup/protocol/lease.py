"""How long a member may believe that its session lives, without asking.

A follower that is cut off from its leader goes on answering reads and pings while the majority has expired the
session. Only a write or a sync that was answered proves, for the time it was *sent*, that the session lived. So a
member hands out messages and begins writes only within half of the session time-out since then: the other half is for
what was begun to end in. Measured on a clock that runs while the machine sleeps.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from zkgroup.protocol.operations import Code, Create, Delete, Failure, Op, Result, SetData, Sync, Transaction

BEATS_PER_TIMEOUT: Final = 6

#: What the leader answers. ``Ensure`` is no proof: where the node is there already it only reads.
_PROOFS: Final = (Sync, Create, SetData, Delete, Transaction)
#: A refusal proves as much as a success, if it came from the server.
_SERVER_SAYS: Final = (Code.NO_NODE, Code.NODE_EXISTS, Code.BAD_VERSION, Code.NOT_EMPTY)


class Lease:
    """``until`` is the moment past which nothing may be handed out or written."""

    __slots__ = ("beat_at", "timeout", "until")

    def __init__(self) -> None:
        self.timeout = 0.0
        self.until = float("-inf")
        self.beat_at = float("inf")

    def begin(self, timeout: float, now: float) -> None:
        """A connection with this negotiated time-out is there: ask for the first proof at once."""
        self.timeout = timeout
        self.beat_at = now

    def end(self) -> None:
        """The session is over."""
        self.until = float("-inf")
        self.beat_at = float("inf")

    def pause(self) -> None:
        """No connection: no use in asking. What is left of the lease stays valid."""
        self.beat_at = float("inf")

    def due(self, now: float) -> bool:
        """Whether it is time to ask again. If so the next time is set."""
        if now < self.beat_at:
            return False
        self.beat_at = now + self.timeout / BEATS_PER_TIMEOUT
        return True

    def renew(self, ops: Sequence[Op], results: Sequence[Result], sent_at: float) -> None:
        """Learn from answered operations, the first of which was sent at ``sent_at``."""
        for op, result in zip(ops, results, strict=True):
            if isinstance(op, _PROOFS) and (not isinstance(result, Failure) or result.code in _SERVER_SAYS):
                self.until = max(self.until, sent_at + self.timeout / 2)
                return

    def holds(self, now: float) -> bool:
        """Whether messages may be handed out and writes begun."""
        return now < self.until
