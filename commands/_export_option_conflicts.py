"""Options of ``zkgroup export`` that exclude each other, and the commands for a mismatch."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from zkgroup.errors import UsageError

from ._context import show_command

if TYPE_CHECKING:
    import typer

_PLACE: Final = ("group", "to", "output")
#: Options that export nothing: what each does, and the parameters that it takes.
_REPORTS: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "status": ("shows runs as they are", _PLACE),
    "history": ("shows whole runs", _PLACE),
    "verify": ("checks everything in the folder", _PLACE),
}

#: A Spark property with a secret, by what its key says; as Spark's own ``spark.redaction.regex``.
_SECRET: Final = re.compile(r"(?is)^([^=]*(?:secret|password|token|access[.]?key)[^=]*=).*")


def refuse_unheeded(ctx: typer.Context) -> None:
    """Raise ``UsageError`` for a topic or an option that has no effect with ``--status`` or another
    report."""
    given = {
        str(option.name): option
        for option in ctx.command.params
        # Shared options, as for the servers and -v, go with every option.
        if getattr(option, "expose_value", False) and _is_given(ctx, str(option.name))
    }
    for chosen in _REPORTS.keys() & given.keys():
        does, heeded = _REPORTS[chosen]
        unheeded = [name for name in given if name != chosen and name not in heeded]
        if unheeded:
            *others, last = [_named(ctx, name) for name in heeded]
            first = f"topic {ctx.params['topics'][0]}" if unheeded[0] == "topics" else _named(ctx, unheeded[0])
            raise UsageError(
                f"{first} has no effect with --{chosen}, which {does}",
                f"leave it out: --{chosen} goes with {', '.join(others)} and {last}",
            )


def show_answers(ctx: typer.Context, answers: Sequence[tuple[str, str]]) -> None:
    """Show on stderr what each answer to ``--on-mismatch`` does, with this command line's command for it."""
    for answer, effect in answers:
        show_command(ctx, f"{answer}: {effect}", ("export", "--on-mismatch", answer, *_words(ctx)))


def _words(ctx: typer.Context) -> list[str]:
    """The options and arguments of this command line, without secrets."""
    from zkgroup.export.model.address import parse_address
    from zkgroup.export.planning.export_request import name_address

    words: list[str] = []
    for option in ctx.command.params:
        name = str(option.name)
        if not getattr(option, "expose_value", False) or not _is_given(ctx, name) or name in ("on_mismatch", "topics"):
            continue
        value = ctx.params[name]
        if value is True:
            words.append(option.opts[0])
        elif name == "to":
            words += [option.opts[0], name_address(parse_address(value))]
        else:
            given = value if isinstance(value, list | tuple) else [value]
            for one in given:
                words += [option.opts[0], _SECRET.sub(r"\1…", str(one))]
    topics = ctx.params["topics"] or []
    words += ["--"] * any(topic.startswith("-") for topic in topics)
    return [*words, *topics]


def _is_given(ctx: typer.Context, name: str) -> bool:
    source = ctx.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _named(ctx: typer.Context, name: str) -> str:
    return (
        name if name == "topics" else next(str(option.opts[0]) for option in ctx.command.params if option.name == name)
    )
