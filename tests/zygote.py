"""Commands of tests, each in a process of its own that need not be started: it is forked from one that has imported
everything already. What a command costs then is its work, not a third of a second for Python and its packages."""

from __future__ import annotations

import array
import atexit
import contextlib
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


class Zygote:
    """The process that is forked. One thread after the other may ask it for a command; it ends with this process."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="zkgroup-zygote-")
        self._path = str(Path(self._folder.name, "socket"))
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()

    def run(
        self, program: str, args: Sequence[str], env: Mapping[str, str], timeout: float, input: str | None
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
            connection = stack.enter_context(self._connect())
            asked = json.dumps({"argv": [program, *args], "env": dict(env), "cwd": str(Path.cwd())}).encode()
            descriptors = array.array("i", [stdin, out.fileno(), err.fileno()])
            connection.sendmsg(
                [_LENGTH.pack(len(asked))], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, descriptors.tobytes())]
            )
            connection.sendall(asked)
            pid = _CODE.unpack(_receive(connection, _CODE.size))[0]
            connection.settimeout(timeout)
            try:
                code = _CODE.unpack(_receive(connection, _CODE.size))[0]
            except TimeoutError:
                os.kill(pid, signal.SIGKILL)
                raise subprocess.TimeoutExpired([program, *args], timeout, _text(out), _text(err)) from None
            return subprocess.CompletedProcess([program, *args], code, _text(out), _text(err))

    def _connect(self) -> socket.socket:
        with self._lock:
            if self._process is None:
                self._process = subprocess.Popen(
                    [sys.executable, __file__, self._path], stdin=subprocess.PIPE, stdout=subprocess.PIPE
                )
                assert self._process.stdout is not None
                assert self._process.stdout.readline() == b"ready\n"
                atexit.register(self._process.terminate)
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(30.0)
        connection.connect(self._path)
        return connection


def _receive(connection: socket.socket, count: int) -> bytes:
    received = b""
    while len(received) < count:
        if not (part := connection.recv(count - len(received))):
            raise ConnectionError("the command ended without an exit code: a signal has ended it")
        received += part
    return received


def _text(file: io.BufferedRandom) -> str:
    file.seek(0)
    return file.read().decode()


# What follows runs in the zygote, and in what it forks.


def _import_everything() -> None:
    for package in ("zkgroup.commands", "zkgroup.config", "zkgroup.groups", "zkgroup.protocol", "zkgroup.clients"):
        for module in pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}."):
            importlib.import_module(module.name)
    for name in ("zkgroup.connector", "zkgroup.sandbox.sandbox_state", "rich.console", "rich.text", "tomllib", "csv"):
        importlib.import_module(name)


def _serve(path: str) -> None:
    _import_everything()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen(16)
        print("ready", flush=True)
        while True:
            ready, _, _ = select.select([listener, sys.stdin], [], [], 1.0)
            with contextlib.suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
            if sys.stdin in ready:
                return  # whoever has started us is gone
            if listener not in ready:
                continue
            connection, _ = listener.accept()
            if os.fork() == 0:
                listener.close()
                _become(connection)
            connection.close()


def _become(connection: socket.socket) -> None:
    """The command, to its end. Does not return."""
    code = 1
    try:
        head, ancillary, *_ = connection.recvmsg(_LENGTH.size, socket.CMSG_SPACE(3 * array.array("i").itemsize))
        descriptors = array.array("i")
        descriptors.frombytes(ancillary[0][2])
        asked = json.loads(_receive(connection, _LENGTH.unpack(head)[0]))
        for number, descriptor in enumerate(descriptors):
            os.dup2(descriptor, number)
            os.close(descriptor)
        os.chdir(asked["cwd"])
        os.environ.clear()
        os.environ.update(asked["env"])
        sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w", buffering=1)  # noqa: SIM115
        sys.argv = asked["argv"]
        connection.sendall(_CODE.pack(os.getpid()))
        code = _call()
    except BaseException:  # noqa: BLE001  # nothing may get back into the loop of the zygote
        traceback.print_exc()
    finally:
        with contextlib.suppress(OSError):
            connection.sendall(_CODE.pack(code))
        os._exit(code & 0xFF)


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
    _serve(sys.argv[1])
