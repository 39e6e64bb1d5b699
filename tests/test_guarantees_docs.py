"""``docs/explanation/guarantees.md`` names tests that exist, and the phases and promises that there are."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from faults.run import WEIGHTS

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "explanation" / "guarantees.md").read_text(encoding="utf-8")
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


def test_every_named_test_exists() -> None:
    """File and function; and nothing else on the page looks like a test that was misspelt."""
    named = NAMED.findall(PAGE)
    assert len(named) > 40
    for path, name in named:
        tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
        assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}, f"{path}::{name}"
    assert len(re.findall(r"::", PAGE)) == len(named)


def test_named_files_and_pages_exist() -> None:
    """What it refers to is there."""
    for path in re.findall(r"`(tests/[\w/]+(?:\.py)?)`", PAGE):
        assert (ROOT / path).exists(), path
    for link in re.findall(r"\]\(([\w./-]+\.md)\)", PAGE):
        assert (ROOT / "docs" / "explanation" / link).exists(), link


def test_promises_of_the_simulation_are_its_invariants() -> None:
    """The words in italics are what the simulation says when they are broken."""
    simulation = (ROOT / "docs" / "explanation" / "simulation.md").read_text(encoding="utf-8")
    promises = PAGE.partition("## What is promised")[2].partition("## Under which faults")[0]
    for words in re.findall(r"(?<!\*)\*([^*|]+)\*(?!\*)", promises):
        assert f"`{words}`" in simulation, words


def test_the_recorded_run_had_every_fault() -> None:
    """The table is of a run as it is now: each kind of fault that there is has its row."""
    recorded = PAGE.partition("## The run on real servers")[2].partition("## What it cannot promise")[0]
    rows = dict(re.findall(r"^\| ([^|]+) \| (\d+) \|$", recorded, re.MULTILINE))
    assert all(int(rows[kind]) > 0 for kind in WEIGHTS)
