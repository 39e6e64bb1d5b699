"""One server process of a sandbox: start, wait, stop, kill, pause, and start again with its port and data."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from zkgroup.child_processes import Watchdog
from zkgroup.errors import ZkgroupError
from zkgroup.sandbox.owned_processes import POLL, ProcessId, Restartable, spawn
from zkgroup.sandbox.server_probe import free_port, port_is_free

_TAKEN = "Address already in use"
_TELLING = (" FATAL ", " ERROR ", "Exception", "Error:", "Could not", "Unrecognized")


class ServerFailedError(ZkgroupError):
    """A server that ended, or did not serve in time. ``port_taken``: whether another listens on its port."""

    def __init__(self, message: str, remedy: str, *, port_taken: bool) -> None:
        super().__init__(message, remedy)
        self.port_taken = port_taken


class Server(Restartable):
    """A server process with its folder, log and port, which outlast it.

    ``prepare`` writes the configuration for a port and returns the command; ``serves`` checks whether this very server
    takes requests at a port: until the process has found out that its port is taken, another may answer there. Without
    a fixed ``port`` a free one is taken, and kept from then on.
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
        super().__init__(name)
        self.folder = folder
        self.log = folder / "server.log"
        self._prepare = prepare
        self._serves = serves
        self._watchdog = guard
        self._fixed = port is not None
        self._port = port
        self._served = False
        self._log_start = 0

    @property
    def port(self) -> int:
        """The port of a launched server."""
        if self._port is None:
            raise ZkgroupError(f"{self.name} has not been started", "start it first")
        return self._port

    @property
    def id(self) -> ProcessId | None:
        """The process; None before the start."""
        return self._process.id if self._process else None

    def launch(self) -> None:
        """Start the process without waiting until it serves. Does nothing if it runs."""
        if self.running:
            return
        if self._port is None:
            self._port = free_port()
        elif self._fixed and not self._served and not port_is_free(self._port):
            raise self._taken()
        self.folder.mkdir(parents=True, exist_ok=True)
        command = self._prepare(self._port)
        self._log_start = self.log.stat().st_size if self.log.exists() else 0
        self._process = spawn(command, folder=self.folder, log=self.log, guard=self._watchdog)

    def wait(self, timeout: float = 60.0) -> None:
        """Wait until the launched server serves.

        A port that another took meanwhile is changed, up to five times, unless it was given or has been served on.
        Raises ``ServerFailedError`` with the telling line of the log.
        """
        deadline = time.monotonic() + timeout
        moves = 0
        while not (self.running and self._serves(self.port)):
            if not self.running:
                failure = self._failure("ended while starting")
                if not failure.port_taken or self._fixed or self._served or moves == 5:
                    raise failure
                moves += 1
                self._port = None
                self.launch()
            elif time.monotonic() > deadline:
                failure = self._failure(f"did not serve within {timeout:g} s")
                self.kill()
                raise failure
            time.sleep(POLL)
        self._served = True

    def start(self, timeout: float = 60.0) -> None:
        """Start the server and wait until it serves."""
        self.launch()
        self.wait(timeout)

    def new_log(self) -> str:
        """The server's log since its last launch."""
        try:
            with self.log.open("rb") as log:
                log.seek(self._log_start)
                return log.read().decode(errors="replace")
        except FileNotFoundError:
            return ""

    def _failure(self, what: str) -> ServerFailedError:
        logged = self.new_log()
        taken = _TAKEN in logged or "BindException" in logged
        if taken and self._port is not None and not port_is_free(self._port):
            return self._taken()
        return ServerFailedError(f"{self.name} {what}", f"its log says: {telling_line(logged)}", port_taken=taken)

    def _taken(self) -> ServerFailedError:
        return ServerFailedError(
            f"{self.name} cannot listen on port {self._port}: it is taken",
            "stop what listens there, or choose another port",
            port_taken=True,
        )


def telling_line(log: str) -> str:
    """The line of a server's log that most likely says why it ended: the last error, else the last line."""
    lines = [line.strip() for line in log.splitlines() if line.strip() and not line.lstrip().startswith("at ")]
    errors = [line for line in lines if any(mark in line for mark in _TELLING)]
    chosen = (errors or lines or ["nothing"])[-1]
    return chosen if len(chosen) <= 300 else chosen[:299] + "…"
