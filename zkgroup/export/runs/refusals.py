"""What stops an export on its way: somebody else was there, or still is."""

from __future__ import annotations

from typing import Final

from zkgroup.errors import RefusedError
from zkgroup.export.model.words import PartitionPlan
from zkgroup.protocol.ops import Code, Failure


class Moved(RefusedError):
    """An offset node is not as the plan found it. ``partition`` is the first that was seen. ``again``: the remedy once
    the run is decided."""

    again = "--settle keep leaves the files and that offset as they are, --settle withdraw takes the files back"

    def __init__(self, group: str, plan: PartitionPlan, offset: int | None) -> None:
        planned = "no offset" if plan.committed is None else plan.committed
        super().__init__(
            f"the offset of {plan.partition} was moved by somebody else while group {group} was exported (it was "
            f"{planned}, it is {'gone' if offset is None else offset}): nothing is committed for it",
            "find out who commits for the group, then export again",
        )
        self.partition = plan.partition


class NotHeld(RefusedError):
    """A partition is not this member's any more, or its offset was moved: decide without it."""


class TakenOver(RefusedError):
    """Another process works on the run, or has ended it."""


class Remade(RefusedError):
    """A topic is not the one that was planned with."""

    again = "its files hold what no log has any more: --settle keep leaves them, and the offset as it is"


class Live(RefusedError):
    """The group has members."""

    again = "stop the members, then run the same command again"


#: Where the folder that a pointer names does not hold the run.
REPLACED: Final = (
    "it is an older copy or another disk, or is not mounted: bring the folder back as it was; if what it held is lost, "
    "--settle forget ends the run"
)

#: Where it holds the run's plan, but not its manifest.
NOT_AS_DECIDED: Final = "somebody changed or restored the folder: restore it, or end the run with --settle forget"

#: Of a run that is filed in the lake, where ZooKeeper's data is of before that.
ENDED: Final = "--settle forget ends it once more; then --on-disagreement lake goes on where the exports end"

#: Behind the decision.
LATE: Final = (
    "run the same command again as who may write the group's nodes, or give the run up: --settle withdraw takes back "
    "its files"
)


def why_refused(failure: Failure, remedy: str) -> tuple[str, str]:
    """What else there is to say of a refusal, and what helps where it is for want of permission."""
    if failure.code is Code.NO_AUTH:
        return "", remedy
    return f" ({failure.detail})" if failure.detail else "", ""
