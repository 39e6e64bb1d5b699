"""The events of a member's state machine, and the actions that it asks for. All of it is data."""

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
    """An event of the session numbered ``epoch``. Those of older sessions are ignored."""

    epoch: int
    event: SessionEvent


@dataclass(frozen=True, slots=True)
class Reply:
    """The results of ``Send``. ``sent_at`` is when the first operation was sent, on the machine's clock."""

    request: int
    results: Sequence[Result]
    sent_at: float


@dataclass(frozen=True, slots=True)
class Paused:
    """All streams are paused at ``generation``; ``consumed`` is the next offset of each partition they read."""

    generation: int
    consumed: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class Collected:
    """The next offset of each partition of ``generation``, now."""

    generation: int
    consumed: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class Answered:
    """The outcome of ``LookUp``, ``FetchKafka``, ``CommitKafka`` or ``Notify``; ``error`` where it failed."""

    request: int
    offsets: Mapping[TopicPartition, int | None]
    error: Exception | None = None


@dataclass(frozen=True, slots=True)
class CommitRequested:
    """A caller wants a commit now; ``Committed`` with the same token answers. ``during``: the request of the ``Notify``
    whose listener is the caller."""

    token: int
    during: int | None = None


@dataclass(frozen=True, slots=True)
class StreamFailed:
    """A stream cannot go on with a partition: leave the group with this error."""

    error: Exception


@dataclass(frozen=True, slots=True)
class Leave:
    """Leave the group: commit, release, unregister. ``at_once``: none of these; the end of the session releases the
    share. Without ``commit``: release and unregister."""

    at_once: bool = False
    commit: bool = True


Event: TypeAlias = (
    Start | Tick | FromSession | Reply | Paused | Collected | Answered | CommitRequested | StreamFailed | Leave
)

# ---------------------------------------------------------------- actions


@dataclass(frozen=True, slots=True)
class OpenSession:
    """Open a new session, numbered ``epoch``."""

    epoch: int


@dataclass(frozen=True, slots=True)
class CloseSession:
    """Close the session numbered ``epoch``."""

    epoch: int


@dataclass(frozen=True, slots=True)
class Send:
    """Send operations to ZooKeeper under the session numbered ``epoch``; ``Reply`` answers."""

    request: int
    epoch: int
    ops: tuple[Op, ...]


@dataclass(frozen=True, slots=True)
class Pause:
    """Pause all streams: no message of an older generation is delivered any more. ``Paused`` answers, once no reader
    has a batch in hand. ``abandon``: do not wait; batches in hand do not count as consumed."""

    generation: int
    abandon: bool = False


@dataclass(frozen=True, slots=True)
class Assign:
    """Let the streams read: for each partition of the share its thread and its start offset."""

    generation: int
    share: Mapping[TopicPartition, tuple[ConsumerThreadId, int]]


@dataclass(frozen=True, slots=True)
class AssignMore:
    """Read these partitions as well, in the current generation: their start offsets were not known before."""

    generation: int
    share: Mapping[TopicPartition, tuple[ConsumerThreadId, int]]


@dataclass(frozen=True, slots=True)
class Collect:
    """Ask the streams for their consumed offsets; ``Collected`` answers."""


@dataclass(frozen=True, slots=True)
class ListOffsets:
    """Ask the brokers for log start (``smallest``) or log end (``largest``) offsets. ``Answered`` answers, with None
    for a partition without a leader, or one that is not created yet."""

    request: int
    partitions: tuple[TopicPartition, ...]
    reset: Literal["smallest", "largest"]


@dataclass(frozen=True, slots=True)
class FetchKafkaOffsets:
    """Read the group's committed offsets in Kafka; ``Answered`` answers."""

    request: int
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class CommitKafkaOffsets:
    """Commit offsets to Kafka; ``Answered`` answers."""

    request: int
    offsets: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class Notify:
    """Call a method of the rebalance listener; ``Answered`` answers when it has returned."""

    request: int
    method: Literal["before_releasing", "before_starting"]
    partitions: Mapping[TopicPartition, ConsumerThreadId]


@dataclass(frozen=True, slots=True)
class Committed:
    """Answers ``CommitRequested``."""

    token: int
    error: Exception | None


@dataclass(frozen=True, slots=True)
class Log:
    """A message for the log. ``level`` as in the logging module."""

    level: int
    text: str | Notice


@dataclass(frozen=True, slots=True)
class Finished:
    """The member has left. ``error`` is the reason, if it was not asked to."""

    error: Exception | None


Action: TypeAlias = (
    OpenSession
    | CloseSession
    | Send
    | Pause
    | Assign
    | AssignMore
    | Collect
    | ListOffsets
    | FetchKafkaOffsets
    | CommitKafkaOffsets
    | Notify
    | Committed
    | Log
    | Finished
)
