"""Random walks over exports and what befalls them; see ``export_walk``. More steps: ``ZKGROUP_WALK_STEPS=1000``."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from export_walk import Walk

from zkgroup.clients.kafka.client import KafkaSettings
from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.export.model.choices import TableKind
from zkgroup.export.planning.export_request import EARLIEST
from zkgroup.sandbox.local_cluster import Sandbox

STEPS = int(os.environ.get("ZKGROUP_WALK_STEPS", "25"))
SEEDS = range(int(os.environ.get("ZKGROUP_WALK_FIRST", "0")), int(os.environ.get("ZKGROUP_WALK_LAST", "4")))


@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    "table_format", ["parquet", *(pytest.param(name, marks=pytest.mark.long) for name in ("delta", "iceberg"))]
)
@pytest.mark.parametrize(
    "seed", [pytest.param(seed, marks=() if seed == SEEDS.start else pytest.mark.long) for seed in SEEDS]
)
def test_nothing_is_twice_and_nothing_is_lost_unnamed(
    cluster: Sandbox, registry: Registry, kafka: KafkaSettings, unique: Callable[[str], str], tmp_path: Path, seed: int,
    table_format: TableKind,
) -> None:  # fmt: skip
    """Whatever happens in whatever order."""
    walk = Walk(cluster, registry, kafka, tmp_path, unique("walk"), seed, table_format)
    for _ in range(STEPS):
        walk.step()
    print(f"seed {seed}: {STEPS} steps, {sum(walk.outcomes.values())} exports: {dict(walk.outcomes)}")
    # However it was left, the same command ends well in the end, and everything that the log has is there.
    for _ in range(6):
        outcome = walk.run({"begin": EARLIEST, "on_mismatch": "lake"})
        walk.check()
        if outcome[0] == "done":
            break
    assert outcome[0] == "done", [outcome, *walk.journal[-30:]]
