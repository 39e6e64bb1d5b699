"""What is imported when: a command pays only for what it uses. Modules are counted, not milliseconds."""

from __future__ import annotations

import subprocess
import sys

import pytest
from cli import environment

from zkgroup.commands import COMMANDS

HEAVY = {"kazoo", "confluent_kafka", "pyspark", "pyarrow", "rich", "pydantic"}

_SCRIPT = """
import sys
sys.argv = ["zkgroup", *sys.argv[1:]]
from zkgroup.commands import app
try:
    app()
except SystemExit:
    pass
sys.stderr.write("\\nimported: " + " ".join(sys.modules))
"""


def imported(*args: str) -> set[str]:
    """The modules that are there after ``zkgroup`` ran with these arguments."""
    result = subprocess.run(
        [sys.executable, "-c", _SCRIPT, *args],
        capture_output=True,
        text=True,
        env=environment(),
        timeout=60,
        check=True,
    )
    return set(result.stderr.rpartition("imported: ")[2].split())


def packages(modules: set[str]) -> set[str]:
    return {name.partition(".")[0] for name in modules}


@pytest.mark.parametrize(
    "args",
    [["--help"], ["nonsense"], *([lazy.name, "--help"] for lazy in COMMANDS)],
    ids=" ".join,
)
def test_help_and_plain_commands_import_nothing_heavy(args: list[str]) -> None:
    """Help and wrong usage need no server library, no Spark and no Rich."""
    assert not packages(imported(*args)) & HEAVY


@pytest.mark.parametrize("args", [["--version"], ["version"]], ids=" ".join)
def test_versions_import_librdkafka_alone(args: list[str]) -> None:
    """librdkafka alone knows its version; those of the others are read from what is installed."""
    assert packages(imported(*args)) & HEAVY == {"confluent_kafka"}


@pytest.mark.parametrize("args", [["--version"], ["version", "--output", "json"]], ids=" ".join)
def test_versions_are_told_without_a_librdkafka_that_loads(args: list[str]) -> None:
    """That it does not load is what a report is about."""
    script = f"import sys\nsys.modules['confluent_kafka'] = None\n{_SCRIPT}"
    result = subprocess.run(
        [sys.executable, "-c", script, *args], capture_output=True, text=True, env=environment(), timeout=60, check=True
    )
    assert "kazoo" in result.stdout, result.stderr


def test_help_imports_no_command() -> None:
    """The list of commands comes from the table: none of the modules behind it is imported."""
    targets = {"zkgroup.commands." + lazy.name.replace("-", "_") for lazy in COMMANDS}
    assert not imported("--help") & targets


def test_a_command_that_reads_zookeeper_imports_no_kafka() -> None:
    """``owners`` reads ZooKeeper alone: kazoo is there, and nothing else that is heavy."""
    found = packages(imported("owners", "g", "-z", "localhost:1", "--connect-timeout", "0.1"))
    assert found & HEAVY == {"kazoo"}


def test_an_export_by_no_member_imports_no_connector() -> None:
    """An export without ``--join`` is no member; with nothing new to export it needs no Spark either."""
    found = imported("export", "t", "--group", "g", "--to", "lake", "-z", "localhost:1", "--connect-timeout", "0.1")
    assert "zkgroup.export.run.run_export" in found
    assert not {"zkgroup.connector", "pyspark"} & found
