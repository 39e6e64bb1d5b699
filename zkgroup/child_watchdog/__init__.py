"""Child processes that end with their owner, however it dies: a watchdog process ends them."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from typing import IO

from zkgroup.child_environment import childs_environment
from zkgroup.child_watchdog import watchdog_script


class Watchdog:
    """The owner's end of the watchdog's pipe: see ``zkgroup.child_watchdog.watchdog_script``."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Start the watchdog's process, in a session of its own: Ctrl-C does not reach it."""
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", watchdog_script.__file__, str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            text=True,
            env=childs_environment(),
        )

    def _pipe(self) -> IO[str]:
        if self._process is None or self._process.stdin is None:
            raise RuntimeError("the watchdog is not started")
        return self._process.stdin

    def fileno(self) -> int:
        """The pipe's file descriptor, for a child that reports itself."""
        return self._pipe().fileno()

    def send(self, line: str) -> None:
        """Send one line. A watchdog that was killed is ignored: it only matters when the owner dies."""
        if self._process is None:
            return
        with contextlib.suppress(BrokenPipeError):
            self._pipe().write(line + "\n")
            self._pipe().flush()

    def close(self, *, release: bool = False) -> None:
        """Let the watchdog end the remaining processes, or with ``release`` leave them running."""
        if self._process is None:
            return
        if release:
            self.send("release")
        with contextlib.suppress(BrokenPipeError):
            self._pipe().close()
        self._process.wait(timeout=30)
        self._process = None


# Before it becomes the server, the child reports its id: an owner that dies at that moment leaves nothing behind.
# Until then its standard output is the watchdog's pipe.
REPORT = 'out=$1; shift; echo "+$$"; exec "$@" >>"$out"'
