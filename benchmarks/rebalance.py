"""Rebalancing 1,000 partitions: Scala members, then members of zkgroup, each a process of its own.

Measured by what ZooKeeper tells, not by what members say of themselves: from the moment a member's id node was created
(or deleted) to the moment the last owner node of the new, complete and even assignment was created.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable

from benchmarks.measure import ZKGROUP, Row
from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.protocol import znodes
from zkgroup.protocol.names import TopicPartition
from zkgroup.protocol.operations import Children, Exists, Get, Node, Stat
from zkgroup.sandbox.local_cluster import Sandbox
from zkgroup.sandbox.processes import Process
from zkgroup.sandbox.scala_member import MemberOptions
from zkgroup.sandbox.topic_admin import create_topic

TOPIC = "wide"
# Both as they are by default; the sandbox makes Scala members retry faster, for tests.
DEFAULTS = {"rebalance.backoff.ms": "2000", "rebalance.max.retries": "4", "auto.commit.interval.ms": "60000"}


class Group:
    """A group of members that are processes, watched from outside."""

    def __init__(self, sandbox: Sandbox, registry: Registry, name: str, partitions: int, *, is_scala: bool) -> None:
        self.sandbox = sandbox
        self.registry = registry
        self.name = name
        self.partitions = partitions
        self.is_scala = is_scala
        self.members: list[tuple[str, int, Callable[[], object]]] = []  # name, process, wait for its end

    def join(self) -> float:
        """Start one more member; seconds from its registration to rest."""
        name = f"member{len(self.members)}"
        if self.is_scala:
            options = MemberOptions(
                self.sandbox.connect, self.name, TOPIC, kind="topics", name=name, output="values", properties=DEFAULTS
            )
            folder = options.folder(self.sandbox.folder)
            command = options.command(folder)
            member = Process(name, self.sandbox.guard).spawn(command, folder=folder, log=folder / "log")
            self.members.append((name, member.process_id.pid, member.stop))
        else:
            command = [ZKGROUP, "consume", TOPIC, "-z", self.sandbox.connect, "--group", self.name]
            options = ["-X", f"consumer.id={name}", "-X", "auto.offset.reset=smallest"]
            process = subprocess.Popen([*command, *options], stdout=subprocess.DEVNULL)
            self.members.append((name, process.pid, lambda: process.wait(30)))
        settled = self._rest()
        (stat,) = self.registry.read([Exists(znodes.member_id(self.name, f"{self.name}_{name}"))])
        assert isinstance(stat, Stat)
        return (settled - stat.ctime) / 1000

    def leave(self) -> float:
        """Stop the last member; seconds from the end of its registration to rest."""
        name, pid, ended = self.members.pop()
        path = znodes.member_id(self.name, f"{self.name}_{name}")
        os.kill(pid, signal.SIGTERM)
        while self.registry.read([Exists(path)])[0] is not None:
            time.sleep(0.001)
        gone = time.time() * 1000
        seconds = (self._rest() - gone) / 1000
        ended()
        return seconds

    def _rest(self, timeout: float = 60.0) -> int:
        """Wait until every partition is owned, evenly, by all members; when the last owner node came (ms)."""
        deadline = time.monotonic() + timeout
        paths = [znodes.owner(self.name, TopicPartition(TOPIC, number)) for number in range(self.partitions)]
        while time.monotonic() < deadline:
            (listed,) = self.registry.read([Children(znodes.owner_topic(self.name, TOPIC))])
            if isinstance(listed, tuple) and len(listed) == self.partitions:
                nodes = [node for node in self.registry.read([Get(path) for path in paths]) if isinstance(node, Node)]
                shares = Counter(node.data for node in nodes)
                complete = len(nodes) == self.partitions and len(shares) == len(self.members)
                if complete and max(shares.values()) - min(shares.values()) <= 1:
                    return max(node.stat.ctime for node in nodes)
            time.sleep(0.05)
        raise SystemExit(f"{self.name} did not come to rest within {timeout:g} s")

    def end(self) -> None:
        """Stop all members."""
        for _, pid, _ in self.members:
            os.kill(pid, signal.SIGTERM)
        for _, _, ended in self.members:
            ended()
        self.members.clear()


def rebalance(sandbox: Sandbox, rounds: int, partitions: int) -> list[Row]:
    """Alone, a second joins, a third joins, one leaves."""
    peer = "Scala members"
    rows = [
        Row(f"rebalance of {partitions} partitions: {what}", peer, "s", "less", 3)
        for what in ("alone", "a second joins", "a third joins", "one leaves")
    ]
    with sandbox.registry() as registry:
        create_topic(registry, TOPIC, partitions, timeout=120.0)
        for number in range(rounds):
            for is_scala in (True, False):
                name = f"rebalance-{os.getpid()}-{number}-{'theirs' if is_scala else 'ours'}"
                group = Group(sandbox, registry, name, partitions, is_scala=is_scala)
                try:
                    figures = [group.join(), group.join(), group.join(), group.leave()]
                finally:
                    group.end()
                print(f"  {name}: {figures}", file=sys.stderr, flush=True)
                for row, figure in zip(rows, figures, strict=True):
                    (row.theirs if is_scala else row.ours).append(figure)
    return rows
