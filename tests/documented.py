"""Examples in the documentation: found in its pages, run as somebody would type them, and compared with what is shown.

A block after ``<!-- run -->`` is run, command by command; what they print must be what stands there, but for times,
addresses, paths, and numbers of four digits and more. ``<!-- run: exit 5 -->`` is for commands that end so, and
``<!-- run: any output -->`` for those whose words differ. ``<!-- prepare: NAME -->`` has a test bring about what the
page then is about.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer
from cli import ZKGROUP, environment

from zkgroup.commands import app

ROOT = Path(__file__).resolve().parents[1]
_BLOCK = re.compile(
    r"<!-- prepare: (?P<scene>[a-z-]+) -->"
    r"|<!-- run(?P<how>: [^>]+)? -->\n```(?P<kind>console|python)\n(?P<text>.*?)```\n",
    re.DOTALL,
)
_OUTPUT = re.compile(r"\n```\n(.*?)```\n", re.DOTALL)
#: A command in the text: on a line of its own, after a prompt, or marked as code.
_COMMAND = re.compile(r"(?:^ *(?:\$ )?|`)(zkgroup (?! )[^`\n]+)", re.MULTILINE)


@dataclass(frozen=True)
class Example:
    """A command (``console``), a program (``python``), or a ``scene``. ``shown``: what it prints; None: anything."""

    kind: str
    source: str
    shown: str | None = None
    code: int = 0


def examples(page: str) -> Iterator[Example]:
    """All that is marked to be run or prepared, in the order of the page."""
    for block in _BLOCK.finditer(page):
        if block["scene"]:
            yield Example("scene", block["scene"])
            continue
        how = (block["how"] or "").removeprefix(": ")
        if block["kind"] == "python":
            output = _OUTPUT.match(page, block.end())
            assert output is not None, "a program is followed by what it prints"
            yield Example("python", block["text"], output[1])
            continue
        for text in re.split(r"^\$ ", block["text"], flags=re.MULTILINE)[1:]:
            command, _, shown = text.partition("\n")
            while command.endswith("\\"):
                more, _, shown = shown.partition("\n")
                command = f"{command[:-1]}{more.lstrip('> ')}"
            code = int(how.removeprefix("exit ")) if how.startswith("exit ") else 0
            yield Example("console", command, None if how == "any output" else shown, code)


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


def run_examples(
    page: str, folder: Path, env: Mapping[str, str], scenes: Mapping[str, Callable[[], None]] | None = None
) -> int:
    """Run the page's commands in ``folder``, each as a user types it. Returns how many were run."""
    path = f"{Path(ZKGROUP).parent}{os.pathsep}{os.environ['PATH']}"
    count = 0
    for example in examples(page):
        if example.kind == "scene":
            (scenes or {})[example.source]()
        elif example.kind == "console":
            done = subprocess.run(
                ["bash", "-c", example.source],
                cwd=folder,
                env=environment({"PATH": path, **env}),
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
            count += 1
    return count


def command_lines(page: str) -> list[str]:
    """Every command line that a page shows or names, without what a shell does with it. A name alone is no line."""
    found = []
    for line in _COMMAND.findall(page):
        line = line.replace("\\|", "|")  # as a table writes it
        command = re.split(r" (?:#|\||&|;|>|2>|…|tells more)|\\$", line)[0].strip()
        if " " in re.sub(r"^zkgroup (?:-[cz] \S+ )?", "", command) or command == "zkgroup list-groups":
            found.append(command)
    return found


def parsed(line: str) -> str:
    """The command that a line calls, after the app has parsed all of it; nothing is run. Raises what the app raises."""
    words = shlex.split(line)
    assert words[0] == "zkgroup", line
    command: Any = typer.main.get_command(app)
    context = command.make_context("zkgroup", words[1:])
    while hasattr(command, "resolve_command"):
        _, command, rest = command.resolve_command(context, [*context._protected_args, *context.args])
        context = command.make_context(command.name, rest, parent=context)
    path: str = context.command_path
    return path
