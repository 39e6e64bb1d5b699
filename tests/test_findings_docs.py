"""Every kind of finding has a page, every page a kind, and what pages and remedies advise can be typed."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from broken_groups_by_hand import every_finding

from zkgroup.commands import COMMANDS, app
from zkgroup.groups.findings.finding_kinds import KINDS
from zkgroup.text import command_line

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "docs" / "reference" / "findings"
INDEX = (FOLDER / "README.md").read_text(encoding="utf-8")
HEADINGS = ["What it means", "How to see it", "Why it happens", "What to do"]


def page(code: str) -> str:
    return (FOLDER / f"{code}.md").read_text(encoding="utf-8")


def test_codes_and_pages_are_the_same() -> None:
    """A page for each code, and no page for anything else; codes are nouns in kebab case."""
    assert {path.stem for path in FOLDER.iterdir()} == {*KINDS, "README"}
    assert [code for code in KINDS if not re.fullmatch(r"[a-z]+(-[a-z]+)*", code)] == []


@pytest.mark.parametrize("code", KINDS)
def test_a_page_says_what_the_code_says(code: str) -> None:
    """Its name, severities and meaning, an example of it, and the four questions that it answers."""
    text = page(code)
    lines = text.splitlines()
    kind = KINDS[code]
    assert lines[0] == f"# {code}"
    assert lines[2] == f"**{' or '.join(kind.severities)}** · {kind.meaning}"
    example = re.search(r"```\n(\w+) +([a-z-]+): \S+\n {10}\S", text)
    assert example is not None
    assert example[2] == code
    assert example[1] in kind.severities
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == HEADINGS


def test_the_index_lists_every_kind() -> None:
    """Code, severities and meaning, in the order in which findings are shown."""
    rows = re.findall(r"^\| \[([a-z-]+)\]\(\1\.md\) \| ([a-z, ]+) \| (.+) \|$", INDEX, re.MULTILINE)
    assert rows == [(code, ", ".join(kind.severities), kind.meaning) for code, kind in KINDS.items()]


def test_links_lead_somewhere() -> None:
    """Every link is to a page that is there."""
    links = [link for path in FOLDER.iterdir() for link in re.findall(r"\]\(([^)]+)\)", path.read_text("utf-8"))]
    assert len(links) > len(KINDS)
    assert [link for link in links if not (FOLDER / link).exists()] == []


def advised_by_pages() -> Iterator[str]:
    """The command lines of the pages: blocks, and what is in the text by itself."""
    for path in FOLDER.iterdir():
        yield from re.findall(r"^    (zkgroup .+)$", path.read_text("utf-8"), re.MULTILINE)
        yield from re.findall(r"`(zkgroup [a-z]+-?[a-z]* [^`]+)`", path.read_text("utf-8"))


def advised_by_remedies() -> Iterator[str]:
    """The command lines of every kind's remedy."""
    for finding in every_finding():
        yield from map(command_line, finding.commands)


def check(line: str) -> None:
    """The command exists, and takes these words."""
    program, name, *words = shlex.split(line)
    assert program == "zkgroup"
    command: Any = typer.main.get_command(app).get_command(None, name)  # type: ignore[attr-defined,arg-type]
    assert command is not None, line
    numbers = ["7" if word == "N" else word for word in words]
    command.make_context(name, numbers)  # raises where an option or an argument is not one of its own


def test_what_pages_advise_can_be_typed() -> None:
    """Commands and options of every line exist, and their values are of the right kind."""
    lines = set(advised_by_pages())
    assert len(lines) > 30
    for line in lines:
        if "GROUP" not in line:
            check(line)


def test_what_remedies_advise_can_be_typed() -> None:
    """The same for what findings themselves say; every command that mends something is advised by one."""
    lines = set(advised_by_remedies())
    for line in lines:
        check(line)
    advised = {shlex.split(line)[1] for line in lines}
    assert advised >= {"assign", "reset-offsets", "delete-group", "unsubscribe", "release-owners", "owners", "offsets"}
    assert advised <= {lazy.name for lazy in COMMANDS}
