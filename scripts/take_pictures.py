"""Take the pictures in ``docs/pictures``: real commands on a sandbox, on terminals of several widths, as SVG.

Usage: ``take_pictures.py [NAME…]``. What a command prints on a pseudo-terminal is drawn as a terminal would show it:
lines that are wider than it are broken at its edge. Nothing is drawn by hand.
"""

from __future__ import annotations

import io
import os
import pty
import re
import shlex
import struct
import subprocess
import sys
import tempfile
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fcntl import ioctl
from pathlib import Path

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.cells import cell_len
from rich.console import Console
from rich.terminal_theme import DIMMED_MONOKAI, TerminalTheme
from rich.text import Text

from zkgroup.config.setting_files import STATE_VARIABLE
from zkgroup.protocol import znodes
from zkgroup.protocol.operations import Create, Ensure
from zkgroup.sandbox.local_cluster import Sandbox
from zkgroup.sandbox.processes import wait_for
from zkgroup.sandbox.sandbox_state import stop

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "pictures"
LIGHT = TerminalTheme(
    (255, 255, 255),
    (36, 41, 47),
    [
        (36, 41, 47),
        (164, 14, 38),
        (17, 99, 41),
        (112, 72, 0),
        (9, 80, 176),
        (110, 50, 170),
        (20, 110, 120),
        (90, 96, 104),
    ],
    [
        (87, 96, 106),
        (190, 30, 45),
        (26, 127, 55),
        (130, 85, 0),
        (20, 100, 200),
        (130, 70, 190),
        (30, 130, 140),
        (0, 0, 0),
    ],
)
THEMES = {"dark": DIMMED_MONOKAI, "light": LIGHT, "plain": LIGHT}
#: No font is fetched from anywhere: a picture shows with what is there.
FORMAT = re.sub(r"@font-face \{\{.*?\}\}\s*", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL).replace(
    "Fira Code, monospace", "DejaVu Sans Mono, Menlo, Consolas, monospace"
)

OVERVIEW = ("zkgroup -c sandbox list-groups", "zkgroup -c sandbox inspect-group audit")
PLAN = (
    "zkgroup -c sandbox assign shop --member shop_new=orders:1",
    "zkgroup -c sandbox reset-offsets archive --topic orders --by-duration PT1H",
)


@dataclass(frozen=True)
class Picture:
    """Commands on a terminal of so many columns. ``look``: dark, light, or plain (no colours: ``NO_COLOR``)."""

    name: str
    commands: tuple[str, ...]
    columns: int
    look: str


PICTURES = [
    *(Picture(f"overview-{look}", OVERVIEW, 100, look) for look in ("dark", "light")),
    *(Picture(f"{name}-{columns}-{look}", commands, columns, look)
      for name, commands in (("inspect", OVERVIEW[1:]), ("plan", PLAN))
      for columns, look in ((80, "dark"), (80, "light"), (80, "plain"), (200, "dark"), (200, "light"))),
]  # fmt: skip


def printed(command: str, columns: int, env: dict[str, str]) -> str:
    """What a command prints on a terminal of so many columns."""
    ours, theirs = pty.openpty()
    ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    arguments = [sys.executable, "-m", "zkgroup", *shlex.split(command)[1:]]
    with subprocess.Popen(arguments, stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs, env=env) as process:
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
        process.wait(60)
    return shown.decode().replace("\r\n", "\n")


def folded(line: Text, columns: int) -> Iterator[Text]:
    """A line as a terminal breaks it: where the next character has no room."""
    cuts, room = [], 0
    for index, char in enumerate(line.plain):
        room += cell_len(char)
        if room > columns:
            cuts.append(index)
            room = cell_len(char)
    yield from line.divide(cuts) if cuts else [line]


def draw(picture: Picture) -> str:
    """The picture, as SVG."""
    env = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLUMNS")}
    env |= {"TERM": "xterm-256color", "COLORTERM": "truecolor", "ZKGROUP_CONFIG": os.devnull}
    if picture.look == "plain":
        env["NO_COLOR"] = "1"
    console = Console(
        record=True, width=picture.columns, file=io.StringIO(), force_terminal=True, color_system="truecolor",
        legacy_windows=False,
    )  # fmt: skip
    for number, command in enumerate(picture.commands):
        lines = [Text.assemble(("$ ", "dim"), (command, "bold"))]
        lines += [Text.from_ansi(line) for line in printed(command, picture.columns, env).splitlines()]
        for line in [Text(), *lines] if number else lines:
            for part in folded(line, picture.columns):
                console.print(part, no_wrap=True, overflow="ignore", crop=False, highlight=False)
    return console.export_svg(
        title="zkgroup", theme=THEMES[picture.look], code_format=FORMAT, unique_id=f"zkgroup-{picture.name}"
    )


@contextmanager
def scene() -> Iterator[None]:
    """A sandbox with groups: at work, at rest, one that reads nothing, and one whose name is not Latin."""
    with tempfile.TemporaryDirectory(prefix="zkgroup-pictures-") as state:
        os.environ[STATE_VARIABLE] = state
        with Sandbox() as sandbox, sandbox.registry() as registry:
            quiet = {"check": True, "capture_output": True, "env": {**os.environ, "ZKGROUP_CONFIG": os.devnull}}

            def zkgroup(line: str) -> None:
                subprocess.run([sys.executable, "-m", "zkgroup", *shlex.split(line)], **quiet)  # type: ignore[call-overload]

            zkgroup("sandbox fill orders --partitions 4 --messages 20000")
            zkgroup("sandbox fill payments --partitions 2 --messages 9000")
            zkgroup("-c sandbox reset-offsets archive --topic orders --topic payments --to-latest --execute")
            zkgroup("-c sandbox reset-offsets audit --topic payments --to-offset 1200 --execute")
            for name in ("web-1", "web-2"):
                zkgroup(f"sandbox member orders --group shop --id {name} --from-beginning --detach")
            zkgroup(r"sandbox member --whitelist 'pay\w+' --group audit --id nightly --detach")
            for number in range(4):
                registry.write(Ensure(znodes.offset_topic("集計", "orders")))
                registry.write(Create(f"{znodes.offset_topic('集計', 'orders')}/{number}", b"4990"))

            def settled() -> bool:
                shown = ["-c", "sandbox", "inspect-group", "shop", "--section", "findings", "--output", "json"]
                told = subprocess.run([sys.executable, "-m", "zkgroup", *shown], **quiet).stdout  # type: ignore[call-overload]
                return told.strip() == b"[]"

            wait_for(settled, 60, "the members of shop have not settled")
            yield
            stop(sandbox.name)


def main(names: list[str]) -> int:
    """Take all pictures, or those that are named."""
    FOLDER.mkdir(exist_ok=True)
    with scene():
        for picture in PICTURES:
            if not names or picture.name in names:
                (FOLDER / f"{picture.name}.svg").write_text(draw(picture), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
