"""README.md and the pages of commands: their examples run and print what they show; the options that they name exist.

The examples run on a sandbox with the topics and groups that ``sandbox demo --keep`` leaves. The app accepts every
command line of all pages, and every link leads somewhere.
"""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from cli import environment, run
from documented_examples import command_lines, examples, parsed, run_examples, stopping
from servers import Sandbox

from zkgroup.clients.kafka.client import KafkaSettings
from zkgroup.commands import COMMANDS, app
from zkgroup.commands._demo import GROUP, PARTITIONS, TOPICS, demo_message
from zkgroup.config.setting_files import STATE_VARIABLE
from zkgroup.errors import UsageError
from zkgroup.sandbox.topic_admin import create_topic, produce

ROOT = Path(__file__).parent.parent
COMMANDS_PAGE = ROOT / "docs" / "how-to" / "commands-by-example.md"
COMMANDS_TEXT = COMMANDS_PAGE.read_text(encoding="utf-8")
LIBRARY = (ROOT / "docs" / "reference" / "library.md").read_text(encoding="utf-8")
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
DEMO_GROUPS = (GROUP, "archive")


@pytest.fixture
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
            with stopping(sandbox.name):  # and what examples have detached
                yield sandbox


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("page", "least"), [(ROOT / "README.md", 7), (COMMANDS_PAGE, 30)], ids=lambda value: str(value)
)
def test_shell_examples(page: Path, least: int, kept: Sandbox, tmp_path: Path, pytestconfig: pytest.Config) -> None:
    """Each command in turn: what it prints, and its exit code. The longer page's exports have Spark in the long run."""
    spark = page.name == "README.md" or pytestconfig.getoption("--long")
    assert run_examples(page, tmp_path, spark=spark) >= least


def test_the_readme_is_short() -> None:
    """One screen of text and five examples: what is longer belongs into docs/."""
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 110


def test_library_examples(kept: Sandbox, tmp_path: Path) -> None:
    """The program runs as it is, but for ZooKeeper's address."""
    (example,) = (example for example in examples(LIBRARY) if example.kind == "python")
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


# Figures


def rows_of(page: str) -> list[list[str]]:
    """The rows of a page's tables of goals: work, peer, its figure, ours, ratio, goal, whether it is met."""
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in page.splitlines() if line[:2] == "| "]
    return [row for row in cells if row[-1] in ("yes", "**no**")]


def test_the_benchmarks_name_the_goals_that_are_missed() -> None:
    """A sentence names every row that says "no", and no other."""
    page = (ROOT / "benchmarks" / "README.md").read_text(encoding="utf-8")
    missed = [row for row in rows_of(page) if row[-1] == "**no**"]
    assert len(rows_of(page)) > 20
    (sentence,) = re.findall(r"^\*\*Goals that are not met:\*\* ((?:.+\n)+)", page, re.MULTILINE)
    named = {name.replace("\n", " ") for name in re.findall("“([^”]+)”", sentence)}
    assert named == {row[0] for row in missed}
    assert "All others are." in sentence


# Names


def options_of(command: Any) -> set[str]:
    """All options of a command and of its subcommands."""
    own = {name for param in command.params for name in (*param.opts, *param.secondary_opts) if name.startswith("-")}
    return own.union(*(options_of(sub) for sub in getattr(command, "commands", {}).values()))


def command_of(name: str) -> Any:
    """A command as the command line has it."""
    return typer.main.get_command(app).get_command(None, name)


def test_every_command_is_documented() -> None:
    """Each has a section of its own, and the section's heading is its name."""
    headings = re.findall(r"^## (\S+)$", COMMANDS_TEXT, re.MULTILINE)
    assert headings == [lazy.name for lazy in COMMANDS]


@pytest.mark.parametrize("name", [lazy.name for lazy in COMMANDS])
def test_the_options_of_each_section_exist(name: str) -> None:
    """An option named in a command's section is an option of that command, or of a command of that line."""
    section = re.split(rf"^## {name}$", COMMANDS_TEXT, flags=re.MULTILINE)[1]
    section = re.split(r"^##", section, maxsplit=1, flags=re.MULTILINE)[0]
    inline = re.findall(r"`(--?[a-z][a-z-]*)[^`]*`", section)
    known = options_of(command_of(name)) | {"--help"}
    assert [option for option in inline if option not in known] == []


@pytest.mark.parametrize("page", [page for page in PAGES if page.name != "commands.md"], ids=lambda page: page.name)
def test_every_command_line_is_taken_by_the_app(page: Path) -> None:
    """Wherever a page says ``zkgroup …``: the command, all its options and their values are taken today. (Those of the
    reference are made of the app.)"""
    wrong = []
    for line in command_lines(page.read_text(encoding="utf-8")):
        try:
            parsed(line)
        except (typer.TyperException, UsageError, ValueError) as error:
            wrong.append((line, str(error)))
    assert wrong == []


def test_command_lines_are_found() -> None:
    """What the test above goes by: lines, code in text and tables, without what the shell does with them."""
    page = "`zkgroup owners`\n    zkgroup owners g --verify  # why\n$ zkgroup lag g > f\n| `zkgroup lag g \\| cat` |\n"
    assert command_lines(page) == ["zkgroup owners g --verify", "zkgroup lag g", "zkgroup lag g"]
    assert sum(len(command_lines(page.read_text(encoding="utf-8"))) for page in PAGES) > 150


def test_links_lead_somewhere() -> None:
    """Every relative link of the documentation names a file, and every anchor a heading of its page."""
    for page in [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        for link in re.findall(r"\]\(([^)]+)\)", page.read_text(encoding="utf-8")):
            if "://" in link:
                continue
            path, _, anchor = link.partition("#")
            target = page.parent / path if path else page
            assert target.exists(), f"{page.name}: {link}"
            if anchor:
                headings = re.findall(r"^#+ (.+)$", target.read_text(encoding="utf-8"), re.MULTILINE)
                anchors = {re.sub(r"[^\w -]", "", one.lower()).replace(" ", "-") for one in headings}
                assert anchor in anchors, f"{page.name}: {link}"


def test_the_module_of_every_library_example_exists() -> None:
    """What the documentation imports from zkgroup can be imported."""
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        for module, names in re.findall(r"^ *from (zkgroup[\w.]*) import (.+)$", page.read_text(), re.MULTILINE):
            found = importlib.import_module(module)
            assert all(hasattr(found, name.strip()) for name in names.split(",")), f"{page.name}: {module}"
