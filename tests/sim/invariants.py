"""What must always hold of a group, checked at every change in ZooKeeper and at every batch that is delivered."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from sim.brokers import Brokers
from sim.clock import Clock
from sim.member import SimMember
from sim.scala_consumer import ScalaConsumer
from sim.sim_server import SimServer
from sim.zookeeper import Change
from zkgroup.protocol import znodes
from zkgroup.protocol.ledger import Run
from zkgroup.protocol.names import TopicPartition
from zkgroup.protocol.operations import Get, Node, Op, writes

GROUP = "g"
TIMEOUT = 6.0


class Violation(AssertionError):
    """An invariant is broken, at a time."""

    def __init__(self, what: str, at: float) -> None:
        super().__init__(what)
        self.what = what
        self.at = at


class Invariants:
    """The account of a group. The numbers are those of ``docs/explanation/simulation.md``.

    1. A commit to ZooKeeper is accepted from the partition's owner alone; after an owner node was deleted by hand, or
       a session was ended early, from the former owner until its successor's first.
    2. Offsets never go back, nor past what was delivered.
    3. No record is lost: nothing is delivered beyond what was read before (``lossless``).
    4. A batch is delivered by the partition's owner alone. One whose session was ended early delivers one batch a
       partition more, if it can be reported; past its lease nothing.
    5. Nothing is delivered that was committed before.
    6. Nobody deletes what is another's.
    9. Nobody begins a write for a session past its lease, as far as its client was reported: sync and reads are none.

    Scala consumers promise none of this: what they break is counted, in ``wrongs``.
    """

    clock: Clock
    server: SimServer
    operator: int
    brokers: Brokers

    def __init__(self, *, lossless: bool) -> None:
        self.members: list[SimMember | ScalaConsumer] = []
        self.done: dict[TopicPartition, set[int]] = {}
        self.handed: dict[TopicPartition, int] = {}
        self.early: dict[int, float] = {}  # sessions that were ended early, and when
        self.robbed: dict[tuple[int, TopicPartition], None] = {}  # who has lost which owner node by somebody's hand
        self.by_former_owners = 0  # commits that were accepted in spite of a successor
        self.repeated = 0
        self.wrongs: Counter[str] = Counter()
        self.spans_of_trouble: dict[str, float] = {}  # member → until when it may not be reported at once
        self.lossless = lossless
        self._after_end: Counter[tuple[int, TopicPartition]] = Counter()
        self._by_session: dict[int, SimMember | ScalaConsumer] = {}
        self._jumps: Counter[TopicPartition] = Counter()  # how often an offset may go back, as readers have
        self._made_again: set[TopicPartition] = set()
        self._upto: dict[TopicPartition, int] = {}  # everything below was read
        self._written: dict[TopicPartition, int] = {}
        self._in_kafka: dict[TopicPartition, int] = {}
        self._kafka_floor: dict[TopicPartition, int] = {}  # where the next owner may be made to begin
        self._last_writer: dict[TopicPartition, int] = {}
        self._accepted: dict[tuple[int, TopicPartition], int] = {}

    def note(self, text: str) -> None:
        """Something has happened."""

    def offset(self, partition: TopicPartition) -> int | None:
        """The offset that is stored in ZooKeeper."""
        node = self.server.apply(self.operator, Get(znodes.offset(GROUP, partition)))
        return znodes.decode_offset("", node.data) if isinstance(node, Node) else None

    def _wrong(self, member: SimMember | ScalaConsumer | None, what: str, details: str) -> None:
        """An invariant is broken: by a member of ours, that is the end; of the Scala consumer, it is counted."""
        if member is None or member.ours:
            raise Violation(f"{what}: {details}", self.clock.now)
        self.wrongs[what] += 1

    def _of_session(self, session: int) -> SimMember | ScalaConsumer | None:
        if session not in self._by_session:
            for member in self.members:
                if member.session is not None and member.session.id:
                    self._by_session.setdefault(member.session.id, member)
        return self._by_session.get(session)

    def _sending(self, member: SimMember, ops: Sequence[Op]) -> None:
        """A member sends: one that was stopped and goes on does not write before it knows that its session lives, nor
        try to, where its client knows already that the connection is gone."""
        assert member.session is not None
        over = self.clock.now - member.session.proven_until
        if over >= 0 and writes(ops):
            what = ", ".join(f"{type(op).__name__} {op.path}" for op in ops[:3])
            self._wrong(member, "write past the lease", f"{member.name} sends {what}, {over:.2f} s past it")

    def _delivered(self, member: SimMember | ScalaConsumer, run: Run) -> None:
        session = member.session.id if member.session is not None else 0
        p = run.partition
        self.note(f"{member.name} delivers {p} {run.first}-{run.next}")
        node = self.server.nodes.get(znodes.owner(GROUP, p))
        mine = node is not None and node.owner == session
        if not mine and session in self.early:
            self._check_after_the_end(member, session, run)
        elif not mine and (session, p) not in self.robbed:
            owner = "which nobody owns" if node is None else f"which is {node.data.decode()}'s"
            self._wrong(member, "overlapping delivery", f"{member.name} delivers {run}, {owner}")
        if self.lossless:
            self._check_delivery(member, run, mine=mine, session=session)
        self.handed[p] = max(self.handed.get(p, 0), run.next)

    def _check_after_the_end(self, member: SimMember | ScalaConsumer, session: int, run: Run) -> None:
        """The session was ended early: who can be reported delivers one batch, who cannot, nothing past the lease."""
        ended = self.early[session]
        past = self.clock.now - ended
        if past >= TIMEOUT / 2:
            self._wrong(member, "delivery past the lease", f"{member.name} delivers {run} {past:.1f} s after its end")
        if self.spans_of_trouble.get(member.name, 0.0) < ended:
            self._after_end[session, run.partition] += 1
            if self._after_end[session, run.partition] > 1:
                self._wrong(member, "more than one batch after an early end", f"{member.name} delivers {run}")

    def _check_delivery(self, member: SimMember | ScalaConsumer, run: Run, *, mine: bool, session: int) -> None:
        upto = self._upto.get(run.partition, 0)
        if run.first > upto:
            self._wrong(member, "records lost", f"{member.name} delivers {run}, and {upto} was not read yet")
        writer = self._last_writer.get(run.partition)
        robbed = writer is not None and writer != session  # the former owner has committed once more
        if not mine or robbed or run.partition in self._made_again:
            return
        stored = self.committed(run.partition)
        if stored is not None and run.first < stored:
            self._wrong(member, "committed records delivered again", f"{member.name} delivers {run}, below {stored}")

    def committed(self, partition: TopicPartition) -> int | None:
        """The offset that the group has committed, in whatever store counts."""
        found = [o for o in (self.offset(partition), self._in_kafka.get(partition)) if o is not None]
        return max(found, default=None)

    def _consumed(self, _member: SimMember | ScalaConsumer, run: Run) -> None:
        done = self.done.setdefault(run.partition, set())
        offsets = range(run.first, run.next)
        self.repeated += sum(offset in done for offset in offsets)
        done.update(offsets)
        if run.first <= self._upto.get(run.partition, 0):
            self._upto[run.partition] = max(run.next, self._upto.get(run.partition, 0))

    def _jumped(self, partition: TopicPartition, offset: int) -> None:
        """A reader found its position out of range, and goes on at another."""
        self._jumps[partition] += 1
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
        """Whether the deletion was sent while the node was its sender's, as far as its server could tell, and
        somebody's hand has made way for another meanwhile: no client can prevent that."""
        assert change.before is not None
        if partition is None or (change.session, partition) not in self.robbed:
            return False
        sender = self._of_session(change.session)
        follower = sender.session.follower if sender is not None and sender.session is not None else None
        lag = 0.0 if follower is None else follower.lag
        return self.server.sent_at - lag < change.before.ctime / 1000

    def _note_change(self, change: Change, actor: SimMember | ScalaConsumer | None) -> None:
        kind = "deletes" if change.after is None else "creates" if change.before is None else "writes"
        who = actor.name if actor is not None else f"session {change.session:#x}" if change.session else "the server"
        data = b"" if change.after is None else change.after.data
        self.note(f"{who} {kind} {change.path} {data.decode('latin-1')}".rstrip())

    def _check_commit(self, session: int, value: int, partition: TopicPartition) -> None:
        member = self._of_session(session)
        node = self.server.nodes.get(znodes.owner(GROUP, partition))
        last = self._last_writer.get(partition)
        excused = session in self.early or (session, partition) in self.robbed
        self.by_former_owners += node is not None and node.owner != session
        if node is not None and node.owner != session and (not excused or last == node.owner):
            self._wrong(member, "commit by a superseded owner", f"{value} for {partition} by {session:#x}")
        elif node is None and not excused:
            self._wrong(member, "commit by nobody's owner", f"{value} for {partition} by {session:#x}")
        self._last_writer[partition] = session
        self._accepted[session, partition] = value
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
                self._check_refused(member, session, p, value)
                if not member.member.settings.dual_commit:  # over its successor's, which nothing can prevent
                    self._in_kafka[p] = value
                    self._kafka_floor[p] = min(value, self._kafka_floor.get(p, 0))
                    self._last_writer[p] = session
                continue
            before = 0 if member.member.settings.dual_commit else self._kafka_floor.get(p, 0)
            self._check_value(member, value, p, before)
            self._in_kafka[p] = self._kafka_floor[p] = value
            if not member.member.settings.dual_commit:
                self._last_writer[p] = session

    def _check_refused(self, member: SimMember, session: int, partition: TopicPartition, value: int) -> None:
        """In dual mode Kafka gets only what ZooKeeper has taken: that is where a successor is noticed."""
        node = self.server.nodes.get(znodes.owner(GROUP, partition))
        succeeded = node is not None and self._last_writer.get(partition) == node.owner
        granted = member.grants[-1].share.get(partition) if member.grants else None
        if member.member.settings.dual_commit and succeeded and granted is not None:
            taken = max(granted[1], self._accepted.get((session, partition), 0))
            if value > taken:
                self._wrong(member, "commit to Kafka that ZooKeeper has refused", f"{value} for {partition}")

    def _check_value(
        self, member: SimMember | ScalaConsumer | None, value: int, partition: TopicPartition, before: int
    ) -> None:
        if value < before and self._jumps[partition]:
            self._jumps[partition] -= 1
        elif value < before:
            self._wrong(member, "offset goes back", f"{partition} from {before} to {value}")
        if value > self.handed.get(partition, 0):
            self._wrong(member, "offset never delivered", f"{value} of {partition}")
        if self.lossless and value > self._upto.get(partition, 0):
            self._wrong(member, "offset of records that were not read", f"{value} of {partition}")
