"""Commands of tests, each in a process of its own that need not be started: it is forked from one that has imported
everything already. What a command costs then is its work, not a third of a second for Python and its packages."""

from __future__ import annotations

import array
import atexit
import contextlib
import gc
import importlib
import io
import json
import os
import pkgutil
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path

_LENGTH = struct.Struct("!I")
_CODE = struct.Struct("!i")
#: The variable with which an export runs without Spark: where a test is about something else.
IN_PROCESS = "TESTS_EXPORT_IN_PROCESS"
#: The variable with which a change in Kafka waits for commits after it, as it always does outside of tests.
COMMIT_WAIT = "TESTS_COMMIT_WAIT"
#: The variable with which stdout has each line at once, as a terminal has: in their order with those of stderr.
BY_LINE = "TESTS_STDOUT_BY_LINE"


class Forked:
    """A command that was started, with what ``subprocess.Popen`` has of it."""

    def __init__(self, args: Sequence[str], connection: socket.socket) -> None:
        self.args = args
        self.returncode: int | None = None
        self._connection = connection
        self.pid = _CODE.unpack(_receive(connection, _CODE.size))[0]

    def poll(self) -> int | None:
        """The exit code, or less the signal that has ended it; None as long as it runs."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0.0)
        return self.returncode

    def wait(self, timeout: float) -> int:
        """Wait for the end. Raises ``subprocess.TimeoutExpired``."""
        if self.returncode is None:
            if not select.select([self._connection], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(self.args, timeout)
            self.returncode = _CODE.unpack(_receive(self._connection, _CODE.size))[0]
            self._connection.close()
        return self.returncode

    def send_signal(self, signum: int) -> None:
        """Send a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, signum)

    def kill(self) -> None:
        """Kill it, and wait for its end."""
        self.send_signal(signal.SIGKILL)
        self.wait(10.0)


class Zygote:
    """The process that is forked. Threads may ask it for commands at the same time. It ends with this process, and
    leaves nothing behind: each command has a pair of sockets, and no file."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._door: socket.socket | None = None
        self._lock = threading.Lock()

    def start(
        self,
        args: Sequence[str],
        env: Mapping[str, str],
        stdin: int,
        stdout: int,
        stderr: int,
        folder: Path | None = None,
    ) -> Forked:
        """Start the command whose words are ``args``, the program first, on these descriptors, in ``folder`` or where
        this process is."""
        connection = self._connect()
        asked = json.dumps({"argv": list(args), "env": dict(env), "cwd": str(folder or Path.cwd())}).encode()
        descriptors = array.array("i", [stdin, stdout, stderr])
        connection.sendmsg([_LENGTH.pack(len(asked))], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, descriptors.tobytes())])
        connection.sendall(asked)
        return Forked(args, connection)

    def run(
        self, args: Sequence[str], env: Mapping[str, str], timeout: float, input: str | None
    ) -> subprocess.CompletedProcess[str]:
        """As ``subprocess.run`` with captured text; ``input`` None gives this process's stdin."""
        with contextlib.ExitStack() as stack:
            out, err = (stack.enter_context(tempfile.TemporaryFile()) for _ in range(2))
            stdin = 0
            if input is not None:
                file = stack.enter_context(tempfile.TemporaryFile())
                file.write(input.encode())
                file.seek(0)
                stdin = file.fileno()
            command = self.start(args, env, stdin, out.fileno(), err.fileno())
            try:
                code = command.wait(timeout)
            except subprocess.TimeoutExpired:
                command.kill()
                raise subprocess.TimeoutExpired(args, timeout, _text(out), _text(err)) from None
            return subprocess.CompletedProcess(args, code, _text(out), _text(err))

    def _connect(self) -> socket.socket:
        ours, theirs = socket.socketpair()
        ours.settimeout(30.0)
        with theirs, self._lock:
            if self._door is None:
                self._door, inner = socket.socketpair()
                with inner:
                    command = [sys.executable, __file__, str(inner.fileno())]
                    self._process = subprocess.Popen(
                        command,
                        stdout=subprocess.PIPE,
                        pass_fds=[inner.fileno()],
                    )
                assert self._process.stdout is not None
                assert self._process.stdout.readline() == b"ready\n"
                atexit.register(self._process.terminate)
            socket.send_fds(self._door, [b"+"], [theirs.fileno()])
        return ours


def _receive(connection: socket.socket, count: int) -> bytes:
    received = b""
    while len(received) < count:
        if not (part := connection.recv(count - len(received))):
            raise ConnectionError("the zygote is gone")
        received += part
    return received


def _text(file: io.BufferedRandom) -> str:
    file.seek(0)
    return file.read().decode()


# What follows runs in the zygote, and in what it forks.


def _import_everything() -> None:
    import typer

    from zkgroup import commands

    for package in (
        "zkgroup.commands",
        "zkgroup.config",
        "zkgroup.groups",
        "zkgroup.protocol",
        "zkgroup.clients",
        "zkgroup.export",
    ):
        for module in pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}."):
            importlib.import_module(module.name)
    for name in ("zkgroup.connector", "zkgroup.sandbox.sandbox_state", "rich.console", "rich.text", "tomllib", "csv"):
        importlib.import_module(name)
    group = typer.main.get_command(commands.app)
    for name in group.list_commands(typer.Context(group)):  # type: ignore[attr-defined]
        group.get_command(typer.Context(group), name)  # type: ignore[attr-defined]
    gc.freeze()


def _serve(door: socket.socket) -> None:
    """Fork a command for each connection that comes through ``door``, until its other end is closed."""
    _import_everything()
    running: dict[int, socket.socket] = {}
    ended, woken = os.pipe()
    os.set_blocking(woken, False)
    signal.set_wakeup_fd(woken)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    print("ready", flush=True)
    while True:
        ready, _, _ = select.select([door, ended], [], [])
        if ended in ready:
            os.read(ended, 65536)
            _report_ended(running)
        if door in ready:
            _, descriptors, *_ = socket.recv_fds(door, 1, 1)
            if not descriptors:
                return  # the process that has started this one is gone
            connection = socket.socket(fileno=descriptors[0])
            if (pid := os.fork()) == 0:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                for other in (door, *running.values()):
                    other.close()
                os.close(ended)
                os.close(woken)
                _become(connection)
            running[pid] = connection
            with contextlib.suppress(OSError):
                connection.sendall(_CODE.pack(pid))


def _report_ended(running: dict[int, socket.socket]) -> None:
    """Tell who has started a command that has ended."""
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return
            with running.pop(pid) as connection, contextlib.suppress(OSError):
                connection.sendall(_CODE.pack(os.waitstatus_to_exitcode(status)))


def _become(connection: socket.socket) -> None:
    """The command, to its end. Does not return."""
    code = 1
    try:
        with connection:
            head, ancillary, *_ = connection.recvmsg(_LENGTH.size, socket.CMSG_SPACE(3 * array.array("i").itemsize))
            asked = json.loads(_receive(connection, _LENGTH.unpack(head)[0]))
        descriptors = array.array("i")
        descriptors.frombytes(ancillary[0][2])
        for number, descriptor in enumerate(descriptors):
            os.dup2(descriptor, number)
            os.close(descriptor)
        os.chdir(asked["cwd"])
        os.environ.clear()
        os.environ.update(asked["env"])
        buffering = 1 if BY_LINE in os.environ else -1
        sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w", buffering), open(2, "w", buffering=1)  # noqa: SIM115
        sys.argv = asked["argv"]
        if IN_PROCESS in os.environ:
            _export_in_process()
        if COMMIT_WAIT not in os.environ:
            from zkgroup.groups.changes import kafka_writer

            kafka_writer.COMMIT_WAIT = 0.0  # type: ignore[misc]
        code = _call()
    except BaseException:  # noqa: BLE001  # nothing may get back into the loop of the zygote
        traceback.print_exc()
    finally:
        os._exit(code & 0xFF)


def _export_in_process() -> None:
    """An export runs its tasks here, and needs no Spark."""
    from functools import partial

    from exports import InProcess

    from zkgroup.export.run import run_export

    run_export.run_export = partial(run_export.run_export, runner=InProcess)  # type: ignore[assignment]


def _call() -> int:
    from zkgroup.__main__ import run

    try:
        run()
        code = 0
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    # What an interpreter does that ends.
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    return code


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])))
