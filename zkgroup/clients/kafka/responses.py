"""The brokers' answers about groups and times, as data, in a module that does not load confluent-kafka. Offsets are the
*next* offset to read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple, TypeAlias

from zkgroup.errors import Notice, Remedy
from zkgroup.protocol.names import TopicPartition

#: The warning about brokers that cannot list groups (0.8), or list only those with members (0.9).
UNLISTED: Final = Notice(
    "brokers before 0.10 do not list groups that keep offsets in Kafka alone",
    Remedy("the command offsets shows one by its name"),
)

#: How to be rid of offsets in Kafka: librdkafka can ask for it (2.16), confluent-kafka cannot.
OFFSETS_IN_KAFKA: Final = (
    "wait until they expire (offsets.retention.minutes), or remove them with --delete-offsets of Kafka's own"
    " kafka-consumer-groups (brokers 2.4 and later)"
)

#: The two halves of a coordinator's answer, each of which may be missing.
Half: TypeAlias = Literal["members", "offsets"]
_UNTOLD: Final[Mapping[Half, str]] = {
    "members": "{} was not described by Kafka: {}",
    "offsets": "offsets of {} in Kafka cannot be read: {}",
}


def words_of(subject: str, failures: Mapping[Half, str]) -> tuple[str, ...]:
    """The missing halves of a coordinator's answer, and why, as text. ``subject``: the group's name in it."""
    return tuple(_UNTOLD[half].format(subject, why) for half, why in failures.items())


class Fingerprint(NamedTuple):
    """What is the same in every copy of a message: digests of all of it with its headers and its timestamp
    (``message``), of all but the timestamp (``untimed``), of its key and value (``content``), and of its key."""

    message: bytes
    untimed: bytes
    content: bytes
    key: bytes


class ReadMessage(NamedTuple):
    """A message's offset, its timestamp (milliseconds since 1970, None where it has none) and its fingerprint.
    ``is_created_at``: its producer gave the timestamp. ``is_tombstone``: it has no value."""

    offset: int
    timestamp: int | None
    fingerprint: Fingerprint
    is_created_at: bool = True
    is_tombstone: bool = False


class GroupNames(NamedTuple):
    """The groups in Kafka. ``is_unlisted``: brokers do not list groups that only keep offsets (``UNLISTED``).
    ``missing``: why groups of some coordinators may be missing."""

    names: tuple[str, ...] = ()
    is_unlisted: bool = False
    missing: tuple[str, ...] = ()

    @property
    def warnings(self) -> tuple[Notice, ...]:
        """Why groups may be missing."""
        return (*((UNLISTED,) if self.is_unlisted else ()), *map(Notice, self.missing))


@dataclass(frozen=True, slots=True)
class KafkaOffset:
    """A committed offset in Kafka; ``offset`` is None where ``error`` says why it is unknown."""

    offset: int | None
    metadata: str = ""
    error: str | None = None


@dataclass(frozen=True, slots=True)
class MessageAge:
    """How long ago the next message to be read was written, in seconds; 0 where none waits. ``is_at_least``: it is
    older, or as old."""

    seconds: float
    is_at_least: bool = False


@dataclass(frozen=True, slots=True)
class MessageAges:
    """The ages by partition and position. Those without an age are missing; ``failures``: why, as text."""

    ages: Mapping[TopicPartition, Mapping[int, MessageAge]] = field(default_factory=dict)
    failures: Mapping[TopicPartition, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TimeOffsets:
    """For each partition the first offset whose message is not older than a time.

    None where there is none. ``by_segments``: the brokers (0.8, 0.9) have no time index and returned starts of
    segments; None is then the log's start, otherwise for its end. ``doubts``: why an offset may be earlier than
    the first, as text; it is never later.
    """

    offsets: Mapping[TopicPartition, int | None]
    by_segments: bool
    doubts: Mapping[TopicPartition, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CoordinatorMember:
    """A member of a group in Kafka. ``assigned``: its partitions."""

    member: str
    client_id: str
    host: str
    assigned: tuple[TopicPartition, ...] = ()


@dataclass(frozen=True, slots=True)
class CoordinatorGroup:
    """A group at its coordinator. ``state``: Kafka's word (``Stable``, ``Empty``, ``Dead`` …). ``is_simple``: no member
    has joined it, all commits are of consumers that assign their partitions themselves, or of tools."""

    state: str
    strategy: str | None = None
    members: tuple[CoordinatorMember, ...] = ()
    coordinator: int | None = None
    is_simple: bool = False


@dataclass(frozen=True, slots=True)
class KafkaGroup:
    """One group in Kafka. ``group`` is None where its coordinator knows none of that name.

    ``failures``: the halves without an answer, and why. Where ``members_known`` or ``offsets_known`` is false, there
    may be members or offsets that were not returned.
    """

    group: CoordinatorGroup | None = None
    offsets: Mapping[TopicPartition, KafkaOffset] = field(default_factory=dict)
    failures: Mapping[Half, str] = field(default_factory=dict)
    members_known: bool = True
    offsets_known: bool = True


#: A group about which the brokers did not answer.
UNKNOWN_KAFKA_GROUP: Final = KafkaGroup(members_known=False, offsets_known=False)
