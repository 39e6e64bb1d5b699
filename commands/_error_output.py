"""The one place where errors become a line on stderr and an exit code."""

from __future__ import annotations

import contextlib
import io
import os
import select
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TextIO

import typer

from zkgroup.errors import Notice, Remedy, ZkgroupError, did_you_mean, notices_of, unwrap_system_error
from zkgroup.text import error_text

from ._signals import Terminated, exit_code_of
from ._terminal_text import one_line

PROGRAM = "zkgroup"


def exit_code_for(
    work: Callable[[], object],
    verbosity: Callable[[], int],
    settled: Callable[[], None] = lambda: None,
    failed: Callable[[str], int] | None = None,
    render: Callable[[str | Notice | Remedy | ZkgroupError], str] = str,
) -> int:
    """Run ``work`` and return the exit code; an error is one line on stderr.

    An int that ``work`` returns is the code. A reader that closed our stdout is no error. ``verbosity`` of 2 shows the
    traceback of an unexpected error. ``settled`` is called when ``work`` is over. ``failed`` is given the failure as
    text, and returns the code for it. ``render`` makes one line of an error or a notice.
    """
    _ready_streams()
    try:
        result = work()
        with printing(sys.stdout):
            sys.stdout.flush()
        settled()
        code = result if type(result) is int else 0
    except BaseException as raised:  # noqa: BLE001  # the process ends here, and _settle says why
        settled()
        found = unwrap_system_error(raised)
        error = found if isinstance(found, KeyboardInterrupt | Terminated) else raised
        code = _settle(error, verbosity, render)
        # A verdict without a reader is still not OK.
        if failed is not None and (code or isinstance(error, BrokenPipeError)):
            code = failed((render(error) if isinstance(error, ZkgroupError) else str(error)) or type(error).__name__)
    _close_stdout()
    return code


def _settle(error: BaseException, verbosity: Callable[[], int], render: Callable[[Any], str]) -> int:
    match error:
        case typer.Exit():
            return error.exit_code
        case SystemExit():
            return error.code if isinstance(error.code, int) else int(error.code is not None)
        case KeyboardInterrupt() | Terminated():
            if notices := notices_of(error):
                say(f"interrupted: {'; '.join(map(render, notices))}")  # what was done by then
            return exit_code_of(error.signum if isinstance(error, Terminated) else signal.SIGINT)
        case BrokenPipeError() if reader_is_gone(1) or reader_is_gone(2):
            return 0
        case ZkgroupError():
            say(render(error))
            return error.exit_code
        case typer.TyperException():
            say(_usage(error))
            return error.exit_code
        case typer.Abort() | EOFError():
            say("aborted")
            return 1
        case OSError() if error.strerror:
            if verbosity() >= 2:
                traceback.print_exception(error)
            say(f"{error.filename or 'input or output failed'}: {error.strerror}")
            return 1
        case Exception():
            if verbosity() >= 2:
                traceback.print_exception(error)
            what = ": ".join(filter(None, (type(error).__name__, error_text(error))))
            say(f"unexpected {what}: run it with -vv to see where")
            return 1
        case _:
            raise error


@contextlib.contextmanager
def printing(stream: TextIO) -> Iterator[None]:
    """An error of writing to stdout says so: else it reads as if it were of the command's own files."""
    try:
        yield
    except OSError as error:
        if stream is sys.stdout and error.filename is None:
            error.filename = "standard output"
        raise


def say(message: str, *, kind: str = "") -> None:
    """One line on stderr: ``zkgroup: message``, or ``zkgroup: warning: message``."""
    # stderr may be closed: the exit code remains.
    with contextlib.suppress(OSError):
        sys.stderr.write(f"{PROGRAM}: {kind and kind + ': '}{one_line(message)}\n")
        sys.stderr.flush()


def _usage(error: typer.TyperException) -> str:
    """What was wrong on the command line, and where its help is."""
    context = getattr(error, "ctx", None)
    remedy = f"see '{context.command_path if context is not None else PROGRAM} --help'"
    option = getattr(error, "option_name", None)
    if option is None or context is None or not hasattr(error, "possibilities"):
        message = error.format_message().rstrip(".")
    else:  # the parser's own suggestions are far-fetched
        message = error.message
        known = [name for parameter in context.command.params for name in (*parameter.opts, *parameter.secondary_opts)]
        remedy = did_you_mean(option, [name for name in known if name.startswith("--")], remedy)
    return f"{message[:1].lower()}{message[1:]}: {remedy}"


def reader_is_gone(descriptor: int) -> bool:
    """Whether the reader of our stdout or stderr has closed it: not every broken pipe is one of these."""
    poll = select.poll()
    try:
        poll.register(descriptor, 0)
        return any(event & (select.POLLERR | select.POLLHUP | select.POLLNVAL) for _, event in poll.poll(0))
    except OSError:
        return True


def _ready_streams() -> None:
    """stdout takes any text, in UTF-8 unless a terminal wants something else; a closed one takes it to nowhere."""
    # What is closed would be taken by the next file or connection that is opened, and written to as if it were ours.
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest that is free
    if sys.stdin is None:
        sys.stdin = Path(os.devnull).open(encoding="utf-8")  # noqa: SIM115  # lives as long as the process
    if sys.stdout is None:
        sys.stdout = _Closed()
    if sys.stderr is None:
        sys.stderr = _Closed()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding=None if stream.isatty() else "utf-8", errors="backslashreplace")


class _Closed(io.TextIOWrapper):
    """In place of a stream that was closed before we began: it takes anything, to nowhere."""

    def __init__(self) -> None:
        super().__init__(Path(os.devnull).open("wb"), encoding="utf-8")  # noqa: SIM115  # lives as long as the process


def stdout_descriptor() -> int:
    """Where to write data that must not get lost. Raises ZkgroupError where stdout was closed."""
    if isinstance(sys.stdout, _Closed):
        raise ZkgroupError("stdout is closed", "let it lead somewhere, /dev/null if nobody wants what is printed")
    return sys.stdout.fileno()


def _close_stdout() -> None:
    """Write out what is buffered; a closed output must not make the interpreter complain when it ends."""
    try:
        sys.stdout.flush()
    except (OSError, KeyboardInterrupt, Terminated):
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
