"""Class archives: used where they fit, missed by nobody where they do not."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from prepare_servers import record, recording

from zkgroup.config.setting_files import CACHE_VARIABLE
from zkgroup.java_runtime import find_java
from zkgroup.sandbox.kafka_releases import pyspark_class_path
from zkgroup.sandbox.server_configuration import archive_of, jvm


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))


def janino(*, making: bool = False) -> list[str]:
    """A small program out of pyspark's jars, which prints its usage."""
    java, class_path = find_java(), pyspark_class_path("janino-", "commons-compiler-")
    command = jvm(java, class_path, 64, *(recording(java, class_path) if making else ()))
    return [*command, "org.codehaus.janino.SimpleCompiler", "-help"]


def run(command: list[str]) -> tuple[int, str]:
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stdout


def test_an_archive_is_made_and_used() -> None:
    """Without an archive none is asked for; the one that a recording run leaves is used from then on."""
    before = janino()
    assert not any("Archive" in word for word in before)
    expected = run(before)
    made: list[tuple[int, str]] = []
    class_path = pyspark_class_path("janino-", "commons-compiler-")
    record(find_java(), [class_path], lambda: made.append(run(janino(making=True))))
    assert made == [expected]
    after = janino()
    (option,) = [word for word in after if "Archive" in word]
    assert Path(option.partition("=")[2]).is_file()
    assert run(after) == expected
    shared = run([after[0], "-Xshare:on", *after[1:]])  # "on" fails where the archive cannot be used
    assert shared == expected


def test_recording_is_done_once() -> None:
    """Where the archives are there nothing is run."""
    java, class_path = find_java(), pyspark_class_path("janino-")
    archive = archive_of(java, class_path)
    archive.parent.mkdir(parents=True)
    archive.touch()
    record(java, [class_path], lambda: pytest.fail("run again"))


def test_a_damaged_archive_is_passed_over() -> None:
    """An archive that Java cannot use costs nothing but its help: same output, nothing of it on stdout."""
    expected = run(janino())
    archive = archive_of(find_java(), pyspark_class_path("janino-", "commons-compiler-"))
    archive.parent.mkdir(parents=True)
    archive.write_bytes(b"no archive" * 1000)
    assert run(janino()) == expected


def test_a_changed_jar_has_another_archive(tmp_path: Path) -> None:
    """An upgraded jar under the old name is not served from the old archive."""
    jar = tmp_path / "a.jar"
    jar.write_bytes(b"1")
    before = archive_of(find_java(), str(jar))
    os.utime(jar, ns=(1, 1))
    assert archive_of(find_java(), str(jar)) != before


def test_archives_of_upgraded_servers_are_removed_when_others_are_made(tmp_path: Path) -> None:
    """Those stay that were used in the last month."""
    folder = tmp_path / "cache" / "classes"
    folder.mkdir(parents=True)
    made = [folder / f"{number:024x}.jsa" for number in range(30)]
    for number, path in enumerate(made):
        path.touch()
        os.utime(path, (path.stat().st_mtime - 86_400 * (40.5 - number),) * 2)
    foreign = folder / "spark-1.jsa"
    foreign.touch()
    os.utime(foreign, (0, 0))
    made[1].touch()
    record(find_java(), [pyspark_class_path("janino-")], lambda: None)
    assert set(folder.iterdir()) == {foreign, made[1], *made[11:]}
