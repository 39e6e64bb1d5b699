"""Members of the reference and of zkgroup in one group."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from mixed import Strategy, run_mixed

from zkgroup.sandbox.sandbox import Sandbox
from zkgroup.servers.registry import Registry


@pytest.mark.parametrize("strategy", ["range", "roundrobin"])
def test_a_mixed_group_shares_and_misses_nothing(
    cluster: Sandbox,
    registry: Registry,
    make_topic: Callable[..., str],
    unique: Callable[[str], str],
    tmp_path: Path,
    strategy: Strategy,
) -> None:
    """Whenever it is at rest the owners are the reference's plan, and every message is read by somebody."""
    seen = run_mixed(cluster, registry, make_topic, unique("mixed"), strategy, tmp_path, messages=40_000, rate=2_000)
    assert len(seen) == 40_000
    print(f"{strategy}: {sum(seen.values()) - len(seen)} of {len(seen)} read again")


@pytest.mark.long
@pytest.mark.parametrize("strategy", ["range", "roundrobin"])
def test_a_mixed_group_reads_a_million(
    cluster: Sandbox,
    registry: Registry,
    make_topic: Callable[..., str],
    unique: Callable[[str], str],
    tmp_path: Path,
    strategy: Strategy,
) -> None:
    """The same over a million messages and many more joins and leaves."""
    seen = run_mixed(cluster, registry, make_topic, unique("mixed"), strategy, tmp_path, messages=1_000_000, rate=6_000)
    assert len(seen) == 1_000_000
    print(f"{strategy}: {sum(seen.values()) - len(seen)} of {len(seen)} read again")
