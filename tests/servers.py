"""The sandbox of tests: with Scala members as processes of this one, and brokers that come back."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import Any, NamedTuple, Self

from zkgroup.child_processes import Watchdog
from zkgroup.errors import ZkgroupError
from zkgroup.protocol import znodes
from zkgroup.protocol.operations import Exists
from zkgroup.sandbox import local_cluster
from zkgroup.sandbox.local_cluster import START_TIMEOUT
from zkgroup.sandbox.processes import HOST, POLL, Process, Server, telling_line, wait_for
from zkgroup.sandbox.scala_member import STREAMS_MARK, MemberOptions


def is_paused(pid: int) -> bool:
    """Whether the process is stopped by a signal."""
    return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[0] == "T"


def pause(process: Process) -> None:
    """Pause a process (SIGSTOP): a server's port accepts connections and answers nothing."""
    process.signal(signal.SIGSTOP)
    deadline = time.monotonic() + 5.0
    while process.running and not is_paused(process.process_id.pid) and time.monotonic() < deadline:
        time.sleep(0.001)


def resume(process: Process) -> None:
    """Resume a paused process."""
    process.signal(signal.SIGCONT)


class Consumed(NamedTuple):
    """A message that a member printed."""

    topic: str
    partition: int
    offset: int
    key: bytes
    value: bytes


class ScalaMember(Process):
    """A Scala member as a process of this one. Its output is kept in a file, and its log in another. ``stop`` lets it
    commit and leave; after ``kill`` it stays registered until its session expires. With a ``guard`` it ends when this
    process does."""

    def __init__(self, options: MemberOptions, folder: Path, guard: Watchdog | None = None) -> None:
        super().__init__(f"member {options.member_id}", guard)
        self.id = options.member_id
        self.options = options
        self.folder = folder
        self.output = folder / "output"
        self.log = folder / "log"

    @property
    def has_streams(self) -> bool:
        """Whether it has registered and gone through its first rebalance."""
        return STREAMS_MARK in self.logged()

    def logged(self) -> str:
        """Its log so far."""
        return self.log.read_text(encoding="utf-8", errors="replace") if self.log.exists() else ""

    def start(self) -> Self:
        """Start the process, and return at once. It may be started again after it has ended; output is appended."""
        if not self.running:
            self.spawn(self.options.command(self.folder), folder=self.folder, log=self.log, output=self.output)
        return self

    def lines(self) -> list[bytes]:
        """The lines that it has printed so far; an unfinished last line is left out."""
        try:
            return self.output.read_bytes().split(b"\n")[:-1]
        except FileNotFoundError:
            return []

    def consumed(self) -> list[Consumed]:
        """The messages that it has printed so far. Keys and values must hold no tab or line end."""
        parts = (line.split(b"\t") for line in self.lines())
        return [Consumed(t.decode(), int(p), int(o), key, value) for t, p, o, key, value in parts]

    def wait_for(self, messages: int, timeout: float = 30.0) -> None:
        """Wait until it has printed at least so many. Raises ``ZkgroupError`` if it ends before, or takes longer."""
        deadline = time.monotonic() + timeout
        while True:
            ended = not self.running
            if (seen := len(self.lines())) >= messages:
                return
            if ended or time.monotonic() > deadline:
                what = "ended" if ended else f"did not get there within {timeout:g} s"
                raise ZkgroupError(f"{self.name} {what}: {seen} messages of {messages}", telling_line(self.logged()))
            time.sleep(POLL)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()


class Sandbox(local_cluster.Sandbox):
    """A sandbox whose brokers can be stopped and started again, and with Scala members, which end with it."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._members: list[ScalaMember] = []

    def broker(self, broker_id: int = 1) -> Server:
        return self.brokers[broker_id]

    def listener(self, name: str, broker_id: int = 1) -> str:
        """The address of a listener of a secured sandbox's broker."""
        return f"{HOST}:{self._port(self.broker(broker_id).port, name)}"

    def member(self, group: str, subscription: str, **options: Any) -> ScalaMember:
        """A Scala member of ``group``, to be started; it ends with the sandbox. Options: ``MemberOptions``."""
        java = tuple(self.security.java_options(member=True)) if self.security else ()
        wanted = MemberOptions(self.connect, group, subscription, java_options=java, **options)
        self._members.append(ScalaMember(wanted, wanted.folder(self.folder), self.guard))
        return self._members[-1]

    def start_broker(self, broker_id: int = 1) -> None:
        """Start a broker that was stopped or killed, on its port and data.

        The registration of one that was killed lives as long as its session (6 s): it is waited for, as the broker
        itself would refuse to start.
        """
        broker = self.broker(broker_id)
        if broker.running:
            return
        with self.registry() as registry:
            wait_for(
                lambda: registry.read([Exists(znodes.broker(broker_id))])[0] is None,
                START_TIMEOUT,
                f"{broker.name} did not lose its registration",
            )
        broker.start(START_TIMEOUT)
        self._record()

    def _end_everything(self) -> None:
        for member in self._members:
            member.kill()
        super()._end_everything()
