"""Requests to the brokers about groups. A broker that does not answer causes a warning, and no failure.

A dead broker is registered until its session ends, and requests to it time out. So all requests of one snapshot share
one time-out: a request that others wait for gets a part of the time that is left. Those of a watch have a thread of
their own, so that the watch of ZooKeeper goes on meanwhile.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

from zkgroup.clients.kafka.responses import (
    UNKNOWN_KAFKA_GROUP,
    GroupNames,
    KafkaGroup,
    MessageAge,
    MessageAges,
    words_of,
)
from zkgroup.errors import NoAnswerError, Notice, ZkgroupError, is_wrong_setting, notice_of
from zkgroup.groups.group_model import GroupSnapshot
from zkgroup.groups.snapshot.znode_reader import assigned
from zkgroup.protocol.names import OFFSETS_TOPIC, TopicPartition

if TYPE_CHECKING:
    from zkgroup.clients.kafka.client import KafkaSettings
    from zkgroup.clients.kafka.group_coordinator import Coordinators
    from zkgroup.clients.kafka.log_offsets import Log

T = TypeVar("T")
#: Seconds that each request gets at least: brokers that run answer in less.
MIN_TIMEOUT: Final = 1.0
#: Seconds between two readings of messages' ages, and for one of them at most: each opens a consumer.
AGES_INTERVAL: Final = 10.0
AGES_TIMEOUT: Final = 1.0
#: For so many seconds the coordinator is not asked again for a group that it does not know.
UNKNOWN_FOR: Final = 30.0
#: Finds out how to reach the brokers. It is called at the first request.
FindBrokers: TypeAlias = "Callable[[], KafkaSettings]"
#: How to reach the brokers, or a function that finds that out.
Brokers: TypeAlias = "KafkaSettings | FindBrokers"


def answer_timeout(timeout: float, partitions: int) -> float:
    """How long to wait for an answer, in seconds: a busy broker takes a while for ten thousand partitions."""
    return timeout + partitions // 1000


class BrokerQueries:
    """The requests of one snapshot to the brokers. After they were out of reach, or the time is up, none is sent.

    ``timeout``: seconds for all requests together, from the first on; with ``is_patient`` logs of many partitions get
    more. ``logs`` may be called while another thread waits for ``read_groups``.
    """

    def __init__(self, brokers: Brokers, timeout: float, *, is_patient: bool = False) -> None:
        self._brokers = brokers
        self._timeout = timeout
        self._is_patient = is_patient
        self._deadline: float | None = None
        self._settings: KafkaSettings | None = None
        self._coordinators: Coordinators | None = None
        self._lock = threading.Lock()  # over the making of it
        self.failure: ZkgroupError | None = None
        self.unlisted: tuple[Notice, ...] = ()
        self._failed: dict[str, tuple[ZkgroupError, set[str]]] = {}

    @property
    def warnings(self) -> list[Notice]:
        """What is unknown and why, one for each reason."""
        return [notice_of(", and ".join(sorted(whats)), error) for error, whats in self._failed.values()]

    @property
    def reasons(self) -> frozenset[str]:
        return frozenset(self._failed)

    def settings(self) -> KafkaSettings:
        """How to reach the brokers. The first call finds that out: make it before there are two threads. Raises
        ``ZkgroupError`` where it fails."""
        if self._settings is None:
            self._settings = self._brokers() if callable(self._brokers) else self._brokers
        return self._settings

    def coordinators(self, questions: int = 1) -> Coordinators:
        """The brokers as coordinators of groups, for the next ``questions`` requests. Raises as ``settings``."""
        coordinators = self._asked()
        coordinators.timeout = self._left() / questions
        return coordinators

    def _asked(self) -> Coordinators:
        from zkgroup.clients.kafka.group_coordinator import (
            Coordinators,  # confluent-kafka: 60 ms that not every snapshot needs
        )

        with self._lock:
            if self._coordinators is None:
                self._coordinators = Coordinators(self.settings(), self._left())
            return self._coordinators

    def _left(self) -> float:
        """Seconds left of the time-out, ``MIN_TIMEOUT`` at least."""
        if self._deadline is None:
            self._deadline = time.monotonic() + self._timeout
        return max(min(MIN_TIMEOUT, self._timeout), self._deadline - time.monotonic())

    def _has_time(self) -> bool:
        return self._deadline is None or time.monotonic() < self._deadline

    def names(self) -> Sequence[str]:
        """The groups in Kafka; none, with a warning, without an answer. ``unlisted``: why some may be missing."""
        found = self._ask("groups in Kafka are not known", lambda: self.coordinators(2).names(), GroupNames())
        self.unlisted = found.warnings
        return found.names

    def read_groups(
        self,
        groups: Sequence[str],
        *,
        by_partition: bool = False,
        topics: Mapping[str, Collection[str]] | None = None,
        questions: int = 1,
    ) -> Mapping[str, KafkaGroup]:
        """Each group in Kafka, as ``Coordinators.read_groups``; nothing, with a warning, where the brokers do not
        answer."""

        def question() -> Mapping[str, KafkaGroup]:
            return self.coordinators(questions).read_groups(groups, by_partition=by_partition, topics=topics)

        what = "what Kafka keeps of the group is not known" if len(groups) == 1 else "groups in Kafka are not known"
        return self._ask(what, question, dict.fromkeys(groups, UNKNOWN_KAFKA_GROUP))

    def logs(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, Log]:
        """First and end offset of each partition and its leader, or why they are not known."""
        wanted = sorted(partitions)
        if not wanted:
            return {}

        def question() -> Mapping[TopicPartition, Log] | None:
            coordinators = self._asked()
            timeout = answer_timeout(self._left(), len(wanted)) if self._is_patient else self._left()
            return coordinators.log_offsets(wanted, timeout)

        answers = self._ask("log offsets are not known", question, None)
        if answers is None:
            assert self.failure is not None
            return dict.fromkeys(wanted, self.failure)
        return answers

    def ages(self, positions: Mapping[TopicPartition, Collection[int]], now: int) -> MessageAges:
        """The age, at ``now``, of the next message at each position. Raises ``ZkgroupError``."""
        from zkgroup.clients.kafka.message_times import message_ages  # as above

        return message_ages(self.settings(), positions, now, self._left())

    def _ask(self, what: str, question: Callable[[], T], otherwise: T) -> T:
        """The answer, or ``otherwise``. Raises ``UsageError`` where librdkafka refuses its configuration, and where the
        listener or the protocol that a setting names is refused."""
        if self.failure is not None and not (isinstance(self.failure, NoAnswerError) and self._has_time()):
            return otherwise
        try:
            self.settings()
            return question()
        except ZkgroupError as error:
            if is_wrong_setting(error):
                raise
            self.failure = error
            self._failed.setdefault(error.reason, (error, set()))[1].add(what)
            return otherwise


@dataclass(frozen=True, slots=True)
class Answer:
    """The brokers' answer; ``error``: why a part of it is missing, else None. ``ages``: those of the last
    ``AGES_INTERVAL``."""

    kafka_group: KafkaGroup = field(default_factory=KafkaGroup)
    logs: dict[TopicPartition, Log] = field(default_factory=dict)
    error: str | None = None
    ages: Mapping[TopicPartition, MessageAge] = field(default_factory=dict)


class BrokerPoller:
    """Sends requests about ``group`` on a thread, one after the other.

    ``find`` finds out how to reach the brokers; ``done`` gets each answer, on the thread. ``timeout``: seconds, for
    each part of a request. ``coordinator``: whether the group may be in Kafka.
    """

    def __init__(
        self,
        group: str,
        find: Callable[[], KafkaSettings],
        done: Callable[[Answer | BaseException], object],
        timeout: float,
        *,
        coordinator: bool = True,
    ) -> None:
        self._group = group
        self._find = find
        self._done = done
        self._timeout = timeout
        self._reads_coordinator = coordinator
        self._thread: threading.Thread | None = None
        self._brokers: tuple[int, ...] | None = None
        self._settings: KafkaSettings | None = None
        self._coordinators: Coordinators | None = None
        self._kafka_group = KafkaGroup()
        self._unknown_since: float | None = None
        self._ages: Mapping[TopicPartition, MessageAge] = {}
        self._ages_due = 0.0

    def ask(self, snapshot: GroupSnapshot, positions: Mapping[TopicPartition, int], *, by_partition: bool) -> None:
        """Send the request for what ``snapshot`` has, unless the last one is not answered yet. ``positions``: the
        offsets that are read next, where the age of the message there is wanted. ``by_partition``: as in
        ``Coordinators.read_groups``."""
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(
                target=self._run, args=(snapshot, positions, by_partition), name="zkgroup-poll", daemon=True
            )
            self._thread.start()

    def close(self, timeout: float = 0.5) -> None:
        """End. A thread that waits for a broker is not waited for: it ends with the broker's answer."""
        if self._thread is not None:
            self._thread.join(timeout)

    def _run(self, snapshot: GroupSnapshot, positions: Mapping[TopicPartition, int], by_partition: bool) -> None:
        try:
            self._done(self._answer(snapshot, positions, by_partition))
        except BaseException as error:  # noqa: BLE001  # the caller raises it
            self._done(error)

    def _answer(self, snapshot: GroupSnapshot, positions: Mapping[TopicPartition, int], by_partition: bool) -> Answer:
        try:
            coordinators = self._connect(snapshot.broker_ids)
            # A request to the coordinator makes brokers create this topic; without it there are no offsets in Kafka.
            if self._reads_coordinator and OFFSETS_TOPIC in snapshot.existing_topics:
                self._read_kafka_group(coordinators, by_partition)
            existing = {p.key for p in snapshot.partitions if p.exists}
            wanted = existing | self._kafka_group.offsets.keys() | assigned(self._kafka_group).keys()
            error = "; ".join(words_of(f"group {self._group}", self._kafka_group.failures)) or None
            logs = coordinators.log_offsets(sorted(wanted), self._timeout) if wanted else {}
            if error is not None:
                self._coordinators = None  # its unanswered requests would expire after an hour: _NO_EXPIRY
            return Answer(self._kafka_group, logs, error, self._read_ages(positions))
        except ZkgroupError as error:
            if is_wrong_setting(error) and self._brokers is None:  # what is registered later ends no watch
                raise
            self._coordinators = None
            return Answer(self._kafka_group, {}, error.message)

    def _connect(self, brokers: tuple[int, ...]) -> Coordinators:
        """The brokers; their addresses are found anew where others are registered than last time."""
        from zkgroup.clients.kafka.group_coordinator import (
            Coordinators,  # confluent-kafka, which not every import needs
        )

        if self._coordinators is None or brokers != self._brokers:
            self._settings, self._brokers = self._find(), brokers
            self._coordinators = Coordinators(self._settings, self._timeout)
        return self._coordinators

    def _read_kafka_group(self, coordinators: Coordinators, by_partition: bool) -> None:
        since = self._unknown_since
        if since is None or time.monotonic() - since >= UNKNOWN_FOR:
            found = self._kafka_group = coordinators.read_group(self._group, by_partition=by_partition)
            is_known = found.group is not None or found.offsets or found.failures
            self._unknown_since = None if is_known else time.monotonic()

    def _read_ages(self, positions: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, MessageAge]:
        """The ages of the messages at these positions; those of the last reading, where that is not long ago. Without
        those that cannot be read."""
        if not positions or self._settings is None:
            self._ages = {}
        elif time.monotonic() >= self._ages_due:
            from zkgroup.clients.kafka.message_times import message_ages  # as above

            wanted = {key: (position,) for key, position in positions.items()}
            with suppress(ZkgroupError):
                found = message_ages(self._settings, wanted, time.time_ns() // 1_000_000, AGES_TIMEOUT)
                self._ages = {key: age for key, its in found.ages.items() for age in its.values()}
            self._ages_due = time.monotonic() + AGES_INTERVAL
        return self._ages
