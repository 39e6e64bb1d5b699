"""Processes that end with their owner, and are never mistaken for others."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from servers import is_paused
from support import wait_until

from zkgroup.child_processes import Watchdog, start_token
from zkgroup.sandbox.processes import Process, ProcessId

OWNER = """
import sys, time
from pathlib import Path
from zkgroup.child_processes import Watchdog
from zkgroup.sandbox.processes import Process
folder = Path(sys.argv[1])
guard = Watchdog()
guard.start()
guard.send(f"rm {folder}")
ready = ["sh", "-c", "echo ready; exec sleep 600"]
child = Process("child", guard).spawn(ready, folder=folder, log=folder / "log", output=folder / "output")
while (folder / "output").read_text() != "ready\\n":
    time.sleep(0.01)
print(child.process_id.pid, child.process_id.started, flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_everything_ends_with_the_owner(tmp_path: Path, end: int) -> None:
    """However the owner dies, its processes die too, paused ones included, and the folder goes."""
    folder = tmp_path / "owned"
    folder.mkdir()
    with subprocess.Popen([sys.executable, "-c", OWNER, str(folder)], stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        pid, started = owner.stdout.readline().split()
        child = ProcessId(int(pid), started)
        assert child.is_alive()
        os.kill(child.pid, signal.SIGSTOP)
        owner.send_signal(end)
    wait_until(lambda: not child.is_alive(), 10, "the child ends")
    wait_until(lambda: not folder.exists(), 10, "the folder is removed")


def test_a_child_that_holds_the_pipe_changes_nothing(tmp_path: Path) -> None:
    """A fork of the owner's that lives on, and with it the guard's pipe, does not keep the servers alive."""
    folder = tmp_path / "owned"
    folder.mkdir()
    forking = OWNER.replace("print(", "import os\nif os.fork() == 0:\n    time.sleep(60)\n    os._exit(0)\nprint(")
    with subprocess.Popen(
        [sys.executable, "-c", forking, str(folder)], stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as owner:
        assert owner.stdout is not None
        pid, started = owner.stdout.readline().split()
        owner.kill()
        try:
            assert ProcessId(int(pid), started).wait_gone(10)
            wait_until(lambda: not folder.exists(), 10, "the folder is removed")
        finally:
            os.killpg(owner.pid, signal.SIGKILL)


def test_released_processes_live_on(tmp_path: Path) -> None:
    """A guard that is released ends nothing."""
    guard = Watchdog()
    guard.start()
    child = Process("child", guard).spawn(["sleep", "600"], folder=tmp_path, log=tmp_path / "log")
    guard.close(release=True)
    assert child.running
    child.kill()
    assert not child.process_id.is_alive()


def test_secrets_are_not_handed_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A password in the environment is for zkgroup: neither a server nor the guard is given it; the rest they are."""
    monkeypatch.setenv("ZKGROUP_SASL_PASSWORD", "hush")
    monkeypatch.setenv("NOT_ZKGROUP", "told")
    guard = Watchdog()
    guard.start()
    try:
        assert guard._process is not None
        child = Process("child", guard).spawn(["sleep", "60"], folder=tmp_path, log=tmp_path / "log")
        for pid in (child.process_id.pid, guard._process.pid):
            environ = Path(f"/proc/{pid}/environ")  # it is empty for a moment, while the process becomes another
            handed = wait_until(environ.read_bytes, 10, "the environment").split(b"\0")
            assert b"NOT_ZKGROUP=told" in handed
            assert not [one for one in handed if b"hush" in one]
        child.kill()
    finally:
        guard.close()


def test_ended_process_is_forgotten(tmp_path: Path) -> None:
    """A process that was stopped is none of the guard's business: a later one may have got its id."""
    guard = Watchdog()
    guard.start()
    child = Process("child", guard).spawn(["true"], folder=tmp_path, log=tmp_path / "log")
    assert child.wait_gone(10)
    assert child.returncode == 0
    guard.close()


def test_another_process_with_the_same_id_is_spared() -> None:
    """A recorded process whose id was given to another is gone: that other one gets no signal."""
    with subprocess.Popen(["sleep", "600"]) as other:
        recorded = ProcessId(other.pid, "0")
        assert not recorded.is_alive()
        assert not recorded.signal(signal.SIGKILL)
        recorded.kill()
        assert other.poll() is None
        other.kill()


def test_zombie_is_gone() -> None:
    """A process that has ended and was not waited for counts as gone: nobody waits for it in vain."""
    child = subprocess.Popen(["sleep", "600"])
    found = ProcessId(child.pid, _started(child.pid))
    child.kill()
    assert found.wait_gone(10)
    child.wait()


def _started(pid: int) -> str:
    return start_token(pid) or pytest.fail("no such process")


def test_paused_process_can_be_asked_to_end(tmp_path: Path) -> None:
    """A process under SIGSTOP hears the request once it is woken for it: no waiting until patience ends."""
    child = Process("child", None).spawn(["sleep", "600"], folder=tmp_path, log=tmp_path / "log")
    child.signal(signal.SIGSTOP)
    wait_until(lambda: is_paused(child.process_id.pid), 10, "the process is paused")
    child.stop(timeout=300.0)
    assert child.returncode == -signal.SIGTERM


def test_output_and_errors_go_to_their_files(tmp_path: Path) -> None:
    """With and without a guard, output goes to its file and errors to the log, and both are appended to."""
    guard = Watchdog()
    guard.start()
    for watcher in (None, guard):
        shown = ["sh", "-c", "echo out; echo err >&2"]
        process = Process("child", watcher).spawn(
            shown, folder=tmp_path, log=tmp_path / "log", output=tmp_path / "output"
        )
        assert process.wait_gone(10)
    guard.close()
    assert (tmp_path / "output").read_text() == "out\nout\n"
    assert (tmp_path / "log").read_text() == "err\nerr\n"
