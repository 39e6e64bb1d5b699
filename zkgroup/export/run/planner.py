"""The plan of an export, from the state of ZooKeeper, the brokers and the destination."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING

from zkgroup.clients.kafka.client import KafkaSettings
from zkgroup.clients.schema_registry import read_schema
from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.errors import Notice
from zkgroup.export.destination.coverage import ExportedCoverage
from zkgroup.export.destination.recorded_columns import resolve_schemas
from zkgroup.export.destination.run_log import (
    LAYOUT,
    TOPICS,
    Destination,
    Owner,
    read_owners,
    refuse_other_cluster,
    refuse_owned,
)
from zkgroup.export.destination.table_format import open_format
from zkgroup.export.model.layout import Layout
from zkgroup.export.model.plan_types import ExportPlan, OffsetRange, PartitionFacts, PartitionPlan
from zkgroup.export.model.run_record import RunRecord, TopicCoverage, TopicIdentity, damaged, now_ms
from zkgroup.export.planning.export_plan import as_exported, make_plan, plan_backfill
from zkgroup.export.planning.export_request import ExportRequest, refuse_other_origin, refuse_unknown
from zkgroup.export.planning.group_state import GroupState
from zkgroup.export.planning.notices import first_run_notices
from zkgroup.export.run.publication import schema_of
from zkgroup.export.run.run_context import warn_of_first
from zkgroup.groups.changes.backup import read_cluster
from zkgroup.groups.changes.znode_transactions import MAX_TRANSACTION_BYTES, cost, first_batch
from zkgroup.protocol import znodes
from zkgroup.protocol.names import TopicPartition
from zkgroup.schemas.field_schema import FieldSchemas

if TYPE_CHECKING:
    from zkgroup.export.run.export_member import ExportMember


@dataclass(frozen=True, slots=True)
class _Findings:
    """The state of ZooKeeper, the brokers and the destination. ``newest``: the group's newest record; ``coverage``:
    what was exported of each topic, as its table has it; ``clusters``: what this cluster is and was called;
    ``to_take_over``: topics that another group owns."""

    state: GroupState
    kafka: KafkaSettings
    clusters: Sequence[str]
    newest: RunRecord | None
    owners: Mapping[str, Sequence[Owner]]
    to_take_over: Sequence[str]
    exported: ExportedCoverage
    coverage: dict[str, TopicCoverage]
    identities: Mapping[str, TopicIdentity]
    facts: Sequence[PartitionFacts]


@dataclass(frozen=True, slots=True)
class RunPlan:
    """What a run does for its ``request``, fixed before anything is read. It is in memory only: a run that is not
    decided is planned anew.

    ``clusters``: what its cluster is and was called. ``newest``: the newest period of each partition so far, for late
    messages. ``bases``: see ``RunRecord``. ``known_files``: the files in records, where they were read.
    """

    run: str
    request: ExportRequest
    clusters: tuple[str, ...]
    planned: int
    isolation: str
    topics: Mapping[str, TopicIdentity]
    partitions: tuple[PartitionPlan, ...]
    coverage: Mapping[str, TopicCoverage]
    layout: Layout
    schemas: FieldSchemas = field(default_factory=FieldSchemas)
    previous: str | None = None
    joined_before: bool = False
    newest: Mapping[TopicPartition, int] = field(default_factory=dict)
    bases: Mapping[str, int] = field(default_factory=dict)
    known_files: frozenset[str] = frozenset()

    @property
    def group(self) -> str:
        return self.request.group


@dataclass(frozen=True, slots=True)
class Planned:
    """The ``plan``, in this ``layout``; the ``run`` that does it, if there is anything to do."""

    plan: ExportPlan
    layout: Layout
    run: RunPlan | None = None


@dataclass
class Planner:
    request: ExportRequest
    destination: Destination
    kafka: Callable[[], KafkaSettings]
    on_warning: Callable[[Notice], None]
    warned: set[Notice] = field(default_factory=set)

    def warn_all(self, notices: Iterable[Notice]) -> None:
        """Warn of these, each once."""
        warn_of_first(notices, self.warn_once)

    def warn_once(self, notice: Notice) -> None:
        if notice not in self.warned:
            self.warned.add(notice)
            self.on_warning(notice)

    def plan(self, registry: Registry, member: ExportMember | None = None) -> Planned:
        """What there is to do now; as ``member``: of its share alone. Raises as ``run_export`` does."""
        request, destination = self.request, self.destination
        known = destination.layout()
        found = self._read_state(registry, member, known)
        plan, known_files = self._decide(found)
        tags = {topic: identity.tag for topic, identity in found.identities.items()}
        fresh = [OffsetRange(part.partition, part.start, part.end) for part in plan.partitions if not part.again]
        if not request.backfill:  # nor may a gap name the offsets of a file
            fresh += [OffsetRange(part.partition, *gap[1:]) for part in plan.partitions for gap in part.skipped]
        found.exported.tables.refuse_conflicts(fresh, tags, known_files)
        if known is None and destination.groups():
            raise damaged(f"{destination}/{LAYOUT}", "is missing")
        layout = request.layout.resolve(known, destination.store.uri)
        schemas = FieldSchemas()
        if found.identities:  # what is to be read has no newer schema: a producer registers it before it writes
            schemas = resolve_schemas(destination, layout, self._registered(found.identities))
            if layout.has_tables:
                found.exported.tables.refuse_altered(found.identities, schema_of(layout, schemas))
        # What other members have read is recorded when there is something else: for that alone the export does not
        # join.
        has_gaps = any(part.skipped for part in plan.partitions)
        has_work = plan.moves or (has_gaps and request.join is None) or bool(found.to_take_over)
        if found.newest is None and not request.backfill and not any(map(found.coverage.get, found.identities)):
            self.warn_all(first_run_notices(destination.store.uri, request.group, plan.partitions, found.facts))
        if not has_work:
            return Planned(plan, layout)
        newest = found.newest
        same = {
            topic: one
            for topic, one in found.coverage.items()
            if topic in found.identities and one.identity.is_same(found.identities[topic])
        }
        known_partitions = {(topic, number) for topic, one in same.items() for number in {*one.partitions, *one.ends}}
        parts = tuple(
            part
            for part in plan.partitions
            if part.start < part.end or part.moves or part.skipped or part.again
            or part.partition not in known_partitions
        )  # fmt: skip
        topics = {part.partition.topic for part in parts}
        cleanup = found.state.cleanup(topics, found.kafka, registry.timeout) if plan.reads else {}
        run = RunPlan(
            run=destination.new_run(request.group),
            request=request,
            clusters=tuple(found.clusters),
            planned=now_ms(),
            isolation=found.kafka.isolation,
            topics={topic: replace(found.identities[topic], cleanup=cleanup.get(topic)) for topic in sorted(topics)},
            partitions=parts,
            coverage=found.coverage | {t: one for t, one in found.exported.as_recorded.items() if t not in topics},
            layout=layout,
            schemas=schemas,
            previous=None if newest is None else newest.run,
            joined_before=newest is not None and newest.joined,
            newest={
                TopicPartition(topic, n): period for topic, one in same.items() for n, period in one.newest.items()
            },
            bases={topic: run for topic, run in found.exported.bases.items() if topic in topics},
            known_files=known_files,
        )
        return Planned(plan, layout, run)

    def _read_state(self, registry: Registry, member: ExportMember | None, layout: Layout | None) -> _Findings:
        request, destination, kafka = self.request, self.destination, self.kafka()
        state = GroupState(registry, request.group, self.warn_once)
        topics = state.select_topics(request.topics, request.whitelist)
        refuse_unknown(request.begin, request.until, topics)
        if request.begin.clusters or request.until.clusters:
            refuse_other_origin(read_cluster(registry), request.begin, request.until)
        if member is not None:
            topics = self._share(member, registry, topics)
        elif request.join is None and not request.backfill:
            state.refuse_if_active()
        clusters = state.clusters()
        newest = destination.newest(request.group)
        refuse_other_cluster(destination, newest, clusters)
        owners = read_owners(destination, topics)
        to_take_over = refuse_owned(destination, owners, request.group, clusters, request.take_over)
        own = {} if newest is None else newest.coverage
        for topic in own.keys() & topics.keys():
            if all(owner.is_former for owner in owners[topic]):
                raise damaged(f"{destination}/{TOPICS}/{topic}", "has no owner any more")
        layout = request.layout.resolve(None, destination.store.uri) if layout is None else layout
        tables = open_format(destination, layout)
        exported = ExportedCoverage(destination, tables, request.group)
        coverage = exported.read(newest, owners, clusters)
        foreign = {topic for topic in topics if any(owner.cluster not in clusters for owner in owners[topic])}
        for topic in topics:
            tables.refuse_foreign(topic, is_recorded=topic in coverage or topic in foreign)
        if request.backfill:
            kafka = as_exported(kafka, newest, self.warn_once)
        identities = {
            topic: _tagged(identity, coverage.get(topic), topic in foreign)
            for topic, identity in state.identities(topics).items()
        }
        facts = state.facts(
            topics,
            kafka,
            registry.timeout,
            begin=request.begin,
            until=request.until,
            identities=identities,
            coverage=coverage,
        )
        facts = [replace(fact, is_rolled_back=fact.partition in exported.rolled_back) for fact in facts]
        # Of a topic that was taken over exports continue where the other group's end.
        facts = [
            replace(fact, begin=fact.exported_end, is_exact=True)
            if fact.committed is None and fact.ended is not None and fact.partition.topic not in own
            else fact
            for fact in facts
        ]
        return _Findings(state, kafka, clusters, newest, owners, to_take_over, exported, coverage, identities, facts)

    def _registered(self, topics: Iterable[str]) -> FieldSchemas:
        given, registry = self.request.schemas, self.request.registry
        if registry is None:
            return given
        found = {
            name: read_schema(registry, schema.format, topics, name) if schema and not schema.text else schema
            for name, schema in (("key", given.key), ("value", given.value))
        }
        for schema in found.values():
            self.warn_all(map(Notice, schema.left_out.values()) if schema else ())
        return FieldSchemas(**found)

    def _share(
        self, member: ExportMember, registry: Registry, topics: Mapping[str, tuple[int, ...]]
    ) -> dict[str, tuple[int, ...]]:
        """Of these partitions those that are the member's, as many as can be committed at once."""
        owned = member.owned(registry)
        wanted = [TopicPartition(topic, number) for topic, numbers in topics.items() for number in numbers]
        ours = [partition for partition in wanted if partition in owned]
        group, settings = self.request.group, registry.settings

        def bytes_of(one: TopicPartition) -> int:  # as ``decide_and_commit`` takes it in one transaction
            return cost(znodes.owner(group, one), settings) + cost(
                znodes.offset(group, one), settings, settings.acl or ()
            )

        taken = first_batch(ours, bytes_of, MAX_TRANSACTION_BYTES)
        if not taken:
            self.warn_once(
                Notice(f"other members of group {self.request.group} own all partitions: there is nothing to export")
            )
        if len(taken) < len(ours):
            left = len(ours) - len(taken)
            self.warn_once(Notice(f"{left} partitions are left to the next export: one transaction takes no more"))
        return {topic: tuple(number for _, number in some) for topic, some in groupby(taken, key=itemgetter(0))}

    def _decide(self, found: _Findings) -> tuple[ExportPlan, frozenset[str]]:
        request, destination = self.request, self.destination
        if request.backfill:
            return plan_backfill(
                destination, found.exported.tables, request, found.facts, found.identities, found.owners,
                found.kafka.isolation, self.warn_once,
            )  # fmt: skip
        plan = make_plan(
            request.group,
            destination.store.uri,
            found.facts,
            on_mismatch=request.on_mismatch,
            joins=request.join is not None,
            max_messages=request.max_messages,
        )
        return plan, frozenset()


def _tagged(identity: TopicIdentity, known: TopicCoverage | None, has_foreign_files: bool) -> TopicIdentity:
    """A topic's log with its mark in file names: that which it has, or one of its own where the destination has files
    of another log of that name."""
    if known is not None and known.identity.is_same(identity):
        return replace(identity, tag=known.identity.tag)
    return replace(identity, tag=f"{identity.czxid:x}" if known is not None or has_foreign_files else None)
