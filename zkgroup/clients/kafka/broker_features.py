"""What a broker can be asked, found out before it is asked.

librdkafka (2.16) knows which requests a broker takes, and tells it in its debug log alone. To ask for a deletion that
the broker does not know is no way to find out: the client is broken by the refusal, and aborts the process when it is
freed (``rd_kafka_q_destroy0``: a queue is freed twice).
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
#: Seconds to wait for the log of what is answered already.
_SETTLING: Final = 2.0


class AbilityLog(ClientLog):
    """A client's log that keeps what brokers can be asked: broker id → names of requests. The id of a broker that is
    known by its address alone is ``bootstrap``."""

    def __init__(self) -> None:
        super().__init__(log)
        self.abilities: dict[str, set[str]] = {}

    def log(self, level: int, form: str, facility: str, client: str, text: str) -> None:
        """As confluent-kafka (2.16) calls it."""
        if facility == _FACILITY and (match := _API.match(text)):
            self.abilities.setdefault(match[2], set()).add(match[3])
        elif level < _DEBUG:
            super().log(level, form, facility, client, text)


def deletes_groups(settings: KafkaSettings, group: str, timeout: float) -> bool:
    """Whether the coordinator of ``group`` can delete groups, as brokers can from 1.1 on; ``timeout`` in seconds.

    Raises ``UnreachableError`` where that cannot be found out.
    """
    if settings.legacy_release is not None:
        return False
    found = AbilityLog()
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
    # Each request is a line of its own, and some may have been heard before: to know a broker is not to know all of it.
    # All its lines were written before its answer, and a poll hears all that are written.
    deadline = time.monotonic() + _SETTLING
    client.poll(0.05)
    while coordinator not in found.abilities and time.monotonic() < deadline:
        client.poll(0.05)
    known = found.abilities.get(coordinator)
    if known is None:
        raise UnreachableError(f"broker {coordinator or 'unknown'} does not tell what it can do", "check the brokers")
    return "DeleteGroups" in known
