"""What of a lake is another cluster's: offsets of other logs, which tell nothing of those that are here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from zkgroup.errors import RefusedError
from zkgroup.export.lake.book import Book
from zkgroup.export.lake.lake import Lake, LastRun
from zkgroup.words import listed


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
