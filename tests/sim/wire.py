"""What travels between a client and its server, and who is reported what becomes of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from zkgroup.protocol.operations import (
    Children,
    Code,
    Create,
    Delete,
    Exists,
    Failure,
    Get,
    GetAcl,
    Op,
    Result,
    SetData,
    Sync,
    Transaction,
)

LOST = Failure(Code.CONNECTION_LOSS)
RETRY = 0.1  # a client's pause between attempts to connect
TAIL = 0.3  # seconds from which on a delay counts as a fault
READS = (Get, Children, Exists, GetAcl)
#: What only a leader answers, with a majority behind it, and only while the session lives.
PROOFS = (Create, SetData, Delete, Transaction, Sync)


class Report(Protocol):
    """Reported of each fault that takes effect, and until when it lasts."""

    def __call__(self, fault: str, until: float = 0.0) -> None: ...


def nobody(fault: str, until: float = 0.0) -> None:
    """For worlds in which faults are not counted."""


class Pending:
    """A batch that waits for its answers."""

    __slots__ = ("done", "open", "ops", "results", "sent_at")

    def __init__(self, ops: Sequence[Op], done: Callable[[list[Result]], None], sent_at: float) -> None:
        self.ops = ops
        self.sent_at = sent_at
        self.results: list[Result] = [LOST] * len(ops)
        self.open = len(ops)
        self.done = done

    @property
    def proves(self) -> bool:
        """Whether an answer shows that the session lived when this was sent."""
        return any(
            isinstance(op, PROOFS)
            and not (isinstance(result, Failure) and result.code in (Code.CONNECTION_LOSS, Code.SESSION_EXPIRED))
            for op, result in zip(self.ops, self.results, strict=True)
        )
