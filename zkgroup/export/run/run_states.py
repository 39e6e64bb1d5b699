"""A run's steps, in their order: the table in ``zkgroup.export``, in code.

Each step may be repeated: by the same process after a lost session, and from the decision on by any other.
"""

from __future__ import annotations

import contextlib
import logging
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from zkgroup.errors import Notice, RefusedError, Remedy, UnreachableError, ZkgroupError
from zkgroup.export.destination.coverage import extend_coverage
from zkgroup.export.destination.recorded_columns import claim_columns, recorded_schemas
from zkgroup.export.destination.run_log import RECORD, Destination, claim_topics, read_owners, refuse_owned
from zkgroup.export.destination.table_format import TableChangedError, open_format
from zkgroup.export.model.plan_types import OffsetRange
from zkgroup.export.model.run_record import (
    RecordPart,
    RunRecord,
    damaged,
    decode_record,
    digest,
    encode_record,
    now_ms,
)
from zkgroup.export.planning.group_state import GroupState
from zkgroup.export.run.claim import ExportClaim, PartitionLostError, TakenOverError
from zkgroup.export.run.planner import RunPlan
from zkgroup.export.run.publication import changed_tables, missing_files, publish, schema_of
from zkgroup.export.run.range_tasks import WrittenFiles, gap_notices, refuse_unexplained, write_ranges
from zkgroup.export.run.run_context import Progress, RunContext, warn_of_first
from zkgroup.groups.changes.export_znodes import Pointer
from zkgroup.protocol.names import TopicPartition
from zkgroup.text import are, counted, listed, offset_text

if TYPE_CHECKING:
    from zkgroup.export.run.export_member import ExportMember

log = logging.getLogger(__name__)

_DECISIONS: Final = 5  # a group at rest needs one
#: Of a pointer's list of offsets; ZooKeeper takes a megabyte a node.
_POINTER_PARTITIONS: Final = 5000


@dataclass
class PlannedRun:
    """A run before its decision. What fails before it leaves nothing; a process that was declared dead cannot decide
    any more once another one has planned."""

    claim: ExportClaim
    destination: Destination
    plan: RunPlan
    context: RunContext

    def __post_init__(self) -> None:
        self._pointer = Pointer("planned", self.plan.run, self.destination.store.uri)

    def carry_out(self) -> RunRecord:
        try:
            self.claim.point(None, self._pointer)
            self.context.on_point("planned")
            self._refuse_outdated()
            self._make_tables()
            run = self._decide(self._write())
        except BaseException:
            # What keeps it from being dropped matters less than what went wrong; the next export drops it then.
            with contextlib.suppress(ZkgroupError):
                self._drop()
            raise
        return run.finish()

    def _drop(self) -> None:
        if self._pointer.state == "planned" and self.claim.drop(self._pointer):
            self.destination.store.remove(self.destination.work(self.plan.group, self.plan.run))

    def _refuse_outdated(self) -> None:
        """Raise where other exports of the group have ended since this one was planned: it stood still, and its session
        ended. From here on another process takes the pointer first."""
        if self.destination.newest_run(self.plan.group) != self.plan.previous:
            raise TakenOverError(
                f"other exports of group {self.plan.group} to {self.destination} have ended since this one was planned",
                "nothing was exported: run it again",
            )

    def _make_tables(self) -> None:
        """Make the tables that are not there: a decided run whose table cannot be made could not be finished."""
        plan, destination = self.plan, self.destination
        if plan.layout.has_tables:
            destination.claim_layout(plan.layout)
            claim_columns(destination, plan.layout, plan.schemas)
            schema = schema_of(plan.layout, recorded_schemas(destination, plan.layout))
            fresh = [topic for topic in plan.topics if not plan.bases.get(topic)]
            open_format(destination, plan.layout).make(fresh, schema, self.context.on_point)

    def _write(self) -> WrittenFiles:
        """Have the ranges read and written. Where that fails because what is read has changed, this is the reason that
        is raised."""
        try:
            return write_ranges(self.plan, self.destination, self.context)
        except ZkgroupError:
            with contextlib.suppress(UnreachableError):
                self.claim.persist(self._refuse_changes)
            raise

    def _refuse_changes(self) -> None:
        """Raise where another process has taken over, members came, an offset was moved, or a topic was recreated."""
        claim, plan = self.claim, self.plan
        found, _ = claim.pointer()
        if found != self._pointer:
            raise claim.taken_over(found)
        state = GroupState(claim.registry, plan.group, self.context.on_warning)
        if not plan.request.backfill and self.context.member is None:
            state.refuse_if_active()
        identities = state.identities(plan.topics)
        for topic, planned in plan.topics.items():
            if topic not in identities or not identities[topic].is_same(planned):
                raise RefusedError(f"topic {topic} was deleted, or created again", "export again")
        if self.context.member is None:
            claim.refuse_if_moved([part for part in plan.partitions if part.moves])

    def _decide(self, written: WrittenFiles) -> DecidedRun:
        """Check for the last time what the run depends on, write its record, and have the pointer name it. Raises
        ``RefusedError`` where anything is not as planned, or messages are missing."""
        plan, context, store = self.plan, self.context, self.destination.store
        context.on_progress(Progress("publishing", 0, 0))
        warn_of_first(gap_notices(written.parts, "retention"), context.on_warning)
        if not plan.request.records_gaps:
            refuse_unexplained(written.parts)
        warn_of_first(gap_notices(written.parts, "unexplained"), context.on_warning)
        self.claim.persist(self._refuse_changes)
        fresh = [OffsetRange(part.partition, part.start, part.end) for part in written.parts if not part.again]
        tags = {topic: identity.tag for topic, identity in plan.topics.items()}
        tables = open_format(self.destination, plan.layout)
        refuse_owned(self.destination, read_owners(self.destination, plan.topics), plan.group, plan.clusters)
        tables.refuse_conflicts(fresh, tags, plan.known_files)
        for topic in tables.changed(plan.group, plan.bases):
            raise TableChangedError(topic)
        for name in sorted({lost.file for part in written.parts for lost in part.again}):
            if store.size(name) is not None:
                raise RefusedError(
                    f"{self.destination}/{name} was missing, and is there again", "nothing was exported: run it again"
                )
        context.on_point("checked")
        self.destination.claim_layout(plan.layout)
        claim_columns(self.destination, plan.layout, plan.schemas)
        claim_topics(self.destination, plan.topics, plan.group, plan.clusters)
        context.on_point("topics claimed")
        if context.member is not None:
            return self._decide_owned(context.member, written)
        run = self._write_record(written.parts, written)
        self.claim.point(self._pointer, run.pointer, [part for part in written.parts if part.moves])
        self._pointer = run.pointer
        context.on_point("decided")
        return run

    def _decide_owned(self, member: ExportMember, written: WrittenFiles) -> DecidedRun:
        """Decide about the partitions that the member owns, and move the offsets, in one transaction. What it does not
        own any more is left out: its owner goes on where the group is."""
        claim, parts = self.claim, written.parts
        for _ in range(_DECISIONS):
            owned = claim.persist(lambda: member.owned(claim.registry))
            owned &= claim.persist(partial(claim.unmoved, parts))
            for part in parts:
                if part.partition not in owned:
                    self.context.on_warning(
                        Notice(f"{part.partition} was taken over by another member: it is not exported")
                    )
            parts = [part for part in parts if part.partition in owned]
            if not parts:
                raise RefusedError(
                    f"another member has taken over all that was to be exported for group {self.plan.group}",
                    "nothing was committed: export again",
                )
            run = self._write_record(parts, written)
            try:
                claim.decide_and_commit(self._pointer, run.pointer, parts)
            except PartitionLostError as error:
                log.info("%s; once more", error.message)
                continue
            self._pointer = run.pointer
            self.context.on_point("decided")
            return run
        raise RefusedError(
            f"group {self.plan.group} rebalances again and again",
            "nothing was committed: export when it is at rest",
        )

    def _write_record(self, parts: list[RecordPart], written: WrittenFiles) -> DecidedRun:
        """Write the record of what the run has written, of these ``parts``. The run as it is once its pointer says
        so."""
        plan, store, member = self.plan, self.destination.store, self.context.member
        there = {part.partition for part in parts}
        files = [file for file in written.files if TopicPartition(file.topic, file.ranges[0].partition) in there]
        topics = {topic: identity for topic, identity in plan.topics.items() if any(p.topic == topic for p in there)}
        record = RunRecord(
            plan.run,
            plan.group,
            "backfill" if plan.request.backfill else "export",
            plan.clusters[0],
            plan.planned,
            now_ms(),
            plan.isolation,
            plan.layout,
            plan.joined_before if plan.request.backfill else member is not None,
            tuple(parts),
            tuple(files),
            topics,
            extend_coverage(plan.coverage, topics, parts, written.times),
            plan.previous,
            {topic: base for topic, base in plan.bases.items() if topic in topics},
        )
        data = encode_record(record)
        work = self.destination.work(plan.group, plan.run)
        if missing := missing_files(self.destination, record):
            # Another process has taken this one for dead, and tidied up.
            raise RefusedError(
                f"{counted(len(missing), 'file')} that this run has written {are(len(missing))} gone from "
                f"{self.destination}/{work}",
                "nothing was exported: run it again",
            )
        store.sync(f"{work}/{file.work}" for file in files)
        store.write(f"{work}/{RECORD}", data)
        self.context.on_point("record written")
        pointer = Pointer("decided", plan.run, self._pointer.output, digest(data), _offsets_of(parts))
        return DecidedRun(self.claim, self.destination, record, data, pointer, self.context)


def _offsets_of(parts: list[RecordPart]) -> dict[str, dict[int, tuple[int, int]]] | None:
    moving = [part for part in parts if part.moves]
    if len(moving) > _POINTER_PARTITIONS:
        return None
    found: dict[str, dict[int, tuple[int, int]]] = {}
    for part in moving:
        found.setdefault(part.partition.topic, {})[part.partition.partition] = (part.start, part.end)
    return found


@dataclass
class DecidedRun:
    """A run from its decision on: it only goes forward, in any process."""

    claim: ExportClaim
    destination: Destination
    record: RunRecord
    data: bytes
    pointer: Pointer
    context: RunContext

    @classmethod
    def find(cls, claim: ExportClaim, destination: Destination, pointer: Pointer, context: RunContext) -> DecidedRun:
        """The run that a decided ``pointer`` names. Raises ``RefusedError`` where the destination does not have it,
        ``DamagedDocumentError`` where its record was changed."""
        name = f"{destination}/{destination.work(claim.group, pointer.run)}/{RECORD}"
        data = destination.written_record(claim.group, pointer.run)
        if data is None:  # a ZooKeeper that was restored names a run that has ended
            data = destination.logged_record(claim.group, pointer.run, str(pointer.record))
        if data is not None and digest(data) != pointer.record:
            raise damaged(name, "was changed")
        if data is None:
            raise RefusedError(
                f"run {pointer.run} of group {claim.group} was decided, and its record is not in {destination} (it was "
                f"exported to {pointer.output})",
                f"mount or restore that destination, then run the export again with --to {pointer.output}; if it is "
                "lost, --abandon gives the run up",
            )
        return cls(claim, destination, decode_record(name, data), data, pointer, context)

    def __str__(self) -> str:
        return f"run {self.record.run} of group {self.record.group}"

    def finish(self, *, is_found: bool = False) -> RunRecord:
        """Put the record into the log, publish the files, move the offsets. ``is_found``: another process decided it.

        Raises ``RefusedError`` where files are missing or in the way, members came, or, once all is done, offsets were
        moved by somebody else, which stay as they are.
        """
        record, context = self.record, self.context
        if is_found and (missing := missing_files(self.destination, record)):
            raise RefusedError(
                f"{self} was decided, and {counted(len(missing), 'file')} of it {are(len(missing))} gone or changed "
                f"({listed(missing, most=3)})",
                "restore the destination; if these are lost, --abandon gives the run up",
            )
        try:
            self.destination.append(record.group, record.run, self.data)
            context.on_point("record in the log")
            publish(self.destination, record, context)
            left = self._commit()
        except BaseException as error:
            if not isinstance(error, ZkgroupError):  # a signal, which has no remedy
                again = Remedy("run the same command again, which publishes and commits what was read")
                context.on_warning(Notice(f"{self} is decided and not finished", again))
            raise
        self.destination.store.remove(self.destination.work(record.group, record.run))
        context.on_point("tidied up")
        if is_found and (changed := changed_tables(self.destination, record)):
            raise RefusedError(
                f"{self} is exported, and the table of {listed(changed, most=3)} was rolled back, dropped or replaced "
                "meanwhile",
                "the next export asks with --on-mismatch how to continue",
            )
        if left:
            raise RefusedError(
                f"{self} is exported, and somebody else has moved offsets meanwhile, which stay as they are "
                f"({listed(left, '; ', most=3)})",
                "the next export asks with --on-mismatch how to continue",
            )
        return record

    def _commit(self) -> list[str]:
        """Move the offsets; those that stay as they are, in words."""
        claim, record = self.claim, self.record
        parts: tuple[RecordPart, ...] = record.partitions
        recreated: set[TopicPartition] = set()
        if record.joined or record.kind == "backfill":
            parts = ()
        else:
            recreated = claim.persist(self._recreated)
        moved = claim.commit(self.pointer, parts, leave=recreated, on_point=self.context.on_point)
        self.context.on_point("committed")
        texts = [
            f"{part.partition} was {offset_text(part.committed)}, is {offset_text(offset)} and not {part.end}"
            for part, offset in moved
        ]
        topics = sorted({partition.topic for partition in recreated})
        return [*texts, *(f"topic {topic} was deleted, or created again" for topic in topics)]

    def _recreated(self) -> set[TopicPartition]:
        """Partitions of topics that are not the exported ones any more. Raises where the group has members."""
        state = GroupState(self.claim.registry, self.record.group, self.context.on_warning)
        try:
            state.refuse_if_active()
        except RefusedError as error:
            raise RefusedError(
                f"{self} is published and cannot be committed: {error.message}",
                "stop the members, then run the same command again",
            ) from None
        now = state.identities(self.record.topics)
        gone = {
            topic for topic, known in self.record.topics.items() if topic not in now or not now[topic].is_same(known)
        }
        return {part.partition for part in self.record.partitions if part.moves and part.partition.topic in gone}
