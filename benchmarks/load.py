"""Large groups: time to rest after one member joins or leaves, and what that costs ZooKeeper.

Members register, own and read nothing; many live in one process, theirs and ours in as many. Times are ZooKeeper's:
from the creation (or the end) of an id node to the creation of the last owner node of the complete and even
assignment. Requests are those that the server has counted, less what this watcher asked, and less what the group asks
at rest in the same time (heartbeats).
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.java_runtime import find_java
from zkgroup.protocol import znodes
from zkgroup.protocol.names import TopicPartition
from zkgroup.protocol.operations import Create, Ensure, Exists, Get, Node, Op, Result, Stat
from zkgroup.sandbox.local_cluster import Sandbox
from zkgroup.sandbox.scala_member import member_class_path
from zkgroup.sandbox.server_configuration import properties_file, write_logging
from zkgroup.sandbox.topic_admin import create_topic

HOSTS: Final = 2  # processes that members live in
QUIET: Final = 1.5  # seconds without a change of owner nodes, then it is looked whether the group is at rest
#: Members and partitions: growth in each, and the largest group.
SIZES: Final = ((10, 100), (10, 1000), (10, 10_000), (50, 1000), (200, 1000), (200, 10_000))
#: The same for both; a machine on which all members share two cores needs patience.
SETTINGS: Final = {
    "zookeeper.session.timeout.ms": "20000",
    "zookeeper.connection.timeout.ms": "60000",
    "rebalance.max.retries": "30",
    "rebalance.backoff.ms": "2000",
}


class Cost(NamedTuple):
    """One change of a group: seconds to rest, and requests that ZooKeeper took for it."""

    seconds: float
    requests: int


class Watcher:
    """Looks at a group from outside, and counts its own looks."""

    def __init__(self, registry: Registry, port: int) -> None:
        self.registry = registry
        self._port = port
        self._asked = 0

    def read(self, ops: Sequence[Op]) -> list[Result]:
        """As the registry's."""
        self._asked += len(ops)
        return self.registry.read(ops)

    def stat(self, path: str) -> Stat | None:
        """A node's stat."""
        (found,) = self.read([Exists(path)])
        return found if isinstance(found, Stat) else None

    def requests(self) -> int:
        """What the server has taken from others so far."""
        with socket.create_connection(("127.0.0.1", self._port), 10.0) as connection:
            connection.sendall(b"srvr")
            answer = b""
            while part := connection.recv(4096):
                answer += part
        found = re.search(rb"^Received: (\d+)", answer, re.MULTILINE)
        if found is None:
            raise SystemExit("the server does not tell how many requests it took")
        return int(found[1]) - self._asked


class LargeGroup:
    """A group of many members in a few processes."""

    def __init__(
        self, sandbox: Sandbox, watcher: Watcher, name: str, topic: str, folder: Path, *, theirs: bool
    ) -> None:
        self.name, self.topic = name, topic
        self.members: list[str] = []
        self._watcher = watcher
        options = {"zookeeper.connect": sandbox.connect, "group.id": name, "auto.offset.reset": "smallest", **SETTINGS}
        if theirs:
            properties = folder / "properties"
            properties.write_text(properties_file(options), encoding="utf-8")
            java = [str(find_java()), "-Xmx2g", "-Xss256k", write_logging(folder, level="FATAL", target="System.err")]
            program = Path(__file__).with_name("LoadMembers.java")
            compiled = ["org.codehaus.janino.SimpleCompiler", str(program), program.stem]
            command = [*java, "-cp", member_class_path("1.1.1"), *compiled, str(properties), topic]
        else:
            given = [f"{key}={value}" for key, value in SETTINGS.items()]
            command = [sys.executable, "-m", "benchmarks.load_members", sandbox.connect, name, topic, *given]
        self._hosts = [
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) for _ in range(HOSTS)
        ]

    def _tell(self, what: str, number: int) -> None:
        host = self._hosts[number % HOSTS].stdin
        assert host is not None
        host.write(f"{what} member{number}\n")
        host.flush()

    def grow(self, members: int, timeout: float) -> None:
        """All at once, to rest."""
        for number in range(members):
            self._tell("join", number)
            self.members.append(f"member{number}")
        self.rest(timeout)

    def join(self, timeout: float) -> Cost:
        """One more."""
        number = len(self.members)
        idle, before, began = self._idle(), self._watcher.requests(), time.monotonic()
        self._tell("join", number)
        self.members.append(f"member{number}")
        settled = self.rest(timeout)
        requests = self._watcher.requests() - before - round(idle * (time.monotonic() - began))
        registered = self._watcher.stat(znodes.member_id(self.name, f"{self.name}_member{number}"))
        assert registered is not None
        return Cost((settled - registered.ctime) / 1000, requests)

    def leave(self, timeout: float) -> Cost:
        """The last one; its commit and its release are in the requests."""
        number = len(self.members) - 1
        path = znodes.member_id(self.name, f"{self.name}_{self.members.pop()}")
        idle, before, began = self._idle(), self._watcher.requests(), time.monotonic()
        self._tell("leave", number)
        while self._watcher.stat(path) is not None:
            time.sleep(0.005)
        gone = time.time() * 1000
        settled = self.rest(timeout)
        requests = self._watcher.requests() - before - round(idle * (time.monotonic() - began))
        return Cost(max(0.0, settled - gone) / 1000, requests)

    def _idle(self, timeout: float = 120.0) -> float:
        """Requests a second at rest: when they get no fewer, and no owner node has come or gone meanwhile. (Scala
        members still go through what has queued up when the assignment is complete.)"""
        parent = znodes.owner_topic(self.name, self.topic)
        deadline = time.monotonic() + timeout
        rate = float("inf")
        while True:
            seen, before, began = self._watcher.stat(parent), self._watcher.requests(), time.monotonic()
            time.sleep(4.0)
            last, rate = rate, (self._watcher.requests() - before) / (time.monotonic() - began)
            if self._watcher.stat(parent) == seen and 0.8 * last - 5 <= rate <= 1.2 * last + 5:
                return min(rate, last)
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self.name} of {len(self.members)} members goes on asking: {rate:.0f} a second")

    def rest(self, timeout: float) -> int:
        """Wait until every partition is owned, evenly, by all members, and nothing moves; when the last owner node came
        (milliseconds)."""
        deadline = time.monotonic() + timeout
        parent = znodes.owner_topic(self.name, self.topic)
        (topic,) = self._watcher.read([Get(znodes.topic(self.topic))])
        assert isinstance(topic, Node)
        partitions = topic.data.count(b"[")
        paths = [znodes.owner(self.name, TopicPartition(self.topic, number)) for number in range(partitions)]
        seen, since = -1, time.monotonic()
        while time.monotonic() < deadline:
            stat = self._watcher.stat(parent)
            zxid = stat.pzxid if stat is not None else -1
            if zxid != seen:
                seen, since = zxid, time.monotonic()
            elif stat is not None and stat.children == partitions and time.monotonic() - since >= QUIET:
                nodes = [node for node in self._watcher.read([Get(path) for path in paths]) if isinstance(node, Node)]
                shares = Counter(node.data for node in nodes)
                complete = len(nodes) == partitions and len(shares) == min(len(self.members), partitions)
                if complete and max(shares.values()) - min(shares.values()) <= 1:
                    return max(node.stat.ctime for node in nodes)
                since = time.monotonic()
            time.sleep(0.1)
        raise TimeoutError(f"{self.name} of {len(self.members)} members is not at rest after {timeout:g} s")

    def end(self) -> None:
        """The processes are killed; their sessions end by themselves."""
        for host in self._hosts:
            host.kill()
            host.wait()


def load(sandbox: Sandbox, rounds: int, sizes: Sequence[tuple[int, int]], timeout: float = 180.0) -> None:
    """Measure each size in turn, Scala members and zkgroup, and print a table of medians."""
    print("| members | partitions | what | Scala | requests | a partition | zkgroup | requests | a partition |")
    print("|---:|---:|---|---:|---:|---:|---:|---:|---:|", flush=True)
    with sandbox.registry(timeout=60.0) as registry, tempfile.TemporaryDirectory() as folder:
        watcher = Watcher(registry, sandbox.zookeeper.port)
        topics: dict[int, str] = {}
        for members, partitions in sizes:
            if partitions not in topics:
                topics[partitions] = f"load-{partitions}"
                create_topic(registry, topics[partitions], partitions, timeout=300.0)
            found: dict[tuple[str, bool], list[Cost]] = {}
            for number in range(rounds):
                for theirs in (True, False):
                    name = f"load-{os.getpid()}-{members}-{partitions}-{number}-{'theirs' if theirs else 'ours'}"
                    _prepare(registry, name, topics[partitions], partitions)
                    group = LargeGroup(sandbox, watcher, name, topics[partitions], Path(folder), theirs=theirs)
                    try:
                        group.grow(members, timeout)
                        found.setdefault(("joins", theirs), []).append(group.join(timeout))
                        found.setdefault(("leaves", theirs), []).append(group.leave(timeout))
                    except TimeoutError as late:
                        print(f"  {late}", file=sys.stderr, flush=True)
                    finally:
                        group.end()
            for what in ("joins", "leaves"):
                cells = [_cells(found.get((what, theirs)), partitions) for theirs in (True, False)]
                print(f"| {members} | {partitions:,} | one {what} | {' | '.join(cells)} |", flush=True)


def _prepare(registry: Registry, group: str, topic: str, partitions: int) -> None:
    """An offset for each partition, so that nobody asks the broker where logs begin."""
    registry.read([Ensure(znodes.offset_topic(group, topic))])
    paths = [znodes.offset(group, TopicPartition(topic, number)) for number in range(partitions)]
    for start in range(0, partitions, 1000):
        registry.read([Create(path, b"0") for path in paths[start : start + 1000]])


def _cells(costs: list[Cost] | None, partitions: int) -> str:
    if not costs:
        return "no rest | – | –"
    middle = sorted(costs)[len(costs) // 2]
    return f"{middle.seconds:.2f} s | {middle.requests:,} | {middle.requests / partitions:.1f}"
