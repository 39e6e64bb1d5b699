"""The archive of Spark's classes: made by the second export of a machine, used by those after it, in nobody's way."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import pytest
from support import wait_until

from zkgroup.config.setting_files import CACHE_VARIABLE, cache_dir
from zkgroup.export.spark.jvm_gateway import ClassArchive
from zkgroup.java_runtime import find_java

_START = """
import os, sys
from contextlib import suppress
from pathlib import Path
from zkgroup.export.spark.spark_context import SparkJobs
with SparkJobs("local[1]", {}) as spark:
    if sys.argv[1:] == ["fail"]:
        raise SystemExit("interrupted")
    mapped = ""
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # of processes that end meanwhile
            if (entry / "stat").read_text().rpartition(")")[2].split()[1] == str(os.getpid()):
                mapped += (entry / "maps").read_text()
    print("classes/spark-" in mapped)
    assert spark.context.getConf().get("spark.python.daemon.module") == "zkgroup.export.spark.python_daemon"
"""


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder of this test's, which does not exist yet."""
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    return tmp_path / "cache"


class LegacyProbe(NamedTuple):
    """An archive, and the options for Java that it gave."""

    archive: ClassArchive
    options: list[str]

    @property
    def is_making(self) -> bool:
        """Whether this run makes it."""
        return self.archive.is_making


def ask(folder: Path, spark: Path = Path("/spark"), properties: Mapping[str, str] | None = None) -> LegacyProbe:
    """A run's archive, asked for its options."""
    folder.mkdir(exist_ok=True)
    made = ClassArchive(find_java(), spark, folder, properties or {})
    return LegacyProbe(made, made.options())


def start(folder: Path, *arguments: str) -> str:
    """A Spark in a process of its own; whether its JVM has an archive of Spark's classes mapped."""
    done = subprocess.run(
        [sys.executable, "-c", _START, *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        cwd=folder,
    )
    return done.stdout.strip() if done.returncode == 0 else done.stderr.strip()


@pytest.mark.long  # three starts of Spark
def test_the_second_spark_makes_the_archive_and_the_third_has_it(cache: Path, tmp_path: Path) -> None:
    """The first only leaves its mark, so that a machine that runs but one keeps no 70 MB. One that is interrupted makes
    nothing, and does not wait for it; the next does, and what it has made is mapped by all that follow."""
    home = Path(str(find_spec("pyspark").origin)).parent
    assert not ask(tmp_path / "run", home).is_making
    assert start(tmp_path, "fail") == "interrupted"
    assert not list(cache.rglob("*.jsa"))
    # It gives up where that takes too long, as on a machine with much else to do, and the next one tries again.
    wait_until(lambda: start(tmp_path) == "False" and list(cache.rglob("*.jsa")), 250, "the archive is made")
    (made,) = cache.rglob("*.jsa")
    assert start(tmp_path) == "True"
    assert [path for path in made.parent.iterdir() if path.suffix == ".tmp"] == []


def test_what_never_comes_about_is_tried_three_times(cache: Path, tmp_path: Path) -> None:
    """A JVM that cannot make one, or is always interrupted, is not slowed down for ever."""
    assert [ask(tmp_path / "run").is_making for _ in range(6)] == [False, True, True, True, False, False]


def test_an_archive_is_for_one_spark_and_one_class_path(cache: Path, tmp_path: Path) -> None:
    """Another Spark, or other jars, have marks of their own; an archive that is there is used as it is."""
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


def make_one(run: Path, spark: Path) -> Path:
    """The archive that a Spark's second run makes."""
    ask(run, spark)
    archive = ask(run, spark).archive
    (run / "classes.jsa").write_bytes(b"classes")
    before = set(cache_dir().rglob("*.jsa"))
    archive.keep()
    (made,) = set(cache_dir().rglob("*.jsa")) - before
    return made


def age(path: Path, hours: float) -> None:
    """Nobody has touched it for so long."""
    then = time.time() - hours * 3600
    os.utime(path, (then, then))


def test_archives_that_nobody_uses_any_more_are_removed(cache: Path, tmp_path: Path) -> None:
    """Each Java, Spark and class path has one of 70 MB. Those of the last month are kept; what counts is when one was
    used, not made. Marks go likewise; what is no archive of Spark's is left alone."""
    run = tmp_path / "run"
    made = [make_one(run, Path(f"/spark-{number}")) for number in range(5)]
    assert all(path.is_file() for path in made)
    left_by_killed = made[0].with_suffix(".1.tmp")
    left_by_killed.write_bytes(b"half")
    being_made = made[0].with_suffix(".2.tmp")
    being_made.write_bytes(b"half")
    for number, path in enumerate(made):
        age(path, hours=24 * (35 - number))
        age(path.with_suffix(".seen"), hours=24 * 60)
    age(left_by_killed, hours=24 * 40)
    servers = made[0].with_name("0123456789ab.jsa")
    servers.write_bytes(b"classes")
    age(servers, hours=24 * 100)
    assert ask(run, Path("/spark-0")).options  # which is using it
    newest = make_one(run, Path("/spark-new"))
    assert set(cache.rglob("*.*")) == {
        servers,
        made[0],
        *(newest.with_suffix(suffix) for suffix in (".jsa", ".seen")),
        being_made,
    }
