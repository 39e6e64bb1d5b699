"""Options of ``zkgroup export`` that say nothing beside others: whoever gives one expects it to be heeded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from zkgroup.errors import UsageError

if TYPE_CHECKING:
    import typer

_PLACE: Final = ("group", "to", "output")
#: What is no export, by its option: what it does, and the parameters that it heeds.
_OTHERWISE: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "status": ("shows runs as they are", _PLACE),
    "history": ("shows whole runs", _PLACE),
    "verify": ("checks all that the folder holds", _PLACE),
    "settle": ("ends a whole run", _PLACE),
    "adopt": ("enters files as they are", (*_PLACE, "topics", "skip_lost")),
}
#: Where ``--from`` begins with partitions without an offset, as ``--on-no-offset`` says it.
_PLACES: Final = {"earliest": "earliest", "latest": "latest", "end": "latest"}


def refuse_beside(ctx: typer.Context) -> None:
    """Raise ``UsageError`` for a topic or an option of the command line that goes unheeded beside another one."""
    given = {
        str(option.name): option
        for option in ctx.command.params
        # Where the servers are, and -v, stand beside everything.
        if getattr(option, "expose_value", False) and _is_given(ctx, str(option.name))
    }
    for chosen in _OTHERWISE.keys() & given.keys():
        does, heeded = _OTHERWISE[chosen]
        if chosen == "settle" and ctx.params["settle"] != "keep":
            heeded = (*heeded, "skip_lost")
        unheeded = [name for name in given if name != chosen and name not in heeded]
        if unheeded:
            *others, last = [_named(ctx, name) for name in heeded]
            raise UsageError(
                f"{_said(ctx, unheeded[0])} says nothing beside --{chosen}, which {does}",
                f"leave it out: --{chosen} goes with {', '.join(others)} and {last}",
            )


def refuse_contradictions(ctx: typer.Context) -> None:
    """Raise ``UsageError`` where two options answer one question."""
    expired = ctx.params["on_expired"]
    if ctx.params["skip_lost"] and _is_given(ctx, "on_expired") and expired != "earliest":
        raise UsageError(
            f"--skip-lost is --on-expired earliest, and {expired} is asked for as well", "keep one of them"
        )

    begin, unsaid = ctx.params["begin"], ctx.params["on_no_offset"]
    says = _PLACES.get(begin, begin if begin.startswith("@") else unsaid)
    if _is_given(ctx, "on_no_offset") and says != unsaid and not ctx.params["backfill"]:
        raise UsageError(
            f"--from {begin} says where partitions without a committed offset begin, and --on-no-offset {unsaid} is "
            "asked for as well",
            "keep one of them",
        )


def _is_given(ctx: typer.Context, name: str) -> bool:
    source = ctx.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _said(ctx: typer.Context, name: str) -> str:
    return f"topic {ctx.params[name][0]}" if name == "topics" else _named(ctx, name)


def _named(ctx: typer.Context, name: str) -> str:
    return (
        name if name == "topics" else next(str(option.opts[0]) for option in ctx.command.params if option.name == name)
    )
