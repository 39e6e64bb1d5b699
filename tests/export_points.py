"""What tests of the protocol share: an export as a process that harms itself, its points, harm at one of them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from zkgroup.export.run import PartitionSummary
from zkgroup.servers.kafka import KafkaSettings
from zkgroup.servers.zookeeper import ZooKeeperSettings

DRIVER = str(Path(__file__).parent / "export" / "driver.py")
MESSAGES, PARTITIONS = 40, 2
Points = list[str]
Export = Callable[..., list[PartitionSummary]]


def driven(short: ZooKeeperSettings, kafka: KafkaSettings, **wish: Any) -> tuple[int, Points]:
    """Run ``driver.py`` to its end: exit code and lines."""
    told = json.dumps({"connect": short.hosts, "bootstrap": kafka.bootstrap, **wish}, default=str)
    done = subprocess.run([sys.executable, DRIVER, told], capture_output=True, text=True, timeout=120, check=False)
    assert not done.stderr, done.stderr
    return done.returncode, done.stdout.splitlines()


def points_of(export: Export, topic: str, unique: Callable[[str], str], tmp_path: Path) -> tuple[Points, Points]:
    """All points, up to the decision and from it on."""
    points: Points = []
    export(unique("group"), topic, root=tmp_path / "points", passed=points.append)
    place = points.index("decided")
    return points[:place], points[place:]


def at(point: str, harm: Callable[[], object]) -> Callable[[str], None]:
    """Do ``harm`` when ``point`` is passed for the first time."""
    waiting = [harm]
    return lambda passed: waiting.pop()() if passed == point and waiting else None  # type: ignore[func-returns-value]
