"""The real shells on a terminal, as people use them: to type a line, press TAB and see what becomes of it."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import subprocess
import termios
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from support import wait_until

_ESCAPES = re.compile(rb"\x1b(\[[0-9;?>=]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)|[()][A-Z0-9]|[=>78cM])|[\x00\x0f]")
#: To the beginning of the line, in every shell's usual (emacs) keys; and what drops a line.
_HOME, _DROP = b"\x01", b"\x15"

COMMANDS: Mapping[str, tuple[str, ...]] = {
    "bash": ("bash", "--noprofile", "-i"),
    "zsh": ("zsh", "-i"),
    "fish": ("fish", "-i"),
}


class Terminal:
    """A shell on a terminal of 200 columns."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._shown = b""

    def send(self, keys: bytes) -> None:
        os.write(self._descriptor, keys)

    def wait_for(self, expression: str, timeout: float = 30.0) -> str:
        """Wait until what is shown since the last time matches; returns what the first group matched."""
        deadline = time.monotonic() + timeout
        while True:
            plain = _ESCAPES.sub(b"", self._shown).decode(errors="replace")
            if found := re.search(expression, plain):
                self._shown = b""
                return found[1]
            assert time.monotonic() < deadline, f"{expression} is not shown: {plain!r}"
            if select.select([self._descriptor], [], [], 0.1)[0]:
                self._shown += os.read(self._descriptor, 65536)

    def tab(self, line: str) -> list[str]:
        """The words of ``line`` after TAB was pressed at its end: they are handed to printf instead of being run."""
        self._shown = b""
        self.send(line.encode() + b"\t" + _HOME + b"printf '[%s]' 'so' " + b"\n")
        words = self.wait_for(r"(\[so\](?:\[[^\]\n]*\])+)")
        return re.findall(r"\[([^\]]*)\]", words)[1:]

    def completes(self, line: str, words: str) -> None:
        """Wait until TAB makes ``words`` of ``line``: on a busy machine a TAB may come to nothing, which it says."""
        wait_until(lambda: self.tab(line) == words.split(), 60, f"{line!r} becomes {words!r}")


@contextmanager
def shell(name: str, env: Mapping[str, str]) -> Iterator[Terminal]:
    """A shell that has read its configuration in the environment's HOME."""
    ours, theirs = pty.openpty()
    os.set_blocking(ours, True)
    subprocess.run(["stty", "cols", "200", "rows", "50"], stdin=theirs, check=True)
    with subprocess.Popen(
        COMMANDS[name],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=dict(env),
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # fish insists on a terminal of its own
    ) as process:
        os.close(theirs)
        terminal = Terminal(ours)
        try:
            terminal.send(b"printf '[%s]' 'rea'dy\n")
            terminal.wait_for(r"(\[ready\])")
            yield terminal
        finally:
            process.kill()
            os.close(ours)


def home_of(folder: Path, zkgroup: str, environment: Mapping[str, str]) -> dict[str, str]:
    """The environment of a person whose home is ``folder``, and whose PATH has ``zkgroup``."""
    kept = {name: value for name, value in environment.items() if not name.startswith(("XDG_", "ZDOTDIR", "BASH_"))}
    path = f"{Path(zkgroup).parent}:{environment['PATH']}"
    return kept | {"HOME": str(folder), "PATH": path, "TERM": "xterm", "EDITOR": "emacs", "LC_ALL": "C.UTF-8"}
