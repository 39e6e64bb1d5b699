"""A run's ranges, read and written: what tasks are told, and what became of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import cast

from zkgroup import __version__
from zkgroup.errors import OffsetOutOfRangeError, RefusedError, UnreachableError
from zkgroup.export.lake.lake import Lake
from zkgroup.export.model.documents import encode_log
from zkgroup.export.model.layout import Period, parse_compression
from zkgroup.export.model.rundata import RunPlan
from zkgroup.export.model.words import PartitionPlan
from zkgroup.export.planning.plan import pack, task_size
from zkgroup.export.runs.assembling import Written, assemble, ranges_of
from zkgroup.export.runs.surroundings import Progress
from zkgroup.export.runs.under_way import UnderWay
from zkgroup.export.tasks.taskdata import DoneAnswer, FileAnswer, FileOptions, RangeAnswer, TaskSettings
from zkgroup.protocol.names import TopicPartition
from zkgroup.servers.kafka import KafkaSettings
from zkgroup.servers.logs import LogRange, log_offsets
from zkgroup.servers.ranges import what_is_gone
from zkgroup.words import listed

_SHOWN = 3  # partitions that a message tells of
_GONE = (
    "run {} again, which does as --on-expired says of what is gone: earliest (or --skip-lost) exports what is left and "
    "records the rest"
)


def write_ranges(run: UnderWay) -> Written:
    """Have a run's ranges read and written, to files of this attempt."""
    plan, lake, having = run.plan, run.lake, run.surroundings
    total = sum(part.end - part.start for part in plan.partitions)
    newest = _newest(plan, lake)
    if not total:
        return assemble(plan, [], newest)
    options = _options(run)
    lake.store.prepare(options.folder)
    having.passed("folder made")
    kafka = having.kafka()
    kafka = replace(kafka, properties={**kafka.properties, "isolation.level": plan.isolation})
    ranges = ranges_of(plan)
    share = None if plan.max_bytes is None else max(1, plan.max_bytes // max(1, len(ranges)))
    cleanup = {topic: identity.cleanup for topic, identity in plan.topics.items()}
    settings = TaskSettings(kafka.portable(), options, having.patience, cleanup, share, plan.skip_deleted)
    done = size = 0

    def tell(answer: DoneAnswer) -> None:
        nonlocal done, size
        if answer.kind == "file":
            size += cast("FileAnswer", answer).bytes
        else:
            told = cast("RangeAnswer", answer)
            # An executor that is lost after its task makes Spark repeat it, and tell of it twice.
            done = min(total, done + told.end - told.start)
        having.progress(Progress("exporting", done, total, size))

    having.progress(Progress("starting Spark", 0, total))
    with having.runner() as runner:
        having.passed("runner started")
        having.progress(Progress("exporting", 0, total))
        tasks = pack(ranges, task_size(total, plan.range_messages), runner.cores)
        try:
            answers = runner.run(settings, tasks, tell)
        except OffsetOutOfRangeError as error:
            gone = _overtaken(plan, kafka, having.patience) or error.message
            # Also where an export that is none has gone on with it.
            raise RefusedError(gone, _GONE.format("the backfill" if plan.kind == "backfill" else "it")) from None
    having.passed("files written")
    return assemble(plan, answers, newest)


def _options(run: UnderWay) -> FileOptions:
    """What is to be known of the files."""
    plan = run.plan
    return FileOptions(
        run.lake.store.destination,
        f"{run.folder}/{run.claim.attempt}",
        parse_compression(plan.compression),
        plan.target_bytes,
        {
            "zkgroup.run": f"{plan.group}@{plan.run}",
            "zkgroup.group": plan.group,
            "zkgroup.version": __version__,
        },
        plan.layout,
        plan.planned,
        shared=run.surroundings.member is None,  # a member may lose one partition, and keep another
        only=_only(plan),
        cuts=_cuts(plan),
        logs={topic: encode_log(plan.cluster, identity) for topic, identity in plan.topics.items()},
    )


def _newest(plan: RunPlan, lake: Lake) -> dict[TopicPartition, Period]:
    """The newest periods that the lake has of the plan's logs."""
    known = lake.last(plan.group).coverage
    return {
        TopicPartition(topic, number): period
        for topic, identity in plan.topics.items()
        if topic in known and known[topic].identity.same(identity)
        for number, period in known[topic].newest.items()
    }


def _overtaken(plan: RunPlan, kafka: KafkaSettings, timeout: float) -> str:
    """What retention took of the plan, in words: of all its partitions, not only of those that tasks have met. None
    where brokers do not tell."""
    parts = [part for part in plan.partitions if part.start < part.end]
    try:
        logs = log_offsets(kafka, sorted({part.partition for part in parts}), timeout)
    except UnreachableError:
        return ""
    starts = {partition: found.start for partition, found in logs.items() if isinstance(found, LogRange)}
    return overtaken(parts, starts)


def overtaken(parts: Iterable[PartitionPlan], starts: Mapping[TopicPartition, int]) -> str:
    """What logs that begin at ``starts`` have no more of what was planned, in words; none where it is all there."""
    gone = [
        what_is_gone(part.partition, part.start, part.end, low)
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
