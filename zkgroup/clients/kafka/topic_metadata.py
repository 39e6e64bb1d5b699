"""Topics as the brokers report them: replicas, and configs (DescribeConfigs), those of brokers included."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from zkgroup.clients.kafka.client import (
    AdminClient,
    ClusterMetadata,
    ConfigResource,
    KafkaException,
    KafkaSettings,
    admin_client,
)


@dataclass(frozen=True, slots=True)
class PartitionReplicas:
    """The brokers that hold a partition. ``leader``: None where none leads it."""

    leader: int | None
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]


def replicas_in(metadata: ClusterMetadata) -> dict[str, dict[int, PartitionReplicas]]:
    """All topics that the brokers show, each with its partitions in numeric order."""
    return {
        name: {
            number: PartitionReplicas(
                one.leader if one.leader in metadata.brokers else None, tuple(one.replicas), tuple(one.isrs)
            )
            for number, one in sorted(topic.partitions.items())
        }
        for name, topic in sorted(metadata.topics.items())
        if topic.error is None
    }


log = logging.getLogger(__name__)

POLICY: Final = "cleanup.policy"


def cleanup_policies(settings: KafkaSettings, topics: Iterable[str], timeout: float) -> dict[str, str | None]:
    """Each topic's ``cleanup.policy`` (``delete``, ``compact`` or both), None where it cannot be read; as below."""
    return {topic: its.get(POLICY) for topic, its in retention_configs(settings, topics, timeout).items()}


def retention_configs(settings: KafkaSettings, topics: Iterable[str], timeout: float) -> dict[str, dict[str, str]]:
    """Each topic's configs that decide what is deleted, by their names, in one request for all.

    Without those that cannot be read: brokers before 0.11 have no such request, others may refuse it. Raises
    ``UnreachableError`` where no broker can be reached.
    """
    wanted = list(dict.fromkeys(topics))
    if not wanted or settings.legacy_release is not None:
        return {topic: {} for topic in wanted}
    deadline = time.monotonic() + timeout
    resources = [ConfigResource(ConfigResource.Type.TOPIC, topic) for topic in wanted]
    names = [POLICY, "retention.ms", "retention.bytes"]
    values = _describe(admin_client(settings, timeout), resources, names, deadline)
    return {topic: values.get(topic, {}) for topic in wanted}


def offsets_retention(settings: KafkaSettings, timeout: float) -> int | None:
    """The brokers' shortest ``offsets.retention.minutes``; None where it cannot be read, as above. Raises
    ``UnreachableError``."""
    values = _broker_configs(settings, "offsets.retention.minutes", timeout)
    return min((int(minutes) for minutes in values.values() if minutes.isdecimal()), default=None)


def has_no_zookeeper(settings: KafkaSettings, timeout: float) -> bool:
    """Whether the brokers run in KRaft mode; False where they do not say, as above. Raises ``UnreachableError``."""
    roles = _broker_configs(settings, "process.roles", timeout)
    return bool(roles) and all(roles.values())


def _broker_configs(settings: KafkaSettings, setting: str, timeout: float) -> dict[str, str]:
    if settings.legacy_release is not None:
        return {}
    deadline = time.monotonic() + timeout
    admin = admin_client(settings, timeout)
    brokers = admin.list_topics(timeout=max(0.1, deadline - time.monotonic())).brokers
    resources = [ConfigResource(ConfigResource.Type.BROKER, str(broker)) for broker in brokers]
    values = _describe(admin, resources, [setting], deadline)
    return {broker: its[setting] for broker, its in values.items() if setting in its}


def _describe(
    admin: AdminClient, resources: Sequence[ConfigResource], names: Sequence[str], deadline: float
) -> dict[str, dict[str, str]]:
    """These configs of each topic or broker, by its name; without those that cannot be read."""
    answers = admin.describe_configs(list(resources), request_timeout=max(0.1, deadline - time.monotonic()))
    found: dict[str, dict[str, str]] = {}
    for resource, future in answers.items():
        try:
            entries = future.result(max(0.1, deadline + 1 - time.monotonic()))
        except (KafkaException, TimeoutError) as error:
            log.debug("settings of %s: %s", resource.name, error)
            continue
        values = {name: entries[name].value for name in names if name in entries}
        found[resource.name] = {name: value for name, value in values.items() if value is not None}
    return found
