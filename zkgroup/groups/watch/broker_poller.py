"""Repeated requests to the brokers about one group: its log ends, and its members and offsets in Kafka.

A request to a dead broker lasts until its time-out. The requests have a thread of their own, so that the watch of
ZooKeeper goes on meanwhile.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from zkgroup.clients.kafka.responses import KafkaGroup, MessageAge, words_of
from zkgroup.errors import ZkgroupError, is_wrong_setting
from zkgroup.groups.snapshot.znode_reader import assigned
from zkgroup.protocol.names import OFFSETS_TOPIC, TopicPartition

if TYPE_CHECKING:
    from zkgroup.clients.kafka.client import KafkaSettings
    from zkgroup.clients.kafka.group_coordinator import Coordinators
    from zkgroup.clients.kafka.log_offsets import Log

log = logging.getLogger(__name__)

#: Seconds between two readings of messages' ages, and for one of them at most: each opens a consumer.
AGES_INTERVAL: Final = 10.0
AGES_TIMEOUT: Final = 1.0
#: For so many seconds the coordinator is not asked again for a group that it does not know.
UNKNOWN_FOR: Final = 30.0


@dataclass(frozen=True, slots=True)
class Question:
    """One request. ``brokers``: the ids of the registered ones; when these change, addresses are found anew.
    ``topics``: all that exist. ``by_partition``: as in ``Coordinators.read_groups``. ``positions``: the offsets that
    are read next, where the age of the message there is wanted."""

    partitions: Collection[TopicPartition]
    brokers: tuple[int, ...]
    topics: Collection[str]
    by_partition: bool = False
    positions: Mapping[TopicPartition, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Answer:
    """The brokers' answer; ``error``: why a part of it is missing, else None. ``ages``: those of the last
    ``AGES_INTERVAL``."""

    kafka_group: KafkaGroup = field(default_factory=KafkaGroup)
    logs: dict[TopicPartition, Log] = field(default_factory=dict)
    error: str | None = None
    ages: Mapping[TopicPartition, MessageAge] = field(default_factory=dict)


class BrokerPoller:
    """A thread that sends requests about ``group``, one after the other; ``close`` it.

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
        self._condition = threading.Condition()
        self._question: Question | None = None
        self._busy = False
        self._closing = False
        self._brokers: tuple[int, ...] | None = None
        self._settings: KafkaSettings | None = None
        self._coordinators: Coordinators | None = None
        self._kafka_group = KafkaGroup()
        self._unknown_since: float | None = None
        self._ages: Mapping[TopicPartition, MessageAge] = {}
        self._ages_due = 0.0
        self._thread = threading.Thread(target=self._run, name="zkgroup-poll", daemon=True)

    def start(self) -> None:
        """Begin to wait for requests."""
        self._thread.start()

    def ask(self, question: Question) -> bool:
        """Send the request; False where the last one is not answered yet."""
        with self._condition:
            if self._busy or self._question is not None:
                return False
            self._question = question
            self._condition.notify()
        return True

    def close(self, timeout: float = 0.5) -> None:
        """End. A thread that waits for a broker is not waited for: it ends with the broker's answer."""
        with self._condition:
            self._closing = True
            self._condition.notify()
        if self._thread.ident is not None:
            self._thread.join(timeout)

    def _run(self) -> None:
        while True:
            with self._condition:
                while self._question is None and not self._closing:
                    self._condition.wait(1.0)
                if self._closing:
                    return
                question, self._question, self._busy = self._question, None, True
            assert question is not None
            try:
                answer: Answer | BaseException = self._answer(question)
            except BaseException as error:  # noqa: BLE001  # the caller raises it
                answer = error
            with self._condition:
                self._busy = False
                if self._closing:
                    return
            self._done(answer)

    def _answer(self, question: Question) -> Answer:
        try:
            self._find_brokers(question.brokers)
            self._read_kafka_group(question)
            wanted = {*question.partitions, *self._kafka_group.offsets, *assigned(self._kafka_group)}
            error = "; ".join(words_of(f"group {self._group}", self._kafka_group.failures)) or None
            return Answer(self._kafka_group, self._logs(wanted), error, self._read_ages(question.positions))
        except ZkgroupError as error:
            if is_wrong_setting(error) and self._brokers is None:  # what is registered later ends no watch
                raise
            self._settings = self._coordinators = None
            return Answer(self._kafka_group, {}, error.message)

    def _find_brokers(self, brokers: tuple[int, ...]) -> None:
        """Find the brokers' addresses, unless the same ones are registered as last time."""
        if self._settings is not None and brokers == self._brokers:
            return
        settings = self._find()
        if settings != self._settings:
            self._settings, self._coordinators = settings, None
        self._brokers = brokers

    def _read_kafka_group(self, question: Question) -> None:
        # A request to the coordinator makes brokers create this topic; without it there are no offsets in Kafka.
        if not self._reads_coordinator or OFFSETS_TOPIC not in question.topics or self._settings is None:
            return
        since = self._unknown_since
        if since is not None and time.monotonic() - since < UNKNOWN_FOR:
            return
        coordinators = self._connect(self._settings)
        kafka_group = coordinators.read_group(self._group, by_partition=question.by_partition)
        self._kafka_group = kafka_group
        nothing = kafka_group.group is None and not kafka_group.offsets and not kafka_group.failures
        self._unknown_since = time.monotonic() if nothing else None

    def _connect(self, settings: KafkaSettings) -> Coordinators:
        from zkgroup.clients.kafka.group_coordinator import (
            Coordinators,  # confluent-kafka, which not every import needs
        )

        if self._coordinators is None:
            self._coordinators = Coordinators(settings, self._timeout)
        return self._coordinators

    def _logs(self, wanted: Collection[TopicPartition]) -> dict[TopicPartition, Log]:
        if not wanted or self._settings is None:
            return {}
        return self._connect(self._settings).log_offsets(sorted(wanted), self._timeout)

    def _read_ages(self, positions: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, MessageAge]:
        """The ages of the messages at these positions; those of the last reading, where that is not long ago. Without
        those that cannot be read."""
        if not positions or self._settings is None:
            self._ages = {}
        elif time.monotonic() >= self._ages_due:
            from zkgroup.clients.kafka.message_ages import message_ages  # as above

            wanted = {key: (position,) for key, position in positions.items()}
            with suppress(ZkgroupError):
                found = message_ages(self._settings, wanted, time.time_ns() // 1_000_000, AGES_TIMEOUT)
                self._ages = {key: age for key, its in found.ages.items() for age in its.values()}
            self._ages_due = time.monotonic() + AGES_INTERVAL
        return self._ages
