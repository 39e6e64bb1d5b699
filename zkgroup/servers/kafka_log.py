"""librdkafka's log lines, made fit for people."""

from __future__ import annotations

import logging
import re
import time
from typing import Final

#: How long a connection that fails the same way is not told again, in seconds.
PAUSE: Final = 30.0
# Settings for brokers before 0.10, and those of the user's that are for another kind of client.
_MEANT: Final = ("broker.version.fallback", "will be ignored by this")
_DECORATION: Final = re.compile(r"^\[thrd:[^\]]*\]: | \(after [0-9]+ms in state .*\)$")


class ClientLog:
    """What one librdkafka client logs, in the log of whoever made it.

    A failed connection is tried again, twice a second: no error, and told once in a while. What librdkafka says of
    settings that are meant is left out.
    """

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._told: dict[str, float] = {}  # failures, and when they were told

    def log(self, level: int, _form: str, facility: str, _client: str, text: str) -> None:
        """As confluent-kafka (2.16) calls it: ``text`` begins with the thread and may end with how long it took."""
        if facility == "AUTOCREATE" or (facility == "CONFWARN" and any(part in text for part in _MEANT)):
            return
        text = _DECORATION.sub("", text)
        if facility == "FAIL":
            failure, now = text[max(0, text.find("Connect to ")) :], time.monotonic()
            if now - self._told.get(failure, -PAUSE) < PAUSE:
                return
            self._told[failure] = now
        self._log.log(min(level, logging.WARNING), "Kafka client: %s", text)
