"""What may happen to a group: faults, joins and leaves, done to a world. ``scenario.py`` names them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from sim.invariants import GROUP, TIMEOUT, Violation
from sim.member import SimMember
from sim.scala_consumer import ScalaConsumer
from sim.scenario import Fault, Kind, Scenario
from sim.world import World
from zkgroup.protocol import znodes
from zkgroup.protocol.member import Phase
from zkgroup.protocol.znodes import Registration

BACKOFF = 2.0
MOST_MEMBERS = 16
MOST_PARTITIONS = 64
#: The phases of a rebalance.
REBALANCING = (
    Phase.PAUSING,
    Phase.COMMITTING,
    Phase.NOTIFYING,
    Phase.RELEASING,
    Phase.READING,
    Phase.CLAIMING,
    Phase.LOADING,
    Phase.STARTING,
)


class Faults:
    """Does what a scenario says to a world. ``asked``: members whose end is no surprise. ``over``: nothing happens any
    more. ``counts``: what is worth knowing and no fault."""

    def __init__(self, world: World, scenario: Scenario) -> None:
        self.world = world
        self.scenario = scenario
        self.counts: Counter[str] = Counter()
        self.asked: dict[str, None] = {}
        self.over = False
        self._joined = 0
        self._tokens = 0
        self._stops = 0
        self._slowed: dict[str, float] = {}  # member → until when what it sends may come late
        self._faults: dict[str, Callable[[Fault], None]] = {
            "join": lambda fault: self.join(),
            "rolling": self._roll,
            "cut all": self._cut_all,
            "ZooKeeper restarted": self._restart_zookeeper,
            "partitions added": self._widen,
            "topic recreated": self._recreate,
            "leader moved": self._move_leader,
            "brokers away": self._take_brokers,
            "slow brokers": self._slow_brokers,
            "other topics": self._other_topics,
            "burst": self._burst,
        }
        self._hits: dict[str, Callable[[Fault, SimMember | ScalaConsumer], None]] = {
            "kill": self._kill,
            "restart": self._restart,
            "leave": lambda fault, member: self._leave(member),
            "pause": self._pause,
            "cut one": self._cut,
            "reset": self._reset,
            "lose request": self._lose,
            "lose reply": self._lose,
            "latency": self._slow,
            "late watches": self._late,
            "early expiry": self._expire,
            "second expiry": self._expire_twice,
            "lagging follower": self._follow,
            "follower cut off": self._follow,
            "stuck reader": self._stick,
            "commit": self._commit,
            "owner deleted": self._delete_owner,
            "id deleted": self._delete_id,
            "replaced": self._replace,
            "robbed": self._rob,
        }

    def happen(self, fault: Fault) -> None:
        """A fault happens, if there is anybody it may happen to."""
        if fault.kind in self._faults:
            self._faults[fault.kind](fault)
        elif live := self.world.live:
            self._hits[fault.kind](fault, live[fault.target % len(live)])

    def look_after(self) -> None:
        """A supervisor starts anew what has given up, and sees that there are always two."""
        for member in self.world.members:
            if member.finished and not member.dead and member.name not in self.asked:
                if member.has_given_way and not self._is_in_the_way(member.name):
                    raise Violation(f"gives way to its former self: {member.name}", self.world.clock.now)
                self.asked[member.name] = None
                self.counts["gave up"] += 1
                self.join(count=False)
        if len(self.world.live) < 2:
            self.join(count=False)

    def _is_in_the_way(self, name: str) -> bool:
        """Whether what the one before of that name had sent may have come so late that its session, whose last time-out
        begins with that, goes on longer than anybody waits."""
        return self.world.clock.now < self._slowed.get(name, 0.0) + 4 * TIMEOUT  # latency is two of them at most

    # ------------------------------------------------------------ members

    def join(self, *, count: bool = True) -> None:
        """One more member. ``count``: as something that happens, not as the beginning or a supervisor's work."""
        world, scenario = self.world, self.scenario
        if len(world.live) >= MOST_MEMBERS:
            return
        kind = scenario.kinds[self._joined % len(scenario.kinds)]
        self._joined += 1
        name = f"m{self._joined}"
        self._start(name, kind.registration(len(scenario.topics)), kind)
        if count:
            world.report("join", who=name)

    def _start(self, name: str, registration: Registration, kind: Kind) -> None:
        world, scenario = self.world, self.scenario
        if kind.scala:
            member: SimMember | ScalaConsumer = world.join_scala_consumer(
                name, registration, commit_interval=scenario.commit_interval
            )
        else:
            member = world.join(
                name,
                registration=registration,
                storage="zookeeper" if scenario.store == "zookeeper" else "kafka",
                dual_commit=scenario.store == "dual",
                # Who dies when he was paused for nearly a time-out is in the way for two: longer than the default
                # lets others try.
                max_retries=8,
                backoff=BACKOFF,
                keep_trying=scenario.keep_trying,
                auto_commit_interval=scenario.commit_interval,
                listener_takes=kind.listener_takes,
                listener_commits=kind.listener_commits,
                auto_commit=not kind.listener_commits,
            )
        if len(self.world.brokers.logs) > 8:
            member.reader.batch = 50

    def _start_again(self, member: SimMember) -> None:
        kind = Kind(listener_takes=member.listener_delay, listener_commits=member.listener_commits)
        self._start(member.name, member.registration, kind)

    def _leave(self, member: SimMember | ScalaConsumer) -> None:
        self.asked[member.name] = None
        self.world.report("leave", who=member.name)
        member.leave()

    def _kill(self, fault: Fault, member: SimMember | ScalaConsumer) -> None:
        self.world.report("kill", who=member.name)
        member.kill()

    def _restart(self, fault: Fault, member: SimMember | ScalaConsumer) -> None:
        """Killed, and started again under the same id at once."""
        self.world.report("restart under the same id", who=member.name)
        member.kill()
        if isinstance(member, SimMember):
            self._start_again(member)

    def _roll(self, fault: Fault) -> None:
        """One after the other leaves, and another comes."""
        clock = self.world.clock

        def step(left: int) -> None:
            live = self.world.live
            if left and live and not self.over:
                self._leave(live[(fault.target + left) % len(live)])
                self.join()
                self.world.report("rolling joins and leaves")
                clock.after(fault.length / 4, lambda: step(left - 1))

        step(4)

    def _pause(self, fault: Fault, member: SimMember | ScalaConsumer) -> None:
        """Half to two and a half time-outs; every other time while an answer is under way, which is read afterwards."""
        length = TIMEOUT * (0.5 + fault.length * 0.8)
        clock = self.world.clock

        def pause(patience: float) -> None:
            if member.frozen or member.finished or self.over:
                return
            if patience > 0 and member.session is not None and not member.session.waiting:
                clock.after(0.0007, lambda: pause(patience - 0.0007))
                return
            self._trouble("pause", member, length)
            member.freeze()
            clock.after(length, member.thaw)

        pause(1.2 if fault.target % 2 else 0.0)

    def _cut(self, fault: Fault, member: SimMember | ScalaConsumer) -> None:
        if not member.up:
            return
        self._trouble("one cut off", member, TIMEOUT * fault.length)
        member.cut()
        self.world.clock.after(TIMEOUT * fault.length, member.heal)

    def _cut_all(self, fault: Fault) -> None:
        cut = [member for member in self.world.live if member.up]
        for member in cut:
            self.world.trouble(member.name, self.world.clock.now + TIMEOUT * fault.length)
            member.cut()

        def heal() -> None:
            for member in cut:
                member.heal()

        self.world.report("all cut off", self.world.clock.now + TIMEOUT * fault.length)
        self.world.clock.after(TIMEOUT * fault.length, heal)

    def _trouble(self, what: str, member: SimMember | ScalaConsumer, length: float) -> None:
        """A fault that may keep a member from hearing at once what happens to its session."""
        until = self.world.clock.now + length
        self.world.trouble(member.name, until)
        self.world.report(what, until, member.name)

    # ------------------------------------------------------------ sessions

    def _reset(self, fault: Fault, member: SimMember | ScalaConsumer) -> None:
        if member.session is not None and member.session.connected:
            self.world.report("connection reset", who=member.name)
            member.session.reset()

    def _lose(self, fault: Fault, member: SimMember | ScalaConsumer) -> None:
        if member.session is not None:
            member.session.lose("request" if fault.kind == "lose request" else "reply")

    def _slow(self, fault: Fault, member: SimMember | ScalaConsumer) -> None:
        length = fault.length * TIMEOUT / 2
        self.world.trouble(member.name, self.world.clock.now + length)
        member.slow(self.world.clock.now + length)
        self._slowed[member.name] = self.world.clock.now + length

    def _late(self, fault: Fault, member: SimMember | ScalaConsumer) -> None:
        if fault.target % 3:
            member.late(self.world.clock.now + fault.length * TIMEOUT)
        else:
            member.deaf(self.world.clock.now + fault.length)

    def _expire(self, fault: Fault, member: SimMember | ScalaConsumer) -> None:
        if self.world.end_early(member):
            self.world.report("early expiry", who=member.name)

    def _expire_twice(self, fault: Fault, member: SimMember | ScalaConsumer) -> None:
        """The second time in the middle of the rebalance that the first has caused, its own or a peer's."""
        self._expire(fault, member)
        world = self.world

        def expire_again(left: int) -> None:
            for each in world.live:
                in_rebalance = isinstance(each, SimMember) and each.member.phase in REBALANCING
                if in_rebalance and (each is member or fault.target % 2) and world.end_early(each):
                    world.report("second expiry in a rebalance", who=each.name)
                    return
            if left and not self.over:
                world.clock.after(0.003, lambda: expire_again(left - 1))

        expire_again(400)

    def _follow(self, fault: Fault, member: SimMember | ScalaConsumer) -> None:
        """Some members' server lags behind, or is cut off from its leader."""
        cut_off, world = fault.kind == "follower cut off", self.world
        length = TIMEOUT * min(fault.length, 1.5)
        chosen = [member] if fault.target % 2 else world.live[fault.target % 3 :: 3]
        for each in chosen:
            session = each.session
            if session is None or not session.join_follower(float("inf") if cut_off else 0.05 + fault.length):
                continue
            self._trouble("follower cut off from its leader" if cut_off else "lagging follower", each, length)
            world.clock.after(length, session.leave_follower)

    def _restart_zookeeper(self, fault: Fault) -> None:
        world = self.world
        self._stops += 1
        stop = self._stops
        length = fault.length * 2
        for member in world.live:
            world.trouble(member.name, world.clock.now + length)
        world.report("ZooKeeper restarted", world.clock.now + length)
        world.server.stop()
        world.clock.after(length, lambda: world.server.start() if stop == self._stops else None)

    # ------------------------------------------------------------ readers, commits

    def _stick(self, fault: Fault, member: SimMember | ScalaConsumer) -> None:
        reader = member.reader
        reader.stuck = True
        self.world.report("stuck reader", self.world.clock.now + 2 * fault.length, member.name)
        self.world.clock.after(2 * fault.length, lambda: setattr(reader, "stuck", False))

    def _commit(self, fault: Fault, member: SimMember | ScalaConsumer) -> None:
        if isinstance(member, SimMember):
            self._tokens += 1
            self.counts["commits asked for"] += 1
            member.commit(self._tokens)

    # ------------------------------------------------------------ by somebody's hand

    def _delete_owner(self, fault: Fault, member: SimMember | ScalaConsumer) -> None:
        owned = sorted(member.member.share) if isinstance(member, SimMember) else []
        if owned:
            self.world.report("owner node deleted by hand", who=member.name)
            self.world.delete(znodes.owner(GROUP, owned[fault.target % len(owned)]))

    def _delete_id(self, fault: Fault, member: SimMember | ScalaConsumer) -> None:
        if isinstance(member, SimMember):  # a Scala consumer would stay away for good
            self.world.report("id deleted by hand", who=member.name)
            self.world.delete(znodes.member_id(GROUP, member.name))

    def _replace(self, fault: Fault, member: SimMember | ScalaConsumer) -> None:
        """Killed, and started again under the same id; whoever does that deletes the id that is in the way."""
        if isinstance(member, SimMember):
            self.world.report("id deleted for a restart", who=member.name)
            member.kill()
            self.world.delete(znodes.member_id(GROUP, member.name))
            self._start_again(member)

    def _rob(self, fault: Fault, member: SimMember | ScalaConsumer) -> None:
        """Somebody takes a member for dead that is away, or only hears late of what was done to it."""
        if not isinstance(member, SimMember) or not member.up:
            return
        length = TIMEOUT * fault.length
        self._trouble("taken for dead", member, length)
        if fault.target % 2:
            member.deaf(self.world.clock.now + length)
        else:
            member.cut()
            self.world.clock.after(length, member.heal)
        for partition in sorted(member.member.share):
            self.world.delete(znodes.owner(GROUP, partition))
        self.world.delete(znodes.member_id(GROUP, member.name))

    # ------------------------------------------------------------ brokers and topics

    def _widen(self, fault: Fault) -> None:
        brokers = self.world.brokers
        topics = sorted({p.topic for p in brokers.logs})
        if topics and len(brokers.logs) < MOST_PARTITIONS:
            topic = topics[fault.target % len(topics)]
            self.world.make_topic(topic, sum(p.topic == topic for p in brokers.logs) + 1 + fault.target % 2)
            self.world.report("partitions added")

    def _recreate(self, fault: Fault) -> None:
        """Recreated with as many partitions, or fewer, or more."""
        world = self.world
        topics = sorted({p.topic for p in world.brokers.logs})
        if not topics:
            return
        topic = topics[fault.target % len(topics)]
        count = sum(p.topic == topic for p in world.brokers.logs)
        world.brokers.delete_topic(topic)
        world.report("topic recreated", world.clock.now + fault.length)
        width = max(1, min(count + fault.target % 3 - 1, count + MOST_PARTITIONS - len(world.brokers.logs) - count))
        world.clock.after(fault.length, lambda: world.make_topic(topic, width))

    def _move_leader(self, fault: Fault) -> None:
        """For a while a third of the partitions has no leader."""
        brokers = self.world.brokers
        moved = [p for p in sorted(brokers.logs)[fault.target % 3 :: 3] if p not in brokers.leaderless]
        brokers.leaderless |= dict.fromkeys(moved)
        self.world.report("leaders moved", self.world.clock.now + fault.length)

        def elect() -> None:
            for partition in moved:
                brokers.leaderless.pop(partition, None)

        self.world.clock.after(fault.length, elect)

    def _take_brokers(self, fault: Fault) -> None:
        brokers = self.world.brokers
        if brokers.up:
            brokers.stop()
            self.world.report("brokers away", self.world.clock.now + fault.length)
            self.world.clock.after(fault.length, brokers.start)

    def _slow_brokers(self, fault: Fault) -> None:
        self.world.brokers.slow_until = self.world.clock.now + 2 * fault.length
        self.world.calm_at = max(self.world.calm_at, self.world.brokers.slow_until)  # whoever asks until then may wait

    def _other_topics(self, fault: Fault) -> None:
        """Topics that nobody subscribes to come and go."""
        self.world.report("other topics come and go")
        name = f"u{fault.target}"
        if all(p.topic != name for p in self.world.brokers.logs):
            self.world.brokers.make_topic(name, 1)
            self.world.brokers.delete_topic(name)

    def _burst(self, fault: Fault) -> None:
        self.counts["bursts"] += 1
        for number, partition in enumerate(sorted(self.world.brokers.logs)):
            self.world.brokers.produce(partition, 1 + (fault.target + number) % 30)
