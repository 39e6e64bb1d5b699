"""Work that takes its time says so on a terminal, and leaves no trace there."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from cli import run, run_on_terminal
from group_nodes import Groups
from lines import names

from zkgroup.sandbox.local_cluster import Sandbox

#: What is done, and for how long: the pause of ``--recheck-after 2``, a second after its beginning.
PROGRESS = re.compile(r"zkgroup: .* 2 s … 1 s")
ERASED = "\r\x1b[K"


@pytest.fixture
def inspect(cluster: Sandbox, groups: Groups, unique: Callable[[str], str]) -> tuple[str, ...]:
    """A command that takes two seconds."""
    group = groups.make(offsets={("gone", 0): 1}, name=unique("slow"))
    return ("inspect-group", group, "--recheck-after", "2", "-z", cluster.connect)


def test_a_terminal_shows_progress_after_a_second(inspect: tuple[str, ...]) -> None:
    """What is done, and for how long; the line is gone before anything else is shown."""
    code, shown = run_on_terminal(*inspect)
    assert code == 0
    assert PROGRESS.search(shown)
    message, _, result = shown.rpartition(ERASED)
    assert ("…" in result, inspect[1] in result) == (False, True)
    assert message.count("\n") == 0


@pytest.mark.parametrize("term", ["dumb", ""])
def test_a_terminal_that_cannot_wipe_a_line_gets_none(inspect: tuple[str, ...], term: str) -> None:
    """What could not be erased is not written."""
    code, shown = run_on_terminal(*inspect, env={"TERM": term})
    assert code == 0
    assert (inspect[1] in shown, "…" in shown, "\x1b[K" in shown) == (True, False, False)


def test_a_pipe_that_is_waited_for_is_named(tmp_path: Path) -> None:
    """A file of offsets may be a pipe that nobody writes to yet: which one, and for how long, is reported."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    wait = threading.Event()

    def write() -> None:
        with pipe.open("w") as file:  # waits for the reader
            wait.wait(1.7)
            file.write("no offset")

    writer = threading.Thread(target=write, daemon=True)
    writer.start()
    code, shown = run_on_terminal("reset-offsets", "g", "--from-file", str(pipe), "-z", "127.0.0.1:1")
    writer.join(10)
    assert re.search(rf"zkgroup: .*{pipe} … 1 s", shown)
    assert (code, names(shown.rpartition(ERASED)[2], pipe, 1)) == (2, True)


@pytest.mark.parametrize("option", ["--quiet", "-v"])
def test_who_wants_less_or_more_gets_no_such_line(inspect: tuple[str, ...], option: str) -> None:
    """--quiet says nothing, and -v says what is done in lines of its own."""
    code, shown = run_on_terminal(*inspect, option)
    assert code == 0
    assert ERASED not in shown


def test_off_a_terminal_nothing_is_printed(inspect: tuple[str, ...]) -> None:
    """Logs of cron get no such lines."""
    assert run(*inspect).stderr == ""
