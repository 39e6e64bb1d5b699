"""An export, from its first plan to the commit.

It plans without the lock first, so that an export with nothing to do changes nothing and needs no Spark. Then it takes
the group's claim and plans again: that plan counts. A decided run is finished, and ends the export.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from zkgroup.clients.kafka.client import KafkaSettings
from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.errors import NotFoundError, Notice, RefusedError, UsageError, ZkgroupError
from zkgroup.export.destination.run_log import Destination, read_owners, refuse_owned, replace_owner
from zkgroup.export.model.layout import Layout, parse_compression
from zkgroup.export.model.plan_types import ExportPlan, OffsetRange
from zkgroup.export.model.run_record import RunRecord
from zkgroup.export.planning.export_request import ExportRequest, refuse_backwards
from zkgroup.export.planning.group_state import GroupState, read_committed
from zkgroup.export.planning.mismatch import NoOffsetError
from zkgroup.export.planning.notices import part_notices, plan_notices, rewrite_notices
from zkgroup.export.run.claim import ExportClaim, read_pointer
from zkgroup.export.run.planner import Planner
from zkgroup.export.run.publication import (
    changed_tables,
    is_in_no_table,
    missing_files,
    publish_existing,
    remove_leftovers,
)
from zkgroup.export.run.run_context import PartitionSummary, Progress, RunContext, summarize
from zkgroup.export.run.run_states import DecidedRun, PlannedRun
from zkgroup.export.spark.spark_properties import choose_master, refuse_if_silent, refuse_log_elsewhere
from zkgroup.export.stores.store import open_store, require
from zkgroup.groups.changes.export_znodes import Pointer
from zkgroup.java_runtime import find_java
from zkgroup.protocol.names import TopicPartition, validate_group_id, validate_topic
from zkgroup.text import listed

if TYPE_CHECKING:
    from zkgroup.config import ConsumerConfig
    from zkgroup.export.spark.spark_context import SparkJobs

__all__ = ["ExportRequest", "PartitionSummary", "Progress", "run_export"]

log = logging.getLogger(__name__)


def run_export(
    request: ExportRequest,
    registry: Registry,
    kafka: Callable[[], KafkaSettings],
    *,
    on_progress: Callable[[Progress], None] = lambda _: None,
    on_warning: Callable[[Notice], None] = lambda _: None,
    on_point: Callable[[str], None] = lambda _: None,
    runner: Callable[[], AbstractContextManager[SparkJobs]] | None = None,
) -> list[PartitionSummary]:
    """Export a group's messages from its committed offsets to the present ends, and commit these.

    A decided run that was not finished is finished instead. One summary for each partition, also where there was
    nothing new. ``on_point`` is called at every point of the protocol; ``runner`` runs the tasks, Spark if it is not
    given.

    Raises ``UsageError`` for a destination or a Spark that cannot be used, ``NotFoundError``, ``RefusedError`` where
    the group is active or was moved meanwhile, a topic belongs to another group, or data would be lost
    (``MismatchError``: where group and destination disagree), ``UnreachableError``, and ``ZkgroupError`` for the rest.
    What is raised before the decision leaves nothing behind; after it, the same command finishes the run.
    """
    validate_group_id(request.group)
    if request.join is not None and request.backfill:
        raise UsageError("--backfill never moves the group: it needs no --join", "leave --join out")
    refuse_backwards(request.begin, request.until)
    parse_compression(request.compression)
    for topic in request.topics:
        validate_topic(topic)

    def pass_point(point: str) -> None:
        log.info("passed: %s", point)
        on_point(point)

    own = partial(_open_spark, request)
    context = RunContext(kafka, runner or own, on_progress, on_warning, pass_point)
    return _Export(request, registry, context, has_own_spark=runner is None).run()


class _Export:
    def __init__(self, request: ExportRequest, registry: Registry, context: RunContext, *, has_own_spark: bool) -> None:
        self._request = request
        self._registry = registry
        self._destination = Destination(open_store(request.root))
        self._planner = Planner(request, self._destination, context.kafka, context.on_warning)
        self._context = context
        self._has_own_spark = has_own_spark

    def run(self) -> list[PartitionSummary]:
        request, context = self._request, self._context
        if request.abandon:
            with ExportClaim(self._registry, request.group, context.on_warning) as claim:
                abandon(claim, self._destination, context)
            return []
        self._destination.store.check()
        context.on_progress(Progress("planning", 0, 0))
        pointer, _ = read_pointer(self._registry, request.group)
        if pointer is None and not self._destination.leftover_runs(request.group):
            newest = self._destination.newest_run(request.group)
            try:
                planned = self._planner.plan(self._registry)
            except RefusedError as error:
                # Other members commit as they give partitions up. During an export that has just ended, group and
                # destination do not seem to agree.
                is_outdated = self._destination.newest_run(request.group) != newest
                if not (isinstance(error, NoOffsetError) and request.join) and not is_outdated:
                    raise
                self._require_spark()
            else:
                if planned.run is None:
                    self._planner.warn_all(plan_notices(planned.plan))
                    return self._summarize(planned.plan, None, planned.layout)
                if planned.plan.reads:
                    self._require_spark()
        with ExportClaim(self._registry, request.group, context.on_warning) as claim, ExitStack() as stack:
            context.on_point("locked")
            pointer, _ = claim.persist(claim.pointer)
            if pointer is not None and pointer.state == "decided":
                rows = self._finish(claim, pointer)
            else:
                # The process that has planned it cannot decide from here on.
                if pointer is not None and claim.drop(pointer):
                    self._destination.store.remove(self._destination.work(request.group, pointer.run))
                claim.persist(lambda: remove_leftovers(self._destination, request.group, context))
                if request.join is not None:
                    self._join(stack, claim.registry, request.join)
                if request.take_over is not None:
                    self._take_over(claim, request.take_over)
                rows = self._export(claim)
        context.on_point("unlocked")
        return rows

    def _export(self, claim: ExportClaim) -> list[PartitionSummary]:
        planner, context = self._planner, self._context
        planned = claim.persist(lambda: planner.plan(claim.registry, context.member), asks_brokers=True)
        plan, run = planned.plan, planned.run
        planner.warn_all(plan_notices(plan))
        if run is None:
            return self._summarize(plan, None, planned.layout)
        planner.warn_all(part_notices(run.partitions))
        if plan.reads:
            self._require_spark()
        log.info("run %s: %d partitions", run.run, len(plan.partitions))
        record = PlannedRun(claim, self._destination, run, context).carry_out()
        planner.warn_all(rewrite_notices(record.partitions))
        return self._summarize(plan, record, record.layout)

    def _finish(self, claim: ExportClaim, pointer: Pointer) -> list[PartitionSummary]:
        run = DecidedRun.find(claim, self._destination, pointer, self._context)
        record = run.record
        if self._request.backfill and record.kind == "export":
            raise RefusedError(
                f"{run} was decided and has to be finished first: that moves the group, and a backfill never does",
                "run the export again without --backfill, then this",
            )
        self._context.on_warning(Notice(f"finishing {run}, which was decided: the next export takes what is new"))
        return self._summarize(None, run.finish(is_found=True), record.layout)

    def _summarize(self, plan: ExportPlan | None, record: RunRecord | None, layout: Layout) -> list[PartitionSummary]:
        return summarize(plan, record, layout, self._destination.store.uri)

    def _take_over(self, claim: ExportClaim, other: str) -> None:
        """Own the topics that another group has owned so far, unless an export of it is under way."""
        request, destination = self._request, self._destination
        state = GroupState(claim.registry, request.group, self._context.on_warning)
        clusters = state.clusters()
        owners = read_owners(destination, state.select_topics(request.topics, request.whitelist))
        topics = refuse_owned(destination, owners, request.group, clusters, other)
        for topic in topics:
            for owner in [one for one in owners[topic] if one.group == other and not one.is_former]:
                self._refuse_under_way(claim, other)
                replace_owner(destination, topic, owner, request.group, clusters[0])
        if topics:
            self._refuse_under_way(claim, other)  # it may have begun before it could see that
            self._context.on_warning(Notice(f"group {request.group} takes over {listed(topics)} from group {other}"))

    @staticmethod
    def _refuse_under_way(claim: ExportClaim, other: str) -> None:
        if read_pointer(claim.registry, other)[0] is not None:
            raise RefusedError(
                f"an export of group {other} is under way or unfinished",
                f"finish it first: run the export of group {other} again, or end it there with --abandon",
            )

    def _join(self, stack: ExitStack, registry: Registry, config: ConsumerConfig) -> None:
        from zkgroup.export.run.export_member import ExportMember

        topics = GroupState(registry, self._request.group, self._planner.warn_once).select_topics(
            self._request.topics, self._request.whitelist
        )
        config = replace(config, group_id=self._request.group, auto_commit_enable=False)
        member = stack.enter_context(ExportMember(config, registry, self._context.kafka(), list(topics)))
        self._context.on_point("joined")
        self._context = replace(self._context, member=member)

    def _require_spark(self) -> None:
        """Raise ``UsageError`` where Spark cannot run: found out without importing it."""
        if not self._has_own_spark:
            return
        require("pyspark", "pyarrow")
        find_java()
        refuse_log_elsewhere(self._request.log, os.environ)
        refuse_if_silent(choose_master(self._request.master, self._request.conf))


def _open_spark(request: ExportRequest) -> SparkJobs:
    # pyspark takes 0.1 s, and an export that finds nothing new does without.
    try:
        from zkgroup.export.spark.spark_context import SparkJobs
    except ImportError as error:  # which is there, and is another one
        raise UsageError(
            f"the pyspark that Python finds here does not do: {error}",
            "install pyspark 4.0 or later; PYTHONPATH, or spark-submit, may bring another one",
        ) from None
    return SparkJobs(request.master, request.conf, timeout=request.spark_timeout, log=request.log)


@dataclass(frozen=True, slots=True, kw_only=True)
class AbandonNotice(Notice):
    """A ``run`` is given up. ``lost``: of its offsets those that the group has passed, None where it has too many
    partitions to know."""

    run: str
    lost: tuple[OffsetRange, ...] | None


def abandon(claim: ExportClaim, destination: Destination, context: RunContext) -> None:
    """Give up a group's unfinished run, whose destination is lost, and name what is given up: offsets that the group
    has passed already. Raises ``NotFoundError`` where there is none, ``RefusedError`` where it can be finished; not
    where no table has it, perhaps for good, and the group has passed none of it."""
    pointer, _ = claim.persist(claim.pointer)
    if pointer is None:
        raise NotFoundError(f"no export of group {claim.group} is unfinished", "there is nothing to abandon")
    logged: RunRecord | None = None
    passed_offsets = _passed_offsets(claim, pointer)
    is_needless = False
    if pointer.state == "decided":
        try:
            run = DecidedRun.find(claim, destination, pointer, context)
            can_be_finished = not missing_files(destination, run.record) and not changed_tables(destination, run.record)
            if can_be_finished and not passed_offsets and pointer.offsets is not None:
                is_needless = is_in_no_table(destination, run.record)
            logged = run.record if destination.is_logged(claim.group, pointer.run) and not is_needless else None
        except UsageError:  # its tables may have it
            raise
        except ZkgroupError as error:
            log.info("abandoning run %s: %s", pointer.run, error)
            can_be_finished = False
            if pointer.output != destination.store.uri:
                raise RefusedError(
                    f"run {pointer.run} of group {claim.group} was exported to {pointer.output}, and is not in "
                    f"{destination}",
                    f"--to {pointer.output} --abandon gives it up, if that is lost",
                ) from None
        if can_be_finished and not is_needless:
            raise RefusedError(
                f"run {pointer.run} of group {claim.group} is whole in {destination}",
                "run the export again, without --abandon: that finishes it",
            )
    if not claim.drop(pointer):
        raise claim.taken_over(claim.pointer()[0])
    if logged is not None:  # its record stays, and what it has published
        publish_existing(destination, logged, context)
        destination.store.remove(destination.work(claim.group, pointer.run))
        return
    if is_needless:
        destination.store.remove(destination.work(claim.group, pointer.run))
    what = f"run {pointer.run} of group {claim.group} to {pointer.output} is given up"
    if pointer.state == "decided" and pointer.offsets is None:
        what += ": it has too many partitions to name those whose messages are lost with it"
    elif passed_offsets:
        texts = [f"{lost.partition} offsets {lost.start} to {lost.end - 1}" for lost in passed_offsets]
        what += f", with messages that the group has passed: {listed(texts, '; ', most=100)}"
    else:
        what += "; the group has passed none of it, so the next export reads its messages again"
    is_known = pointer.state != "decided" or pointer.offsets is not None
    context.on_warning(AbandonNotice(what, run=pointer.run, lost=tuple(passed_offsets) if is_known else None))


def _passed_offsets(claim: ExportClaim, pointer: Pointer) -> list[OffsetRange]:
    ranges = {
        TopicPartition(topic, number): interval
        for topic, partitions in (pointer.offsets or {}).items()
        for number, interval in partitions.items()
    }
    committed = claim.persist(lambda: read_committed(claim.registry, claim.group, ranges))
    return [
        OffsetRange(partition, start, min(end, offset))
        for partition, (start, end) in ranges.items()
        if partition in committed and start < (offset := committed[partition].offset or 0)
    ]
