"""The servers' configuration files and command lines, and the archives of their classes.

Class archives: what a Java server has loaded once, it maps the next time. That halves the time it takes to start.
``scripts/prepare_servers.py`` makes them; without them everything works, only slower. An archive belongs to one Java
and one class path, jars' times included: Java checks that itself, and goes without one that does not fit.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from zkgroup.config.setting_files import cache_dir
from zkgroup.java_runtime import QUICK, use_archive
from zkgroup.sandbox.kafka_releases import KafkaRelease
from zkgroup.sandbox.processes import HOST

# ZooKeeper 3.9 and Kafka 4 log through log4j 2, Kafka to 2.8 through log4j 1, 3.9 through its successor reload4j.
_LOG4J2 = """\
rootLogger.level = {level}
rootLogger.appenderRef.out.ref = out
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d{{ISO8601}} %-5p %m (%c{{1}})%n%xEx
"""
_LOG4J1 = """\
log4j.rootLogger={level}, out
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.Target={target}
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern=%d %p %m (%c{{1}})%n
"""

#: The password of key stores, which Java requires. File permissions protect them.
STORE_PASSWORD: Final = "sandbox"
# What a broker logs once it takes requests and is registered.
STARTED = "started (Kafka"  # KafkaServer, or KafkaRaftServer


def write_logging(folder: Path, *, log4j2: bool = False, level: str = "INFO", target: str = "System.out") -> str:
    """Write a server's configuration of its log; returns Java's option that names it."""
    path = folder / ("log4j2.properties" if log4j2 else "log4j.properties")
    path.write_text((_LOG4J2 if log4j2 else _LOG4J1).format(level=level, target=target), encoding="utf-8")
    return f"-Dlog4j2.configurationFile={path}" if log4j2 else f"-Dlog4j.configuration=file:{path}"


def write_private(path: Path, data: bytes | str) -> None:
    """Create a file that only its owner may read."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(data.encode() if isinstance(data, str) else data)


def properties_file(properties: Mapping[str, object]) -> str:
    """A Java properties file, in ASCII: Java reads the bytes of one as ISO-8859-1 (``Properties.load``)."""
    return "".join(f"{key}={_escaped(str(value))}\n" for key, value in properties.items())


def _escaped(value: str) -> str:
    """What Java reads as this value: it drops blanks before one, and takes backslashes for escapes."""
    text = "".join(char if " " <= char <= "~" and char != "\\" else _escape(char) for char in value)
    return f"\\{text}" if text.startswith(" ") else text


def _escape(char: str) -> str:
    code = char.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{code[at : at + 4]}" for at in range(0, len(code), 4))


def zookeeper_properties(port: int, data: Path, tick_ms: int) -> dict[str, object]:
    """A ZooKeeper for trials. Its session timeouts lie between 2 and 20 ticks."""
    return {
        "tickTime": tick_ms,
        "dataDir": data,
        "clientPort": port,
        "clientPortAddress": HOST,
        "maxClientCnxns": 0,
        "4lw.commands.whitelist": "*",
        "admin.enableServer": "false",
    }


def zookeeper_command(java: Path, class_path: str, folder: Path, heap_mb: int, *more: str) -> list[str]:
    """The command that runs the ZooKeeper whose files lie in ``folder``, that of its log is written; ``more`` options
    for its JVM."""
    options = (
        *more,
        write_logging(folder, log4j2=True),
        "-Dzookeeper.jmx.log4j.disable=true",
        "-Dzookeeper.forceSync=no",  # the data need not outlive a power cut
    )
    return [
        *jvm(java, class_path, heap_mb, *options),
        "org.apache.zookeeper.server.ZooKeeperServerMain",
        str(folder / "zoo.cfg"),
    ]


def broker_properties(
    release: KafkaRelease, broker_id: int, port: int, logs: Path, connect: str, brokers: int
) -> dict[str, object]:
    """A broker for trials: little memory, one copy of everything, nothing deleted by age."""
    properties: dict[str, object] = {
        "broker.id": broker_id,
        "log.dirs": logs,
        "zookeeper.connect": connect,
        "zookeeper.session.timeout.ms": 6000,
        "zookeeper.connection.timeout.ms": 20000,
        "num.network.threads": 2,
        "num.io.threads": 4,
        # A consumer that asks for a deleted topic would make it again.
        "auto.create.topics.enable": "false",
        "delete.topic.enable": "true",
        # Tests write messages of years ago; the default is a week. A hundred years:
        "log.retention.hours": 876000,
        # 10 MB are set aside for each index of each partition otherwise.
        "log.index.size.max.bytes": 1048576,
        "log.cleaner.dedupe.buffer.size": 16777216,
        "offsets.topic.replication.factor": 1,
        "offsets.topic.num.partitions": 4,
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1,
        "transaction.state.log.num.partitions": 4,
        "group.initial.rebalance.delay.ms": 0,
        # With nobody to hand leadership to, a broker that is asked to end only waits.
        "controlled.shutdown.enable": "true" if brokers > 1 else "false",
        "controlled.shutdown.retry.backoff.ms": 500,
    }
    if release.kraft:
        return {name: value for name, value in properties.items() if not name.startswith(("zookeeper", "broker.id"))}
    if release.listeners:
        properties["listeners"] = f"PLAINTEXT://{HOST}:{port}"
    else:
        properties |= {"host.name": HOST, "advertised.host.name": HOST, "port": port}
    return properties


def kraft_properties(node: int, port: int, controller_port: int) -> dict[str, object]:
    """What makes a broker keep the cluster's metadata itself, as the only controller."""
    return {
        "process.roles": "broker,controller",
        "node.id": node,
        "controller.quorum.voters": f"{node}@{HOST}:{controller_port}",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "listeners": f"PLAINTEXT://{HOST}:{port},CONTROLLER://{HOST}:{controller_port}",
    }


def jvm(java: Path, class_path: str, heap_mb: int, *options: str) -> list[str]:
    """The command line of a virtual machine, up to the class to run."""
    archive = archive_of(java, class_path)
    sharing = (f"-XX:SharedArchiveFile={archive}",) if use_archive(archive) else ()
    # Java's own remarks on archives would go to stdout, amid what a member prints.
    return [str(java), *QUICK, f"-Xmx{heap_mb}m", *sharing, "-Xlog:disable", *options, "-cp", class_path]


def archive_of(java: Path, class_path: str) -> Path:
    """Where the archive for this Java and this class path is, or would be."""
    digest = hashlib.sha256(f"{java.resolve()}\n{class_path}".encode())
    for jar in (str(java.resolve()), *class_path.split(os.pathsep)):
        with contextlib.suppress(OSError):
            stat = Path(jar).stat()
            digest.update(f"{stat.st_size} {stat.st_mtime_ns}\n".encode())
    return cache_dir() / "classes" / f"{digest.hexdigest()[:24]}.jsa"
