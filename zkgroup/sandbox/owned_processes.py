"""Child processes: found again by id and start time, and ended with their owner."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from zkgroup.child_processes import REPORT, Watchdog, childs_environment, is_paused, start_token
from zkgroup.errors import ZkgroupError

POLL = 0.02  # seconds between two checks of a condition


@dataclass(frozen=True, slots=True)
class ProcessId:
    """A process id and its start time, which distinguishes it from a recycled id."""

    pid: int
    started: str

    def alive(self) -> bool:
        """True if this process runs; False for a zombie."""
        return start_token(self.pid) == self.started

    def signal(self, number: int) -> bool:
        """Send a signal; False if the process is gone."""
        if not self.alive():
            return False
        try:
            os.kill(self.pid, number)
        except ProcessLookupError:
            return False
        return True

    def wait_gone(self, timeout: float) -> bool:
        """Wait until the process is gone; False if it still is there after ``timeout`` seconds."""
        deadline = time.monotonic() + timeout
        while self.alive():
            if time.monotonic() > deadline:
                return False
            time.sleep(POLL)
        return True

    def end(self, timeout: float) -> None:
        """Terminate the process, and kill it after ``timeout`` seconds."""
        if self.signal(signal.SIGTERM):
            self.signal(signal.SIGCONT)  # a paused one hears nothing
            if not self.wait_gone(timeout):
                self.kill()

    def kill(self) -> None:
        """Kill the process, and wait until it is gone."""
        if self.signal(signal.SIGKILL):
            self.wait_gone(10.0)


class Process:
    """A child process with its log."""

    def __init__(self, child: subprocess.Popen[bytes], guard: Watchdog | None) -> None:
        self._child = child
        self._watchdog = guard
        # The start time is read before anything can reap the child, so it is there even if the child has ended.
        self.id = ProcessId(child.pid, start_token(child.pid) or "ended")

    def alive(self) -> bool:
        """Whether the process runs (or is paused)."""
        return self._child.poll() is None

    @property
    def returncode(self) -> int | None:
        """The exit status, negative for a signal; None while it runs."""
        return self._child.poll()

    def signal(self, number: int) -> None:
        """Send a signal, if the process still is there."""
        self._child.send_signal(number)

    def wait(self, timeout: float) -> bool:
        """Wait until the process is gone; False if it still is there after ``timeout`` seconds."""
        try:
            self._child.wait(timeout)
        except subprocess.TimeoutExpired:
            return False
        if self._watchdog is not None:
            self._watchdog.send(f"-{self._child.pid}")
        return True

    def end(self, timeout: float) -> None:
        """Terminate the process, and kill it after ``timeout`` seconds."""
        self.signal(signal.SIGTERM)
        self.signal(signal.SIGCONT)  # a paused one hears nothing
        if not self.wait(timeout):
            self.kill()

    def kill(self) -> None:
        """Kill the process, and wait until it is gone."""
        self.signal(signal.SIGKILL)
        self.wait(30.0)


class Restartable:
    """A child process that can be stopped, paused, and started again. ``_process``: the one last started."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._process: Process | None = None

    @property
    def running(self) -> bool:
        """Whether the process runs, or is paused."""
        return self._process is not None and self._process.alive()

    @property
    def started(self) -> Process:
        """The process last started. Raises ``ZkgroupError`` before the first start."""
        if self._process is None:
            raise ZkgroupError(f"{self.name} has not been started", "start it first")
        return self._process

    def stop(self, timeout: float = 20.0) -> None:
        """Terminate the process (SIGTERM), and kill it after ``timeout`` seconds."""
        if self._process is not None:
            self._process.end(timeout)

    def kill(self) -> None:
        """Kill the process (SIGKILL)."""
        if self._process is not None:
            self._process.kill()

    def pause(self) -> None:
        """Pause the process (SIGSTOP): a server's port accepts connections and answers nothing."""
        self.started.signal(signal.SIGSTOP)
        deadline = time.monotonic() + 5.0
        while self.running and not is_paused(self.started.id.pid) and time.monotonic() < deadline:
            time.sleep(0.001)

    def resume(self) -> None:
        """Resume a paused process."""
        self.started.signal(signal.SIGCONT)


def spawn(
    command: Sequence[str], *, folder: Path, log: Path, guard: Watchdog | None, output: Path | None = None
) -> Process:
    """Start ``command`` in ``folder`` in a session of its own.

    Its errors are appended to ``log``, its output to ``output`` (the log, if not given). With a ``guard`` the process
    ends when its owner does.
    """
    output = output or log
    with log.open("ab") as errors, output.open("ab") as printed:
        child = subprocess.Popen(
            list(command) if guard is None else ["sh", "-c", REPORT, "sh", str(output), *command],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=printed if guard is None else guard.fileno(),
            stderr=errors,
            start_new_session=True,
            env=childs_environment(),
        )
    return Process(child, guard)


def current_process() -> ProcessId:
    """This process."""
    return ProcessId(os.getpid(), start_token(os.getpid()) or "")
