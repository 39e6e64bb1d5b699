"""Folders of runs that are over: of those that were killed, and of those that are in the log."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from zkgroup.export.destination.run_log import RECORD, Destination, number_of
from zkgroup.export.model.documents import DamagedDocumentError, decode_record
from zkgroup.export.model.intervals import subtract
from zkgroup.export.model.run_record import RecordPart, RunRecord
from zkgroup.export.run.publication import publish_existing
from zkgroup.export.run.run_context import RunContext


def remove_leftovers(
    destination: Destination, group: str, context: RunContext, runs: Sequence[str] | None = None
) -> list[str]:
    """Remove what a group's runs have left, or these ``runs``; those that are kept. Under the group's lock, while no
    run is decided: others may be under way otherwise.

    A run in the log is published first: ZooKeeper's data may be of before its end. One that was written to the end and
    never decided, as far as ZooKeeper knows, is kept as long as later runs have not exported all of it: its decision
    may be what ZooKeeper has lost, and the log may not have the messages any more.
    """
    kept: list[str] = []
    for run in destination.leftover_runs(group) if runs is None else runs:
        entry = next((one for one in destination.entries(group) if one.run == run), None)
        if entry is not None:
            publish_existing(destination, destination.record(group, entry), context)
        elif not _is_needless(destination, group, run):
            kept.append(run)
            continue
        destination.store.remove(destination.work(group, run))
    return kept


def leftover_notices(destination: Destination, group: str, runs: Sequence[str]) -> Iterator[str]:
    """Warnings about runs that are kept."""
    for run in runs:
        yield (
            f"{destination}/{destination.work(group, run)} has files of a run that no later one has exported, "
            "and ZooKeeper does not know it to be decided: remove it if nobody misses its messages"
        )


def _is_needless(destination: Destination, group: str, run: str) -> bool:
    """Whether a run that is not in the log was not written to the end, or later ones have exported its offsets."""
    data = destination.written_record(group, run)
    if data is None:
        return True
    try:
        written = decode_record(f"{destination}/{destination.work(group, run)}/{RECORD}", data)
    except DamagedDocumentError:
        return False
    since = [entry for entry in destination.entries(group) if entry.number >= number_of(run)]
    later = [destination.record(group, entry) for entry in since]
    return all(_is_exported(written, part, later) for part in written.partitions if part.rows or part.undecodable)


def _is_exported(written: RunRecord, part: RecordPart, later: list[RunRecord]) -> bool:
    log = written.topics[part.partition.topic]
    done = [
        (one.start, one.end)
        for record in later
        if part.partition.topic in record.topics and record.topics[part.partition.topic].is_same(log)
        for one in record.partitions
        if one.partition == part.partition
    ]
    return not subtract((part.start, part.end), done)
