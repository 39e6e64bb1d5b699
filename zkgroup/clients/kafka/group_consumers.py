"""Clients of a group in Kafka: its offsets, read and written without a member, and a membership.

A member's librdkafka joins, synchronises and sends heartbeats; it fetches nothing. ``poll`` and ``close`` call back for
each rebalance; the share stays the member's until ``revoked`` returns. The assignment is eager: a rebalance revokes all
partitions before it assigns anew.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from zkgroup.clients.kafka.client import (
    MAX_REQUEST_PARTITIONS,
    UNREACHABLE,
    Consumer,
    KafkaError,
    KafkaException,
    KafkaSettings,
    KafkaTopicPartition,
    consumer,
    no_answer,
)
from zkgroup.clients.kafka.connection_errors import ClientLog
from zkgroup.clients.kafka.group_coordinator import COORDINATOR_MOVES
from zkgroup.config.settings_table import MEMBERSHIP
from zkgroup.errors import RefusedError, Remedy, UnreachableError, ZkgroupError
from zkgroup.protocol.names import TopicPartition, spans
from zkgroup.protocol.offset_versions import CommitError
from zkgroup.protocol.procedures import batched
from zkgroup.text import group_command


def committed_offsets(
    client: Consumer, partitions: Iterable[TopicPartition], timeout: float
) -> dict[TopicPartition, int | None]:
    """The committed offsets of the client's group, None where there is none; within ``timeout`` seconds. Raises
    ``KafkaException`` if one cannot be read."""
    deadline = time.monotonic() + timeout
    found: dict[TopicPartition, int | None] = {}
    for piece in batched(partitions, MAX_REQUEST_PARTITIONS):
        wanted = [KafkaTopicPartition(*partition) for partition in piece]
        for answer in client.committed(wanted, timeout=max(0.1, deadline - time.monotonic())):
            if answer.error is not None:
                raise KafkaException(answer.error)
            found[TopicPartition(answer.topic, answer.partition)] = answer.offset if answer.offset >= 0 else None
    return found


class GroupOffsets:
    """A group's offsets kept in Kafka, read and written as the Scala consumer does: with the group's id and no member.

    Used by one thread. Such commits (generation −1) are refused by the coordinator while the group has members there.
    """

    def __init__(self, settings: KafkaSettings, group: str, properties: Mapping[str, str] | None = None) -> None:
        """``properties``: librdkafka's, for this client; those of ``settings`` win."""
        self.settings = settings
        self.group = group
        self._properties: dict[str, Any] = {name.replace(".", "_"): value for name, value in (properties or {}).items()}
        self._consumer: Consumer | None = None
        self._answers: list[tuple[KafkaError | None, list[Any]]] = []

    def _open(self) -> Consumer:
        if self._consumer is None:
            self._consumer = consumer(self.settings, group=self.group, on_commit=self._on_commit, **self._properties)
        return self._consumer

    def _on_commit(self, error: KafkaError | None, partitions: list[Any]) -> None:
        self._answers.append((error, partitions))

    def fetch(self, partitions: Iterable[TopicPartition], timeout: float) -> dict[TopicPartition, int | None]:
        """The committed offsets, None where there is none. Raises ``ZkgroupError`` if any could not be read."""
        try:
            return committed_offsets(self._open(), partitions, timeout)
        except KafkaException as error:
            raise self._failed("read", error.args[0]) from None

    def commit(
        self,
        offsets: Mapping[TopicPartition, int],
        timeout: float,
        metadata: Mapping[TopicPartition, str] | None = None,
    ) -> None:
        """Commit all of ``offsets``, with their ``metadata``, and wait for the answer.

        Raises ``ZkgroupError`` if any was not taken.
        """
        if not offsets:
            return
        client = self._open()
        self._answers.clear()
        metadata_of = metadata or {}
        wanted = [
            KafkaTopicPartition(*p, offset, metadata_of[p]) if metadata_of.get(p) else KafkaTopicPartition(*p, offset)
            for p, offset in offsets.items()
        ]
        try:
            client.commit(offsets=wanted, asynchronous=True)
        except KafkaException as error:
            raise self._failed("commit", error.args[0]) from None
        deadline = time.monotonic() + timeout
        while not self._answers:
            if time.monotonic() > deadline:
                raise no_answer(self.settings, timeout)
            client.poll(0.05)
        overall, committed = self._answers.pop()
        for refused in [overall, *(partition.error for partition in committed)]:
            if refused is not None:
                raise self._failed("commit", refused)

    def _failed(self, what: str, error: KafkaError) -> ZkgroupError:
        text = f"cannot {what} offsets of group {self.group} in Kafka: {error.str()}"
        if error.code() in UNREACHABLE:
            return UnreachableError(text, "check the brokers")
        return ZkgroupError(text)

    def close(self) -> None:
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None


log = logging.getLogger(__name__)

_FORBIDDEN: Final = (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.GROUP_AUTHORIZATION_FAILED)
#: The answers to a commit whose sender is not a member any more.
OUTDATED: Final = (KafkaError.UNKNOWN_MEMBER_ID, KafkaError.ILLEGAL_GENERATION, KafkaError.REBALANCE_IN_PROGRESS)
#: librdkafka recovers from these itself, and reports them by callbacks or its log.
_PASSING: Final = (
    *UNREACHABLE,
    *OUTDATED,
    *COORDINATOR_MOVES,
    KafkaError._PARTITION_EOF,
    KafkaError._AUTO_OFFSET_RESET,
    KafkaError.OFFSET_OUT_OF_RANGE,
)


class GroupMembership:
    """One member, used by one thread.

    ``poll`` and ``close`` call ``assigned(partitions)`` and ``revoked(partitions, lost)``; ``lost``: the coordinator
    has given the share to others already. ``committed(error, offsets)`` gets the outcome of a commit that was begun.
    ``strategies`` are the assignors that the member offers, in this order. ``properties`` are librdkafka's.
    """

    def __init__(
        self,
        settings: KafkaSettings,
        group: str,
        *,
        strategies: Sequence[str],
        properties: Mapping[str, str],
        assigned: Callable[[tuple[TopicPartition, ...]], None],
        revoked: Callable[[tuple[TopicPartition, ...], bool], None],
        committed: Callable[[ZkgroupError | None, Mapping[TopicPartition, int]], None],
    ) -> None:
        check_release(settings)
        self.settings = settings
        self.group = group
        self._assigned = assigned
        self._revoked = revoked
        self._committed = committed
        self._log = ClientLog(log)
        self._errors: list[KafkaError] = []
        self._warned: set[str] = set()
        overrides: dict[str, Any] = {
            **{key: default for key, default in MEMBERSHIP.items() if default is not None},
            # librdkafka fetches assigned partitions until they are paused: that is kept small.
            "queued.min.messages": 1,
            "queued.max.messages.kbytes": 64,
            "fetch.message.max.bytes": 1024,
        } | dict(properties)
        overrides["partition.assignment.strategy"] = ",".join(strategies)
        self._client: Consumer = consumer(
            settings,
            group=group,
            on_commit=self._on_commit,
            on_error=self._errors.append,
            client_log=self._log,
            **overrides,
        )

    @property
    def member_id(self) -> str:
        """The id that the coordinator has given this member; "" before it has joined."""
        return self._client.memberid() or ""

    def subscribe(self, topics: Sequence[str]) -> None:
        """Join with this subscription. Without topics: leave."""
        if not topics:
            self._client.unsubscribe()
            return
        try:
            self._client.subscribe(
                list(topics),
                on_assign=self._on_assign,
                on_revoke=self._on_revoke,
                on_lost=partial(self._on_revoke, is_lost=True),
            )
        except KafkaException as error:
            raise ZkgroupError(f"group {self.group} cannot be joined: {error.args[0].str()}") from None

    def poll(self, timeout: float) -> None:
        """Handle callbacks and errors, for at most ``timeout`` seconds. Raises ``ZkgroupError`` where waiting is of no
        use."""
        message = self._client.poll(timeout)
        self._log.report_recovery()
        errors, self._errors[:] = list(self._errors), []
        if message is not None and (error := message.error()) is not None:
            errors.append(error)
        for error in errors:
            self._handle_error(error)

    def _handle_error(self, error: KafkaError) -> None:
        code = error.code()
        if code in _FORBIDDEN:
            what = f"group {self.group}" if code == KafkaError.GROUP_AUTHORIZATION_FAILED else "its topics"
            raise ZkgroupError(f"not authorised to read {what}: {error.str()}", "give its user the right to read")
        if code == KafkaError.INCONSISTENT_GROUP_PROTOCOL:
            raise RefusedError(
                f"group {self.group} has members in Kafka with another assignor",
                Remedy(
                    "take theirs with --strategy, if it is range or roundrobin; see it",
                    group_command("inspect-group", self.group),
                ),
            )
        if code == KafkaError.INVALID_SESSION_TIMEOUT:
            raise ZkgroupError(
                f"the brokers do not take this session timeout: {error.str()}",
                "set -X kafka.session.timeout.ms between their group.min. and their group.max.session.timeout.ms",
            )
        if error.fatal():
            raise ZkgroupError(f"the member of group {self.group} cannot go on: {error.str()}")
        if code in _PASSING:
            log.debug("group %s: %s", self.group, error.str())
        elif error.str() not in self._warned:
            self._warned.add(error.str())
            log.warning("group %s: %s", self.group, error.str())

    def topics(self, timeout: float) -> list[str]:
        """All topics, sorted. Raises ``ZkgroupError``."""
        try:
            found = self._client.list_topics(timeout=timeout).topics
        except KafkaException as error:
            raise self._failed("list the topics", error.args[0], timeout) from None
        return sorted(name for name, topic in found.items() if topic.error is None)

    def offsets(self, partitions: Iterable[TopicPartition], timeout: float) -> dict[TopicPartition, int | None]:
        """The group's committed offsets, None where there is none. Raises ``ZkgroupError`` if one cannot be read."""
        try:
            return committed_offsets(self._client, partitions, timeout)
        except KafkaException as error:
            raise self._failed("return the offsets", error.args[0], timeout) from None

    def begin_commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit, as this member of this generation; ``committed`` gets the outcome. Raises ``ZkgroupError``."""
        try:
            self._client.commit(offsets=_as_kafka(offsets), asynchronous=True)
        except KafkaException as error:
            raise self._failed("accept the offsets", error.args[0], 0) from None

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit and wait for it. Raises ``ZkgroupError``; ``OutdatedError`` where others own the share by now."""
        try:
            answers = self._client.commit(offsets=_as_kafka(offsets), asynchronous=False)
        except KafkaException as error:
            raise self._refused(error.args[0], offsets) from None
        refused = [(answer, why) for answer in answers or () if (why := answer.error) is not None]
        if refused:
            raise self._refused(refused[0][1], _as_ours(answer for answer, _ in refused))

    def close(self) -> None:
        """Leave the group and free the client. Calls ``revoked`` if there is a share."""
        self._client.close()

    # ------------------------------------------------------------ librdkafka's callbacks

    def _on_assign(self, client: Consumer, partitions: list[Any]) -> None:
        share = _as_ours(partitions)
        # Any offset serves: nothing is read here. Without one librdkafka would search for it, and warn.
        client.assign([KafkaTopicPartition(*partition, 0) for partition in share])
        try:
            client.pause([KafkaTopicPartition(*partition) for partition in share])
        except KafkaException as error:  # such as a topic that is deleted at this moment: a little is fetched in vain
            log.debug("group %s: not paused: %s", self.group, error)
        self._assigned(share)

    def _on_revoke(self, client: Consumer, partitions: list[Any], is_lost: bool = False) -> None:
        try:
            self._revoked(_as_ours(partitions), is_lost)
        finally:
            client.unassign()

    def _on_commit(self, error: KafkaError | None, partitions: list[Any]) -> None:
        offsets = {TopicPartition(p.topic, p.partition): p.offset for p in partitions}
        refused = [partition for partition in partitions if partition.error is not None]
        if error is None and refused:
            self._committed(self._refused(refused[0].error, _as_ours(refused)), offsets)
        else:
            self._committed(None if error is None else self._refused(error, offsets), offsets)

    def _refused(self, error: KafkaError, partitions: Iterable[TopicPartition]) -> ZkgroupError:
        text = f"offsets of group {self.group} not committed of {spans(partitions)}: {error.str()}"
        return OutdatedError(text) if error.code() in OUTDATED else CommitError(text)

    def _failed(self, what: str, error: KafkaError, timeout: float) -> ZkgroupError:
        if error.code() in UNREACHABLE:
            return no_answer(self.settings, timeout)
        return ZkgroupError(f"the coordinator of group {self.group} does not {what}: {error.str()}")


class OutdatedError(CommitError):
    """A commit of a member whose share belongs to others by now."""


def check_release(settings: KafkaSettings) -> None:
    """Raise ``RefusedError`` where the brokers have no coordinators of groups."""
    if settings.legacy_release is not None and settings.legacy_release.startswith("0.8"):
        raise RefusedError(
            "brokers of 0.8 keep offsets of groups and no members",
            "give --coordinator zookeeper: groups in Kafka begin with 0.9",
        )


def _as_kafka(offsets: Mapping[TopicPartition, int]) -> list[KafkaTopicPartition]:
    return [KafkaTopicPartition(*partition, offset) for partition, offset in offsets.items()]


def _as_ours(partitions: Iterable[Any]) -> tuple[TopicPartition, ...]:
    return tuple(sorted(TopicPartition(partition.topic, partition.partition) for partition in partitions))
