"""The watchdog: a small process that ends servers whose owner has died. A script on the standard library alone.

It reads lines from its standard input, a pipe whose other end the owner has:

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
import select
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path


def start_token(pid: int) -> str | None:
    """The start time of a process, which distinguishes it from a later one with its id; None without a living one."""
    state, started = _state(pid)
    return None if state in ("Z", "X") else started


def is_paused(pid: int) -> bool:
    """Whether the process is stopped by a signal."""
    return _state(pid)[0] == "T"


def _state(pid: int) -> tuple[str | None, str | None]:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None, None
    fields = stat.rpartition(")")[2].split()  # the name before it may hold spaces
    return fields[0], fields[19]


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
