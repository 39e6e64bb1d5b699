"""Running the installed ``zkgroup`` as its users do: as a process."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from output_schemas import check_json
from zygote import COMMIT_WAIT, IN_PROCESS, Forked, Zygote

_ZYGOTE = Zygote()
#: The environment of an export that runs its tasks in its own process, which takes a second instead of ten.
WITHOUT_SPARK = {IN_PROCESS: "1"}
#: That of a change in Kafka that reads offsets for some seconds after it, as it does outside of tests.
WAITING_FOR_COMMITS = {COMMIT_WAIT: "1"}
ZKGROUP = str(Path(sys.executable).parent / "zkgroup")


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of this run without anything that a person's configuration could change in a test."""
    kept = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "XDG_CONFIG_HOME")}
    return kept | {"ZKGROUP_CONFIG": os.devnull, "COLUMNS": "120"} | dict(extra or {})


def run(
    *args: str, env: Mapping[str, str] | None = None, timeout: float = 60.0, input: str | None = None
) -> subprocess.CompletedProcess[str]:
    """Run ``zkgroup`` to its end, in a process of its own, with stdout and stderr caught as text. JSON that it prints
    is what the documentation says."""
    done = _ZYGOTE.run([ZKGROUP, *args], environment(env), timeout, input)
    check_json(args, done)
    return done


def start(
    *args: str, stdout: int, stderr: int, env: Mapping[str, str] | None = None, folder: Path | None = None
) -> Forked:
    """Start ``zkgroup`` in a process of its own, in ``folder`` or where this one is, with nothing on its stdin."""
    with Path(os.devnull).open() as nothing:
        return _ZYGOTE.start([ZKGROUP, *args], environment(env), nothing.fileno(), stdout, stderr, folder)


def run_on_terminal(*args: str, env: Mapping[str, str] | None = None) -> tuple[int, str]:
    """Run ``zkgroup`` with a terminal for its stdout and stderr; the exit code and what the terminal got."""
    ours, theirs = pty.openpty()
    process = start(*args, stdout=theirs, stderr=theirs, env={"TERM": "xterm", **(env or {})})
    os.close(theirs)
    shown = b""
    while True:
        try:
            chunk = os.read(ours, 65536)
        except OSError:  # EIO: the last writer is gone
            break
        if not chunk:
            break
        shown += chunk
    os.close(ours)
    return process.wait(60), shown.decode()
