"""Groups that live in Kafka: which there are, their members, and their offsets; through confluent-kafka's admin client.

What releases can tell: 0.8 has no groups to list or describe, only offsets; up to 0.10.1 offsets are told for the
partitions that are named, later a group's offsets are told as a whole. Asking for a group makes brokers create
``__consumer_offsets``: who must leave no trace asks only where that topic exists.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import Any, Final

from zkgroup.errors import RefusedError, ZkgroupError
from zkgroup.protocol.names import INTERNAL_TOPICS, TopicPartition
from zkgroup.servers.answers import CoordinatorGroup, CoordinatorMember, KafkaOffset, KafkaSide
from zkgroup.servers.kafka import (
    UNREACHABLE,
    AdminClient,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    KafkaSettings,
    KafkaTopicPartition,
    admin_client,
    no_answer,
)

_STATES: Final = {
    "PREPARING_REBALANCING": "PreparingRebalance",
    "COMPLETING_REBALANCING": "CompletingRebalance",
}


class Coordinators:
    """The coordinators of a cluster's groups, asked through one client. Used by one thread; ``timeout`` in seconds."""

    def __init__(self, settings: KafkaSettings, timeout: float) -> None:
        self.settings = settings
        self.timeout = timeout
        self._client: AdminClient | None = None

    def _admin(self) -> AdminClient:
        if self._client is None:
            self._client = admin_client(self.settings, self.timeout)
        return self._client

    def leaders(self) -> dict[str, dict[int, int | None]]:
        """Topic → partition → the id of its leader, None where there is none. Raises ``ZkgroupError``."""
        try:
            metadata = self._admin().list_topics(timeout=self.timeout)
        except KafkaException as error:
            raise self._failed("brokers do not tell their topics", error.args[0]) from None
        return {
            name: {
                number: partition.leader if partition.leader in metadata.brokers else None
                for number, partition in sorted(topic.partitions.items())
            }
            for name, topic in sorted(metadata.topics.items())
            if topic.error is None
        }

    def broker_ids(self) -> tuple[int, ...]:
        """The brokers that are up. Raises ``ZkgroupError``."""
        try:
            return tuple(sorted(self._admin().list_topics(timeout=self.timeout).brokers))
        except KafkaException as error:
            raise self._failed("brokers do not tell who they are", error.args[0]) from None

    def names(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The groups that the brokers know, sorted, and what could not be asked. Raises ``UnreachableError``."""
        try:
            answer = self._admin().list_consumer_groups(request_timeout=self.timeout).result(self.timeout + 1)
        except KafkaException as error:
            raise self._failed("brokers do not tell their groups", error.args[0]) from None
        except TimeoutError:
            raise no_answer(self.settings, self.timeout) from None
        errors = [error for error in map(_kafka_error, answer.errors or ()) if error.code() not in _NOT_THERE_YET]
        return (
            tuple(sorted(group.group_id for group in answer.valid or ())),
            tuple(sorted({f"not all groups in Kafka are known: {error.str()}" for error in errors})),
        )

    def sides(self, groups: Sequence[str], *, by_partition: bool = False) -> dict[str, KafkaSide]:
        """What Kafka tells of each group. ``by_partition``: ask for the offsets of every partition of the cluster by
        its name, as releases before 0.10.2 want it. Raises ``ZkgroupError`` where nothing can be asked at all."""
        asked = [group for group in groups if _is_name(group)]
        unasked = dict.fromkeys(groups, KafkaSide())
        if not asked:
            return unasked
        admin = self._admin()
        named = None
        if by_partition or self.settings.legacy_release is not None:
            named = [
                KafkaTopicPartition(topic, number)
                for topic, partitions in self.leaders().items()
                if topic not in INTERNAL_TOPICS
                for number in partitions
            ]
        deadline = time.monotonic() + self.timeout
        described = admin.describe_consumer_groups(asked, request_timeout=self.timeout)
        committed: dict[str, Future[Any]] = {}
        if named is None or named:
            for group in asked:  # one a call is all that librdkafka (2.16) takes
                request = [ConsumerGroupTopicPartitions(group, named)]
                committed |= admin.list_consumer_group_offsets(request, request_timeout=self.timeout)
        return unasked | {group: self._side(group, described[group], committed.get(group), deadline) for group in asked}

    def _side(self, group: str, described: Future[Any], committed: Future[Any] | None, deadline: float) -> KafkaSide:
        errors: list[str] = []
        found: CoordinatorGroup | None = None
        offsets: Mapping[TopicPartition, KafkaOffset] = {}
        try:
            found = _group(described.result(_left(deadline)))
        except KafkaException as error:
            if error.args[0].code() not in _NOT_THERE_YET:
                errors.append(f"group {group} cannot be described by Kafka: {error.args[0].str()}")
        except TimeoutError:
            errors.append(f"group {group} was not described by Kafka within {self.timeout:g} s")
        try:
            offsets = {} if committed is None else _offsets(committed.result(_left(deadline)).topic_partitions)
        except KafkaException as error:
            errors.append(f"offsets of group {group} in Kafka cannot be read: {error.args[0].str()}")
        except TimeoutError:
            errors.append(f"offsets of group {group} in Kafka were not told within {self.timeout:g} s")
        if found is not None and errors:
            found = replace(found, error="; ".join(errors))
        if found is not None and found.state == "Dead" and not offsets:
            found = None  # Kafka's word for a group it has never heard of
        return KafkaSide(found, offsets, tuple(errors))

    def delete(self, group: str) -> None:
        """Delete a group, its offsets with it; the coordinator itself refuses that while there are members.

        Raises ``RefusedError`` for an active group, ``ZkgroupError`` where brokers cannot do it (before 1.1). A group
        that is gone already is no matter.
        """
        answer = self._admin().delete_consumer_groups([group], request_timeout=self.timeout)[group]
        try:
            answer.result(self.timeout + 1)
        except TimeoutError:
            raise no_answer(self.settings, self.timeout) from None
        except KafkaException as error:
            code = error.args[0].code()
            if code == KafkaError.GROUP_ID_NOT_FOUND:
                return
            if code == KafkaError.NON_EMPTY_GROUP:
                raise RefusedError(
                    f"group {group} is active in Kafka: it has members", "stop whoever works for it, then try again"
                ) from None
            if code in _NOT_THERE_YET:
                raise ZkgroupError(
                    f"group {group} cannot be deleted in Kafka: brokers before 1.1 delete no groups",
                    "its offsets there expire by themselves; --store zookeeper leaves them",
                ) from None
            raise self._failed(f"group {group} cannot be deleted in Kafka", error.args[0]) from None

    def _failed(self, what: str, error: KafkaError) -> ZkgroupError:
        if error.code() in UNREACHABLE:
            return no_answer(self.settings, self.timeout)
        return ZkgroupError(f"{what}: {error.str()}")


# A release that cannot list or describe groups has none.
_NOT_THERE_YET: Final = (KafkaError._UNSUPPORTED_FEATURE,)


def _is_name(group: str) -> bool:
    """Whether the protocol, and librdkafka, can carry such a name."""
    try:
        return 0 < len(group.encode()) < 1 << 15 and "\0" not in group
    except UnicodeEncodeError:
        return False


def _left(deadline: float) -> float:
    return max(0.1, deadline + 1 - time.monotonic())


def _kafka_error(error: KafkaError | KafkaException) -> KafkaError:
    found: KafkaError = error.args[0] if isinstance(error, KafkaException) else error
    return found


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
    )


def _offsets(answers: Sequence[Any]) -> dict[TopicPartition, KafkaOffset]:
    found = {}
    for answer in answers:
        error = answer.error
        if error is not None:
            found[TopicPartition(answer.topic, answer.partition)] = KafkaOffset(None, error=error.str())
        elif answer.offset >= 0:
            found[TopicPartition(answer.topic, answer.partition)] = KafkaOffset(answer.offset, answer.metadata or "")
    return found
