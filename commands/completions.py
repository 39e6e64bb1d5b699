"""``zkgroup completions``: the script that teaches a shell to complete ``zkgroup``."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from zkgroup.errors import RefusedError, UsageError

from ._completion_scripts import SHELLS, ZSH_START, Place, Shell, place_for, script
from ._completion_values import COMPLETE_VARIABLE
from ._context import done
from ._terminal_text import one_line


def completions(
    ctx: typer.Context,
    shell: Annotated[
        Shell | None,
        typer.Argument(metavar="bash|zsh|fish", help="The shell; with --install and --uninstall by default yours."),
    ] = None,
    install: Annotated[
        bool, typer.Option("--install", help="Write it where the shell finds it, and say where that is.")
    ] = False,
    uninstall: Annotated[bool, typer.Option("--uninstall", help="Remove what --install has written.")] = False,
) -> None:
    """Print the completion script for a shell, or install it for this user.

    What TAB offers is looked up: groups, topics, members, clusters; within a second, or not at all. --install writes
    one file and nothing else: where your shell's own configuration lacks a line, it is shown.

    \b
    zkgroup completions --install
    source <(zkgroup completions bash)
    """
    if install and uninstall:
        raise UsageError("--install and --uninstall contradict each other", "give one of them")
    if not (install or uninstall):
        if shell is None:
            raise UsageError("no shell is named", "give bash, zsh or fish")
        sys.stdout.write(script(shell))
        return
    shell = shell or _own_shell()
    place = place_for(shell, os.environ)
    if install:
        _install(ctx, shell, place)
    else:
        _uninstall(ctx, shell, place)


def _own_shell() -> Shell:
    name = Path(os.environ.get("SHELL", "")).name
    for shell in SHELLS:
        if shell == name:
            return shell
    raise UsageError("which shell is yours is not known" if not name else f"{name} is not supported", "name one")


def _install(ctx: typer.Context, shell: Shell, place: Place) -> None:
    from zkgroup.groups.offset_files.atomic_file import write_whole

    path, text = place.path.resolve(), script(shell)  # a link of somebody who keeps these files elsewhere stays
    if _content(path) == text:
        done(ctx, f"{place.path} is there already, and is as it should be")
    else:
        _check_ours(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(str(path), text)
        done(ctx, f"written: {place.path}")
    if not place.lines:
        done(ctx, f"a new {shell} completes zkgroup")
        return
    missing = "" if place.dotfile.exists() else " (which is not there yet)"
    lines = "this line" if len(place.lines) == 1 else "these lines"
    done(ctx, f"{shell} does not look there by itself: {place.why}")
    done(ctx, f"with {lines} in {_in_home(place.dotfile)}{missing} a new {shell} completes zkgroup:")
    sys.stdout.write("".join(f"{line}\n" for line in place.lines))


def _in_home(path: Path) -> str:
    """As people write it."""
    home = Path(os.environ.get("HOME") or "~").expanduser()
    return f"~/{path.relative_to(home)}" if path.is_relative_to(home) else str(path)


def _uninstall(ctx: typer.Context, shell: Shell, place: Place) -> None:
    if _content(place.path) is None:
        done(ctx, f"nothing is installed: there is no {place.path}")
        return
    _check_ours(place.path)
    place.path.unlink()
    done(ctx, f"removed: {place.path}")
    dotfile = _in_home(place.dotfile)
    for line in (_content(place.dotfile) or "").splitlines() if shell != "fish" else ():
        if shell == "bash" and str(place.path) in line:
            done(ctx, f"every new bash would miss it: take this line out of {dotfile}: {one_line(line)}")
        if shell == "zsh" and _served_zsh(line.strip(), place.path.parent):
            done(ctx, f"if no other completion needs it, take this line out of {dotfile}: {one_line(line)}")


def _served_zsh(line: str, folder: Path) -> bool:
    """Whether it is a line that --install asks for."""
    return line == ZSH_START or (line.startswith("fpath=(") and str(folder) in line)


def _content(path: Path) -> str | None:
    """What stands there; None where nothing does."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return None


def _check_ours(path: Path) -> None:
    """Raise ``RefusedError`` where something stands that no zkgroup has written."""
    content = _content(path)
    if content is not None and COMPLETE_VARIABLE not in content:
        raise RefusedError(f"{path} is not of zkgroup's making", "move it out of the way")
