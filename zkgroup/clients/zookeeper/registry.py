"""Synchronous access to ZooKeeper."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Self

from zkgroup.clients.kafka.wire_protocol import NoAnswer, in_words, troubles
from zkgroup.clients.zookeeper import ConnectionFailure, Session, ZooKeeperSettings
from zkgroup.config.connection_settings import parse_connect_string
from zkgroup.errors import UnreachableError, ZkgroupError
from zkgroup.protocol.broker_znodes import Endpoint, parse_endpoints
from zkgroup.protocol.operations import (
    Changed,
    Check,
    Children,
    Code,
    Connected,
    Create,
    Delete,
    Ensure,
    Exists,
    Expired,
    Failure,
    Get,
    GetAcl,
    Op,
    Result,
    SessionEvent,
    SetData,
    Sync,
    Transaction,
)

_WAIT: Final = 1.0  # seconds


def names_in(result: Result, unreadable: Callable[[Failure], ZkgroupError] | None = None) -> tuple[str, ...]:
    """The children that were listed; none where there is no node. Where they cannot be read, it raises what
    ``unreadable`` makes of that; without it they are none, too."""
    if isinstance(result, tuple):
        return result
    if unreadable is not None and isinstance(result, Failure) and result.code is not Code.NO_NODE:
        raise unreadable(result)
    return ()


class TransactionRefusedError(ZkgroupError):
    """A transaction was not applied. ``index`` is the operation that failed."""

    def __init__(self, index: int, path: str, failure: Failure) -> None:
        super().__init__(f"transaction refused at {path}: {failure.code.value}")
        self.index = index
        self.path = path
        self.failure = failure


class Registry:
    """Synchronous access for commands: pipelined reads, transactions, an ephemeral node held while it is open.

    Raises ``UnreachableError`` when ZooKeeper does not answer within ``timeout`` seconds.
    """

    def __init__(self, settings: ZooKeeperSettings, timeout: float | None = None) -> None:
        self.settings = settings
        self.timeout = settings.connect_timeout if timeout is None else timeout
        self._session = Session(settings, self._on_event, self._on_connection_failure)
        self._failure: ConnectionFailure | None = None
        self._hopeless: set[str] = set()  # servers
        self._up = threading.Event()
        self._down: str | None = None

    def _on_event(self, event: SessionEvent) -> None:
        if isinstance(event, Connected):
            self._failure = None
            self._up.set()
        elif isinstance(event, Expired):
            self._down = event.reason
            self._up.set()

    def _on_connection_failure(self, failure: ConnectionFailure) -> None:
        self._failure = failure
        if failure.is_final and not self._up.is_set():
            self._hopeless.add(failure.server)
            if len(self._hopeless) >= self.settings.servers:
                self._down = failure.message
                self._up.set()

    def __enter__(self) -> Self:
        self._session.start()
        if self._is_up() and self._down is None:
            return self
        self._session.close(0.1)  # there is no session to end, and a silent server would keep us waiting for that
        if self._failure is not None:
            raise self._failure
        reason = f"({self._down})"
        if self._down is None:
            addresses = parse_connect_string(self.settings.hosts, "ZooKeeper").addresses
            why = _why_none_answers(parse_endpoints(",".join(map(str, addresses))))
            reason = f"(no answer within {round(self.timeout, 1):g} s): {why}"
        raise UnreachableError(
            f"ZooKeeper at {self.settings.hosts} cannot be reached {reason}",
            "check the address, and that the server runs",
        )

    def _is_up(self) -> bool:
        """Whether the session is established within the time-out. In short waits: Python handles a signal that comes
        as a wait begins only when that wait is over."""
        deadline = time.monotonic() + self.timeout
        while not self._up.wait(min(_WAIT, max(0.0, deadline - time.monotonic()))):
            if time.monotonic() >= deadline:
                return False
        return True

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._session.close()

    @property
    def session_id(self) -> int:
        """The id of the session, as ``ephemeralOwner`` shows it."""
        return self._session.session_id

    @property
    def is_lost(self) -> bool:
        """Whether the session is over: its ephemeral nodes are deleted, or will be."""
        return self._down is not None

    def read(self, ops: Iterable[Op]) -> list[Result]:
        """Send all of ``ops`` pipelined and wait. After a dropped connection the failed reads are sent again.

        Writes are not repeated: their ``Failure`` with ``CONNECTION_LOSS`` says that the outcome is unknown. Raises
        ``UnreachableError`` when there is no answer in time, or the session is over.
        """
        wanted = list(ops)
        results: list[Result] = [Failure(Code.CONNECTION_LOSS)] * len(wanted)
        pending = list(range(len(wanted)))
        deadline = time.monotonic() + self.timeout
        while pending:
            for index, result in zip(pending, self._round([wanted[i] for i in pending], deadline), strict=True):
                results[index] = result
            pending = [
                i
                for i in pending
                if isinstance(result := results[i], Failure)
                and result.code is Code.CONNECTION_LOSS
                and isinstance(wanted[i], Get | GetAcl | Children | Exists | Sync)
            ]
            if pending:
                if self._down is not None or time.monotonic() > deadline:
                    raise self._gone()
                time.sleep(0.05)
        over = (result for result in results if isinstance(result, Failure) and result.code is Code.SESSION_EXPIRED)
        if any(over):
            raise self._gone()
        return results

    def _round(self, ops: Sequence[Op], deadline: float) -> list[Result]:
        answered = threading.Event()
        box: list[list[Result]] = []
        before = self._session.answers

        def done(results: list[Result]) -> None:
            box.append(results)
            answered.set()

        self._session.submit(ops, done)
        # Ten thousand reads may take longer than the time-out: it counts from the last answer.
        while not answered.wait(max(0.1, deadline - time.monotonic())):
            if self._session.answers == before:
                raise self._gone()
            before = self._session.answers
            deadline = time.monotonic() + self.timeout
        return box[0]

    def _gone(self) -> UnreachableError:
        if self._failure is not None:  # made anew: what becomes of a change is added to its error
            return UnreachableError(self._failure.message, self._failure.remedy)
        what, remedy = f"no answer within {round(self.timeout, 1):g} s", "check the server, then try again"
        if self._down is not None:
            what = f"session {self._down}"
            remedy = "try again; it ends where this process, or the server, is held up for longer than it lasts"
        return UnreachableError(f"ZooKeeper at {self.settings.hosts}: {what}", remedy)

    def has_chroot(self) -> bool:
        return not isinstance(self.read([Exists("/")])[0], Failure | None)

    def write(self, op: Create | Ensure | SetData | Delete) -> Result:
        """One write. A ``Failure`` is returned, not raised."""
        return self.read([op])[0]

    def transaction(self, ops: Sequence[Create | SetData | Delete | Check]) -> None:
        """Apply ``ops`` all or none.

        Raises ``TransactionRefusedError`` where an operation failed, ``UnreachableError`` where the connection is lost:
        then it may or may not have been applied, and the caller must read the nodes.
        """
        failure = self._round([Transaction(tuple(ops))], time.monotonic() + self.timeout)[0]
        if isinstance(failure, Failure):
            if failure.index is None:
                raise self._gone()
            raise TransactionRefusedError(failure.index, ops[failure.index].path, failure)


def _why_none_answers(servers: Sequence[Endpoint]) -> str:
    """What is at the addresses of servers of ZooKeeper that do not answer, as text."""
    failures, _ = troubles(servers, plain=True)
    found = {one: failures.get(one, "a Kafka broker answers there") for one in servers}
    unanswered = "connections are taken, and no request is answered"
    found = {one: unanswered if why in (NoAnswer.NOT_KAFKA, NoAnswer.SILENT) else why for one, why in found.items()}
    return in_words(found) if len(set(found.values())) > 1 else found[servers[0]]


#: ``on_change`` gets this where all watches have ended with the connection.
EVERYTHING: Final = ""


class WatchingRegistry(Registry):
    """A ``Registry`` that reports the changes of watched nodes, before any answer that has seen the change.

    ``on_change`` gets the path, or ``EVERYTHING`` when the connection or the session was lost: watches are gone then,
    and nodes that were read may be outdated. It is called on a thread of the session, and must not block.
    """

    def __init__(self, settings: ZooKeeperSettings, on_change: Callable[[str], None]) -> None:
        super().__init__(settings)
        self._on_change = on_change

    def _on_event(self, event: SessionEvent) -> None:
        super()._on_event(event)
        if isinstance(event, Changed):
            self._on_change(event.path)
            return
        # The first connection, too: the caller may wait for one.
        self._on_change(EVERYTHING)
