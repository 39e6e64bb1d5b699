"""The layers point one way: what may import what, read from the sources with ``ast``."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[1]

#: Errors, and the parts of their messages.
ERRORS = {"errors", "text"}
#: What export and sandbox stand on alike.
BELOW_EXPORT = {
    *("c_extensions", "child_processes", "java_runtime"),
    *("connector", "groups", "clients", "schemas", "protocol", "config", *ERRORS),
}
#: Layer → the layers it may import from, its own included.
ALLOWED = {
    "errors": ERRORS,
    "config": {"config", *ERRORS},
    "c_extensions": {"c_extensions"},
    "child_processes": {"child_processes"},
    "java_runtime": {"java_runtime", "child_processes", "errors"},
    "text": {"text"},
    "protocol": {"protocol", "config", *ERRORS},
    "schemas": {"schemas", "c_extensions", *ERRORS},
    "clients": {"clients", "schemas", "c_extensions", "protocol", "config", *ERRORS},
    "connector": {"connector", "clients", "protocol", "config", *ERRORS},
    "groups": {"groups", "clients", "protocol", "config", *ERRORS},
    "export": {"export", *BELOW_EXPORT},
    "sandbox": {"sandbox", *BELOW_EXPORT},
}

#: The folders within a layer, each with those that it may import from besides its own. Other modules: below all.
WITHIN = {
    "export": {
        "model": set[str](),
        "stores": {"model"},
        "tasks": {"model", "stores"},
        "spark": {"model", "stores", "tasks"},
        "destination": {"model", "stores"},
        "planning": {"model", "stores", "destination"},
        "run": {"model", "stores", "tasks", "spark", "destination", "planning"},
        "checks": {"model", "stores", "destination", "planning", "run"},
    },
    "groups": {
        "snapshot": set[str](),
        "offset_files": {"snapshot"},
        "watch": {"snapshot"},
        "changes": {"snapshot", "offset_files"},
        "assignment": {"snapshot", "changes"},
        "findings": {"snapshot", "changes", "assignment"},
        "monitoring": {"snapshot", "changes", "assignment", "findings"},
    },
}

#: Foreign package → where alone it may be imported.
AT_HOME = {
    "kazoo": ("zkgroup/clients/zookeeper/",),
    "confluent_kafka": ("zkgroup/clients/kafka/client.py",),
    "pyspark": ("zkgroup/export/spark/", "zkgroup/export/tasks/task_results.py"),
    "pyarrow": (
        "zkgroup/export/",
        "zkgroup/schemas/",
        "zkgroup/clients/kafka/arrow_columns.py",
    ),
    "fastavro": ("zkgroup/schemas/",),
    "deltalake": ("zkgroup/export/destination/delta_tables.py",),
    "pyiceberg": ("zkgroup/export/destination/iceberg_tables.py",),
    "typer": ("commands/",),
    "rich": ("commands/",),
    "click": ("commands/",),
}

#: What would make the protocol impure.
IMPURE = {
    "asyncio", "concurrent", "datetime", "io", "multiprocessing", "os", "pathlib", "queue", "random", "select",
    "selectors", "signal", "socket", "subprocess", "sys", "tempfile", "threading", "time", "uuid",
}  # fmt: skip


class Import(NamedTuple):
    """One imported module, and where it is written."""

    file: str
    line: int
    module: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line} imports {self.module}"


def sources() -> list[Path]:
    """Every module of the package and of ``commands/``."""
    return sorted([*(ROOT / "zkgroup").rglob("*.py"), *(ROOT / "commands").rglob("*.py")])


def imports_of(source: str, file: str) -> Iterator[Import]:
    """All imports of a module, also those inside functions and for type checking, as absolute names."""
    package = file.removesuffix(".py").removesuffix("/__init__").split("/")
    if not file.endswith("/__init__.py"):
        package = package[:-1]
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(file, node.lineno, alias.name)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            yield Import(file, node.lineno, module)
            for alias in node.names:
                yield Import(file, node.lineno, f"{module}.{alias.name}")


@cache
def all_imports() -> list[Import]:
    found: list[Import] = []
    for path in sources():
        file = path.relative_to(ROOT).as_posix()
        found += imports_of(path.read_text(encoding="utf-8"), file)
    return found


def layer_of(file: str) -> str:
    """The layer a file belongs to: its folder below ``zkgroup``, or its own name; ``commands`` is above all."""
    parts = file.split("/")
    return "commands" if parts[0] == "commands" else parts[1].removesuffix(".py")


def wrong_layers(imports: list[Import]) -> list[Import]:
    """Imports that point to the right, or from the core to ``commands``."""
    wrong = []
    for entry in imports:
        parts = entry.module.split(".")
        layer = layer_of(entry.file)
        if parts[0] == "commands" and layer != "commands":
            wrong.append(entry)
        if parts[0] != "zkgroup" or len(parts) < 2 or layer in ("commands", "__main__", "__init__"):
            continue
        if parts[1] not in ALLOWED[layer] and parts[1] not in ("__version__",):
            wrong.append(entry)
    return wrong


def wrong_folders(imports: list[Import]) -> list[Import]:
    """Imports among the folders of a layer that point to the right."""
    wrong = []
    for entry in imports:
        here, there = entry.file.split("/"), entry.module.split(".")
        folders = WITHIN.get(here[1]) if here[0] == "zkgroup" else None
        if folders is None or there[:2] != here[:2] or len(there) < 3 or there[2] not in folders:
            continue
        if len(here) < 4 or there[2] not in {here[2], *folders[here[2]]}:
            wrong.append(entry)
    return wrong


def away_from_home(imports: list[Import]) -> list[Import]:
    """Imports of a foreign package outside of the only place it may be imported in."""
    return [
        entry
        for entry in imports
        if (homes := AT_HOME.get(entry.module.split(".")[0])) is not None
        and not any(entry.file == home or (home.endswith("/") and entry.file.startswith(home)) for home in homes)
    ]


def impure(imports: list[Import]) -> list[Import]:
    """Imports in the protocol of what does I/O, reads a clock, starts threads or draws random numbers. The one time-out
    is that of matching a topic filter."""
    return [
        entry
        for entry in imports
        if entry.file.startswith("zkgroup/protocol/")
        and entry.module.split(".")[0] in IMPURE
        and (entry.file, entry.module) != ("zkgroup/protocol/topic_filter.py", "time")
    ]


def commands_imports(imports: list[Import]) -> list[Import]:
    """Absolute imports among the modules of ``commands/``, which mypy and the installed package name differently."""
    return [
        entry for entry in imports if entry.file.startswith("commands/") and entry.module.startswith("zkgroup.commands")
    ]


def test_there_is_something_to_read() -> None:
    """The sources are found, so that the tests below are about something."""
    names = {path.relative_to(ROOT).as_posix() for path in sources()}
    assert {"zkgroup/protocol/names.py", "zkgroup/clients/zookeeper/session.py", "commands/__init__.py"} <= names


def test_layers_point_one_way() -> None:
    """{protocol, schemas} ← clients ← {connector, groups} ← {export, sandbox} ← commands; config and errors below."""
    assert [str(entry) for entry in wrong_layers(all_imports())] == []


def test_folders_within_a_layer_point_one_way() -> None:
    """As the docstrings of ``zkgroup.export`` and ``zkgroup.groups`` draw it, and no other module is in them."""
    assert [str(entry) for entry in wrong_folders(all_imports())] == []
    others = {path.stem for layer in WITHIN for path in (ROOT / "zkgroup" / layer).glob("*.py")}
    assert others == {"__init__", "chart_axes", "group_choices", "group_model", "partition_scope"}
    assert {layer: {path.parent.name for path in (ROOT / "zkgroup" / layer).glob("*/*.py")} for layer in WITHIN} == {
        layer: set(folders) for layer, folders in WITHIN.items()
    }


def test_foreign_packages_stay_at_home() -> None:
    """kazoo, confluent_kafka, pyspark, typer and rich are each imported in one place only."""
    assert [str(entry) for entry in away_from_home(all_imports())] == []


def test_protocol_is_pure() -> None:
    """The protocol imports nothing that does I/O, reads a clock, starts a thread or draws random numbers."""
    assert [str(entry) for entry in impure(all_imports())] == []


def test_commands_import_each_other_relatively() -> None:
    """``commands/`` is installed under another name than mypy knows it by: only relative imports work for both."""
    assert [str(entry) for entry in commands_imports(all_imports())] == []


@pytest.mark.parametrize(
    ("file", "source", "check"),
    [
        ("zkgroup/protocol/x.py", "from zkgroup.clients import kafka", wrong_layers),
        ("zkgroup/clients/x.py", "from ..connector import stream", wrong_layers),
        ("zkgroup/clients/x.py", "from .. import connector", wrong_layers),
        ("zkgroup/groups/x.py", "import zkgroup.connector.stream", wrong_layers),
        ("zkgroup/errors.py", "from zkgroup import config", wrong_layers),
        ("zkgroup/export/x.py", "from zkgroup.sandbox import state", wrong_layers),
        ("zkgroup/config/x.py", "import commands", wrong_layers),
        ("zkgroup/export/destination/x.py", "from zkgroup.export.planning import mismatch", wrong_folders),
        (
            "zkgroup/export/tasks/x.py",
            "def f():\n    from ..destination.file_check import Footer",
            wrong_folders,
        ),
        ("zkgroup/export/x.py", "from zkgroup.export.model import layout", wrong_folders),
        ("zkgroup/groups/snapshot/x.py", "from zkgroup.groups.findings import findings", wrong_folders),
        ("zkgroup/export/run/x.py", "import pyspark", away_from_home),
        ("zkgroup/groups/x.py", "def f():\n    from kazoo.client import KazooClient", away_from_home),
        ("zkgroup/clients/kafka/fetcher.py", "import confluent_kafka", away_from_home),
        ("zkgroup/sandbox/x.py", "from pyspark import SparkContext", away_from_home),
        ("zkgroup/groups/x.py", "import rich.table", away_from_home),
        ("zkgroup/protocol/x.py", "import time", impure),
        ("zkgroup/protocol/x.py", "if True:\n    from os import path", impure),
        ("commands/x.py", "from zkgroup.commands import _context", commands_imports),
    ],
)
def test_a_violation_is_seen(file: str, source: str, check) -> None:
    """Each rule finds the violation it is there for, also inside functions and written relatively."""
    assert check(list(imports_of(source, file)))


def test_a_name_is_given_once() -> None:
    """No two modules share a name, and no two classes; a reader who searches for one finds one."""
    modules = [path.name for path in sources() if path.name != "__init__.py"]
    classes = [
        node.name
        for path in sources()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef)
    ]
    assert [name for name, count in Counter([*modules, *classes]).items() if count > 1] == []


def test_the_walks_of_the_design() -> None:
    """Each file of a walk in DESIGN.md imports an earlier one or is imported by it, and comes once but for claims."""
    text = (ROOT / "DESIGN.md").read_text(encoding="utf-8").partition("## Five walks")[2].partition("\n## ")[0]
    walks = [re.findall(r"(?m)^    (\S+\.py)  ", part) for part in re.split(r"(?m)^\*\*", text)[1:]]
    links = {(entry.file.removesuffix(".py").replace("/", "."), entry.module) for entry in all_imports()}
    links |= {(module, file) for file, module in links}
    assert len(walks) == 5
    for walk in walks:
        names = [name.removesuffix(".py").replace("/", ".") for name in walk]
        modules = [name if name.startswith("commands.") else f"zkgroup.{name}" for name in names]
        for place, module in enumerate(modules[1:], 1):
            assert any((before, module) in links for before in modules[:place]), module
        assert [name for name, count in Counter(walk).items() if count > 1] in ([], ["export/run/claim.py"])


def test_typer_by_its_public_interface() -> None:
    """No private module of Typer's, nor the click that it brings along."""
    private = [entry for entry in all_imports() if entry.module.startswith("typer._") or entry.module == "click"]
    assert not private, "\n".join(map(str, private))
