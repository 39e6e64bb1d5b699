"""From the answers of tasks to the parts and files of a record; refused where an offset is missing. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Literal

from zkgroup.errors import RefusedError, ZkgroupError
from zkgroup.export.model.accounting import total
from zkgroup.export.model.intervals import overlaps
from zkgroup.export.model.layout import Period
from zkgroup.export.model.plan_types import OffsetRange, PartitionPlan
from zkgroup.export.model.run_record import RecordFile, RecordPart, RunPlan, ranges_by_part
from zkgroup.export.planning.export_plan import cut
from zkgroup.export.tasks.late_messages import late_of
from zkgroup.export.tasks.task_data import DoneAnswer, FileAnswer, RangeAnswer
from zkgroup.protocol.names import TopicPartition
from zkgroup.text import counted, listed


@dataclass(frozen=True, slots=True)
class WrittenFiles:
    """The parts and files that tasks have written; ``times``: the newest period of each partition."""

    parts: list[RecordPart]
    files: list[RecordFile]
    times: Mapping[TopicPartition, Period]


def ranges_of(plan: RunPlan) -> list[OffsetRange]:
    """The ranges to read, cut into pieces; with a limit of bytes a partition is one piece, which may end anywhere."""
    return [piece for part in plan.partitions for piece in _task_ranges(plan, part)]


def _task_ranges(plan: RunPlan, part: PartitionPlan) -> list[OffsetRange]:
    size = plan.range_messages if plan.max_bytes is None else 1 << 62
    return cut(part.partition, part.start, part.end, size)


def assemble(plan: RunPlan, answers: Sequence[DoneAnswer]) -> WrittenFiles:
    """The record's parts and files. Raises ``ZkgroupError`` unless the answers account for every planned offset."""
    found: dict[OffsetRange, RangeAnswer] = {}
    files: list[FileAnswer] = []
    for answer in answers:
        if isinstance(answer, FileAnswer):
            files.append(answer)
            continue
        piece = OffsetRange(TopicPartition(answer.topic, answer.partition), answer.start, answer.end)
        if piece in found:
            raise ZkgroupError(
                f"offsets {piece.start} to {piece.end - 1} of {piece.partition} came twice", "report this"
            )
        found[piece] = answer
    times: dict[TopicPartition, Period] = {}
    parts: list[RecordPart] = []
    for part in plan.partitions:
        # What is filled in lies before what is known as newest, and is not late for that.
        before = None if plan.kind == "backfill" else times.get(part.partition, plan.newest.get(part.partition))
        made, times[part.partition] = _assembled(plan, part, found, before)
        parts.append(made)
    if found:
        raise ZkgroupError(f"offsets came that nobody asked for: {next(iter(found))}", "report this")
    written = [_named(plan, file) for file in sorted(files, key=lambda file: (file.topic, file.slices, file.folder))]
    _refuse_unbalanced(plan, parts, written)
    return WrittenFiles(parts, written, times)


def _named(plan: RunPlan, file: FileAnswer) -> RecordFile:
    work = PurePath(file.work).name
    name = f"{file.folder}/{plan.layout.name(file.slices, plan.run, plan.topics[file.topic].tag)}"
    return RecordFile(work, name, file.topic, file.rows, file.bytes, file.slices, file.statistics)


def _assembled(
    plan: RunPlan, part: PartitionPlan, found: dict[OffsetRange, RangeAnswer], newest: Period
) -> tuple[RecordPart, Period]:
    answers: list[RangeAnswer] = []
    end = part.start
    for piece in _task_ranges(plan, part):
        answer = found.pop(piece, None)
        if answer is None or piece.start != end or not piece.start <= answer.reached <= piece.end:
            raise ZkgroupError(
                f"offsets {piece.start} to {piece.end - 1} of {piece.partition} are not all there", "report this"
            )
        answers.append(answer)
        end = answer.reached
    undecodable = sum(answer.undecodable for answer in answers)
    late, newest = late_of(((answer.late, answer.fresh) for answer in answers), newest)
    made = RecordPart(
        part.partition,
        part.committed,
        part.version,
        part.start,
        end,
        part.skipped,
        part.commits,
        part.again,
        rows=sum(answer.rows for answer in answers) - undecodable,
        undecodable=undecodable,
        gaps=total(answer.gaps for answer in answers),
        late=late,
    )
    if plan.max_bytes is None and end != part.end:
        raise ZkgroupError(f"offsets {end} to {part.end - 1} of {part.partition} are not there", "report this")
    return made, newest


def _refuse_unbalanced(plan: RunPlan, parts: Sequence[RecordPart], files: Sequence[RecordFile]) -> None:
    """Every offset of a part is a row, or a gap; and every row is in a file of that part."""
    counts = [sum(one.rows for _, one in ranges) for ranges in ranges_by_part(parts, files)]
    for part, rows in zip(parts, counts, strict=True):
        if not part.is_balanced or rows != part.rows + part.undecodable:
            start = part.start
            raise ZkgroupError(
                f"{part.partition}: {part.end - start} offsets from {start} on are {part.rows} messages, "
                f"{part.undecodable} undecodable ones and {dict(part.gaps)}, and the files hold {rows}: "
                "these do not add up",
                "report this",
            )
    if sum(counts) != sum(file.rows for file in files):
        raise ZkgroupError("files came with offsets that nobody asked for", "report this")
    folders: dict[tuple[str, int], list[tuple[int, int]]] = {}
    for file in files:
        for one in file.ranges:
            folders.setdefault((file.name.rpartition("/")[0], one.partition), []).append((one.start, one.end))
    if twice := next((key for key, ranges in folders.items() if overlaps(ranges)), None):
        raise ZkgroupError(f"{twice[0]}: two files hold the same offsets of partition {twice[1]}", "report this")
    names = [file.name for file in files]
    if len(set(names)) != len(names):
        raise ZkgroupError("two files have one name", "report this")


_GAPS: Mapping[str, str] = {
    "retention": "were deleted before they were read and are not exported (retention)",
    "unexplained": "are missing from the log, and nothing explains it: that is recorded (unexplained)",
}


def gap_notices(parts: Iterable[RecordPart], kind: Literal["retention", "unexplained"]) -> Iterator[str]:
    """Warnings about offsets that were missing from the log."""
    for part in parts:
        if count := part.gaps.get(kind):
            where = f"{part.start} to {part.end - 1}"
            yield f"{part.partition}: {counted(count, 'offset')} of {where} {_GAPS[kind]}"


def refuse_unexplained(parts: Iterable[RecordPart]) -> None:
    """Raise ``RefusedError`` where offsets are missing for no known reason."""
    bad = [part for part in parts if part.gaps.get("unexplained")]
    if bad:
        texts = [f"{part.partition}: {part.gaps['unexplained']} of {part.start} to {part.end - 1}" for part in bad]
        few = listed(texts, most=3)
        raise RefusedError(
            f"offsets are missing from the log, and neither transactions nor compaction explain it ({few})",
            "read the brokers' logs; --on-mismatch group exports what is there and records the gaps",
        )
