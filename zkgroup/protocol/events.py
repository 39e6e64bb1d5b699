"""The events of a member's state machine, and the actions that it asks for. All of it is data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias

from msgspec import Struct

from zkgroup.config.settings_table import Reset
from zkgroup.errors import Notice
from zkgroup.protocol.names import ConsumerThreadId, TopicPartition
from zkgroup.protocol.operations import Op, Result, SessionEvent

#: A method of the rebalance listener.
ListenerMethod: TypeAlias = Literal["before_releasing", "before_starting"]


class MemberEvent(Struct, frozen=True):
    """What a member is told: ``Member.handle`` takes it."""


class Start(MemberEvent, frozen=True):
    """Join the group."""


class Tick(MemberEvent, frozen=True):
    """Time has passed. Sent when ``Member.wake_at`` is reached, and whenever the driver likes."""


class FromSession(MemberEvent, frozen=True):
    """An event of the session numbered ``epoch``. Those of older sessions are ignored."""

    epoch: int
    event: SessionEvent


class Reply(MemberEvent, frozen=True):
    """The results of ``Send``. ``sent_at`` is when the first operation was sent, on the machine's clock."""

    request: int
    results: Sequence[Result]
    sent_at: float


class Paused(MemberEvent, frozen=True):
    """All streams are paused at ``generation``; ``consumed`` is the next offset of each partition they read."""

    generation: int
    consumed: Mapping[TopicPartition, int]


class Collected(MemberEvent, frozen=True):
    """The next offset of each partition of ``generation``, now."""

    generation: int
    consumed: Mapping[TopicPartition, int]


class Answered(MemberEvent, frozen=True):
    """Answers ``ListOffsets``, ``FetchKafkaOffsets``, ``CommitKafkaOffsets``, ``Notify``; ``error``: it failed."""

    request: int
    offsets: Mapping[TopicPartition, int | None]
    error: Exception | None = None


class CommitRequested(MemberEvent, frozen=True):
    """A caller wants a commit now; ``Committed`` with the same token answers. ``during``: the request of the ``Notify``
    whose listener is the caller."""

    token: int
    during: int | None = None


class StreamFailed(MemberEvent, frozen=True):
    """A stream cannot go on with a partition: leave the group with this error."""

    error: Exception


class Leave(MemberEvent, frozen=True):
    """Leave the group: commit, release the share, end the session. ``at_once``: only end the session, which releases
    the share. Without ``commit``: as said, without the first."""

    at_once: bool = False
    commit: bool = True


class MemberAction(Struct, frozen=True):
    """What a member wants done: ``Member.handle`` returns it."""


class OpenSession(MemberAction, frozen=True):
    """Open a new session, numbered ``epoch``."""

    epoch: int


class CloseSession(MemberAction, frozen=True):
    """Close the session numbered ``epoch``."""

    epoch: int


class Send(MemberAction, frozen=True):
    """Send operations to ZooKeeper under the session numbered ``epoch``; ``Reply`` answers."""

    request: int
    epoch: int
    ops: tuple[Op, ...]


class Pause(MemberAction, frozen=True):
    """Pause all streams: no message of an older generation is delivered any more. ``Paused`` answers, once no reader
    has a batch in hand. ``abandon``: do not wait; batches in hand do not count as consumed."""

    generation: int
    abandon: bool = False


class Assign(MemberAction, frozen=True):
    """Let the streams read: for each partition of the share its thread and its start offset."""

    generation: int
    share: Mapping[TopicPartition, tuple[ConsumerThreadId, int]]


class AssignMore(MemberAction, frozen=True):
    """Read these partitions as well, in the current generation: their start offsets were not known before."""

    generation: int
    share: Mapping[TopicPartition, tuple[ConsumerThreadId, int]]


class Collect(MemberAction, frozen=True):
    """Ask the streams for their consumed offsets; ``Collected`` answers."""


class ListOffsets(MemberAction, frozen=True):
    """Ask the brokers for log start (``smallest``) or log end (``largest``) offsets. ``Answered`` answers, with None
    for a partition without a leader, or one that is not created yet."""

    request: int
    partitions: tuple[TopicPartition, ...]
    reset: Reset


class FetchKafkaOffsets(MemberAction, frozen=True):
    """Read the group's committed offsets in Kafka; ``Answered`` answers."""

    request: int
    partitions: tuple[TopicPartition, ...]


class CommitKafkaOffsets(MemberAction, frozen=True):
    """Commit offsets to Kafka; ``Answered`` answers."""

    request: int
    offsets: Mapping[TopicPartition, int]


class Notify(MemberAction, frozen=True):
    """Call a method of the rebalance listener; ``Answered`` answers when it has returned."""

    request: int
    method: ListenerMethod
    partitions: Mapping[TopicPartition, ConsumerThreadId]


class Committed(MemberAction, frozen=True):
    """Answers ``CommitRequested``."""

    token: int
    error: Exception | None


class Log(MemberAction, frozen=True):
    """A message for the log. ``level`` as in the logging module."""

    level: int
    text: str | Notice


class Finished(MemberAction, frozen=True):
    """The member has left. ``error`` is the reason, if it was not asked to."""

    error: Exception | None
