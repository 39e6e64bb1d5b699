"""``docs/reference/watching.md`` lists all events and columns, and its pictures are valid."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path
from xml.etree import ElementTree

from zkgroup.commands._watch import COLUMNS
from zkgroup.groups.watch.recording import SAME
from zkgroup.groups.watch.timeline import KINDS, Event

DOCS = Path(__file__).parent.parent / "docs"
PAGE = (DOCS / "reference" / "watching.md").read_text(encoding="utf-8")


def rows(head: str) -> list[str]:
    """The first cells of the table that begins so."""
    table = PAGE[PAGE.index(head) :].split("\n\n")[0]
    return [line.split("|")[1] for line in table.split("\n")[2:]]


def test_every_event_is_listed() -> None:
    """The table of events has each kind once, and nothing else."""
    listed = re.findall(r"`([a-z-]+)`", " ".join(rows("| event |")))
    assert sorted(listed) == sorted(KINDS)


def test_columns_and_keys_of_files_are_listed() -> None:
    """Columns of events, and what may stand in a recording's lines."""
    assert f"`{' '.join(COLUMNS)}`" in PAGE
    assert all(f'"{field.name}"' in PAGE for field in fields(Event))
    written = {*SAME, "owners", "offsets"} - {"at"}
    assert written == set(re.findall(r"`([a-z_]+)`", " ".join(rows("| key | |\n|---|---|\n| `members`"))))


def test_pictures_are_xml() -> None:
    """The page's pictures can be shown."""
    pictures = re.findall(r"pictures/([a-z-]+\.svg)\)", PAGE)
    assert len(pictures) == 1
    for name in pictures:
        assert ElementTree.parse(DOCS / "pictures" / name).getroot().tag.endswith("svg")
