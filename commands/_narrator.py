"""The demo's output, step by step: colours and a spinner on a terminal, plain lines elsewhere."""

from __future__ import annotations

import re
import shutil
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from rich.console import Console
from rich.text import Text

from ._terminal_text import width

INDENT = "   "
#: Columns of a line at most.
MAX_WIDTH = 96


def continued(line: str, room: int) -> list[str]:
    """A command in lines of at most ``room`` columns if its words allow; each but the last ends in a backslash.

    An option stays with its value, and a redirection with its file.
    """
    words: list[str] = []
    for word in re.findall(r"""(?:'[^']*'|"[^"]*"|\S)+""", line):  # as shlex.join quotes
        lonely = words and re.fullmatch(r">|-[^ ]*", words[-1])
        if words and (word == "&" or (lonely and not word.startswith(("-", ">")))):
            words[-1] += f" {word}"
        else:
            words.append(word)
    lines = [""]
    for word in words:
        longer = f"{lines[-1]} {word}" if lines[-1] else word
        if lines[-1] and len(longer) + 2 > room:
            lines[-1] += " \\"
            longer = f"  {word}"
            lines.append("")
        lines[-1] = longer
    return lines


class _Pipe(Console):
    """A console that raises for a closed pipe: Rich would end the process with another exit code."""

    def on_broken_pipe(self) -> None:
        """Raise the error again, so that callers can clean up."""
        raise


class Narrator:
    """Prints steps, their commands and their results. Rich honours ``NO_COLOR``."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._console = _Pipe(file=stream or sys.stdout, highlight=False, markup=False, emoji=False)
        self._steps = 0
        # A pipe has no width.
        self._columns = shutil.get_terminal_size().columns if self._console.is_terminal else None

    def title(self, text: str) -> None:
        """The first line."""
        self._print(text, "bold")

    def step(self, text: str) -> None:
        """Begin a step."""
        self._steps += 1
        self._print("")
        for number, line in enumerate(self._wrapped(text, INDENT)):
            self._print((f"{self._steps}. " if number == 0 else INDENT) + line, "bold cyan")

    def say(self, text: str, *, indent: str = INDENT) -> None:
        """Print text, wrapped."""
        for line in self._wrapped(text, indent):
            self._print(indent + line)

    def command(self, line: str, prompt: str = "$") -> None:
        """Print a command. A long line is continued with a backslash, so that it can be copied."""
        room = min(self._columns or MAX_WIDTH, MAX_WIDTH) - len(INDENT) - len(prompt) - 1
        for number, piece in enumerate(continued(line, room) if prompt == "$" else [line]):
            self._print(f"{INDENT}{prompt if number == 0 else ' ' * len(prompt)} {piece}", "bold")

    def output(self, text: str) -> None:
        """Print a command's output. A narrow terminal cuts long lines."""
        room = None if self._columns is None else self._columns - len(INDENT)
        for line in text.splitlines():
            cut = room is not None and width(line) > room
            self._print(INDENT + (line[: (room or 0) - 1] + "…" if cut else line.rstrip()))

    def check(self, text: str) -> None:
        """Print a passed check."""
        mark = "✓" if "utf" in self._console.encoding else "ok:"
        self._marked(mark, "bold green", text)

    def failed(self, text: str) -> None:
        """Print a failed check."""
        self._marked("✗" if "utf" in self._console.encoding else "WRONG:", "bold red", text)

    @contextmanager
    def waiting(self, text: str) -> Iterator[None]:
        """Show a spinner on a terminal."""
        if not self._console.is_terminal:
            yield
            return
        with self._console.status(Text(text, style="dim"), spinner="dots"):
            yield

    def _marked(self, mark: str, style: str, text: str) -> None:
        for number, line in enumerate(self._wrapped(text, f"{INDENT}{mark} ")):
            lead = Text(INDENT + (mark if number == 0 else " " * len(mark)), style=style)
            self._console.print(lead.append(f" {line}", style="default not bold"), soft_wrap=True)

    def _wrapped(self, text: str, indent: str) -> list[str]:
        room = min(self._columns or MAX_WIDTH, MAX_WIDTH) - len(indent)
        return textwrap.wrap(text, max(room, 20), break_on_hyphens=False)

    def _print(self, line: str, style: str = "") -> None:
        self._console.print(Text(line, style=style), soft_wrap=True)
