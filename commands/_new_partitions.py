"""Topics and partitions that come while ``consume`` reads without a group: who is no member hears nothing of them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, Self

from zkgroup.errors import UnreachableError, ZkgroupError

if TYPE_CHECKING:
    from types import TracebackType

    from zkgroup.protocol.names import TopicPartition

log = logging.getLogger("zkgroup.consume")

#: How often it is looked for what is new, in seconds.
INTERVAL: Final = 5.0
#: How long it may take to stop looking; brokers that do not answer are not waited for.
PATIENCE: Final = 0.5


class Follower:
    """While open, looks every ``INTERVAL`` seconds for partitions, on a thread of its own.

    ``look`` tells those that are to be read and not known yet, and where each begins; what it finds is handed to
    ``take``. What keeps it from looking is told once, and the next look tries again.
    """

    def __init__(
        self,
        look: Callable[[], Mapping[TopicPartition, int]],
        take: Callable[[Mapping[TopicPartition, int]], None],
    ) -> None:
        self._look = look
        self._take = take
        self._over = threading.Event()
        self._ended = threading.Event()  # a join that a signal interrupts would take the thread for ended
        self._told = ""

    def __enter__(self) -> Self:
        # A daemon: a broker that does not answer must not keep the process from ending.
        threading.Thread(target=self._run, name="zkgroup-following", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._ended.wait(PATIENCE)

    def _run(self) -> None:
        try:
            while not self._over.wait(INTERVAL):
                self._once()
        finally:
            self._ended.set()

    def _once(self) -> None:
        try:
            found = self._look()
        except UnreachableError as error:
            log.debug("looking for new partitions: %s", error)  # the reader says that, too, as far as it matters
        except ZkgroupError as error:
            if str(error) != self._told:
                self._told = str(error)
                log.warning("looking for new partitions: %s", error)
        else:
            if found and not self._over.is_set():
                log.info("new: %s", ", ".join(map(str, found)))
                self._take(found)
