"""librdkafka's log: each failure once, without noise."""

from __future__ import annotations

import logging
import re
import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from zkgroup.clients.kafka.client import KafkaError

#: Seconds without a failure after which connections count as recovered: librdkafka retries every second.
MENDED: Final = 5.0
# Warnings that are left out: of settings for brokers before 0.10, and of settings for another kind of client.
_INTENDED: Final = ("broker.version.fallback", "will be ignored by this")
# Brokers drop idle connections: that is no failure, unless it happens before the first answer.
_IDLE: Final = re.compile(r"/[^ ]*: Disconnected")
_DECORATION: Final = re.compile(r"^\[thrd:[^\]]*\]: | \(after [0-9]+ms in state .*\)$")


class ClientLog:
    """The log of one librdkafka client, in a logger of the client's owner.

    librdkafka retries a failed connection for ever. Each failure is logged once, as a warning, until
    ``report_recovery`` finds that connections fail no more. Warnings of intended settings are left out.
    """

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._reported: set[str] = set()  # failures
        self._failed_at = 0.0
        #: librdkafka's text on the last connection that failed.
        self.failure = ""
        #: librdkafka's text on why there is no token for OAUTHBEARER.
        self.no_token = ""
        #: Failures are not logged: the caller reports ``failure`` itself.
        self.quiet = False

    def log(self, level: int, _form: str, facility: str, _client: str, text: str) -> None:
        """Called by confluent-kafka (2.16). ``text`` begins with the thread and may end with a duration."""
        if facility == "AUTOCREATE" or (facility == "CONFWARN" and any(part in text for part in _INTENDED)):
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
            if failure in self._reported:
                return
            self._reported.add(failure)
        self._log.log(min(level, logging.WARNING), "Kafka client: %s", text)

    def on_error(self, error: KafkaError) -> None:
        """Called for error events: librdkafka does not log missing tokens, it sends an event."""
        if "OAUTHBEARER token" in error.str():
            self.no_token = error.str()

    def report_recovery(self) -> None:
        """Log, once, that connections fail no more. Owners of lasting clients call it now and then."""
        if self._reported and time.monotonic() - self._failed_at >= MENDED:
            self._reported.clear()
            self._log.warning("Kafka client: connections to brokers fail no more")
