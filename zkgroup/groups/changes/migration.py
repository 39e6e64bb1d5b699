"""The plan of a migration: a group's offsets from one store to the other, or, translated, to another cluster, as a
reset of the group there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from zkgroup.clients.kafka.client import KafkaSettings
from zkgroup.clients.kafka.client import topics as read_topics
from zkgroup.clients.kafka.topic_metadata import offsets_retention
from zkgroup.errors import NotFoundError, Notice, RefusedError, Remedy, UsageError, VerificationError, ZkgroupError
from zkgroup.groups.changes.applier import Applier
from zkgroup.groups.changes.current_offsets import CurrentOffsets, OffsetReader, checkpoint_of
from zkgroup.groups.changes.kafka_writer import refuse_if_active, verification_moments
from zkgroup.groups.changes.offset_translation import Position, Reason, translate_offsets
from zkgroup.groups.changes.plan import OffsetChange, Plan, Source, StalePlanError
from zkgroup.groups.changes.preconditions import read_inactive_group
from zkgroup.groups.changes.reset_plan import Target, plan_group_reset
from zkgroup.groups.group_choices import Prefer
from zkgroup.groups.group_model import STORE_NAMES, GroupPartition, OffsetStore, Store, other_store, stores_of
from zkgroup.groups.offset_files.format_readers import Wanted
from zkgroup.groups.partition_scope import Scope, Selection
from zkgroup.groups.snapshot.snapshot_defects import notes_by_reason
from zkgroup.protocol.names import TopicPartition, spans
from zkgroup.text import counted, group_command, listed, offset_text

_REASONS: Final[Mapping[Reason, str]] = {
    "outside": "the offset is outside its log at the source",
    "empty": "the source has no message left around the offset",
    "not mirrored yet": "the mirror has not caught up yet",
    "mirrored later": "the mirror began behind the offset: messages between are missing at the target",
    "absent": "messages are missing at the target",
    "ambiguous": "the messages around the offset recur",
    "too far behind": "too many messages to compare: unconsumed ones, or later ones at the target",
    "scattered": "the mirror has put messages into other partitions of the topic",
}
#: What may bring the place; without it waiting is in vain.
_WAITS: Final[Mapping[Reason, str]] = {
    "not mirrored yet": "wait until the mirror has caught up; else ",
    "mirrored later": "let the group consume further first; else ",
    "too far behind": "let the group consume further first; else ",
}


@dataclass(frozen=True, slots=True)
class Migration:
    """What a migration would do. ``offsets``: of the source, with its ``warnings``; ``plan``: of the group where they
    go. To another cluster: ``partitions``, source → target, and ``positions`` by partition of the source."""

    offsets: Mapping[TopicPartition, int]
    warnings: tuple[Notice, ...]
    plan: Plan
    partitions: Mapping[TopicPartition, TopicPartition] = field(default_factory=dict)
    positions: Mapping[TopicPartition, Position] = field(default_factory=dict)

    @property
    def repeated(self) -> int | None:
        """How many messages are consumed twice, at most; None where a partition was not found, or within a cluster."""
        return None if self.missing != 0 else sum(one.repeated for one in self.positions.values())

    @property
    def missing(self) -> int | None:
        """How many partitions were not found at the target; None within a cluster."""
        return sum(one.offset is None for one in self.positions.values()) if self.positions else None

    @property
    def rows(self) -> list[dict[str, object]]:
        """A row for each partition of the source, with its match and its log at the target."""
        changes = {row.key: row for row in self.plan.rows}
        found = []
        for key, source in sorted(self.offsets.items()):
            there, position = self.partitions.get(key, key), self.positions.get(key)
            row, log = changes.get(there), self.plan.partitions.get(there, GroupPartition(*there))
            reason = None if position is None or position.reason is None else _REASONS[position.reason]
            found.append(
                {
                    "topic": key.topic,
                    "partition": key.partition,
                    "source": source,
                    "to_topic": there.topic,
                    "match": position and _match(position),
                    "repeated": None if position is None or position.offset is None else position.repeated,
                    "current": None if row is None else row.current,
                    "target": None if row is None else row.target,
                    "change": None if row is None else row.change,
                    "log_start": log.log_start,
                    "log_end": log.log_end,
                    "note": "; ".join(filter(None, (reason, None if row is None else row.note))) or None,
                }
            )
        return found

    @property
    def notes(self) -> list[Notice]:
        """The reasons why partitions are not found, and the notes of its rows as lines, but for those that are only
        new."""
        placed = {key: one.offset for key, one in self.positions.items()} if self.positions else self.offsets
        planned = {self.partitions.get(key, key): offset for key, offset in placed.items()}
        return notes_by_reason(
            [
                *((GroupPartition(*key), _REASONS[one.reason]) for key, one in self.positions.items() if one.reason),
                *(
                    (self.plan.partitions[row.key], row.note)
                    for row in self.plan.rows
                    if row.note and (row.seen is not None or row.target != planned[row.key])
                ),
            ]
        )

    @property
    def moved_on(self) -> list[Notice]:
        """Where the group is further in another cluster than it would be moved to, as lines."""
        ahead = {row.key: beyond for row in self.plan.rows if self.positions and (beyond := _beyond(row))}
        count = counted(sum(ahead.values()), "offset")
        what = f"the group has moved on at the target, {count} beyond the plan: {spans(ahead)}"
        return [Notice(what)] if ahead else []

    def check_same(self) -> None:
        """Raise ``VerificationError`` where the two stores differ, or where the group has no offset in another cluster,
        or one before the translated one."""
        place = "at the target" if self.positions else f"in {STORE_NAMES[stores_of(self.plan.store)[0]]}"
        planned = {row.key for row in self.plan.rows}
        missing = [key for key, there in self.partitions.items() if there not in planned]
        differing = [f"{spans(missing)}: not found at the target"] if missing else []
        for row in self.plan.rows:
            wanted = row.target if self.positions else self.offsets[row.key]
            if row.current != wanted and not (self.positions and _beyond(row)):
                differing.append(f"{row.key} is {offset_text(row.current)} {place}, not {wanted}")
        if differing:
            raise VerificationError(
                f"group {self.plan.group} differs: {listed(differing, most=3)}",
                "an active group may differ for a moment, so verify it again; migrate an inactive one",
            )


def _match(position: Position) -> Literal["exact", "earlier", "not found"]:
    if position.offset is None:
        return "not found"
    return "earlier" if position.repeated else "exact"


# --- within a cluster ------------------------------------------------------------------------------------------------


def movable_offsets(
    group: str, current: CurrentOffsets, store: Store
) -> tuple[dict[TopicPartition, int], list[Notice]]:
    """The offsets in ``store`` of partitions that exist, and the warnings: of the snapshot, and of the others, which
    are left behind. Raises ``NotFoundError`` where there is none."""
    partitions = current.partitions
    offsets = checkpoint_of(group, partitions.values(), store)
    gone = [partition for key in offsets if not (partition := partitions[key]).exists]
    notes = notes_by_reason((p, p.log_error and f"{p.log_error}: left behind") for p in gone)
    kept = {key: offset for key, offset in offsets.items() if partitions[key].exists}
    if not kept:
        raise NotFoundError(f"group {group} has offsets of no partition that exists", "check its name and --topic")
    return kept, [*current.snapshot.all_warnings, *notes]


def plan_migration(
    applier: Applier, group: str, to: OffsetStore, scope: Scope | None = None, prefer: Prefer | None = None
) -> Migration:
    """Compare both stores, and plan a target for each offset. Creates nothing.

    An offset outside its log is moved to the nearer end, with a note, as in a reset. Partitions that do not exist any
    more are left out, with a warning. Without ``prefer`` the plan is refused where the other store is ahead; unless it
    is ``source``, also where an offset outside its log would replace one inside. Raises ``NotFoundError`` where there
    is nothing to move, ``ZkgroupError`` where an offset cannot be read.
    """
    origin = other_store(to)
    reader = OffsetReader(applier, group)
    current = reader.read(Selection(scope), origin, needs_logs=False, may_create=False)
    meant = current.partitions
    offsets, warnings = movable_offsets(group, current, origin)
    elsewhere = reader.read_other(origin, offsets)
    ahead = [key for key, offset in offsets.items() if elsewhere.get(key, -1) > offset]
    wanted = {
        key: max(offset, elsewhere.get(key, -1)) if prefer == "larger" else offset for key, offset in offsets.items()
    }
    reset = plan_group_reset(applier, group, Target("file", offsets=wanted), Selection(scope, frozenset(wanted)), to)
    source = None
    if to == "zookeeper":
        source = Source(group, {key: kafka for key in offsets if (kafka := meant[key].kafka) is not None})
    plan = replace(reset, command="migrate-group", source=source)
    adrift = [
        row.key
        for row in plan.rows
        if row.current is not None
        and row.current != row.target
        and not plan.partitions[row.key].why_outside(row.current)
        and plan.partitions[row.key].why_outside(offsets[row.key])
    ]
    if plan.changes:
        refusals = _store_refusals(origin, to, ahead if prefer is None else (), adrift if prefer != "source" else ())
        plan = replace(plan, refusals=tuple(refusals))
    return Migration(offsets, tuple(warnings), plan)


def _store_refusals(
    origin: OffsetStore, to: OffsetStore, ahead: Sequence[TopicPartition], adrift: Sequence[TopicPartition]
) -> Iterator[RefusedError]:
    there, here = STORE_NAMES[to], STORE_NAMES[origin]
    if ahead:
        yield RefusedError(
            f"{there} is ahead of {here} in {spans(ahead)}: a client has committed there",
            "keep these with --prefer larger, or set them back with --prefer source",
        )
    if adrift:
        yield RefusedError(
            f"{spans(adrift)}: outside the log in {here}, and not in {there}",
            f"reset them in {here} first, or leave them out with GROUP --topic …; --prefer source takes the nearer ends"
            " of their logs",
        )


def describe_retention(settings: KafkaSettings, timeout: float) -> Notice:
    """For how long Kafka keeps the offsets of an inactive group."""
    try:
        minutes = offsets_retention(settings, timeout)
    except ZkgroupError:  # what was moved is moved
        minutes = None
    kept = "an unknown time" if minutes is None else f"{minutes / 60:g} hours"
    reason = f"offsets.retention.minutes{' cannot be read' if minutes is None else f'={minutes}'}"
    remedy = Remedy("start its consumers within that time")
    return Notice(f"Kafka keeps offsets of an inactive group for {kept} ({reason})", remedy)


# --- to another cluster ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SourceOffsets:
    """A group's committed offsets that go to another cluster. ``store``: where they are."""

    group: str
    store: Store
    offsets: Mapping[TopicPartition, int]
    warnings: tuple[Notice, ...] = ()


def read_source_offsets(applier: Applier, group: str, scope: Scope | None = None) -> SourceOffsets:
    """The offsets that a group has committed in either store; partitions that do not exist any more are left out, with
    a warning.

    Raises ``NotFoundError`` where there is none, ``RefusedError`` where the two stores differ, ``ZkgroupError`` where
    an offset cannot be read.
    """
    reader = OffsetReader(applier, group)
    current = reader.read(
        Selection(scope), None if applier.registry is not None else "kafka", needs_logs=False, may_create=False
    )
    offsets, warnings = movable_offsets(group, current, current.store)
    bare = [one for one in current.partitions.values() if one.exists and one.key not in offsets]
    warnings += notes_by_reason(
        (one, f"{counted(len(bare), 'partition')} without a committed offset: new consumers begin as they are set up")
        for one in bare
    )
    stores = {
        key: {current.partitions[key].committed(store) for store in stores_of("both")} - {None} for key in offsets
    }
    if differing := [key for key, found in stores.items() if len(found) > 1]:
        raise RefusedError(
            f"group {group} has two offsets of {spans(differing)}: ZooKeeper and Kafka differ",
            Remedy("make them the same first", group_command("migrate-group", group, "--to", "kafka")),
        )
    return SourceOffsets(group, current.store, dict(sorted(offsets.items())), tuple(warnings))


def check_source(applier: Applier, source: SourceOffsets, *, is_written: bool = False) -> None:
    """Raise ``RefusedError`` where the group is active at the source, or has committed since it was read; once the
    offsets are written ``VerificationError``, also where it commits in the next seconds."""
    in_kafka = None if source.store == "zookeeper" else applier.coordinators().read_group(source.group)
    reader = OffsetReader(applier, source.group)
    selection = Selection(listed=frozenset(source.offsets), gone=True)
    try:
        for _ in verification_moments(in_kafka) if is_written and in_kafka is not None else [None]:
            if applier.registry is not None:
                read_inactive_group(applier.registry, source.group)
            if in_kafka is not None:
                refuse_if_active(source.group, applier.coordinators().read_group(source.group))
            now = reader.read(selection, source.store, needs_logs=False).partitions
            if moved := [key for key, offset in source.offsets.items() if now[key].committed(source.store) != offset]:
                raise StalePlanError(
                    f"group {source.group} has committed {spans(moved)} since the plan was made",
                    "find out who commits for the group, then plan again",
                )
    except RefusedError as refused:
        if is_written:
            raise VerificationError(refused.message, refused.remedy) from None
        raise


def translate(
    source: Applier, target: Applier, offsets: Mapping[TopicPartition, int], topics: Mapping[str, str]
) -> tuple[dict[TopicPartition, TopicPartition], dict[TopicPartition, Position]]:
    """For each partition the one at the target, and where the group goes on there. ``topics``: those that have another
    name there. Raises ``UsageError`` where two would become one, ``NotFoundError`` for topics that the target does not
    have, ``RefusedError`` for those that have another number of partitions there."""
    here, there = read_topics(source.brokers(), source.timeout), read_topics(target.brokers(), target.timeout)
    names = {key.topic: topics.get(key.topic, key.topic) for key in offsets}
    if len(set(names.values())) < len(names):
        raise UsageError("two topics would become one at the target", "give each its own with --topic-map")
    if missing := sorted(name for name in names.values() if name not in there):
        raise NotFoundError(
            f"the target has no topic {listed(missing)}",
            "mirror it first; --topic-map SOURCE=TARGET names one that is called otherwise",
        )
    other = [
        f"{topic} has {counted(len(here.get(topic, ())), 'partition')}, and {len(there[name])} at the target"
        for topic, name in sorted(names.items())
        if len(here.get(topic, ())) != len(there[name])
    ]
    if other:
        raise RefusedError(
            f"{listed(other)}: a message may be in another partition there",
            "leave such topics out with GROUP --topic …, and reset them at the target by time",
        )
    partitions = {key: TopicPartition(names[key.topic], key.partition) for key in offsets}
    return partitions, translate_offsets(source.brokers(), target.brokers(), offsets, partitions, target.timeout)


def plan_cluster_migration(
    target: Applier,
    source: SourceOffsets,
    partitions: Mapping[TopicPartition, TopicPartition],
    positions: Mapping[TopicPartition, Position],
    to: OffsetStore,
    check: Callable[[bool], None],
    *,
    prefer: Prefer | None = None,
    to_earliest: bool = False,
) -> Migration:
    """What becomes of the group at the target, in the store ``to``.

    ``check``: that of its ``Source``. Partitions that were not found make the plan refused, unless they go
    ``to_earliest``: to the start of their logs. Without ``prefer`` it is refused where the group is ahead at the
    target.
    """
    group = source.group
    wanted: dict[TopicPartition, Wanted] = {
        partitions[key]: "earliest" if one.offset is None else one.offset
        for key, one in positions.items()
        if one.offset is not None or to_earliest
    }
    plan = Plan(command="migrate-group", group=group, store=to, rows=())
    if wanted:
        selection = Selection(listed=frozenset(wanted))
        plan = plan_group_reset(target, group, Target("file", offsets=wanted), selection, to)
    ahead = [row.key for row in plan.rows if _beyond(row)]
    rows = plan.rows if prefer != "larger" else tuple(_kept(row) if _beyond(row) else row for row in plan.rows)
    missing = [] if to_earliest else [key for key, one in positions.items() if one.offset is None]
    plan = replace(
        plan,
        command="migrate-group",
        rows=rows,
        source=Source(group, None, check=check),
        refusals=tuple(_cluster_refusals(missing, positions, ahead if prefer is None else ())),
    )
    return Migration(source.offsets, source.warnings, plan, partitions, positions)


def _beyond(row: OffsetChange) -> int:
    """How many offsets the group is ahead of the row's target."""
    return 0 if row.current is None or row.target is None else max(0, row.current - row.target)


def _kept(row: OffsetChange) -> OffsetChange:
    return replace(row, target=row.current, note="; ".join(filter(None, (row.note, "the larger one is kept"))))


def _cluster_refusals(
    missing: Sequence[TopicPartition], positions: Mapping[TopicPartition, Position], ahead: Iterable[TopicPartition]
) -> Iterator[RefusedError]:
    reasons = {reason: [key for key in missing if positions[key].reason == reason] for reason in _REASONS}
    for reason, keys in sorted(reasons.items(), key=lambda one: one[0] in _WAITS):  # the first one is raised
        if keys:
            yield RefusedError(
                f"{spans(keys)}: {_REASONS[reason]}",
                f"{_WAITS.get(reason, '')}leave them out with GROUP --topic … and reset them there by time, or read"
                " their logs from the start with --not-found earliest",
            )
    if ahead := list(ahead):
        yield RefusedError(
            f"the group is ahead at the target in {spans(ahead)}: somebody has committed there",
            "find out which is right: --prefer larger keeps those, --prefer source sets them back",
        )


def parse_topic_map(texts: Iterable[str]) -> dict[str, str]:
    """Parse ``SOURCE=TARGET``. Raises ``UsageError``."""
    found: dict[str, str] = {}
    for text in texts:
        here, equals, there = text.partition("=")
        if not (equals and here and there) or "=" in there:
            raise UsageError(f"--topic-map {text[:120]!r} is no SOURCE=TARGET", "write two names of topics")
        if found.setdefault(here, there) != there:
            raise UsageError(f"--topic-map names two targets of {here[:120]!r}", "give one")
    return found
