"""``zkgroup version``: what runs here, for bug reports."""

from __future__ import annotations

import platform
from importlib import metadata
from typing import Annotated

import typer

from zkgroup import __version__

from ._render import Output, print_object, print_rows

LIBRARIES = ("kazoo", "confluent-kafka", "orjson", "typer", "rich", "pyspark", "pyarrow")


def version(
    output: Annotated[Output, typer.Option("--output", help="How it is shown.")] = "table",
) -> None:
    """The versions of zkgroup, of Python and of the libraries."""
    found: dict[str, str | None] = {"zkgroup": __version__, "python": platform.python_version()}
    found |= {name: _installed(name) for name in LIBRARIES}
    if output == "json":
        print_object(found)
    else:
        print_rows([{"name": name, "version": number} for name, number in found.items()], ["name", "version"], output)


def _installed(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
