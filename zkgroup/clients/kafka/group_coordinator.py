"""Groups in Kafka, with their members and offsets, through confluent-kafka's admin client.

By release: 0.8 can neither list nor describe groups and has only offsets; up to 0.10.1 a request for offsets names the
partitions; later ones return all offsets of a group. A request about a group makes brokers create
``__consumer_offsets``: callers that must leave no trace send it only where that topic exists.

A request to delete a group cannot be tried: where the broker does not support it librdkafka (2.16) breaks, and aborts
the process when the client is freed (``rd_kafka_q_destroy0``: a queue is freed twice). It shows the requests that a
broker supports (ApiVersions) in its debug log alone.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import Any, Final, TypeGuard, TypeVar

from zkgroup.clients.kafka.client import (
    UNREACHABLE,
    AdminClient,
    ClusterMetadata,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    KafkaSettings,
    KafkaTopicPartition,
    admin_client,
    no_answer,
)
from zkgroup.clients.kafka.connection_errors import ClientLog
from zkgroup.clients.kafka.log_offsets import Log, log_offsets
from zkgroup.clients.kafka.responses import (
    CoordinatorGroup,
    CoordinatorMember,
    GroupNames,
    Half,
    KafkaGroup,
    KafkaOffset,
)
from zkgroup.clients.kafka.topic_metadata import replicas_in
from zkgroup.errors import RefusedError, UnreachableError, ZkgroupError
from zkgroup.protocol.names import INTERNAL_TOPICS, OFFSETS_TOPIC, TopicPartition

log = logging.getLogger(__name__)

T = TypeVar("T")
_STATES: Final = {
    "PREPARING_REBALANCING": "PreparingRebalance",
    "COMPLETING_REBALANCING": "CompletingRebalance",
}


class Coordinators:
    """The coordinators of a cluster's groups, asked through one client. Used by one thread, but for ``client``;
    ``timeout`` in seconds."""

    def __init__(self, settings: KafkaSettings, timeout: float) -> None:
        self.settings = settings
        self.timeout = timeout
        self._client: AdminClient | None = None
        self._lock = threading.Lock()  # over the making of it

    def client(self) -> AdminClient:
        """The client, for other requests too: a second one would wait for a dead controller once more. The first call
        creates it, on any thread. Raises ``UnreachableError``."""
        with self._lock:
            if self._client is None:
                self._client = admin_client(self.settings, self.timeout)
            return self._client

    def leaders(self) -> dict[str, dict[int, int | None]]:
        """Topic → partition → the id of its leader, None where there is none. Raises ``ZkgroupError``."""
        found = replicas_in(self._metadata())
        return {name: {number: one.leader for number, one in topic.items()} for name, topic in found.items()}

    def broker_ids(self) -> tuple[int, ...]:
        """The brokers that are up. Raises ``ZkgroupError``."""
        return tuple(sorted(self._metadata().brokers))

    def _metadata(self) -> ClusterMetadata:
        try:
            return self.client().list_topics(timeout=self.timeout)
        except KafkaException as error:
            raise self._failed("brokers do not list topics and brokers", error.args[0]) from None

    def log_offsets(self, partitions: Sequence[TopicPartition], timeout: float) -> dict[TopicPartition, Log]:
        """As ``log_offsets``, with the client that asks coordinators."""
        client = None if self.settings.is_old_and_plain else self.client()
        return log_offsets(self.settings, partitions, timeout, client=client)

    def names(self) -> GroupNames:
        """The groups of all brokers, sorted. Raises ``UnreachableError``."""
        try:
            answer = self.client().list_consumer_groups(request_timeout=self.timeout).result(self.timeout + 1)
        except KafkaException as error:
            raise self._failed("brokers do not list their groups", error.args[0]) from None
        except TimeoutError:
            raise no_answer(self.settings, self.timeout) from None
        errors = [error.args[0] if isinstance(error, KafkaException) else error for error in answer.errors or ()]
        missing = {f"{_NOT_ALL}: {error.str()}" for error in errors if error.code() not in _NOT_THERE_YET}
        is_unlisted = self.settings.legacy_release is not None or any(e.code() in _NOT_THERE_YET for e in errors)
        # Only brokers that run list their groups: those of the others are missing without an error.
        homes = self.leaders().get(OFFSETS_TOPIC, {}) if not is_unlisted else {}
        if lost := [number for number, leader in homes.items() if leader is None]:
            missing.add(
                f"{_NOT_ALL}: no broker leads {len(lost)} of the {len(homes)} partitions of"
                f" {OFFSETS_TOPIC}, and their groups are unknown"
            )
        names = sorted(group.group_id for group in answer.valid or ())
        return GroupNames(tuple(names), is_unlisted, tuple(sorted(missing)))

    def read_group(self, group: str, *, by_partition: bool = False) -> KafkaGroup:
        return self.read_groups([group], by_partition=by_partition)[group]

    def read_groups(
        self, groups: Sequence[str], *, by_partition: bool = False, topics: Mapping[str, Collection[str]] | None = None
    ) -> dict[str, KafkaGroup]:
        """Each group in Kafka.

        ``by_partition``: the brokers return offsets only of partitions that the request names, as releases before
        0.10.2 do; without it that is found out. ``topics``: group → the only topics to name then. Raises
        ``ZkgroupError`` where no broker answers.
        """
        asked = [group for group in groups if _is_name(group)]
        kafka_groups = dict.fromkeys(groups, KafkaGroup())
        if not asked:
            return kafka_groups
        by_partition = by_partition or self.settings.legacy_release is not None
        named = self._named(asked, topics) if by_partition else None
        described = self._described(asked)
        # NOT_COORDINATOR to a request for offsets ends the process (librdkafka 2.16: rd_kafka_cgrp_op of an admin
        # client): only a coordinator that has described the group is asked. One that is silent is waited for once.
        away = {group: answer for group, answer in described.items() if _is_away(answer)}
        committed = self._committed([group for group in asked if group not in away], named)
        # A broker that cannot read the request drops the connection.
        puzzled = [group for group, answer in committed.items() if _code(answer) == KafkaError._TRANSPORT]
        if puzzled and not by_partition:
            self._client = None  # one whose connection was dropped asks nothing for seconds (librdkafka 2.16)
            committed |= self._committed(puzzled, self._named(puzzled, topics))
        committed.update(away)
        return kafka_groups | {group: self._build_group(group, described[group], committed[group]) for group in asked}

    def members(self, groups: Sequence[str]) -> dict[str, tuple[CoordinatorMember, ...] | ZkgroupError]:
        """The members of each group in Kafka, or why they are not known. Raises ``ZkgroupError`` where nothing can be
        asked at all."""
        if not groups:
            return {}
        found = self._described(groups)
        return {
            group: answer.members if isinstance(answer, CoordinatorGroup) else ZkgroupError(self._why(answer))
            for group, answer in found.items()
        }

    def _described(self, groups: Sequence[str]) -> dict[str, CoordinatorGroup | Exception]:
        """The groups as their coordinators describe them, or why they do not. A coordinator that moves or loads is
        asked again: librdkafka (2.16) does not do so for brokers from 4.0 on."""
        found: dict[str, CoordinatorGroup | Exception] = {}
        asked, deadline = list(groups), self._deadline()
        while asked:
            client, described = self.client(), dict[str, Future[Any]]()
            for group in asked:  # the answers of one call come together, and not while one coordinator is silent
                described |= client.describe_consumer_groups([group], request_timeout=_NO_EXPIRY)
            found |= {group: _answer(described[group], deadline, _group) for group in asked}
            asked = [group for group in asked if _code(found[group]) in COORDINATOR_MOVES]
            if asked and time.monotonic() > deadline:
                break
            if asked:
                time.sleep(_MOVING_PAUSE)
                self._client = None  # a new one forgets the coordinators
        return found

    def _named(
        self, groups: Sequence[str], topics: Mapping[str, Collection[str]] | None
    ) -> dict[str, list[KafkaTopicPartition]]:
        existing = {
            name: [KafkaTopicPartition(name, number) for number in partitions]
            for name, partitions in self.leaders().items()
            if name not in INTERNAL_TOPICS
        }
        return {
            group: [
                partition
                for name in (existing if topics is None else topics[group])
                for partition in existing.get(name, ())
            ]
            for group in groups
        }

    def _committed(
        self, groups: Sequence[str], named: Mapping[str, list[KafkaTopicPartition]] | None
    ) -> dict[str, dict[TopicPartition, KafkaOffset] | Exception]:
        """Offsets, or why they are not known. A group for which no partition is named has none."""
        found: dict[str, dict[TopicPartition, KafkaOffset] | Exception] = {}
        asked: dict[str, Future[Any]] = {}
        for group in groups:
            partitions = None if named is None else named[group]
            if partitions is not None and not partitions:
                found[group] = {}
                continue
            # One a call is all that librdkafka (2.16) takes.
            request = [ConsumerGroupTopicPartitions(group, partitions)]
            asked |= self.client().list_consumer_group_offsets(request, request_timeout=_NO_EXPIRY)
        deadline = self._deadline()
        return found | {group: _answer(future, deadline, _offsets) for group, future in asked.items()}

    def _deadline(self) -> float:
        return time.monotonic() + self.timeout

    def _build_group(
        self,
        group: str,
        described: CoordinatorGroup | Exception,
        committed: dict[TopicPartition, KafkaOffset] | Exception,
    ) -> KafkaGroup:
        failures: dict[Half, str] = {}
        if isinstance(described, Exception) and _code(described) not in _NOT_THERE_YET:
            failures["members"] = self._why(described)
        if isinstance(committed, Exception):
            failures["offsets"] = self._why(committed)
        offsets = {} if isinstance(committed, Exception) else committed
        found = described if isinstance(described, CoordinatorGroup) else None
        if found is not None and found.state == "Dead" and not offsets:
            found = None  # Kafka's word for an unknown group
        return KafkaGroup(found, offsets, failures, "members" not in failures, "offsets" not in failures)

    def _why(self, error: Exception) -> str:
        # librdkafka words the same silence in several ways, one for each question.
        if isinstance(error, KafkaException) and error.args[0].code() not in _SILENCE:
            return _text(error.args[0])
        return f"no answer within {round(self.timeout, 1):g} s"

    def check_deletes(self, group: str) -> None:
        """Raise ``RefusedError`` where the group's coordinator cannot delete groups (before 1.1)."""
        if not self._can_delete(group):
            raise RefusedError(
                f"group {group} cannot be deleted in Kafka: brokers before 1.1 delete no groups",
                "give --store zookeeper: its offsets in Kafka expire by themselves",
            )

    def _can_delete(self, group: str) -> bool:
        """Whether the coordinator of ``group`` can delete groups, as brokers can from 1.1 on.

        Raises ``UnreachableError`` where that cannot be found out.
        """
        if self.settings.legacy_release is not None:
            return False
        found = ApiVersionsLog()
        debug = ",".join(filter(None, [self.settings.properties.get("debug", ""), "feature"]))
        talkative = replace(self.settings, properties={**self.settings.properties, "debug": debug})
        client = admin_client(talkative, self.timeout, found)
        try:
            asked = client.describe_consumer_groups([group], request_timeout=_NO_EXPIRY)[group]
            described = asked.result(self.timeout)
        except TimeoutError:
            raise no_answer(self.settings, self.timeout) from None
        except KafkaException as error:
            raise self._failed(f"the coordinator of group {group} cannot be found", error.args[0]) from None
        coordinator = str(described.coordinator.id) if described.coordinator else ""
        # Each request is a line of its own. All lines of a broker were written before its answer, and a poll reads all
        # that are written.
        deadline = time.monotonic() + _SETTLING
        client.poll(0.05)
        while coordinator not in found.requests and time.monotonic() < deadline:
            client.poll(0.05)
        known = found.requests.get(coordinator)
        if known is None:
            raise UnreachableError(
                f"broker {coordinator or 'unknown'} does not list the requests that it supports", "check the brokers"
            )
        return "DeleteGroups" in known

    def delete(self, group: str) -> None:
        """Delete a group, its offsets with it; the coordinator itself refuses that while there are members.

        Raises ``RefusedError`` for an active group, and where brokers cannot do it (``check_deletes``: they are not
        even asked). A group that is gone already is no error.
        """
        self.check_deletes(group)
        answer = self.client().delete_consumer_groups([group], request_timeout=_NO_EXPIRY)[group]
        try:
            answer.result(self.timeout)
        except TimeoutError:
            raise no_answer(self.settings, self.timeout) from None
        except KafkaException as error:
            code = error.args[0].code()
            if code == KafkaError.GROUP_ID_NOT_FOUND:
                return
            if code == KafkaError.NON_EMPTY_GROUP:
                raise RefusedError(
                    f"group {group} is active in Kafka: it has members", "stop its clients, then try again"
                ) from None
            raise self._failed(f"group {group} cannot be deleted in Kafka", error.args[0]) from None

    def _failed(self, what: str, error: KafkaError) -> ZkgroupError:
        if error.code() in UNREACHABLE:
            return no_answer(self.settings, self.timeout)
        return ZkgroupError(f"{what}: {_text(error)}")


_NOT_ALL: Final = "not all groups in Kafka are known"
_SILENCE: Final = (KafkaError._TIMED_OUT, KafkaError._TIMED_OUT_QUEUE)
COORDINATOR_MOVES: Final = (
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
)
#: The seconds that librdkafka gets for a request to a coordinator, its most. One that expires while its coordinator is
#: looked up ends the process as soon as the look-up is answered (2.16; librdkafka #4605): nothing expires but our wait.
_NO_EXPIRY: Final = 3600.0
#: Seconds until a coordinator that moves is asked again.
_MOVING_PAUSE: Final = 0.2
# A release that cannot list or describe groups knows no members.
_NOT_THERE_YET: Final = (KafkaError._UNSUPPORTED_FEATURE,)


def _is_name(group: str) -> bool:
    """Whether the protocol, and librdkafka, can carry such a name."""
    try:
        return 0 < len(group.encode()) < 1 << 15 and "\0" not in group
    except UnicodeEncodeError:
        return False


def _answer(future: Future[Any], deadline: float, read: Callable[[Any], T]) -> T | Exception:
    """The answer, converted by ``read``; a ``KafkaException`` or a ``TimeoutError`` without one."""
    try:
        return read(future.result(max(0, deadline - time.monotonic())))
    except (KafkaException, TimeoutError) as error:
        return error


def _code(answer: object) -> int | None:
    return answer.args[0].code() if isinstance(answer, KafkaException) else None


def _is_away(answer: object) -> TypeGuard[Exception]:
    """Whether no broker has answered as the group's coordinator."""
    return isinstance(answer, TimeoutError) or _code(answer) in (*_SILENCE, *COORDINATOR_MOVES)


def _text(error: KafkaError) -> str:
    """The error as text. librdkafka (2.16) has nothing but the request's name where the broker sends no text."""
    text = str(error.str())
    return f"{text}{error.name()}" if text.endswith(": ") else text


def _group(description: Any) -> CoordinatorGroup:
    members = [
        CoordinatorMember(
            member.member_id,
            member.client_id or "",
            (member.host or "").removeprefix("/"),
            tuple(sorted(TopicPartition(p.topic, p.partition) for p in member.assignment.topic_partitions)),
        )
        for member in description.members
    ]
    state = description.state.name
    return CoordinatorGroup(
        _STATES.get(state, state.capitalize()),
        description.partition_assignor or None,
        tuple(sorted(members, key=lambda member: member.member)),
        description.coordinator.id if description.coordinator else None,
        is_simple=description.is_simple_consumer_group,
    )


def _offsets(answered: Any) -> dict[TopicPartition, KafkaOffset]:
    found = {}
    for answer in answered.topic_partitions:
        error = answer.error
        if error is not None:
            found[TopicPartition(answer.topic, answer.partition)] = KafkaOffset(None, error=error.str())
        elif answer.offset >= 0:
            found[TopicPartition(answer.topic, answer.partition)] = KafkaOffset(answer.offset, answer.metadata or "")
    return found


# The requests that a broker supports

_API: Final = re.compile(r"(?:\[thrd:[^\]]*\]: )?(\S+/(\S+?)): +ApiKey (\w+) \(\d+\) Versions \d+\.\.\d+")
_FACILITY: Final = "APIVERSION"
_DEBUG: Final = 7
#: Seconds to wait for log lines that are written already.
_SETTLING: Final = 2.0


class ApiVersionsLog(ClientLog):
    """A client's log that collects the supported requests: broker id → names of requests. The id of a broker that is
    known by its address alone is ``bootstrap``."""

    def __init__(self) -> None:
        super().__init__(log)
        self.requests: dict[str, set[str]] = {}

    def log(self, level: int, form: str, facility: str, client: str, text: str) -> None:
        if facility == _FACILITY and (match := _API.match(text)):
            self.requests.setdefault(match[2], set()).add(match[3])
        elif level < _DEBUG:
            super().log(level, form, facility, client, text)
