"""Install the shells in which completion is tried and that are missing here, if this user may. Never a failure: where a
shell is missing its tests are skipped.

Used by the Makefile. Needs no more than Python's standard library and this checkout.
"""

from __future__ import annotations

import shutil
import sys

from ensure_java import install_with

from zkgroup.java import install_words

SHELLS = ("bash", "zsh", "fish")


def main() -> int:
    """Return 0."""
    missing = [shell for shell in SHELLS if shutil.which(shell) is None]
    words = install_words()
    if missing and words is not None:
        command = (*words, *missing)
        install_with(command, ", ".join(missing), lambda: command)
    if left := [shell for shell in SHELLS if shutil.which(shell) is None]:
        sys.stderr.write(f"not installed, so not tested: {', '.join(left)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
