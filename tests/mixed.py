"""A group of reference members and zkgroup members that join and leave while messages come in."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import threading
from collections import Counter
from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from typing import Literal, Protocol

from cli import ZKGROUP, environment
from support import wait_until

from zkgroup.protocol import znodes
from zkgroup.protocol.assignors import assign, resolve_all
from zkgroup.protocol.brokers import decode_topic
from zkgroup.protocol.names import TopicPartition
from zkgroup.protocol.ops import Children, Get, Node
from zkgroup.sandbox.member import ReferenceMember
from zkgroup.sandbox.sandbox import Sandbox
from zkgroup.servers.kafka import KafkaSettings, producer
from zkgroup.servers.registry import Registry

Strategy = Literal["range", "roundrobin"]


class Member(Protocol):
    """Either kind, as the harness needs it."""

    id: str
    output: Path

    def leave(self) -> None: ...


class OurMember:
    """``zkgroup consume`` in a process of its own."""

    def __init__(
        self, connect: str, group: str, topic: str, name: str, streams: int, strategy: str, folder: Path
    ) -> None:
        self.id = f"{group}_{name}"
        self.output = folder / name
        self.errors = folder / f"{name}.err"
        options = [
            "-X",
            f"consumer.id={name}",
            "-X",
            "auto.offset.reset=smallest",
            "-X",
            "auto.commit.interval.ms=1000",
        ]
        command = [ZKGROUP, "consume", topic, "-z", connect, "-g", group, "-f", r"%t\t%p\t%o\t%k\t%s\n", "-v"]
        with self.output.open("wb") as out, self.errors.open("wb") as err:
            self._process = subprocess.Popen(
                [*command, "--streams", str(streams), "--strategy", strategy, *options],
                stdout=out,
                stderr=err,
                env=environment(),
            )

    def leave(self) -> None:
        """SIGTERM, and a clean leave."""
        self._process.send_signal(signal.SIGTERM)
        assert self._process.wait(30) == 143, self.errors.read_text()


class TheirMember:
    """The reference's consumer of 1.1.1."""

    def __init__(self, member: ReferenceMember) -> None:
        self._member = member.start()
        self.id = member.id
        self.output = member.output

    def leave(self) -> None:
        """SIGTERM; its shutdown hook commits and signs off."""
        self._member.stop()


class Writer:
    """Produces messages in the background, ``rate`` a second, until it has produced them all."""

    def __init__(self, settings: KafkaSettings, topic: str, partitions: int, total: int, rate: int) -> None:
        self._client = producer(settings, linger_ms=20)
        self._topic, self._partitions, self._total, self._rate = topic, partitions, total, rate
        self._thread = threading.Thread(target=self._run, name="writer", daemon=True)
        self._pause = threading.Event()
        self._thread.start()

    def _run(self) -> None:
        for number in range(self._total):
            self._client.produce(self._topic, b"%09d" % number, b"k", partition=number % self._partitions)
            if number % (self._rate // 20) == 0:
                self._client.poll(0)
                self._pause.wait(0.05)  # a rate, not a wait for something
        self._client.flush(60)

    @property
    def done(self) -> bool:
        """Whether all messages are with the broker."""
        return not self._thread.is_alive()


class MixedGroup:
    """The group, its churn, and what is known of it from outside."""

    def __init__(
        self, sandbox: Sandbox, registry: Registry, group: str, topic: str, strategy: Strategy, folder: Path, seed: int
    ) -> None:
        self._sandbox, self._registry, self._folder = sandbox, registry, folder
        self.group, self.topic, self.strategy = group, topic, strategy
        self._random = random.Random(seed)
        self._count = 0
        self.members: list[Member] = []
        self.outputs: list[Path] = []

    def join(self, *, ours: bool) -> None:
        """One more member, of one to three streams."""
        self._count += 1
        name = f"{'ours' if ours else 'theirs'}{self._count}"
        streams = self._random.randint(1, 3)
        member: Member
        if ours:
            member = OurMember(
                self._sandbox.connect, self.group, self.topic, name, streams, self.strategy, self._folder
            )
        else:
            member = TheirMember(
                self._sandbox.member(
                    self.group, self.topic, kind="topics", name=name, streams=streams, strategy=self.strategy
                )
            )
        self.members.append(member)
        self.outputs.append(member.output)

    def leave(self) -> None:
        """Any of them leaves."""
        self.members.pop(self._random.randrange(len(self.members))).leave()

    def churn(self) -> None:
        """A step: somebody joins or leaves; two to four are there."""
        if len(self.members) < 2 or (len(self.members) < 4 and self._random.random() < 0.5):
            self.join(ours=self._random.random() < 0.5)
        else:
            self.leave()
        self.wait_for_rest()

    def wait_for_rest(self, timeout: float = 60.0) -> None:
        """Until the owners are exactly the plan that the reference's assignor computes for those who are there."""
        wait_until(self._at_rest, timeout, f"group {self.group} at rest with {[m.id for m in self.members]}")

    def _at_rest(self) -> bool:
        listed, topic = self._registry.read([Children(znodes.ids(self.group)), Get(znodes.topic(self.topic))])
        ids = sorted(listed) if isinstance(listed, tuple) else []
        if ids != sorted(member.id for member in self.members) or not isinstance(topic, Node):
            return False
        nodes = self._registry.read([Get(znodes.member_id(self.group, member)) for member in ids])
        registrations = {
            member: znodes.decode_registration(member, node.data)
            for member, node in zip(ids, nodes, strict=True)
            if isinstance(node, Node)
        }
        partitions = tuple(decode_topic(self.topic, topic.data).partitions)
        plan = assign(self.strategy, "1.1", resolve_all(registrations, [self.topic]), {self.topic: partitions})
        wanted = {str(partition): str(thread) for partition, thread in plan.owners.items()}
        owners = self._registry.read([Get(znodes.owner(self.group, TopicPartition(self.topic, p))) for p in partitions])
        found = {
            str(TopicPartition(self.topic, p)): node.data.decode()
            for p, node in zip(partitions, owners, strict=True)
            if isinstance(node, Node)
        }
        return found == wanted

    def seen(self) -> Counter[bytes]:
        """How often each value was read, over all members that ever were."""
        counts: Counter[bytes] = Counter()
        for output in self.outputs:
            lines = output.read_bytes().split(b"\n")[:-1]
            counts.update(line.rsplit(b"\t", 1)[1] for line in lines)
        return counts

    def read_again(self) -> Counter[tuple[str, str]]:
        """Messages that two members read, by the kinds of the one that came from further back and of the other.

        What the reference reads again (it looks up offsets before it claims) is told apart from what we do.
        """
        stretches: dict[bytes, list[tuple[int, int, str]]] = {}
        for output in self.outputs:
            kind = "ours" if output.parent == self._folder else "theirs"
            open_at: dict[bytes, tuple[int, int]] = {}
            for line in output.read_bytes().split(b"\n")[:-1]:
                _, partition, offset, *_ = line.split(b"\t")
                first, last = open_at.get(partition, (-1, -2))
                if int(offset) == last + 1:
                    open_at[partition] = first, last + 1
                    continue
                if partition in open_at:
                    stretches.setdefault(partition, []).append((first, last, kind))
                open_at[partition] = int(offset), int(offset)
            for partition, (first, last) in open_at.items():
                stretches.setdefault(partition, []).append((first, last, kind))
        found: Counter[tuple[str, str]] = Counter()
        for read in stretches.values():
            for (_, last, one), (start, end, other) in combinations(sorted(read), 2):
                found[one, other] += max(0, min(last, end) - start + 1)
        return +found

    def end(self) -> None:
        """All leave."""
        while self.members:
            self.members.pop().leave()


def run_mixed(
    sandbox: Sandbox,
    registry: Registry,
    make_topic: Callable[..., str],
    group: str,
    strategy: Strategy,
    folder: Path,
    *,
    messages: int,
    rate: int,
    partitions: int = 12,
    seed: int | None = None,
) -> Counter[bytes]:
    """Churn a mixed group while ``messages`` come in; returns how often each was read. The seed is printed."""
    seed = int.from_bytes(os.urandom(4)) if seed is None else seed
    print(f"seed {seed}")
    topic = make_topic(partitions)
    mixed = MixedGroup(sandbox, registry, group, topic, strategy, folder, seed)
    try:
        mixed.join(ours=False)
        mixed.join(ours=True)
        mixed.wait_for_rest()
        writer = Writer(KafkaSettings(sandbox.bootstrap), topic, partitions, messages, rate)
        while not writer.done:
            mixed.churn()
        wait_until(lambda: len(mixed.seen()) >= messages, 60, "all messages read by somebody")
    finally:
        mixed.end()
    for (one, other), count in mixed.read_again().items():
        print(f"{count} messages first read by {one}, again by {other}")
    return mixed.seen()
