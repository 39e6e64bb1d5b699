"""Errors that stop a run: another process or client has changed the group."""

from __future__ import annotations

from typing import Final

from zkgroup.errors import RefusedError
from zkgroup.export.model.plan_types import PartitionPlan
from zkgroup.protocol.operations import Code, Failure


class OffsetMovedError(RefusedError):
    """An offset node is not as the plan found it."""

    def __init__(self, group: str, plan: PartitionPlan, offset: int | None) -> None:
        planned = "no offset" if plan.committed is None else plan.committed
        super().__init__(
            f"the offset of {plan.partition} was moved by somebody else while group {group} was exported (it was "
            f"{planned}, it is {'gone' if offset is None else offset}): nothing is committed for it",
            "find the client that commits for the group, then export again",
        )


class PartitionLostError(RefusedError):
    """A partition is not this member's any more, or its offset was moved: decide without it."""


class TakenOverError(RefusedError):
    """Another process works on the export, or has ended it."""


#: Behind the decision.
AFTER_DECISION: Final = "run the same command again as a user who may write the group's nodes"


def why_refused(failure: Failure, remedy: str) -> tuple[str, str]:
    """What else there is to say of a refusal, and what helps where it is for want of permission."""
    if failure.code is Code.NO_AUTH:
        return "", remedy
    return f" ({failure.detail})" if failure.detail else "", ""
