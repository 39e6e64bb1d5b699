"""A scenario, played: the faults as they come, and then the end, when the group must come to rest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from sim.faults import BACKOFF, Faults
from sim.invariants import GROUP, TIMEOUT, Violation
from sim.member import SimMember
from sim.scala_consumer import ScalaConsumer
from sim.scenario import Scenario
from sim.world import World
from zkgroup.protocol import offset_versions, procedures, znodes
from zkgroup.protocol.operations import Create, Delete
from zkgroup.protocol.znodes import Registration

TICK = 2.0
#: Seconds after the last fault's end in which every partition has its one owner again.
BOUND = TIMEOUT + TICK + 2 * BACKOFF
TRICKLE = 0.2  # seconds between two messages to each partition
#: Seconds in which a group without faults must have done whatever it still has to.
PATIENCE = 60.0


@dataclass(slots=True)
class Outcome:
    """What became of a scenario. ``violation``: the invariant that was broken, and how; empty if none."""

    violation: str = ""
    at: float = 0.0
    faults: Counter[str] = field(default_factory=Counter)
    wrongs: Counter[str] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)
    digest: str = ""
    seconds: float = 0.0
    trace: list[str] | None = None

    @property
    def kind(self) -> str:
        """Which invariant: the words before the colon."""
        return self.violation.partition(":")[0]


def play(scenario: Scenario, *, trace: bool = False) -> Outcome:
    """Play a scenario to its end."""
    with _transactions_of(scenario.chunk):
        player = Play(scenario)
        if trace:
            player.world.trace = []
        outcome = Outcome()
        began = player.world.clock.now
        try:
            player.go()
        except Violation as violation:
            outcome.violation = violation.what
        except Exception as error:  # noqa: BLE001 a defect of a member, as a violation: with its seed
            outcome.violation = f"{type(error).__name__}: {error}"
        world = player.world
        outcome.at = outcome.seconds = world.clock.now - began
        outcome.faults, outcome.wrongs, outcome.counts = world.faults, world.wrongs, player.counts
        outcome.digest, outcome.trace = world.digest, world.trace
        return outcome


@contextmanager
def _transactions_of(size: int) -> Iterator[None]:
    """So that a handful of partitions needs several, of which some may succeed where others do not."""
    before = procedures.CHUNK, offset_versions.CHUNK
    procedures.CHUNK = offset_versions.CHUNK = size  # type: ignore[misc]
    try:
        yield
    finally:
        procedures.CHUNK, offset_versions.CHUNK = before  # type: ignore[misc]


class Play:
    """Lets a scenario happen to a world."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.world = World(
            f"play {scenario.seed}",
            {f"t{number}": count for number, count in enumerate(scenario.topics)},
            scenario.strategy,
            tick=TICK,
            lossless=True,
        )
        self._faults = Faults(self.world, scenario)
        self.counts = self._faults.counts

    def go(self) -> None:
        """From the beginning to the end."""
        world = self.world
        for _ in range(self.scenario.members):
            self._faults.join(count=False)
        world.clock.after(TRICKLE, self._trickle)
        began = world.clock.now
        for fault in self.scenario.faults:
            world.run(began + fault.at - world.clock.now)
            self._faults.happen(fault)
        self._finish()

    def _trickle(self) -> None:
        """There is always something to read, so that one who reads what is not his is seen."""
        if not self._faults.over:
            for partition in self.world.brokers.logs:
                self.world.brokers.produce(partition, 1)
            self._faults.look_after()
            self.world.clock.after(TRICKLE, self._trickle)

    # ------------------------------------------------------------ the end

    def _finish(self) -> None:
        """No more faults: every partition has its one owner in time, everything is read, nothing is left behind."""
        world = self.world
        while world.clock.now < world.calm_at:
            world.run(world.calm_at - world.clock.now)
        self._faults.look_after()
        for member in world.live:
            if (
                isinstance(member, SimMember)
                and member.member.error is not None
                and member.name not in self._faults.asked
            ):
                self._faults.asked[member.name] = None
                self.counts["gave up"] += 1
        self._faults.over = True
        calm = world.clock.now
        if self.scenario.mixed:
            self._calm_scala_consumers()
        elif not self._comes_to_rest():
            raise Violation(f"no rest within {BOUND:g} s: {world.describe()}", world.clock.now)
        rested = world.clock.now
        self._must(world.at_rest, "not at rest")
        world.run(1.0)
        self._must(world.at_rest, "rest does not last")
        self._must(world.nothing_left, "records lost")
        self.counts["at rest"] += 1
        if self.scenario.orderly and world.repeated:
            raise Violation(f"read twice in an orderly group: {world.repeated} records", world.clock.now)
        for member in world.members:
            if isinstance(member, SimMember):
                self._check_end(member, calm, rested)
        for member in world.live:
            self._faults.asked[member.name] = None
            member.leave()
        self._must(lambda: not world.live, "does not leave", 10.0)
        # One that could not say goodbye is in the way until its session ends.
        left = lambda: [path for path, node in world.server.nodes.items() if node.owner in world.server.sessions]  # noqa: E731
        if left() and not world.clock.run(TIMEOUT + TICK, lambda: not left()):
            raise Violation(f"left behind: {left()}", world.clock.now)

    def _comes_to_rest(self) -> bool:
        """Within the bound. What a message under way may still take, as it comes late, moves the bound."""
        world = self.world
        begun = world.clock.now
        while (left := max(begun, world.calm_at) + BOUND - world.clock.now) > 0:
            if world.clock.run(left, world.owned_by_plan):
                return True
        return False

    def _must(self, condition: Callable[[], bool], what: str, seconds: float = PATIENCE) -> None:
        if not condition() and not self.world.clock.run(seconds, condition):
            missing = {p: offsets[:3] for p, offsets in self.world.missing().items()}
            raise Violation(f"{what}: {missing}\n{self.world.describe()}", self.world.clock.now)

    def _check_end(self, member: SimMember, calm: float, rested: float) -> None:
        world = self.world
        if member.finished and not member.dead and member.name not in self._faults.asked:
            if member.waits_since >= calm:  # or its patience was spent on faults
                raise Violation(f"gave up in peace: {member.name}: {member.error}", world.clock.now)
            self.counts["gave up"] += 1
        if not member.dead:  # a broker may take its time to answer still
            self._must(lambda: member.committed.keys() == member.asked, f"a commit is never answered: {member.name}")
        foreign = member.member.counters.foreign_writes
        if foreign and not (self.scenario.mixed or world.by_former_owners):
            raise Violation(f"takes its own write for somebody else's: {member.name}", world.clock.now)

    def _calm_scala_consumers(self) -> None:
        """Scala consumers may sit there and own nothing until something changes: a rebalance, and in the end a
        restart, is what an operator would do."""
        world = self.world
        for _ in range(3):
            if world.clock.run(BOUND, world.at_rest):
                return
            self.counts["rebalances triggered"] += 1
            path = znodes.member_id(GROUP, "trigger")
            data = znodes.encode_registration(Registration("static", {}, 1))
            world.server.apply(world.operator, Create(path, data, ephemeral=True))
            world.run(0.5)
            world.server.apply(world.operator, Delete(path))
        for member in world.live:
            if isinstance(member, ScalaConsumer):
                self.counts["Scala consumers restarted"] += 1
                member.kill()
        world.run(TIMEOUT + TICK + 1.0)
