"""A group in virtual time, with what must always hold of it."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping
from random import Random
from typing import Any

from sim.brokers import Brokers
from sim.clock import Clock
from sim.invariants import GROUP, TIMEOUT, Invariants
from sim.member import SimMember
from sim.scala_consumer import ScalaConsumer
from sim.sim_server import SimServer
from sim.wire import Report
from zkgroup.protocol import znodes
from zkgroup.protocol.assignors import Strategy, TopicSelections, assign
from zkgroup.protocol.member import MemberSettings
from zkgroup.protocol.names import TopicPartition
from zkgroup.protocol.operations import Create, Delete, Ensure, SetData
from zkgroup.protocol.znodes import Registration


class World(Invariants):
    """One ZooKeeper, one broker, the members of one group, and somebody with a shell (``operator``).

    ``report`` is reported every fault that takes effect. ``digest`` sums up all that has happened.
    """

    def __init__(
        self,
        seed: int | str = 0,
        topics: Mapping[str, int] | None = None,
        strategy: Strategy = "range",
        *,
        tick: float = 0.0,
        lossless: bool = False,
    ) -> None:
        self.clock = Clock()
        self.random = Random(seed)
        self.server = SimServer(self.clock, tick)
        self.operator = self.server.open_session()
        self.brokers = Brokers(self.server)
        super().__init__(lossless=lossless)
        self.strategy = strategy
        self.faults: Counter[str] = Counter()
        self.calm_at = self.clock.now  # when the last fault's effect will be over
        self.trace: list[str] | None = None
        self._planned: tuple[tuple[tuple[str, int], ...], set[TopicPartition], dict[TopicPartition, str]] | None = None
        self._digest = hashlib.blake2b(digest_size=16)
        self.server.observe = self._observe
        for topic, partitions in (topics or {"t": 4}).items():
            self.brokers.make_topic(topic, partitions)

    # ------------------------------------------------------------ what happens

    @property
    def digest(self) -> str:
        """The same for the same seed, always."""
        return self._digest.hexdigest()

    def note(self, text: str) -> None:
        """Something has happened."""
        line = f"{self.clock.now:.6f} {text}"
        self._digest.update(line.encode())
        if self.trace is not None:
            self.trace.append(line)

    def report(self, fault: str, until: float = 0.0, who: str = "") -> None:
        """A fault has taken effect, and lasts for a while."""
        self.faults[fault] += 1
        self.calm_at = max(self.calm_at, self.clock.now, until)
        lasts = f", for {until - self.clock.now:.2f} s" if until > self.clock.now else ""
        self.note(f"fault: {fault}{': ' if who else ''}{who}{lasts}")

    # ------------------------------------------------------------ members

    def settings(self, name: str, **options: Any) -> MemberSettings:
        """Settings of a member; ``topics`` gives what it subscribes to."""
        registration = options.pop("registration", None)
        topics = options.pop("topics", None) or {"t": 1}
        defaults: dict[str, Any] = {
            "group": GROUP,
            "consumer_id": name,
            "registration": registration or Registration("static", topics, 1),
            "strategy": self.strategy,
            "reset": "smallest",
            "auto_commit_interval": 1.0,
            "session_timeout": TIMEOUT,
            "quiesce_timeout": 2.0,
        }
        return MemberSettings(**(defaults | options))

    def join(self, name: str, **options: Any) -> SimMember:
        """A new member, started. ``listener_takes``: seconds that its rebalance listener needs; ``listener_commits``:
        it commits then, and waits for that."""
        listener_takes = options.pop("listener_takes", 0.0)
        listener_commits = options.pop("listener_commits", False)
        member = SimMember(
            self.clock,
            self.random,
            self.server,
            self.brokers,
            self.settings(name, **options),
            sending=self._sending,
            delivered=self._delivered,
            consumed=self._consumed,
            jumped=self._jumped,
            committed=self._committed_to_kafka,
            report=self._reporter(name),
            note=self.note,
        )
        member.listener_delay = listener_takes
        member.listener_commits = listener_commits
        self.members.append(member)
        member.start()
        return member

    def join_scala_consumer(self, name: str, registration: Registration, **options: Any) -> ScalaConsumer:
        """A new member of the Scala consumer, started."""
        member = ScalaConsumer(
            self.clock,
            self.random,
            self.server,
            self.brokers,
            GROUP,
            name,
            registration,
            self.strategy,
            TIMEOUT,
            delivered=self._delivered,
            consumed=self._consumed,
            jumped=self._jumped,
            report=self._reporter(name),
            **options,
        )
        self.members.append(member)
        member.start()
        return member

    def _reporter(self, name: str) -> Report:
        def report(fault: str, until: float = 0.0) -> None:
            self.trouble(name, until)
            self.report(fault, until, name)

        return report

    def trouble(self, name: str, until: float) -> None:
        """Until then a member may not be reported at once what happens to its session."""
        self.spans_of_trouble[name] = max(until, self.spans_of_trouble.get(name, 0.0))

    @property
    def live(self) -> list[SimMember | ScalaConsumer]:
        return [member for member in self.members if not member.finished]

    def run(self, seconds: float) -> None:
        self.clock.run(seconds)

    # ------------------------------------------------------------ the operator

    def write(self, path: str, data: bytes, *, ephemeral: bool = False) -> None:
        """Somebody writes a node by hand."""
        self.server.apply(self.operator, Ensure(path.rpartition("/")[0]))
        op = SetData(path, data) if path in self.server.nodes else Create(path, data, ephemeral)
        assert not hasattr(self.server.apply(self.operator, op), "code")

    def delete(self, path: str) -> None:
        """Somebody deletes a node by hand."""
        if path in self.server.nodes:
            self.server.apply(self.operator, Delete(path))

    def end_early(self, member: SimMember | ScalaConsumer) -> bool:
        """Somebody ends a member's session on the server."""
        if member.session is None or member.session.id not in self.server.sessions:
            return False
        self.early[member.session.id] = self.clock.now
        member.session.kill()
        return True

    # ------------------------------------------------------------ what is there

    def owners(self) -> dict[TopicPartition, str]:
        """Owner nodes: partition → thread id."""
        root = znodes.owners(GROUP) + "/"
        found = {}
        for path, node in self.server.nodes.items():
            topic, slash, number = path.removeprefix(root).partition("/")
            if path.startswith(root) and slash:
                found[TopicPartition(topic, int(number))] = node.data.decode()
        return found

    def plan(self) -> dict[TopicPartition, str]:
        """Who should own what."""
        live = tuple((m.name, id(m.registration)) for m in self.live)
        if self._planned is not None and self._planned[:2] == (live, self.brokers.logs.keys()):
            return self._planned[2]
        topics = sorted({partition.topic for partition in self.brokers.logs})
        members = {m.name: TopicSelections(topics).streams(m.registration) for m in self.live}
        partitions: dict[str, list[int]] = {}
        for partition in self.brokers.logs:
            partitions.setdefault(partition.topic, []).append(partition.partition)
        plan = assign(self.strategy, "1.1", members, partitions)
        owners = {partition: str(thread) for partition, thread in plan.owners.items()}
        self._planned = live, set(self.brokers.logs), owners
        return owners

    def owned_by_plan(self) -> bool:
        """Whether every partition has exactly one owner, the one of the plan, under a session that lives."""
        return (
            all(node.owner in self.server.sessions for path, node in self.server.nodes.items() if node.owner)
            and self.owners() == self.plan()
        )

    def at_rest(self) -> bool:
        """Whether every member owns its share of the plan, and reads all of it."""
        return all(m.settled for m in self.live) and self.owned_by_plan()

    def come_to_rest(self, seconds: float = 60.0) -> None:
        """Let time pass until the group is at rest, and a moment more: it must stay so."""
        assert self.clock.run(seconds, self.at_rest), self.describe()
        self.run(1.0)
        assert self.clock.run(seconds, self.at_rest), self.describe()

    def describe(self) -> str:
        """For whoever has to find out why."""
        plan, owners = self.plan(), self.owners()
        lines = [
            f"{p}: owned by {owners.get(p)}, planned for {plan.get(p)}"
            for p in sorted(plan.keys() | owners.keys())
            if owners.get(p) != plan.get(p)
        ]
        for member in self.live:
            lines.append(f"{member.name}: {member.state} {member.error or ''}; {' | '.join(member.log[-6:])}")
        return "\n".join(lines)

    def read_all(self, seconds: float = 60.0) -> None:
        """Let time pass until every message was consumed."""
        assert self.clock.run(seconds, self.nothing_left), f"{self.missing()}\n{self.describe()}"

    def _wanted(self) -> Mapping[TopicPartition, int]:
        """The ends of all logs that somebody should have read."""
        if not self.lossless:
            return self.brokers.logs
        plan = self.plan()
        return {p: end for p, end in self.brokers.logs.items() if p in plan}

    def missing(self) -> dict[TopicPartition, list[int]]:
        return {
            p: missing
            for p, end in self._wanted().items()
            if (missing := sorted(set(range(end)) - self.done.get(p, set())))
        }

    def nothing_left(self) -> bool:
        return all(len(self.done.get(p, ())) >= end for p, end in self._wanted().items())


def every(partitions: Iterable[TopicPartition], world: World, count: int) -> None:
    """Produce ``count`` messages to each partition."""
    for partition in partitions:
        world.brokers.produce(partition, count)


def settled_member() -> tuple[World, SimMember]:
    """A group of one member at rest, which has read and committed 20 messages of each of 4 partitions."""
    world = World(1)
    partitions = sorted(world.brokers.logs)
    member = world.join("m1")
    every(partitions, world, 20)
    world.come_to_rest()
    world.read_all()
    world.run(2.0)
    assert [world.offset(partition) for partition in partitions] == [20] * 4
    return world, member
