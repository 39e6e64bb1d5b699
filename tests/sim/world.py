"""A group in virtual time, with what must always hold of it."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping
from random import Random
from typing import Any

from sim.brokers import Brokers
from sim.clock import Clock
from sim.ensemble import SimServer
from sim.member import SimMember
from sim.network import Report
from sim.reference import Reference
from sim.zookeeper import Change
from zkgroup.protocol import znodes
from zkgroup.protocol.assignors import Strategy, assign, resolve
from zkgroup.protocol.ledger import Run
from zkgroup.protocol.member import MemberSettings
from zkgroup.protocol.names import TopicPartition
from zkgroup.protocol.ops import Create, Delete, Ensure, Get, Node, SetData
from zkgroup.protocol.znodes import Registration

GROUP = "g"
TIMEOUT = 6.0


class Violation(AssertionError):
    """An invariant is broken, at a time."""

    def __init__(self, what: str, at: float) -> None:
        super().__init__(what)
        self.what = what
        self.at = at


class World:
    """One ZooKeeper, one broker, the members of one group, and somebody with a shell (``operator``).

    Checked at every change, and at every batch that is handed out (the numbers are those of ``docs/simulation.md``):

    1. A commit to ZooKeeper is accepted from the partition's owner alone; after an owner node was deleted by hand, or
       a session was ended early, from the former owner until its successor's first.
    2. Offsets never go back, nor past what was delivered.
    3. No record is lost: nothing is handed out beyond what was read before (``lossless``).
    4. A batch is handed out by the partition's owner alone. One whose session was ended early hands out one batch a
       partition more, if it can be told; past its lease nothing.
    5. Nothing is handed out that was committed before.
    6. Nobody deletes what is another's.

    Members of the reference promise none of this: what they break is counted, in ``wrongs``. ``report`` is told of
    every fault that takes effect. ``digest`` sums up all that has happened.
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
        self.strategy = strategy
        self.members: list[SimMember | Reference] = []
        self.done: dict[TopicPartition, set[int]] = {}
        self.handed: dict[TopicPartition, int] = {}
        self.early: dict[int, float] = {}  # sessions that were ended early, and when
        self.robbed: dict[tuple[int, TopicPartition], None] = {}  # who has lost which owner node by somebody's hand
        self.repeated = 0
        self.wrongs: Counter[str] = Counter()
        self.faults: Counter[str] = Counter()
        self.calm_at = self.clock.now  # when the last fault's effect will be over
        self.spans_of_trouble: dict[str, float] = {}  # member → until when it may not be told at once
        self.story: list[str] | None = None
        self.lossless = lossless
        self._planned: tuple[tuple[tuple[str, int], ...], set[TopicPartition], dict[TopicPartition, str]] | None = None
        self._digest = hashlib.blake2b(digest_size=16)
        self._after_end: Counter[tuple[int, TopicPartition]] = Counter()
        self._by_session: dict[int, SimMember | Reference] = {}
        self._jumps: set[TopicPartition] = set()  # whose offset may go back once, since a reader has
        self._made_again: set[TopicPartition] = set()
        self._upto: dict[TopicPartition, int] = {}  # everything below was read
        self._written: dict[TopicPartition, int] = {}
        self._in_kafka: dict[TopicPartition, int] = {}
        self._last_writer: dict[TopicPartition, int] = {}
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
        if self.story is not None:
            self.story.append(line)

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

    def join_reference(self, name: str, registration: Registration, **options: Any) -> Reference:
        """A new member of the reference, started."""
        member = Reference(
            self.clock,
            self.random,
            self.server,
            self.brokers,
            GROUP,
            name,
            registration,
            self.strategy,
            TIMEOUT,
            handed_out=self._handed_out,
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
        """Until then a member may not be told at once what happens to its session."""
        self.spans_of_trouble[name] = max(until, self.spans_of_trouble.get(name, 0.0))

    @property
    def live(self) -> list[SimMember | Reference]:
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

    def end_early(self, member: SimMember | Reference) -> bool:
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

    def offset(self, partition: TopicPartition) -> int | None:
        """The offset that is stored in ZooKeeper."""
        node = self.server.apply(self.operator, Get(znodes.offset(GROUP, partition)))
        return znodes.decode_offset("", node.data) if isinstance(node, Node) else None

    def plan(self) -> dict[TopicPartition, str]:
        """Who should own what."""
        live = tuple((m.name, id(m.registration)) for m in self.live)
        if self._planned is not None and self._planned[:2] == (live, self.brokers.logs.keys()):
            return self._planned[2]
        topics = sorted({partition.topic for partition in self.brokers.logs})
        members = {m.name: resolve(m.registration, topics) for m in self.live}
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
        assert self.clock.run(seconds, self._nothing_left), f"{self._missing()}\n{self.describe()}"

    def _wanted(self) -> Mapping[TopicPartition, int]:
        """The ends of all logs that somebody should have read."""
        if not self.lossless:
            return self.brokers.logs
        plan = self.plan()
        return {p: end for p, end in self.brokers.logs.items() if p in plan}

    def _missing(self) -> dict[TopicPartition, list[int]]:
        return {
            p: missing
            for p, end in self._wanted().items()
            if (missing := sorted(set(range(end)) - self.done.get(p, set())))
        }

    def _nothing_left(self) -> bool:
        return all(len(self.done.get(p, ())) >= end for p, end in self._wanted().items())

    # ------------------------------------------------------------ what must hold

    def _wrong(self, member: SimMember | Reference | None, what: str, details: str) -> None:
        """An invariant is broken: by a member of ours, that is the end; of the reference, it is counted."""
        if member is None or member.ours:
            raise Violation(f"{what}: {details}", self.clock.now)
        self.wrongs[what] += 1

    def _of_session(self, session: int) -> SimMember | Reference | None:
        if session not in self._by_session:
            for member in self.members:
                if member.session is not None and member.session.id:
                    self._by_session.setdefault(member.session.id, member)
        return self._by_session.get(session)

    def _handed_out(self, member: SimMember | Reference, run: Run) -> None:
        session = member.session.id if member.session is not None else 0
        p = run.partition
        self.note(f"{member.name} hands out {p} {run.first}-{run.next}")
        node = self.server.nodes.get(znodes.owner(GROUP, p))
        mine = node is not None and node.owner == session
        if not mine and session in self.early:
            self._check_after_the_end(member, session, run)
        elif not mine and (session, p) not in self.robbed:
            owner = "which nobody owns" if node is None else f"which is {node.data.decode()}'s"
            self._wrong(member, "overlapping delivery", f"{member.name} hands out {run}, {owner}")
        if self.lossless:
            self._check_delivery(member, run, mine=mine, session=session)
        self.handed[p] = max(self.handed.get(p, 0), run.next)

    def _check_after_the_end(self, member: SimMember | Reference, session: int, run: Run) -> None:
        """The session was ended early: who can be told hands out one batch, who cannot, nothing past the lease."""
        ended = self.early[session]
        past = self.clock.now - ended
        if past >= TIMEOUT / 2:
            self._wrong(member, "delivery past the lease", f"{member.name} hands out {run} {past:.1f} s after its end")
        if self.spans_of_trouble.get(member.name, 0.0) < ended:
            self._after_end[session, run.partition] += 1
            if self._after_end[session, run.partition] > 1:
                self._wrong(member, "more than one batch after an early end", f"{member.name} hands out {run}")

    def _check_delivery(self, member: SimMember | Reference, run: Run, *, mine: bool, session: int) -> None:
        upto = self._upto.get(run.partition, 0)
        if run.first > upto:
            self._wrong(member, "records lost", f"{member.name} hands out {run}, and {upto} was not read yet")
        writer = self._last_writer.get(run.partition)
        robbed = writer is not None and writer != session  # the former owner has committed once more
        if not mine or robbed or run.partition in self._made_again:
            return
        stored = self.committed(run.partition)
        if stored is not None and run.first < stored:
            self._wrong(member, "committed records delivered again", f"{member.name} hands out {run}, below {stored}")

    def committed(self, partition: TopicPartition) -> int | None:
        """The offset that the group has committed, in whatever store counts."""
        found = [o for o in (self.offset(partition), self._in_kafka.get(partition)) if o is not None]
        return max(found, default=None)

    def _consumed(self, _member: SimMember | Reference, run: Run) -> None:
        done = self.done.setdefault(run.partition, set())
        offsets = range(run.first, run.next)
        self.repeated += sum(offset in done for offset in offsets)
        done.update(offsets)
        if run.first <= self._upto.get(run.partition, 0):
            self._upto[run.partition] = max(run.next, self._upto.get(run.partition, 0))

    def _jumped(self, partition: TopicPartition, offset: int) -> None:
        """A reader found its position out of range, and goes on at another."""
        self._jumps.add(partition)
        self.handed[partition] = max(offset, self.handed.get(partition, 0))

    def make_topic(self, topic: str, partitions: int) -> None:
        """Make a topic, or widen it. Where a partition of that name was deleted before, the offsets that were stored
        for it still are: what lies below them will not be read by anybody, whatever a member does."""
        before = dict(self.brokers.logs)
        self.brokers.make_topic(topic, partitions)
        for p in self.brokers.logs:
            if p not in before and p in self.handed:
                self._made_again.add(p)
                self._upto[p] = max(self._upto.get(p, 0), self.handed[p])
                self.done[p] = set(range(self._upto[p]))

    def _observe(self, change: Change) -> None:
        actor = self._of_session(change.session)
        self._note_change(change, actor)
        parts = change.path.split("/")
        if len(parts) < 4 or parts[1:3] != ["consumers", GROUP]:
            return
        partition = TopicPartition(parts[4], int(parts[5])) if len(parts) == 6 and parts[5].isdecimal() else None
        owner = change.before.owner if change.before is not None else 0
        if parts[3] == "owners" and partition is not None:
            if change.before is None and change.after is not None:
                self._last_writer.pop(partition, None)
                self.robbed.pop((change.after.owner, partition), None)
            elif change.after is None and change.session not in (0, owner):
                self.robbed[owner, partition] = None
        if change.session in (0, self.operator):
            return
        if change.after is None and owner != change.session and not self._was_on_its_way(change, partition):
            self._wrong(actor, "foreign node deleted", f"{change.session:#x}: {change.path}")
        if parts[3] == "offsets" and partition is not None and change.after is not None:
            self._check_commit(change.session, int(change.after.data), partition)

    def _was_on_its_way(self, change: Change, partition: TopicPartition | None) -> bool:
        """Whether the deletion was sent while the node was its sender's, and somebody's hand has made way for another
        meanwhile: no client can prevent that."""
        assert change.before is not None
        return (
            partition is not None
            and (change.session, partition) in self.robbed
            and self.server.sent_at < change.before.ctime / 1000
        )

    def _note_change(self, change: Change, actor: SimMember | Reference | None) -> None:
        kind = "deletes" if change.after is None else "creates" if change.before is None else "writes"
        who = actor.name if actor is not None else f"session {change.session:#x}" if change.session else "the server"
        data = b"" if change.after is None else change.after.data
        self.note(f"{who} {kind} {change.path} {data.decode('latin-1')}".rstrip())

    def _check_commit(self, session: int, value: int, partition: TopicPartition) -> None:
        member = self._of_session(session)
        node = self.server.nodes.get(znodes.owner(GROUP, partition))
        last = self._last_writer.get(partition)
        excused = session in self.early or (session, partition) in self.robbed
        if node is not None and node.owner != session and (not excused or last == node.owner):
            self._wrong(member, "commit by a superseded owner", f"{value} for {partition} by {session:#x}")
        elif node is None and not excused:
            self._wrong(member, "commit by nobody's owner", f"{value} for {partition} by {session:#x}")
        self._last_writer[partition] = session
        self._check_value(member, value, partition, self._written.get(partition, 0))
        self._written[partition] = value

    def _committed_to_kafka(self, member: SimMember, session: int, offsets: Mapping[TopicPartition, int]) -> None:
        """Kafka takes whatever comes: what is checked is that nothing worse comes than the lease allows."""
        if member.member.session_id != session:
            self._wrong(member, "commit under the next session", f"{dict(offsets)} to Kafka by {member.name}")
        for p, value in offsets.items():
            self.note(f"{member.name} commits {p} {value} to Kafka")
            node = self.server.nodes.get(znodes.owner(GROUP, p))
            if node is None or node.owner != session:
                if session not in self.early and (session, p) not in self.robbed:
                    self._wrong(member, "commit by a superseded owner", f"{value} for {p} to Kafka by {member.name}")
                continue
            before = 0 if member.member.settings.dual_commit else self._in_kafka.get(p, 0)
            self._check_value(member, value, p, before)
            self._in_kafka[p] = value

    def _check_value(
        self, member: SimMember | Reference | None, value: int, partition: TopicPartition, before: int
    ) -> None:
        if value < before and partition in self._jumps:
            self._jumps.remove(partition)
        elif value < before:
            self._wrong(member, "offset goes back", f"{partition} from {before} to {value}")
        if value > self.handed.get(partition, 0):
            self._wrong(member, "offset never delivered", f"{value} of {partition}")
        if self.lossless and value > self._upto.get(partition, 0):
            self._wrong(member, "offset of records that were not read", f"{value} of {partition}")


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
