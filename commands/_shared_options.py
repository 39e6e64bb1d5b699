"""Options that many commands share.

The connection options are made from the table of settings and added to every command that connects. They stand before
or after a command's name; ``GlobalOptions`` collects them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, fields
from functools import cache, partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeAlias, get_type_hints

import typer

from zkgroup.config.settings_table import SETTINGS, Setting
from zkgroup.errors import UsageError

from ._completion import complete_cluster, complete_group, complete_topic, complete_words
from ._output import Output

if TYPE_CHECKING:
    from zkgroup.clients.kafka.message_contents import FieldFormat
    from zkgroup.clients.schema_registry import RegistrySettings
    from zkgroup.config import ConnectionSettings
    from zkgroup.schemas.field_schema import FieldSchema

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


@dataclass
class GlobalOptions:
    """The shared options. ``values``: parameter to values in their order, collected while the line is parsed.
    ``answers``: question to the password that was typed."""

    values: dict[str, list[Any]] = field(default_factory=dict)
    verbosity: int = 0
    quiet: bool = False
    answers: dict[str, str] = field(default_factory=dict, repr=False)


def option(
    *names: str, help: str = "", metavar: str | None = None, panel: str | None = None, complete: Any = None, **more: Any
) -> Any:
    """An option. ``panel``: its section of the help; ``complete``: the function that completes its value."""
    return typer.Option(*names, help=help, metavar=metavar, rich_help_panel=panel, autocompletion=complete, **more)


def with_options(name: str, bundle: type[Any], *without: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Give a command the options that are the fields of a dataclass, but for those in ``without``. The command's
    parameter ``name`` gets them as an object of that class."""
    hints = get_type_hints(bundle, include_extras=True)
    keyword = inspect.Parameter.KEYWORD_ONLY
    added = [
        inspect.Parameter(one.name, keyword, default=one.default, annotation=hints[one.name])
        for one in fields(bundle)
        if one.name not in without
    ]

    def declare(command: Callable[..., Any]) -> Callable[..., Any]:
        own = inspect.signature(command, eval_str=True).parameters

        @wraps(command)
        def run(**values: Any) -> Any:
            given = bundle(**{one.name: values.pop(one.name) for one in added})
            return command(**values, **{name: given})

        # Typer reads a function's signature.
        parameters = [*(one.replace(kind=keyword) for one in own.values() if one.name != name), *added]
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        return run

    return declare


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
_group_argument = partial(typer.Argument, help="The consumer group.", show_default=False, autocompletion=complete_group)
GroupArgument: TypeAlias = Annotated[str, _group_argument(metavar="GROUP")]
OptionalGroupArgument: TypeAlias = Annotated[str | None, _group_argument(metavar="[GROUP]")]
TopicsOption: TypeAlias = Annotated[
    list[str] | None,
    option("--topic", metavar="TOPIC", help="Only this topic; repeatable.", complete=complete_topic),
]


@cache
def connection_parameters() -> tuple[Any, ...]:

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
        given = ctx.ensure_object(GlobalOptions).values.setdefault(param.name, [])
        given += [value] if isinstance(value, bool) else value
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
    return _parameters(_declare_logging)


#: In place of a file.
REGISTRY: Final = Path("registry")
FormatOption: TypeAlias = Literal["bytes", "text", "json", "avro"]
#: Those of which there are schemas.
SchemaChoice: TypeAlias = Literal["json", "avro"]


def parse_format(
    name: str, given: FormatOption | None, file: Path | None, *, needs_schema: bool = False
) -> FieldFormat | None:
    """The format of a "key" or "value". Raises ``UsageError`` for options that contradict each other."""
    if file is None:
        if given == "avro" or (given is not None and needs_schema):
            remedy = f"--{name}-schema FILE names it, and --{name}-schema registry takes those of --schema-registry"
            raise UsageError(f"--{name}-format {given} needs a schema", remedy)
        return given
    if given not in ("avro", "json"):
        raise UsageError(f"--{name}-schema is for Avro and JSON", f"add --{name}-format avro, or --{name}-format json")
    return "avro" if given == "avro" else "json-schema"


def read_schema(name: str, wish: FieldFormat | None, file: Path | None) -> FieldSchema | None:
    """The schema in a file, checked to have a column type; without a text, if it is the registry's. Raises
    ``UsageError``."""
    if file is None or (wish != "avro" and wish != "json-schema"):
        return None
    from zkgroup.export.stores.store import require
    from zkgroup.schemas.field_schema import FieldSchema, SchemaError

    require("pyarrow", *(["fastavro"] if wish == "avro" else []), what=f"--{name}-schema", extra="avro")
    if file == REGISTRY:
        return FieldSchema(wish, "")
    try:
        schema = FieldSchema(wish, file.read_text("utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is no text"
        raise UsageError(f"cannot read --{name}-schema {file}: {why}", "name a file with a schema") from None
    from zkgroup.schemas.field_decoder import make_decoder  # pyarrow takes 0.1 s

    try:
        make_decoder(schema)
    except SchemaError as error:
        raise SchemaError(f"--{name}-schema {file}: {error.message}", error.remedy) from None
    return schema


def registry_of(settings: ConnectionSettings, *schemas: FieldSchema | None) -> RegistrySettings | None:
    """How to reach the registry, if one of ``schemas`` is its. Raises ``UsageError``."""
    if not any(schema is not None and not schema.text for schema in schemas):
        return None
    from zkgroup.clients.schema_registry import registry_settings

    return registry_settings(settings)


def registered(
    name: str, schema: FieldSchema | None, registry: RegistrySettings | None, topics: Iterable[str]
) -> FieldSchema | None:
    """The schema, or those that the registry has for keys or values of these topics."""
    if schema is None or schema.text or registry is None:
        return schema
    from zkgroup.clients.schema_registry import read_schema as read_registered

    return read_registered(registry, schema.format, topics, name)


def is_given(ctx: typer.Context, name: str) -> bool:
    source = ctx.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def check_options(
    ctx: typer.Context, goes_with: Mapping[str, Collection[str]], needs: Mapping[str, Collection[str]] | None = None
) -> None:
    """Raise ``UsageError`` for parameters of the command line that have no effect beside others. ``goes_with``: a
    parameter to those that have an effect beside it; ``needs``: to those of which it needs one. Options that all
    commands share go with every one."""
    known = {str(one.name): one for one in ctx.command.params if getattr(one, "expose_value", False)}
    given = [name for name in known if is_given(ctx, name)]

    def named(name: str) -> str:
        one = known[name]
        return str(one.opts[0] if one.param_type_name == "option" else one.metavar).strip("[]…")

    def shown(name: str) -> str:
        value = ctx.params[name]
        if known[name].param_type_name == "option":
            return named(name)
        return f"{name.removesuffix('s')} {value[0] if isinstance(value, list | tuple) else value}"

    for mode in filter(given.__contains__, goes_with):
        for name in given:
            if name != mode and name not in goes_with[mode]:
                heeded = ", ".join(map(named, goes_with[mode]))
                raise UsageError(
                    f"{shown(name)} has no effect with {shown(mode)}", f"leave it out: {shown(mode)} goes with {heeded}"
                )
    for name, modes in (needs or {}).items():
        if name in given and not set(modes) & set(given):
            options = " or ".join(map(named, modes))
            raise UsageError(f"{shown(name)} has no effect without {options}", "give that, too, or leave it out")
