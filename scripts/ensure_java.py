"""Install a Java where none is recent enough, if this user may; otherwise say the one line to type.

Used by the Makefile. Needs no more than Python's standard library and this checkout.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from zkgroup.child_processes import run_child  # the checkout comes first on the path
from zkgroup.errors import UsageError
from zkgroup.java_runtime import find_java

# Releases that Spark 4 and all the servers run on, the best tried first.
_WANTED = (17, 21, 25)
_PACKAGES = {
    "apt-get": "openjdk-{}-jre-headless",
    "dnf": "java-{}-openjdk-headless",
    "yum": "java-{}-openjdk-headless",
    "apk": "openjdk{}-jre-headless",
    "zypper": "java-{}-openjdk-headless",
    "pacman": "jre{}-openjdk-headless",
}
_INSTALL = {
    "apt-get": ("apt-get", "install", "-y", "--no-install-recommends"),
    "dnf": ("dnf", "install", "-y"),
    "yum": ("yum", "install", "-y"),
    "apk": ("apk", "add"),
    "zypper": ("zypper", "--non-interactive", "install"),
    "pacman": ("pacman", "-S", "--noconfirm"),
}


def main() -> int:
    """Return 0 if there is a Java, in the end."""
    try:
        find_java()
    except UsageError as missing:
        if not install():
            sys.stderr.write(f"{missing}\n")
            return 2
        try:
            find_java()
        except UsageError as still_missing:
            sys.stderr.write(f"{still_missing}\n")
            return 2
    return 0


def install() -> bool:
    """Install a Java with the system's package manager; False if this user may not, or it fails."""
    command = install_command()
    # The packages of apt are known only once its lists are there.
    return command is not None and install_with(command, "Java", lambda: install_command() or command)


def install_words() -> tuple[str, ...] | None:
    """This machine's command that installs packages, without their names; None if none is known."""
    return next((words for tool, words in _INSTALL.items() if shutil.which(tool)), None)


def install_command() -> tuple[str, ...] | None:
    """The command (without sudo) that installs a Java with this machine's package manager; None if none is known."""
    for tool, words in _INSTALL.items():
        if shutil.which(tool):
            packages = [_PACKAGES[tool].format(number) for number in _WANTED]
            known = _known_to_apt() if tool == "apt-get" else set(packages)
            return (*words, next((package for package in packages if package in known), packages[0]))
    return None


def _known_to_apt() -> set[str]:
    """The packages of Java that apt can install: each Debian has one or two of them."""
    try:
        result = run_child(["apt-cache", "pkgnames", "openjdk-"], 30)
    except (OSError, subprocess.TimeoutExpired):
        return set()
    return set(result.stdout.split())


def install_with(command: tuple[str, ...], what: str, known: Callable[[], tuple[str, ...]]) -> bool:
    """Run a package manager's command, as root if need be; False if this user may not, or it fails. ``known``: the
    command, once apt has its lists."""
    prefix: tuple[str, ...] = ()
    if os.geteuid() != 0:
        prefix = ("sudo", "-n")
        if shutil.which("sudo") is None or not run(*prefix, "true", quiet=True):
            return False
    sys.stderr.write(f"installing {what}: {' '.join(command)}\n")
    if command[0] == "apt-get":
        if not run(*prefix, "apt-get", "update"):
            return False
        command = known()
    return run(*prefix, *command)


def run(*command: str, quiet: bool = False) -> bool:
    """Run a command; what it says is shown only if it fails."""
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=environment,
        check=False,
    )
    if done.returncode != 0 and not quiet:
        sys.stderr.write(done.stdout.decode(errors="replace")[-2000:])
    return done.returncode == 0


if __name__ == "__main__":
    sys.exit(main())
