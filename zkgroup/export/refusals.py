"""What stops an export on its way: somebody else was there, or still is."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from zkgroup.errors import RefusedError
from zkgroup.export.words import PartitionPlan
from zkgroup.protocol.ops import Code, Failure
from zkgroup.words import listed

if TYPE_CHECKING:
    from zkgroup.export.book import Book
    from zkgroup.export.lake import Lake, LastRun

#: What helps where a name is taken that a file of this run was to have.
TAKEN_REMEDY: Final = (
    "--settle withdraw takes back what this run has published and ends it; or move that file away, and run the same "
    "command again; --status tells what is unfinished"
)


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

    again = "the files hold what was read: --settle keep leaves them and the offset, --settle withdraw takes them back"


class Live(RefusedError):
    """The group has members."""

    again = "stop the members, then run the same command again"


def taken_name(where: object) -> RefusedError:
    """The error for a file of another run under the name that one of ours was to have."""
    return RefusedError(f"{where} exists already, and is another run's", TAKEN_REMEDY)


def refuse_other_cluster(
    lake: Lake, group: str, here: Sequence[str], topics: Iterable[str], book: Book, *, adopts: bool = False
) -> None:
    """Raise where the lake has runs of a group of this name on another cluster than ``here``, whatever they have
    exported: what one group's runs account for is of one cluster. Or of these ``topics`` what another group has
    exported there, and nobody here."""
    last = book.last
    copied = "; if it is the same cluster with a new ZooKeeper, whose nodes were copied: --on-recreated same"
    copied = "" if adopts else copied
    if other := sorted(last.clusters.difference(here)):
        raise RefusedError(
            f"{lake.store.uri} holds what a group {group} of another cluster has exported (cluster {other[0]}; the "
            f"newest run is {last.run}; this one is {here[0]}): its offsets are of other logs",
            f"choose another --to, or another --group{copied}",
        )
    for topic in topics:
        if topic in last.coverage:
            continue
        known = [(name, one.clusters) for name, one in book.others.items() if topic in one.coverage]
        if not known or any(not clusters.isdisjoint(here) for _, clusters in known):
            continue
        raise RefusedError(
            f"{lake.store.uri} holds what group {known[0][0]} of another cluster has exported of {topic} (cluster "
            f"{listed(sorted(known[0][1]))}; this one is {here[0]}): the offsets are of another log",
            f"choose another --to{copied}",
        )


def refuse_offsets_of_another_cluster(lake: Lake, group: str, here: Sequence[str], last: LastRun) -> None:
    """Raise where a group's offsets are not those that its runs in the lake have moved."""
    if last.clusters and last.clusters.isdisjoint(here):
        raise RefusedError(
            f"{lake.store.uri} holds what a group {group} of another cluster has exported (cluster "
            f"{listed(sorted(last.clusters))}; this one is {here[0]}): its offsets are there",
            "name that cluster, or leave --group out",
        )


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
