"""A Scala member: the Scala consumer of a Kafka release, in a group with ours."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple, Self

from zkgroup.child_processes import Watchdog
from zkgroup.config.settings_table import Strategy
from zkgroup.errors import UsageError, ZkgroupError
from zkgroup.java_runtime import find_java
from zkgroup.protocol.names import TopicPartition
from zkgroup.sandbox.class_data_sharing import jvm
from zkgroup.sandbox.kafka_releases import DEFAULT_RELEASE, RELEASES, kafka_class_path, pyspark_class_path, release
from zkgroup.sandbox.owned_processes import POLL, ProcessId, Restartable, spawn
from zkgroup.sandbox.server_configuration import LOG4J1, properties_file
from zkgroup.sandbox.server_process import telling_line

PROGRAM = Path(__file__).with_name("ScalaMember.java")
# What the program says on stderr once it has its streams.
STREAMS_MARK = "reference member started with "

# The reference gives up after four tries 2 s apart, and commits once a minute: too little and too seldom to watch.
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

    def command(self, folder: Path, *, level: str = "INFO", heap_mb: int = 96, record: bool = False) -> list[str]:
        """Write the files it needs into ``folder``, and return the command that runs it.

        ``record``: it makes its class archive when it ends (``zkgroup.sandbox.class_data_sharing``).

        Raises ``UsageError`` for a release without this consumer.
        """
        if not release(self.release).member:
            have = ", ".join(version for version, known in RELEASES.items() if known.member)
            raise UsageError(f"Kafka {self.release} has no consumer that keeps its group in ZooKeeper", f"use {have}")
        if self.streams < 1:
            raise UsageError(f"a member of {self.streams} streams reads nothing", "ask for 1 or more")
        java = find_java()
        class_path = member_class_path(self.release)
        folder.mkdir(parents=True, exist_ok=True)
        consumer, log4j = folder / "consumer.properties", folder / "log4j.properties"
        consumer.write_text(properties_file(self.consumer_properties()), encoding="utf-8")
        log4j.write_text(LOG4J1.format(level=level, target="System.err"), encoding="utf-8")
        return [
            *jvm(java, class_path, heap_mb, f"-Dlog4j.configuration=file:{log4j}", *self.java_options, record=record),
            *("org.codehaus.janino.SimpleCompiler", str(PROGRAM), PROGRAM.stem),
            *(str(consumer), self.kind, self.subscription, str(self.streams), self.output),
        ]


class Consumed(NamedTuple):
    """A message that a member printed."""

    topic: str
    partition: int
    offset: int
    key: bytes
    value: bytes


class ScalaMember(Restartable):
    """A Scala member as a process of this one. Its output is kept in a file, and its log in another. ``stop`` lets it
    commit and leave; after ``kill`` it stays registered until its session expires.

    With a ``guard`` it ends when this process does.
    """

    def __init__(
        self, options: MemberOptions, folder: Path, guard: Watchdog | None = None, *, record: bool = False
    ) -> None:
        super().__init__(f"member {options.member_id}")
        self.options = options
        self.folder = folder
        self.output = folder / "output"
        self.log = folder / "log"
        self._watchdog = guard
        self._archive_classes = record
        self._read_to = self._seen = 0

    @property
    def id(self) -> str:
        """The id under which it registers in its group."""
        return self.options.member_id

    @property
    def pid(self) -> int:
        """The process id of the one last started."""
        return self.started.id.pid

    @property
    def process_id(self) -> ProcessId:
        """The process last started, for others to find."""
        return self.started.id

    @property
    def has_streams(self) -> bool:
        """Whether it has registered and gone through its first rebalance."""
        return STREAMS_MARK in self.logged()

    def logged(self) -> str:
        """Its log so far."""
        return self.log.read_text(encoding="utf-8", errors="replace") if self.log.exists() else ""

    @property
    def returncode(self) -> int | None:
        """The exit status (143 after a clean ``stop``), None while it runs."""
        return self.started.returncode

    def start(self) -> Self:
        """Start the process, and return at once. It may be started again after it has ended; output is appended."""
        if not self.running:
            command = self.options.command(self.folder, record=self._archive_classes)
            self._process = spawn(command, folder=self.folder, log=self.log, guard=self._watchdog, output=self.output)
        return self

    def lines(self) -> list[bytes]:
        """The lines that it has printed so far; an unfinished last line is left out."""
        try:
            return self.output.read_bytes().split(b"\n")[:-1]
        except FileNotFoundError:
            return []

    def consumed(self) -> list[Consumed]:
        """The messages that it has printed so far. Keys and values must hold no tab or line end."""
        parts = (line.split(b"\t") for line in self.lines())
        return [Consumed(t.decode(), int(p), int(o), key, value) for t, p, o, key, value in parts]

    def counts(self) -> dict[TopicPartition, int]:
        """How many messages of each partition it has printed so far."""
        counts: dict[TopicPartition, int] = {}
        for message in self.consumed():
            partition = TopicPartition(message.topic, message.partition)
            counts[partition] = counts.get(partition, 0) + 1
        return counts

    def wait_for(self, messages: int, timeout: float = 30.0) -> None:
        """Wait until it has printed at least so many. Raises ``ZkgroupError`` if it ends before, or takes longer."""
        deadline = time.monotonic() + timeout
        while (seen := self.printed) < messages:
            ended = not self.running
            if (ended and self.printed < messages) or time.monotonic() > deadline:
                what = "ended" if ended else f"did not get there within {timeout:g} s"
                raise ZkgroupError(
                    f"{self.name} {what}: {seen} messages of {messages}",
                    f"its log says: {telling_line(self.logged())}",
                )
            time.sleep(POLL)

    @property
    def printed(self) -> int:
        """How many lines it has printed so far. Cheap to ask: only what is new is read."""
        if self.output.exists():
            with self.output.open("rb") as output:
                output.seek(self._read_to)
                new = output.read()
            self._read_to += len(new)
            self._seen += new.count(b"\n")
        return self._seen

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()
