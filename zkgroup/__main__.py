"""The program: ``zkgroup``, and ``python -m zkgroup``."""

from __future__ import annotations

import os
import signal
from types import FrameType


def main() -> None:
    """Run the command line and leave the process. Until a command begins there is nothing to put in order: a signal
    ends the process at once, without a word. (Python's own ``KeyboardInterrupt`` would show its traceback.)"""
    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(signum) is not signal.SIG_IGN:
            signal.signal(signum, _end)
    from zkgroup.commands import app

    app(prog_name="zkgroup")


def _end(signum: int, frame: FrameType | None) -> None:
    os._exit(128 + signum)


if __name__ == "__main__":
    main()
