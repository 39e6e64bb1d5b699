"""An export, from the first look to the commit.

The order of looks: a first one without any lock, so that an export with nothing to do changes nothing and needs no
Spark; then the group's claim, and a look again, which is the one that counts. What is found unfinished is finished
before anything else, and then that is all, unless topics were asked for that are none of its: the next export takes
what is new.
"""

from __future__ import annotations

import logging
import os
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from zkgroup.errors import NotFoundError, RefusedError, UsageError
from zkgroup.export.lake.book import Book
from zkgroup.export.lake.clusters import refuse_other_cluster
from zkgroup.export.lake.lake import Lake
from zkgroup.export.lake.leftovers import has_garbage, killed, remove_garbage
from zkgroup.export.model.documents import decode_pointer
from zkgroup.export.model.layout import parse_compression
from zkgroup.export.model.rundata import Pointer, RunPlan
from zkgroup.export.model.words import ExportPlan
from zkgroup.export.planning.beginnings import LostError, NoOffsetError
from zkgroup.export.planning.bounds import refuse_backwards
from zkgroup.export.planning.filling import refuse_to_finish
from zkgroup.export.planning.group import ExportGroup
from zkgroup.export.planning.passing_over import fewer_again, passed_over, words_on
from zkgroup.export.planning.request import DEFAULT_TARGET_BYTES, ExportRequest, Settle
from zkgroup.export.runs.claim import ExportClaim
from zkgroup.export.runs.forgetting import forget
from zkgroup.export.runs.late import is_written, refuse_dropping, refuse_hidden
from zkgroup.export.runs.left_runs import refuse_beside_left, told_of_left
from zkgroup.export.runs.planner import Planner
from zkgroup.export.runs.steps import ExportRun
from zkgroup.export.runs.summaries import PartitionSummary, summaries_of
from zkgroup.export.runs.surroundings import Progress, Runner, Surroundings
from zkgroup.export.spark.master import choose_master, refuse_if_silent, refuse_log_elsewhere
from zkgroup.export.stores.packages import require
from zkgroup.export.stores.store import open_store
from zkgroup.groups.changing.strangers import look_for_strangers
from zkgroup.java import find_java
from zkgroup.protocol import znodes
from zkgroup.protocol.names import validate_group_id, validate_topic
from zkgroup.protocol.ops import Get, Node
from zkgroup.servers.kafka import KafkaSettings
from zkgroup.servers.registry import Registry
from zkgroup.words import listed

if TYPE_CHECKING:
    from zkgroup.config import ConsumerConfig
    from zkgroup.export.spark.context import SparkJobs

__all__ = ["DEFAULT_TARGET_BYTES", "ExportRequest", "PartitionSummary", "Progress", "Settle", "run_export"]

log = logging.getLogger(__name__)


def run_export(
    request: ExportRequest,
    registry: Registry,
    kafka: Callable[[], KafkaSettings],
    *,
    progress: Callable[[Progress], None] = lambda _: None,
    warn: Callable[[str], None] = lambda _: None,
    passed: Callable[[str], None] = lambda _: None,
    runner: Callable[[], AbstractContextManager[Runner]] | None = None,
) -> list[PartitionSummary]:
    """Export a group's messages from its committed offsets to the present ends, and commit these.

    A run that was left unfinished is finished instead, with the ranges that were planned then; topics that were asked
    for and are not among its come after it. A backfill finishes none that moves the group. One summary for each
    partition, also where there was nothing new. ``passed`` is told of every point of the protocol that is passed;
    ``runner`` runs the tasks, Spark if it is not given.

    Raises ``UsageError`` for a destination or a Spark that cannot be used, ``NotFoundError``, ``RefusedError`` where
    the group is live, was moved meanwhile, stands elsewhere than the lake ends, or would lose data,
    ``UnreachableError``, and ``ZkgroupError`` for the rest. What is raised before the decision leaves nothing behind
    but where it was to begin; after it, the same command goes on where this one stopped.
    """
    first = _Export(request, registry, kafka, progress, warn, passed, runner)
    rows = first.run()
    if first.besides:
        rest = replace(request, topics=first.besides)
        rows += _Export(rest, registry, kafka, progress, warn, passed, runner).run()
    return rows


class _Export:
    """One call of ``run_export``."""

    def __init__(
        self,
        request: ExportRequest,
        registry: Registry,
        kafka: Callable[[], KafkaSettings],
        progress: Callable[[Progress], None],
        warn: Callable[[str], None],
        passed: Callable[[str], None],
        runner: Callable[[], AbstractContextManager[Runner]] | None,
    ) -> None:
        validate_group_id(request.group)
        if request.join is not None and request.backfill:
            raise UsageError("--backfill never moves the group: it needs no --join", "leave --join out")
        refuse_backwards(request.start, request.until)
        parse_compression(request.compression)
        for topic in request.topics:
            validate_topic(topic)
        self._request = request
        self._registry = registry
        self._lake = Lake(open_store(request.root))
        self._kafka = kafka
        self._warn = warn
        self._planner = Planner(request, self._lake, kafka, warn)
        self.besides: tuple[str, ...] = ()  # topics that are still to be exported
        self._own_runner = runner is None

        def tell(point: str) -> None:
            log.info("passed: %s", point)
            passed(point)

        self._with = Surroundings(kafka, runner or self._spark, request.patience, progress, warn, tell)

    def run(self) -> list[PartitionSummary]:
        request, tell = self._request, self._with.passed
        if request.settle != "forget":  # which is for a destination that nobody can write to any more
            self._lake.store.check()
        self._with.progress(Progress("planning", 0, 0))
        plan: ExportPlan | None = None
        if request.settle is None and not request.adopt and not self._unfinished():
            try:
                plan, _ = self._planner.plan(self._registry)
            except NoOffsetError:
                if request.join is None:
                    raise
                self._require_spark()  # what the others have read they commit as they give it up
            except RefusedError as error:
                if isinstance(error, LostError):
                    for line in told_of_left(self._registry, self._lake, request.group, self._with):
                        self._planner.once(line)
                if not has_garbage(self._lake, request.group):
                    raise
                # Under the lock it is looked at first: it may have what is missed.
            else:
                if not self._planner.has_work(plan) and not has_garbage(self._lake, request.group):
                    self._planner.tell(words_on(plan))
                    return summaries_of(plan, None)
                if plan.ranges:
                    self._require_spark()
        attempt = uuid.uuid4().hex
        with ExportClaim(self._registry, request.group, attempt, self._warn) as claim, ExitStack() as stack:
            tell("locked")
            pointer, _ = claim.persist(claim.pointer)
            if request.settle is not None:
                return self._settle(claim, request.settle)
            if request.adopt:
                return self._adopt(claim, pointer, attempt)
            if pointer is not None:
                left = ExportRun.found(claim, self._lake, pointer, self._with)
                if pointer.state == "planned":
                    self._refuse_dropping(left)
                    if request.join is not None:
                        self._join(stack, claim.registry, request.join)
                        left = ExportRun(claim, self._lake, left.plan, pointer, self._with)
                return self._finish(left, pointer.state)
            cluster = self._cluster(claim)
            self._remove_garbage(claim, cluster)
            if request.join is not None:
                self._join(stack, claim.registry, request.join)
            plan, run_plan = claim.persist(
                lambda: self._planner.plan(claim.registry, cluster, self._with.member), asks_brokers=True
            )
            self._planner.tell(words_on(plan) if run_plan is None else [*words_on(plan), *passed_over(plan.partitions)])
            if run_plan is None:
                return summaries_of(plan, None)
            log.info("run %s: %d ranges of %d partitions", run_plan.run, len(plan.ranges), len(plan.partitions))
            run = ExportRun.planned(claim, self._lake, run_plan, self._with)
            refuse_beside_left(run, skip_lost=request.skip_lost)
            manifest = run.carry_out(resumed=False)
            self._planner.tell(fewer_again(manifest.parts if manifest is not None else ()))
            summaries = summaries_of(plan, manifest)
        tell("unlocked")
        return summaries

    def _finish(self, run: ExportRun, state: str) -> list[PartitionSummary]:
        """Finish what was left, whatever it is of, but for a run that moves the group where that is to stay."""
        left, request = run.plan, self._request
        if request.backfill:
            refuse_to_finish(self._lake, left, state)
        try:
            request.layout.resolve(left.layout, self._lake.store.uri)
        except RefusedError:
            raise RefusedError(
                f"run {left.run} of group {request.group}, which was left {state}, was planned with "
                f"{left.layout.told()}",
                f"leave these options out to go on with it{'; --settle withdraw gives it up' * (state == 'planned')}",
            ) from None
        besides = tuple(topic for topic in request.topics if topic not in left.topics)
        self._warn(
            f"going on with run {left.run} of group {request.group}, which was left {state}, and its ranges: "
            f"{f'then comes {listed(besides)}' if besides else 'the next export takes what is new'}"
        )
        if state == "planned":
            self._require_spark()
            refuse_beside_left(run, skip_lost=request.skip_lost)
            run.accept(deleted=request.skip_deleted, unexplained=request.record_unexplained)
            self._planner.tell(passed_over(left.partitions))  # whoever planned it may have told nobody any more
        rows = summaries_of(None, run.carry_out(resumed=True))
        self.besides = besides
        return rows

    def _unfinished(self) -> bool:
        """Whether a run of the group is under way, or was left."""
        path = znodes.export_state(self._request.group)
        (node,) = self._registry.read([Get(path)])
        return isinstance(node, Node) and decode_pointer(path, node.data) is not None

    def _settle(self, claim: ExportClaim, how: Settle) -> list[PartitionSummary]:
        pointer, _ = claim.persist(claim.pointer)
        nothing = NotFoundError(f"no export of group {self._request.group} is unfinished", "there is nothing to settle")
        if how == "forget":
            if pointer is None:
                raise nothing
            forget(claim, self._lake, pointer, self._with, skip_lost=self._request.skip_lost)
            return []
        if pointer is not None:
            run = ExportRun.found(claim, self._lake, pointer, self._with)
        elif (left := next(filter(is_written, self._left(claim)), None)) is not None:
            run = left
        else:
            raise nothing
        manifest = run.settle(how, skip_lost=self._request.skip_lost)
        return [] if manifest is None or how == "withdraw" else summaries_of(None, manifest)

    def _adopt(self, claim: ExportClaim, pointer: Pointer | None, attempt: str) -> list[PartitionSummary]:
        from zkgroup.export.lake.adopting import adopt  # pyarrow

        request = self._request
        if pointer is not None:
            raise RefusedError(
                f"an export of group {request.group} is unfinished, and its files may be in no manifest yet",
                "finish it first: run its command again, or end it with --settle (forget, if its folder is lost); "
                "--status tells of it",
            )
        cluster = self._cluster(claim)
        for run, found in killed(self._lake, request.group, cluster).items():  # this is a later one: none is kept then
            self._refuse_dropping_killed(claim, run, found, adopts=True)
        here = claim.persist(lambda: ExportGroup(claim.registry, request.group, self._warn).clusters())
        refuse_other_cluster(self._lake, request.group, here, (), Book(self._lake, request.group), adopts=True)
        made = adopt(
            self._lake, request.group, here[0], attempt, request.topics, skip_lost=request.skip_lost, warn=self._warn
        )
        self._with.passed("adopted")
        return [row for manifest in made for row in summaries_of(None, manifest)]

    def _remove_garbage(self, claim: ExportClaim, cluster: str) -> None:
        look = partial(self._refuse_dropping_killed, claim)
        if removed := remove_garbage(self._lake, self._request.group, cluster, look):
            log.info("removed what %d killed exports left in %s", removed, self._lake.store.uri)

    def _left(self, claim: ExportClaim) -> Iterator[ExportRun]:
        """The group's runs that were not decided, and of which ZooKeeper knows nothing."""
        for found in killed(self._lake, self._request.group, self._cluster(claim)).values():
            if found is not None:
                yield self._killed(claim, *found)

    def _killed(self, claim: ExportClaim, plan: RunPlan, hashed: str) -> ExportRun:
        return ExportRun.killed(claim, self._lake, plan, hashed, self._with)

    def _refuse_dropping(self, run: ExportRun) -> None:
        refuse_dropping(run, skip_lost=self._request.skip_lost)

    def _refuse_dropping_killed(
        self, claim: ExportClaim, run: str, found: tuple[RunPlan, str] | None, *, adopts: bool = False
    ) -> None:
        request = self._request
        if found is None:
            refuse_hidden(claim, self._lake, run, self._with, skip_lost=request.skip_lost)
        else:
            refuse_dropping(self._killed(claim, *found), skip_lost=request.skip_lost, adopts=adopts)

    def _cluster(self, claim: ExportClaim) -> str:
        return claim.persist(lambda: ExportGroup(claim.registry, self._request.group, self._warn).cluster())

    def _join(self, stack: ExitStack, registry: Registry, config: ConsumerConfig) -> None:
        from zkgroup.export.runs.membership import Membership

        topics = ExportGroup(registry, self._request.group, self._planner.once).select_topics(
            self._request.topics, self._request.whitelist
        )
        config = replace(config, group_id=self._request.group, auto_commit_enable=False)
        if (told := look_for_strangers(registry, config.group_id)) is not None:
            self._with.warn(told)
        member = stack.enter_context(Membership(config, registry, self._kafka(), list(topics)))
        self._with.passed("joined")
        self._with = replace(self._with, member=member)

    # --- Spark ------------------------------------------------------------------------------------------------------

    def _require_spark(self) -> None:
        """Raise ``UsageError`` where Spark cannot run: found out without importing it."""
        if not self._own_runner:
            return
        require("pyspark", "pyarrow")
        find_java()
        refuse_log_elsewhere(self._request.log, os.environ)
        refuse_if_silent(choose_master(self._request.master, self._request.conf))

    def _spark(self) -> SparkJobs:
        # pyspark takes 0.1 s, and an export that finds nothing new does without.
        try:
            from zkgroup.export.spark.context import SparkJobs
        except ImportError as error:  # which is there, and is another one
            raise UsageError(
                f"the pyspark that Python finds here does not do: {error}",
                "install pyspark 4.0 or later; PYTHONPATH, or spark-submit, may bring another one",
            ) from None

        request = self._request
        return SparkJobs(request.master, request.conf, timeout=request.spark_timeout, log=request.log)
