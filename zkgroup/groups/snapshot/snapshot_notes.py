"""What to know about rows of groups, in lines: parts that could not be read, and answers that are missing; pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from zkgroup.groups.group_model import GroupPartition, GroupSnapshot, Store
from zkgroup.protocol import znodes
from zkgroup.protocol.names import TopicPartition, spans
from zkgroup.text import counted, listed

#: How long the names of partitions in a line may get.
NAMES_LENGTH: Final = 200


def notes(snapshot: GroupSnapshot, store: Store = "both") -> list[str]:
    """What could not be read, one line each; partitions with the same problem share a line."""
    lines = [*snapshot.all_warnings, *snapshot.age_warnings, *map(str, snapshot.problems)]
    lines += foreign_note(snapshot.foreign, "no offsets")
    lines += [f"znode {path} cannot be read: {why}" for path, why in snapshot.unreadable.items() if _is_shared(path)]
    lines += [f"member {member.member}: {member.error}" for member in snapshot.members if member.error]
    lines += notes_by_reason([(p, p.error) for p in snapshot.partitions if p.error])
    if store != "kafka":
        offsets = [(p, p.stored) for p in snapshot.partitions if p.stored is not None]
        lines += notes_by_reason([(p, stored.error) for p, stored in offsets if stored.error], "its offset: ")
        lines += notes_by_reason([(p, stored.defect) for p, stored in offsets if stored.defect], "its offset: ")
    if store != "zookeeper":
        lines += notes_by_reason(
            [(p, p.kafka.error) for p in snapshot.partitions if p.kafka and p.kafka.error], "in Kafka: "
        )
    unknown = [(p, p.log_error) for p in snapshot.partitions if p.log_error]
    lines += notes_by_reason([(p, why) for p, why in unknown if why not in snapshot.reported_reasons])
    return lines


def incomplete_notes(snapshots: Iterable[GroupSnapshot]) -> list[str]:
    """A warning, where access lists hide what the rows of groups count: that is only what may be seen."""
    groups = [
        one.group for one in snapshots if any(path.startswith(f"{znodes.group(one.group)}/") for path in one.unreadable)
    ]
    if not groups:
        return []
    return [f"a part of {listed(groups)} may not be read, and is not counted: connect as one whom its list admits"]


def shared_warnings(snapshots: Iterable[GroupSnapshot]) -> list[str]:
    """The warnings of all snapshots, each once; missing answers of coordinators in one line for each cause."""
    lines: dict[str, None] = {}
    notes_by_reason: dict[tuple[str, str], list[str]] = {}
    for snapshot in snapshots:
        lines |= dict.fromkeys([*snapshot.warnings, *snapshot.unlisted, *snapshot.age_warnings])
        for why in dict.fromkeys(snapshot.kafka_failures.values()):
            what = " and ".join(half for half, reason in snapshot.kafka_failures.items() if reason == why)
            notes_by_reason.setdefault((what, why), []).append(snapshot.group)
    for (what, why), names in notes_by_reason.items():
        whose = f"group {names[0]} in Kafka" if len(names) == 1 else f"{len(names)} groups in Kafka ({listed(names)})"
        lines[f"{what} of {whose} are not known: {why}"] = None
    return list(lines)


def foreign_note(paths: Sequence[str], fate: str) -> list[str]:
    """What becomes of nodes of a group that no consumer makes, in one line; nothing where there are none."""
    if not paths:
        return []
    return [
        f"{counted(len(paths), 'node')} of another client {'is' if len(paths) == 1 else 'are'} {fate}: {listed(paths)}"
    ]


def _is_shared(path: str) -> bool:
    """Whether a node that may not be read has a line of its own, and not that of a member or a partition."""
    parts = path.split("/")
    return not (len(parts) == 5 and parts[3] == "ids") and not (len(parts) == 6 and parts[1] == "consumers")


def notes_by_reason(reasons: Iterable[tuple[GroupPartition, str]], prefix: str = "") -> list[str]:
    """Partitions with their reasons, a line for each reason; of very many partitions only some are named."""
    found: dict[str, list[TopicPartition]] = {}
    for partition, reason in reasons:
        found.setdefault(reason, []).append(partition.key)
    return [f"{_shortened(keys)}: {prefix}{reason}" for reason, keys in found.items()]


def _shortened(keys: Sequence[TopicPartition]) -> str:
    text = spans(keys)
    if len(text) <= NAMES_LENGTH:
        return text
    return f"{text[:NAMES_LENGTH].rpartition(', ')[0] or text[:NAMES_LENGTH]} … ({len(keys)} partitions)"
