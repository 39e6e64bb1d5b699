"""A run's ranges: cut for tasks, read and written, and put together to the parts and files of a record; refused where
an offset is missing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from zkgroup.errors import RefusedError, ZkgroupError
from zkgroup.export.destination.run_log import Destination
from zkgroup.export.model.accounting import Interval, overlaps, total
from zkgroup.export.model.layout import Period, parse_compression
from zkgroup.export.model.plan_types import OffsetRange, PartitionPlan, RecordFile
from zkgroup.export.model.run_record import RANGE_MESSAGES, RecordPart, ranges_by_part
from zkgroup.export.planning.notices import GapNotice
from zkgroup.export.run.planner import RunPlan
from zkgroup.export.run.run_context import Progress, RunContext
from zkgroup.export.tasks.task_data import DoneAnswer, FileOptions, RangeAnswer, TaskSettings, late_of
from zkgroup.protocol.names import TopicPartition
from zkgroup.text import counted, listed


@dataclass(frozen=True, slots=True)
class WrittenFiles:
    """The parts and files that tasks have written; ``times``: the newest period of each partition."""

    parts: list[RecordPart]
    files: list[RecordFile]
    times: Mapping[TopicPartition, Period]


def _task_ranges(plan: RunPlan, part: PartitionPlan) -> list[OffsetRange]:
    """A part in pieces; with a limit of bytes it is one piece, which may end anywhere."""
    size = plan.request.range_messages if plan.request.max_bytes is None else 1 << 62
    return cut(part.partition, part.start, part.end, size)


class AccountError(ZkgroupError):
    """What tasks have read is not what was planned, or does not add up."""

    def __init__(self, what: object) -> None:
        super().__init__(f"the account of what tasks have read is wrong: {what}", "report this")


def assemble(plan: RunPlan, answers: Sequence[DoneAnswer]) -> WrittenFiles:
    """The record's parts and files. Raises ``AccountError`` unless the answers account for every planned offset."""
    files = [answer for answer in answers if isinstance(answer, RecordFile)]
    files.sort(key=lambda file: (file.topic, file.ranges, file.name))
    ranges = [answer for answer in answers if isinstance(answer, RangeAnswer)]
    found = {one.piece: one for one in ranges}
    wanted = {piece for part in plan.partitions for piece in _task_ranges(plan, part)}
    if len(found) < len(ranges) or found.keys() != wanted:
        raise AccountError(f"ranges came twice, or not all, or others: {next(iter(found.keys() ^ wanted), None)}")
    times: dict[TopicPartition, Period] = {}
    parts: list[RecordPart] = []
    for part in plan.partitions:
        # What is filled in lies before what is known as newest, and is not late for that.
        before = None if plan.request.backfill else times.get(part.partition, plan.newest.get(part.partition))
        made, times[part.partition] = _assembled(plan, part, found, before)
        parts.append(made)
    _refuse_unbalanced(parts, files)
    return WrittenFiles(parts, files, times)


def _assembled(
    plan: RunPlan, part: PartitionPlan, found: Mapping[OffsetRange, RangeAnswer], newest: Period
) -> tuple[RecordPart, Period]:
    answers = [found[piece] for piece in _task_ranges(plan, part)]
    end = part.start
    for answer in answers:
        if answer.piece.start != end or not end <= answer.reached <= answer.piece.end:
            raise AccountError(answer)
        end = answer.reached
    if plan.request.max_bytes is None and end != part.end:
        raise AccountError(f"{part.partition} was read to {end} only")
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
    return made, newest


def _refuse_unbalanced(parts: Sequence[RecordPart], files: Sequence[RecordFile]) -> None:
    """Every offset of a part is a row, or a gap; and every row is in a file of that part."""
    counts = [sum(one.rows for _, one in ranges) for ranges in ranges_by_part(parts, files)]
    for part, rows in zip(parts, counts, strict=True):
        if not part.is_balanced or rows != part.rows + part.undecodable:
            raise AccountError(f"{part}, with {rows} rows in files")
    if sum(counts) != sum(file.rows for file in files):
        raise AccountError("files came with offsets that nobody asked for")
    folders: dict[tuple[str, int], list[Interval]] = {}
    for file in files:
        for one in file.ranges:
            folders.setdefault((file.name.rpartition("/")[0], one.partition), []).append((one.start, one.end))
    for (folder, number), ranges in folders.items():
        if overlaps(ranges):
            raise AccountError(f"two files in {folder} hold the same offsets of partition {number}")


_GAPS: Mapping[str, str] = {
    "retention": "were deleted before they were read and are not exported (retention)",
    "unexplained": "are missing from the log, and nothing explains it: that is recorded (unexplained)",
}


def gap_notices(parts: Iterable[RecordPart], kind: Literal["retention", "unexplained"]) -> Iterator[GapNotice]:
    """Warnings about offsets that were missing from the log."""
    for part in parts:
        if count := part.gaps.get(kind):
            text = f"{part.partition}: {counted(count, 'offset')} of {part.start} to {part.end - 1} {_GAPS[kind]}"
            yield GapNotice(text, partition=part.partition, start=part.start, end=part.end, count=count, kind=kind)


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


def write_ranges(plan: RunPlan, destination: Destination, context: RunContext) -> WrittenFiles:
    """Have a run's ranges read and written, to files in the run's folder."""
    total = sum(part.end - part.start for part in plan.partitions)
    if not total:
        return assemble(plan, [])
    options = _file_options(plan, destination, is_shared=context.member is None)
    destination.store.prepare(options.folder)
    context.on_point("folder made")
    kafka = context.kafka().with_isolation(plan.isolation)
    ranges = [piece for part in plan.partitions for piece in _task_ranges(plan, part)]
    share = None if plan.request.max_bytes is None else max(1, plan.request.max_bytes // max(1, len(ranges)))
    cleanup = {topic: identity.cleanup for topic, identity in plan.topics.items()}
    settings = TaskSettings(kafka.portable(), options, cleanup, share, plan.request.records_gaps)
    done = size = 0

    def on_answer(answer: DoneAnswer) -> None:
        nonlocal done, size
        if isinstance(answer, RecordFile):
            size += answer.bytes
        else:
            # An executor that is lost after its task makes Spark repeat it, and report it twice.
            done = min(total, done + answer.piece.end - answer.piece.start)
        context.on_progress(Progress("exporting", done, total, size))

    context.on_progress(Progress("starting Spark", 0, total))
    with context.runner() as runner:
        context.on_point("runner started")
        context.on_progress(Progress("exporting", 0, total))
        # Several ranges a task where there are very many, for larger files.
        size_of_task = max(plan.request.range_messages, min(_RANGES * plan.request.range_messages, total // _TASKS))
        tasks = pack(ranges, size_of_task, runner.cores)
        answers = runner.run(settings, tasks, on_answer)
    context.on_point("files written")
    return assemble(plan, answers)


def _file_options(plan: RunPlan, destination: Destination, *, is_shared: bool) -> FileOptions:
    """What is to be known of the files. A member may lose one partition and keep another: it shares no files."""
    only: dict[TopicPartition, list[tuple[str, int, int]]] = {}  # without times all that is read is to be written
    cuts: dict[TopicPartition, list[int]] = {}
    for part in plan.partitions:
        cuts.setdefault(part.partition, []).append(part.start)
        if part.again and plan.layout.is_timed:
            only.setdefault(part.partition, []).extend((lost.folder, lost.start, lost.end) for lost in part.again)
    return FileOptions(
        destination.store.address,
        destination.work(plan.group, plan.run),
        parse_compression(plan.request.compression),
        plan.request.target_bytes,
        plan.group,
        plan.run,
        plan.layout,
        plan.schemas,
        plan.planned,
        shared=is_shared,
        only=only,
        cuts={partition: starts for partition, starts in cuts.items() if len(starts) > 1},
        tags={topic: identity.tag for topic, identity in plan.topics.items()},
    )


# What opening a range costs, counted in messages: many small ranges share a task.
_RANGE_COST: Final = 20_000
# A task that is smaller is not worth another core, and another file for each folder.
_LEAST_TASK: Final = 100_000
# Only from so many tasks on do they grow, and up to so many ranges each.
_TASKS: Final = 256
_RANGES: Final = 16


def cut(partition: TopicPartition, start: int, end: int, size: int) -> list[OffsetRange]:
    """Cut ``[start, end)`` into the fewest ranges of at most ``size`` offsets, all about equally long."""
    count = -(-(end - start) // size)
    edges = [start + (end - start) * i // count for i in range(count)] if count else []
    return [OffsetRange(partition, a, b) for a, b in zip(edges, [*edges[1:], end], strict=True)] if edges else []


def pack(ranges: Sequence[OffsetRange], size: int = RANGE_MESSAGES, cores: int = 1) -> list[list[OffsetRange]]:
    """Deal ranges out to tasks: large ones alone, small ones together, in their order. What fewer tasks than ``cores``
    would hold is dealt out to all of them, unless it is little."""
    whole = sum(piece.end - piece.start + _RANGE_COST for piece in ranges)
    size = min(size, max(_LEAST_TASK, -(-whole // cores)))
    tasks: list[list[OffsetRange]] = []
    room = 0
    for piece in ranges:
        cost = piece.end - piece.start + _RANGE_COST
        if not tasks or cost > room:
            tasks.append([])
            room = size
        tasks[-1].append(piece)
        room -= cost
    return tasks
