"""The group of all commands: it imports a command when it is called, and ends the process with its exit code."""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from zkgroup.errors import UsageError, did_you_mean

from ._completion import COMPLETE_VARIABLE, LINE_VARIABLE, answer
from ._error_output import PROGRAM, configure_logging, exit_code_for, is_check, print_unknown
from ._shared_options import CONNECTION, LOGGING, SECURITY, GlobalOptions, connection_parameters, logging_parameters
from ._signals import end_by_signals, raise_on_signals

SECURITY_NOTE = (
    "'zkgroup --help' lists the options for TLS, users and access lists. They, too, stand before or after the name."
)


@dataclass(frozen=True, slots=True)
class Lazy:
    """A command that is imported when it is called: the function of its name in the module of its name, or the module's
    ``app``, a ``typer.Typer`` with commands of its own. ``connects``: whether it takes the connection options."""

    name: str
    help: str
    connects: bool = True
    aliases: tuple[str, ...] = ()


class _Titled:
    """Help whose examples (the paragraphs that begin with ``\\b``) stand under a title of their own."""

    help: str | None

    def format_help_text(self, ctx: Any, formatter: Any) -> None:
        paragraphs = inspect.cleandoc(self.help or "").split("\n\n")
        words = [paragraph for paragraph in paragraphs if not paragraph.startswith("\b")]
        formatter.write_paragraph()
        with formatter.indentation():
            formatter.write_text("\n\n".join(words))
        for examples in paragraphs:
            if examples.startswith("\b"):
                with formatter.section("Examples"):
                    formatter.write_text(examples)


class ZkCommand(_Titled, TyperCommand):
    """A command with ``-v`` and ``--quiet``; its help groups the options by what they are for."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command. An int that it returns is the exit code."""
        configure_logging(ctx.ensure_object(GlobalOptions))
        raise_on_signals()
        return super().invoke(ctx)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """The usage without the braces that Typer puts around required arguments."""
        pieces: list[str] = super().collect_usage_pieces(ctx)
        return [piece[1:-1] if piece[:1] + piece[-1:] == "{}" else piece for piece in pieces]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        write_sections(self, ctx, formatter)


def help_sections(command: Any, ctx: Any) -> dict[str, list[tuple[str, str]]]:
    """The help of a command's parameters by the title of their section: its own ones first, then the shared ones."""
    sections: dict[str, list[tuple[str, str]]] = {}
    for param in command.get_params(ctx):
        record = param.get_help_record(ctx)
        if record is not None:
            argument = param.param_type_name == "argument"
            title = "Arguments" if argument else getattr(param, "rich_help_panel", None) or "Options"
            sections.setdefault(title, []).append(record)
    shared = ("Options", CONNECTION, *SECURITY, LOGGING) if ctx.parent is None else (CONNECTION, LOGGING)
    if ctx.parent is not None:
        for title in SECURITY:
            sections.pop(title, None)
    return {
        title: sections[title] for title in sorted(sections, key=lambda title: (title != "Arguments", title in shared))
    }


def write_sections(command: Any, ctx: Any, formatter: Any) -> None:
    """Write the help of a command's parameters. Only ``zkgroup --help`` shows the security options."""
    for title, records in help_sections(command, ctx).items():
        with formatter.section(title):
            formatter.write_dl(records)
        if title == CONNECTION and ctx.parent is not None:
            with formatter.indentation():
                formatter.write_text(SECURITY_NOTE)


class SubGroup(_Titled, TyperGroup):
    """A command that is a group of commands."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command. Raises ``UsageError`` with a similar name."""
        command = self.get_command(ctx, args[0])
        if command is None and not ctx.resilient_parsing:
            remedy = did_you_mean(args[0], self.list_commands(ctx), f"see '{ctx.command_path} --help'")
            raise UsageError(f"no command {args[0]!r}", remedy)
        return command and args[0], command, args[1:]


class ZkGroup(SubGroup):
    """The group of all commands. ``table`` lists them; subclasses set it."""

    table: tuple[Lazy, ...] = ()

    def __init__(self, *, params: list[Any] | None = None, **settings: Any) -> None:
        shared = [*connection_parameters(), *logging_parameters()]
        super().__init__(params=[*(params or []), *shared], **settings)

    def list_commands(self, ctx: Any) -> list[str]:
        return [lazy.name for lazy in self.table]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        for lazy in self.table:
            if cmd_name == lazy.name or cmd_name in lazy.aliases:
                return load(lazy)
        return None

    def format_options(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(self.command_lines())
        aliases = [f"{', '.join(lazy.aliases)} ({lazy.name})" for lazy in self.table if lazy.aliases]
        formatter.write_paragraph()
        with formatter.indentation():
            formatter.write_text(f"Aliases: {'; '.join(aliases)}.")
        write_sections(self, ctx, formatter)

    def command_lines(self) -> list[tuple[str, str]]:
        """The name and the help of each command, from the table: no command is imported."""
        return [(lazy.name, lazy.help) for lazy in self.table]

    def alias_lines(self) -> list[tuple[str, str]]:
        """The aliases that are no beginning of their command's name, and the help of each."""
        lines = [(alias, lazy) for lazy in self.table for alias in lazy.aliases]
        return [(alias, f"{lazy.name}: {lazy.help}") for alias, lazy in lines if not lazy.name.startswith(alias)]

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """Parse and run the command, and end the process with the exit code."""
        arguments = list(sys.argv[1:] if args is None else args)
        given = GlobalOptions()

        def work() -> object:
            # Typer's own handling of errors prints several lines.
            if shell := os.environ.get(COMPLETE_VARIABLE):
                configure_logging(GlobalOptions(quiet=True))
                answer(self, shell.removeprefix("complete_"), os.environ.get(LINE_VARIABLE, ""))
            with self.make_context(PROGRAM, arguments, obj=given, **extra) as ctx:
                return self.invoke(ctx)

        failed = print_unknown if is_check(arguments) else None
        sys.exit(exit_code_for(work, given, settled=end_by_signals, failed=failed))


@cache
def load(lazy: Lazy) -> Any:
    """Import a command and make it one of Typer's, with the shared options added."""
    name = lazy.name.replace("-", "_")
    module = importlib.import_module(f"{__package__}.{name}")
    found = getattr(module, "app", None) or getattr(module, name)
    if isinstance(found, typer.Typer):
        found.rich_markup_mode = None
        for info in found.registered_commands:
            info.cls = ZkCommand
        found.info.cls = SubGroup
        command = typer.main.get_group(found)
        commands = list(command.commands.values())
    else:
        app = typer.Typer(add_completion=False, rich_markup_mode=None)
        app.command(lazy.name, cls=ZkCommand)(found)
        command = typer.main.get_command(app)  # type: ignore[assignment]
        commands = [command]
    for one in commands:
        one.params += [*(connection_parameters() if lazy.connects else ()), *logging_parameters()]
    command.name = lazy.name
    return command
