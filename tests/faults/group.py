"""The members of a run: processes, each behind a proxy to ZooKeeper of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from cli import environment
from tcp_proxy import TcpProxy

from faults.judge import Delivery, Unnotified

TESTS = Path(__file__).parents[1]


class Slot:
    """A place in the group: one process after another, and the proxy between it and ZooKeeper."""

    def __init__(self, number: int, zookeeper: str, group: str, topic: str, folder: Path, timeout_ms: int) -> None:
        self.number = number
        self.proxy = TcpProxy(zookeeper.partition("/")[0]).__enter__()
        self._chroot = zookeeper.partition("/")[2]
        self._group, self._topic, self._folder, self._timeout_ms = group, topic, folder, timeout_ms
        self.busy = False
        self.away = False  # whether it is meant not to run now
        self.gave_up = 0
        self.excuses: Counter[str] = Counter()
        self.ended: list[Unnotified] = []  # sessions that were ended early, until their leases ended
        self._lives = 0
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def name(self) -> str:
        """The ``consumer.id``, the same for all its processes: as after a restart by a supervisor."""
        return f"m{self.number}"

    @property
    def process_name(self) -> str:
        """The process that runs, or ran last."""
        return f"m{self.number}-{self._lives}"

    @property
    def errors(self) -> Path:
        return self._folder / f"{self.process_name}.err"

    def start(self, streams: int) -> None:
        """One more process."""
        self._lives += 1
        self.away = False
        connect = f"{self.proxy.address}/{self._chroot}".rstrip("/")
        arguments = [connect, self._group, self._topic, self.name, str(streams), str(self._timeout_ms)]
        with self.errors.open("wb") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "faults.noting_member", *arguments, str(self._folder / self.process_name)],
                stderr=errors,
                env=environment({"PYTHONPATH": str(TESTS)}),
            )

    def signal(self, number: int) -> None:
        """Send a signal, if it runs."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)

    def kill(self) -> None:
        """SIGKILL."""
        self.away = True
        if self._process is not None:
            self._process.kill()
            self._process.wait(30)

    def ask_to_leave(self) -> None:
        """SIGTERM."""
        self.away = True
        self.signal(signal.SIGTERM)

    def wait(self, timeout: float) -> int:
        """Its exit code; it must have been asked."""
        assert self._process is not None
        return self._process.wait(timeout)

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def revive(self) -> None:
        """A supervisor: a process that has ended unasked is started again."""
        if not self.away and not self.running:
            self.gave_up += 1
            self.start(1)

    def last_word(self) -> str:
        """The end of what the process has said."""
        return self.errors.read_text(errors="replace")[-2000:]

    def deliveries(self) -> Iterator[Delivery]:
        """All that its processes have noted. A process that was killed may have left half a line."""
        for journal in self._folder.glob(f"m{self.number}-*.[0-9]*"):
            process, _, _stream = journal.name.partition(".")
            for line in journal.read_bytes().split(b"\n")[:-1]:
                at, share, partition, offset = line.split()
                yield Delivery(int(at), f"{process}/{share.decode()}", int(partition), int(offset))

    def unnotified(self) -> Iterator[Unnotified]:
        """When which of its processes had no session any more and did not know."""
        for one in self.ended:
            journal = self._folder / f"{one.process}.ended"
            times = [int(line) for line in journal.read_bytes().split()] if journal.exists() else []
            yield one._replace(until=min([one.until, *(at for at in times if at > one.since)]))

    def close(self) -> None:
        """End everything."""
        self.kill()
        self.proxy.close()


def environment_seed() -> int:
    """A seed that nobody has chosen."""
    return int.from_bytes(os.urandom(4))
