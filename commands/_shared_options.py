"""Options that many commands share.

The connection options are made from the table of settings and added to every command that connects. They stand before
or after a command's name; ``GlobalOptions`` collects them.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from functools import cache
from typing import Annotated, Any, Final, TypeAlias

import typer

from zkgroup.config.settings_table import SETTINGS, Setting
from zkgroup.errors import UsageError

from ._completion_values import complete_cluster, complete_group, complete_topic, complete_words
from ._global_options import GlobalOptions
from ._output import Output

#: The sections of help with the connection options, by the sections of the table of settings.
SECTIONS: Final = {
    "connection": "Connection (before or after the command's name)",
    "brokers": "Security of brokers (before or after the command's name)",
    "zookeeper": "Security of ZooKeeper (before or after the command's name)",
}
CONNECTION: Final = SECTIONS["connection"]
SECURITY: Final = (SECTIONS["brokers"], SECTIONS["zookeeper"])
LOGGING: Final = "Messages"
_METAVARS: Final = {"file": "FILE", "secret": "FILE", "choice": "NAME"}


def option(
    *names: str, help: str = "", metavar: str | None = None, panel: str | None = None, complete: Any = None, **more: Any
) -> Any:
    """An option. ``panel``: its section of the help; ``complete``: the function that completes its value."""
    return typer.Option(*names, help=help, metavar=metavar, rich_help_panel=panel, autocompletion=complete, **more)


def parse_key_values(texts: Iterable[str], name: str) -> dict[str, str]:
    """The values of an option that takes ``KEY=VALUE``. Raises ``UsageError``."""
    found = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise UsageError(f"{name} {text[:80]!r} is no KEY=VALUE", "write it as in a properties file")
        found[key.strip()] = value
    return found


OutputOption: TypeAlias = Annotated[
    Output, option("--output", help="Output format; wide: a table with all columns, as wide as it is.")
]
ColumnsOption: TypeAlias = Annotated[
    str | None, option("--columns", metavar="NAME,NAME", help="Only these columns of the rows, in this order.")
]
NoHeaderOption: TypeAlias = Annotated[
    bool, option("--no-header", help="No line with the names of the columns, in tables and CSV.")
]
GroupArgument: TypeAlias = Annotated[
    str,
    typer.Argument(metavar="GROUP", help="The consumer group.", show_default=False, autocompletion=complete_group),
]
OptionalGroupArgument: TypeAlias = Annotated[
    str | None,
    typer.Argument(metavar="[GROUP]", help="The consumer group.", show_default=False, autocompletion=complete_group),
]
TopicsOption: TypeAlias = Annotated[
    list[str] | None,
    option("--topic", metavar="TOPIC", help="Only this topic; repeatable.", complete=complete_topic),
]


@cache
def connection_parameters() -> tuple[Any, ...]:
    """The parameters for the connection options."""

    def declared() -> None: ...

    # Typer reads a function's signature.
    kinds = {one.parameter: _annotation(one) for one in SETTINGS if one.name}
    keyword = inspect.Parameter.KEYWORD_ONLY
    declared.__annotations__ = kinds
    declared.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [inspect.Parameter(name, keyword, default=None, annotation=kinds[name]) for name in kinds]
    )
    return _parameters(declared)


def _annotation(setting: Setting) -> Any:
    is_bool = setting.kind == "bool"
    names = [f"{setting.option}/--no-{setting.name}" if is_bool else setting.option, setting.short]
    declared = option(
        *filter(None, names),
        metavar=None if is_bool else _METAVARS.get(setting.kind, setting.metavar),
        help=_help(setting),
        callback=_collect,
        expose_value=False,
        show_default=False,
        complete=_completion(setting),
        panel=SECTIONS[setting.section],
    )
    kind: Any = bool | None if is_bool else list[str] | None
    return Annotated[kind, declared]


def _help(setting: Setting) -> str:
    parts = [setting.doc]
    if setting.choices:
        parts.append(f"One of {', '.join(setting.choices)}.")
    if setting.kind == "seconds":
        parts.append(f"[default: {setting.default:g}]")
    if setting.in_environment:
        parts.append(f"[env:{setting.variable}{', the secret itself' if setting.kind == 'secret' else ''}]")
    return " ".join(parts)


def _completion(setting: Setting) -> Any:
    if setting.name == "cluster":
        return complete_cluster
    return complete_words(*setting.choices) if setting.choices else None


def _collect(ctx: typer.Context, param: typer.CallbackParam, value: Any) -> Any:
    if param.name is not None and (value or value is False):
        ctx.ensure_object(GlobalOptions).add(param.name, [value] if isinstance(value, bool) else list(value))
    return value


def _count(ctx: typer.Context, value: int) -> int:
    ctx.ensure_object(GlobalOptions).verbosity += value
    return value


def _silence(ctx: typer.Context, value: bool) -> bool:
    options = ctx.ensure_object(GlobalOptions)
    options.quiet = options.quiet or value
    return value


def _declare_logging(
    verbose: Annotated[
        int,
        option(
            "--verbose",
            "-v",
            count=True,
            help="Log what is done; -vv logs more.",
            callback=_count,
            expose_value=False,
            show_default=False,
            panel=LOGGING,
        ),
    ] = 0,
    quiet: Annotated[
        bool,
        option(
            "--quiet", help="No warnings.", callback=_silence, expose_value=False, show_default=False, panel=LOGGING
        ),
    ] = False,
) -> None: ...


def _show_version(ctx: typer.Context, value: bool) -> bool:
    if value and not ctx.resilient_parsing:
        from .version import summary  # reads the installed packages, which takes time

        print(summary())  # noqa: T201  # this is the command's output
        raise typer.Exit
    return value


def declare_root(
    version: Annotated[
        bool,
        option(
            "--version",
            help="Show the versions of zkgroup and its libraries, and exit.",
            is_eager=True,
            callback=_show_version,
        ),
    ] = False,
) -> None:
    """Operate Kafka consumer groups in ZooKeeper.

    Commands that change a group print their plan; --execute carries it out.

    \b
    zkgroup -c sandbox list-groups
    zkgroup -z zk1:2181,zk2:2181/kafka inspect-group billing
    """


def _parameters(declaration: Any) -> tuple[Any, ...]:
    app = typer.Typer(add_completion=False)
    app.command()(declaration)
    return tuple(typer.main.get_command(app).params)


@cache
def logging_parameters() -> tuple[Any, ...]:
    """The parameters for ``-v`` and ``--quiet``."""
    return _parameters(_declare_logging)
