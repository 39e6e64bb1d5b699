"""Build the sdist, the wheel out of it, and see that the wheel works where nothing else of this checkout is.

Usage: ``check_package.py [--python PYTHON] [TEST…]``. The wheel is installed in an empty virtual environment of PYTHON
(this one's by default) and run from an empty folder: versions, the help of every command, the man pages, the line that
installs a part which is missing (it is run as it is told), and tests on real servers, which are copied there.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
import tomllib
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
#: Reading, a change, a Scala member, members of ours: seconds each, and no Spark.
TESTS = (
    "tests/commands/test_owners.py",
    "tests/commands/test_copy_group.py",
    "tests/commands/test_consume_ends.py::test_messages_that_come_meanwhile_do_not_keep_it",
    "tests/commands/test_consume_ends.py::test_who_owns_nothing_has_nothing_to_wait_for",
)
#: The native reader, and the decoder of Avro.
EXTENSIONS = 2
#: As $CC: no compiler.
NO_COMPILER = "/nonexistent/cc"
#: What these tests need of the development tools; others have them all.
TOOLS = ("pytest", "pytest-timeout", "hypothesis", "pyte")
#: What tests read that is no part of the package: pages, which are followed, and scripts that are compared.
READ = ("docs", "completions", "contrib", "scripts", "README.md", "CHANGELOG.md", "pyproject.toml")
#: In the environment: the help of every command that has a man page, in one process, since each start takes its time.
HELP = """
import contextlib, io, sys
from zkgroup.commands import app
for page in sys.argv[1:]:
    words = page.removeprefix("zkgroup").removeprefix("-").split("-")
    # A command's name has hyphens, too; what is below sandbox and config are words of their own.
    command = words if words[0] in ("sandbox", "config") else ["-".join(words)] if words[0] else []
    with contextlib.redirect_stdout(io.StringIO()) as shown, contextlib.suppress(SystemExit):
        app([*command, "--help"])
    if not shown.getvalue().startswith(f"Usage: {' '.join(['zkgroup', *command])} "):
        print(page, shown.getvalue())
"""
INI = "[pytest]\npythonpath = tests scripts\naddopts = --strict-markers --import-mode=importlib\ntimeout = 300\n"


class Failed(Exception):
    """Something is not as it should be: said in words."""


class Place:
    """A folder with a virtual environment, and nothing of the checkout on any path."""

    def __init__(self, folder: Path, python: str) -> None:
        self.folder = folder
        self.environment = folder / "env"
        self.work = folder / "work"
        self.work.mkdir()
        run([python, "-m", "venv", str(self.environment)], folder)

    def run(self, *words: str, code: int = 0) -> str:
        """Run a program of the environment; its output, stderr included."""
        program, *rest = words
        return run([str(self.environment / "bin" / program), *rest], self.work, code=code)

    def install(self, *what: str) -> None:
        """With pip, as anybody would."""
        self.run("python", "-m", "pip", "install", "-q", "--no-compile", "--disable-pip-version-check", *what)


def run(words: list[str] | str, folder: Path, *, code: int = 0, **environment: str) -> str:
    """Run to the end. Raises ``Failed`` with what it said where it ends with another code."""
    own = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "ZKGROUP_CONFIG"))}
    done = subprocess.run(
        words,
        cwd=folder,
        env=own | {"ZKGROUP_CONFIG": os.devnull} | environment,
        shell=isinstance(words, str),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=900,
        check=False,
    )
    if done.returncode != code:
        raise Failed(f"{words} ended with {done.returncode}, not {code}:\n{done.stdout}")
    return done.stdout


def copy_sources(to: Path) -> None:
    """What git knows or would take, as a clone has it: what was built here before must not get in."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    for name in filter(None, listed.stdout.split("\0")):
        source = ROOT / name
        if source.is_symlink() or source.exists():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, to / name, follow_symlinks=False)


def build(tree: Path, to: Path, *options: str, **environment: str) -> Path:
    """sdist and wheel, the wheel made of the sdist; with ``--wheel`` the wheel alone. Returns the wheel."""
    run([sys.executable, "-m", "build", "--no-isolation", "--outdir", str(to), *options, "."], tree, **environment)
    (wheel,) = to.glob("*.whl")
    return wheel


def check_readers(place: Place, tree: Path, wheel: Path) -> None:
    """The wheel has the native reader where a compiler is; without one the build ends well, and the Python reader runs.
    The wheel's name does not tell which: its contents do."""
    compiler = shutil.which((sysconfig.get_config_var("CC") or "cc").split()[0])
    check_reader(place, wheel, "Python" if compiler is None else "native")
    bare = build(tree, place.folder / "bare", "--wheel", CC=NO_COMPILER)
    place.install("--no-deps", "--force-reinstall", str(bare))
    check_reader(place, bare, "Python")
    place.install("--no-deps", "--force-reinstall", str(wheel))


def check_reader(place: Place, wheel: Path, reader: str) -> None:
    """The wheel, which is installed, has this reader and runs it."""
    with zipfile.ZipFile(wheel) as archive:
        extensions = [name for name in archive.namelist() if name.endswith(".so")]
    told = json.loads(place.run("zkgroup", "version", "--output", "json"))["reader"]
    if told != reader or len(extensions) != (EXTENSIONS if reader == "native" else 0):
        raise Failed(f"{wheel.name} should have the {reader} reader: it has {extensions}, and runs the {told} reader")
    say(f"the {reader} reader: {', '.join(extensions) or 'no extension'}")


def check_alone(place: Place, wheel: Path) -> None:
    """Without any extra: the package is the installed one, and every command tells of itself."""
    place.install(str(wheel))
    found = place.run("python", "-c", "import zkgroup, zkgroup.commands as c; print(zkgroup.__file__, c.__file__)")
    if found.count(str(place.environment)) != 2:
        raise Failed(f"not the installed package: {found}")
    version = wheel.name.split("-")[1]
    told = place.run("zkgroup", "--version")
    if not re.match(rf"zkgroup {re.escape(version)}\npython \S+, kazoo \S+, confluent-kafka \S+, librdkafka \d", told):
        raise Failed(f"versions: {told}")
    say(told.strip().replace("\n", "; "))
    manual = sorted(path.stem for path in (place.environment / "share" / "man" / "man1").glob("*.1"))
    if manual != sorted(path.stem for path in (ROOT / "docs" / "man").glob("*.1")):
        raise Failed(f"man pages: {manual}")
    if not list(place.environment.glob("lib/python*/site-packages/zkgroup/py.typed")):
        raise Failed("py.typed is missing")
    told = place.run("python", "-c", HELP, *manual)
    if told.strip():
        raise Failed(f"help: {told}")
    say(f"help of {len(manual)} commands, and their man pages")


def check_extra(place: Place) -> None:
    """The part that is missing names one line; run as it stands it makes the part work."""
    arguments = ["export", "orders", "--group", "lake", "--to", "lake", "-z", "127.0.0.1:1", "--connect-timeout", "0.2"]
    told = place.run("zkgroup", *arguments, code=2)
    line = re.fullmatch(r"zkgroup: export needs .*: (\S+ -m pip install 'zkgroup\[export\]')\n", told)
    if line is None:
        raise Failed(f"export without its extra: {told}")
    run(line[1] + " -q --disable-pip-version-check", place.work)
    place.run("zkgroup", *arguments, code=3)  # now it is the servers that are missing
    say(f"what installs the extra: {line[1].replace(str(place.environment), '…')}")


def check_tests(place: Place, tests: list[str]) -> None:
    """Tests on real servers, from a copy that has nothing of the checkout beside it."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        wanted = tomllib.load(file)["project"]["optional-dependencies"]["dev"]
    if tests == list(TESTS):
        wanted = [line for line in wanted if re.split(r"[><=\[]", line)[0] in TOOLS] + ["zkgroup[sandbox]"]
    place.install(*wanted)
    tree = place.folder / "tree"  # what the wheel was made of: somebody may be at work in the checkout meanwhile
    for name in ("tests", *READ):
        if (tree / name).is_dir():
            shutil.copytree(tree / name, place.work / name)
        else:
            shutil.copy(tree / name, place.work / name)
    (place.work / "pytest.ini").write_text(INI, encoding="utf-8")
    told = place.run("python", "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests)
    say(f"tests: {told.strip().splitlines()[-1]}")


def say(words: str) -> None:
    """Progress, with the time that has passed."""
    sys.stderr.write(f"{time.monotonic() - BEGAN:4.0f} s  {words}\n")
    sys.stderr.flush()


BEGAN = time.monotonic()


def main() -> int:
    """0, or 1 with what is wrong on stderr."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--python", default=sys.executable, help="the Python to install it with")
    parser.add_argument("tests", nargs="*", default=list(TESTS), help="tests to run, as paths in this checkout")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="zkgroup-package-") as name:
        folder = Path(name)
        try:
            copy_sources(folder / "tree")
            wheel = build(folder / "tree", folder / "dist")
            (sdist,) = (folder / "dist").glob("*.tar.gz")
            say(f"{sdist.name} ({sdist.stat().st_size // 1024} KiB), {wheel.name} ({wheel.stat().st_size // 1024} KiB)")
            place = Place(folder, given.python)
            check_alone(place, wheel)
            check_readers(place, folder / "tree", wheel)
            check_extra(place)
            check_tests(place, given.tests)
        except Failed as failed:
            sys.stderr.write(f"{failed}\n")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
