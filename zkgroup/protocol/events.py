"""What a member's state machine hears (events) and what it asks for (actions). All of it is data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from zkgroup.errors import Notice
from zkgroup.protocol.names import ConsumerThreadId, TopicPartition
from zkgroup.protocol.operations import Op, Result, SessionEvent

# ---------------------------------------------------------------- events


@dataclass(frozen=True, slots=True)
class Start:
    """Join the group."""


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed. Sent when ``Member.wake_at`` is reached, and whenever the driver likes."""


@dataclass(frozen=True, slots=True)
class FromSession:
    """Something the session numbered ``epoch`` told. What an older session says is ignored."""

    epoch: int
    event: SessionEvent


@dataclass(frozen=True, slots=True)
class Reply:
    """The results of ``Send``. ``sent_at`` is when the first operation was handed over, on the machine's clock."""

    request: int
    results: Sequence[Result]
    sent_at: float


@dataclass(frozen=True, slots=True)
class Quieted:
    """All streams have stopped at ``generation``; ``consumed`` is the next offset of every partition they held."""

    generation: int
    consumed: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class Collected:
    """What was consumed up to now, of the partitions of ``generation``."""

    generation: int
    consumed: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class Answered:
    """The outcome of ``LookUp``, ``FetchKafka``, ``CommitKafka`` or ``Notify``; ``error`` where it failed."""

    request: int
    offsets: Mapping[TopicPartition, int | None]
    error: Exception | None = None


@dataclass(frozen=True, slots=True)
class CommitAsked:
    """The user wants a commit now; ``Committed`` with the same token answers. ``during``: the request of the ``Notify``
    whose listener asks, and waits for it."""

    token: int
    during: int | None = None


@dataclass(frozen=True, slots=True)
class StreamFailed:
    """A stream cannot go on with a partition: leave the group with this error."""

    error: Exception


@dataclass(frozen=True, slots=True)
class Leave:
    """Leave the group: commit, release, go. ``at_once``: only go; the end of the session releases what is owned.
    Without ``commit``: release and go."""

    at_once: bool = False
    commit: bool = True


Event: TypeAlias = (
    Start | Tick | FromSession | Reply | Quieted | Collected | Answered | CommitAsked | StreamFailed | Leave
)

# ---------------------------------------------------------------- actions


@dataclass(frozen=True, slots=True)
class OpenSession:
    """Open a new session, numbered ``epoch``."""

    epoch: int


@dataclass(frozen=True, slots=True)
class CloseSession:
    """Close the session numbered ``epoch``. Nothing of it is wanted any more."""

    epoch: int


@dataclass(frozen=True, slots=True)
class Send:
    """Send operations to ZooKeeper under the session numbered ``epoch``; ``Reply`` answers."""

    request: int
    epoch: int
    ops: tuple[Op, ...]


@dataclass(frozen=True, slots=True)
class Quiet:
    """Stop all streams: nothing of before ``generation`` is handed out any more. ``Quieted`` answers, once the
    batches that are being worked on are done. ``abandon``: do not wait for those; they no longer count as consumed."""

    generation: int
    abandon: bool = False


@dataclass(frozen=True, slots=True)
class Grant:
    """Start reading: for each partition of the share its thread and the offset to start at."""

    generation: int
    share: Mapping[TopicPartition, tuple[ConsumerThreadId, int]]


@dataclass(frozen=True, slots=True)
class Extend:
    """Read these partitions as well, in the generation that is granted: where to start in them was not known then."""

    generation: int
    share: Mapping[TopicPartition, tuple[ConsumerThreadId, int]]


@dataclass(frozen=True, slots=True)
class Collect:
    """Ask the streams what is consumed; ``Collected`` answers."""


@dataclass(frozen=True, slots=True)
class LookUp:
    """Ask the brokers for log start (``smallest``) or log end (``largest``) offsets; ``Answered`` answers, with None
    for a partition that nobody can tell of now (no leader, not created yet)."""

    request: int
    partitions: tuple[TopicPartition, ...]
    reset: Literal["smallest", "largest"]


@dataclass(frozen=True, slots=True)
class FetchKafka:
    """Read the group's offsets kept in Kafka; ``Answered`` answers."""

    request: int
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class CommitKafka:
    """Commit offsets to Kafka; ``Answered`` answers."""

    request: int
    offsets: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class Notify:
    """Call the user's rebalance listener; ``Answered`` answers when it returned."""

    request: int
    what: Literal["before_releasing", "before_starting"]
    partitions: Mapping[TopicPartition, ConsumerThreadId]


@dataclass(frozen=True, slots=True)
class Committed:
    """Answers ``CommitAsked``."""

    token: int
    error: Exception | None


@dataclass(frozen=True, slots=True)
class Log:
    """Something a person may want to read. ``level`` as in the logging module."""

    level: int
    text: str | Notice


@dataclass(frozen=True, slots=True)
class Finished:
    """The member has left. ``error`` tells why, if it was not asked to."""

    error: Exception | None


Action: TypeAlias = (
    OpenSession
    | CloseSession
    | Send
    | Quiet
    | Grant
    | Extend
    | Collect
    | LookUp
    | FetchKafka
    | CommitKafka
    | Notify
    | Committed
    | Log
    | Finished
)
