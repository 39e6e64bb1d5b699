"""A line on a terminal while work takes time; it is erased when the work is done."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, TextIO

import typer

from ._rendering import GlobalOptions
from ._terminal_text import one_line

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

    from zkgroup.export.run.run_export import Progress

#: Seconds until the line appears, and between its updates.
DELAY = 1.0
INTERVAL = 0.5
ERASE = "\r\x1b[K"


def rewrites(stream: TextIO) -> bool:
    """True for a terminal that can overwrite a line."""
    return stream.isatty() and (os.environ.get("TERM") or "dumb") != "dumb"


@contextmanager
def working(ctx: typer.Context, what: str) -> Iterator[None]:
    """Print ``what`` and the elapsed seconds on stderr after the first second. Nothing else may be printed meanwhile.

    Prints nothing with ``--quiet``, with ``-v``, and if stderr is no terminal that can overwrite a line.
    """
    given = ctx.ensure_object(GlobalOptions)
    if not rewrites(sys.stderr) or given.quiet or given.verbosity:
        yield
        return
    done = threading.Event()
    thread = threading.Thread(target=_show, args=(one_line(what), done), name="working", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _show(what: str, done: threading.Event) -> None:
    began = time.monotonic()
    if done.wait(DELAY):
        return
    with suppress(OSError):  # the terminal may be gone
        while True:
            sys.stderr.write(f"{ERASE}zkgroup: {what} … {time.monotonic() - began:.0f} s")
            sys.stderr.flush()
            if done.wait(INTERVAL):
                break
        sys.stderr.write(ERASE)
        sys.stderr.flush()


#: Columns. Narrower terminals have room for the figures alone, up to billions of messages.
_WIDE = 64


class ProgressBar:
    """A line on a terminal that is written over, and gone in the end; nothing at all where ``shown`` is false.

    A stage first; then messages, bytes written, and the time that is left.
    """

    def __init__(self, *, shown: bool) -> None:
        self._shown = shown
        self._words = False
        self._bar: Bar | None = None

    def show(self, progress: Progress) -> None:
        if not self._shown:
            return
        if progress.stage == "exporting":
            self._count(progress)
            return
        self.clear()
        sys.stderr.write(f"\r\x1b[K{progress.stage}")
        sys.stderr.flush()
        self._words = True

    def _count(self, progress: Progress) -> None:
        from rich.filesize import decimal

        if self._bar is None:
            self.clear()
            self._bar = _bar()
            self._bar.add_task("exporting", total=None, size="")
            self._bar.start()
        size = decimal(progress.bytes) if progress.bytes else ""
        # Tasks report each range, of a million messages or so, at its end: until then just a sign of life.
        total = progress.total if progress.done else None
        self._bar.update(self._bar.task_ids[0], completed=progress.done, total=total, size=size)

    def clear(self) -> None:
        """Wipe it; what is printed next begins on a line of its own."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None
        if self._words:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
            self._words = False


def _bar() -> Bar:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, TextColumn, TimeRemainingColumn
    from rich.table import Column

    console = Console(stderr=True)
    whole = Column(no_wrap=True)  # a number that is cut is another one
    figures: list[ProgressColumn] = [
        MofNCompleteColumn(table_column=whole),
        TextColumn("{task.fields[size]}"),
        TimeRemainingColumn(),
    ]
    if console.width >= _WIDE:
        figures = [TextColumn("{task.description}"), BarColumn(), *figures]
    return Progress(*figures, console=console, transient=True, refresh_per_second=4)
