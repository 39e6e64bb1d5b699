"""While work takes its time: a line on a terminal that says so, and is gone when the work is done."""

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

#: Work that is done sooner needs no word.
PATIENCE = 1.0
EVERY = 0.5
ERASE = "\r\x1b[K"


def rewrites(stream: TextIO) -> bool:
    """Whether that is a terminal on which a line can be written over."""
    return stream.isatty() and (os.environ.get("TERM") or "dumb") != "dumb"


@contextmanager
def working(ctx: typer.Context, what: str) -> Iterator[None]:
    """Say ``what`` on stderr, with the seconds that have passed, from the first second on.

    Nothing may be printed meanwhile. Where stderr is no terminal that rewrites lines, with ``--quiet``, and with
    ``-v``, which says more, nothing is said.
    """
    given = ctx.ensure_object(GlobalOptions)
    if not rewrites(sys.stderr) or given.quiet or given.verbosity:
        yield
        return
    done = threading.Event()
    teller = threading.Thread(target=_tell, args=(one_line(what), done), name="working", daemon=True)
    teller.start()
    try:
        yield
    finally:
        done.set()
        teller.join()


def _tell(what: str, done: threading.Event) -> None:
    began = time.monotonic()
    if done.wait(PATIENCE):
        return
    with suppress(OSError):  # nobody may look any more
        while True:
            sys.stderr.write(f"{ERASE}zkgroup: {what} … {time.monotonic() - began:.0f} s")
            sys.stderr.flush()
            if done.wait(EVERY):
                break
        sys.stderr.write(ERASE)
        sys.stderr.flush()
