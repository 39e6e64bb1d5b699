"""Install the shells in which completion is tried and that are missing here, if this user may. Never a failure: where a
shell is missing its tests are skipped.

Used by the Makefile. Needs no more than Python's standard library and this checkout.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from ensure_java import install_with

from zkgroup.java_runtime import install_words

SHELLS = ("bash", "zsh", "fish")
#: What bash takes completions with is a package, and no command.
PACKAGES = {"bash-completion": Path("/usr/share/bash-completion/bash_completion")}


def main() -> int:
    """Return 0."""
    missing, words = _missing(), install_words()
    if missing and words is not None:
        command = (*words, *missing)
        install_with(command, ", ".join(missing), lambda: command)
    if left := _missing():
        sys.stderr.write(f"not installed, so not tested: {', '.join(left)}\n")
    return 0


def _missing() -> list[str]:
    found = [shell for shell in SHELLS if shutil.which(shell) is None]
    return found + [package for package, file in PACKAGES.items() if not file.exists()]


if __name__ == "__main__":
    sys.exit(main())
