"""Have what the sandbox's servers need: the jars of the Kafka releases named on the command line, and, for the first of
them, the class archives that halve the time to start. What is there is used as it is.

Java makes such an archive when a server ends in an orderly way (``-XX:ArchiveClassesAtExit``, Java 13). Those that
nobody has used for a month go when others are made.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

from zkgroup.errors import ZkgroupError
from zkgroup.java_runtime import find_java, remove_old_archives
from zkgroup.sandbox.kafka_releases import kafka_class_path, kafka_jars, zookeeper_class_path
from zkgroup.sandbox.scala_member import member_class_path
from zkgroup.sandbox.server_configuration import archive_of


def main(versions: list[str]) -> int:
    """Return 0 if all is there in the end, else the error's exit code."""
    try:
        for version in versions:
            began = time.monotonic()
            kafka_jars(version)
            if (took := time.monotonic() - began) > 1:
                sys.stderr.write(f"downloaded Kafka {version} in {took:.0f} s\n")
        if versions:
            class_paths = [zookeeper_class_path(), kafka_class_path(versions[0]), member_class_path(versions[0])]
            record(find_java(), class_paths, lambda: run_once(versions[0]))
    except ZkgroupError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    return 0


def record(java: Path, class_paths: list[str], run: Callable[[], None]) -> None:
    """Make the archives for ``class_paths`` that are missing: ``run`` runs each server with ``recording``, to its
    end."""
    archives = [archive_of(java, class_path) for class_path in class_paths]
    if all(archive.is_file() for archive in archives):
        return
    archives[0].parent.mkdir(parents=True, exist_ok=True)
    try:
        run()
    finally:
        for archive in archives:
            with contextlib.suppress(FileNotFoundError):
                _being_made(archive).replace(archive)
        remove_old_archives(archives[0].parent, "[0-9a-f]*")


def recording(java: Path, class_path: str) -> tuple[str, ...]:
    """The option with which Java makes a missing archive when it ends."""
    archive = archive_of(java, class_path)
    return () if archive.is_file() else (f"-XX:ArchiveClassesAtExit={_being_made(archive)}",)


def _being_made(archive: Path) -> Path:
    return archive.with_suffix(f".{os.getpid()}.tmp")


def run_once(version: str) -> None:
    """Run a ZooKeeper, a broker and a member through what they usually do, and end each in an orderly way."""
    from zkgroup.clients.kafka.client import KafkaSettings
    from zkgroup.sandbox.local_cluster import Sandbox  # pays for the client libraries
    from zkgroup.sandbox.processes import Process, Server, wait_for
    from zkgroup.sandbox.scala_member import MemberOptions
    from zkgroup.sandbox.topic_admin import ProducerRecord, create_topic, produce

    def recorded(server: Server, java: Path, class_path: str) -> Server:
        prepare = server._prepare
        server._prepare = lambda port: [str(java), *recording(java, class_path), *prepare(port)[1:]]
        return server

    class RecordedSandbox(Sandbox):
        def _zookeeper_server(self, java: Path, class_path: str) -> Server:
            return recorded(super()._zookeeper_server(java, class_path), java, class_path)

        def _broker_server(self, java: Path, class_path: str, broker_id: int) -> Server:
            return recorded(super()._broker_server(java, class_path, broker_id), java, class_path)

    sys.stderr.write("running each server once, to make it start faster from now on\n")
    with RecordedSandbox(f"prepare-{os.getpid()}", kafka=version) as sandbox:
        with sandbox.registry() as registry:
            create_topic(registry, "t", 2)
        legacy = version if version.startswith(("0.8", "0.9")) else None
        produce(KafkaSettings(sandbox.bootstrap, legacy_release=legacy), "t", [ProducerRecord(b"value")])
        java_options = recording(find_java(), member_class_path(version))
        options = MemberOptions(sandbox.connect, "g", "t", release=version, java_options=java_options)
        member_folder = options.folder(sandbox.folder)
        command, output = options.command(member_folder), member_folder / "output"
        member = Process("member", sandbox.guard).spawn(
            command, folder=member_folder, log=member_folder / "log", output=output
        )
        wait_for(output.read_bytes, 60.0, "the member has not read its message", "try again")
        for one in (member, sandbox.brokers[1], sandbox.zookeeper):
            one.stop(60.0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
