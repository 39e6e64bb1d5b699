"""The reader's side of a stream: its fetcher, partitions out of range, and brokers that are away."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from zkgroup.clients.kafka.client import KafkaError, KafkaSettings
from zkgroup.clients.kafka.fetcher import Fetched
from zkgroup.clients.kafka.log_offsets import LogRange, log_offsets, out_of_range
from zkgroup.clients.kafka.native_reader import MessageReader, open_reader
from zkgroup.config.settings_table import Reset
from zkgroup.errors import UnreachableError, ZkgroupError
from zkgroup.protocol.names import TopicPartition

log = logging.getLogger(__name__)

#: How long the brokers may take to answer, and ZooKeeper to list them, in seconds.
BROKER_TIMEOUT: Final = 5.0
#: Seconds until brokers that did not answer are asked again.
PAUSE: Final = 0.5
#: Seconds until a partition out of range is checked: a leader that has not caught up soon will have.
FIRST_CHECK: Final = 0.1
#: Seconds without a message, after connections to brokers have failed, until a new client replaces the fetcher's.
#: Doubled as long as no message comes, since the topic may be idle.
MIN_SILENCE: Final = 10.0
MAX_SILENCE: Final = 300.0
#: Seconds between two checks whether brokers that are all away have come back at other addresses.
ADDRESS_CHECK: Final = 5.0

_OUT_OF_RANGE: Final = (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE)
#: Reported by librdkafka's log already.
_LOGGED: Final = (KafkaError._TRANSPORT, KafkaError._RESOLVE, KafkaError._TIMED_OUT)
_FORBIDDEN: Final = (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.GROUP_AUTHORIZATION_FAILED)


class StreamReader:
    """Fetches what is assigned to a stream. Only the reader's thread uses it, but for ``close``.

    ``position`` returns the stream's next offset in a partition, None if it is not assigned any more. ``seek`` moves
    it, and returns False in that case. ``assignment_version`` is the assignment that the fetcher reads.
    """

    def __init__(
        self,
        settings: Callable[[], KafkaSettings],
        position: Callable[[int | None, TopicPartition], int | None],
        seek: Callable[[int | None, TopicPartition, int], bool],
        reset: Reset | None,
        options: Mapping[str, Any],
    ) -> None:
        self._settings = settings
        self._position = position
        self._seek = seek
        self._reset = reset
        self._options = dict(options)
        self._lock = threading.Lock()  # held by the reader while it is inside the fetcher
        self._closed = threading.Event()
        self._fetcher: MessageReader | None = None
        self.assignment_version = 0
        self._generation: int | None = None
        self._retry_at = 0.0
        self._check_at: dict[TopicPartition, float] = {}  # partitions out of range, and when to check them
        self._errors: list[tuple[TopicPartition | None, KafkaError]] = []
        self._bootstrap = ""
        self._all_down = False
        self._warned = False  # that brokers are away; once, until they answer again
        self._away = False  # no broker answered a request; librdkafka does not log that they are back
        self._checked_at = 0.0
        self._failed = False  # a connection of this fetcher to a broker
        self._received_at = 0.0  # when a message came last, or a connection failed
        self._silence_timeout = MIN_SILENCE

    def close(self) -> None:
        """Free the fetcher. A reader that is inside returns when its fetch ends."""
        self._closed.set()
        with self._lock:
            self._drop_fetcher()

    def _drop_fetcher(self) -> None:
        if self._fetcher is not None:
            self._fetcher.close()
            self._fetcher = None

    def fetch(
        self, version: int, generation: int | None, share: Mapping[TopicPartition, int], timeout: float
    ) -> Fetched:
        """The next batch of ``share``, after at most ``timeout`` seconds. ``version`` is the assignment's.

        Brokers that are away are waited for. Raises ZkgroupError where waiting is of no use.
        """
        if (left := self._retry_at - time.monotonic()) > 0:
            self._closed.wait(min(left, timeout))
            return Fetched()
        with self._lock:
            if self._closed.is_set():
                return Fetched()
            try:
                self._follow(version, generation, share)
                if not share or self._fetcher is None:
                    return Fetched()
                self._handle_errors(self._fetcher)
                if (self._all_down and self._addresses_changed()) or self._is_silent():
                    self._drop_fetcher()
                    return Fetched()
                fetched = self._fetcher.fetch(timeout)
            except UnreachableError as error:
                self._retry_at = time.monotonic() + PAUSE
                self._away = True
                self._warn(error)
                return Fetched()
        # Messages from before an error are delivered before the error is handled: that may move the position.
        self._errors += fetched.errors
        if fetched.messages:
            self._received_at, self._silence_timeout = time.monotonic(), MIN_SILENCE
        if fetched.messages or fetched.ends:
            self._all_down = self._warned = False
            if self._away:
                self._away = False
                log.warning("brokers answer again")
        return fetched

    def _is_silent(self) -> bool:
        """Whether a connection has failed and no message has come for long. librdkafka (2.16) connects again, but was
        seen never to fetch again where partitions were assigned while the broker was away."""
        if not self._failed or time.monotonic() - self._received_at <= self._silence_timeout:
            return False
        self._silence_timeout = min(MAX_SILENCE, 2 * self._silence_timeout)
        return True

    def _follow(self, version: int, generation: int | None, share: Mapping[TopicPartition, int]) -> None:
        if self._failed and version != self.assignment_version and generation != self._generation:
            self._drop_fetcher()  # see _is_silent
        if self._fetcher is None and share:
            settings = self._settings()
            self._failed, self._received_at = False, time.monotonic()
            self._fetcher = open_reader(settings, **self._options)
            self._bootstrap, self._all_down = settings.bootstrap, False
            self.assignment_version, self._generation = -1, None
        if version == self.assignment_version:
            return
        if self._fetcher is not None:
            if generation is not None and generation == self._generation:
                self._fetcher.add(share)
            else:
                self._fetcher.assign(share)
                self._errors.clear()
                self._check_at.clear()
        self.assignment_version, self._generation = version, generation

    # ------------------------------------------------------------ errors

    def _handle_errors(self, fetcher: MessageReader) -> None:
        now = time.monotonic()
        errors, self._errors = self._errors, []
        for partition, error in errors:
            code = error.code()
            if partition is None and code in (*_LOGGED, KafkaError._ALL_BROKERS_DOWN):
                self._failed, self._received_at = True, now
            if partition is not None and code in _OUT_OF_RANGE:
                self._check_at[partition] = now + FIRST_CHECK
            elif code in _FORBIDDEN:
                raise ZkgroupError(f"not authorised to read {partition}: {error.str()}", "ask for read access")
            elif error.fatal():
                raise ZkgroupError(f"librdkafka cannot go on: {error.str()}")
            elif code == KafkaError._ALL_BROKERS_DOWN:
                self._all_down = True
                self._warn(f"no broker can be reached: {error.str()}")
            elif partition is not None or code not in _LOGGED:
                # Leader changes mend themselves; a deleted topic makes the member rebalance.
                log.warning("%s: %s", partition or "brokers", error.str())
        for partition in [partition for partition, at in self._check_at.items() if at <= now]:
            self._out_of_range(fetcher, partition)

    def _warn(self, warning: str | UnreachableError) -> None:
        if not self._warned:
            self._warned = True
            log.warning("%s", warning)

    def _addresses_changed(self) -> bool:
        """Whether all brokers that librdkafka knows are gone, and others are registered: it never learns of those."""
        now = time.monotonic()
        if now - self._checked_at < ADDRESS_CHECK:
            return False
        self._checked_at = now
        return self._settings().bootstrap != self._bootstrap

    def _out_of_range(self, fetcher: MessageReader, partition: TopicPartition) -> None:
        position = self._position(self._generation, partition)
        if position is None:
            self._check_at.pop(partition, None)
            return
        found = log_offsets(self._settings(), [partition], BROKER_TIMEOUT)[partition]
        if not isinstance(found, LogRange):
            log.warning("%s is out of range at %d, and %s", partition, position, found)
            self._check_at[partition] = time.monotonic() + PAUSE
            return
        self._check_at.pop(partition, None)
        if found.start <= position <= found.end:
            fetcher.seek(partition, position)
            return
        if self._position(self._generation, partition) is None:
            return  # revoked meanwhile
        error = out_of_range(partition, position, found)
        if self._reset is None:
            raise error
        offset = found.start if self._reset == "smallest" else found.end
        if self._seek(self._generation, partition, offset):
            log.warning("%s; going on at %d", error.message, offset)
            fetcher.seek(partition, offset)
