"""The servers' configuration files and command lines. Pure, but for the jars it looks up."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from zkgroup.sandbox.class_data_sharing import jvm
from zkgroup.sandbox.kafka_releases import KafkaRelease
from zkgroup.sandbox.server_probe import HOST

# ZooKeeper 3.9 and Kafka 4 log through log4j 2, Kafka to 2.8 through log4j 1, 3.9 through its successor reload4j.
LOG4J2 = """\
rootLogger.level = {level}
rootLogger.appenderRef.out.ref = out
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d{{ISO8601}} %-5p %m (%c{{1}})%n%xEx
"""
LOG4J1 = """\
log4j.rootLogger={level}, out
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.Target={target}
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern=%d %p %m (%c{{1}})%n
"""

# What a broker logs once it takes requests and is registered.
STARTED = "started (KafkaServer)"
STARTED_KRAFT = "started (KafkaRaftServer)"


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
    """A ZooKeeper for tests. Its session timeouts lie between 2 and 20 ticks."""
    return {
        "tickTime": tick_ms,
        "dataDir": data,
        "clientPort": port,
        "clientPortAddress": HOST,
        "maxClientCnxns": 0,
        "4lw.commands.whitelist": "*",
        "admin.enableServer": "false",
    }


def zookeeper_command(
    java: Path, class_path: str, folder: Path, heap_mb: int, *more: str, record: bool = False
) -> list[str]:
    """The command that runs the ZooKeeper whose files lie in ``folder``; ``more`` options for its JVM."""
    options = (
        *more,
        f"-Dlog4j2.configurationFile={folder / 'log4j2.properties'}",
        "-Dzookeeper.jmx.log4j.disable=true",
        "-Dzookeeper.forceSync=no",  # the data need not outlive a power cut
    )
    return [
        *jvm(java, class_path, heap_mb, *options, record=record),
        "org.apache.zookeeper.server.ZooKeeperServerMain",
        str(folder / "zoo.cfg"),
    ]


def broker_properties(
    release: KafkaRelease, broker_id: int, port: int, logs: Path, connect: str, brokers: int
) -> dict[str, object]:
    """A broker for tests: little memory, one copy of everything, nothing deleted by age."""
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


def format_command(java: Path, class_path: str, folder: Path, cluster_id: str, *options: str) -> list[str]:
    """The command that formats the storage of a broker in KRaft mode, which it needs before its first start."""
    tool = ["kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", str(folder / "server.properties")]
    return [*jvm(java, class_path, 256, *options), *tool]


def broker_command(
    java: Path,
    class_path: str,
    folder: Path,
    heap_mb: int,
    *more: str,
    record: bool = False,
    under_load: bool = False,
) -> list[str]:
    """The command that runs the broker whose files lie in ``folder``; ``more`` options for its JVM."""
    machine = jvm(java, class_path, heap_mb, *more, record=record, under_load=under_load)
    return [*machine, "kafka.Kafka", str(folder / "server.properties")]
