"""Log records on stderr: warnings by default, with ``-v`` what is being done, with ``-vv`` what the libraries say, too;
errors only with ``--quiet``."""

from __future__ import annotations

import logging
import sys
import time

from zkgroup.errors import Notice, Remedy, ZkgroupError

from ._global_options import GlobalOptions
from ._rendering import render
from ._terminal_text import one_line

# The levels of zkgroup and of its libraries. kazoo warns of every dropped connection, which zkgroup reports itself.
_LEVELS = (
    (logging.WARNING, logging.CRITICAL + 1),
    (logging.INFO, logging.CRITICAL + 1),
    (logging.DEBUG, logging.DEBUG),
)
_FORMATS = (
    "zkgroup: %(kind)s: %(message)s",
    "%(asctime)s.%(msecs)03dZ %(levelname)s %(message)s",
    "%(asctime)s.%(msecs)03dZ %(levelname)s %(name)s: %(message)s",
)
LIBRARIES = ("kazoo", "py4j", "pyspark")


class _Formatter(logging.Formatter):
    """One line per record, safe for terminals; with times at ``-v``."""

    converter = staticmethod(time.gmtime)

    def __init__(self, verbosity: int, given: GlobalOptions) -> None:
        super().__init__(_FORMATS[verbosity], "%Y-%m-%dT%H:%M:%S")
        self._given = given

    def format(self, record: logging.LogRecord) -> str:
        record.kind = "warning" if record.levelno < logging.ERROR else "error"
        if isinstance(record.args, tuple):
            record.args = tuple(map(self._rendered, record.args))
        head, *trace = super().format(record).split("\nTraceback ", 1)
        return one_line(head) + "".join(f"\nTraceback {part}" for part in trace)

    def _rendered(self, argument: object) -> object:
        return render(argument, self._given) if isinstance(argument, ZkgroupError | Notice | Remedy) else argument


def configure_logging(given: GlobalOptions) -> None:
    """Let the loggers of zkgroup and of its libraries write to stderr. Calling it again replaces what was set."""
    verbosity = min(given.verbosity, len(_LEVELS) - 1)
    own, libraries = _LEVELS[verbosity]
    if given.quiet:
        own, libraries = logging.ERROR, logging.CRITICAL + 1
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Formatter(verbosity, given))
    for name, level in (("zkgroup", own), *((name, libraries) for name in LIBRARIES)):
        logger = logging.getLogger(name)
        logger.handlers[:] = [handler]
        logger.propagate = False
        # py4j logs all traffic with the JVM, with Spark's properties: secrets.
        logger.setLevel(max(level, logging.WARNING) if name == "py4j" else level)
    # py4j logs every Ctrl-C on the root logger, which prints it unless it has a handler.
    if not logging.getLogger().handlers:
        logging.getLogger().addHandler(logging.NullHandler())
