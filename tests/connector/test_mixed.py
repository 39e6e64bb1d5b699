"""Scala consumers and of zkgroup in one group."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from mixed_group import MIXES, run_mixed

from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.sandbox.local_cluster import Sandbox


@pytest.mark.parametrize(
    "mix",
    ["range", *(pytest.param(mix, marks=pytest.mark.long) for mix in ("roundrobin of 1.1", "roundrobin of 0.8.2"))],
)
def test_a_mixed_group_shares_and_misses_nothing(
    cluster: Sandbox,
    registry: Registry,
    make_topic: Callable[..., str],
    unique: Callable[[str], str],
    tmp_path: Path,
    mix: str,
) -> None:
    """Members of 0.8.2.2, 0.10.2.2 and 1.1.1 with ours, by name and by filter, join, leave and are killed. Whenever
    the group is at rest the owners are the Scala consumer's plan; every message is read by somebody; ours prints
    nothing that had been committed."""
    seen, mixed = run_mixed(cluster, registry, make_topic, unique("mixed"), mix, tmp_path, messages=8_000, rate=1_000)
    assert len(seen) == 8_000
    assert mixed.committed_again()["ours"] == 0
    print(f"{mix}: {sum(seen.values()) - len(seen)} of {len(seen)} read again")


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("mix", MIXES)
def test_a_mixed_group_reads_a_million(
    cluster: Sandbox,
    registry: Registry,
    make_topic: Callable[..., str],
    unique: Callable[[str], str],
    tmp_path: Path,
    mix: str,
) -> None:
    """The same over a million messages and many more joins, leaves and kills."""
    name = unique("mixed")
    seen, mixed = run_mixed(cluster, registry, make_topic, name, mix, tmp_path, messages=1_000_000, rate=6_000)
    assert len(seen) == 1_000_000
    assert mixed.committed_again()["ours"] == 0
    print(f"{mix}: {sum(seen.values()) - len(seen)} of {len(seen)} read again")
