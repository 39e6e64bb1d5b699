"""``zkgroup completions``: print the script that teaches a shell to complete ``zkgroup``."""

from __future__ import annotations

import sys
from typing import Annotated, Final, Literal

import typer

from ._completion import COMPLETE_VARIABLE, LINE_VARIABLE
from ._error_output import PROGRAM

#: bash ends a word at ``:`` and ``=``, and replaces only the part behind the last one: ``sandbox:NAME``.
_BASH: Final = f"""\
_{PROGRAM}_completion() {{
    local IFS=$'\\n' line="${{COMP_LINE:0:COMP_POINT}}" separator
    local word="${{line##*[[:space:]]}}"
    local rest="$word"
    # Offer the names of files only where zkgroup says so.
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
#: zsh autoloads the file as the function _zkgroup, and calls it for the first TAB: the last line has to complete then.
_ZSH: Final = f"""\
#compdef {PROGRAM}

_{PROGRAM}_completion() {{
  eval $(env {LINE_VARIABLE}="${{words[1,$CURRENT]}}" {COMPLETE_VARIABLE}=complete_zsh {PROGRAM})
}}

if [[ $funcstack[1] == _{PROGRAM} ]]; then _{PROGRAM}_completion; else compdef _{PROGRAM}_completion {PROGRAM}; fi
"""
#: fish evaluates the condition, and then the arguments: one call of zkgroup answers both.
_FISH: Final = f"""\
function __{PROGRAM}_completion
    set --global __{PROGRAM}_offered (env {COMPLETE_VARIABLE}=complete_fish \
{LINE_VARIABLE}=(commandline --current-process --cut-at-cursor | string collect) {PROGRAM} 2>/dev/null)
end

complete --command {PROGRAM} --no-files --condition __{PROGRAM}_completion \
--arguments '(string join \\n -- $__{PROGRAM}_offered)'
"""
SCRIPTS: Final = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}


def completions(
    shell: Annotated[Literal["bash", "zsh", "fish"], typer.Argument(metavar="bash|zsh|fish", help="The shell.")],
) -> None:
    """Print the completion script for a shell.

    TAB completes commands, options, and names on the servers: groups, topics, members, clusters. Completion gives up
    after one second. Put the line for your shell into its configuration; in ~/.zshrc put it after compinit.

    \b
    source <(zkgroup completions bash)
    source <(zkgroup completions zsh)
    zkgroup completions fish | source
    """
    sys.stdout.write(SCRIPTS[shell])
