"""The thread that carries out a membership: what a member in ZooKeeper and one in Kafka have in common."""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from zkgroup.connector.stream import Feed, StreamStatistics
from zkgroup.errors import SessionLostError, ZkgroupError
from zkgroup.protocol.member import Counters
from zkgroup.protocol.names import TopicPartition

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Statistics:
    """The state of a member at one moment.

    ``consumer_id`` is its id in the group: in Kafka the coordinator chooses it, and it is "" until then. ``session_id``
    is the ZooKeeper session's, 0 in Kafka. ``phase`` is "owning" while the member reads its share. ``held_back``: owned
    partitions that cannot be read now, each with the reason, such as a missing leader or a malformed offset node.
    """

    consumer_id: str
    phase: str = "new"
    generation: int = 0
    session_id: int = 0
    owned: tuple[TopicPartition, ...] = ()
    counters: Counters = field(default_factory=Counters)
    streams: tuple[StreamStatistics, ...] = ()
    held_back: Mapping[TopicPartition, str] = field(default_factory=dict)


class MemberDriver(ABC):
    """A membership on a thread of its own, from ``start`` until ``join``.

    ``ready`` is set when the member has its first share, which may be empty, or has failed. ``error`` is the reason
    why it left without being asked.
    """

    #: Where the group's coordinator is, for messages.
    coordinator: str

    def __init__(self, group: str, feeds: Sequence[Feed]) -> None:
        self.group = group
        self.ready = threading.Event()
        self.error: Exception | None = None
        self._feeds = feeds
        self._thread = threading.Thread(target=self._run, name=f"zkgroup-{group}", daemon=True)
        # Not Thread.join: one that a signal interrupts takes the thread for ended from then on (Python 3.11).
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self._has_left = False
        self._tokens = 0
        self._commits: dict[int, Future[None]] = {}

    # ------------------------------------------------------------ from other threads

    def start(self) -> None:
        """Begin to join."""
        self._thread.start()

    @property
    def in_callback(self) -> bool:
        """Whether the calling thread is inside a callback that the member waits for."""
        return threading.current_thread() is self._thread

    def request_commit(self) -> Future[None]:
        """Commit what is consumed now; the future has the outcome."""
        future: Future[None] = Future()
        with self._lock:
            if self._has_left:
                future.set_exception(self._why_it_left())
                return future
            self._tokens += 1
            token = self._tokens
            self._commits[token] = future
        self._begin_commit(token)
        return future

    def may_deliver(self) -> bool:
        """Whether messages may be delivered now. Kafka's coordinator fences members by itself."""
        return True

    @abstractmethod
    def statistics(self) -> Statistics:
        """The state of the member, without that of its streams."""

    @abstractmethod
    def leave(self, *, at_once: bool = False, commit: bool = True) -> None:
        """Begin to leave; do not wait. It takes no lock, so that a signal's handler may call it."""

    @abstractmethod
    def fail(self, error: Exception) -> None:
        """Leave, as a stream cannot go on."""

    @abstractmethod
    def join(self) -> None:
        """Wait until the member has left, as long as that may take at most."""

    @abstractmethod
    def _begin_commit(self, token: int) -> None:
        """Let the member commit; ``_end_commit`` follows with the same token."""

    # ------------------------------------------------------------ the member's thread

    def _run(self) -> None:
        try:
            self._serve()
        except Exception as error:
            if not isinstance(error, ZkgroupError):
                # A defect: no caller may wait for this member any longer.
                log.exception("the member of group %s has failed", self.group)
            self.error = self.error or error
        try:
            self._end_streams()
            self._disconnect()
        finally:
            with self._lock:
                self._has_left = True
                waiting, self._commits = list(self._commits.values()), {}
            for future in waiting:
                future.set_exception(self._why_it_left())
            self._ended.set()

    @abstractmethod
    def _serve(self) -> None:
        """Join, be a member, leave. Raises what made the member leave."""

    @abstractmethod
    def _disconnect(self) -> None:
        """Free what the membership has opened."""

    def _end_streams(self) -> None:
        for feed in self._feeds:
            feed.end(self.error)
        self.ready.set()

    def _consumed(self) -> dict[TopicPartition, int]:
        consumed: dict[TopicPartition, int] = {}
        for feed in self._feeds:
            consumed |= feed.consumed()
        return consumed

    def _end_commit(self, token: int, error: Exception | None) -> None:
        with self._lock:
            future = self._commits.pop(token, None)
        if future is not None and error is None:
            future.set_result(None)
        elif future is not None:
            future.set_exception(error)

    def _why_it_left(self) -> Exception:
        return self.error or SessionLostError("the member has left the group")
