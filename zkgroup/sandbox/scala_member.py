"""A Scala member: the Scala consumer of a Kafka release, in a group with ours."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.config.settings_table import Strategy
from zkgroup.errors import NotFoundError, RefusedError, Remedy, UsageError, ZkgroupError, did_you_mean
from zkgroup.java_runtime import find_java
from zkgroup.protocol import znodes
from zkgroup.protocol.operations import Exists, Stat
from zkgroup.sandbox.kafka_releases import DEFAULT_RELEASE, RELEASES, kafka_class_path, pyspark_class_path, release
from zkgroup.sandbox.processes import POLL, Process, telling_line
from zkgroup.sandbox.sandbox_security import registry_settings, security_in
from zkgroup.sandbox.sandbox_state import MemberState, SandboxState, end_members, locked, running, write_state
from zkgroup.sandbox.server_configuration import jvm, properties_file, write_logging

PROGRAM = Path(__file__).with_name("ScalaMember.java")
# What the program says on stderr once it has its streams.
STREAMS_MARK = "Scala member started with "
MEMBER_START = 30.0  # seconds for a member to have its streams

# The Scala consumer gives up after four tries 2 s apart, and commits once a minute: too little and too seldom to watch.
_HANDY = {"rebalance.max.retries": "20", "rebalance.backoff.ms": "500", "auto.commit.interval.ms": "1000"}


def member_class_path(version: str) -> str:
    """The class path of a member: its release's jars, and the compiler for the program."""
    return os.pathsep.join((kafka_class_path(version), pyspark_class_path("janino-", "commons-compiler-")))


@dataclass(frozen=True, slots=True)
class MemberOptions:
    """What a Scala member is to be.

    ``subscription``: topics, separated by commas (``kind`` "topics"), or a regular expression ("whitelist",
    "blacklist"). ``name`` is the ``consumer.id``; the member's own id is ``GROUP_NAME``. ``output``: a line has the
    value, or topic, partition, offset, key and value with tabs between. ``properties`` win over everything.
    """

    connect: str
    group: str
    subscription: str
    kind: Literal["topics", "whitelist", "blacklist"] = "whitelist"
    release: str = DEFAULT_RELEASE
    streams: int = 1
    strategy: Strategy = "range"
    from_beginning: bool = True
    name: str = field(default_factory=lambda: f"scala-{secrets.token_hex(4)}")
    output: Literal["values", "records"] = "records"
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)
    #: For its JVM.
    java_options: tuple[str, ...] = ()

    @property
    def member_id(self) -> str:
        """The id under which it registers."""
        return f"{self.group}_{self.name}"

    def folder(self, sandbox: Path) -> Path:
        """The folder of its files in the folder ``sandbox``, which no other member shares."""
        return sandbox / "members" / self.group / self.member_id

    def consumer_properties(self) -> dict[str, str]:
        return {
            "zookeeper.connect": self.connect,
            "group.id": self.group,
            "consumer.id": self.name,
            "partition.assignment.strategy": self.strategy,
            "auto.offset.reset": "smallest" if self.from_beginning else "largest",
            **_HANDY,
            **self.properties,
        }

    def command(self, folder: Path, *, level: str = "INFO") -> list[str]:
        """Write the files it needs into ``folder``, and return the command that runs it.

        Raises ``UsageError`` for a release without this consumer.
        """
        if not release(self.release).member:
            have = ", ".join(version for version, known in RELEASES.items() if known.member)
            raise UsageError(f"Kafka {self.release} has no consumer that keeps its group in ZooKeeper", f"use {have}")
        java = find_java()
        class_path = member_class_path(self.release)
        folder.mkdir(parents=True, exist_ok=True)
        consumer = folder / "consumer.properties"
        consumer.write_text(properties_file(self.consumer_properties()), encoding="utf-8")
        logging = write_logging(folder, level=level, target="System.err")
        return [
            *jvm(java, class_path, 96, logging, *self.java_options),
            *("org.codehaus.janino.SimpleCompiler", str(PROGRAM), PROGRAM.stem),
            *(str(consumer), self.kind, self.subscription, str(self.streams), self.output),
        ]


def check_id(state: SandboxState, options: MemberOptions) -> None:
    """Raise ``RefusedError`` where the group has a member of this id: they would share a registration."""
    with Registry(registry_settings(state.connect, security_in(state.secure))) as registry:
        (found,) = registry.read([Exists(znodes.member_id(options.group, options.member_id))])
    if isinstance(found, Stat):
        raise RefusedError(f"member {options.member_id} runs already", "give another --id")


def start_member(name: str, options: MemberOptions) -> MemberState:
    """Start a Scala member that runs on by itself in the sandbox called ``name``; wait until it has its streams.

    Raises ``ZkgroupError`` with the telling line of its log where it ends before.
    """
    with locked(name):
        state = running(name)
        check_id(state, options)
        folder = options.folder(Path(state.folder))
        command, log, output = options.command(folder), folder / "log", folder / "output"
        begin = log.stat().st_size if log.exists() else 0  # an earlier member's lines stay
        member = Process(options.member_id, None).spawn(command, folder=folder, log=log, output=output)
        written = MemberState(options.member_id, options.group, options.release, member.process_id, str(output))
        others = [one for one in state.members if (one.group, one.name) != (written.group, written.name)]
        write_state(replace(state, members=(*others, written)))
        deadline = time.monotonic() + MEMBER_START
        while STREAMS_MARK not in (logged := log.read_bytes()[begin:].decode(errors="replace")):
            if not member.running or time.monotonic() > deadline:
                what = "did not get its streams in time" if member.running else "ended while starting"
                member.kill()
                write_state(state)
                raise ZkgroupError(f"member {member.name} {what}", f"its log says: {telling_line(logged)}")
            time.sleep(POLL)
    return written


def stop_member(name: str, member_id: str) -> None:
    """Stop the detached members called ``member_id`` of the running sandbox called ``name``; they leave their groups.

    Raises ``UnreachableError`` without the sandbox, ``NotFoundError`` without such a member.
    """
    with locked(name):
        state = running(name)
        leaving = [member for member in state.members if member.name == member_id]
        if not any(member.process.is_alive() for member in leaving):
            known = [member.name for member in state.members if member.process.is_alive()]
            remedy = did_you_mean(member_id, known, Remedy("list the members", ("sandbox", "status")))
            raise NotFoundError(f"sandbox {name} runs no member {member_id}", remedy)
        end_members([member.process for member in leaving])
        write_state(replace(state, members=tuple(member for member in state.members if member not in leaving)))
