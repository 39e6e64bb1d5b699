"""Warnings of an export about its plan: messages that it skips, or writes again, or that wait for an open transaction.

An export of committed messages stops at an open transaction, and finds nothing new until that ends. It warns of one
that is open for longer than brokers allow.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from datetime import UTC, datetime
from typing import Final

from zkgroup.clients.kafka.client import KafkaSettings
from zkgroup.clients.kafka.log_offsets import LogRange, log_offsets
from zkgroup.clients.kafka.range_reader import RangeReader, range_consumer
from zkgroup.errors import ZkgroupError
from zkgroup.export.model.plan_types import ExportPlan, PartitionFacts, PartitionPlan
from zkgroup.export.model.run_record import RecordPart
from zkgroup.export.planning.export_request import Bound
from zkgroup.protocol.names import TopicPartition
from zkgroup.text import counted, listed


def plan_notices(plan: ExportPlan) -> list[str]:
    """Warnings about a plan, also where there is nothing to do: the effect of its bounds, and what is left out."""
    return [*plan.notes, *(f"{partition} is left out: {why}" for partition, why in plan.left_out)]


def first_run_notices(
    uri: str, group: str, partitions: Iterable[PartitionPlan], facts: Iterable[PartitionFacts]
) -> Iterator[str]:
    """Warnings about a first run of a group that has committed offsets: the folder may be an unmounted one."""
    first = {fact.partition: fact.log_start for fact in facts}
    later = [
        f"{part.partition} at {part.start}"
        for part in partitions
        if part.start == part.committed and part.start > first[part.partition]
    ]
    if later:
        yield (
            f"{uri} has no exports: what group {group} has read before ({listed(later)}) is not in it, and --backfill "
            "exports it; if it was exported there, the folder is not mounted, or is another one"
        )


def rewrite_notices(parts: Iterable[RecordPart]) -> Iterator[str]:
    """Which messages of lost files could not be written once more."""
    for part in parts:
        again = [lost for lost in part.again if part.start < lost.end]
        rows = sum(lost.rows for lost in again)
        if again and (fewer := rows - part.rows - part.undecodable) > 0:
            files = listed([lost.file for lost in again], most=1)
            yield f"{part.partition}: {fewer} of {counted(rows, 'message')} of {files} are not in the log any more"


def part_notices(partitions: Iterable[PartitionPlan]) -> Iterator[str]:
    """Warnings about a run's parts: rewritten ranges, starts other than the group's offset, recorded gaps."""
    for part in partitions:
        for lost in part.again:
            first = max(lost.start, part.start)
            what = f"offsets {first} to {lost.end - 1} are exported again"
            if first >= lost.end:
                what = "of its messages the log has none any more"
            yield f"{part.partition}: {lost.file} is missing: {what}"
        edges = {part.start, *(edge for gap in part.skipped for edge in gap[1:])}
        if part.commits and part.committed is not None and part.committed not in edges:
            yield f"{part.partition}: the group is at {part.committed}; the export continues at {min(edges)}"
        for gap in part.skipped:
            if gap.end > gap.start:
                yield f"{part.partition}: offsets {gap.start} to {gap.end - 1} are not exported ({gap.kind})"


log = logging.getLogger(__name__)

#: Milliseconds: ``transaction.max.timeout.ms``, where it is not set.
_LONG: Final = 15 * 60 * 1000
_SILENCE_TIMEOUT: Final = 3.0  # seconds without a message
_SHOWN: Final = 3


def open_transaction_notices(
    kafka: KafkaSettings, facts: Iterable[PartitionFacts], timeout: float, now: int
) -> Iterator[str]:
    """Warnings about partitions that are exported up to an open transaction that is too old at ``now`` (milliseconds
    since 1970). Brokers before 0.11 have no transactions."""
    ends = {
        fact.partition: fact.log_end
        for fact in facts
        if fact.log_end == (fact.log_start if fact.committed is None else fact.committed)
    }
    if not ends or kafka.legacy_release is not None:
        return
    behind = _beyond(ends, log_offsets(kafka, list(ends), timeout))
    for partition, count in behind.items():
        log.info("%s: %d offsets wait behind an open transaction", partition, count)
    times = _times(kafka, ends, behind)
    since = {partition: time for partition, time in times.items() if time is not None and now - time > _LONG}
    if not since:
        return
    # Ended by now, it was none: all came between two questions.
    ended = _beyond(ends, log_offsets(kafka, list(since), timeout, read_committed=True))
    open_ones = [
        f"{partition}, {counted(behind[partition], 'offset')} from {ends[partition]} on, since {_iso_time(time)}"
        for partition, time in sorted(since.items())
        if partition not in ended
    ]
    if open_ones:
        yield (
            "what lies behind open transactions is not exported until they end, and these are old (Kafka 3's "
            f"kafka-transactions.sh finds and aborts them): {listed(open_ones, '; ', most=_SHOWN)}"
        )


def _beyond(
    ends: Mapping[TopicPartition, int], found: Mapping[TopicPartition, LogRange | ZkgroupError]
) -> dict[TopicPartition, int]:
    """How far these logs reach beyond ``ends``."""
    return {
        partition: log_range.end - ends[partition]
        for partition, log_range in found.items()
        if isinstance(log_range, LogRange) and log_range.end > ends[partition]
    }


def _times(
    kafka: KafkaSettings, ends: Mapping[TopicPartition, int], behind: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int | None]:
    """The timestamps of the first messages behind these ends, committed or not; None where one has none."""
    found: dict[TopicPartition, int | None] = {}
    if not behind:
        return found
    with suppress(ZkgroupError), closing(range_consumer(kafka.with_isolation("read_uncommitted"))) as source:
        for partition, count in behind.items():
            reader = RangeReader(source, _SILENCE_TIMEOUT)
            for batch in reader.batches(partition, ends[partition], ends[partition] + count):
                kind, millis = batch[0].timestamp()
                found[partition] = millis if kind > 0 and millis > 0 else None
                break
    return found


def _iso_time(millis: int) -> str:
    return datetime.fromtimestamp(millis / 1000, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def notes_on(
    begin: Bound, until: Bound, facts: Sequence[PartitionFacts], plan: ExportPlan, *, fills: bool, by_segments: bool
) -> list[str]:
    """What times come to that no message has, or that leave nothing to export, and which partitions an end does not
    name, or lies behind; ``fills``: it is a backfill, for which every partition begins where ``begin`` says;
    ``by_segments``: brokers know times of segments only. Pure."""
    return [*_of_times(begin, until, facts, plan, fills, by_segments), *_of_offsets(until, facts, fills)]


def _of_offsets(until: Bound, facts: Sequence[PartitionFacts], fills: bool) -> Iterator[str]:
    if until.kind != "offsets":
        return
    begun = (fact.partition for fact in facts if not fills or fact.begin is not None)
    if unnamed := [str(partition) for partition in begun if partition not in until.offsets]:
        yield f"--until names no place in {listed(unnamed, most=3)}: of what is not named nothing is exported"
    for fact in () if fills else facts:  # a backfill warns of them as it is planned
        if fact.until is not None and fact.until > fact.log_end:
            yield f"{fact.partition}: --until {fact.until} lies behind the end of its log, which is {fact.log_end}"


def _of_times(
    begin: Bound, until: Bound, facts: Sequence[PartitionFacts], plan: ExportPlan, fills: bool, by_segments: bool
) -> Iterator[str]:
    coarse = " (before 0.10 brokers know the times of whole segments only)" if by_segments else ""
    there = [fact for fact in facts if fact.log_start < fact.log_end]
    begun = [fact for fact in there if fills or fact.committed is None]
    if begin.kind == "time" and begun and all((fact.begin or 0) >= fact.log_end for fact in begun):
        ends = "partitions without an offset begin at their ends, and what is there is not exported"
        what = "there is nothing to export" if fills else ends
        yield f"no message is as late as --from {begin}: {what}{coarse}"
    elif until.kind == "time" and there and all((fact.until or 0) >= fact.log_end for fact in there):
        yield f"no message is as late as --until {until}: the export ends where the logs end now{coarse}"
    elif there and not plan.reads and not plan.left_out and (until.kind == "time" or _is_passed(until, there, fills)):
        coarse = coarse if until.kind == "time" else ""
        what = f"nothing that is left to export is known to lie before --until {until}"
        yield f"{what}: there is nothing to export{coarse}"


def _is_passed(until: Bound, facts: Sequence[PartitionFacts], fills: bool) -> bool:
    """Whether the group is behind listed offsets where the log goes on."""
    return (
        until.named
        and not fills
        and any(
            fact.until is not None and fact.committed is not None and fact.until < min(fact.committed, fact.log_end)
            for fact in facts
        )
    )
