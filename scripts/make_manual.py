"""Make ``docs/reference/commands.md`` and the man pages in ``docs/man/`` out of the app's own help.

Usage: ``make_manual.py`` writes them; ``make_manual.py --check`` says which of them are not what it would write, and
then ends with 1. Nothing else is read than the commands, so the same app gives the same files.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from zkgroup import __version__
from zkgroup.commands import COMMANDS, app
from zkgroup.commands._command_group import help_sections

ROOT = Path(__file__).resolve().parents[1]
REFERENCE = ROOT / "docs" / "reference" / "commands.md"
MAN = ROOT / "docs" / "man"

EXIT_CODES = (
    ("0", "Done; also when the reader of the output has gone (a closed pipe)."),
    ("1", "Failed."),
    ("2", "Wrong usage, or an input file that cannot be read."),
    ("3", "ZooKeeper or the brokers cannot be reached."),
    ("4", "No such group, topic or partition."),
    ("5", "Refused: the group is active, was changed meanwhile, or data would be lost."),
    ("6", "Checked, and found wrong."),
    ("7", "Already running: another export of the group."),
    ("129, 130, 143", "Ended by SIGHUP, SIGINT or SIGTERM, after a clean leave."),
)
CHECK_CODES = "With --check, as monitoring systems expect: 0 OK, 1 WARNING, 2 CRITICAL, 3 UNKNOWN."
#: Variables that no option names.
ENVIRONMENT = (
    ("ZKGROUP_CONFIG", "The file of profiles, instead of config.toml in the configuration folder."),
    (
        "ZKGROUP_STATE_DIR",
        "Where backups, snapshots of lag and sandboxes are kept, instead of the platform's state folder.",
    ),
    ("ZKGROUP_CACHE_DIR", "Where a sandbox keeps what it has downloaded, instead of the platform's cache folder."),
    ("NO_COLOR", "Where it is set to anything, nothing is coloured."),
)


@dataclass(frozen=True, slots=True)
class Page:
    """The help of a command as data. ``sections``: title to rows of (option or argument, what it says)."""

    path: tuple[str, ...]
    purpose: str
    paragraphs: tuple[str, ...]
    examples: tuple[str, ...]
    usage: str
    sections: tuple[tuple[str, tuple[tuple[str, str], ...]], ...]
    subcommands: tuple[tuple[str, str], ...]
    aliases: tuple[str, ...]
    connects: bool

    @property
    def name(self) -> str:
        """As it is typed: ``zkgroup sandbox start``."""
        return " ".join(self.path)

    @property
    def man_name(self) -> str:
        """As ``man`` finds it: ``zkgroup-sandbox-start``."""
        return "-".join(self.path)


def pages() -> list[Page]:
    """The program's page, then those of all commands, in the order of ``zkgroup --help``."""
    root = typer.main.get_command(app)
    context = root.make_context("zkgroup", ["version"])
    # The context of a command line, without its parent: the options that all share are told here, and only here.
    rows = tuple((lazy.name, lazy.help) for lazy in COMMANDS)
    found = [_page(root, typer.Context(root, info_name="zkgroup"), ("zkgroup",), rows, (), connects=True)]
    for lazy in COMMANDS:
        command = root.get_command(context, lazy.name)  # type: ignore[attr-defined]
        found += _below(command, context, ("zkgroup", lazy.name), lazy.aliases, connects=lazy.connects)
    return found


def _below(
    command: Any, parent: Any, path: tuple[str, ...], aliases: tuple[str, ...], *, connects: bool
) -> Iterator[Page]:
    context = typer.Context(command, parent=parent, info_name=path[-1])
    below = getattr(command, "commands", {})
    rows = tuple((name, sub.get_short_help_str(200)) for name, sub in below.items())
    yield _page(command, context, path, rows, aliases, connects=connects and not below)
    for name, sub in below.items():
        yield from _below(sub, context, (*path, name), (), connects=connects)


def _page(
    command: Any,
    context: Any,
    path: tuple[str, ...],
    subcommands: tuple[tuple[str, str], ...],
    aliases: tuple[str, ...],
    *,
    connects: bool,
) -> Page:
    first, *rest = (command.help or "").split("\n\n")
    examples = [line for block in rest if block.startswith("\b") for line in block.splitlines()[1:]]
    words = [" ".join(block.split()) for block in rest if not block.startswith("\b")]
    return Page(
        path=path,
        purpose=" ".join(first.split()),
        paragraphs=tuple(words),
        examples=tuple(examples),
        usage=" ".join([" ".join(path), *command.collect_usage_pieces(context)]),
        sections=tuple((title, tuple(rows)) for title, rows in help_sections(command, context).items()),
        subcommands=subcommands,
        aliases=aliases,
        connects=connects,
    )


# The page of all commands


def reference(found: Iterable[Page]) -> str:
    """All of it as one page of Markdown."""
    found = list(found)
    parts = [
        "# Reference",
        "Every command with its options, as `--help` prints them. `scripts/make_manual.py` generates this page and the "
        "man pages (`man zkgroup-owners`); a test compares them with the program.",
        _table(
            ("command", "what it does"),
            [(f"[`{page.name}`](#{page.man_name})", page.purpose) for page in found],
        ),
    ]
    for page in found:
        parts += [f"## {page.name}", page.purpose, f"```\n{page.usage}\n```"]
        parts += [_text(paragraph) for paragraph in page.paragraphs]
        if page.aliases:
            parts.append(f"Also as {' and '.join(f'`zkgroup {alias}`' for alias in page.aliases)}.")
        if page.examples:
            examples = "\n".join(page.examples)
            parts.append(f"```\n{examples}\n```")
        if page.subcommands:
            parts.append(_table(("command", "what it does"), [(f"`{name}`", what) for name, what in page.subcommands]))
        for title, rows in page.sections:
            if page.path != ("zkgroup",) and _shared(title):
                continue
            parts.append(f"**{title}**")
            parts.append(_table(("", ""), [(f"`{_cell(option)}`", _text(_cell(what))) for option, what in rows]))
        if len(page.path) > 1 and not page.subcommands:
            connection = "connection, security and " if page.connects else ""
            parts.append(f"Besides, the options for {connection}messages of [`zkgroup`](#zkgroup).")
    parts += ["## Exit codes", _table(("code", "meaning"), EXIT_CODES), CHECK_CODES.replace("--check", "`--check`")]
    parts += [
        "## Environment",
        _table(("variable", "what"), [(f"`{name}`", what) for name, what in _environment(found)]),
    ]
    return "\n\n".join(parts) + "\n"


def _shared(title: str) -> bool:
    """Whether a section is one that every command has."""
    return title.startswith(("Connection", "Security", "Messages"))


def _table(head: tuple[str, str], rows: Iterable[tuple[str, str]]) -> str:
    return "\n".join([f"| {head[0]} | {head[1]} |", "|---|---|", *(f"| {one} | {two} |" for one, two in rows)])


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _text(paragraph: str) -> str:
    """Words as Markdown: what it would take for its own is escaped, what is typed is marked as code."""
    escaped = re.sub(r"([*_<])", r"\\\1", paragraph)
    return re.sub(r"'((?:zkgroup )?[a-z]+-?[a-z]*(?: [^']*)?)'", _code, escaped)


def _code(match: re.Match[str]) -> str:
    return "`" + re.sub(r"\\([*_<])", r"\1", match[1]) + "`"


def _environment(found: Iterable[Page]) -> list[tuple[str, str]]:
    """Variables, each with the option that it stands for or what it does."""
    named: dict[str, str] = {}
    for page in found:
        for _, rows in page.sections:
            for option, what in rows:
                for variable, secret in re.findall(r"\[env:(\w+)(, the secret itself)?\]", what):
                    longest = max(re.findall(r"--[a-z-]+", option.partition(" / ")[0]), key=len)
                    named[variable] = f"The secret that {longest} holds." if secret else f"The same as {longest}."
    return [*named.items(), *ENVIRONMENT]


# Man pages


def man_page(page: Page, found: list[Page]) -> str:
    """A page of section 1, in the macros that both groff and mandoc know."""
    lines = [
        '.\\" Made by scripts/make_manual.py.',
        f'.TH "{page.man_name.upper()}" 1 "" "zkgroup {__version__}" "zkgroup"',
        ".SH NAME",
        f"{_roff(page.man_name)} \\- {_roff(page.purpose.rstrip('.'))}",
        ".SH SYNOPSIS",
        f".B {_roff(page.name)}",
        _roff(page.usage.removeprefix(page.name).strip()),
        ".SH DESCRIPTION",
        _roff(page.purpose),
    ]
    for paragraph in page.paragraphs:
        lines += [".PP", _roff(paragraph)]
    if page.aliases:
        lines += [".PP", _roff(f"Also as {' and '.join(f'zkgroup {alias}' for alias in page.aliases)}.")]
    if page.subcommands:
        lines += [".SH COMMANDS", *_tagged(page.subcommands)]
    lines.append(".SH OPTIONS")
    for title, rows in page.sections:
        lines += [f'.SS "{_roff(title)}"', *_tagged(rows)]
    if page.connects and len(page.path) > 1:
        lines += [".PP", "The options for TLS, users and access lists are those of", ".BR zkgroup (1)."]
    if page.path == ("zkgroup",):
        lines += [".SH ENVIRONMENT", *_tagged(_environment(found))]
    lines += [".SH EXIT STATUS", *_tagged(EXIT_CODES)]
    if any(option.startswith("--check") for _, rows in page.sections for option, _ in rows):
        lines += [".PP", _roff(CHECK_CODES)]
    if page.examples:
        lines += [".SH EXAMPLES"]
        for example in page.examples:
            lines += [".PP", ".nf", _roff(example), ".fi"]
    others = [other.man_name for other in found if _neighbours(page, other)]
    lines += [".SH SEE ALSO", *_references(others)]
    return "\n".join(lines) + "\n"


def _neighbours(page: Page, other: Page) -> bool:
    """Whether ``page`` refers to ``other``: what is directly below, or above, or beside it among subcommands."""
    below = other.path[:-1] == page.path
    beside = len(page.path) > 2 and other.path[:-1] == page.path[:-1] and other is not page
    return below or beside or other.path == page.path[:-1]


def _references(names: list[str]) -> Iterator[str]:
    for number, name in enumerate(names, 1):
        yield f".BR {_roff(name)} (1){',' if number < len(names) else ''}"


def _tagged(rows: Iterable[tuple[str, str]]) -> Iterator[str]:
    for tag, what in rows:
        yield from (".TP", f".B {_roff(tag)}", _roff(what))


def _roff(text: str) -> str:
    """Words so that roff takes none of them for its own."""
    text = " ".join(text.split()).replace("\\", "\\e").replace("-", "\\-").replace('"', "\\(dq").replace("'", "\\(aq")
    text = "".join(char if char.isascii() else f"\\[u{ord(char):04X}]" for char in text)
    return f"\\&{text}" if text.startswith(".") else text


def files() -> dict[Path, str]:
    """What is to stand in which file."""
    found = pages()
    return {REFERENCE: reference(found)} | {MAN / f"{page.man_name}.1": man_page(page, found) for page in found}


def differing(wanted: dict[Path, str]) -> list[Path]:
    """The files that are not what they should be, those that should not be there included."""
    there = {REFERENCE, *MAN.glob("*")}
    return sorted(
        path
        for path in there | set(wanted)
        if not path.exists() or path.read_text(encoding="utf-8") != wanted.get(path)
    )


def main(arguments: list[str]) -> int:
    """0, or 1 where ``--check`` finds files that differ, which are named."""
    wanted = files()
    found = differing(wanted)
    if arguments == ["--check"]:
        sys.stderr.writelines(f"{path.relative_to(ROOT)} is not what scripts/make_manual.py makes\n" for path in found)
        return 1 if found else 0
    MAN.mkdir(exist_ok=True)
    for path in found:
        if path in wanted:
            path.write_text(wanted[path], encoding="utf-8")
        else:
            path.unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
