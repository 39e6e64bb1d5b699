"""The Scala consumer's own classes, run on random registries, and what zkgroup makes of the same.

What is run: ``RangeAssignor``, ``RoundRobinAssignor``, ``TopicCount``, ``Whitelist`` and ``Blacklist`` out of the jars
of three releases, one for each variant of roundrobin, on a real ZooKeeper. The registries are drawn from a fixed seed.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import orjson
import pytest
from jvm import java_machine
from py4j.protocol import Py4JJavaError
from support import fresh_name, scaled

from zkgroup.errors import AssignmentRefusedError, MalformedZnodeError
from zkgroup.protocol.assignors import Assignment, Strategy, assign, compat_of, resolve_all
from zkgroup.protocol.names import TopicPartition, internal_topics
from zkgroup.protocol.operations import Create, Ensure, Failure
from zkgroup.protocol.topic_filter import TopicFilter
from zkgroup.protocol.znodes import Registration, decode_registration, encode_registration
from zkgroup.sandbox.local_cluster import Sandbox

RELEASES = ("0.8.2.2", pytest.param("0.10.2.2", marks=pytest.mark.long), "1.1.1")
WORLDS = 10
GROUPS_IN_A_WORLD = 20

STEMS = [
    "orders",
    "a.b",
    "a-b",
    "a_b",
    "x.y-z_1",
    "t",
    "t-1",
    "t-11",
    "T",
    "__hidden",
    "payments.eu-west_1",
    "0",
    "-",
    "_",
]
FILTERS = [
    ".*", "t.*", "a.b,t", "'a','b'", "[a-z]+[-._].*", r"\w+", r"(?!a).*", "[A-Za-z]+", "nothing-.*", "(?i)T.*",
    r"\Qa.b\E.*", "[^aA-Z].*", r"^t(-\d+)?$", r"(?=.*\d).*", "(?:t|t-1)1??", r".*(?<!\d)", "a.b||x.*",
]  # fmt: skip


@dataclass
class World:
    """A chroot: topics with their partitions, and groups of members."""

    chroot: str
    partitions: dict[str, tuple[int, ...]]
    groups: dict[str, dict[str, Registration]] = field(default_factory=dict)


# --- registries


def make_worlds(seed: int) -> list[World]:
    """Random registries: mixed subscriptions, up to 12 streams, many members, partitions with gaps."""
    draw = random.Random(seed)
    return [make_world(draw, number) for number in range(WORLDS)]


def make_world(draw: random.Random, number: int) -> World:
    names = draw.sample(STEMS, draw.randint(1, len(STEMS)))
    names += [f"{draw.choice(STEMS)}.{i}" for i in range(draw.randint(0, 8))]
    partitions = {name: tuple(draw.sample(range(40), draw.choice([0, 1, 2, 3, 5, 8, 17]))) for name in names}
    partitions |= {"__consumer_offsets": (0, 1, 2), "__transaction_state": (0, 1)}
    world = World(f"/differential-{seed_text(draw)}-{number}", partitions)
    for index in range(scaled(GROUPS_IN_A_WORLD)):
        kind = draw.choice(["equal", "mixed", "filters"])
        world.groups[f"g-{index}"] = make_group(draw, f"g-{index}", kind, sorted(partitions))
    return world


def seed_text(draw: random.Random) -> str:
    return format(draw.getrandbits(32), "08x")


def make_group(draw: random.Random, group: str, kind: str, topics: Sequence[str]) -> dict[str, Registration]:
    ids = {make_id(draw, group) for _ in range(draw.choice([1, 2, 2, 3, 3, 4, 6, 14]))}
    common = draw.sample(topics, draw.randint(1, min(5, len(topics))))
    members: dict[str, Registration] = {}
    for member in sorted(ids):
        streams = draw.randint(1, 12)
        if kind == "equal":
            members[member] = Registration("static", dict.fromkeys(common, streams), 1411294187842)
        elif kind == "filters" and draw.random() < 0.7:
            pattern = draw.choice(["white_list", "white_list", "black_list"])
            members[member] = Registration(pattern, {draw.choice(FILTERS): streams}, 1411294187842)
        else:
            chosen = draw.sample(topics, draw.randint(0, min(5, len(topics))))
            chosen += ["not-there"] if draw.random() < 0.2 else []
            members[member] = Registration("static", {t: draw.randint(1, 12) for t in chosen}, 1411294187842)
    return members


def make_id(draw: random.Random, group: str) -> str:
    shape = draw.choice(["{g}_c-{n}", "{g}_c{n}", "{g}_host.example-{m}-{x}", "{g}_HOST_1-{m}-{x}", "{g}_c-1-{n}"])
    return shape.format(g=group, n=draw.randint(0, 12), m=draw.randint(10**12, 2 * 10**12), x=seed_text(draw))


def write(zookeeper: Sandbox, nodes: Mapping[str, bytes]) -> None:
    """Create the nodes with their parents."""
    parents = sorted({path.rpartition("/")[0] for path in nodes})
    with zookeeper.registry() as registry:
        results = registry.read([Ensure(path) for path in parents])
        results += registry.read([Create(path, data) for path, data in nodes.items()])
    assert not [result for result in results if isinstance(result, Failure)]


@pytest.fixture(scope="module")
def worlds(zookeeper: Sandbox) -> list[World]:
    """The random registries, written to ZooKeeper."""
    above = f"/{fresh_name('worlds')}"  # made anew where a worker comes back to this module
    made = [replace(world, chroot=f"{above}{world.chroot}") for world in make_worlds(seed=20240817)]
    nodes: dict[str, bytes] = {}
    for world in made:
        for topic, partitions in world.partitions.items():
            replicas = {str(partition): [1] for partition in partitions}
            nodes[f"{world.chroot}/brokers/topics/{topic}"] = orjson.dumps({"version": 1, "partitions": replicas})
        for group, members in world.groups.items():
            for member, registration in members.items():
                nodes[f"{world.chroot}/consumers/{group}/ids/{member}"] = encode_registration(registration)
    write(zookeeper, nodes)
    return made


# --- the Scala consumer


class ScalaConsumer:
    """The classes of one release."""

    def __init__(self, release: str, jvm: Any, zookeeper: str) -> None:
        self.release = release
        self.jvm = jvm
        self._zookeeper = zookeeper
        self._assignors = {
            "range": jvm.kafka.consumer.RangeAssignor(),
            "roundrobin": jvm.kafka.consumer.RoundRobinAssignor(),
        }

    def connect(self, chroot: str) -> Any:
        """A session of the Scala consumer's own client."""
        if self.release.startswith("0.8"):
            serializer = getattr(self.jvm.kafka.utils, "ZKStringSerializer$").__getattr__("MODULE$")
            return self.jvm.org.I0Itec.zkclient.ZkClient(self._zookeeper + chroot, 30000, 30000, serializer)
        return self.jvm.kafka.utils.ZkUtils.apply(self._zookeeper + chroot, 30000, 30000, False)

    def topic_count(self, session: Any, group: str, member: str) -> Any:
        """What this release reads in a member's id node. Raises Py4JJavaError where it cannot."""
        companion = getattr(self.jvm.kafka.consumer, "TopicCount$").__getattr__("MODULE$")
        count = companion.constructTopicCount(group, member, session, True)
        count.getConsumerThreadIdsPerTopic()  # asserts the numbers of streams
        return count

    def context(self, session: Any, group: str, member: str) -> Any:
        """What this release reads of a registry before it assigns."""
        return self.jvm.kafka.consumer.AssignmentContext(group, member, True, session)

    def share(self, strategy: Strategy, context: Any, member: str) -> set[str] | None:
        """A member's own share, as lines ``partition -> thread``; None where the release refuses to assign."""
        try:
            plan = self._assignors[strategy].assign(context)
        except Py4JJavaError as error:
            if error.java_exception.getClass().getName() != "java.lang.IllegalArgumentException":
                raise
            return None
        mine = plan if self.release.startswith("0.8") else plan.get(member)
        return set(mine.mkString("\n").splitlines())

    def line(self, partition: TopicPartition, thread: object) -> str:
        """An entry of a plan in this release's spelling."""
        if self.release == "1.1.1":
            return f"{partition} -> {thread}"
        return f"[{partition.topic},{partition.partition}] -> {thread}"


@pytest.fixture(scope="module", params=RELEASES)
def scala_consumer(
    request: pytest.FixtureRequest,
    zookeeper: Sandbox,
    scala_consumer_jars: Callable[[Sequence[str]], list[str]],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[ScalaConsumer]:
    """A running virtual machine with the jars of each release in turn."""
    (jars,) = scala_consumer_jars([request.param])
    with java_machine(Path(jars), tmp_path_factory.mktemp("jvm")) as jvm:
        yield ScalaConsumer(request.param, jvm, zookeeper.address)


# --- the comparison


def plan_of(world: World, group: str, release: str, strategy: Strategy) -> Assignment | None:
    """zkgroup's plan for a group; None where it refuses."""
    members = resolve_all(world.groups[group], world.partitions, internal=internal_topics(release))
    try:
        return assign(strategy, compat_of(release), members, world.partitions)
    except AssignmentRefusedError:
        return None


class Tally(NamedTuple):
    """How many shares were compared, how many of those were refused by both, and how many partitions they held."""

    shares: int
    refused: int
    partitions: int


def compare_group(scala_consumer: ScalaConsumer, session: Any, world: World, group: str) -> Tally:
    """Compare the share of every member under both strategies."""
    shares = refused = partitions = 0
    plans: dict[Strategy, Assignment | None] = {
        "range": plan_of(world, group, scala_consumer.release, "range"),
        "roundrobin": plan_of(world, group, scala_consumer.release, "roundrobin"),
    }
    assert all(plan is None or not plan.ties for plan in plans.values())
    for member in world.groups[group]:
        context = scala_consumer.context(session, group, member)
        if not context.consumersForTopic().size():
            continue  # nobody reads anything: 0.8.2's roundrobin fails, the others return nothing
        for strategy, plan in plans.items():
            expected = scala_consumer.share(strategy, context, member)
            got = None if plan is None else {scala_consumer.line(*entry) for entry in plan.of(member).items()}
            assert got == expected, (world.chroot, group, member, strategy)
            shares += 1
            refused += got is None
            partitions += len(got or ())
    return Tally(shares, refused, partitions)


def test_whole_plans_are_the_scala_consumers_own(scala_consumer: ScalaConsumer, worlds: list[World]) -> None:
    """On 200 random registries (80 in the usual run) every member's share, under both strategies, is what the release
    computes."""

    def compare_world(world: World) -> list[Tally]:
        session = scala_consumer.connect(world.chroot)
        try:
            return [compare_group(scala_consumer, session, world, group) for group in world.groups]
        finally:
            session.close()

    with ThreadPoolExecutor(WORLDS) as pool:  # the Scala consumer reads node by node, and mostly waits
        tallies = [tally for found in pool.map(compare_world, worlds) for tally in found]
    assert sum(tally.shares for tally in tallies) > scaled(1000)
    assert sum(tally.partitions for tally in tallies) > scaled(4_000)
    assert (sum(tally.refused for tally in tallies) > scaled(100)) == (scala_consumer.release == "0.8.2.2")


def test_equal_hash_codes_are_a_tie(scala_consumer: ScalaConsumer, zookeeper: Sandbox) -> None:
    """Where hash codes are equal (Aa and BB) the plans agree but for who owns which of the tied partitions."""
    partitions = {"Aa": (0, 1, 2), "BB": (0, 1, 2), "C": (0, 1)}
    world = World(f"/{fresh_name('ties')}", partitions)
    world.groups["g"] = {f"g_{i}": Registration("static", {"Aa": 2, "BB": 2, "C": 2}, 1) for i in range(3)}
    nodes = {
        f"{world.chroot}/brokers/topics/{topic}": orjson.dumps({"version": 1, "partitions": {str(p): [1] for p in ps}})
        for topic, ps in partitions.items()
    }
    for member, registration in world.groups["g"].items():
        nodes[f"{world.chroot}/consumers/g/ids/{member}"] = encode_registration(registration)
    write(zookeeper, nodes)
    plan = plan_of(world, "g", scala_consumer.release, "roundrobin")
    assert plan is not None
    assert sorted(plan.ties) == [(TopicPartition("Aa", p), TopicPartition("BB", p)) for p in range(3)]
    session = scala_consumer.connect(world.chroot)
    theirs: set[str] = set()
    for member in world.groups["g"]:
        theirs |= scala_consumer.share("roundrobin", scala_consumer.context(session, "g", member), member) or set()
    session.close()
    untied = [TopicPartition("C", 0), TopicPartition("C", 1)]
    assert {scala_consumer.line(partition, plan.owners[partition]) for partition in untied} <= theirs
    for one, other in plan.ties:
        owners = plan.owners[one], plan.owners[other]
        straight = {scala_consumer.line(one, owners[0]), scala_consumer.line(other, owners[1])}
        swapped = {scala_consumer.line(one, owners[1]), scala_consumer.line(other, owners[0])}
        assert straight <= theirs or swapped <= theirs


READ_BY_ALL = [
    b'{"version":1,"subscription":{"t":1,"u":12},"pattern":"static","timestamp":"1411294187842"}',
    b'{ "pattern":"static", "subscription":{ "t" : 1 }, "timestamp":"7", "version":1 }',
    b'{"version":1,"subscription":{},"pattern":"static","timestamp":"1"}',
    b'{"version":"x","subscription":{"t":2},"pattern":"fancy","y":[1,{"a":true}],"z":null,"timestamp":14}',
    b'{"subscription":{"t.*":2,"u.*":1},"pattern":"white_list"}',
    b'{"subscription":{},"pattern":"black_list"}',
    b'  {"subscription":{"t":1,"t":2},"pattern":"static"}\n',
    rb'{"subscription":{"\w+":1},"pattern":"white_list"}',
    rb'{"subscription":{"\\w+":1},"pattern":"white_list"}',
    rb'{"subscription":{"t\.*":3},"pattern":"black_list"}',
    rb'{"subscription":{"\\\\w+":1},"pattern":"white_list"}',
    rb'{"subscription":{"\bt":1},"pattern":"white_list"}',
    b'{"subscription":{" \'t\',\'u\' ":1},"pattern":"white_list"}',
    b'{"subscription":{"":1},"pattern":"black_list"}',
    '{"subscription":{"é|t":1},"pattern":"white_list"}'.encode(),
]
READ_SINCE_1_0 = [
    b'{"version":1,"subscription":{"t":1},"pattern":"static","timestamp":1411294187842}',
    b'{"version":1.5,"subscription":{"t":1},"pattern":"static"}',
    b'{"subscription":{"t":1},"pattern":"static","x":1e3}',
]
READ_BEFORE_1_0 = [b'{"subscription":{"t":1},"pattern":null}']
READ_BY_NONE = [
    b"",
    b"{}",
    b"[]",
    b"null",
    b"hello",
    b'"x"',
    b'{"subscription":{"t":1}}',
    b'{"subscription":{"t":1},"pattern":1}',
    b'{"pattern":"static"}',
    b'{"subscription":null,"pattern":"static"}',
    b'{"subscription":["t"],"pattern":"static"}',
    b'{"subscription":{"t":0},"pattern":"static"}',
    b'{"subscription":{"t":-1},"pattern":"static"}',
    b'{"subscription":{"t":"1"},"pattern":"static"}',
    b'{"subscription":{"t":1.0},"pattern":"static"}',
    b'{"subscription":{"t":true},"pattern":"static"}',
    b'{"subscription":{"t":2147483648},"pattern":"static"}',
    b'{"subscription":{".*":0},"pattern":"white_list"}',
    b'{"subscription":{"t":1},"pattern":"static",}',
    b'{"subscription":{"t":1},"pattern":"static","x":NaN}',
    b'\xef\xbb\xbf{"subscription":{"t":1},"pattern":"static"}',
]
ALL_DATA = READ_BY_ALL + READ_SINCE_1_0 + READ_BEFORE_1_0 + READ_BY_NONE


@pytest.fixture(scope="module")
def odd_registrations(zookeeper: Sandbox) -> str:
    """A chroot with one group for each of the registrations above, and four topics."""
    odd = f"/{fresh_name('odd')}"
    nodes = {f"{odd}/consumers/g{i}/ids/c": data for i, data in enumerate(ALL_DATA)}
    nodes |= {f"{odd}/brokers/topics/{t}": b'{"version":1,"partitions":{"0":[1]}}' for t in ("t", "tt", "u-1", "u")}
    write(zookeeper, nodes)
    return odd


def test_registrations_are_read_as_the_scala_consumer_reads_them(
    scala_consumer: ScalaConsumer, odd_registrations: str
) -> None:
    """What a release reads is what is decoded and resolved; what stops every release is malformed, and nothing else."""
    session = scala_consumer.connect(odd_registrations)
    newest = scala_consumer.release == "1.1.1"
    for i, data in enumerate(ALL_DATA):
        try:
            theirs = scala_consumer.topic_count(session, f"g{i}", "c").getConsumerThreadIdsPerTopic()
        except Py4JJavaError:
            theirs = None
        readable = data in READ_BY_ALL or data in (READ_SINCE_1_0 if newest else READ_BEFORE_1_0)
        assert (theirs is not None) == readable, data
        if data in READ_BY_NONE:
            with pytest.raises(MalformedZnodeError):
                decode_registration("/x", data)
            continue
        ours = resolve_all({"c": decode_registration("/x", data)}, ["t", "tt", "u-1", "u"])["c"]
        if theirs is not None:
            read = {topic: theirs.apply(topic).size() for topic in theirs.keySet().mkString("\n").splitlines()}
            assert read == ours, data
    session.close()


@pytest.mark.parametrize("scala_consumer", ["1.1.1"], indirect=True)
def test_registrations_are_written_as_the_scala_consumer_writes_them(scala_consumer: ScalaConsumer) -> None:
    """Byte for byte what 1.1.1's encoder makes of the same keys in its order."""
    empty = getattr(scala_consumer.jvm.scala.collection.immutable, "Map$EmptyMap$").__getattr__("MODULE$")
    for registration in (
        Registration("static", {"t.a-b_c": 12, "u": 1}, 1411294187842),
        Registration("static", {}, 1),
        Registration("white_list", {'é\\w+"\t/': 3}, 7),
    ):
        subscription = empty
        for topic, streams in registration.subscription.items():
            subscription = subscription.updated(topic, streams)
        entries = empty.updated("version", 1).updated("subscription", subscription)
        entries = entries.updated("pattern", registration.pattern).updated("timestamp", str(registration.timestamp))
        assert scala_consumer.jvm.kafka.utils.Json.legacyEncodeAsString(entries).encode() == encode_registration(
            registration
        )


def test_filters_take_the_topics_that_the_scala_consumer_takes(scala_consumer: ScalaConsumer) -> None:
    """White lists and black lists, with their normalisation and the internal topics of each release."""
    names = [*STEMS, "a", "b", "t-111", "__consumer_offsets", "__transaction_state", "A.B"]
    raw = [*FILTERS, "", " a . b ", '"t"', "'\"t,T'\"", "\t'a.b'\n", "a.b|", "a||b", "'a\",\"b'", ",".join(STEMS)]
    internal = internal_topics(scala_consumer.release)
    for expression in raw:
        pairs = (("white_list", "Whitelist"), ("black_list", "Blacklist"))
        for kind, name in pairs:
            theirs = getattr(scala_consumer.jvm.kafka.consumer, name)(expression)
            ours = TopicFilter(kind, expression)
            assert ours.expression == theirs.regex()
            for exclude in (True, False):
                taken = [topic for topic in names if theirs.isTopicAllowed(topic, exclude)]
                selected = ours.select(names, exclude_internal=exclude, internal=internal)
                assert selected == tuple(sorted(taken)), (expression, kind)
