"""What an export has to do now: from the first question to the plan of a run.

An export asks twice and more, without its group's claim and under it: what is to be said of the answers is said once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from zkgroup.export.lake.begun import read_begun
from zkgroup.export.lake.book import Book
from zkgroup.export.lake.clusters import refuse_other_cluster
from zkgroup.export.lake.lake import Lake
from zkgroup.export.lake.overlap import refuse_overlap
from zkgroup.export.model.layout import Layout, LayoutWish
from zkgroup.export.model.rundata import Kind, RunPlan, TopicIdentity, now_ms
from zkgroup.export.model.words import ExportPlan, OffsetRange, PartitionFacts
from zkgroup.export.planning.beginnings import LostError, expired
from zkgroup.export.planning.begun import as_begun
from zkgroup.export.planning.bounds import notes_on, refuse_unknown
from zkgroup.export.planning.filling import ISOLATION, as_exported, plan_backfill
from zkgroup.export.planning.group import ExportGroup
from zkgroup.export.planning.passing_over import beginning
from zkgroup.export.planning.plan import in_no_file, make_plan
from zkgroup.export.planning.renamed import refuse_renamed_in_place
from zkgroup.export.planning.request import ExportRequest
from zkgroup.export.planning.run_plan import run_plan_of
from zkgroup.export.planning.waiting import standing_still
from zkgroup.export.runs.neighbours import binding_layout
from zkgroup.export.runs.surroundings import tell_of
from zkgroup.export.runs.transactions import holdable
from zkgroup.groups.changing.permissions import refuse_unwritable
from zkgroup.protocol.names import TopicPartition
from zkgroup.servers.kafka import KafkaSettings
from zkgroup.servers.registry import Registry
from zkgroup.servers.times import has_no_time_index
from zkgroup.words import listed

if TYPE_CHECKING:
    from zkgroup.export.runs.membership import Membership


@dataclass(frozen=True, slots=True)
class _Look:
    """What ZooKeeper, the brokers and the lake have told. ``tags``: the marks of the topics' logs in
    file names; ``here``: what this cluster is known as."""

    group: ExportGroup
    kafka: KafkaSettings
    isolation: str
    book: Book
    identities: Mapping[str, TopicIdentity]
    facts: list[PartitionFacts]
    tags: Mapping[str, str | None]
    here: Collection[str]


class Planner:
    """Plans what one ``request`` asks for."""

    def __init__(
        self, request: ExportRequest, lake: Lake, kafka: Callable[[], KafkaSettings], warn: Callable[[str], None]
    ) -> None:
        self._request = request
        self._lake = lake
        self._kafka = kafka
        self._warn = warn
        self._told: set[str] = set()

    def tell(self, words: Iterable[str]) -> None:
        """Say these, unless they were said."""
        tell_of(words, self.once)

    def once(self, line: str) -> None:
        """Say this, unless it was said."""
        if line not in self._told:
            self._told.add(line)
            self._warn(line)

    def has_work(self, plan: ExportPlan) -> bool:
        """Whether there is anything to read, to commit, or to record. What other members have read is recorded when
        there is something else: for that alone nobody joins them."""
        return plan.moves or (plan.passes_over and self._request.join is None)

    def plan(
        self, registry: Registry, cluster: str | None = None, member: Membership | None = None
    ) -> tuple[ExportPlan, RunPlan | None]:
        """What there is to do now; with ``cluster`` also as the plan of a run, if there is anything. As ``member``: of
        its share alone. Raises as ``run_export`` does."""
        request = self._request
        look = self._look(registry, member)
        plan = self._decide(look)
        plan = replace(plan, notes=tuple(self._notes(look, plan, registry.timeout)))
        fills = request.backfill
        refuse_overlap(self._lake, in_no_file(plan.partitions, fills=fills), look.tags, request.group, fills=fills)
        if not fills:
            look.book.refuse_others(plan.partitions, look.identities)
        unasked = request.layout == LayoutWish()
        if not self.has_work(plan) and look.book.last.run is None:
            self._tell_of_the_lake(look, plan)  # rather than with the first message to come
        if not self.has_work(plan) and unasked:
            return plan, None
        # The default is for lakes that are empty: beside files in another layout it would keep readers from all.
        binding = binding_layout(registry, self._lake, request.group, cluster, must_tell=unasked)
        layout = request.layout.resolve(binding, self._lake.store.uri)
        if cluster is None or not self.has_work(plan):
            return plan, None
        refuse_renamed_in_place(self._lake, request, look.book, plan.partitions, look.identities)
        # Rather than when all is read, and decided.
        moved = [part for part in plan.partitions if part.moves]
        stored, unstored = ([p.partition for p in moved if (p.version is None) == new] for new in (False, True))
        refuse_unwritable(registry, request.group, stored, unstored)
        self._tell_of_the_lake(look, plan)
        return plan, self._run_plan(look, plan, cluster, layout, registry.timeout)

    def _look(self, registry: Registry, member: Membership | None) -> _Look:
        request, kafka = self._request, self._kafka()
        group = ExportGroup(registry, request.group, self.once)
        if request.backfill:
            kafka = as_exported(self._lake, request.group, kafka, self.once)
        topics = group.select_topics(request.topics, request.whitelist)
        refuse_unknown(request.start, request.until, topics)
        if member is not None:
            topics = self._share(member, registry, topics)
        elif request.join is None and not request.backfill:
            group.refuse_if_live()
        book = Book(self._lake, request.group)
        here = group.clusters()
        same = request.policies.recreated == "same"
        identities = book.as_known(group.identities(topics), same=same)
        if not same:
            refuse_other_cluster(self._lake, request.group, here, identities, book)
        facts = group.facts(
            topics,
            kafka,
            registry.timeout,
            begin=request.start,
            until=request.until,
            identities=identities,
            coverage=book.last.coverage,
        )
        logs = book.logs(identities, here)
        facts = book.made_again(facts, identities, logs, joins=request.join is not None)
        if same:
            facts = book.copied(facts, identities)
        isolation = kafka.properties.get(ISOLATION, "read_committed")
        tags = {topic: one.tag for topic, one in logs.items()}
        return _Look(group, kafka, isolation, book, identities, facts, tags, here)

    def _share(
        self, member: Membership, registry: Registry, topics: Mapping[str, tuple[int, ...]]
    ) -> dict[str, tuple[int, ...]]:
        """Of these partitions those that are the member's, as many as can be committed at once."""
        held = member.held(registry)
        wanted = [TopicPartition(topic, number) for topic, numbers in topics.items() for number in numbers]
        ours = [partition for partition in wanted if partition in held]
        taken = holdable(self._request.group, ours, registry.settings)
        if not taken:
            self.once(f"other members of group {self._request.group} own all partitions: there is nothing to export")
        if len(taken) < len(ours):
            left = len(ours) - len(taken)
            self.once(f"{left} partitions are left to the next export: one transaction holds no more")
        grouped: dict[str, tuple[int, ...]] = {}
        for topic, number in taken:
            grouped[topic] = (*grouped.get(topic, ()), number)
        return grouped

    def _decide(self, look: _Look) -> ExportPlan:
        request, book = self._request, look.book
        policies = request.policies
        if request.skip_lost and policies.expired == "fail":
            policies = replace(policies, expired="earliest")
        if request.join is not None and policies.disagreement == "fail":
            # What other members read in the meantime is in no export of ours: that is how it is meant.
            policies = replace(policies, disagreement="group")
        if request.backfill:
            return plan_backfill(
                self._lake,
                request,
                self._as_begun(look, look.facts),
                look.identities,
                look.tags,
                book,
                policies,
                look.isolation,
                self.once,
            )
        facts = book.complete(look.facts, look.identities, look.tags, policies.disagreement)
        facts = self._as_begun(look, book.around_backfills(facts, look.identities))
        if policies.disagreement == "fail":
            # What is refused anyway is refused by the name of the file that is in the way, if there is one.
            again = [
                OffsetRange(fact.partition, fact.committed, fact.committed + 1)
                for fact in facts
                if fact.committed is not None and any(low <= fact.committed < high for low, high in fact.coverage)
            ]
            refuse_overlap(self._lake, again, look.tags, request.group)
        try:
            return make_plan(
                request.group,
                facts,
                policies=policies,
                max_messages=request.max_messages,
                range_messages=request.range_messages,
                whole=request.max_bytes is None,
                joined=book.last.joined,
            )
        except LostError:
            # Not what a run that was forgotten has published: such files come first, by their names.
            refuse_overlap(self._lake, expired(facts), look.tags, request.group)
            raise

    def _as_begun(self, look: _Look, facts: list[PartitionFacts]) -> list[PartitionFacts]:
        request = self._request
        if not request.backfill and all(fact.committed is not None for fact in facts):
            return facts  # cron's: nothing is asked of the store
        begun = read_begun(self._lake, request.group)
        kind: Kind = "backfill" if request.backfill else "export"
        return as_begun(facts, begun, look.identities, look.here, kind, request.start, request.policies)

    def _notes(self, look: _Look, plan: ExportPlan, timeout: float) -> list[str]:
        """What is to be said of the plan, whether or not anything comes of it."""
        request, fills = self._request, self._request.backfill
        by_segments = has_no_time_index(look.kafka)
        notes = notes_on(request.start, request.until, look.facts, plan, fills=fills, by_segments=by_segments)
        if look.isolation == "read_committed" and not fills:
            notes += standing_still(look.kafka, look.facts, timeout, now_ms())
        return notes

    def _tell_of_the_lake(self, look: _Look, plan: ExportPlan) -> None:
        """What is to be said of a destination that something is written to, or that the group has never written to."""
        book, store = look.book, self._lake.store
        self.tell(book.warnings(plan.partitions, look.identities, look.tags))
        seen = (name for name in self._lake.strangers() if not name.startswith(("_", ".")))
        if book.last.run is None and (strangers := list(seen)):
            self.once(
                f"{store.uri} holds {listed(strangers)}, which no export has written: readers may take that for data "
                "of the lake, and --verify will name it"
            )
        told = (one.coverage for one in (book.last, *book.others.values()))
        there = (next(self._lake.published(topic), None) for topic in look.identities)
        if not (self._request.backfill or any(told) or any(there)):
            self.tell(beginning(store.uri, self._request.group, plan.partitions, look.facts))

    def _run_plan(self, look: _Look, plan: ExportPlan, cluster: str, layout: Layout, timeout: float) -> RunPlan:
        cleanup = look.group.cleanup(look.identities, look.kafka, timeout) if plan.ranges else {}
        known = {
            topic: replace(identity, cleanup=cleanup.get(topic), tag=look.tags[topic])
            for topic, identity in look.identities.items()
        }
        run = self._lake.new_run(self._request.group)
        return run_plan_of(run, self._request, plan, known, look.book.last, cluster, look.isolation, layout)
