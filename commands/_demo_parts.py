"""The demo's group, topics, messages and members."""

from __future__ import annotations

import json
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from zkgroup.errors import ZkgroupError
from zkgroup.sandbox.local_cluster import Sandbox
from zkgroup.sandbox.owned_processes import POLL, spawn
from zkgroup.sandbox.topic_admin import ProducerRecord

GROUP: Final = "shop"
TOPICS: Final = ("orders", "payments")
PARTITIONS: Final = 3
ITEMS: Final = ("teapot", "kettle", "cup", "saucer", "spoon")
LEAVE: Final = 30.0  # seconds until a process has left


def zkgroup_command(arguments: Sequence[str], folder: Path) -> list[str]:
    """The command line of this zkgroup. Its temporary files are in ``folder``."""
    return ["env", f"TMPDIR={folder}", sys.executable, "-P", "-m", "zkgroup", *arguments]


class DemoMember:
    """A member of the group: a command that runs in the background and prints to a file."""

    def __init__(self, name: str, arguments: Sequence[str], folder: Path, sandbox: Sandbox) -> None:
        self.name = name
        self.id = f"{GROUP}_{name}"
        self.arguments = arguments
        self._output = folder / f"{name}.txt"
        self._errors = folder / f"{name}.log"
        self._process = spawn(
            zkgroup_command(arguments, folder),
            folder=folder,
            log=self._errors,
            guard=sandbox.guard,
            output=self._output,
        )

    def lines(self) -> list[bytes]:
        """The whole lines that it has printed so far."""
        return self._output.read_bytes().split(b"\n")[:-1]

    def check_alive(self) -> None:
        """Raise ``ZkgroupError`` if it has ended."""
        if not self._process.alive():
            raise ZkgroupError(f"member {self.name} ended with status {self._process.returncode}: {self._last_error()}")

    def leave(self) -> int:
        """Interrupt it and wait until it has left. Returns its exit status."""
        self.check_alive()
        self._process.signal(signal.SIGINT)
        if not self._process.wait(LEAVE):
            raise ZkgroupError(f"member {self.name} did not leave within {LEAVE:g} s: {self._last_error()}")
        return self._process.returncode or 0

    def end(self) -> None:
        """End it if it runs."""
        if self._process.alive():
            self._process.end(LEAVE)

    def _last_error(self) -> str:
        lines = self._errors.read_text(encoding="utf-8", errors="replace").splitlines()
        return lines[-1] if lines else "it printed nothing"


def demo_message(number: int) -> ProducerRecord:
    """The message with this number: its topic is ``TOPICS[number % 2]``."""
    if number % len(TOPICS) == 0:
        value = {"order": number, "item": ITEMS[number // 2 % len(ITEMS)]}
    else:
        value = {"payment": number, "cents": 100 + number * 37 % 9900}
    partition = number // len(TOPICS) % PARTITIONS
    return ProducerRecord(json.dumps(value).encode(), b"customer-%d" % (number % 97), partition)


def until(condition: Callable[[], bool], timeout: float, otherwise: str) -> None:
    """Wait until ``condition`` is true; raise ``ZkgroupError`` after ``timeout`` seconds."""
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            raise ZkgroupError(f"{otherwise} within {timeout:g} s", "is the machine very busy? try again")
        time.sleep(POLL)
