"""Members in this process, for tests: a connector, a thread for each stream, and what they have read."""

from __future__ import annotations

import signal
import subprocess
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

from cli import ZKGROUP, environment
from support import wait_until

from zkgroup.clients.zookeeper import ZooKeeperSettings
from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.config import ConsumerConfig
from zkgroup.connector import Connector, RebalanceListener, Record, StartAt, Stream
from zkgroup.errors import ZkgroupError
from zkgroup.protocol import znodes
from zkgroup.protocol.assignors import assign, resolve_all
from zkgroup.protocol.broker_znodes import decode_topic
from zkgroup.protocol.names import TopicPartition
from zkgroup.protocol.operations import Children, Get, Node
from zkgroup.protocol.topic_filter import TopicFilter

#: So that tests do not wait: commits and retries come soon, and reading starts at the beginning.
QUICK = {"auto_commit_interval_ms": 200, "rebalance_backoff_ms": 500, "auto_offset_reset": "smallest"}


def connector(
    connect: str,
    group: str,
    *,
    session_timeout: float = 6.0,
    listener: RebalanceListener | None = None,
    start: StartAt | None = None,
    **config: Any,
) -> Connector:
    """A connector that has not joined."""
    settings = ConsumerConfig(group_id=group, **(QUICK | config))
    zookeeper = ZooKeeperSettings(connect, session_timeout, 10.0)
    return Connector(settings, zookeeper, listener=listener, start=start)


class ReadMember:
    """Joins, and reads on a thread for each stream. ``records`` is what has been delivered, in the order of each
    stream; ``failures`` is what readers got instead."""

    def __init__(
        self,
        connect: str,
        group: str,
        subscription: Mapping[str, int] | TopicFilter,
        streams: int = 1,
        *,
        pace: Callable[[Record], object] = lambda record: None,
        made: Callable[[Connector], object] = lambda connector: None,
        **options: Any,
    ) -> None:
        self.connector = connector(connect, group, **options)
        made(self.connector)  # before it joins
        self.records: list[Record] = []
        self.failures: list[Exception] = []
        self._pace = pace
        made: list[Stream]
        if isinstance(subscription, TopicFilter):
            made = self.connector.streams_by_filter(subscription, streams)
        else:
            made = [stream for each in self.connector.streams(subscription).values() for stream in each]
        self._threads = [threading.Thread(target=self._read, args=(stream,), daemon=True) for stream in made]
        for thread in self._threads:
            thread.start()

    def _read(self, stream: Stream) -> None:
        try:
            for record in stream:
                self.records.append(record)
                self._pace(record)
        except ZkgroupError as error:
            self.failures.append(error)

    @property
    def id(self) -> str:
        return self.connector.consumer_id

    @property
    def owned(self) -> tuple[TopicPartition, ...]:
        return self.connector.statistics().owned

    @property
    def values(self) -> Counter[bytes]:
        """How often each value was delivered."""
        return Counter(record.value for record in list(self.records))

    def wait_for(self, values: set[bytes], timeout: float = 30.0) -> None:
        """Wait until all of these were read."""
        wait_until(lambda: self.values.keys() >= values, timeout, f"{len(values)} messages read")

    def wait_for_error(self, kind: type[Exception], timeout: float = 30.0) -> Exception:
        """Wait until the member has left with an error of this kind, and close it."""
        wait_until(lambda: self.connector.error is not None, timeout, "the member leaves")
        try:
            self.close()
        except kind as error:
            return error
        raise AssertionError("closed without its error")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Leave; the readers must come to their end."""
        try:
            self.connector.close()
        finally:
            for thread in self._threads:
                thread.join(10)
                assert not thread.is_alive(), "a reader hangs"


def owners(registry: Registry, group: str) -> dict[TopicPartition, str]:
    """The group's owner nodes: partition → thread id."""
    (topics,) = registry.read([Children(znodes.owners(group))])
    found: dict[TopicPartition, str] = {}
    for topic in topics if isinstance(topics, tuple) else ():
        (numbers,) = registry.read([Children(znodes.owner_topic(group, topic))])
        partitions = [TopicPartition(topic, int(n)) for n in numbers] if isinstance(numbers, tuple) else []
        nodes = registry.read([Get(znodes.owner(group, partition)) for partition in partitions])
        found |= {p: node.data.decode() for p, node in zip(partitions, nodes, strict=True) if isinstance(node, Node)}
    return found


def plan(registry: Registry, group: str, strategy: str = "range") -> dict[TopicPartition, str]:
    """Who should own what, by what is registered."""
    ids, topics = registry.read([Children(znodes.ids(group)), Children(znodes.topics())])
    assert isinstance(topics, tuple)
    listed = ids if isinstance(ids, tuple) else ()
    nodes = registry.read([Get(znodes.member_id(group, member)) for member in listed])
    registrations = {
        member: znodes.decode_registration(member, node.data)
        for member, node in zip(listed, nodes, strict=True)
        if isinstance(node, Node)
    }
    members = resolve_all(registrations, topics)
    wanted = sorted({topic for subscription in members.values() for topic in subscription} & set(topics))
    described = registry.read([Get(znodes.topic(topic)) for topic in wanted])
    partitions = {
        topic: tuple(decode_topic(topic, node.data).partitions)
        for topic, node in zip(wanted, described, strict=True)
        if isinstance(node, Node)
    }
    assignment = assign("range" if strategy == "range" else "roundrobin", "1.1", members, partitions)
    return {partition: str(thread) for partition, thread in assignment.owners.items()}


def wait_for_rest(registry: Registry, group: str, members: int, strategy: str = "range", timeout: float = 30.0) -> None:
    """Wait until so many members are registered, and the owners are the plan."""

    def at_rest() -> bool:
        (ids,) = registry.read([Children(znodes.ids(group))])
        found = owners(registry, group)
        return len(ids if isinstance(ids, tuple) else ()) == members and found == plan(registry, group, strategy)

    wait_until(at_rest, timeout, f"group {group} at rest with {members} members")


def committed(registry: Registry, group: str, topic: str, partitions: int) -> list[int | None]:
    """The offsets stored in ZooKeeper."""
    nodes = registry.read([Get(znodes.offset(group, TopicPartition(topic, p))) for p in range(partitions)])
    return [int(node.data) if isinstance(node, Node) else None for node in nodes]


class ProcessMember:
    """``zkgroup consume`` in a process of its own, printing values to a file."""

    def __init__(self, connect: str, group: str, topic: str, name: str, folder: Path, *properties: str) -> None:
        self.output, self.errors = folder / name, folder / f"{name}.err"
        given = [f"consumer.id={name}", "auto.offset.reset=smallest", "auto.commit.interval.ms=200", *properties]
        options = [word for each in given for word in ("-X", each)]
        with self.output.open("wb") as out, self.errors.open("wb") as err:
            self._process = subprocess.Popen(
                [ZKGROUP, "consume", topic, "-z", connect, "-g", group, "-v", *options],
                stdout=out,
                stderr=err,
                env=environment(),
            )

    @property
    def printed(self) -> list[bytes]:
        return self.output.read_bytes().split(b"\n")[:-1]

    def stop(self) -> None:
        """SIGSTOP."""
        self._process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """SIGCONT."""
        self._process.send_signal(signal.SIGCONT)

    def leave(self) -> None:
        """SIGTERM, and a clean leave."""
        self._process.terminate()
        assert self._process.wait(30) == 143, self.errors.read_text()

    def kill(self) -> None:
        """SIGKILL."""
        self._process.kill()
        self._process.wait(30)
