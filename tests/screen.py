"""A command on a terminal of its own, and what that terminal shows: pyte draws it as xterm would."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Self

import pyte
import pytest
from cli import ZKGROUP, environment


class Screen:
    """``zkgroup`` on a terminal, or a shell that ``runs`` it as ``$0 "$@"``. ``raw`` is all it has sent so far."""

    def __init__(
        self,
        *args: str,
        columns: int = 80,
        lines: int = 24,
        env: Mapping[str, str] | None = None,
        runs: str | None = None,
    ) -> None:
        self.screen = pyte.Screen(columns, lines)
        self._stream = pyte.ByteStream(self.screen)
        self.raw = b""
        self.master, theirs = pty.openpty()
        self._theirs = theirs  # kept open: what the terminal is like afterwards is read
        self.modes = termios.tcgetattr(theirs)
        self._set_size(columns, lines)
        self.process = subprocess.Popen(
            [ZKGROUP, *args] if runs is None else ["bash", "-c", runs, ZKGROUP, *args],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=environment({"TERM": "xterm-256color", **(env or {})}),
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )

    def _set_size(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def resize(self, columns: int, lines: int) -> None:
        self.screen.resize(lines, columns)
        self._set_size(columns, lines)

    def press(self, keys: str) -> None:
        os.write(self.master, keys.encode())

    def pump(self, seconds: float = 0.05) -> None:
        """Take what has come."""
        while select.select([self.master], [], [], seconds)[0]:
            try:
                data = os.read(self.master, 65536)
            except OSError:
                return
            self.raw += data
            self._stream.feed(data)
            seconds = 0.0

    @property
    def lines(self) -> list[str]:
        return [line.rstrip() for line in self.screen.display]

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    def until(self, condition: Callable[[str], Any], timeout: float = 30.0) -> str:
        """Wait until what is shown is as it should be; returns it."""
        deadline = time.monotonic() + timeout
        while not condition(self.text):
            if time.monotonic() > deadline:
                pytest.fail(f"not shown within {timeout:g} s:\n{self.text}")
            self.pump()
        return self.text

    def wait(self, timeout: float = 30.0) -> int:
        """Wait for the end, and return the exit code."""
        deadline = time.monotonic() + timeout
        while self.process.poll() is None:
            assert time.monotonic() < deadline, self.text
            self.pump()
        self.pump(0.2)
        return self.process.returncode

    @property
    def is_restored(self) -> bool:
        """Whether the terminal is as it was before: modes, cursor, wrapping, and the first of its two screens."""
        last = {on: self.raw.rfind(f"\x1b[?{on}".encode()) for on in ("1049h", "1049l", "25h", "25l", "7h", "7l")}
        shown = last["1049l"] > last["1049h"] and last["25h"] > last["25l"] and last["7h"] > last["7l"]
        return shown and termios.tcgetattr(self._theirs) == self.modes

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
        self.process.wait(30)
        os.close(self.master)
        os.close(self._theirs)
