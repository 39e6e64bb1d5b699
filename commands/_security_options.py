"""The options that secure connections, made of the table of settings."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Annotated, Any, Final

import typer

from zkgroup.config.security_settings import BROKERS, SETTINGS, Setting

from ._completion_values import offer

_TITLE: Final = "Security of {} (before or after the command's name)"
#: The sections of help that these options stand in.
SECURITY_TITLES: Final = tuple(_TITLE.format(whose) for whose in ("brokers", "ZooKeeper"))
_METAVARS: Final = {"file": "FILE", "secret": "FILE", "text": "TEXT"}


def security_parameters(collect: Callable[..., Any]) -> list[Any]:
    """Fresh parameters. ``collect`` is called with context, parameter and value, as Typer's callbacks are."""

    def declared() -> None: ...

    # Typer reads a function's signature.
    kinds: dict[str, Any] = {setting.field: _declare(setting, collect) for setting in SETTINGS}
    declared.__annotations__ = kinds
    declared.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)
            for name, kind in kinds.items()
        ]
    )
    app = typer.Typer(add_completion=False)
    app.command()(declared)
    return list(typer.main.get_command(app).params)


def _declare(setting: Setting, collect: Callable[..., Any]) -> Any:
    def taken(ctx: typer.Context, param: typer.CallbackParam, value: Any) -> Any:
        # A truth value alone stands for nothing where it is False: it was said all the same.
        return collect(ctx, param, None if value is None else [value] if isinstance(value, bool) else value)

    truth = setting.kind == "truth"
    help = setting.help
    if setting.choices:
        help += f" {', '.join(setting.choices)}."
    option = typer.Option(
        f"{setting.option}/--no-{setting.name}" if truth else setting.option,
        metavar=None if truth else "NAME" if setting.choices else _METAVARS[setting.kind],
        help=f"{help} [env:{setting.variable}{', the secret itself' if setting.kind == 'secret' else ''}]",
        callback=taken,
        expose_value=False,
        show_default=False,
        autocompletion=offer(setting.choices) if setting.choices else None,
        rich_help_panel=SECURITY_TITLES[setting not in BROKERS],
    )
    kind: Any = bool | None if truth else list[str] | None
    return Annotated[kind, option]
