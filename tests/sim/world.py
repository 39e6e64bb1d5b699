"""A group in virtual time, with what must always hold of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from random import Random
from typing import Any

from sim.brokers import Brokers
from sim.clock import Clock
from sim.member import SimMember
from sim.zookeeper import Change, ModelZooKeeper
from zkgroup.protocol import znodes
from zkgroup.protocol.assignors import Strategy, assign, resolve
from zkgroup.protocol.ledger import Run
from zkgroup.protocol.member import MemberSettings, Phase
from zkgroup.protocol.names import TopicPartition
from zkgroup.protocol.ops import Changed, Create, Delete, Ensure, Get, Node, SetData
from zkgroup.protocol.znodes import Registration

GROUP = "g"
TIMEOUT = 6.0


class World:
    """One ZooKeeper, one broker, the members of one group, and somebody with a shell (``operator``).

    Checked at every change, and at every batch that is handed out:

    - nobody deletes what is another's (the operator excepted);
    - a commit is accepted from the partition's owner alone, or while nobody owns it;
    - offsets never go back, nor past what was handed out (or the start that a reset chose);
    - a batch is handed out by the partition's owner alone, except after a session was ended early, or an owner node
      deleted by hand.
    """

    def __init__(self, seed: int = 0, topics: Mapping[str, int] | None = None, strategy: Strategy = "range") -> None:
        self.clock = Clock()
        self.random = Random(seed)
        self.server = ModelZooKeeper(lambda: self.clock.now)
        self.server.tell = self._tell
        self.server.observe = self._observe
        self.operator = self.server.open_session()
        self.brokers = Brokers(self.server)
        self.strategy = strategy
        self.members: list[SimMember] = []
        self.done: dict[TopicPartition, set[int]] = {}
        self.handed: dict[TopicPartition, int] = {}
        self.early: set[int] = set()  # sessions that were ended early, or robbed of an owner node
        self.robbed = False
        self.repeated = 0
        self._written: dict[TopicPartition, int] = {}
        self._last_writer: dict[TopicPartition, int] = {}
        for topic, partitions in (topics or {"t": 4}).items():
            self.brokers.make_topic(topic, partitions)

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
            handed_out=self._handed_out,
            consumed=self._consumed,
        )
        member.listener_delay = listener_takes
        member.listener_commits = listener_commits
        self.members.append(member)
        member.start()
        return member

    @property
    def live(self) -> list[SimMember]:
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
            self.early.add(self.server.nodes[path].owner)
            self.robbed = True
            self.server.apply(self.operator, Delete(path))

    def end_early(self, member: SimMember) -> None:
        """Somebody ends a member's session on the server."""
        if member.session is not None and member.session.id:
            self.early.add(member.session.id)
            member.session.kill()

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

    def offset(self, partition: TopicPartition) -> int | None:
        """The offset that is stored in ZooKeeper."""
        node = self.server.apply(self.operator, Get(znodes.offset(GROUP, partition)))
        return znodes.decode_offset("", node.data) if isinstance(node, Node) else None

    def plan(self) -> dict[TopicPartition, str]:
        """Who should own what."""
        topics = sorted({partition.topic for partition in self.brokers.logs})
        members = {m.name: resolve(m.member.settings.registration, topics) for m in self.live}
        partitions: dict[str, list[int]] = {}
        for partition in self.brokers.logs:
            partitions.setdefault(partition.topic, []).append(partition.partition)
        plan = assign(self.strategy, "1.1", members, partitions)
        return {partition: str(thread) for partition, thread in plan.owners.items()}

    def at_rest(self) -> bool:
        """Whether every member owns its share of the plan, and reads all of it."""
        return (
            all(m.member.phase is Phase.OWNING and not m.member.held and not m.frozen and m.up for m in self.live)
            and all(m.reader.ledger.generation is not None for m in self.live)
            and self.owners() == self.plan()
        )

    def come_to_rest(self, seconds: float = 60.0) -> None:
        """Let time pass until the group is at rest, and a moment more: it must stay so."""
        assert self.clock.run(seconds, self.at_rest), self.describe()
        self.run(1.0)
        assert self.clock.run(seconds, self.at_rest), self.describe()

    def describe(self) -> str:
        """For whoever has to find out why."""
        lines = [f"owners {self.owners()}", f"plan {self.plan()}"]
        for member in self.members:
            state = "dead" if member.dead else "finished" if member.finished else member.member.phase.value
            lines.append(f"{member.name}: {state} {member.error or ''}; {' | '.join(member.log[-12:])}")
        return "\n".join(lines)

    def read_all(self, seconds: float = 60.0) -> None:
        """Let time pass until every message was consumed."""
        assert self.clock.run(seconds, self._nothing_left), f"{self._missing()}\n{self.describe()}"

    def _missing(self) -> dict[TopicPartition, list[int]]:
        return {
            p: missing
            for p, end in self.brokers.logs.items()
            if (missing := sorted(set(range(end)) - self.done.get(p, set())))
        }

    def _nothing_left(self) -> bool:
        return all(len(self.done.get(p, ())) == end for p, end in self.brokers.logs.items())

    # ------------------------------------------------------------ what must hold

    def _tell(self, session: int, event: Changed) -> None:
        for member in self.members:
            if member.session is not None and member.session.id == session:
                member.session.watched(event)

    def _handed_out(self, member: SimMember, run: Run) -> None:
        session = member.session.id if member.session is not None else 0
        node = self.server.nodes.get(znodes.owner(GROUP, run.partition))
        if session not in self.early:
            assert node is not None, f"{member.name} hands out {run}, which nobody owns"
            assert node.owner == session, f"{member.name} hands out {run}, which is {node.data!r}'s"
        self.handed[run.partition] = max(self.handed.get(run.partition, 0), run.next)

    def _consumed(self, _member: SimMember, run: Run) -> None:
        done = self.done.setdefault(run.partition, set())
        offsets = range(run.first, run.next)
        self.repeated += sum(offset in done for offset in offsets)
        done.update(offsets)

    def _observe(self, change: Change) -> None:
        parts = change.path.split("/")
        if len(parts) < 4 or parts[1:3] != ["consumers", GROUP] or change.session in (0, self.operator):
            return
        if change.after is None and change.before is not None:
            assert change.before.owner == change.session, f"{change.session:#x} deletes what is another's: {change}"
        if parts[3] == "owners" and change.before is None and len(parts) == 6:
            self._last_writer.pop(TopicPartition(parts[4], int(parts[5])), None)
        if parts[3] == "offsets" and len(parts) == 6 and change.after is not None:
            self._check_commit(change, TopicPartition(parts[4], int(parts[5])))

    def _check_commit(self, change: Change, partition: TopicPartition) -> None:
        assert change.after is not None
        value = int(change.after.data)
        owner = self.server.nodes.get(znodes.owner(GROUP, partition))
        last = self._last_writer.get(partition)
        if change.session in self.early and owner is not None and owner.owner != change.session:
            assert last != owner.owner, f"commit of {value} for {partition} after the successor's first"
        self._last_writer[partition] = change.session
        if change.session not in self.early:
            assert owner is not None, f"commit of {value} for {partition} by {change.session:#x}, who does not own it"
            assert owner.owner == change.session, (
                f"commit of {value} for {partition} by {change.session:#x}, superseded"
            )
        before = self._written.get(partition, 0)
        assert value >= before, f"offset of {partition} goes back from {before} to {value}"
        assert value <= self.handed.get(partition, 0), f"offset {value} of {partition} was never handed out"
        self._written[partition] = value


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
