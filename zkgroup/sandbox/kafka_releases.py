"""The Kafka releases of sandboxes and their jars: ZooKeeper and Ivy out of pyspark, the releases through that Ivy.

The releases, their artifacts and what each needs on Java 17 were tried one by one: each started, took messages, gave
them back, and accepted offset commits.
"""

from __future__ import annotations

import fcntl
import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
import urllib.parse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from zkgroup.child_processes import run_child
from zkgroup.config.setting_files import cache_dir
from zkgroup.errors import MissingExtraError, UsageError, ZkgroupError
from zkgroup.java_runtime import QUICK, find_java

IVY_SETTINGS_VARIABLE = "ZKGROUP_IVY_SETTINGS"
DEFAULT_RELEASE = "1.1.1"
DOWNLOAD_TIMEOUT = 600.0  # seconds, for one release


@dataclass(frozen=True, slots=True)
class KafkaRelease:
    """A Kafka release that the sandbox can run.

    ``member``: whether its jars have the consumer that keeps its group in ZooKeeper (Kafka 2.0 dropped it).
    ``listeners`` is false where the broker still wants ``host.name`` and ``port``; ``tells_brokers`` where its metadata
    names no brokers before there are topics. ``kraft``: there is no ZooKeeper; the broker keeps the metadata.
    """

    version: str
    scala: str
    extra: tuple[tuple[str, str, str], ...]
    member: bool
    listeners: bool
    tells_brokers: bool = True
    kraft: bool = False

    @property
    def artifact(self) -> str:
        """The name of the jar of the broker."""
        return f"kafka_{self.scala}"


# From 0.10.1 to 0.11 the broker makes its cluster id with javax.xml.bind, which Java 11 dropped.
_JAXB = ("javax.xml.bind", "jaxb-api", "2.3.1")
# Kafka names a logging facade and leaves the logger to its distribution: without one a broker dies silently.
_LOG4J = ("org.slf4j", "slf4j-log4j12", "1.7.30")
_RELOAD4J = ("org.slf4j", "slf4j-reload4j", "1.7.36")
_LOG4J2 = ("org.apache.logging.log4j", "log4j-slf4j-impl", "2.24.3")

RELEASES: dict[str, KafkaRelease] = {
    release.version: release
    for release in (
        KafkaRelease("0.8.2.2", "2.10", (_LOG4J,), member=True, listeners=False, tells_brokers=False),
        KafkaRelease("0.9.0.1", "2.10", (_LOG4J,), member=True, listeners=False),
        KafkaRelease("0.10.1.1", "2.10", (_LOG4J, _JAXB), member=True, listeners=True),
        KafkaRelease("0.10.2.2", "2.11", (_LOG4J, _JAXB), member=True, listeners=True),
        KafkaRelease("0.11.0.3", "2.11", (_LOG4J, _JAXB), member=True, listeners=True),
        KafkaRelease("1.1.1", "2.12", (_LOG4J,), member=True, listeners=True),
        KafkaRelease("2.8.2", "2.13", (_LOG4J,), member=False, listeners=True),
        KafkaRelease("3.9.1", "2.13", (_RELOAD4J,), member=False, listeners=True),
        KafkaRelease("4.1.0", "2.13", (_LOG4J2,), member=False, listeners=True, kraft=True),
    )
}


def release(version: str) -> KafkaRelease:
    """The release called ``version``. Raises ``UsageError`` that names those there are."""
    try:
        return RELEASES[version]
    except KeyError:
        known = ", ".join(RELEASES)
        raise UsageError(f"Kafka {version} is not among the sandbox's releases", f"use one of {known}") from None


def pyspark_jars() -> Path:
    """pyspark's folder of jars, found without importing pyspark. Raises ``UsageError`` where it is not installed."""
    spec = importlib.util.find_spec("pyspark")
    for place in spec.submodule_search_locations or () if spec else ():
        jars = Path(place) / "jars"
        if jars.is_dir():
            return jars
    raise MissingExtraError("the sandbox", "pyspark, whose jars it runs on", "sandbox")


def pyspark_class_path(*names: str) -> str:
    """The class path of those of pyspark's jars whose file names begin with one of ``names``."""
    return os.pathsep.join(str(jar) for jar in sorted(pyspark_jars().glob("*.jar")) if jar.name.startswith(names))


def zookeeper_class_path() -> str:
    """What a ZooKeeper server needs of pyspark's jars: a dozen of its hundreds."""
    logging = ("slf4j-api-", "log4j-", "jackson-core-", "jackson-databind-", "jackson-annotations-")
    return pyspark_class_path(
        "zookeeper-", "netty-", "metrics-core-", "snappy-java-", "audience-", "commons-io-", "commons-cli-", *logging
    )


def kafka_class_path(version: str) -> str:
    """The class path of a Kafka release, downloaded at its first use."""
    return os.pathsep.join(str(jar) for jar in sorted(kafka_jars(version).glob("*.jar")))


def kafka_jars(version: str = DEFAULT_RELEASE) -> Path:
    """The folder with the jars of a Kafka release, downloaded at its first use.

    The folder appears whole or not at all, so that two processes may ask for it at once. Raises ``UsageError`` for an
    unknown release and ``ZkgroupError`` for a download that fails.
    """
    wanted = release(version)
    folder = cache_dir() / "kafka" / version
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # Ivy's cache is not made for two; the lock ends with its process
        if not folder.is_dir():
            _download(wanted, folder)
    return folder


def _download(wanted: KafkaRelease, folder: Path) -> None:
    for left_over in folder.parent.glob("tmp-*"):  # of a process that died: this one has the lock
        shutil.rmtree(left_over, ignore_errors=True)
    work = Path(tempfile.mkdtemp(prefix="tmp-", dir=folder.parent))
    ivy_cache = folder.parent / "ivy"  # kept after a failure, so that the next try goes on from there
    try:
        modules = (("org.apache.kafka", wanted.artifact, wanted.version), *wanted.extra)
        if why := retrieve(modules, work, ivy_cache):
            raise _failed(wanted, why)
        (work / "jars").rename(folder)
        shutil.rmtree(ivy_cache, ignore_errors=True)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def retrieve(modules: Sequence[tuple[str, ...]], work: Path, cache: Path, *, alone: bool = False) -> str | None:
    """Have Ivy lay the jars of ``modules`` (organisation, name, revision, and perhaps a classifier) into ``work/jars``,
    with all that they need unless they are to be ``alone``; why it failed, if it did."""
    (work / "ivy.xml").write_text(_ivy_file(modules, alone=alone), encoding="utf-8")
    command = [
        str(find_java()),
        *QUICK,
        *_proxy_options(os.environ),
        "-cp",
        pyspark_class_path("ivy-"),
        "org.apache.ivy.Main",
        *("-ivy", str(work / "ivy.xml")),
        *("-cache", str(cache)),
        *_settings_options(),
        "-warn",
        *("-retrieve", str(work / "jars" / "[artifact]-[revision](-[classifier]).[ext]")),
    ]
    try:
        done = run_child(command, DOWNLOAD_TIMEOUT)
    except subprocess.TimeoutExpired:
        return f"not done after {DOWNLOAD_TIMEOUT:.0f} s"
    return ivy_reason(done.stdout + done.stderr) if done.returncode != 0 else None


def _ivy_file(modules: Sequence[tuple[str, ...]], *, alone: bool) -> str:
    conf = 'conf="default->master" transitive="false"' if alone else 'conf="default->default"'
    dependencies = "\n".join(
        f'    <dependency org="{org}" name="{name}" rev="{rev}" {conf}>'
        + "".join(f'<artifact name="{name}" type="jar" m:classifier="{one}"/>' for one in classifier)
        + "</dependency>"
        for org, name, rev, *classifier in modules
    )
    return f"""<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">
  <info organisation="zkgroup" module="sandbox"/>
  <configurations><conf name="default"/></configurations>
  <dependencies>
{dependencies}
  </dependencies>
</ivy-module>
"""


def _settings_options() -> list[str]:
    """A settings file of the user's, for those who reach the registry through a mirror."""
    settings = os.environ.get(IVY_SETTINGS_VARIABLE)
    if not settings:
        return []
    if not Path(settings).is_file():
        raise UsageError(f"no Ivy settings file {settings}", f"correct {IVY_SETTINGS_VARIABLE} or unset it")
    return ["-settings", settings]


def _proxy_options(environment: os._Environ[str] | dict[str, str]) -> list[str]:
    """Java's words for the proxy that pip and curl take from the environment."""
    options = []
    for scheme in ("http", "https"):
        name = f"{scheme}_proxy"
        url = urllib.parse.urlsplit(environment.get(name) or environment.get(name.upper()) or "")
        if url.hostname:
            options.append(f"-D{scheme}.proxyHost={url.hostname}")
            options.append(f"-D{scheme}.proxyPort={url.port or 80}")
    return options


def _failed(wanted: KafkaRelease, why: str) -> ZkgroupError:
    return ZkgroupError(
        f"cannot download Kafka {wanted.version} (org.apache.kafka:{wanted.artifact}): {why}",
        f"check the network and the proxy, or name a mirror in an Ivy settings file with {IVY_SETTINGS_VARIABLE};"
        " the next try goes on from here",
    )


_REASONS = (
    (re.compile(r"Server access error at url \w+://([^/\s]+)\S* \((?:[\w.]+: )?(.+)\)"), "{0}: {1}"),
    (re.compile(r"Host (\S+) not found"), "host {0} not found"),
    (re.compile(r"^\s*:: (\S+#\S+?);(\S+?): not found", re.MULTILINE), "{0} {1} is not in the registry"),
    (re.compile(r"^\s*:: (\S+#\S+!\S+)", re.MULTILINE), "{0} is not in the registry"),
)


def ivy_reason(output: str) -> str:
    """Why Ivy (2.5) failed, out of the page that it prints."""
    for pattern, words in _REASONS:
        if match := pattern.search(output):
            return words.format(*match.groups())
    lines = [line.strip() for line in output.splitlines()]
    return next(
        (line for line in reversed(lines) if any(c.isalpha() for c in line.partition("(")[0])), "no reason given"
    )
