"""What the shells are told: the scripts that teach them to complete ``zkgroup``, and where each shell finds its own."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from typer.completion import get_completion_script  # type: ignore[attr-defined]  # not marked

from ._completion_values import COMPLETE_VARIABLE, LINE_VARIABLE
from ._error_output import PROGRAM

Shell: TypeAlias = Literal["bash", "zsh", "fish"]
SHELLS: Final[tuple[Shell, ...]] = ("bash", "zsh", "fish")

#: bash takes ``:`` and ``=`` for ends of words and replaces only what stands behind the last one: ``sandbox:NAME``.
_BASH: Final = f"""\
_{PROGRAM}_completion() {{
    local IFS=$'\\n' line="${{COMP_LINE:0:COMP_POINT}}" separator
    local word="${{line##*[[:space:]]}}"
    local rest="$word"
    # Where there is nothing to offer, file names are only for what is a file.
    COMPREPLY=( $( env {LINE_VARIABLE}="$line" {COMPLETE_VARIABLE}=complete_bash "$1" 2>/dev/null ) ) &&
        compopt +o default
    for separator in : =; do
        [[ "$COMP_WORDBREAKS" == *"$separator"* ]] && rest="${{rest##*"$separator"}}"
    done
    COMPREPLY=( "${{COMPREPLY[@]#"${{word%"$rest"}}"}}" )
    return 0
}}

complete -o default -F _{PROGRAM}_completion {PROGRAM}
"""
#: fish asks under which condition there is something, and then what: one look answers both.
_FISH: Final = f"""\
function __{PROGRAM}_completion
    set --global __{PROGRAM}_offered (env {COMPLETE_VARIABLE}=complete_fish \
{LINE_VARIABLE}=(commandline --current-process --cut-at-cursor | string collect) {PROGRAM} 2>/dev/null)
end

complete --command {PROGRAM} --no-files --condition __{PROGRAM}_completion \
--arguments '(string join \\n -- $__{PROGRAM}_offered)'
"""
# When zsh autoloads the file as the function _zkgroup, its last line must complete at once, for the first TAB.
_ZSH_REGISTER: Final = f"compdef _{PROGRAM}_completion {PROGRAM}"
_ZSH_FIRST_TAB: Final = f"if [[ $funcstack[1] == _{PROGRAM} ]]; then _{PROGRAM}_completion; else {_ZSH_REGISTER}; fi\n"
#: What turns zsh's completions on.
ZSH_START: Final = "autoload -Uz compinit && compinit"
#: Words for a value that is, or may be, the name of a file.
_FILES: Final = ("FILE", "FOLDER", "URI")
#: How long a shell may take to read its configuration and to tell what it found, in seconds.
_PATIENCE: Final = 5.0
#: What stands before a shell's answer: its configuration may print, too.
_ANSWER: Final = "[zkgroup]"
#: What bash-completion, which loads what lies in its folders, calls its loader: up to 2.11, and since.
_BASH_LOADERS: Final = ("_completion_loader", "_comp_complete_load")


@dataclass(frozen=True, slots=True)
class Place:
    """Where a shell's script goes. ``lines``: what its configuration lacks to find it there, in the file ``dotfile``;
    none if it does. ``why``: what is missing, in words. fish needs no ``dotfile``."""

    path: Path
    dotfile: Path = Path()
    lines: tuple[str, ...] = ()
    why: str = ""


def script(shell: Shell) -> str:
    """The script, as it stands in the folder ``completions/``."""
    if shell == "bash":
        return _BASH
    if shell == "fish":
        return _FISH
    text = get_completion_script(prog_name=PROGRAM, complete_var=COMPLETE_VARIABLE, shell=shell)
    head, found, _ = text.rpartition(_ZSH_REGISTER)
    assert found, "Typer's script for zsh is not what it was"
    return head + _ZSH_FIRST_TAB


def answer_to(program: Any, shell: str, line: str) -> tuple[str, bool]:
    """What ``shell`` is to offer at the end of ``line``, in its format; and whether it is file names, as nothing else
    is known, and the place is one for files. ``program``: Typer's group of all commands."""
    from typer._click.shell_completion import _resolve_context, _resolve_incomplete, split_arg_string
    from typer._completion_classes import BashComplete, FishComplete, ZshComplete

    kinds: dict[str, Any] = {"bash": BashComplete, "zsh": ZshComplete, "fish": FishComplete}
    if shell not in kinds:
        return "", True
    words = split_arg_string(line)[1:]
    last = words.pop() if words and not line.endswith(" ") else ""
    context = _resolve_context(program, {}, PROGRAM, words)
    found, value = _resolve_incomplete(context, words, last)
    metavar = getattr(found, "metavar", None) or ""
    items = found.shell_complete(context, value) or _words_of(metavar, value)
    if last.startswith("--") and "=" in last:
        for item in items:
            item.value = last.removesuffix(value) + item.value
    kind = kinds[shell](program, {}, PROGRAM, COMPLETE_VARIABLE)
    offered = "\n".join(map(kind.format_completion, items))
    files = not items and _may_be_file(metavar, value)
    if shell == "zsh":
        offered = f"_arguments '*: :(({offered}))'" if items else "_files" if files else ":"
    return offered + "\n" * bool(offered), files


def _words_of(metavar: str, value: str) -> list[Any]:
    """The words of ``earliest|latest|N`` that are typed as they stand there."""
    from typer._click.shell_completion import CompletionItem

    words = re.findall(r"(?:^|(?<=\|))[a-z0-9]+(?=\||$|\[)", metavar) if "|" in metavar else ()
    return [CompletionItem(word) for word in words if word.startswith(value)]


def _may_be_file(metavar: str, value: str) -> bool:
    """Whether the name of a file may begin so. Where other things may stand, a colon or an ``@`` says that one does:
    ``TOPIC:PARTITION=OFFSET``, ``@TIME``, ``s3://BUCKET``."""
    other = ("|" in metavar or "URI" in metavar) and (":" in value or value.startswith("@"))
    return not other and any(word in metavar for word in _FILES)


def place_for(shell: Shell, environ: Mapping[str, str]) -> Place:
    """Where this user's shell looks for completions. bash and zsh are asked: what they look at is up to their
    configuration."""
    home = Path(environ.get("HOME") or "~").expanduser()
    data = Path(environ.get("XDG_DATA_HOME") or home / ".local" / "share")
    if shell == "fish":
        return Place(Path(environ.get("XDG_CONFIG_HOME") or home / ".config") / "fish" / "completions" / "zkgroup.fish")
    if shell == "zsh":
        dotfile = Path(environ.get("ZDOTDIR") or home) / ".zshrc"
        return _zsh_place(home, data / "zsh" / "site-functions", dotfile, _ask_zsh(environ))
    return _bash_place(home, data / "bash-completion", _ask_bash(environ))


def _bash_place(home: Path, usual: Path, told: Sequence[str] | None) -> Place:
    """``told``: what bash said, of ``_ask_bash``."""
    own, *completes = told or ("",)
    path, dotfile = Path(own.partition(":")[0] or usual) / "completions" / PROGRAM, home / ".bashrc"
    if any(loader in line for line in completes for loader in _BASH_LOADERS):
        return Place(path, dotfile)
    if any(line.endswith(f" -F _{PROGRAM}_completion {PROGRAM}") for line in completes):
        return Place(path, dotfile)  # the line is there already
    why = "bash does not tell what it completes" if told is None else "bash-completion is not loaded in a new bash"
    return Place(path, dotfile, (f"source {shlex.quote(str(path))}",), why)


def _zsh_place(home: Path, usual: Path, dotfile: Path, told: Sequence[str] | None) -> Place:
    """The first folder of the user's own in $fpath. ``told``: what zsh said, of ``_ask_zsh``."""
    *folders, completes = told or ("",)
    own = [folder for name in folders if (folder := Path(name)).is_relative_to(home) and _may_write(folder)]
    if not own:
        lines = (f"fpath=({shlex.quote(str(usual))} $fpath)", ZSH_START)
        return Place(usual / f"_{PROGRAM}", dotfile, lines, "no folder of yours is in a new zsh's $fpath")
    if completes == "compdef":
        return Place(own[0] / f"_{PROGRAM}", dotfile)
    return Place(own[0] / f"_{PROGRAM}", dotfile, (ZSH_START,), "a new zsh does not start its completions")


def _may_write(folder: Path) -> bool:
    while not folder.exists():
        folder = folder.parent
    return os.access(folder, os.W_OK)


def _ask_bash(environ: Mapping[str, str]) -> list[str] | None:
    """Where bash-completion is to look, as the user's configuration says it; what completes a command that nothing is
    known of, and what completes ours. None where bash cannot tell."""
    question = f'printf "%s\\n" "{_ANSWER}" "$BASH_COMPLETION_USER_DIR"; complete -p -D; complete -p {PROGRAM}'
    return _asked("bash", question, environ)


def _ask_zsh(environ: Mapping[str, str]) -> list[str] | None:
    """$fpath, as the user's configuration sets it, and last "compdef" if completions are on, else "". None where zsh
    cannot tell."""
    return _asked("zsh", f'print -rl -- "{_ANSWER}" $fpath "${{functions[compdef]:+compdef}}"', environ)


def _asked(shell: Shell, question: str, environ: Mapping[str, str]) -> list[str] | None:
    """What a new shell, which has read the user's configuration, prints. None where it does not come to that."""
    program = shutil.which(shell, path=environ.get("PATH"))
    if program is None:
        return None
    try:
        done = subprocess.run(
            [program, "-ic", question],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=dict(environ),
            timeout=_PATIENCE,
            start_new_session=True,  # an interactive shell would take the terminal
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    _, found, answer = done.stdout.decode(errors="replace").rpartition(f"{_ANSWER}\n")
    return answer.split("\n")[:-1] if found else None
