"""The processes of a sandbox: found again by id and start time, ended with their owner; servers keep port and data."""

from __future__ import annotations

import os
import random
import re
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from zkgroup.child_processes import REPORT, Watchdog, childs_environment, run_child, start_token
from zkgroup.clients.kafka.wire_protocol import fetch_metadata
from zkgroup.errors import ZkgroupError
from zkgroup.protocol.broker_znodes import Endpoint, parse_endpoints

POLL = 0.02  # seconds between two checks of a condition


def wait_for(
    condition: Callable[[], bool], timeout: float, otherwise: str, remedy: str = "see the brokers' logs"
) -> None:
    """Wait until ``condition()``. Raises ``ZkgroupError`` after ``timeout`` seconds; ``otherwise``: the problem."""
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            raise ZkgroupError(f"{otherwise} within {timeout:g} s", remedy)
        time.sleep(POLL)


@dataclass(frozen=True, slots=True)
class ProcessId:
    """A process id and its start time, which distinguishes it from a recycled id."""

    pid: int
    started: str

    def is_alive(self) -> bool:
        """True if this process runs; False for a zombie."""
        return start_token(self.pid) == self.started

    def signal(self, number: int) -> bool:
        """Send a signal; False if the process is gone."""
        if not self.is_alive():
            return False
        try:
            os.kill(self.pid, number)
        except ProcessLookupError:
            return False
        return True

    def wait_gone(self, timeout: float) -> bool:
        """Wait until the process is gone; False if it still is there after ``timeout`` seconds."""
        deadline = time.monotonic() + timeout
        while self.is_alive():
            if time.monotonic() > deadline:
                return False
            time.sleep(POLL)
        return True

    def kill(self) -> None:
        """Kill the process, and wait until it is gone."""
        if self.signal(signal.SIGKILL):
            self.wait_gone(10.0)


class Process:
    """A child process, in a session of its own. It can be ended, and started again. With a ``guard`` it ends
    when its owner does."""

    process_id: ProcessId  # of the one last started

    def __init__(self, name: str, guard: Watchdog | None) -> None:
        self.name = name
        self._watchdog = guard
        self._child: subprocess.Popen[bytes] | None = None

    def spawn(self, command: Sequence[str], *, folder: Path, log: Path, output: Path | None = None) -> Self:
        """Start ``command`` in ``folder``. Its errors are appended to ``log``, its output to ``output``, else to the
        log, too."""
        output, guard = output or log, self._watchdog
        with log.open("ab") as errors, output.open("ab") as printed:
            self._child = subprocess.Popen(
                list(command) if guard is None else ["sh", "-c", REPORT, "sh", str(output), *command],
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=printed if guard is None else guard.fileno(),
                stderr=errors,
                start_new_session=True,
                env=childs_environment(),
            )
        # The start time is read before anything can reap the child, so it is there even if the child has ended.
        self.process_id = ProcessId(self._child.pid, start_token(self._child.pid) or "ended")
        return self

    @property
    def running(self) -> bool:
        """Whether the process runs, or is paused."""
        return self._child is not None and self._child.poll() is None

    @property
    def returncode(self) -> int | None:
        """The exit status, negative for a signal; None while it runs, and before it has."""
        return None if self._child is None else self._child.poll()

    def signal(self, number: int) -> None:
        """Send a signal, if the process still is there."""
        if self._child is not None:
            self._child.send_signal(number)

    def wait_gone(self, timeout: float) -> bool:
        """Wait until the process is gone; False if it still is there after ``timeout`` seconds."""
        if self._child is not None:
            try:
                self._child.wait(timeout)
            except subprocess.TimeoutExpired:
                return False
            if self._watchdog is not None:
                self._watchdog.send(f"-{self._child.pid}")
        return True

    def stop(self, timeout: float = 20.0) -> None:
        """Terminate the process (SIGTERM), and kill it after ``timeout`` seconds."""
        self.signal(signal.SIGTERM)
        self.signal(signal.SIGCONT)  # a paused one hears nothing
        if not self.wait_gone(timeout):
            self.kill()

    def kill(self) -> None:
        """Kill the process (SIGKILL), and wait until it is gone."""
        self.signal(signal.SIGKILL)
        self.wait_gone(30.0)


HOST = "127.0.0.1"
_ANSWER = 1.0  # seconds that a server may take to answer
# Below the range from which Linux takes ports for outgoing connections: a server that is stopped for a while
# finds its port free again.
_PORTS = range(20_000, 32_000)


def free_port() -> int:
    """A free loopback port. Another process may take it first: retry then."""
    while True:
        port = random.choice(_PORTS)
        if port_is_free(port):
            return port


def port_is_free(port: int) -> bool:
    """True if a server could listen on ``port``."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True


def zookeeper_data(port: int) -> Path | None:
    """The data folder of the ZooKeeper at ``port``, which distinguishes it from all others; None where none takes
    requests.

    The four-letter word ``conf`` (to be allowed in the ``4lw.commands.whitelist`` of 3.5 and later) names the folder of
    its snapshots, a subfolder of the configured one.
    """
    try:
        with socket.create_connection((HOST, port), _ANSWER) as connection:
            connection.sendall(b"conf")
            answer = b""
            while part := connection.recv(4096):
                answer += part
    except OSError:
        return None
    found = re.search(rb"^dataDir=(.+)$", answer, re.MULTILINE)
    return Path(os.fsdecode(found[1].strip())).parent if found else None


def metadata_brokers(port: int) -> frozenset[int] | None:
    """The broker ids in the metadata of the broker at ``port``: its own, once its controller has made it known.

    None where it does not answer. 0.8 knows no brokers while there are no topics.
    """
    found = fetch_metadata(parse_endpoints(f"{HOST}:{port}"), _ANSWER)
    return None if found is None else frozenset(found.brokers)


def led_partitions(broker: Endpoint, topic: str) -> frozenset[int]:
    """The partitions of ``topic`` that have a leader, as far as the broker knows; empty without answer."""
    found = fetch_metadata([broker], _ANSWER, topic)
    _, partitions = found.topics.get(topic, (0, {})) if found is not None else (0, {})
    return frozenset(number for number, one in partitions.items() if one.leader >= 0)


_TELLING = (" FATAL ", " ERROR ", "Exception", "Error:", "Could not", "Unrecognized")


class Server(Process):
    """A server process with its folder, log and port, which outlast it.

    ``prepare`` writes the configuration for a port and returns the command; ``serves`` checks whether this very server
    takes requests at a port: until the process has found out that its port is taken, another may answer there. Without
    a fixed ``port`` a free one is chosen, again if another takes it first, and kept once it was served on.
    """

    def __init__(
        self,
        name: str,
        folder: Path,
        prepare: Callable[[int], Sequence[str]],
        serves: Callable[[int], bool],
        guard: Watchdog | None,
        port: int | None = None,
    ) -> None:
        super().__init__(name, guard)
        self.folder = folder
        self.log = folder / "server.log"
        self._prepare = prepare
        self._serves = serves
        self._may_move = port is None
        self._port = port
        self._log_start = 0

    @property
    def port(self) -> int:
        """The port of a launched server."""
        assert self._port is not None
        return self._port

    def launch(self) -> None:
        """Start the process without waiting until it serves."""
        if self._port is None:
            self._port = free_port()
        self.folder.mkdir(parents=True, exist_ok=True)
        command = self._prepare(self._port)
        self._log_start = self.log.stat().st_size if self.log.exists() else 0
        self.spawn(command, folder=self.folder, log=self.log)

    def wait(self, timeout: float = 60.0) -> None:
        """Wait until the launched server serves. Raises ``ZkgroupError`` with the telling line of the log."""
        deadline = time.monotonic() + timeout
        while not (self.running and self._serves(self.port)):
            late = time.monotonic() > deadline
            if late or not self.running:
                logged = self.new_log()
                if not self.running and ("Address already in use" in logged or "BindException" in logged):
                    if not self._may_move or late:
                        raise ZkgroupError(
                            f"{self.name} cannot listen on port {self._port}: it is taken",
                            "stop what listens there, or choose another port",
                        )
                    self._port = None
                    self.launch()
                else:
                    self.kill()
                    what = f"did not serve within {timeout:g} s" if late else "ended while starting"
                    raise ZkgroupError(f"{self.name} {what}", f"its log says: {telling_line(logged)}")
            time.sleep(POLL)
        self._may_move = False

    def start(self, timeout: float = 60.0) -> None:
        """Start the server and wait until it serves."""
        self.launch()
        self.wait(timeout)

    def new_log(self) -> str:
        """The server's log since its last launch."""
        with self.log.open("rb") as log:
            log.seek(self._log_start)
            return log.read().decode(errors="replace")


def run_tool(
    command: Sequence[str], timeout: float, lines: str = "", variables: Mapping[str, str] | None = None
) -> None:
    """Run a tool with ``lines`` as its input. Raises ``ZkgroupError`` with the telling line of what it says."""
    done = run_child(command, timeout, lines, variables)
    if done.returncode:
        raise ZkgroupError(f"{Path(command[0]).name} failed: {telling_line(done.stdout + done.stderr)}", "try again")


def telling_line(log: str) -> str:
    """The line of a server's log that most likely says why it ended: the last error, else the last line."""
    lines = [line.strip() for line in log.splitlines() if line.strip() and not line.lstrip().startswith("at ")]
    errors = [line for line in lines if any(mark in line for mark in _TELLING)]
    chosen = (errors or lines or ["nothing"])[-1]
    return chosen if len(chosen) <= 300 else chosen[:299] + "…"
