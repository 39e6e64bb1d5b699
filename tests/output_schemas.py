"""What commands of tests print as JSON, compared with the schemas of the documentation."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

try:
    from jsonschema import Draft202012Validator
except ImportError:  # where a wheel is tried, with few of the development tools
    Draft202012Validator = None  # type: ignore[assignment,misc]

FILE = Path(__file__).resolve().parents[1] / "docs" / "reference" / "output-schemas.json"
#: Rows of an output that are compared.
MOST = 20
#: An object a line.
LINES = {"consume", "inspect-group --watch", "inspect-group --replay"}


@cache
def schemas() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))["$defs"]
    return found


@cache
def _validator(name: str) -> Any:
    return Draft202012Validator(schemas()[name])


def schema_name(words: Sequence[str], *, is_object: bool) -> str | None:
    """The schema of a command line: that with most of its options. An object is printed where a TOPIC or FILE is."""
    commands = {name.split()[0] for name in schemas()}
    command = next((word for word in words if word in commands), None)
    fitting = [
        name
        for name in schemas()
        if name.split()[0] == command
        and all(word in words or (word.isupper() and is_object) for word in name.split()[1:])
    ]
    return max(fitting, key=lambda name: len(name.split()), default=None)


def check_json(words: Sequence[str], done: subprocess.CompletedProcess[str]) -> None:
    """Raise ``AssertionError`` where a command has printed JSON that its schema does not allow. Errors, files that are
    written to stdout, and chosen columns are no output of that kind."""
    asked = ("--output", "json") in pairwise(words)
    is_verdict = "--check" in words and done.returncode in (1, 2)
    if not asked or not done.stdout or {"-", "--columns"} & set(words) or not (done.returncode in (0, 6) or is_verdict):
        return
    name = schema_name(words, is_object=done.stdout.startswith("{"))
    if name is None or Draft202012Validator is None:
        return
    printed = [json.loads(done.stdout)] if name not in LINES else map(json.loads, done.stdout.splitlines()[:MOST])
    for one in printed:
        shown = one[:MOST] if isinstance(one, list) else one
        error = next(_validator(name).iter_errors(shown), None)
        assert error is None, (
            f"{' '.join(words)}: {error and error.json_path}: {error and error.message}: correct the row's type, "
            "or run scripts/make_output_schemas.py"
        )
