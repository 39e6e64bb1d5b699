"""docs/reference/configuration.md says what the code does."""

from __future__ import annotations

from pathlib import Path

from make_configuration_reference import updated

from zkgroup.config.profiles import _FIELDS
from zkgroup.config.settings_table import SETTINGS

DOCS = Path(__file__).resolve().parents[2] / "docs" / "reference" / "configuration.md"


def test_the_tables_are_those_of_the_code() -> None:
    """``scripts/make_configuration_reference.py docs/reference/configuration.md`` updates the page."""
    text = DOCS.read_text("utf-8")
    assert updated(text) == text


def test_every_variable_and_profile_key_is_documented() -> None:
    """Nothing that can be set is left out."""
    text = DOCS.read_text("utf-8")
    for name in ("ZKGROUP_CONFIG", *_FIELDS, *(one.variable for one in SETTINGS if one.name and one.in_environment)):
        assert name in text, name
