"""Sandboxes that run on after the process that started them: find, join and end them."""

from __future__ import annotations

import shutil
import signal
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from zkgroup.child_processes import is_paused
from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.errors import NotFoundError, RefusedError, Remedy, UnreachableError, ZkgroupError, did_you_mean
from zkgroup.protocol import znodes
from zkgroup.protocol.operations import Exists, Stat
from zkgroup.sandbox.owned_processes import POLL, ProcessId
from zkgroup.sandbox.sandbox_security import registry_settings, security_in
from zkgroup.sandbox.sandbox_state import (
    MemberState,
    SandboxState,
    find,
    locked,
    not_running,
    read_left_state,
    read_state,
    sandbox_folder,
    write_state,
)
from zkgroup.sandbox.scala_member import MemberOptions, ScalaMember
from zkgroup.sandbox.server_process import telling_line

MEMBER_START = 30.0  # seconds for a member to have its streams
MEMBER_LEAVE = 10.0  # seconds for all members together to leave their groups


@dataclass(frozen=True, slots=True)
class ProcessRow:
    """One process of a sandbox. ``state``: running, starting, paused or gone."""

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
    if not process.alive():
        return "gone"
    if is_paused(process.pid):
        return "paused"
    return "running" if ready else "starting"


def running(name: str) -> SandboxState:
    """The running sandbox called ``name``. Raises ``UnreachableError``."""
    state = find(name)
    if state is not None:
        return state
    left = read_state(sandbox_folder(name))
    if left is not None and left.alive:
        raise UnreachableError(f"sandbox {name} is still being started", "wait until it is")
    raise not_running(name, "does not run" if left is None else "has ended without being stopped")


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
            _end_members([member.process for member in state.members])
            for server in reversed(state.servers):  # brokers before their ZooKeeper
                server.process.kill()
        shutil.rmtree(folder, ignore_errors=True)
    return state


def stop_member(name: str, member_id: str) -> None:
    """Stop the detached members called ``member_id`` of the running sandbox called ``name``; they leave their groups.

    Raises ``UnreachableError`` without the sandbox, ``NotFoundError`` without such a member.
    """
    with locked(name):
        state = running(name)
        leaving = [member for member in state.members if member.name == member_id]
        if not any(member.process.alive() for member in leaving):
            known = [member.name for member in state.members if member.process.alive()]
            remedy = did_you_mean(member_id, known, Remedy("list the members", ("sandbox", "status")))
            raise NotFoundError(f"sandbox {name} runs no member {member_id}", remedy)
        _end_members([member.process for member in leaving])
        write_state(replace(state, members=tuple(member for member in state.members if member not in leaving)))


def _end_members(members: Sequence[ProcessId]) -> None:
    for member in members:
        if member.signal(signal.SIGTERM):
            member.signal(signal.SIGCONT)
    deadline = time.monotonic() + MEMBER_LEAVE
    for member in members:
        if not member.wait_gone(max(0.0, deadline - time.monotonic())):
            member.kill()


def check_id(state: SandboxState, options: MemberOptions) -> None:
    """Raise ``RefusedError`` where the group has a member of this id: they would share a registration."""
    with Registry(registry_settings(state.connect, security_in(state.secure))) as registry:
        (found,) = registry.read([Exists(znodes.member_id(options.group, options.member_id))])
    if isinstance(found, Stat):
        raise RefusedError(f"member {options.member_id} runs already", "give another --id")


def start_member(name: str, options: MemberOptions) -> MemberState:
    """Start a Scala member that runs on by itself in the sandbox called ``name``; wait until it has its streams.

    Raises ``ZkgroupError`` with the telling line of its log where it ends before.
    """
    with locked(name):
        state = running(name)
        same = {m for m in state.members if (m.group, m.name) == (options.group, options.member_id)}
        if any(member.process.alive() for member in same):
            raise RefusedError(f"member {options.member_id} runs already", "give another --id")
        member = ScalaMember(options, options.folder(Path(state.folder)))
        member.start()
        written = MemberState(options.member_id, options.group, options.release, member.process_id, str(member.output))
        before = tuple(other for other in state.members if other not in same)
        write_state(replace(state, members=(*before, written)))
        deadline = time.monotonic() + MEMBER_START
        while not member.has_streams:
            if not member.running or time.monotonic() > deadline:
                what = "did not get its streams in time" if member.running else "ended while starting"
                member.kill()
                write_state(replace(state, members=before))
                raise ZkgroupError(f"member {member.id} {what}", f"its log says: {telling_line(member.logged())}")
            time.sleep(POLL)
    return written
