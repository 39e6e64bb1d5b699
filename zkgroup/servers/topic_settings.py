"""Topics' settings, as the brokers tell them."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable

from zkgroup.servers.kafka import ConfigResource, KafkaException, KafkaSettings, admin_client

log = logging.getLogger(__name__)


def cleanup_policies(settings: KafkaSettings, topics: Iterable[str], timeout: float) -> dict[str, str | None]:
    """Each topic's ``cleanup.policy`` (``delete``, ``compact`` or both), one request for all.

    None where the brokers do not tell: those before 0.11 cannot, others may not be allowed to. Raises
    ``UnreachableError`` where no broker can be reached at all.
    """
    wanted = list(dict.fromkeys(topics))
    if not wanted or settings.legacy_release is not None:
        return dict.fromkeys(wanted)
    deadline = time.monotonic() + timeout
    admin = admin_client(settings, timeout)
    resources = [ConfigResource(ConfigResource.Type.TOPIC, topic) for topic in wanted]
    answers = admin.describe_configs(resources, request_timeout=max(0.1, deadline - time.monotonic()))
    found: dict[str, str | None] = dict.fromkeys(wanted)
    for resource, future in answers.items():
        try:
            entry = future.result(max(0.1, deadline + 1 - time.monotonic())).get("cleanup.policy")
        except (KafkaException, TimeoutError) as error:
            log.debug("settings of topic %s: %s", resource.name, error)
            continue
        if entry is not None:
            found[resource.name] = entry.value
    return found
