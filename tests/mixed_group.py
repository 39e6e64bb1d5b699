"""A group of Scala members and zkgroup members that join and leave while messages come in."""

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
from servers import ScalaMember, pause, resume
from support import wait_until

from zkgroup.clients.kafka.client import KafkaSettings, producer
from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.protocol import znodes
from zkgroup.protocol.assignors import Compat, assign, resolve_all
from zkgroup.protocol.broker_znodes import decode_topic
from zkgroup.protocol.names import TopicPartition
from zkgroup.protocol.operations import Children, Get, Node
from zkgroup.sandbox.local_cluster import Sandbox

Strategy = Literal["range", "roundrobin"]
#: Members that can share a group: the strategy, the variant that all of them compute, the releases of the Scala
#: consumer. Range is the same in all; roundrobin of 1.0 and later hashes other texts than that of 0.8.2 to 0.11.
MIXES: dict[str, tuple[Strategy, Compat, tuple[str, ...]]] = {
    "range": ("range", "1.1", ("0.8.2.2", "0.10.2.2", "1.1.1")),
    "roundrobin of 1.1": ("roundrobin", "1.1", ("1.1.1",)),
    "roundrobin of 0.8.2": ("roundrobin", "0.8.2", ("0.8.2.2", "0.10.2.2")),
}
#: Milliseconds until a member that was killed is missed.
SESSION = "3000"


class Member(Protocol):
    """Either kind, as the harness needs it."""

    id: str
    output: Path

    def leave(self) -> None: ...

    def kill(self) -> None: ...

    def pause(self) -> None: ...

    def resume(self) -> None: ...


class OurMember:
    """``zkgroup consume`` in a process of its own."""

    def __init__(
        self, connect: str, group: str, subscription: list[str], name: str, streams: int, mix: str, folder: Path
    ) -> None:
        strategy, compat, _ = MIXES[mix]
        self.id = f"{group}_{name}"
        self.output = folder / name
        self.errors = folder / f"{name}.err"
        properties = {
            "consumer.id": name,
            "auto.offset.reset": "smallest",
            "auto.commit.interval.ms": "1000",
            "zookeeper.session.timeout.ms": SESSION,
            "rebalance.max.retries": "20",
            "rebalance.backoff.ms": "500",
            "zkgroup.kafka.version": compat,
        }
        options = [word for key, value in properties.items() for word in ("-X", f"{key}={value}")]
        command = [ZKGROUP, "consume", *subscription, "-z", connect, "-g", group, "-f", r"%t\t%p\t%o\t%k\t%s\n", "-v"]
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

    def kill(self) -> None:
        """SIGKILL."""
        self._process.kill()
        self._process.wait(30)

    def pause(self) -> None:
        """SIGSTOP."""
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT."""
        self._process.send_signal(signal.SIGCONT)


class TheirMember:
    """The Scala consumer."""

    def __init__(self, member: ScalaMember) -> None:
        self._member = member.start()
        self.id = member.id
        self.output = member.output

    def leave(self) -> None:
        """SIGTERM; its shutdown hook commits and signs off."""
        self._member.stop()

    def kill(self) -> None:
        """SIGKILL."""
        self._member.kill()

    def pause(self) -> None:
        """SIGSTOP."""
        pause(self._member)

    def resume(self) -> None:
        """SIGCONT."""
        resume(self._member)


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
        self, sandbox: Sandbox, registry: Registry, group: str, topic: str, mix: str, folder: Path, seed: int
    ) -> None:
        self._sandbox, self._registry, self._folder = sandbox, registry, folder
        self.group, self.topic, self.mix = group, topic, mix
        self.strategy, self._compat, self.releases = MIXES[mix]
        self.random = random.Random(seed)
        self._count = 0
        self.members: list[Member] = []
        self.outputs: list[Path] = []
        self.steps: Counter[str] = Counter()
        # At each rest: what was committed, and after that, how long each output was.
        self._rests: list[tuple[dict[int, int], dict[Path, int]]] = []

    def join(self, *, ours: bool, release: str | None = None) -> None:
        """One more member, of one to three streams, which names the topic or has a filter that lets it through."""
        self._count += 1
        release = release or self.random.choice(self.releases)
        # Named after the group, too: outputs of members of equal names go to the same file.
        name = f"{'ours' if ours else 'theirs'}{self._count}-{self.group}"
        streams = self.random.randint(1, 3)
        by_filter = self.random.random() < 0.5
        member: Member
        if ours:
            subscription = ["--whitelist", self.topic] if by_filter else [self.topic]
            member = OurMember(self._sandbox.connect, self.group, subscription, name, streams, self.mix, self._folder)
        else:
            member = TheirMember(
                self._sandbox.member(
                    self.group,
                    self.topic,
                    kind="whitelist" if by_filter else "topics",
                    name=name,
                    streams=streams,
                    strategy=self.strategy,
                    release=release,
                    properties={"zookeeper.session.timeout.ms": SESSION},
                )
            )
        how = "by a filter" if by_filter else "by name"
        self.tell(f"zkgroup joins {how}" if ours else f"{release} joins {how}")
        self.members.append(member)
        self.outputs.append(member.output)

    def tell(self, step: str) -> None:
        """Note what is done."""
        self.steps[step] += 1

    def kind(self, member: Member) -> str:
        """Whose it is."""
        return "ours" if member.output.parent == self._folder else "theirs"

    def leave(self, *, killed: bool = False) -> None:
        """Any of them leaves, or is killed."""
        member = self.members.pop(self.random.randrange(len(self.members)))
        self.tell(f"{self.kind(member)} {'is killed' if killed else 'leaves'}")
        (member.kill if killed else member.leave)()

    def churn(self) -> None:
        """A step: somebody joins, leaves or is killed; two to five are there."""
        if len(self.members) < 2 or (len(self.members) < 5 and self.random.random() < 0.5):
            self.join(ours=self.random.random() < 0.5)
        else:
            self.leave(killed=self.random.random() < 0.5)
        self.wait_for_rest()

    def wait_for_rest(self, timeout: float = 60.0) -> None:
        """Until the owners are exactly the plan that the Scala consumer's assignor computes for those who are there."""
        wait_until(self._at_rest, timeout, f"group {self.group} at rest with {[m.id for m in self.members]}")
        partitions = range(self._partitions)
        nodes = self._registry.read([Get(znodes.offset(self.group, TopicPartition(self.topic, p))) for p in partitions])
        committed = {p: int(node.data) for p, node in zip(partitions, nodes, strict=True) if isinstance(node, Node)}
        self._rests.append((committed, {output: _size(output) for output in self.outputs}))

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
        self._partitions = len(partitions)
        plan = assign(self.strategy, self._compat, resolve_all(registrations, [self.topic]), {self.topic: partitions})
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

    def committed_again(self) -> Counter[str]:
        """Messages that were printed although they had been committed at a rest before, by the kind of the printer.

        What zkgroup commits it has printed. The Scala consumer commits what it has returned, and prints it after that.
        """
        found: Counter[str] = Counter()
        for output in self.outputs:
            kind = "ours" if output.parent == self._folder else "theirs"
            rests = iter([*((sizes.get(output, 0), committed) for committed, sizes in self._rests), (1 << 60, {})])
            floor: dict[int, int] = {}
            (begins, following), at = next(rests), 0
            for line in output.read_bytes().split(b"\n")[:-1]:
                while begins <= at:
                    floor = following
                    begins, following = next(rests)
                at += len(line) + 1
                _, partition, offset, *_ = line.split(b"\t")
                found[kind] += int(offset) < floor.get(int(partition), 0)
        return +found

    def read_again(self) -> Counter[tuple[str, str]]:
        """Messages that two members read, by the kinds of the one that came from further back and of the other.

        What the Scala consumer reads again (it looks up offsets before it claims) is distinguished from what we do.
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


def _size(output: Path) -> int:
    return output.stat().st_size if output.exists() else 0


def run_mixed(
    sandbox: Sandbox,
    registry: Registry,
    make_topic: Callable[..., str],
    group: str,
    mix: str,
    folder: Path,
    *,
    messages: int,
    rate: int,
    partitions: int = 12,
    seed: int | None = None,
) -> tuple[Counter[bytes], MixedGroup]:
    """Churn a mixed group while ``messages`` come in; returns how often each was read. The seed is printed."""
    seed = int.from_bytes(os.urandom(4)) if seed is None else seed
    print(f"seed {seed}")
    topic = make_topic(partitions)
    mixed = MixedGroup(sandbox, registry, group, topic, mix, folder, seed)
    try:
        for release in mixed.releases:
            mixed.join(ours=False, release=release)
        mixed.join(ours=True)
        mixed.wait_for_rest()
        writer = Writer(KafkaSettings(sandbox.bootstrap), topic, partitions, messages, rate)
        while not writer.done:
            mixed.churn()
        wait_until(lambda: len(mixed.seen()) >= messages, 60, "all messages read by somebody")
    finally:
        mixed.end()
    print(dict(mixed.steps))
    for (one, other), count in mixed.read_again().items():
        print(f"{count} messages first read by {one}, again by {other}")
    print("committed before, and read again:", dict(mixed.committed_again()))
    return mixed.seen(), mixed
