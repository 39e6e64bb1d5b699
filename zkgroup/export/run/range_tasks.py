"""A run's ranges, read and written: the settings of tasks, and their answers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from zkgroup import __version__
from zkgroup.clients.kafka.client import KafkaSettings
from zkgroup.clients.kafka.log_offsets import LogRange, log_offsets
from zkgroup.clients.kafka.range_reader import describe_deleted
from zkgroup.errors import OffsetsDeletedError, RefusedError, UnreachableError
from zkgroup.export.destination.run_log import Destination
from zkgroup.export.model.layout import parse_compression
from zkgroup.export.model.plan_types import PartitionPlan
from zkgroup.export.model.run_record import RunPlan
from zkgroup.export.planning.export_plan import pack, task_size
from zkgroup.export.run.assembly import WrittenFiles, assemble, ranges_of
from zkgroup.export.run.run_context import Progress, RunContext
from zkgroup.export.tasks.task_data import DoneAnswer, FileAnswer, FileOptions, TaskSettings
from zkgroup.protocol.names import TopicPartition
from zkgroup.text import listed

_SHOWN: Final = 3  # partitions in a message
_DELETED: Final = "run it again: it asks with --on-mismatch how to continue"


def write_ranges(plan: RunPlan, destination: Destination, context: RunContext) -> WrittenFiles:
    """Have a run's ranges read and written, to files in the run's folder."""
    total = sum(part.end - part.start for part in plan.partitions)
    if not total:
        return assemble(plan, [])
    options = _file_options(plan, destination, is_shared=context.member is None)
    destination.store.prepare(options.folder)
    context.passed("folder made")
    kafka = context.kafka().with_isolation(plan.isolation)
    ranges = ranges_of(plan)
    share = None if plan.max_bytes is None else max(1, plan.max_bytes // max(1, len(ranges)))
    cleanup = {topic: identity.cleanup for topic, identity in plan.topics.items()}
    settings = TaskSettings(kafka.portable(), options, context.silence_timeout, cleanup, share, plan.records_gaps)
    done = size = 0

    def on_answer(answer: DoneAnswer) -> None:
        nonlocal done, size
        if isinstance(answer, FileAnswer):
            size += answer.bytes
        else:
            # An executor that is lost after its task makes Spark repeat it, and report it twice.
            done = min(total, done + answer.end - answer.start)
        context.progress(Progress("exporting", done, total, size))

    context.progress(Progress("starting Spark", 0, total))
    with context.runner() as runner:
        context.passed("runner started")
        context.progress(Progress("exporting", 0, total))
        tasks = pack(ranges, task_size(total, plan.range_messages), runner.cores)
        try:
            answers = runner.run(settings, tasks, on_answer)
        except OffsetsDeletedError as error:
            raise RefusedError(_overtaken(plan, kafka, context.silence_timeout) or error.message, _DELETED) from None
    context.passed("files written")
    return assemble(plan, answers)


def _file_options(plan: RunPlan, destination: Destination, *, is_shared: bool) -> FileOptions:
    """What is to be known of the files. A member may lose one partition and keep another: it shares no files."""
    return FileOptions(
        destination.store.address,
        destination.work(plan.group, plan.run),
        parse_compression(plan.compression),
        plan.target_bytes,
        {
            "zkgroup.run": f"{plan.group}@{plan.run}",
            "zkgroup.group": plan.group,
            "zkgroup.version": __version__,
        },
        plan.layout,
        plan.schemas,
        plan.planned,
        shared=is_shared,
        only=_only(plan),
        cuts=_cuts(plan),
    )


def _overtaken(plan: RunPlan, kafka: KafkaSettings, timeout: float) -> str:
    """The planned offsets of all partitions that retention has deleted, in words. Empty if no broker answers."""
    parts = [part for part in plan.partitions if part.start < part.end]
    try:
        logs = log_offsets(kafka, sorted({part.partition for part in parts}), timeout)
    except UnreachableError:
        return ""
    starts = {partition: found.start for partition, found in logs.items() if isinstance(found, LogRange)}
    return describe_overtaken(parts, starts)


def describe_overtaken(parts: Iterable[PartitionPlan], starts: Mapping[TopicPartition, int]) -> str:
    """What logs that begin at ``starts`` have no more of what was planned, in words; none where it is all there."""
    gone = [
        describe_deleted(part.partition, part.start, part.end, low)
        for part in parts
        if part.start < min(low := starts.get(part.partition, 0), part.end)
    ]
    return listed(gone, "; ", most=_SHOWN)


def _cuts(plan: RunPlan) -> dict[TopicPartition, list[int]]:
    """Where the parts of partitions that have several begin."""
    found: dict[TopicPartition, list[int]] = {}
    for part in plan.partitions:
        found.setdefault(part.partition, []).append(part.start)
    return {partition: starts for partition, starts in found.items() if len(starts) > 1}


def _only(plan: RunPlan) -> dict[TopicPartition, list[tuple[str, int, int]]]:
    """What is to be written where only what was lost is; in folders without times that is all that is read."""
    found: dict[TopicPartition, list[tuple[str, int, int]]] = {}
    for part in plan.partitions if plan.layout.timed else ():
        for lost in part.again:
            found.setdefault(part.partition, []).append((lost.folder, lost.start, lost.end))
    return found
