"""The demo's output, step by step: colours and a spinner on a terminal, plain lines elsewhere."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from rich.console import Console
from rich.text import Text

from ._terminal_text import fit

INDENT = "   "
#: Columns of a line at most.
MAX_WIDTH = 96


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
        self._print(text, "bold")

    def step(self, text: str) -> None:
        self._steps += 1
        self._print("")
        for number, line in enumerate(self._wrapped(text, INDENT)):
            self._print((f"{self._steps}. " if number == 0 else INDENT) + line, "bold cyan")

    def say(self, text: str, *, indent: str = INDENT) -> None:
        """Print text, wrapped."""
        for line in self._wrapped(text, indent):
            self._print(indent + line)

    def command(self, line: str, prompt: str = "$") -> None:
        """Print a command, on one line, so that it can be copied."""
        self._print(f"{INDENT}{prompt} {line}", "bold")

    def output(self, text: str) -> None:
        """Print a command's output. A narrow terminal cuts long lines."""
        for line in text.splitlines():
            self._print((INDENT + (line if self._columns is None else fit(line, self._columns - len(INDENT)))).rstrip())

    def check(self, text: str) -> None:
        self._marked("✓", "bold green", text)

    def failed(self, text: str) -> None:
        self._marked("✗", "bold red", text)

    @contextmanager
    def waiting(self, text: str) -> Iterator[None]:
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
