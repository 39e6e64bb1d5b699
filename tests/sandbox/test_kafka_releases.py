"""Downloads through Ivy: a registry in a folder, so that the test needs no network and can make it fail."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from importlib.metadata import metadata
from pathlib import Path

import pytest
from lines import names

from zkgroup.config.setting_files import CACHE_VARIABLE
from zkgroup.errors import UsageError, ZkgroupError
from zkgroup.sandbox.kafka_releases import (
    RELEASES,
    _proxy_options,
    ivy_reason,
    kafka_class_path,
    kafka_jars,
    pyspark_jars,
    zookeeper_class_path,
)

SETTINGS = """\
<ivysettings>
  <settings defaultResolver="folder"/>
  <resolvers>
    <filesystem name="folder" m2compatible="true">
      <ivy pattern="{folder}/[organisation]/[module]/[revision]/[module]-[revision].pom"/>
      <artifact pattern="{folder}/[organisation]/[module]/[revision]/[artifact]-[revision].[ext]"/>
    </filesystem>
  </resolvers>
</ivysettings>
"""
POM = """\
<project><modelVersion>4.0.0</modelVersion>
<groupId>{org}</groupId><artifactId>{name}</artifactId><version>{rev}</version></project>
"""


@pytest.fixture
def registry_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A registry of what Kafka 1.1.1 names directly, and an empty cache."""
    folder = tmp_path / "registry"
    modules = [("org.apache.kafka", "kafka_2.12", "1.1.1"), *RELEASES["1.1.1"].extra]
    for org, name, rev in modules:
        place = folder.joinpath(*org.split("."), name, rev)
        place.mkdir(parents=True)
        (place / f"{name}-{rev}.pom").write_text(POM.format(org=org, name=name, rev=rev))
        (place / f"{name}-{rev}.jar").write_bytes(b"PK\5\6" + bytes(18))
    settings = tmp_path / "ivysettings.xml"
    settings.write_text(SETTINGS.format(folder=folder))
    monkeypatch.setenv("ZKGROUP_IVY_SETTINGS", str(settings))
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    return folder


def test_download_leaves_the_jars_and_nothing_else(registry_folder: Path, tmp_path: Path) -> None:
    """After a download the cache has the release's folder whole, and no working files."""
    folder = kafka_jars("1.1.1")
    assert sorted(path.name for path in folder.iterdir()) == ["kafka_2.12-1.1.1.jar", "slf4j-log4j12-1.7.30.jar"]
    assert sorted(path.name for path in (tmp_path / "cache" / "kafka").iterdir()) == ["1.1.1", "lock"]


def test_second_use_needs_neither_registry_nor_java(registry_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is there is used as it is: no Java is looked for."""
    first = kafka_class_path("1.1.1")
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("ZKGROUP_IVY_SETTINGS", "/nowhere")
    assert kafka_class_path("1.1.1") == first


def test_two_processes_at_once(registry_folder: Path, tmp_path: Path) -> None:
    """Two processes that need the same release at once both get it."""
    ask = "from zkgroup.sandbox.kafka_releases import kafka_jars; print(len(list(kafka_jars('1.1.1').iterdir())))"
    processes = [
        subprocess.Popen([sys.executable, "-c", ask], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    assert [process.communicate(timeout=60) for process in processes] == [("2\n", "")] * 2


def test_failed_download_is_one_line_and_can_be_tried_again(registry_folder: Path, tmp_path: Path) -> None:
    """A jar that the registry lacks: the release and the reason in one line, no half release; mended, it works."""
    jar = registry_folder / "org/apache/kafka/kafka_2.12/1.1.1/kafka_2.12-1.1.1.jar"
    aside = jar.rename(tmp_path / "aside.jar")
    with pytest.raises(ZkgroupError) as caught:
        kafka_jars("1.1.1")
    line = str(caught.value)
    jar_name = "org.apache.kafka#kafka_2.12;1.1.1!kafka_2.12.jar"
    assert names(line, "1.1.1", "org.apache.kafka:kafka_2.12", jar_name, "ZKGROUP_IVY_SETTINGS")
    assert "\n" not in line
    assert not (tmp_path / "cache" / "kafka" / "1.1.1").exists()
    aside.rename(jar)
    assert len(list(kafka_jars("1.1.1").iterdir())) == 2


def test_left_over_of_a_killed_download_is_removed(registry_folder: Path, tmp_path: Path) -> None:
    """What a process left that was killed in the middle is gone after the next download."""
    left = tmp_path / "cache" / "kafka" / "tmp-dead"
    left.mkdir(parents=True)
    (left / "half.jar").write_bytes(b"half")
    kafka_jars("1.1.1")
    assert not left.exists()


def test_settings_file_that_is_not_there(registry_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mirror's settings file that is missing is an error, not a silent fall back to the default registry."""
    monkeypatch.setenv("ZKGROUP_IVY_SETTINGS", "/nowhere/ivysettings.xml")
    with pytest.raises(UsageError, match=r"/nowhere/ivysettings\.xml.*ZKGROUP_IVY_SETTINGS"):
        kafka_jars("1.1.1")


def test_the_proxy_of_the_environment_is_javas() -> None:
    """As pip and curl take it, in small letters or capitals."""
    environment = {"https_proxy": "http://proxy:3128", "HTTP_PROXY": "http://other"}
    assert sorted(_proxy_options(environment)) == [
        "-Dhttp.proxyHost=other",
        "-Dhttp.proxyPort=80",
        "-Dhttps.proxyHost=proxy",
        "-Dhttps.proxyPort=3128",
    ]


def test_unknown_release() -> None:
    """A release that the sandbox does not know: the line lists those it does."""
    with pytest.raises(UsageError, match=r"4\.0\.0\b.*\b0\.8\.2\.2, .*3\.9\.1"):
        kafka_jars("4.0.0")


def test_zookeeper_runs_on_a_part_of_the_jars() -> None:
    """The ZooKeeper's class path has its own jars, and a small part of pyspark's."""
    jars = zookeeper_class_path().split(os.pathsep)
    assert any(Path(jar).name.startswith("zookeeper-3.") for jar in jars)
    assert len(jars) < len(list(pyspark_jars().glob("*.jar"))) / 3


@pytest.mark.parametrize(
    ("output", "facts"),
    [
        (
            "::::\n\t\t:: org.x#kafka;1.1.1: not found\n:::: ERRORS\n\tServer access error at url"
            " https://repo.example/m2/a.pom (java.net.ConnectException: Connection refused)\n",
            ("repo.example", "Connection refused"),
        ),
        (
            "\tHost repo.example not found. url=http://repo.example/a.pom\n\t\t:: org.x#kafka;1.1.1: not found\n",
            ("repo.example",),
        ),
        (
            "\t\t:: UNRESOLVED DEPENDENCIES ::\n\t\t:: org.x#kafka;1.1.1: not found\n",
            ("org.x#kafka 1.1.1",),
        ),
        ("\t\t:: ^ see resolution messages ^ ::\n\t\t:: org.x#k;1!k.jar\n", ("org.x#k;1!k.jar",)),
        ("Error: Could not find or load main class x\n....... (12kB)\n", ("Could not find or load main class x",)),
        ("...... (12kB)\n", ()),
    ],
)
def test_reason_in_ivys_output(output: str, facts: tuple[str, ...]) -> None:
    """Of the page that Ivy prints the telling part is chosen, and no more."""
    reason = ivy_reason(output)
    assert names(reason, *facts), reason
    assert not re.search(r"kB|::|url|\n", reason)
    assert ("org.x" in reason) == ("org.x" in "".join(facts))


def test_a_missing_extra_can_be_installed_as_advised(monkeypatch: pytest.MonkeyPatch) -> None:
    """The package is on no index: the remedy names the extra, which there is, and the clone it comes from."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"-m pip install 'zkgroup\[sandbox\]'"):
        pyspark_jars()
    assert "sandbox" in metadata("zkgroup").get_all("Provides-Extra", [])
