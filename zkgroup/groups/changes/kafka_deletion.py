"""Deleting a group in Kafka, as safely as Kafka admits.

The coordinator refuses a deletion while the group has members, and deletes all offsets at once. A request cannot name
the offsets that the deletion is based on: zkgroup reads them again just before. A commit without a member in the
milliseconds between is deleted unseen.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from zkgroup.clients.kafka.client import KafkaSettings
from zkgroup.clients.kafka.group_coordinator import Coordinators
from zkgroup.clients.kafka.responses import KafkaGroup, KafkaOffset
from zkgroup.errors import RefusedError, Remedy, UnreachableError, VerificationError
from zkgroup.groups.changes.change_reports import after
from zkgroup.groups.changes.kafka_offset_writer import Precondition, refuse_if_active, verification_moments
from zkgroup.groups.changes.plan import Source
from zkgroup.protocol.names import TopicPartition
from zkgroup.text import listed

_CHECK_GROUPS: Final = Remedy("see which groups are left; the backup has the deleted offsets", ("list-groups",))


def check_unmoved(coordinators: Coordinators, source: Source) -> None:
    """Raise ``RefusedError`` where the group has members in Kafka, or other offsets than were planned with, or where it
    is to be deleted by brokers that delete no groups; ``ZkgroupError`` where one of these is not known."""
    if source.is_deleted:
        coordinators.check_deletes(source.group)
    now = coordinators.read_group(source.group)
    refuse_if_active(source.group, now)
    planned = source.in_kafka or {}
    there = {key: offset for key, offset in now.offsets.items() if source.is_deleted or key in planned}
    if changed := _changed(planned, there):
        raise RefusedError(
            f"offsets of group {source.group} in Kafka have changed since the plan was made: {listed(changed)}",
            "find the client that commits for the group, then plan again",
        )


def remove_from_kafka(
    settings: KafkaSettings, group: str, planned: KafkaGroup, timeout: float, *, check: Precondition | None = None
) -> None:
    """Delete the group and its offsets, which must be as ``planned``; ``check`` is called before. A group
    that is gone already is no error. ``timeout`` (seconds) is for a broker's answer.

    Raises ``RefusedError`` where the check refuses, the group has members, or an offset has moved since the plan;
    or brokers delete no groups; ``VerificationError`` where the group has offsets again at once.
    """
    coordinators = Coordinators(settings, timeout)
    coordinators.leaders()  # connects, so that nothing is left to find out between the last reading and the deletion
    if check is not None:
        check()
    check_unmoved(coordinators, Source(group, planned.offsets, is_deleted=True))
    try:
        coordinators.delete(group)
    except UnreachableError as error:
        error.add_outcome(f"whether group {group} is deleted in Kafka is not known")
        error.add_remedy(_CHECK_GROUPS)
        raise
    for _ in verification_moments(planned):
        with after(f"group {group} is deleted in Kafka, which was not verified", _CHECK_GROUPS):
            again = coordinators.read_group(group)
        if again.offsets:
            found = listed([str(key) for key in sorted(again.offsets)])
            raise VerificationError(
                f"group {group} is deleted in Kafka, and has offsets there again: {found}",
                "find the client that commits for it; the backup has the deleted offsets",
            )


def _changed(before: Mapping[TopicPartition, KafkaOffset], now: Mapping[TopicPartition, KafkaOffset]) -> list[str]:
    """The offsets that would be lost, as text. An offset that is gone, as they expire, is no loss."""
    found = []
    for key in sorted(now):
        if before.get(key) != now[key]:
            was = before[key].offset if key in before else None
            text = f"was {'none' if was is None else was}, is {now[key].offset}"
            same = was == now[key].offset
            found.append(f"{key} ({f'{now[key].offset}, with other metadata' if same else text})")
    return found
