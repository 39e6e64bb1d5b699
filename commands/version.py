"""``zkgroup version`` and ``zkgroup --version``: what runs here, for bug reports."""

from __future__ import annotations

import platform
from contextlib import suppress
from importlib import metadata
from typing import Annotated

from zkgroup import __version__
from zkgroup.errors import UsageError

from ._output import Output, has_objects, print_object, print_rows
from ._shared_options import option

LIBRARIES = ("kazoo", "confluent-kafka", "orjson", "msgspec", "regex", "typer", "rich", "pyspark", "pyarrow")
# Those of ``--version``.
SHOWN = ("python", "kazoo", "confluent-kafka", "librdkafka", "reader", "pyspark", "java")


def version(
    output: Annotated[Output, option("--output", help="Output format.")] = "table",
) -> None:
    """Show the versions of zkgroup, Python, the libraries and Java.

    What is not installed has none: pyspark and pyarrow come with an extra. java is the one that Spark and sandboxes
    would run on. reader is native where messages are read by zkgroup's C extension, else Python.

    \b
    zkgroup version
    zkgroup version --output json
    """
    found = versions()
    if has_objects(output):
        print_object(found, output)
    else:
        print_rows([{"name": name, "version": number} for name, number in found.items()], ["name", "version"], output)


def versions() -> dict[str, str | None]:
    """Name to version, None where it is not there. Only librdkafka, which alone knows its version, is loaded for it."""
    from zkgroup.java_runtime import find_java, java_release

    found: dict[str, str | None] = {"zkgroup": __version__, "python": platform.python_version()}
    for name in LIBRARIES:
        found[name] = None
        with suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
        if name == "confluent-kafka":
            found |= _native_parts()
    try:
        return found | {"java": java_release(find_java())}
    except UsageError:
        return found | {"java": None}


def _native_parts() -> dict[str, str | None]:
    """Of librdkafka and the reader; a library that does not load is what a report is about."""
    try:
        from zkgroup.clients.kafka.client import libversion
        from zkgroup.clients.kafka.native_reader import reader_in_use
    except ImportError:
        return {"librdkafka": None, "reader": None}
    return {"librdkafka": str(libversion()[0]), "reader": reader_in_use()}


def summary() -> str:
    """Two lines: zkgroup's own version, and those of what matters in a report about it, as far as it is there."""
    found = versions()
    shown_versions = [f"{name} {found[name]}" for name in SHOWN if found[name] is not None]
    return f"zkgroup {__version__}\n{', '.join(shown_versions)}"
