"""Log records on stderr: warnings by default, more with ``-v`` and ``-vv``, errors only with ``--quiet``."""

from __future__ import annotations

import logging
import sys
import time

from ._options import Given
from ._text import one_line

# What zkgroup reports, and what the libraries below it may. kazoo's warnings tell of every dropped connection, which
# commands report themselves where it matters.
_LEVELS = (
    (logging.WARNING, logging.CRITICAL + 1),
    (logging.INFO, logging.WARNING),
    (logging.DEBUG, logging.DEBUG),
)
LIBRARIES = ("kazoo", "py4j", "pyspark")


class _Formatter(logging.Formatter):
    """One line a record, safe to show; with times once somebody asks for more than warnings."""

    converter = staticmethod(time.gmtime)

    def __init__(self, detailed: bool) -> None:
        detail = "%(asctime)s.%(msecs)03dZ %(levelname)s %(name)s: %(message)s"
        super().__init__(detail if detailed else "zkgroup: %(kind)s: %(message)s", "%Y-%m-%dT%H:%M:%S")

    def format(self, record: logging.LogRecord) -> str:
        record.kind = "warning" if record.levelno < logging.ERROR else "error"
        head, *trace = super().format(record).split("\nTraceback ", 1)
        return one_line(head) + "".join(f"\nTraceback {part}" for part in trace)


def configure_logging(given: Given) -> None:
    """Let the loggers of zkgroup and of its libraries write to stderr. Calling it again replaces what was set."""
    own, libraries = _LEVELS[min(given.verbosity, 2)]
    if given.quiet:
        own, libraries = logging.ERROR, logging.CRITICAL + 1
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Formatter(detailed=given.verbosity > 0))
    for name, level in (("zkgroup", own), *((name, libraries) for name in LIBRARIES)):
        logger = logging.getLogger(name)
        logger.handlers[:] = [handler]
        logger.propagate = False
        logger.setLevel(level)
