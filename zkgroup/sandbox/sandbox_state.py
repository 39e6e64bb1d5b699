"""Sandboxes by their state files: other processes find, show, use and end them."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TextIO

import msgspec

from zkgroup.config.setting_files import state_dir
from zkgroup.errors import Remedy, UnreachableError, UsageError, ZkgroupError, near
from zkgroup.sandbox.processes import ProcessId
from zkgroup.text import quoted

STATE_FILE = "state.json"
MEMBER_LEAVE = 10.0  # seconds for all members together to leave their groups
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}\Z")


def sandbox_folder(name: str) -> Path:
    """The folder of the sandbox called ``name``. Raises ``UsageError`` for a name that cannot be a folder."""
    if not _NAME.match(name):
        raise UsageError(f"{name!r} cannot name a sandbox", "use letters, digits, '.', '_' and '-', at most 64")
    return state_dir() / "sandbox" / name


def sandbox_names() -> list[str]:
    """The names of all sandboxes with a folder, running or not."""
    parent = state_dir() / "sandbox"
    found = parent.iterdir() if parent.is_dir() else ()
    return sorted(folder.name for folder in found if folder.is_dir() and _NAME.match(folder.name))


@dataclass(frozen=True, slots=True)
class ServerState:
    """One server: a ZooKeeper, a KDC (``broker_id`` None) or a broker."""

    name: str
    host: str
    port: int
    process: ProcessId
    log: str
    broker_id: int | None = None


@dataclass(frozen=True, slots=True)
class MemberState:
    """One Scala member that runs detached."""

    name: str
    group: str
    release: str
    process: ProcessId
    log: str


@dataclass(frozen=True, slots=True)
class SandboxState:
    """A sandbox by its state file.

    ``connect`` is the ZooKeeper connect string with the chroot, ``bootstrap`` the brokers' list. It is written down as
    soon as its first server is launched; ``ready``: whether all serve. ``secure`` is the folder of its secrets, if any.
    """

    name: str
    kafka: str
    connect: str
    bootstrap: str
    folder: str
    servers: tuple[ServerState, ...]
    members: tuple[MemberState, ...] = ()
    ready: bool = False
    secure: str | None = None

    @property
    def is_alive(self) -> bool:
        """True if any server runs."""
        return any(server.process.is_alive() for server in self.servers)


def write_state(state: SandboxState) -> None:
    """Write the state file, whole or not at all."""
    folder = Path(state.folder)
    handle, temporary = tempfile.mkstemp(prefix=".state-", dir=folder)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        json.dump(asdict(state), file, indent=1)
    Path(temporary).replace(folder / STATE_FILE)


def read_state(folder: Path) -> SandboxState | None:
    """The state in ``folder``; None without a file."""
    path = folder / STATE_FILE
    try:
        return msgspec.json.decode(path.read_bytes(), type=SandboxState)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (msgspec.MsgspecError, ValueError) as error:
        raise _lost(folder, "is damaged") from error


def read_left_state(folder: Path) -> SandboxState | None:
    """As ``read_state``, while nobody else starts or stops the sandbox: raises ``ZkgroupError`` also where servers were
    launched, and the file is gone."""
    state = read_state(folder)
    if state is None and any(folder.glob("*/server.log")):
        raise _lost(folder, "is missing")
    return state


def _lost(folder: Path, why: str) -> ZkgroupError:
    ending = f"pkill -9 -f {quoted(f'{folder}/')}; rm -r {quoted(str(folder))}"
    return ZkgroupError(f"{folder / STATE_FILE} {why}", f"end what runs there, then remove the folder: {ending}")


def running(name: str = "default") -> SandboxState:
    """The running sandbox called ``name``. Raises ``UnreachableError``."""
    left = read_state(sandbox_folder(name))
    if left is None or not left.is_alive:
        raise not_running(name, "does not run" if left is None else "has ended without being stopped")
    if not left.ready:
        raise UnreachableError(f"sandbox {name} is still being started", "wait until it is")
    return left


def not_running(name: str, problem: str = "does not run", remedy: Remedy | None = None) -> UnreachableError:
    """The error for a sandbox that does not run. It suggests those with a similar name; without any, ``remedy``, or to
    start it."""
    found = near(name, (one for one in sandbox_names() if one != name))
    if found:
        remedy = Remedy(f"did you mean {' or '.join(found)}?")
    elif remedy is None:
        named = () if name == "default" else ("--name", name)
        remedy = Remedy("start it", ("sandbox", "start", *named))
    return UnreachableError(f"sandbox {name} {problem}", remedy)


def read_states() -> Iterator[SandboxState | ZkgroupError]:
    """Every sandbox with a state file, running or not, by name; or why it cannot be read."""
    for name in sandbox_names():
        try:
            state = read_state(sandbox_folder(name))
        except ZkgroupError as error:
            yield error
        else:
            if state is not None:
                yield state


@contextlib.contextmanager
def locked(name: str, timeout: float = 90.0) -> Iterator[None]:
    """Hold the sandbox called ``name``: a start, stop or change waits for another. The lock's file goes with the
    sandbox."""
    path = state_dir() / "sandbox" / f".{name}.lock"
    deadline = time.monotonic() + timeout
    while (file := _try_lock(path)) is None:
        if time.monotonic() > deadline:
            raise ZkgroupError(
                f"sandbox {name} is being started or stopped by another process", "wait for it, or end it"
            ) from None
        time.sleep(0.05)
    with file:
        try:
            yield
        finally:
            if not sandbox_folder(name).exists():
                path.unlink(missing_ok=True)


def _try_lock(path: Path) -> TextIO | None:
    """The locked file; None while another process has it, or had it and removed it after we opened it."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    file = path.open("w")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(file.fileno()), path.stat()):
            return file
    except (BlockingIOError, FileNotFoundError):
        pass
    file.close()
    return None


@dataclass(frozen=True, slots=True)
class ProcessRow:
    """One process of a sandbox. ``state``: running, starting or gone."""

    sandbox: str
    process: str
    release: str | None
    address: str | None
    pid: int
    state: str
    log: str


def process_rows(state: SandboxState) -> Iterator[ProcessRow]:
    """The processes of a sandbox: ZooKeeper, brokers, detached members."""
    for server in state.servers:
        version = None if server.broker_id is None else state.kafka
        name = server.name.lower() if server.broker_id is None else f"broker {server.broker_id}"
        address = f"{server.host}:{server.port}"
        condition = _condition(server.process, ready=state.ready)
        yield ProcessRow(state.name, name, version, address, server.process.pid, condition, server.log)
    for member in state.members:
        condition = _condition(member.process, ready=True)
        yield ProcessRow(state.name, member.name, member.release, None, member.process.pid, condition, member.log)


def _condition(process: ProcessId, *, ready: bool) -> str:
    if not process.is_alive():
        return "gone"
    return "running" if ready else "starting"


def stop(name: str) -> SandboxState | None:
    """End all processes of the sandbox called ``name``, and remove its folder.

    Members leave their groups first, so that nothing waits for them. Returns what it was, None where there was none.
    """
    folder = sandbox_folder(name)
    if not folder.is_dir():
        return None
    with locked(name):
        state = read_left_state(folder)
        if state is not None:
            end_members([member.process for member in state.members])
            for server in reversed(state.servers):  # brokers before their ZooKeeper
                server.process.kill()
        shutil.rmtree(folder, ignore_errors=True)
    return state


def end_members(members: Sequence[ProcessId]) -> None:
    """Let processes of members leave their groups together; kill those that take longer than ``MEMBER_LEAVE``."""
    for member in members:
        if member.signal(signal.SIGTERM):
            member.signal(signal.SIGCONT)
    deadline = time.monotonic() + MEMBER_LEAVE
    for member in members:
        if not member.wait_gone(max(0.0, deadline - time.monotonic())):
            member.kill()
