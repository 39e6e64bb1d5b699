"""A change in ZooKeeper as a series of transactions: each is applied wholly or not at all, and it is known which."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from typing import Any, Final, Generic, TypeAlias, TypeVar

from zkgroup.clients.zookeeper import ZooKeeperSettings
from zkgroup.clients.zookeeper.registry import Registry, TransactionRefusedError
from zkgroup.errors import RefusedError, Remedy, UnreachableError, ZkgroupError
from zkgroup.groups.changes.change_reports import note
from zkgroup.protocol import znodes
from zkgroup.protocol.operations import CHANGED, Acl, Code, Create, Delete, Failure, Get, Result, SetData, Sync
from zkgroup.text import are, counted

T = TypeVar("T")

#: ZooKeeper takes at most 1 MiB a request (jute.maxbuffer), and drops the connection above it.
MAX_TRANSACTION_BYTES: Final = 512 << 10
_OPERATION_BYTES: Final = 64  # of an operation, besides its path, its data and its access list
_ACL_BYTES: Final = 32  # of an entry, besides its identity


def cost(path: str, settings: ZooKeeperSettings, acl: Iterable[Acl] = ()) -> int:
    """Bytes that an operation on ``path``, relative to the chroot, takes in a request, besides its data."""
    entries = sum(_ACL_BYTES + len(entry.id.encode()) for entry in acl)
    return len(settings.chroot.encode()) + len(path.encode()) + _OPERATION_BYTES + entries


def first_batch(items: Iterable[T], bytes_of: Callable[[T], int], limit: int) -> list[T]:
    """The first of ``items``, in their order, as many as a transaction of ``limit`` bytes takes, one at least."""
    batch: list[T] = []
    size = 0
    for item in items:
        size += bytes_of(item)
        if batch and size > limit:
            break
        batch.append(item)
    return batch


#: Seconds to wait for a ZooKeeper that went away while a transaction was under way.
RECONNECT_TIMEOUT: Final = 30.0
CREDENTIALS: Final = "connect with credentials that may change the group's nodes"
#: How often a transaction is tried again when nothing that matters has changed.
_MAX_ATTEMPTS: Final = 6
_POLL: Final = 0.2


def not_allowed(what: str, failure: Failure) -> ZkgroupError:
    """The error for a failed request: refused where credentials are missing, else failed."""
    kind = RefusedError if failure.code is Code.NO_AUTH else ZkgroupError
    return kind(f"{what}: {failure.words}", CREDENTIALS)


class TransactionSeries(ABC, Generic[T]):
    """A change in transactions, one after the other. ``registry`` is replaced when its session is over; ``opened``
    closes what is opened on the way. ``_under_way``: the items of a transaction whose outcome is unknown."""

    #: What a transaction does to a node.
    verb: str

    def __init__(self, registry: Registry, opened: ExitStack) -> None:
        self.registry = registry
        self._reconnect_timeout = RECONNECT_TIMEOUT
        self._opened = opened
        self._limit = MAX_TRANSACTION_BYTES
        self._attempts = 0
        self._under_way: Collection[T] = ()

    @abstractmethod
    def run(self) -> object:
        """Make the change. Raises ``ZkgroupError``."""

    def read_back(self, paths: Sequence[str]) -> list[Result]:
        """The nodes after a lost answer. A transaction that is not applied by then never will be.

        The request goes through the same session, if that lives: the server has then closed the old connection, or has
        answered all earlier requests on it. If the session is over, nothing more is taken from it. Raises
        ``UnreachableError``.
        """
        deadline = time.monotonic() + self._reconnect_timeout
        while True:
            try:
                if self.registry.is_lost:
                    fresh = Registry(self.registry.settings, self.registry.timeout)
                    self.registry = self._opened.enter_context(fresh)
                _, *results = self.registry.read([Sync(znodes.consumers()), *(Get(path) for path in paths)])
            except UnreachableError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(_POLL)
            else:
                return results

    @abstractmethod
    def _was_applied(self, items: Collection[T]) -> bool:
        """Find out whether a transaction of these items, whose answer was lost, was applied."""

    def _settle(self, items: Collection[T]) -> None:
        """Record that these items are done."""
        self._under_way = ()

    def _apply(self, operations: Sequence[Create | SetData | Delete], items: Collection[T]) -> bool:
        """Send one transaction; whether it was applied. If not, read again, which shows whether the reason matters, and
        try again. Raises ``ZkgroupError`` where ZooKeeper does not allow it, or after too many attempts."""
        try:
            self._under_way = items
            self.registry.transaction(operations)
            self._settle(items)  # in here: a signal may come between any two steps
        except TransactionRefusedError as refused:
            self._under_way = ()
            if refused.failure.code not in CHANGED:
                raise not_allowed(f"cannot {self.verb} {refused.path}", refused.failure) from None
            self._count(
                ZkgroupError(f"{refused.message}, {_MAX_ATTEMPTS} times", "find the client that changes the group")
            )
            return False
        except UnreachableError as lost:
            if not self._was_applied(items):
                self._under_way = ()
                # A server that takes less than the usual 1 MiB drops the connection, too.
                self._limit = max(1, self._limit // 2)
                self._count(lost)
                return False
            self._settle(items)
        except BaseException:  # interrupted: the report depends on the answer
            self._reconnect_timeout = 0.0
            with suppress(ZkgroupError):
                if self._was_applied(items):
                    self._settle(items)
                self._under_way = ()
            raise
        self._attempts = 0
        return True

    def _count(self, last: ZkgroupError) -> None:
        self._attempts += 1
        if self._attempts >= _MAX_ATTEMPTS:
            raise last


#: Groups that are read, and changed, at once.
BATCH: Final = 250
#: Changes these groups in pipelined transactions where that is plain; returns those that are done, and whether the
#: outcome of others is not known.
Together: TypeAlias = Callable[[Registry, Sequence[str]], tuple[Collection[str], bool]]


def change_groups(
    registry: Registry,
    changes: Mapping[str, Callable[[Registry, ExitStack], TransactionSeries[Any]]],
    done: str,
    together: Together = lambda registry, groups: ((), False),
) -> dict[str, ZkgroupError | None]:
    """Change each group, after which it is ``done``: what it can ``together``, the others one by one. For each None, or
    why not: one that is refused does not stop the others. A lost ZooKeeper does: what becomes of the rest is reported
    as not known. An interruption carries a note of how many are done."""
    outcome: dict[str, ZkgroupError | None] = {}
    names = list(changes)
    with ExitStack() as opened:
        try:
            for start in range(0, len(names), BATCH):
                batch = names[start : start + BATCH]
                changed, is_in_doubt = together(registry, batch)
                outcome |= dict.fromkeys(changed)
                for group in batch:
                    if group in outcome:
                        continue
                    series = changes[group](registry, opened)
                    if is_in_doubt:
                        series.read_back([])  # from then on it is decided what was applied
                        is_in_doubt = False
                    try:
                        series.run()
                        outcome[group] = None
                    except UnreachableError:
                        raise
                    except ZkgroupError as error:
                        outcome[group] = error
                    registry = series.registry  # it may be another by now
        except UnreachableError as error:
            unknown = UnreachableError(f"whether it is {done} is not known: {error.message}", error.remedy)
            unknown.add_remedy(Remedy("see what is there", ("list-groups",)))
            return dict.fromkeys(changes, unknown) | outcome
        except BaseException as stop:
            count = sum(error is None for error in outcome.values())
            known = f"{count} of {counted(len(changes), 'group')} {are(count)} known to be {done}"
            note(stop, known, "run it again to go on; the backup has them all")
            raise
    return outcome
