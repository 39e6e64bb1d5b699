"""The program: ``zkgroup``, and ``python -m zkgroup``."""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
from types import FrameType


def main() -> None:
    try:
        run()
    except SystemExit as end:
        _leave(end)


def run() -> None:
    """Run the command line; ``SystemExit`` has its exit code. Until a command begins there is nothing to put in order:
    a signal ends the process at once, without a word. (Python's own ``KeyboardInterrupt`` would show its traceback.)"""
    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(signum) is not signal.SIG_IGN:
            signal.signal(signum, _end)
    from zkgroup.commands import app

    app(prog_name="zkgroup")


def _leave(end: SystemExit) -> None:
    """Leave as Python would, but for its last step: there librdkafka (2.16) frees clients that a broker owes an answer,
    and was seen to wait for it without an end. What is to be closed in order has been."""
    if isinstance(end.code, str) or not _flushed():
        raise end
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    if not _flushed():
        raise end
    os._exit(end.code or 0)


def _flushed() -> bool:
    try:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
    except (OSError, ValueError):
        return False
    return True


def _end(signum: int, frame: FrameType | None) -> None:
    os._exit(128 + signum)


if __name__ == "__main__":
    main()
