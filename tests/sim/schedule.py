"""Schedules of faults: what happens to a group, when. Data, so that hypothesis can make and shrink them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from random import Random
from typing import Literal, get_args

from sim.member import SimMember
from sim.world import GROUP, TIMEOUT, World
from zkgroup.errors import UnreachableError
from zkgroup.protocol import znodes

Fault = Literal[
    "join",
    "leave",
    "kill",
    "restart",
    "rob",
    "pause",
    "cut",
    "reset",
    "lose request",
    "lose reply",
    "end early",
    "delete owner",
    "delete id",
    "stick",
    "brokers away",
    "more partitions",
    "no leader",
    "produce",
    "commit",
    "topic list",
]
WAITS = (0.0, 0.01, 0.05, 0.3, 1.0, 3.0, 8.0)
LENGTHS = (0.5, 2.0, 5.0, 7.0, 10.0)
#: Kinds of members.
OPTIONS: tuple[dict[str, object], ...] = ({}, {"storage": "kafka", "dual_commit": True}, {"listener_takes": 0.3})
#: More kinds, apart, so that seeds stay the runs they were: those whose listeners commit.
COMMITTERS: tuple[dict[str, object], ...] = (
    {"listener_takes": 0.3, "listener_commits": True, "auto_commit": False},
    {"listener_commits": True, "auto_commit": False, "storage": "kafka", "dual_commit": True},
)
#: Who is paused for nearly a time-out and then dies is in the way for two: longer than the default lets others try.
PATIENT = {"max_retries": 8}
TRICKLE = 0.2  # seconds between two messages to each partition
FAULTS: tuple[Fault, ...] = get_args(Fault)


@dataclass(frozen=True, slots=True)
class Event:
    """After ``wait`` seconds ``fault`` happens to one (chosen by ``target``) of those it may happen to. What lasts a
    while lasts ``length`` seconds."""

    wait: float
    fault: Fault
    target: int
    length: float


def random_play(seed: int) -> Play:
    """A group and its schedule out of a seed, played to the end."""
    random = Random(seed)
    world = World(seed, {"t": random.randint(1, 5)}, random.choice(("range", "roundrobin")))
    options = random.choice(OPTIONS)
    play = Play(world)
    for _ in range(random.randint(1, 3)):
        play.join(**options)
    play.happen_all(
        Event(random.choice(WAITS), random.choice(FAULTS), random.randrange(100), random.choice(LENGTHS))
        for _ in range(random.randint(1, 14))
    )
    return play


class Play:
    """Lets a schedule happen to a world."""

    def __init__(self, world: World, most_members: int = 4, most_partitions: int = 9) -> None:
        self.world = world
        self._most_members = most_members
        self._most_partitions = most_partitions
        self._joined = 0
        self._tokens = 0
        self._over = False
        self._asked: list[SimMember] = []

        world.clock.after(TRICKLE, self._trickle)

    def _trickle(self) -> None:
        """There is always something to read, so that one who reads what is not his is seen."""
        if not self._over:
            for partition in self.world.brokers.logs:
                self.world.brokers.produce(partition, 1)
            self.world.clock.after(TRICKLE, self._trickle)

    def join(self, **options: object) -> None:
        """One more member."""
        self._joined += 1
        self.world.join(f"m{self._joined}", **(PATIENT | options))

    def happen_all(self, events: Iterable[Event]) -> None:
        """One fault after the other, then the end."""
        for event in events:
            self.happen(event)
        self.finish()

    def happen(self, event: Event) -> None:
        """Wait, then let one fault happen."""
        world = self.world
        world.run(event.wait)
        live = world.live
        if event.fault == "join":
            if len(live) < self._most_members:
                self.join()
        elif event.fault in ("brokers away", "more partitions", "no leader", "produce", "topic list"):
            self._to_brokers(event)
        elif live:
            self._to_member(event, live[event.target % len(live)])

    def _to_brokers(self, event: Event) -> None:
        brokers, clock = self.world.brokers, self.world.clock
        partitions = sorted(brokers.logs)
        partition = partitions[event.target % len(partitions)]
        match event.fault:
            case "brokers away":
                brokers.stop()
                clock.after(event.length, brokers.start)
            case "more partitions":
                count = sum(p.topic == partition.topic for p in partitions)
                if len(partitions) < self._most_partitions:
                    brokers.make_topic(partition.topic, count + 1)
            case "no leader":
                brokers.leaderless[partition] = None
                clock.after(event.length, lambda: brokers.leaderless.pop(partition, None))
            case "produce":
                for number, each in enumerate(partitions):
                    brokers.produce(each, 1 + (event.target + number) % 30)
            case "topic list":
                brokers.make_topic(f"unrelated{event.target}", 1)
                brokers.delete_topic(f"unrelated{event.target}")

    def _to_member(self, event: Event, member: SimMember) -> None:
        world, clock = self.world, self.world.clock
        match event.fault:
            case "leave":
                self._asked.append(member)
                member.leave()
            case "kill":
                member.kill()
            case "restart":
                member.kill()
                world.join(member.name, **PATIENT)
            case "rob":  # somebody takes a member that is away for dead
                member.cut()
                for partition in sorted(member.member.share):
                    world.delete(znodes.owner(GROUP, partition))
                world.delete(znodes.member_id(GROUP, member.name))
                clock.after(event.length, member.heal)
            case "pause":
                member.freeze()
                clock.after(event.length, member.thaw)
            case "cut":
                member.cut()
                clock.after(event.length, member.heal)
            case "reset" if member.session is not None:
                member.session.reset()
            case "lose request" if member.session is not None:
                member.session.lose("request")
            case "lose reply" if member.session is not None:
                member.session.lose("reply")
            case "end early":
                world.end_early(member)
            case "delete owner":
                owned = sorted(member.member.share)
                if owned:
                    world.delete(znodes.owner(GROUP, owned[event.target % len(owned)]))
            case "delete id":
                world.delete(znodes.member_id(GROUP, member.name))
            case "stick":
                member.reader.stuck = True
                clock.after(event.length, lambda: setattr(member.reader, "stuck", False))
            case "commit":
                self._tokens += 1
                member.commit(self._tokens)
            case _:
                pass

    def finish(self) -> None:
        """No more faults: the group must come to rest, read everything, and leave nothing behind."""
        world = self.world
        self._over = True
        world.run(2 * TIMEOUT)  # what was to last a while has ended
        if not world.live:
            self.join()
        world.come_to_rest()
        world.read_all()
        for member in world.members:
            # One that was cut off before it had ever connected gives up.
            may_be_gone = member.dead or member in self._asked or isinstance(member.error, UnreachableError)
            assert may_be_gone or not member.finished, f"{member.name} left by itself: {member.error}"
            assert member.dead or member.committed.keys() == member.asked, "a commit hangs"
            # (Who was robbed of an owner node may commit until its successor does, which counts that as foreign.)
            assert world.robbed or not member.member.counters.foreign_writes, "took its own write for somebody else's"
        for member in world.live:
            member.leave()
        world.run(3.0)
        assert not world.live, world.describe()
        assert not world.owners(), world.describe()
