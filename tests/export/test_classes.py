"""The archive of Spark's classes: made by the second export of a machine, used by those after it, in nobody's way."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import pytest
from support import wait_until

from zkgroup.config.folders import CACHE_VARIABLE
from zkgroup.export.classes import ClassArchive
from zkgroup.java import find_java

_START = """
import os, sys
from contextlib import suppress
from pathlib import Path
from zkgroup.export.spark import SparkJobs
with SparkJobs("local[1]", {}) as spark:
    if sys.argv[1:] == ["fail"]:
        raise SystemExit("interrupted")
    mapped = ""
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # of processes that end meanwhile
            if (entry / "stat").read_text().rpartition(")")[2].split()[1] == str(os.getpid()):
                mapped += (entry / "maps").read_text()
    print("classes/spark-" in mapped)
"""


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder of this test's, which does not exist yet."""
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    return tmp_path / "cache"


class Asked(NamedTuple):
    """An archive, and the options for Java that it gave."""

    archive: ClassArchive
    options: list[str]

    @property
    def is_making(self) -> bool:
        """Whether this run makes it."""
        return self.archive.is_making


def ask(folder: Path, spark: Path = Path("/spark"), properties: Mapping[str, str] | None = None) -> Asked:
    """A run's archive, asked for its options."""
    folder.mkdir(exist_ok=True)
    made = ClassArchive(find_java(), spark, folder, properties or {})
    return Asked(made, made.options())


def start(*arguments: str) -> str:
    """A Spark in a process of its own; whether its JVM has an archive of Spark's classes mapped."""
    done = subprocess.run(
        [sys.executable, "-c", _START, *arguments], capture_output=True, text=True, timeout=120, check=False
    )
    return done.stdout.strip() if done.returncode == 0 else done.stderr.strip()


def test_the_second_spark_makes_the_archive_and_the_third_has_it(cache: Path, tmp_path: Path) -> None:
    """The first only leaves its mark, so that a machine that runs but one keeps no 70 MB. One that is interrupted makes
    nothing, and does not wait for it; the next does, and what it has made is mapped by all that follow."""
    home = Path(str(find_spec("pyspark").origin)).parent
    assert not ask(tmp_path / "run", home).is_making
    assert start("fail") == "interrupted"
    assert not list(cache.rglob("*.jsa"))
    # It gives up where that takes too long, as on a machine with much else to do, and the next one tries again.
    wait_until(lambda: start() == "False" and list(cache.rglob("*.jsa")), 250, "the archive is made")
    (made,) = cache.rglob("*.jsa")
    assert start() == "True"
    assert [path for path in made.parent.iterdir() if path.suffix == ".tmp"] == []


def test_what_never_comes_about_is_tried_three_times(cache: Path, tmp_path: Path) -> None:
    """A JVM that cannot make one, or is always interrupted, is not slowed down for ever."""
    assert [ask(tmp_path / "run").is_making for _ in range(6)] == [False, True, True, True, False, False]


def test_an_archive_is_for_one_spark_and_one_class_path(cache: Path, tmp_path: Path) -> None:
    """Another Spark, or other jars, have marks of their own; an archive that is there is used, not made again."""
    ask(tmp_path / "run")
    assert not ask(tmp_path / "run", spark=tmp_path).is_making
    assert not ask(tmp_path / "run", properties={"spark.driver.extraClassPath": "/jars/*"}).is_making
    second = ask(tmp_path / "run")
    assert second.is_making
    (tmp_path / "run" / "classes.jsa").write_bytes(b"classes")
    second.archive.keep()
    third = ask(tmp_path / "run")
    assert not third.is_making
    (kept,) = cache.rglob("*.jsa")
    assert third.options[0] == f'"-XX:SharedArchiveFile={kept}"'


@pytest.mark.parametrize("option", ["-Xshare:off", "-XX:SharedArchiveFile=/mine.jsa", "-XX:+AutoCreateSharedArchive"])
def test_who_has_options_of_that_kind_keeps_them(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, option: str
) -> None:
    """Java refuses to start with two archives, or with one and the order to share nothing."""
    given = {"spark.driver.extraJavaOptions": f"-Dx=y {option}"}
    assert [ask(tmp_path / "run", properties=given).options for _ in range(3)] == [[], [], []]
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", option)
    assert [ask(tmp_path / "run").options for _ in range(3)] == [[], [], []]


def test_a_cache_that_cannot_be_written_or_named_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything works without an archive; and a path with a colon would be two archives to Java."""
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "file" / "below"))
    assert [ask(tmp_path / "run").options for _ in range(3)] == [[], [], []]
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "a:b"))
    assert [ask(tmp_path / "run").options for _ in range(3)] == [[], [], []]
