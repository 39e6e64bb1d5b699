"""A line on a terminal while work takes time; it is erased when the work is done."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TextIO

import typer

from ._global_options import GlobalOptions
from ._terminal_text import one_line

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
