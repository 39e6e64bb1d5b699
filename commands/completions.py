"""``zkgroup completions``: the script that teaches a shell to complete ``zkgroup``."""

from __future__ import annotations

import sys
from typing import Annotated, Literal, TypeAlias

import typer
from typer.completion import get_completion_script  # type: ignore[attr-defined]  # Typer marks few names as its own

from ._errors import PROGRAM
from ._frame import COMPLETE_VARIABLE

Shell: TypeAlias = Literal["bash", "zsh", "fish"]

# When zsh autoloads the file as the function _zkgroup, its last line must complete at once, for the first TAB.
_ZSH_REGISTER = "compdef _zkgroup_completion zkgroup"
_ZSH_FIRST_TAB = f"if [[ $funcstack[1] == _zkgroup ]]; then _zkgroup_completion; else {_ZSH_REGISTER}; fi"


def completions(
    shell: Annotated[Shell, typer.Argument(metavar="bash|zsh|fish", help="The shell.", show_default=False)],
) -> None:
    """Print the completion script for a shell.

    bash: write it to ~/.local/share/bash-completion/completions/zkgroup. zsh: write it as _zkgroup into a folder of
    $fpath. fish: write it to ~/.config/fish/completions/zkgroup.fish.
    """
    sys.stdout.write(script(shell))


def script(shell: Shell) -> str:
    """The script, as it stands in the folder ``completions/``."""
    text = get_completion_script(prog_name=PROGRAM, complete_var=COMPLETE_VARIABLE, shell=shell)
    if shell == "zsh":
        head, found, _ = text.rpartition(_ZSH_REGISTER)
        assert found, "Typer's script for zsh is not what it was"
        text = head + _ZSH_FIRST_TAB
    return text + "\n"
