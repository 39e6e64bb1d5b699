"""Install the shells in which completion is tried, and the KDC that tests of Kerberos run, where they are missing and
this user may. Never a failure: the tests of what is missing are skipped.

Used by the Makefile. Needs no more than Python's standard library and this checkout.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from ensure_java import install_with, install_words

SHELLS = ("bash", "zsh", "fish")
#: Packages that are no command, or whose command is on no path, with a file of theirs.
PACKAGES = {
    "bash-completion": Path("/usr/share/bash-completion/bash_completion"),
    "krb5-kdc": Path("/usr/sbin/krb5kdc"),
    "krb5-admin-server": Path("/usr/sbin/kadmin.local"),
    "krb5-user": Path("/usr/bin/kinit"),
}


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
