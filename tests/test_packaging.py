"""What is installed is what is in the repository, as far as it is needed active."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from zkgroup.groups.findings.finding_kinds import KINDS

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_a_wheel_has_everything(tmp_path: Path) -> None:
    """The commands, the pages that explain findings, man pages, and the Scala consumer's member for the sandbox."""
    tree = tmp_path / "tree"
    for name in ("zkgroup", "commands", "docs"):
        shutil.copytree(ROOT / name, tree / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tree)
    build = "import sys; from setuptools import build_meta; print(build_meta.build_wheel(sys.argv[1]))"
    made = subprocess.run(
        [sys.executable, "-c", build, str(tmp_path)], cwd=tree, capture_output=True, text=True, timeout=240, check=False
    )
    assert made.returncode == 0, made.stderr
    (wheel,) = tmp_path.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    assert names >= {f"zkgroup/pages/{code}.md" for code in KINDS}
    assert names >= {f"zkgroup/commands/{path.name}" for path in (ROOT / "commands").glob("*.py")}
    assert names >= {str(path.relative_to(ROOT)) for path in (ROOT / "zkgroup").rglob("*.py")}
    assert names >= {"zkgroup/py.typed", "zkgroup/sandbox/ScalaMember.java"}
    manual = {Path(name).name for name in names if "/share/man/man1/" in name}
    assert manual == {path.name for path in (ROOT / "docs" / "man").iterdir()}


def test_the_page_of_package_indexes() -> None:
    """It names no other page and no picture, which an index could not show; it begins as README.md does."""
    page, readme = ((ROOT / name).read_text(encoding="utf-8") for name in (PROJECT["readme"], "README.md"))
    assert not re.findall(r"\]\((?!https://)|<img", page)
    words, ours = (re.sub(r"\[([^]]+)\]\([^)]*\)", r"\1", text).split() for text in (page, readme))
    assert ours[: words.index("library.")] == words[: words.index("library.")]


def test_man_finds_the_pages_of_a_clone() -> None:
    """With the environment of ``make setup`` on PATH."""
    if shutil.which("man") is None or not (Path(sys.prefix) / "share" / "man" / "man1" / "zkgroup.1").exists():
        pytest.skip("there is no man here, or no environment of make setup")
    path = os.environ | {"PATH": f"{Path(sys.prefix) / 'bin'}{os.pathsep}{os.environ['PATH']}", "MANPATH": ""}
    found = subprocess.run(["man", "-w", "zkgroup-offsets"], env=path, capture_output=True, text=True, check=True)
    assert Path(found.stdout.strip()).resolve() == ROOT / "docs" / "man" / "zkgroup-offsets.1"


def test_the_container_recipe() -> None:
    """Its instructions are those of the format, each stage is one that was begun, what it copies and runs is there, and
    each command is a shell's. What git ignores, such as an environment of gigabytes, is not copied."""
    text = re.sub(r"^#.*\n", "", (ROOT / "Containerfile").read_text(encoding="utf-8"), flags=re.MULTILINE)
    lines = [line.split(None, 1) for line in text.replace("\\\n", " ").splitlines() if line]
    assert {word for word, _ in lines} <= {"FROM", "RUN", "WORKDIR", "COPY", "ENV", "ENTRYPOINT"}
    assert lines[0][0] == "FROM"
    stages = [rest.partition(" AS ")[2] for word, rest in lines if word == "FROM"]
    assert all(re.fullmatch(r"[\w./-]+:[\w.-]+(?: AS \w+)?", rest) for word, rest in lines if word == "FROM")
    copied = [rest.split() for word, rest in lines if word == "COPY"]
    assert [words[0] for words in copied] == [".", f"--from={stages[0]}"]
    for command in (rest for word, rest in lines if word == "RUN"):
        subprocess.run(["sh", "-n", "-c", command], check=True)
        assert all((ROOT / script).exists() for script in re.findall(r"scripts/\S+", command))
    (entry,) = (rest for word, rest in lines if word == "ENTRYPOINT")
    assert json.loads(entry) == ["zkgroup"]
    ignored = [line.rstrip("/") for line in (ROOT / ".gitignore").read_text(encoding="utf-8").split()]
    patterns = [line[1:] if line.startswith("/") else f"**/{line}" for line in ignored]
    assert (ROOT / ".dockerignore").read_text(encoding="utf-8").split() == [".git", *patterns]
    assert "zkgroup" in PROJECT["scripts"]


def test_the_sources_need_the_python_that_is_declared() -> None:
    """vermin finds no syntax, and nothing of the standard library, that is newer than ``requires-python`` says; and
    that version is needed, so that it is not higher than it has to be."""
    vermin = str(Path(sys.executable).with_name("vermin"))
    asked = [vermin, "--no-tips", "--no-parse-comments", "--eval-annotations", "zkgroup", "commands"]
    message = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, timeout=240, check=True).stdout
    needed = re.search(r"Minimum required versions: +(?:!2, )?([\d.]+)", message)
    assert needed is not None, message
    assert PROJECT["requires-python"] == f">={needed[1]}"


def test_the_pythons_that_are_named_were_run() -> None:
    """The classifiers name the versions that docs/how-to/developing.md says were run, from the lowest on."""
    prefix = "Programming Language :: Python :: 3."
    named = [line.removeprefix(prefix) for line in PROJECT["classifiers"] if line.startswith(prefix)]
    text = (ROOT / "docs" / "how-to" / "developing.md").read_text(encoding="utf-8")
    run = re.findall(r"^\| 3\.(\d+)\.\d+ \|", text, re.MULTILINE)
    assert run == named
    assert PROJECT["requires-python"] == f">=3.{named[0]}"
