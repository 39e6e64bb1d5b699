"""An export, from the first look to the commit.

Plan → write → publish → commit. Until the first file is published nothing is there but files that no reader sees; until
the commit, what was published is taken back if anything goes wrong. Killed in between, an export leaves files that the
next one finds and refuses to write a second time.

The order of locks and looks: a first plan without any lock, so that an export with nothing to do changes nothing and
needs no Spark; then the group's lock, and a plan again, which is the one that counts.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import shutil
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from zkgroup import __version__
from zkgroup.errors import UnreachableError, UsageError, ZkgroupError
from zkgroup.export.group import ExportGroup
from zkgroup.export.output import OutputRun, check_destination, refuse_overlap
from zkgroup.export.plan import (
    RANGE_MESSAGES,
    Begin,
    Compression,
    ExportPlan,
    OffsetRange,
    WrittenFile,
    make_plan,
    pack,
)
from zkgroup.protocol.filters import TopicFilter
from zkgroup.protocol.names import TopicPartition, validate_group_id, validate_topic
from zkgroup.servers.kafka import KafkaSettings
from zkgroup.servers.registry import Registry

if TYPE_CHECKING:
    from zkgroup.export.task import DoneAnswer

log = logging.getLogger(__name__)

DEFAULT_TARGET_BYTES: Final = 512 << 20


@dataclass(frozen=True, slots=True)
class ExportRequest:
    """What to export, and how. Without ``topics`` and ``whitelist``: all topics that the group has offsets for.

    ``begin`` and ``skip_lost``: see ``make_plan``. ``master`` None: all cores of this machine. ``patience``: seconds
    without a message after which a task asks what is wrong. ``range_messages``: about how many one task reads.
    """

    group: str
    root: Path
    topics: tuple[str, ...] = ()
    whitelist: TopicFilter | None = None
    begin: Begin | None = None
    skip_lost: bool = False
    master: str | None = None
    conf: Mapping[str, str] = field(default_factory=dict)
    compression: Compression = "zstd"
    target_bytes: int = DEFAULT_TARGET_BYTES
    patience: float = 30.0
    range_messages: int = RANGE_MESSAGES


@dataclass(frozen=True, slots=True)
class PartitionSummary:
    """What became of one partition: offsets ``[start, end)`` were exported and ``end`` is committed."""

    topic: str
    partition: int
    start: int
    end: int
    rows: int
    bytes: int
    files: int


@dataclass(frozen=True, slots=True)
class Progress:
    """How far an export is: ``stage`` in words, and offsets done of all."""

    stage: str
    done: int
    total: int


def run_export(
    request: ExportRequest,
    registry: Registry,
    kafka: Callable[[], KafkaSettings],
    *,
    progress: Callable[[Progress], None] = lambda _: None,
    warn: Callable[[str], None] = lambda _: None,
) -> list[PartitionSummary]:
    """Export a group's messages from its committed offsets to the present ends, and commit these.

    One summary for each partition, also where there was nothing new. Raises ``UsageError`` for a destination or a Spark
    that cannot be used, ``NotFoundError``, ``RefusedError`` where the group is live, was moved meanwhile, or would lose
    data, ``UnreachableError``, and ``ZkgroupError`` for the rest. Whatever is raised, nothing is half done: what was
    published and is not committed has been taken back, unless the message says that nobody knows.
    """
    validate_group_id(request.group)
    for topic in request.topics:
        validate_topic(topic)
    check_destination(request.root)
    group = ExportGroup(registry, request.group, warn)
    progress(Progress("planning", 0, 0))
    plan = _plan(request, group, kafka(), registry.timeout)
    if not plan.moves:
        return _summaries(plan, {})
    if plan.ranges:
        _require_spark()
    run = f"{request.group}@{uuid.uuid4()}"
    with group.lock(run):
        settings = kafka()
        plan = _plan(request, group, settings, registry.timeout)
        refuse_overlap(request.root, plan.ranges)
        if not plan.ranges:
            group.commit(plan)
            return _summaries(plan, {})
        log.info("run %s: %d ranges of %d partitions", run, len(plan.ranges), len(plan.partitions))
        with OutputRun(request.root, run) as output:
            if removed := output.remove_leftovers():
                log.info("removed what %d killed exports left in %s", removed, request.root)
            written = _write(request, plan, settings, output, run, progress, warn)
            progress(Progress("publishing", plan.messages, plan.messages))
            if not registry.lost:
                _finish(group, plan, output, written)
            else:
                with Registry(registry.settings, registry.timeout) as fresh:
                    again = ExportGroup(fresh, request.group, warn)
                    with again.lock(run):
                        _finish(again, plan, output, written)
    return _summaries(plan, written)


def _plan(request: ExportRequest, group: ExportGroup, kafka: KafkaSettings, timeout: float) -> ExportPlan:
    topics = group.select_topics(request.topics, request.whitelist)
    group.refuse_if_live()
    return make_plan(
        request.group,
        group.facts(topics, kafka, timeout),
        begin=request.begin,
        skip_lost=request.skip_lost,
        range_messages=request.range_messages,
    )


def _require_spark() -> None:
    """Raise ``UsageError`` where Spark cannot run: found out without importing it."""
    missing = [name for name in ("pyspark", "pyarrow") if importlib.util.find_spec(name) is None]
    if missing:
        raise UsageError(f"export needs {' and '.join(missing)}", "pip install 'zkgroup[export]'")
    home = os.environ.get("JAVA_HOME")
    java = Path(home, "bin", "java") if home else shutil.which("java")
    if java is None or not os.access(java, os.X_OK):
        where = f"JAVA_HOME ({home})" if home else "PATH"
        raise UsageError(f"export runs on Spark, which needs Java: none in {where}", "install Java 17 or later")


def _write(
    request: ExportRequest,
    plan: ExportPlan,
    kafka: KafkaSettings,
    output: OutputRun,
    run: str,
    progress: Callable[[Progress], None],
    warn: Callable[[str], None],
) -> dict[TopicPartition, list[WrittenFile]]:
    """Have Spark write the plan's ranges to temporary files, all of them."""
    # Only now: pyspark takes 0.1 s, and an export that finds nothing new does without.
    from zkgroup.export.files import FileOptions
    from zkgroup.export.spark import DEFAULT_MASTER, SparkJobs
    from zkgroup.export.task import TaskSettings

    metadata = {"zkgroup.run": run, "zkgroup.group": request.group, "zkgroup.version": __version__}
    options = FileOptions(str(output.folder), request.compression, request.target_bytes, metadata)
    done = 0

    def tell(answer: DoneAnswer) -> None:
        nonlocal done
        _, _, _, start, end, _, _ = answer
        done += end - start
        progress(Progress("exporting", done, plan.messages))

    progress(Progress("starting Spark", 0, plan.messages))
    with SparkJobs(request.master or DEFAULT_MASTER, request.conf) as spark:
        progress(Progress("exporting", 0, plan.messages))
        tasks = pack(plan.ranges, request.range_messages)
        answers = spark.run(TaskSettings(kafka, options, request.patience), tasks, tell)
    for _, topic, partition, _, _, _, hole in answers:
        if hole is not None:
            name = TopicPartition(topic, partition)
            warn(f"{name}: the log has nothing any more at offsets {hole[0]} to {hole[1] - 1}")
    return gather(plan.ranges, answers)


def gather(ranges: Iterable[OffsetRange], answers: Sequence[DoneAnswer]) -> dict[TopicPartition, list[WrittenFile]]:
    """The files of each partition, in order. Raises ``ZkgroupError`` unless they stand for exactly ``ranges``."""
    found: dict[OffsetRange, list[WrittenFile]] = {}
    for _, topic, partition, start, end, files, _ in answers:
        piece = OffsetRange(TopicPartition(topic, partition), start, end)
        if piece in found:
            raise ZkgroupError(f"offsets {start} to {end - 1} of {piece.partition} came twice", "report this")
        found[piece] = [WrittenFile(*file) for file in files]
    written: dict[TopicPartition, list[WrittenFile]] = {}
    for piece in ranges:
        files_of = found.pop(piece, None)
        position = piece.start
        for file in files_of or ():
            if file.start != position:
                break
            position = file.end
        if files_of is None or (files_of and position != piece.end):
            what = f"offsets {piece.start} to {piece.end - 1} of {piece.partition}"
            raise ZkgroupError(f"{what} are not all there", "report this")
        written.setdefault(piece.partition, []).extend(files_of)
    if found:
        raise ZkgroupError(f"offsets came that nobody asked for: {next(iter(found))}", "report this")
    return written


def _finish(
    group: ExportGroup, plan: ExportPlan, output: OutputRun, written: Mapping[TopicPartition, Sequence[WrittenFile]]
) -> None:
    """Publish and commit; what is published and not committed in the end is taken back."""
    group.refuse_if_moved(plan)
    try:
        for partition, files in written.items():
            for file in files:
                output.publish(partition, file)
        output.settle()
    except BaseException:
        output.withdraw()
        raise
    try:
        group.commit(plan)
    except BaseException as error:
        try:
            output.withdraw(keep=group.committed(plan))
        except UnreachableError:
            raise ZkgroupError(
                f"the files are in place, but whether group {group.group} was committed cannot be told ({error})",
                "look at the group's offsets: where they do not stand behind the files, remove the files",
            ) from None
        raise


def _summaries(plan: ExportPlan, written: Mapping[TopicPartition, Sequence[WrittenFile]]) -> list[PartitionSummary]:
    rows: list[PartitionSummary] = []
    for part in plan.partitions:
        files = written.get(part.partition, ())
        rows.append(
            PartitionSummary(
                part.partition.topic,
                part.partition.partition,
                part.start,
                part.end,
                sum(file.rows for file in files),
                sum(file.bytes for file in files),
                len(files),
            )
        )
    return rows
