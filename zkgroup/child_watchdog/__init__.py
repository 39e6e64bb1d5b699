"""Processes that end with their owner, however it dies: a guard beside it sees to that."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from typing import IO

from zkgroup.child_environment import childs_environment
from zkgroup.child_watchdog import watchdog_script


class Guard:
    """The owner's end of the guard's pipe: see ``zkgroup.child_watchdog.watchdog_script``."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Start the guard's process, in a session of its own: Ctrl-C is not for it."""
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
            raise RuntimeError("the guard is not started")
        return self._process.stdin

    def fileno(self) -> int:
        """The pipe's file descriptor, for a child that reports itself."""
        return self._pipe().fileno()

    def say(self, word: str) -> None:
        """Send one line. One that was killed or closed hears nothing, which changes nothing for a living owner."""
        if self._process is None:
            return
        with contextlib.suppress(BrokenPipeError):
            self._pipe().write(word + "\n")
            self._pipe().flush()

    def close(self, *, release: bool = False) -> None:
        """Let the guard end what is left, or with ``release`` leave it running."""
        if self._process is None:
            return
        if release:
            self.say("release")
        with contextlib.suppress(BrokenPipeError):
            self._pipe().close()
        self._process.wait(timeout=30)
        self._process = None


# Before it becomes the server, the child tells the guard its id: an owner that dies right here leaves nothing behind.
# What was its standard output until then is the guard's pipe.
REPORT = 'out=$1; shift; echo "+$$"; exec "$@" >>"$out"'
