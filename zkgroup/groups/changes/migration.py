"""The plan of a migration: a group's offsets from one store to the other, compared, as a reset of the other one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias

from zkgroup.clients.kafka.client import KafkaSettings
from zkgroup.clients.kafka.topic_metadata import offsets_retention
from zkgroup.errors import NotFoundError, RefusedError, VerificationError, ZkgroupError
from zkgroup.groups.changes.applier import Applier
from zkgroup.groups.changes.current_offsets import CurrentOffsets, OffsetReader
from zkgroup.groups.changes.group_resets import plan_group_reset
from zkgroup.groups.changes.offset_checkpoint import checkpoint_of
from zkgroup.groups.changes.plan import Plan, Source
from zkgroup.groups.changes.reset_plan import Target
from zkgroup.groups.group_model import STORE_NAMES, GroupPartition, OffsetStore, Store
from zkgroup.groups.partition_scope import Scope, Selection
from zkgroup.groups.snapshot.snapshot_defects import notes_by_reason
from zkgroup.protocol.names import TopicPartition, spans
from zkgroup.text import listed

#: Which offset counts where the store that is written to is ahead.
Take: TypeAlias = Literal["source", "larger"]

_OTHER: Final[Mapping[OffsetStore, OffsetStore]] = {"zookeeper": "kafka", "kafka": "zookeeper"}
#: Minutes in a day.
_DAY: Final = 24 * 60


@dataclass(frozen=True, slots=True)
class Migration:
    """A migration. ``offsets``: in the store they come from, with its ``warnings``."""

    origin: OffsetStore
    to: OffsetStore
    offsets: Mapping[TopicPartition, int]
    warnings: tuple[str, ...]
    plan: Plan

    repeated = missing = None  # the offsets mean the same messages in both stores
    moved_on = ()

    @property
    def rows(self) -> list[dict[str, object]]:
        """The plan's rows, each with its offset in the store it comes from, and with its log."""
        return [
            {
                "topic": row.topic,
                "partition": row.partition,
                "source": self.offsets[row.key],
                "current": row.current,
                "target": row.target,
                "change": row.change,
                "log_start": self.plan.partitions[row.key].log_start,
                "log_end": self.plan.partitions[row.key].log_end,
                "note": row.note,
            }
            for row in self.plan.rows
        ]

    @property
    def notes(self) -> list[str]:
        """The notes of its rows as lines, but for those that are only new."""
        rows = [row for row in self.plan.rows if row.note and not row.is_plainly_new(self.offsets[row.key])]
        return notes_by_reason([(self.plan.partitions[row.key], row.note or "") for row in rows])

    def check_same(self) -> None:
        """Raise ``VerificationError`` where the two stores differ."""
        origin, to = STORE_NAMES[self.origin], STORE_NAMES[self.to]
        differing = [
            f"{row.key} is {source} in {origin} and {'none' if row.current is None else row.current} in {to}"
            for row in self.plan.rows
            if row.current != (source := self.offsets[row.key])
        ]
        if differing:
            raise VerificationError(
                f"group {self.plan.group} is not the same in both stores: {listed(differing, most=3)}",
                "verify it again if it is active, as it may differ for a moment; else migrate it",
            )


def movable_offsets(group: str, current: CurrentOffsets, store: Store) -> tuple[dict[TopicPartition, int], list[str]]:
    """The offsets in ``store`` of partitions that exist, and the warnings: of the snapshot, and of the others, which
    are left behind. Raises ``NotFoundError`` where there is none."""
    partitions = current.partitions
    offsets = checkpoint_of(group, partitions.values(), store)
    gone = [partition for key in offsets if not (partition := partitions[key]).exists]
    notes = notes_by_reason([(partition, partition.log_error or "") for partition in gone])
    kept = {key: offset for key, offset in offsets.items() if partitions[key].exists}
    if not kept:
        raise NotFoundError(f"group {group} has offsets of no partition that exists", "check its name and --topic")
    return kept, [*current.snapshot.all_warnings, *(f"{line}: left behind" for line in notes)]


def plan_migration(
    applier: Applier, group: str, to: OffsetStore, scope: Scope | None = None, take: Take | None = None
) -> Migration:
    """Compare both stores, and plan a target for each offset. Creates nothing.

    An offset outside its log is moved to the nearer end, with a note, as in a reset. Partitions that do not exist any
    more are left out, with a warning. Without ``take`` the plan is refused where the other store is ahead; unless it is
    ``source``, also where an offset outside its log would replace one inside. Raises ``NotFoundError`` where there is
    nothing to move, ``ZkgroupError`` where an offset cannot be read.
    """
    origin = _OTHER[to]
    reader = OffsetReader(applier.registry, applier.brokers, group, applier.timeout)
    current = reader.read(Selection(scope), origin, needs_logs=False, may_create=False)
    meant = current.partitions
    offsets, warnings = movable_offsets(group, current, origin)
    elsewhere = reader.read_other(origin, offsets)
    ahead = [key for key, offset in offsets.items() if elsewhere.get(key, -1) > offset]
    wanted = {
        key: max(offset, elsewhere.get(key, -1)) if take == "larger" else offset for key, offset in offsets.items()
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
        and _is_in_log(plan.partitions[row.key], row.current)
        and not _is_in_log(plan.partitions[row.key], offsets[row.key])
    ]
    if plan.changes:
        refusals = _refusals(origin, to, ahead if take is None else (), adrift if take != "source" else ())
        plan = replace(plan, refusals=tuple(refusals))
    return Migration(origin, to, offsets, tuple(warnings), plan)


def _is_in_log(partition: GroupPartition, offset: int) -> bool:
    """Whether the partition's log, as far as it is known, has such an offset."""
    start, end = partition.log_start, partition.log_end
    return (start is None or offset >= start) and (end is None or offset <= end)


def _refusals(
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


def describe_retention(settings: KafkaSettings, timeout: float) -> str:
    """For how long Kafka keeps the offsets of an inactive group, as text."""
    try:
        minutes = offsets_retention(settings, timeout)
    except ZkgroupError:  # what was moved is moved
        minutes = None
    if minutes is None:
        kept = (
            "for an unknown time (offsets.retention.minutes cannot be read; by default one day before"
            " Kafka 2.0, and seven since)"
        )
    else:
        kept = f"for {_duration(minutes)} (offsets.retention.minutes={minutes})"
    return f"Kafka keeps offsets of an inactive group {kept}: start its consumers within that time"


def _duration(minutes: int) -> str:
    if minutes >= 2 * _DAY:
        return f"{minutes / _DAY:g} days"
    return f"{minutes / 60:g} hours" if minutes >= 120 else f"{minutes} minutes"
