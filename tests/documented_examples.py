"""Examples in the documentation: found in its pages, run as somebody would type them, and compared with what is shown.

A block after ``<!-- run -->`` is run, command by command; what they print must be what is there, but for times,
addresses, paths, and numbers of four digits and more. ``<!-- run: exit 5 -->`` is for commands that end so, and
``<!-- run: any output -->`` for those whose words differ.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import typer
from cli import WITHOUT_SPARK, ZKGROUP, environment, start
from zygote import BY_LINE

from zkgroup.commands import app

#: For a reader in Spark: two tasks instead of 200, a compiler that is soon done, and one thread that collects.
_SPARK = """--conf spark.sql.shuffle.partitions=2 --conf spark.ui.enabled=false
 --driver-java-options '-XX:TieredStopAtLevel=1 -XX:+UseSerialGC' pyspark-shell"""
#: Set to anything: pages get what their commands print, instead of being compared with it.
REWRITE = "REWRITE_DOCS"
_BLOCK = re.compile(
    r"<!-- run(?P<how>: [^>]+)? -->\n```(?P<kind>console|python)\n(?P<text>.*?)```\n",
    re.DOTALL,
)
_OUTPUT = re.compile(r"\n```\n(.*?)```\n", re.DOTALL)
#: A command in the text: on a line of its own, after a prompt, or marked as code.
_COMMAND = re.compile(r"(?:^ *(?:\$ )?|`)(zkgroup (?! )[^`\n]+)", re.MULTILINE)


@dataclass(frozen=True)
class Example:
    """A command (``console``) or a program (``python``). ``shown``: what it prints; None: anything."""

    kind: str
    source: str
    shown: str | None = None
    code: int = 0
    typed: str = ""  # as it is in the page, prompt included


def examples(page: str) -> Iterator[Example]:
    """All that is marked to be run, in the order of the page."""
    for block in _BLOCK.finditer(page):
        how = (block["how"] or "").removeprefix(": ")
        if block["kind"] == "python":
            output = _OUTPUT.match(page, block.end())
            assert output is not None, "a program is followed by what it prints"
            yield Example("python", block["text"], output[1])
            continue
        for text in re.split(r"^\$ ", block["text"], flags=re.MULTILINE)[1:]:
            command, _, shown = text.partition("\n")
            typed = f"$ {command}\n"
            while command.endswith("\\"):
                more, _, shown = shown.partition("\n")
                typed += f"{more}\n"
                command = f"{command[:-1]}{more.lstrip('> ')}"
            code = int(how.removeprefix("exit ")) if how.startswith("exit ") else 0
            yield Example("console", command, None if how == "any output" else shown, code, typed)


def masked(text: str) -> list[str]:
    """Lines without what differs from run to run."""
    text = re.sub(r"\d{4}-\d\d-\d\dT[\d:.]+Z", "TIME", text)
    text = re.sub(r'(?<="cluster_id": )"[^"]+"|(?<="czxid": )\d+', "ID", text)
    text = re.sub(r"127\.0\.0\.1:\d+", "ADDRESS", text)
    text = re.sub(r"/\S+/sandbox/default/", "FOLDER/", text)
    text = re.sub(r"/\S+/backups/\w+-", "FOLDER/", text)
    text = re.sub(r"/\S+/(?=tables/)", "FOLDER/", text)
    text = re.sub(r"(?:at most )?\b\d+\.\d\d? s\b|(?<=registered for )\d+ s\b|\b\d+ s(?= old\b)", "N s", text)
    text = re.sub(r"≥?\b\d+ (?:d|h|min|s)(?: \d+ (?:h|min|s))?\b", "N s", text)
    text = re.sub(r"(?<=\bbehind=)\d+s|(?<=,)\d+\.\d+$", "N", text, flags=re.MULTILINE)
    text = re.sub(r'(?<="lag_seconds": )[\d.]+|(?<="lag_seconds_at_least": )[\d.]+', "N", text)
    text = re.sub(r"\b0x[0-9a-f]{9,}\b", "SESSION", text)
    text = re.sub(r"(?<![\w.-])\d{4,}(?![\w.-])", "N", text)
    text = re.sub(r"\d+(?= +running\b)", "N", text)  # process ids may be short
    return [" ".join(line.split()) for line in text.splitlines()]


def _run(source: str, folder: Path, env: Mapping[str, str]) -> tuple[int, str]:
    """Run a command line: its exit code, and what it prints. ``zkgroup`` with words that no shell changes is forked
    (``cli.start``); a shell runs all else."""
    words = shlex.split(source)
    if words[0] == "zkgroup" and re.fullmatch(r"""(?:[\w\s./:,=+-]|'[^']*')+""", source):
        with tempfile.TemporaryFile() as printed:
            command = start(*words[1:], stdout=printed.fileno(), stderr=printed.fileno(), env=env, folder=folder)
            code = command.wait(240)
            printed.seek(0)
            return code, printed.read().decode()
    done = subprocess.run(
        ["bash", "-c", source],
        cwd=folder,
        env=environment({"PYSPARK_SUBMIT_ARGS": _SPARK, **env}),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=240,
        check=False,
    )
    return done.returncode, done.stdout


@contextmanager
def stopping(name: str = "default") -> Iterator[None]:
    """Stop the sandbox in the end, also where this process is killed: what examples start would outlive it."""
    command = ["sh", "-c", 'read -r _; exec "$0" sandbox stop --name "$1"', ZKGROUP, name]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, env=environment(), start_new_session=True, **pipes):
        yield


def run_examples(page: Path, folder: Path, *, spark: bool = True) -> int:
    """Run the page's commands in ``folder``. Returns how many were run. Without ``spark`` exports run their tasks
    themselves.

    With ``REWRITE_DOCS`` in the environment, what they print is written into the page instead: to be read over, then.
    """
    path = f"{Path(ZKGROUP).parent}{os.pathsep}{os.environ['PATH']}"
    # The Python reader has one handle: of several partitions the first comes first. Lines come as on a terminal.
    env = {
        "PATH": path,
        "ZKGROUP_NATIVE": "0",
        "PYTHONUNBUFFERED": "1",
        BY_LINE: "1",
        **({} if spark else WITHOUT_SPARK),
    }
    text = page.read_text(encoding="utf-8")
    printed: list[tuple[Example, str]] = []
    for example in examples(text):
        if example.kind == "console":
            code, output = _run(example.source, folder, env)
            assert code == example.code, (example.source, code, output)
            printed.append((example, output))
            if example.shown is not None and REWRITE not in os.environ:
                assert masked(output) == masked(example.shown), example.source
    if REWRITE in os.environ:
        page.write_text(_rewritten(text, printed), encoding="utf-8")
    return len(printed)


def _rewritten(text: str, printed: list[tuple[Example, str]]) -> str:
    """The page with what its commands have printed, as if it had been somebody's own machine."""
    position = 0
    for example, output in printed:
        if example.shown is not None:
            at = text.index(example.typed, position) + len(example.typed)
            own = re.sub(r"/\S+/(backups|sandbox)/", r"/home/me/.local/state/zkgroup/\1/", output)
            assert text.startswith(example.shown, at)
            text = text[:at] + own + text[at + len(example.shown) :]
            position = at + len(own)
    return text


def without_shell(line: str) -> str:
    """A command without what a shell does with it, or with its output: comments, pipes, files, ``source <(…)``."""
    line = re.sub(r"^source <\((.*)\)$", r"\1", line)
    return re.split(r" (?:#|\||&|;|>|2>|…|explains)|\\$", line)[0].strip()


def command_lines(page: str) -> list[str]:
    """Every command line that a page shows or names, without what a shell does with it. A name alone is no line."""
    found = []
    for line in _COMMAND.findall(page):
        command = without_shell(line.replace("\\|", "|"))  # as a table writes it
        if " " in re.sub(r"^zkgroup (?:-[cz] \S+ )?", "", command) or command == "zkgroup list-groups":
            found.append(command)
    return found


def parsed(line: str) -> str:
    """The command that a line calls, after the app has parsed all of it; nothing is run. Raises what the app raises."""
    words = shlex.split(line)
    assert words[0] == "zkgroup", line
    command = _root()
    rest = words[1:]
    context = command.make_context("zkgroup", list(rest))
    while hasattr(command, "resolve_command"):
        name, *rest = command.make_parser(context).parse_args(list(rest))[1]
        command = _below(command, name) or command.resolve_command(context, [name, *rest])[1]
        context = command.make_context(command.name, list(rest), parent=context)
    path: str = context.command_path
    return path


@cache
def _root() -> Any:
    return typer.main.get_command(app)


@cache
def _below(group: Any, name: str) -> Any:
    """A command is made once: each of them declares dozens of options."""
    return group.get_command(None, name)
