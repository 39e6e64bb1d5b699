"""Asking the brokers about groups. What they do not answer is unknown, and told as a warning: never a failure.

A broker that has died is registered until its session ends, and whoever asks it waits in vain. So all of a look's
questions share one time-out: where one must be answered before the next can be asked, it gets a part of what is left.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

from zkgroup.clients.kafka.responses import UNTOLD, KafkaSide
from zkgroup.errors import NoAnswerError, UsageError, ZkgroupError
from zkgroup.groups.snapshot.raw_group import Log
from zkgroup.protocol.names import TopicPartition

if TYPE_CHECKING:
    from zkgroup.clients.kafka.client import KafkaSettings
    from zkgroup.clients.kafka.group_coordinator import Coordinators

T = TypeVar("T")
#: What a question gets at least, in seconds, whatever the others took: brokers that work answer in less.
LEAST: Final = 1.0
#: How to reach the brokers, or how to find that out: called at most once, when it is needed.
Brokers: TypeAlias = "KafkaSettings | Callable[[], KafkaSettings]"


def read_logs(
    coordinators: Coordinators, wanted: Sequence[TopicPartition], left: Callable[[], float]
) -> dict[TopicPartition, Log]:
    """First and end offset of each partition and its leader, or why they are not known, through the client that asks
    coordinators. ``left``: seconds that there are, once it is made. Raises ``UnreachableError``."""
    from zkgroup.clients.kafka.log_offsets import LogRange, log_offsets  # confluent-kafka, which not every import needs

    client = None if coordinators.settings.old_and_plain else coordinators.client()
    answers = log_offsets(coordinators.settings, wanted, left(), client=client)
    return {
        key: (answer.start, answer.end, answer.leader) if isinstance(answer, LogRange) else answer.message
        for key, answer in answers.items()
    }


class Asker:
    """One look's questions to the brokers. Once they were out of reach, or the time was up, they are not asked again.

    ``timeout``: seconds, for all questions together, from the first on.
    ``logs`` may be asked while another thread waits for ``sides``.
    """

    def __init__(self, brokers: Brokers, timeout: float) -> None:
        self._brokers = brokers
        self._timeout = timeout
        self._deadline: float | None = None
        self._settings: KafkaSettings | None = None
        self._coordinators: Coordinators | None = None
        self._lock = threading.Lock()  # over the making of it
        self.failure: ZkgroupError | None = None
        self._errors: list[str] = []
        self._failed: dict[str, tuple[ZkgroupError, set[str]]] = {}

    @property
    def warnings(self) -> list[str]:
        """What is not known, and why; what has one reason is one line."""
        return [f"{', and '.join(sorted(whats))}: {error}" for error, whats in self._failed.values()] + self._errors

    def settings(self) -> KafkaSettings:
        """How to reach the brokers. Raises ``ZkgroupError`` where that cannot be found out. It is found out once, and
        in the thread that asks first: do so before there are two."""
        if self._settings is None:
            self._settings = self._brokers() if callable(self._brokers) else self._brokers
        return self._settings

    def coordinators(self, questions: int = 1) -> Coordinators:
        """The brokers as coordinators of groups; one of so many ``questions`` is asked next. Raises as ``settings``."""
        coordinators = self._asked()
        coordinators.timeout = self._left() / questions
        return coordinators

    def _asked(self) -> Coordinators:
        from zkgroup.clients.kafka.group_coordinator import (
            Coordinators,  # confluent-kafka: 60 ms that not every look needs
        )

        with self._lock:
            if self._coordinators is None:
                self._coordinators = Coordinators(self.settings(), self._left())
            return self._coordinators

    def _left(self) -> float:
        """How much is left of the time-out, in seconds; a little always is."""
        if self._deadline is None:
            self._deadline = time.monotonic() + self._timeout
        return max(min(LEAST, self._timeout), self._deadline - time.monotonic())

    def _has_time(self) -> bool:
        return self._deadline is None or time.monotonic() < self._deadline

    def names(self) -> Sequence[str]:
        """The groups in Kafka; none, with a warning, where the brokers do not tell."""
        nothing: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
        names, errors = self._ask("groups in Kafka are not known", lambda: self.coordinators(2).names(), nothing)
        self._errors += errors
        return names

    def sides(
        self,
        groups: Sequence[str],
        *,
        by_partition: bool = False,
        topics: Mapping[str, Collection[str]] | None = None,
        questions: int = 1,
    ) -> Mapping[str, KafkaSide]:
        """What Kafka tells of each group, as ``Coordinators.sides``; nothing, with a warning, where brokers do not."""

        def question() -> Mapping[str, KafkaSide]:
            return self.coordinators(questions).sides(groups, by_partition=by_partition, topics=topics)

        what = "what Kafka keeps of the group is not known" if len(groups) == 1 else "groups in Kafka are not known"
        return self._ask(what, question, dict.fromkeys(groups, UNTOLD))

    def logs(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, Log]:
        """First and end offset of each partition and its leader, or why they are not known."""
        wanted = sorted(partitions)
        if not wanted:
            return {}

        def question() -> Mapping[TopicPartition, Log] | None:
            return read_logs(self._asked(), wanted, self._left)

        answers = self._ask("log offsets are not known", question, None)
        if answers is None:
            assert self.failure is not None
            return dict.fromkeys(wanted, self.failure.message)
        return answers

    def _ask(self, what: str, question: Callable[[], T], otherwise: T) -> T:
        """The answer, or ``otherwise``. Raises ``UsageError`` where librdkafka refuses its configuration."""
        if self.failure is not None and not (isinstance(self.failure, NoAnswerError) and self._has_time()):
            return otherwise
        try:
            self.settings()
        except ZkgroupError as error:  # no broker, or none with such a listener
            self._fail(what, error)
            return otherwise
        try:
            return question()
        except UsageError:
            raise
        except ZkgroupError as error:
            self._fail(what, error)
            return otherwise

    def _fail(self, what: str, error: ZkgroupError) -> None:
        self.failure = error
        # The same silence, however long each question waited for an end of it.
        reason = re.sub(r" within [0-9.]+ s", "", error.message)
        self._failed.setdefault(reason, (error, set()))[1].add(what)
