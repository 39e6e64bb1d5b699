"""The one place where errors become text, a line on stderr, and an exit code; and log records, lines on stderr."""

from __future__ import annotations

import contextlib
import io
import logging
import os
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TextIO, TypeAlias

import typer

from zkgroup.errors import Notice, Remedy, ZkgroupError, did_you_mean, notices_of, unwrap_system_error
from zkgroup.text import Command, command_line, error_text

from ._signals import Terminated, exit_code_of
from ._terminal_text import one_line

if TYPE_CHECKING:
    from ._shared_options import GlobalOptions

PROGRAM = "zkgroup"
Message: TypeAlias = str | Notice | Remedy | ZkgroupError

#: Options that say where the servers are, as a person would write them. No user, password or key is among them.
_PLACES: Final = {
    "cluster": "-c",
    "zookeeper": "-z",
    "bootstrap_server": "--bootstrap-server",
    "consumer_config": "--consumer-config",
}
#: The only properties that do.
_PLACE_KEYS: Final = ("zookeeper.connect", "zk.connect")
#: Options that ask for help alone, which needs no servers.
_HELP: Final = frozenset({"--help", "--explain"})
#: The exit code of a Nagios plugin without a verdict.
UNKNOWN = 3


def exit_code_for(
    work: Callable[[], object],
    given: GlobalOptions,
    settled: Callable[[], None] = lambda: None,
    failed: Callable[[str], int] | None = None,
) -> int:
    """Run ``work`` and return the exit code; an error is one line on stderr.

    An int that ``work`` returns is the code. A reader that closed our stdout is no error. ``settled`` is called when
    ``work`` is over. ``failed`` is given the failure as text, and returns the code for it.
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
        code = _settle(error, given)
        # A verdict without a reader is still not OK.
        if failed is not None and (code or isinstance(error, BrokenPipeError)):
            code = failed(
                (render(error, given) if isinstance(error, ZkgroupError) else str(error)) or type(error).__name__
            )
    try:
        sys.stdout.flush()
    except (OSError, KeyboardInterrupt, Terminated):  # or the interpreter would complain of it when it ends
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return code


def _settle(error: BaseException, given: GlobalOptions) -> int:
    match error:
        case typer.Exit():
            return error.exit_code
        case SystemExit():
            return error.code if isinstance(error.code, int) else int(error.code is not None)
        case KeyboardInterrupt() | Terminated():
            if notices := notices_of(error):
                say(f"interrupted: {'; '.join(render(notice, given) for notice in notices)}")  # what was done by then
            return exit_code_of(error.signum if isinstance(error, Terminated) else signal.SIGINT)
        case BrokenPipeError() if reader_is_gone(1) or reader_is_gone(2):
            return 0
        case ZkgroupError():
            say(render(error, given))
            return error.exit_code
        case typer.TyperException():
            say(_usage(error))
            return error.exit_code
        case EOFError():  # at a password
            say("aborted")
            return 1
        case Exception():
            if given.verbosity >= 2:
                traceback.print_exception(error)
            if isinstance(error, OSError) and error.strerror:
                say(f"{error.filename or 'input or output failed'}: {error.strerror}")
            else:
                what = ": ".join(filter(None, (type(error).__name__, error_text(error))))
                say(f"unexpected {what}: run it with -vv to see where")
            return 1
        case _:
            raise error


def is_check(arguments: Sequence[str]) -> bool:
    """Whether a command line asks for a check, however wrong it is otherwise: then nothing but a verdict may end as
    OK, WARNING or CRITICAL do."""
    before = arguments[: arguments.index("--")] if "--" in arguments else arguments
    return "--check" in before and not {"--help", "-h"} & set(before)


def print_unknown(why: str) -> int:
    """Print the line without a verdict; returns the exit code."""
    # stdout may be what failed.
    with contextlib.suppress(OSError):
        sys.stdout.write(f"ZKGROUP UNKNOWN: {plain_line(why)}\n")
        sys.stdout.flush()
    return UNKNOWN


def plain_line(text: str) -> str:
    """The text on one line of a check, without bars, which begin performance data."""
    return one_line(text).replace("|", "¦")


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
    poll.register(descriptor, 0)
    return any(event & (select.POLLERR | select.POLLHUP | select.POLLNVAL) for _, event in poll.poll(0))


def _ready_streams() -> None:
    """stdout takes any text, in UTF-8 unless a terminal wants something else; a closed one takes it to nowhere."""
    # What is closed would be taken by the next file or connection that is opened, and written to as if it were ours.
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest that is free
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115  # lives as long as the process
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding=None if stream.isatty() else "utf-8", errors="backslashreplace")


def stdout_descriptor() -> int:
    """Where to write data that must not get lost. Raises ZkgroupError where stdout was closed."""
    if sys.stdout.name == os.devnull:
        raise ZkgroupError("stdout is closed", "let it lead somewhere, /dev/null if nobody wants what is printed")
    return sys.stdout.fileno()


# The levels of zkgroup and of its libraries. kazoo warns of every dropped connection, which zkgroup reports itself.
_LEVELS = (
    (logging.WARNING, logging.CRITICAL + 1),
    (logging.INFO, logging.CRITICAL + 1),
    (logging.DEBUG, logging.DEBUG),
)
_FORMATS = (
    "zkgroup: %(kind)s: %(message)s",
    "%(asctime)s.%(msecs)03dZ %(levelname)s %(message)s",
    "%(asctime)s.%(msecs)03dZ %(levelname)s %(name)s: %(message)s",
)
LIBRARIES = ("kazoo", "py4j", "pyspark")


class _Formatter(logging.Formatter):
    """One line per record, safe for terminals; with times at ``-v``."""

    converter = staticmethod(time.gmtime)

    def __init__(self, verbosity: int, given: GlobalOptions) -> None:
        super().__init__(_FORMATS[verbosity], "%Y-%m-%dT%H:%M:%S")
        self._given = given

    def format(self, record: logging.LogRecord) -> str:
        record.kind = "warning" if record.levelno < logging.ERROR else "error"
        if isinstance(record.args, tuple):
            record.args = tuple(map(self._rendered, record.args))
        head, *trace = super().format(record).split("\nTraceback ", 1)
        return one_line(head) + "".join(f"\nTraceback {part}" for part in trace)

    def _rendered(self, argument: object) -> object:
        return render(argument, self._given) if isinstance(argument, ZkgroupError | Notice | Remedy) else argument


def configure_logging(given: GlobalOptions) -> None:
    """Let the loggers of zkgroup and of its libraries write to stderr. Calling it again replaces what was set."""
    verbosity = min(given.verbosity, len(_LEVELS) - 1)
    own, libraries = _LEVELS[verbosity]
    if given.quiet:
        own, libraries = logging.ERROR, logging.CRITICAL + 1
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Formatter(verbosity, given))
    for name, level in (("zkgroup", own), *((name, libraries) for name in LIBRARIES)):
        logger = logging.getLogger(name)
        logger.handlers[:] = [handler]
        logger.propagate = False
        # py4j logs all traffic with the JVM, with Spark's properties: secrets.
        logger.setLevel(max(level, logging.WARNING) if name == "py4j" else level)
    # py4j logs every Ctrl-C on the root logger, which prints it unless it has a handler.
    if not logging.getLogger().handlers:
        logging.getLogger().addHandler(logging.NullHandler())


# Errors, notices and remedies → text. Their commands name the servers that this command line has named, so that
# they can be pasted as they are; what the environment and a profile name is there for the pasted command, too.


def render(message: Message, given: GlobalOptions) -> str:
    return message if isinstance(message, str) else message.rendered(lambda command: render_command(command, given))


def render_command(command: Command, given: GlobalOptions) -> str:
    from . import COMMANDS

    connects = {lazy.name for lazy in COMMANDS if lazy.connects}
    is_asking = command[0] in connects and _HELP.isdisjoint(command)
    return command_line(command, place_options(given.values) if is_asking else ())


def of_profile(remedy: Remedy | None, profile: str) -> Remedy | None:
    """The remedy, with commands about the cluster of this profile, which the command line does not name."""
    return remedy and Remedy(remedy.text, *(("-c", profile, *command) for command in remedy.commands))


def place_options(values: Mapping[str, Sequence[Any]]) -> list[str]:
    """The words among ``values`` (by the names of their parameters) that say where the servers are."""
    words: list[str] = []
    for name, option in _PLACES.items():
        for value in dict.fromkeys(values.get(name, ())):
            words += [option, str(value)] if value else []
    for assignment in dict.fromkeys(values.get("property", ())):
        if assignment.partition("=")[0].strip() in _PLACE_KEYS:
            words += ["-X", assignment]
    return words
