"""Configs of topics and brokers (DescribeConfigs)."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Sequence

from zkgroup.clients.kafka.client import AdminClient, ConfigResource, KafkaException, KafkaSettings, admin_client

log = logging.getLogger(__name__)


def cleanup_policies(settings: KafkaSettings, topics: Iterable[str], timeout: float) -> dict[str, str | None]:
    """Each topic's ``cleanup.policy`` (``delete``, ``compact`` or both), one request for all.

    None where it cannot be read: brokers before 0.11 have no such request, others may refuse it. Raises
    ``UnreachableError`` where no broker can be reached.
    """
    wanted = list(dict.fromkeys(topics))
    if not wanted or settings.legacy_release is not None:
        return dict.fromkeys(wanted)
    deadline = time.monotonic() + timeout
    resources = [ConfigResource(ConfigResource.Type.TOPIC, topic) for topic in wanted]
    values = _describe(admin_client(settings, timeout), resources, "cleanup.policy", deadline)
    return {topic: values.get(topic) for topic in wanted}


def offsets_retention(settings: KafkaSettings, timeout: float) -> int | None:
    """The brokers' shortest ``offsets.retention.minutes``; None where it cannot be read, as above. Raises
    ``UnreachableError``."""
    if settings.legacy_release is not None:
        return None
    deadline = time.monotonic() + timeout
    admin = admin_client(settings, timeout)
    brokers = admin.list_topics(timeout=max(0.1, deadline - time.monotonic())).brokers
    resources = [ConfigResource(ConfigResource.Type.BROKER, str(broker)) for broker in brokers]
    values = _describe(admin, resources, "offsets.retention.minutes", deadline)
    return min((int(minutes) for minutes in values.values() if minutes.isdecimal()), default=None)


def _describe(admin: AdminClient, resources: Sequence[ConfigResource], setting: str, deadline: float) -> dict[str, str]:
    """A config of each topic or broker, by its name; without those that cannot be read."""
    answers = admin.describe_configs(list(resources), request_timeout=max(0.1, deadline - time.monotonic()))
    found: dict[str, str] = {}
    for resource, future in answers.items():
        try:
            entry = future.result(max(0.1, deadline + 1 - time.monotonic())).get(setting)
        except (KafkaException, TimeoutError) as error:
            log.debug("settings of %s: %s", resource.name, error)
            continue
        if entry is not None and entry.value is not None:
            found[resource.name] = entry.value
    return found
