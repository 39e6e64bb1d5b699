"""Have what the sandbox's servers need: the jars of the Kafka releases named on the command line, and, for the first of
them, the class archives that halve the time to start. What is there is used as it is.
"""

from __future__ import annotations

import os
import sys
import time

from zkgroup.errors import ZkgroupError
from zkgroup.java_runtime import find_java
from zkgroup.sandbox.kafka_releases import kafka_class_path, kafka_jars, zookeeper_class_path
from zkgroup.sandbox.scala_member import member_class_path
from zkgroup.sandbox.server_configuration import record


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


def run_once(version: str) -> None:
    """Run a ZooKeeper, a broker and a member through what they usually do, and end each in an orderly way."""
    from zkgroup.clients.kafka.client import KafkaSettings
    from zkgroup.sandbox.local_cluster import Sandbox  # pays for the client libraries
    from zkgroup.sandbox.processes import Process, wait_for
    from zkgroup.sandbox.scala_member import MemberOptions
    from zkgroup.sandbox.topic_admin import ProducerRecord, create_topic, produce

    sys.stderr.write("running each server once, to make it start faster from now on\n")
    with Sandbox(f"prepare-{os.getpid()}", kafka=version, record=True) as sandbox:
        with sandbox.registry() as registry:
            create_topic(registry, "t", 2)
        legacy = version if version.startswith(("0.8", "0.9")) else None
        produce(KafkaSettings(sandbox.bootstrap, legacy_release=legacy), "t", [ProducerRecord(b"value")])
        options = MemberOptions(sandbox.connect, "g", "t", release=version)
        member_folder = options.folder(sandbox.folder)
        command, output = options.command(member_folder, record=True), member_folder / "output"
        member = Process("member", sandbox.guard).spawn(
            command, folder=member_folder, log=member_folder / "log", output=output
        )
        wait_for(output.read_bytes, 60.0, "the member has not read its message", "try again")
        for one in (member, sandbox.brokers[1], sandbox.zookeeper):
            one.stop(60.0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
