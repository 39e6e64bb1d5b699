"""The schemas of what commands print as JSON: they are up to date, each command has one, and tests use them."""

from __future__ import annotations

import subprocess
import sys

import make_output_schemas
import pytest
from cli import run
from jsonschema import Draft202012Validator
from output_schemas import check_json, schema_name, schemas

from zkgroup.commands import COMMANDS

#: They print no JSON of their own.
WITHOUT = {"completions"}


def test_they_are_what_the_rows_say() -> None:
    """Make them anew with scripts/make_output_schemas.py where a row has changed; each is a JSON Schema."""
    done = subprocess.run(
        [sys.executable, make_output_schemas.__file__, "--check"], stderr=subprocess.PIPE, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    for schema in schemas().values():
        Draft202012Validator.check_schema(schema)


def test_each_command_has_one() -> None:
    """Of commands with --output."""
    assert {name.split()[0] for name in schemas()} == {lazy.name for lazy in COMMANDS} - WITHOUT


@pytest.mark.parametrize(
    ("words", "is_object", "name"),
    [
        ("-z z topics", False, "topics"),
        ("topics orders", True, "topics TOPIC"),
        ("inspect-group --check g --all", True, "inspect-group --all --check"),
        ("inspect-group g --section members", False, "inspect-group --section members"),
        ("sandbox status --name members", False, "sandbox status"),
        ("version", True, "version"),
        ("--help", False, None),
    ],
)
def test_the_schema_of_a_command_line(words: str, name: str | None, *, is_object: bool) -> None:
    """That which most of its words decide."""
    assert schema_name(words.split(), is_object=is_object) == name


def test_another_output_is_noticed() -> None:
    """A field of another type, one that is missing and one that is not known fail the test whose command prints it."""
    words = ["version", "--output", "json"]
    printed = run(*words).stdout
    for wrong in (printed.replace('"zkgroup": "', '"zkgroup": 1, "x": "'), printed.replace('"java"', '"jawa"'), "{}"):
        assert wrong != printed
        with pytest.raises(AssertionError, match="version --output json"):
            check_json(words, subprocess.CompletedProcess(words, 0, wrong, ""))
