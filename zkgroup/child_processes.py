"""Child processes: what they inherit, those that run to their end, and those that end with their owner.

A small process, the watchdog, ends servers whose owner has died. It runs this file as a script, which therefore stands
on the standard library alone. It reads lines from its standard input, a pipe whose other end the owner has:

    +PID      end this process when the pipe ends (each server sends its own, before it becomes a server)
    -PID      forget it
    rm PATH   remove this folder when the pipe ends
    release   leave everything as it is, and end

The kernel closes the pipe however the owner dies, SIGKILL included; no other way is as quick and portable. (Linux's
parent-death signal fires when the parent's *thread* ends.) Where a child of the owner still has the pipe, the
watchdog notices within a second that it has another parent. Its argument is the owner's process id.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

_SECRET = re.compile(r"ZKGROUP_\w*PASSWORD")


def childs_environment() -> dict[str, str]:
    """This process's environment without zkgroup's passwords: everybody with the same user, and whatever a child logs
    or starts, could read them there. The rest stays: a child may be zkgroup itself, which needs its folders."""
    return {name: value for name, value in os.environ.items() if not _SECRET.fullmatch(name)}


def run_child(
    command: Sequence[str | Path], timeout: float, lines: str = "", variables: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a program with ``lines`` as its input. Raises ``TimeoutExpired``, and ``OSError`` where it does not start."""
    environment = {**childs_environment(), **(variables or {})}
    return subprocess.run(
        command, input=lines, capture_output=True, text=True, timeout=timeout, check=False, env=environment
    )


class Watchdog:
    """The owner's end of the watchdog's pipe."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Start the watchdog's process, in a session of its own: Ctrl-C does not reach it."""
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", __file__, str(os.getpid())],
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


def start_token(pid: int) -> str | None:
    """The start time of a process, which distinguishes it from a later one with its id; None without a living one."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()  # the name before it may hold spaces
    return None if fields[0] in ("Z", "X") else fields[19]


def main() -> None:
    """Read until the owner is gone, then end the remaining processes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    owner = int(sys.argv[1])
    processes: dict[int, str | None] = {}
    folders: list[str] = []
    for word in _lines(owner):
        if word == "release":
            return
        if word.startswith("+"):
            processes[int(word[1:])] = start_token(int(word[1:]))
        elif word.startswith("-"):
            processes.pop(int(word[1:]), None)
        elif word.startswith("rm "):
            folders.append(word[3:])
    for pid, started in processes.items():
        if started is not None and start_token(pid) == started:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)


def _lines(owner: int) -> Iterator[str]:
    """The lines of the pipe, until it ends or the owner is gone: a child of the owner's may hold the pipe open."""
    rest = b""
    while True:
        readable, _, _ = select.select([0], [], [], 1.0)
        if readable:
            part = os.read(0, 65536)
            *lines, rest = (rest + part).split(b"\n")
            yield from (line.decode() for line in lines)
            if not part:
                return
        elif os.getppid() != owner:
            return


if __name__ == "__main__":
    main()
