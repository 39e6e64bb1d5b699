"""Answers to TAB: the words for the end of a command line, in the format of bash, zsh or fish.

An answer never hangs, fails or prints an error. What servers do not tell within a second is not offered.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import sys
import textwrap
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple, NoReturn

import typer
from typer.core import TyperGroup

from zkgroup.errors import ZkgroupError

from ._error_output import PROGRAM

COMPLETE_VARIABLE: Final = "_ZKGROUP_COMPLETE"  # complete_SHELL
LINE_VARIABLE: Final = "_TYPER_COMPLETE_ARGS"  # the line up to the cursor
#: Words of a metavar that allow the name of a file.
_FILES: Final = ("FILE", "FOLDER", "URI")
_LONGEST_HELP: Final = 60  # characters; zsh's menu breaks longer lines


class Word(NamedTuple):
    """A word to offer, and its help, which may be empty."""

    value: str
    help: str = ""


def answer(command: Any, shell: str, line: str) -> NoReturn:
    """Print the words for the end of ``line`` and end the process, even if its threads still wait.

    The exit code is 1 where the shell is to offer the names of files, else 0. stderr is closed, also for libraries.
    """
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    code = 1
    try:
        words, files = complete(command, line)
        sys.stdout.write(_FORMATS[shell](words, files))
        sys.stdout.flush()
        code = int(files)
    finally:
        os._exit(code)


def complete(command: Any, line: str) -> tuple[list[Word], bool]:
    """The words for the end of ``line``. True if there are none and the name of a file may stand there."""
    typed = _split(line)[1:]
    last = typed.pop() if typed and not line.endswith(" ") else ""
    option, equals, value = last.partition("=") if last.startswith("--") else ("", "", last)
    if equals:
        typed.append(option)
    else:
        option, value = "", last
    context = _context(command, PROGRAM, typed)
    parameter = _parameter(context, typed, value)
    if parameter is not None:
        metavar = parameter.metavar or ""
        words = _shortened(parameter.shell_complete(context, value))
        return [Word(option + equals + word.value, word.help) for word in words], not words and _is_file(metavar, value)
    names = getattr(context.command, "command_lines", None)
    if names is not None and not value.startswith("-"):
        known = [*names(), *(context.command.alias_lines() if value else ())]
        return [Word(name, _short(help)) for name, help in known if name.startswith(value)], False
    return _shortened(context.command.shell_complete(context, value)), False


def _split(line: str) -> list[str]:
    """The words of a line as a shell reads it; a quote at its end may be open."""
    reader = shlex.shlex(line, posix=True)
    reader.whitespace_split, reader.commenters = True, ""
    words: list[str] = []
    try:
        words.extend(reader)
    except ValueError:
        words.append(reader.token)
    return words


def _context(command: Any, name: str, words: Sequence[str], parent: Any = None) -> Any:
    context = command.make_context(name, list(words), parent=parent, resilient_parsing=True)
    if isinstance(command, TyperGroup):
        _, rest, _ = command.make_parser(context).parse_args(list(words))
        below = command.get_command(context, rest[0]) if rest else None
        if below is not None:
            return _context(below, rest[0], rest[1:], context)
    return context


def _parameter(context: Any, words: Sequence[str], value: str) -> Any:
    """The option or argument that ``value`` belongs to; None for the name of an option or command."""
    ended = "--" in words
    if value.startswith("-") and not ended:
        return None
    arguments = []
    for parameter in context.command.get_params(context):
        if parameter.param_type_name == "argument":
            arguments.append(parameter)
        elif words and words[-1] in parameter.opts and not ended and not (parameter.is_flag or parameter.count):
            return parameter
    return next((one for one in arguments if one.nargs == -1 or not context.params.get(one.name)), None)


def _is_file(metavar: str, value: str) -> bool:
    """True if the name of a file may begin with ``value``. A colon or ``@`` begins another alternative of the metavar:
    ``TOPIC:PARTITION=OFFSET``, ``@TIME``, ``s3://BUCKET``."""
    other = ("|" in metavar or "URI" in metavar) and (":" in value or value.startswith("@"))
    return not other and any(word in metavar for word in _FILES)


def _shortened(items: Sequence[Any]) -> list[Word]:
    return [Word(item.value, _short(item.help or "")) for item in items]


def _short(help: str) -> str:
    return textwrap.shorten(help.partition(" [")[0], _LONGEST_HELP, placeholder=" …")


def _zsh(words: Sequence[Word], files: bool) -> str:
    """A command that zsh evaluates."""
    if not words:
        return "_files\n" if files else ":\n"
    escapes = str.maketrans({'"': '""', "'": "''", "$": "\\$", "`": "\\`", ":": "\\\\:"})
    items = (":".join(f'"{part.translate(escapes)}"' for part in word if part) for word in words)
    return "_arguments '*: :((" + "\n".join(items) + "))'\n"


_FORMATS: Final[dict[str, Callable[[Sequence[Word], bool], str]]] = {
    "bash": lambda words, files: "".join(f"{word.value}\n" for word in words),
    "zsh": _zsh,
    "fish": lambda words, files: "".join("\t".join(filter(None, word)) + "\n" for word in words),
}


TIMEOUT: Final = 0.6  # seconds; starting up takes its share of the second
_SAFE = re.compile(r"[A-Za-z0-9._:,-]+", re.ASCII)


def complete_group(ctx: typer.Context, incomplete: str) -> list[str]:
    """Groups in the ZooKeeper, and at the brokers, that the line so far, the environment or a profile names."""
    return _safe(_within(TIMEOUT, lambda offered: _groups(ctx, offered)), incomplete)


def complete_topic(ctx: typer.Context, incomplete: str) -> list[str]:
    from zkgroup.protocol import znodes

    return _safe(_within(TIMEOUT, lambda offered: _children(ctx, offered, znodes.topics())), incomplete)


def complete_words(*words: str) -> Callable[[str], list[str]]:
    return lambda incomplete: _safe(words, incomplete)


def complete_finding(incomplete: str) -> list[str]:
    from zkgroup.groups.findings.finding_kinds import KINDS

    return _safe(KINDS, incomplete)


def complete_member(ctx: typer.Context, incomplete: str) -> list[str]:
    """Members, in ZooKeeper, of the group that the line names."""
    from zkgroup.protocol import znodes

    # Where an option has no value yet, arguments are not dealt out: the group is the first of them.
    group = ctx.params.get("group") or next(iter(ctx.args), None)
    if not isinstance(group, str):
        return []
    return _safe(_within(TIMEOUT, lambda offered: _children(ctx, offered, znodes.ids(group))), incomplete)


def complete_cluster(incomplete: str) -> list[str]:
    """Profiles of ``config.toml``, and the sandboxes."""
    from zkgroup.config.profiles import config_file, read_profiles
    from zkgroup.sandbox.sandbox_state import sandbox_names

    try:
        path, must_exist = config_file(os.environ)
        known = list(read_profiles(path, must_exist=must_exist))
    except ZkgroupError:
        known = []
    return _safe([*known, "sandbox", *(f"sandbox:{name}" for name in sandbox_names() if name != "default")], incomplete)


def complete_sandbox(incomplete: str) -> list[str]:
    """Sandboxes that have left a trace."""
    from zkgroup.sandbox.sandbox_state import sandbox_names

    return _safe(sandbox_names(), incomplete)


def complete_release(incomplete: str) -> list[str]:
    from zkgroup.sandbox.kafka_releases import RELEASES

    return _safe(RELEASES, incomplete)


def _children(ctx: typer.Context, offered: list[str], path: str) -> None:
    from zkgroup.clients.zookeeper.registry import names_in
    from zkgroup.protocol.operations import Children

    from ._context import connection, open_registry

    with open_registry(connection(ctx, quiet=True, ask=False)) as registry:
        offered.extend(names_in(registry.read([Children(path)])[0]))


def _groups(ctx: typer.Context, offered: list[str]) -> None:
    """Those in ZooKeeper, as soon as they are known, and those at the brokers."""
    from zkgroup.clients.kafka.group_coordinator import Coordinators
    from zkgroup.groups.snapshot.znode_reader import group_names

    from ._context import connection
    from ._group_views import brokers_of, open_stores

    settings = connection(ctx, quiet=True, ask=False)
    with open_stores(settings, None) as (registry, _):
        if registry is not None:
            offered.extend(group_names(registry))
        kafka = brokers_of(settings, registry)()
    offered.extend(Coordinators(kafka, TIMEOUT).names().names)


def _within(seconds: float, collect: Callable[[list[str]], object]) -> list[str]:
    """What ``collect`` has put into its list by then. Its thread is abandoned: the process is about to end."""

    def run() -> None:
        try:
            with contextlib.suppress(ZkgroupError):  # a TAB has nowhere to complain
                collect(offered)
        finally:
            over.set()

    offered: list[str] = []
    over = threading.Event()
    threading.Thread(target=run, name="zkgroup-complete", daemon=True).start()
    over.wait(seconds)
    return list(offered)


def _safe(names: Iterable[str], incomplete: str) -> list[str]:
    return sorted({name for name in names if name.startswith(incomplete) and _SAFE.fullmatch(name)})
