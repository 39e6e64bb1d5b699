"""Requests to the brokers about groups. A broker that does not answer causes a warning, and no failure.

A dead broker is registered until its session ends, and requests to it time out. So all requests of one snapshot share
one time-out: a request that others wait for gets a part of the time that is left.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

from zkgroup.clients.kafka.responses import UNKNOWN_KAFKA_GROUP, GroupNames, KafkaGroup, MessageAges
from zkgroup.errors import NoAnswerError, ZkgroupError, is_wrong_setting
from zkgroup.protocol.names import TopicPartition

if TYPE_CHECKING:
    from zkgroup.clients.kafka.client import KafkaSettings
    from zkgroup.clients.kafka.group_coordinator import Coordinators
    from zkgroup.clients.kafka.log_offsets import Log

T = TypeVar("T")
#: Seconds that each request gets at least: brokers that run answer in less.
MIN_TIMEOUT: Final = 1.0
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
        self.unlisted: tuple[str, ...] = ()
        self._failed: dict[str, tuple[ZkgroupError, set[str]]] = {}

    @property
    def warnings(self) -> list[str]:
        """What is unknown and why, one line for each reason."""
        return [f"{', and '.join(sorted(whats))}: {error}" for error, whats in self._failed.values()]

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
            self._fail(what, error)
            return otherwise

    def _fail(self, what: str, error: ZkgroupError) -> None:
        self.failure = error
        self._failed.setdefault(error.reason, (error, set()))[1].add(what)
