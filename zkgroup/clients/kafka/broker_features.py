"""The requests that a broker supports (ApiVersions).

librdkafka (2.16) shows them in its debug log alone. A request to delete a group cannot be tried instead: where the
broker does not support it the client breaks, and aborts the process when it is freed (``rd_kafka_q_destroy0``: a queue
is freed twice).
"""

from __future__ import annotations

import logging
import re
import time
from dataclasses import replace
from typing import Final

from zkgroup.clients.kafka.client import UNREACHABLE, KafkaException, KafkaSettings, admin_client, no_answer
from zkgroup.clients.kafka.librdkafka_log import ClientLog
from zkgroup.errors import UnreachableError, ZkgroupError

log = logging.getLogger(__name__)

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
        """Called by confluent-kafka (2.16)."""
        if facility == _FACILITY and (match := _API.match(text)):
            self.requests.setdefault(match[2], set()).add(match[3])
        elif level < _DEBUG:
            super().log(level, form, facility, client, text)


def deletes_groups(settings: KafkaSettings, group: str, timeout: float) -> bool:
    """Whether the coordinator of ``group`` can delete groups, as brokers can from 1.1 on; ``timeout`` in seconds.

    Raises ``UnreachableError`` where that cannot be found out.
    """
    if settings.legacy_release is not None:
        return False
    found = ApiVersionsLog()
    debug = ",".join(filter(None, [settings.properties.get("debug", ""), "feature"]))
    talkative = replace(settings, properties={**settings.properties, "debug": debug})
    client = admin_client(talkative, timeout, found)
    try:
        described = client.describe_consumer_groups([group], request_timeout=timeout)[group].result(timeout + 1)
    except TimeoutError:
        raise no_answer(settings, timeout) from None
    except KafkaException as error:
        if error.args[0].code() in UNREACHABLE:
            raise no_answer(settings, timeout) from None
        raise ZkgroupError(f"the coordinator of group {group} cannot be found: {error.args[0].str()}") from None
    coordinator = str(described.coordinator.id) if described.coordinator else ""
    # Each request is a line of its own. All lines of a broker were written before its answer, and a poll reads all that
    # are written.
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
