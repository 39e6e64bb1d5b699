"""A group and what happens to it, as data: made of a seed, run again as often as wanted, cut down to a short trace."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from random import Random
from typing import Any, Literal

from zkgroup.protocol.assignors import Strategy
from zkgroup.protocol.znodes import Registration

#: What may happen; the number says how often, compared with others.
KINDS: Mapping[str, int] = {
    "kill": 4,
    "restart": 4,
    "pause": 5,
    "cut one": 5,
    "cut all": 3,
    "reset": 3,
    "lose request": 9,
    "lose reply": 9,
    "latency": 3,
    "early expiry": 5,
    "second expiry": 4,
    "lagging follower": 5,
    "follower cut off": 5,
    "late watches": 4,
    "join": 5,
    "leave": 4,
    "rolling": 2,
    "partitions added": 4,
    "topic recreated": 4,
    "ZooKeeper restarted": 3,
    "leader moved": 4,
    "brokers away": 3,
    "slow brokers": 3,
    "stuck reader": 3,
    "commit": 3,
    "other topics": 2,
    "burst": 2,
}
#: By somebody's hand: excuses more, so only in some scenarios.
BY_HAND: Mapping[str, int] = {"owner deleted": 20, "id deleted": 10, "replaced": 10, "robbed": 20}
#: What a group must stand without reading anything twice.
ORDERLY = (
    "join",
    "leave",
    "rolling",
    "reset",
    "lose request",
    "lose reply",
    "partitions added",
    "leader moved",
    "commit",
    "other topics",
    "burst",
)
#: Mean seconds between two faults: a group that is left in peace now and then, a lively one, a storm.
PACES = (2.0, 0.6, 0.2, 0.05)

Store = Literal["zookeeper", "kafka", "dual"]


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of member. ``subscription``: a pattern, and topics by their numbers, or a filter."""

    scala: bool = False
    subscription: Literal["all", "first", "white", "black"] = "all"
    streams: int = 1
    listener_takes: float = 0.0
    listener_commits: bool = False  # and nothing else does

    def registration(self, topics: int) -> Registration:
        """As it is written to ZooKeeper."""
        match self.subscription:
            case "white":
                return Registration("white_list", {"t.*": self.streams}, 1)
            case "black":
                return Registration("black_list", {"u.*": self.streams}, 1)
            case "first":
                return Registration("static", {"t0": self.streams}, 1)
            case "all":
                return Registration("static", {f"t{number}": self.streams for number in range(topics)}, 1)


@dataclass(frozen=True, slots=True)
class Fault:
    """``kind`` happens ``at`` seconds after the beginning to one (chosen by ``target``) of those it may happen to.
    What lasts a while lasts ``length`` time-outs."""

    at: float
    kind: str
    target: int
    length: float


@dataclass(frozen=True, slots=True)
class Scenario:
    """All that a run depends on."""

    seed: int
    strategy: Strategy
    topics: tuple[int, ...]
    members: int
    kinds: tuple[Kind, ...]
    store: Store = "zookeeper"
    keep_trying: bool = True
    commit_interval: float = 1.0
    chunk: int = 250
    faults: tuple[Fault, ...] = field(default=())

    @property
    def mixed(self) -> bool:
        """Whether Scala consumers are among ours."""
        return any(kind.scala for kind in self.kinds)

    @property
    def orderly(self) -> bool:
        """Whether nothing happens but what members can prepare for."""
        return not self.mixed and all(fault.kind in ORDERLY for fault in self.faults)

    def text(self) -> str:
        """For a file."""
        return json.dumps(asdict(self), indent=1)

    @staticmethod
    def of(text: str) -> Scenario:
        """Out of a file."""
        found: dict[str, Any] = json.loads(text)
        found["topics"] = tuple(found["topics"])
        found["kinds"] = tuple(Kind(**kind) for kind in found["kinds"])
        found["faults"] = tuple(Fault(**fault) for fault in found["faults"])
        return Scenario(**found)


def scenario(seed: int) -> Scenario:
    """What the seed means. Small groups are frequent, large ones (to 16 members, 64 partitions) occur."""
    random = Random(seed)
    members = random.choice((2, 2, 2, 3, 3, 3, 4, 4, 5, 6, 8, 12, 16))
    partitions = random.choice((1, 2, 3, 4, 4, 5, 6, 6, 8, 8, 12, 16, 32, 64))
    count = min(random.choice((1, 1, 2, 3)), partitions)
    topics = tuple(partitions // count + (number < partitions % count) for number in range(count))
    mixed = random.random() < 0.15
    by_hand = random.random() < 0.25
    alike = random.random() < 0.5
    kinds = tuple(_kind(random, mixed=mixed, alike=alike) for _ in range(1 if alike and not mixed else 4))
    store: Store = "zookeeper" if mixed else random.choice(("zookeeper", "zookeeper", "kafka", "dual"))
    weights = dict(KINDS) | (dict(BY_HAND) if by_hand else {})
    if random.random() < 0.08:
        weights = {kind: KINDS[kind] for kind in ORDERLY}
    pace = random.choice(PACES)
    return Scenario(
        seed,
        random.choice(("range", "roundrobin")),
        topics,
        members,
        kinds,
        store,
        keep_trying=random.random() < 0.7,
        commit_interval=random.choice((0.5, 1.0, 3.0)),
        chunk=random.choice((2, 5, 250)),
        faults=_faults(random, weights, pace, random.randint(20, 100)),
    )


def _kind(random: Random, *, mixed: bool, alike: bool) -> Kind:
    return Kind(
        scala=mixed and random.random() < 0.5,
        subscription="all" if alike else random.choice(("all", "all", "first", "white", "black")),
        streams=1 if alike else random.choice((1, 1, 2, 3)),
        listener_takes=0.0 if mixed else random.choice((0.0, 0.0, 0.0, 0.3)),
        listener_commits=not mixed and random.random() < 0.2,
    )


def _faults(random: Random, weights: Mapping[str, int], pace: float, count: int) -> tuple[Fault, ...]:
    at, faults = random.uniform(0.0, 3.0), []
    for _ in range(count):
        at += random.expovariate(1 / pace)
        (kind,) = random.choices(list(weights), list(weights.values()))
        faults.append(Fault(round(at, 4), kind, random.randrange(1000), round(random.uniform(0.1, 2.5), 3)))
    return tuple(faults)
