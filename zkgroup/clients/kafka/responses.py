"""What brokers answer of groups and times, as data: apart from who asks, so that who only looks at it need not load
confluent-kafka. Offsets are the *next* offset to read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple, TypeAlias

from zkgroup.protocol.names import TopicPartition

#: What is told of brokers that do not know the question (0.8), or list only groups that have members (0.9): others keep
#: offsets all the same.
UNLISTED: Final = (
    "groups that keep offsets in Kafka alone are not listed: brokers before 0.10 do not tell which there are;"
    " offsets GROUP shows one by its name"
)

#: How to be rid of offsets in Kafka: librdkafka can ask for it (2.16), confluent-kafka cannot.
OFFSETS_IN_KAFKA: Final = (
    "expire by themselves (offsets.retention.minutes), or are removed by --delete-offsets of Kafka's own"
    " kafka-consumer-groups, with brokers of 2.4 or later"
)

#: What a coordinator may leave untold of a group.
Half: TypeAlias = Literal["members", "offsets"]
_UNTOLD: Final[Mapping[Half, str]] = {
    "members": "{} was not described by Kafka: {}",
    "offsets": "offsets of {} in Kafka cannot be read: {}",
}


def words_of(subject: str, untold: Mapping[Half, str]) -> tuple[str, ...]:
    """What the coordinator did not tell of a group, and why, in words. ``subject``: how they name the group."""
    return tuple(_UNTOLD[half].format(subject, why) for half, why in untold.items())


class GroupNames(NamedTuple):
    """The groups in Kafka. ``is_unlisted``: brokers do not list groups that only keep offsets (``UNLISTED``).
    ``missing``: why groups of some coordinators may be missing."""

    names: tuple[str, ...] = ()
    is_unlisted: bool = False
    missing: tuple[str, ...] = ()

    @property
    def warnings(self) -> tuple[str, ...]:
        """Why groups may be missing, in words."""
        return (*((UNLISTED,) if self.is_unlisted else ()), *self.missing)


@dataclass(frozen=True, slots=True)
class KafkaOffset:
    """An offset that the group's coordinator keeps; ``offset`` is None where ``error`` says why it is not known."""

    offset: int | None
    metadata: str = ""
    error: str | None = None


@dataclass(frozen=True, slots=True)
class TimeOffsets:
    """For each partition the first offset whose message is not older than a time.

    None where there is none. ``by_segments``: the brokers (0.8, 0.9) have no time index and answered with starts of
    segments; None then means that the log's start is meant, otherwise its end. ``doubts``: why an offset may be an
    earlier one than the first, in words; it is never a later one.
    """

    offsets: Mapping[TopicPartition, int | None]
    by_segments: bool
    doubts: Mapping[TopicPartition, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CoordinatorMember:
    """A member of a group in Kafka. ``assigned`` is what the group's leader gave it."""

    member: str
    client_id: str
    host: str
    assigned: tuple[TopicPartition, ...] = ()


@dataclass(frozen=True, slots=True)
class CoordinatorGroup:
    """A group as its coordinator knows it. ``state``: Kafka's word (``Stable``, ``Empty``, ``Dead`` …)."""

    state: str
    strategy: str | None = None
    members: tuple[CoordinatorMember, ...] = ()
    coordinator: int | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class KafkaSide:
    """Everything that Kafka tells of one group. ``group`` is None where it knows none of that name.

    ``untold``: what could not be asked, and why. Where it is not known who its members in Kafka are, or which offsets
    it has there, ``members_known`` or ``offsets_known`` is false: that none are told of says nothing then.
    """

    group: CoordinatorGroup | None = None
    offsets: Mapping[TopicPartition, KafkaOffset] = field(default_factory=dict)
    untold: Mapping[Half, str] = field(default_factory=dict)
    members_known: bool = True
    offsets_known: bool = True


#: A group of which Kafka told nothing, neither that it is there nor that it is not.
UNTOLD: Final = KafkaSide(members_known=False, offsets_known=False)
