"""What the program says of itself: the help of every command, the Scala consumer and the man pages that are made of
it."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
from pathlib import Path

import make_manual
import pytest
import typer
from documented_examples import parsed, without_shell
from make_manual import EXIT_CODES, MAN, ROOT, Page, pages

import zkgroup
from zkgroup import commands
from zkgroup.commands import app

PAGES = pages()
#: One line of a terminal of 80 columns, less the indentation of help.
LINE = 78


def test_the_command_pages_and_the_man_pages_are_what_the_help_says() -> None:
    """Make them anew with scripts/make_manual.py where a command has changed."""
    script = str(Path(make_manual.__file__))
    done = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_exit_codes_are_those_of_their_page() -> None:
    """``docs/reference/exit-codes.md`` has them at more length."""
    page = (ROOT / "docs/reference/exit-codes.md").read_text("utf-8")
    assert [code for code, _ in EXIT_CODES] == re.findall(r"^\| ([\d, ]+) \|", page, re.MULTILINE)


def test_a_page_that_is_out_of_date_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The check sees a page that differs, one that is missing, and one of a command that is gone."""
    (tmp_path / "zkgroup-gone.1").write_text("")
    monkeypatch.setattr(make_manual, "MAN", tmp_path)
    wanted = make_manual.files()
    for path, text in wanted.items():
        if path.parent == tmp_path and path.name != "zkgroup-owners.1":
            path.write_text(text if path.name != "zkgroup-assign.1" else text + " ")
    differing = [path.name for path in make_manual.differing(wanted)]
    assert differing == ["zkgroup-assign.1", "zkgroup-gone.1", "zkgroup-owners.1"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_help_begins_with_one_line_and_has_two_examples(page: Page) -> None:
    """A purpose that fits on a line of a narrow terminal, and at least two examples."""
    assert len(page.purpose) <= LINE
    assert page.purpose.endswith(".")
    assert page.purpose.count(". ") == 0, "one sentence"
    assert len(page.examples) >= 2


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_examples_fit_on_a_line(page: Page) -> None:
    """Nobody reads, or copies, a command that a terminal of 80 columns has broken."""
    assert [example for example in page.examples if len(example) > LINE] == []


def help_at_80_columns(page: Page) -> list[str]:
    """What --help shows on a narrow terminal."""
    command = typer.main.get_command(app)
    context = typer.Context(command, info_name="zkgroup", terminal_width=80)
    for name in page.path[1:]:
        command = command.get_command(context, name)  # type: ignore[attr-defined]
        context = typer.Context(command, parent=context, info_name=name, terminal_width=80)
    return command.get_help(context).splitlines()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_help_is_made_for_80_columns(page: Page) -> None:
    """No line is longer; examples stand under a title of their own, each on one line, where they can be copied."""
    lines = help_at_80_columns(page)
    assert [line for line in lines if len(line) > 80] == []
    start = lines.index("Examples:") + 1
    assert lines[start : start + len(page.examples) + 1] == [*(f"  {example}" for example in page.examples), ""]


def test_no_message_names_a_page_of_the_sources() -> None:
    """Who has installed the wheel has no docs/: help, errors and findings name what is there."""
    said = [text for page in PAGES for text in (page.purpose, *page.paragraphs)]
    said += [what for page in PAGES for _, rows in page.sections for _, what in rows]
    for path in {path for package in (zkgroup, commands) for path in Path(package.__file__).parent.rglob("*.py")}:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        alone = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}  # what only explains the code
        texts = [node for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
        said += [node.value for node in texts if id(node) not in alone]
    assert len(said) > 3000
    assert [text for text in said if re.search(r"\bdocs/|\b\w+\.md\b", text)] == []


@pytest.mark.parametrize(("page", "example"), [(page, line) for page in PAGES for line in page.examples])
def test_examples_are_taken_by_the_app(page: Page, example: str) -> None:
    """Every option of an example exists, with a value that it takes; the example is one of that very command."""
    assert parsed(without_shell(example)).startswith(page.name)


@pytest.mark.parametrize("line", ["zkgroup owners", "zkgroup owners g --nonsense", "zkgroup offsets g --store nowhere"])
def test_wrong_examples_would_be_found(line: str) -> None:
    """What is checked above can fail: a missing argument, an unknown option, a value that is none."""
    with pytest.raises(typer.TyperException):
        parsed(line)


@pytest.mark.parametrize("page", [page for page in PAGES if not page.subcommands], ids=lambda page: page.name)
def test_long_lists_of_options_are_grouped(page: Page) -> None:
    """No section of a command's own options is longer than a screen shows."""
    assert max(len(rows) for _, rows in page.sections) <= 16


@pytest.mark.skipif(shutil.which("man") is None or shutil.which("groff") is None, reason="nothing shows man pages here")
def test_man_shows_every_page_without_a_warning() -> None:
    """groff warns of nothing, and what it shows has the options as they are typed, on lines that fit 80 columns."""
    for path in sorted(MAN.glob("*.1")):
        shown = subprocess.run(
            ["man", "--warnings=w", "-E", "UTF-8", "-l", str(path)],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
            env={"PATH": "/usr/bin:/bin", "MANWIDTH": "80", "MAN_KEEP_FORMATTING": "", "LC_ALL": "C.UTF-8"},
        )
        assert shown.stderr == "", path.name
        page = next(page for page in PAGES if page.man_name == path.stem)
        assert page.name in shown.stdout
        assert all(example in shown.stdout for example in page.examples), path.name
        assert [line for line in shown.stdout.splitlines() if len(line) > 80] == [], path.name


def test_the_command_pages_are_part_of_the_documentation() -> None:
    """Whoever reads the README finds it."""
    assert "docs/reference/commands.md" in (ROOT / "README.md").read_text(encoding="utf-8")
