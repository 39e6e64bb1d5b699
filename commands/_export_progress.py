"""The progress bar of an export, on stderr, for people only."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

    from zkgroup.export.run.run_export import Progress


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
        if self._bar is None:
            self.clear()
            self._bar = _bar()
            self._bar.add_task("exporting", total=None, size="")
            self._bar.start()
        size = _size(progress.bytes) if progress.bytes else ""
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


def _size(count: int) -> str:
    value = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit in ("B", "kB") else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"
