"""Resetting a group of 10,000 partitions as a whole command: plan, guard, backup, write, verify."""

from __future__ import annotations

import os
from collections.abc import Callable

from benchmarks.consume import Bench
from benchmarks.describe import make_offsets, wide_topic, write_all
from benchmarks.measure import ZKGROUP, Row, in_turn, run
from zkgroup.clients.kafka.client import KafkaSettings
from zkgroup.clients.kafka.group_consumers import GroupOffsets
from zkgroup.protocol import znodes
from zkgroup.protocol.names import TopicPartition
from zkgroup.protocol.operations import SetData

GOAL = 5.0  # seconds
# The logs are empty: a reset to their ends moves every offset back to 0.
AWAY = 5
_PIECE = 1000


def reset(bench: Bench, rounds: int, partitions: int) -> list[Row]:
    """Every offset of a group moved, in ZooKeeper, then of one in Kafka. The peer is the goal."""
    with bench.sandbox.registry(timeout=60.0) as registry:
        topic = wide_topic(registry, partitions)
        keys = [TopicPartition(topic, number) for number in range(partitions)]
        groups = {store: f"reset-{store}-{os.getpid()}" for store in ("zookeeper", "kafka")}
        make_offsets(registry, groups["zookeeper"], keys)
        offsets = GroupOffsets(KafkaSettings(bench.sandbox.bootstrap), groups["kafka"])

        def away_in_zookeeper() -> None:
            write_all(registry, [SetData(znodes.offset(groups["zookeeper"], key), b"%d" % AWAY) for key in keys])

        def away_in_kafka() -> None:
            for start in range(0, partitions, _PIECE):
                offsets.commit(dict.fromkeys(keys[start : start + _PIECE], AWAY), 30.0)

        def ours(store: str, away: Callable[[], None]) -> float:
            away()
            backup = bench.folder / "backup"
            backup.unlink(missing_ok=True)
            command = [ZKGROUP, "reset-offsets", groups[store], "--topic", topic, "--store", store, "--to-latest"]
            done = run([*command, "--execute", "--backup", str(backup), "-z", bench.sandbox.connect])
            if f"{partitions} offsets of group {groups[store]} written and verified" not in done.output:
                raise SystemExit(done.output[-800:])
            return done.seconds

        rows = []
        for store, away in (("zookeeper", away_in_zookeeper), ("kafka", away_in_kafka)):
            row = Row(f"reset {partitions:,} partitions in {store}", f"{GOAL:g} s", "s", "less", 1)
            rows.append(in_turn(row, rounds, lambda: GOAL, lambda store=store, away=away: ours(store, away)))  # type: ignore[misc]
        offsets.close()
    return rows
