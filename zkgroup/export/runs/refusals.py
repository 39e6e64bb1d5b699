"""What stops an export on its way: somebody else was there, or still is."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from zkgroup.errors import RefusedError
from zkgroup.export.model.rundata import ManifestPart
from zkgroup.export.model.words import PartitionPlan
from zkgroup.protocol.ops import Code, Failure


class Passing(RefusedError):
    """What passes by itself, or by an answer: it says nothing against a run's plan."""


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


class Overtaken(RefusedError):
    """Retention took planned messages before they were read: the run waits for an answer. ``told``: the group's offsets
    tell the next plan what is gone, too."""

    dropped = "run it again, which does as --on-expired says"

    def __init__(self, message: str, *, told: bool) -> None:
        super().__init__(
            message,
            "run it again with --on-expired earliest (or --skip-lost), which exports what is left and records what is "
            "gone; the run waits for that, or for --settle withdraw, which gives it up",
        )
        self.told = told


class Unexplained(Passing):
    """Offsets are missing from the middle of a log, and nobody knows why."""


class InTheWay(Passing):
    """Another group's run is under way in the lake."""


class NotHeld(Passing):
    """A partition is not this member's any more, or its offset was moved: decide without it, if anything is left."""


class TakenOver(RefusedError):
    """Another process works on the run, or has ended it."""


class Remade(RefusedError):
    """A topic is not the one that was planned with."""

    again = "the files hold what was read: --settle keep leaves them and the offset, --settle withdraw takes them back"


class Live(Passing):
    """The group has members."""

    again = "stop the members, then run the same command again"


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


def stays_planned(error: BaseException, *, resumed: bool, decides_anew: bool) -> bool:
    """Whether a run stays as it is planned: messages of its plan are gone, which the next plan would not know; or that
    may be why it was found, and nothing says that it cannot be carried out any more."""
    if isinstance(error, Overtaken):
        return not (error.told and decides_anew)
    return resumed and (isinstance(error, Passing) or not isinstance(error, RefusedError))


def not_held(parts: Iterable[ManifestPart], message: str, remedy: str) -> RefusedError:
    """The refusal where nothing is held of these parts, whose offsets are as planned. What is gone of them only their
    run knows."""
    knows = any(part.gaps.get("retention") for part in parts)
    return (NotHeld if knows else RefusedError)(message, remedy)
