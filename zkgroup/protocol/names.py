"""Names of the protocol: topic partitions, consumers, consumer threads, groups, topics.

Formats and rules are those of the Scala consumer (``kafka.consumer.ZookeeperConsumerConnector``, Kafka 0.8.0 to
1.1.1) and of ``kafka.common.Topic``.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import Final, NamedTuple

from zkgroup.errors import UsageError

OFFSETS_TOPIC: Final = "__consumer_offsets"
TRANSACTIONS_TOPIC: Final = "__transaction_state"

#: Topics of Kafka's own, as the newest Scala consumer (0.11 and later) knows them.
INTERNAL_TOPICS: Final[frozenset[str]] = frozenset({OFFSETS_TOPIC, TRANSACTIONS_TOPIC})

MAX_TOPIC_LENGTH: Final = 249

_LEGAL = re.compile(r"[A-Za-z0-9._-]+", re.ASCII)
_LONG_OWNER = 1000  # characters
_PARTITION = re.compile(r"0|[1-9][0-9]{0,8}", re.ASCII)
_THREAD_INDEX = re.compile(r"0|[1-9][0-9]*", re.ASCII)
_RELEASE = re.compile(r"([0-9]{1,4})\.([0-9]{1,4})(?:\.([0-9]{1,4}))?(?:\.[0-9]{1,4})?", re.ASCII)


class TopicPartition(NamedTuple):
    """One partition of a topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def parse_partition(name: str) -> int | None:
    """The number of the partition that a znode is named by; None where the name is no partition's."""
    return int(name) if _PARTITION.fullmatch(name) else None


def spans(partitions: Iterable[TopicPartition]) -> str:
    """Partitions as text, consecutive ones together: ``orders-0..3, orders-7, payments-0``."""
    return ", ".join(span_list(partitions))


def span_list(partitions: Iterable[TopicPartition]) -> list[str]:
    """The same, one by one: ``["orders-0..3", "orders-7", "payments-0"]``."""
    parts: list[list[TopicPartition]] = []
    for partition in sorted(partitions):
        last = parts[-1][-1] if parts else None
        if last is not None and partition == (last.topic, last.partition + 1):
            parts[-1].append(partition)
        else:
            parts.append([partition])
    return [str(part[0]) if len(part) == 1 else f"{part[0]}..{part[-1].partition}" for part in parts]


class ConsumerThreadId(NamedTuple):
    """One stream of one group member. Owner nodes name it."""

    consumer_id: str
    index: int  # type: ignore[assignment]  # hides tuple.index()

    def __str__(self) -> str:
        return f"{self.consumer_id}-{self.index}"


class OwnerIdentity(NamedTuple):
    """Which registered member an owner string means; ``index`` is None where it names no thread."""

    consumer_id: str
    index: int | None  # type: ignore[assignment]


def utf16_order(text: str) -> bytes:
    """A sort key that orders strings as Java's ``String.compareTo`` does: by UTF-16 code units."""
    return text.encode("utf-16-be", "surrogatepass")


def thread_order(ids: Iterable[ConsumerThreadId]) -> list[ConsumerThreadId]:
    """Sort thread ids as the Scala consumer does: as whole strings, so that ``c-10`` comes before ``c-2``."""
    return sorted(ids, key=lambda thread: utf16_order(str(thread)))


def make_consumer_id(group: str, *, consumer_id: str | None, host: str, millis: int, uuid_high64: int) -> str:
    """The id a member registers under: ``GROUP_CONSUMERID``, or ``GROUP_HOST-MILLIS-XXXXXXXX``.

    ``uuid_high64`` is the high half of a random UUID; its first eight hexadecimal digits, without leading zeros, are
    used. Raises UsageError where the group or the consumer id is no legal name.
    """
    validate_group_id(group)
    if consumer_id is not None:
        if not _LEGAL.fullmatch(consumer_id):
            raise UsageError(
                f"consumer.id {consumer_id[:80]!r} is not a legal name",
                "use letters, digits, '.', '_' and '-' only",
            )
        return f"{group}_{consumer_id}"
    # A host name may have characters that ids must not have.
    safe_host = re.sub(r"[^A-Za-z0-9._-]", "_", host) or "localhost"
    digits = format(uuid_high64 & 0xFFFF_FFFF_FFFF_FFFF, "x")[:8]
    return f"{group}_{safe_host}-{millis}-{digits}"


def validate_group_id(group: str) -> str:
    """Check a group's name as the Scala consumer does: ``[A-Za-z0-9._-]+``, not ``.`` or ``..``. Raises UsageError."""
    return _validated("group", group, None)


def validate_topic(topic: str) -> str:
    """Return ``topic`` if Kafka takes it (as a group id, and at most 249 characters), else raise UsageError."""
    return _validated("topic", topic, MAX_TOPIC_LENGTH)


def _validated(what: str, name: str, longest: int | None) -> str:
    if not isinstance(name, str):
        raise UsageError(f"the {what} name {name!r} is no text", f"give a {what} name")
    if not name:
        raise UsageError(f"the {what} name is empty", f"give a {what} name")
    shown = repr(name if len(name) <= 80 else name[:77] + "...")
    if not _LEGAL.fullmatch(name):
        raise UsageError(
            f"{what} name {shown} has a character that Kafka does not take",
            "use letters, digits, '.', '_' and '-' only",
        )
    if name in (".", ".."):
        raise UsageError(f"{what} name {shown} is not allowed", "it would be a relative path")
    if longest is not None and len(name) > longest:
        raise UsageError(f"{what} name {shown} has {len(name)} characters", f"Kafka takes at most {longest}")
    return name


def identify_owner(owner: str, members: Collection[str]) -> OwnerIdentity | None:
    """The registered member that an owner string means, or None.

    Scala consumers write ``MEMBER-INDEX``; some foreign clients write the bare member id, and ids may contain dashes.
    Tried in this order: a member followed by ``-`` and an index; a member as it is; the longest member that the string
    starts with, up to a character that is no letter or digit. Pass a set or a mapping where there are many members.
    """
    head, dash, tail = owner.rpartition("-")
    if dash and head in members and _THREAD_INDEX.fullmatch(tail) and len(tail) < 10:
        return OwnerIdentity(head, int(tail))
    if owner in members:
        return OwnerIdentity(owner, None)
    if len(owner) > _LONG_OWNER:  # up to a megabyte: cutting it everywhere would take its square
        starts = (one for one in members if owner.startswith(one) and len(one) < len(owner))
        found = max((one for one in starts if one and not owner[len(one)].isalnum()), key=len, default=None)
        return None if found is None else OwnerIdentity(found, None)
    for end in range(len(owner) - 1, 0, -1):
        if not owner[end].isalnum() and owner[:end] in members:
            return OwnerIdentity(owner[:end], None)
    return None


def parse_release(release: str) -> tuple[int, int, int]:
    """Read a Kafka release such as ``0.8.2.2`` or ``1.1.1`` into its first three numbers, else raise UsageError."""
    match = _RELEASE.fullmatch(release.strip())
    if match is None:
        raise UsageError(f"{release[:40]!r} is no Kafka release", "write it like 0.8.2.2 or 1.1.1")
    return int(match[1]), int(match[2]), int(match[3] or 0)


def internal_topics(release: str) -> frozenset[str]:
    """The topics that a Scala consumer of that release leaves out of filters."""
    version = parse_release(release)
    if version < (0, 8, 2):
        return frozenset()
    if version < (0, 11, 0):
        return frozenset({OFFSETS_TOPIC})
    return INTERNAL_TOPICS


def session_text(session: int) -> str:
    """The id of a ZooKeeper session, as servers log it; clients get it as a signed number."""
    return f"0x{session & 0xFFFFFFFFFFFFFFFF:x}"
