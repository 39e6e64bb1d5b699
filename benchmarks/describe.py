"""Describing groups of 1,000 and 10,000 partitions beside Kafka's own tool, and listing 1,000 groups."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence

from benchmarks.consume import Bench
from benchmarks.measure import ZKGROUP, Row, in_turn, run
from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.protocol import znodes
from zkgroup.protocol.names import TopicPartition
from zkgroup.protocol.operations import Create, Ensure, Exists, Failure, Op
from zkgroup.protocol.znodes import Registration, encode_offset, encode_registration
from zkgroup.sandbox.topic_admin import create_topic

MEMBERS = 4
STAMP = 1411294187842
LISTED, EACH = 1000, 10
LIST_GOAL = 5.0  # seconds


def describe(bench: Bench, rounds: int, partitions: int, many: int) -> list[Row]:
    """A live group of ``partitions`` beside Kafka's own tool; then one of ``many`` beside as much more of ours."""
    with bench.sandbox.registry(timeout=60.0) as registry:
        groups = [_living_group(registry, count) for count in (partitions, many)]

        def ours(group: str) -> float:
            return run([ZKGROUP, "inspect-group", group, "-z", bench.sandbox.connect]).seconds

        def theirs() -> float:
            tool = ["--zookeeper", bench.sandbox.connect, "--describe", "--group", groups[0]]
            return run(bench.java("kafka.admin.ConsumerGroupCommand", *tool)).seconds

        first = Row(f"describe {partitions:,} partitions", "`ConsumerGroupCommand --describe`", "s", "less", 10)
        in_turn(first, rounds, theirs, lambda: ours(groups[0]))
        times = many / partitions
        second = Row(f"describe {many:,} partitions", f"{times:g} × zkgroup's time for {partitions:,}", "s", "less", 1)
        in_turn(second, rounds, lambda: times * ours(groups[0]), lambda: ours(groups[1]))
    return [first, second]


def list_groups(bench: Bench, rounds: int) -> Row:
    """List many groups, with the lag of each."""
    topic = f"listed-{os.getpid()}"
    with bench.sandbox.registry(timeout=60.0) as registry:
        create_topic(registry, topic, EACH)
        keys = [TopicPartition(topic, number) for number in range(EACH)]
        for number in range(LISTED):
            make_offsets(registry, f"{topic}-{number}", keys)
        row = Row(f"list {LISTED:,} groups of {EACH} partitions", f"{LIST_GOAL:g} s", "s", "less", 1)
        command = [ZKGROUP, "list-groups", "-z", bench.sandbox.connect]
        return in_turn(row, rounds, lambda: LIST_GOAL, lambda: run(command).seconds)


def _living_group(registry: Registry, partitions: int) -> str:
    """A group as its members would have it: registered, every partition owned and committed."""
    name = wide_topic(registry, partitions)
    keys = [TopicPartition(name, number) for number in range(partitions)]
    members = [f"{name}_host-{STAMP}-{number:08x}" for number in range(MEMBERS)]
    registration = encode_registration(Registration("static", {name: 1}, STAMP))
    make_offsets(registry, name, keys)
    write_all(registry, [Ensure(znodes.ids(name)), Ensure(znodes.owner_topic(name, name))])
    write_all(registry, [Create(znodes.member_id(name, member), registration, ephemeral=True) for member in members])
    share = -(-partitions // MEMBERS)
    owners = [(key, members[key.partition // share]) for key in keys]
    write_all(
        registry, [Create(znodes.owner(name, key), f"{owner}-0".encode(), ephemeral=True) for key, owner in owners]
    )
    return name


def wide_topic(registry: Registry, partitions: int) -> str:
    """A topic of that many partitions, made once for all benchmarks of a run."""
    name = f"described-{partitions}-{os.getpid()}"
    if registry.read([Exists(znodes.topic(name))])[0] is None:
        print(f"  making a topic of {partitions:,} partitions", file=sys.stderr, flush=True)
        create_topic(registry, name, partitions, timeout=600.0)
    return name


def make_offsets(registry: Registry, group: str, keys: Sequence[TopicPartition]) -> None:
    """Give a group the offset 0 in each partition."""
    write_all(registry, [Ensure(znodes.offset_topic(group, topic)) for topic in {key.topic for key in keys}])
    write_all(registry, [Create(znodes.offset(group, key), encode_offset(0)) for key in keys])


def write_all(registry: Registry, ops: Iterable[Op]) -> None:
    """Write pipelined; ends the run where one is refused."""
    wanted = list(ops)
    for op, result in zip(wanted, registry.read(wanted), strict=True):
        if isinstance(result, Failure):
            raise SystemExit(f"{op.path}: {result.code.value}")
