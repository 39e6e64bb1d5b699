"""librdkafka's log lines, made fit for people."""

from __future__ import annotations

import logging
import re
import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from zkgroup.clients.kafka.client import KafkaError

#: Without a failure for so long, in seconds, connections fail no more: one that is wanted is tried every second.
MENDED: Final = 5.0
# Settings for brokers before 0.10, and those of the user's that are for another kind of client.
_MEANT: Final = ("broker.version.fallback", "will be ignored by this")
# Brokers drop idle connections: that is no failure, unless it happens before the first answer.
_IDLE: Final = re.compile(r"/[^ ]*: Disconnected")
_DECORATION: Final = re.compile(r"^\[thrd:[^\]]*\]: | \(after [0-9]+ms in state .*\)$")


class ClientLog:
    """What one librdkafka client logs, in the log of whoever made it.

    A failed connection is tried again and again: no error, and told once, until ``look`` has found that connections
    fail no more. What librdkafka says of settings that are meant is left out.
    """

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._told: set[str] = set()  # failures
        self._failed_at = 0.0
        #: What was told last of a connection that failed, as librdkafka says it.
        self.failure = ""
        #: Why no token for OAUTHBEARER was had, as librdkafka says it.
        self.no_token = ""
        #: Failures are kept back: whoever looks at ``failure`` tells of them.
        self.quiet = False

    def log(self, level: int, _form: str, facility: str, _client: str, text: str) -> None:
        """As confluent-kafka (2.16) calls it: ``text`` begins with the thread and may end with how long it took."""
        if facility == "AUTOCREATE" or (facility == "CONFWARN" and any(part in text for part in _MEANT)):
            return
        if facility == "FAIL":
            self.failure = text
        text = _DECORATION.sub("", text)
        if self.quiet or (facility == "FAIL" and _IDLE.search(text)):
            self._log.debug("Kafka client: %s", text)
            return
        if facility == "FAIL":
            self._failed_at = time.monotonic()
            failure = text[max(0, text.find("Connect to ")) :]
            if failure in self._told:
                return
            self._told.add(failure)
        self._log.log(min(level, logging.WARNING), "Kafka client: %s", text)

    def hear(self, error: KafkaError) -> None:
        """What is no log line but an event: librdkafka tells so of tokens alone where it logs in."""
        if "OAUTHBEARER token" in error.str():
            self.no_token = error.str()

    def look(self) -> None:
        """Tell, once, that connections fail no more. To be called now and then by whoever has a lasting client."""
        if self._told and time.monotonic() - self._failed_at >= MENDED:
            self._told.clear()
            self._log.warning("Kafka client: connections to brokers fail no more")
