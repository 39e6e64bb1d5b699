"""README.md tells the truth: its examples run and print what it shows, and the options that it names exist.

A block after ``<!-- run -->`` is run, on a sandbox with the topics and groups that ``sandbox demo --keep`` leaves; what
its commands print must be what stands there, but for times, addresses, paths, and numbers of four digits and more.
"""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from cli import ZKGROUP, environment, run

from zkgroup.commands import COMMANDS, app
from zkgroup.commands._demo_parts import GROUP, PARTITIONS, TOPICS, demo_message
from zkgroup.sandbox.lifecycle import stop
from zkgroup.sandbox.paths import STATE_VARIABLE
from zkgroup.sandbox.sandbox import Sandbox
from zkgroup.sandbox.topics import create_topic, produce
from zkgroup.servers.kafka import KafkaSettings

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"<!-- run(?P<how>: [^>]+)? -->\n```(?P<kind>console|python)\n(?P<text>.*?)```\n", re.DOTALL)
OUTPUT = re.compile(r"\n```\n(.*?)```\n", re.DOTALL)
DEMO_GROUPS = (GROUP, "archive")


@dataclass(frozen=True)
class Example:
    """A command or a program, what it prints, and its exit code. ``shown`` None: anything."""

    source: str
    shown: str | None
    code: int = 0


def examples(kind: str) -> list[Example]:
    """All that is marked to be run, in the order of the README."""
    found = []
    for block in BLOCK.finditer(README):
        how = (block["how"] or "").removeprefix(": ")
        if block["kind"] != kind:
            continue
        if kind == "python":
            output = OUTPUT.match(README, block.end())
            assert output is not None, "a program is followed by what it prints"
            found.append(Example(block["text"], output[1]))
            continue
        for text in re.split(r"^\$ ", block["text"], flags=re.MULTILINE)[1:]:
            command, _, shown = text.partition("\n")
            code = int(how.removeprefix("exit ")) if how.startswith("exit ") else 0
            found.append(Example(command, None if how == "any output" else shown, code))
    return found


def masked(text: str) -> list[str]:
    """Lines without what differs from run to run."""
    text = re.sub(r"\d{4}-\d\d-\d\dT[\d:.]+Z", "TIME", text)
    text = re.sub(r"127\.0\.0\.1:\d+", "ADDRESS", text)
    text = re.sub(r"/\S+/sandbox/default/", "FOLDER/", text)
    text = re.sub(r"/\S+/backups/\w+-", "FOLDER/", text)
    text = re.sub(r"\b\d+\.\d s\b", "N s", text)
    text = re.sub(r"(?<![\w.-])\d{4,}(?![\w.-])", "N", text)
    text = re.sub(r"\d+(?= +running\b)", "N", text)  # process ids may be short
    return [" ".join(line.split()) for line in text.splitlines()]


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    """The usual sandbox, in a state folder of its own, with the topics, messages and groups that the demo leaves."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(STATE_VARIABLE, str(tmp_path_factory.mktemp("readme")))
        with Sandbox() as sandbox, sandbox.registry() as registry:
            for index, topic in enumerate(TOPICS):
                create_topic(registry, topic, PARTITIONS)
                messages = [demo_message(number) for number in range(index, 40_000, len(TOPICS))]
                produce(KafkaSettings(sandbox.bootstrap), topic, messages)
            for group in DEMO_GROUPS:
                topics = [word for topic in TOPICS for word in ("--topic", topic)]
                done = run("-c", "sandbox", "reset-offsets", group, *topics, "--to-latest", "--execute")
                assert done.returncode == 0, done.stderr
            yield sandbox
            stop(sandbox.name)  # and what examples have detached


@pytest.mark.timeout(600)
def test_shell_examples(kept: Sandbox, tmp_path: Path) -> None:
    """Each command in turn, as a user types it: what it prints, and its exit code."""
    path = f"{Path(ZKGROUP).parent}{os.pathsep}{os.environ['PATH']}"
    found = examples("console")
    assert len(found) > 10
    for example in found:
        done = subprocess.run(
            ["bash", "-c", example.source],
            cwd=tmp_path,
            env=environment({"PATH": path}),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == example.code, (example.source, done.stdout)
        if example.shown is not None:
            assert masked(done.stdout) == masked(example.shown), example.source


def test_library_examples(kept: Sandbox, tmp_path: Path) -> None:
    """The program runs as it stands there, but for ZooKeeper's address."""
    (example,) = examples("python")
    assert "localhost:2181" in example.source
    done = subprocess.run(
        [sys.executable, "-c", example.source.replace("localhost:2181", kept.connect)],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.stdout, done.stderr) == (example.shown, "")


# Names


def options_of(command: Any) -> set[str]:
    """All options of a command and of its subcommands."""
    own = {name for param in command.params for name in (*param.opts, *param.secondary_opts) if name.startswith("-")}
    return own.union(*(options_of(sub) for sub in getattr(command, "commands", {}).values()))


def command_of(name: str) -> Any:
    """A command as the command line has it."""
    import typer

    return typer.main.get_command(app).get_command(None, name)


def test_every_command_is_documented() -> None:
    """Each has a section of its own, and the section's heading is its name."""
    headings = re.findall(r"^### (\S+)$", README, re.MULTILINE)
    assert headings == [lazy.name for lazy in COMMANDS]


@pytest.mark.parametrize("name", [lazy.name for lazy in COMMANDS])
def test_the_options_of_each_section_exist(name: str) -> None:
    """An option named in a command's section is an option of that command, or of a command of that line."""
    section = re.split(rf"^### {name}$", README, flags=re.MULTILINE)[1]
    section = re.split(r"^##", section, maxsplit=1, flags=re.MULTILINE)[0]
    inline = re.findall(r"`(--?[a-z][a-z-]*)[^`]*`", section)
    known = options_of(command_of(name)) | {"--help"}
    assert [option for option in inline if option not in known] == []


def test_every_command_line_is_made_of_what_exists() -> None:
    """Wherever a line of the documentation says ``zkgroup …``: the command and all its options are there today."""
    pages = [README, *(page.read_text(encoding="utf-8") for page in (ROOT / "docs").glob("*.md"))]
    lines = [
        line for page in pages for line in re.findall(r"(?:^ *(?:\$ )?|`)zkgroup (?! )([^`\n\\#]+)", page, re.MULTILINE)
    ]
    assert len(lines) > 25
    known = {lazy.name: options_of(command_of(lazy.name)) | {"--help"} for lazy in COMMANDS}
    for line in lines:
        name, *words = re.sub(r"'[^']*'", "VALUE", line.removeprefix("-c sandbox ").removeprefix("-c prod ")).split()
        assert name in known, line
        options = [word for word in words if re.match(r"--?[a-zA-Z]", word)]
        assert [option for option in options if option not in known[name]] == [], line


def test_links_lead_somewhere() -> None:
    """Every relative link of the documentation names a file, and every anchor a heading of the README."""
    for page in [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]:
        for link in re.findall(r"\]\(([^)]+)\)", page.read_text(encoding="utf-8")):
            if link.startswith("#"):
                heading = link[1:].replace("-", "[- ]")
                assert re.search(rf"^#+ {heading}$", page.read_text(encoding="utf-8"), re.MULTILINE | re.IGNORECASE)
            elif "://" not in link:
                assert (page.parent / link.partition("#")[0]).exists(), f"{page.name}: {link}"


def test_the_module_of_every_library_example_exists() -> None:
    """What the documentation imports from zkgroup can be imported."""
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        for module, names in re.findall(r"^ *from (zkgroup[\w.]*) import (.+)$", page.read_text(), re.MULTILINE):
            found = importlib.import_module(module)
            assert all(hasattr(found, name.strip()) for name in names.split(",")), f"{page.name}: {module}"
