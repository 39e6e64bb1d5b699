"""The pictures of the documentation: all are shown somewhere, and show commands that exist."""

from __future__ import annotations

import html
import re
from pathlib import Path

import pytest
from documented_examples import parsed
from take_pictures import FOLDER, PICTURES, Picture

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]


def words_of(picture: Picture) -> str:
    """The text of a picture, a line for each of its elements."""
    drawn = (FOLDER / f"{picture.name}.svg").read_text(encoding="utf-8")
    return html.unescape("\n".join(re.findall(r"<text[^>]*>([^<]*)</text>", drawn))).replace("\xa0", " ")


def test_every_picture_is_shown_and_every_shown_one_is_there() -> None:
    """What is taken is linked, and nothing else is."""
    shown = {name for page in PAGES for name in re.findall(r"pictures/([\w-]+)\.svg", page.read_text(encoding="utf-8"))}
    there = {path.stem for path in FOLDER.iterdir()}
    assert shown == there
    assert there >= {picture.name for picture in PICTURES}


@pytest.mark.parametrize("picture", PICTURES, ids=lambda picture: picture.name)
def test_a_picture_shows_its_commands(picture: Picture) -> None:
    """The commands that it was taken of stand in it, and the app takes them today."""
    words = words_of(picture)
    for command in picture.commands:
        assert command in words
        assert parsed(command)
    assert "zkgroup: unexpected" not in words


@pytest.mark.parametrize("picture", PICTURES, ids=lambda picture: picture.name)
def test_a_picture_fetches_nothing(picture: Picture) -> None:
    """Whoever reads it shows nobody: no font and no style comes from elsewhere."""
    drawn = (FOLDER / f"{picture.name}.svg").read_text(encoding="utf-8")
    assert re.findall(r"url\((?!#)|@import|href=", drawn) == []
