"""What tests of the protocol share: an export as a process that harms itself, its points, harm at one of them."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from session_expiry import expire_session

from zkgroup.clients.kafka.client import KafkaSettings
from zkgroup.clients.zookeeper import ZooKeeperSettings
from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.export.run.run_export import PartitionSummary
from zkgroup.protocol import znodes
from zkgroup.protocol.operations import Exists, Stat
from zkgroup.sandbox.local_cluster import Sandbox

DRIVER = str(Path(__file__).parent / "export" / "driver.py")
MESSAGES, PARTITIONS = 40, 2
Points = list[str]
Export = Callable[..., list[PartitionSummary]]


def driven(short: ZooKeeperSettings, kafka: KafkaSettings, **wish: Any) -> tuple[int, Points]:
    """Run ``driver.py`` to its end: exit code and lines."""
    message = json.dumps({"connect": short.hosts, "bootstrap": kafka.bootstrap, **wish}, default=str)
    done = subprocess.run([sys.executable, DRIVER, message], capture_output=True, text=True, timeout=120, check=False)
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


class Paused:
    """An export in a thread, held at one point until it is let go."""

    def __init__(self, export: Callable[[Callable[[str], None]], object], point: str) -> None:
        self._point = point
        self._reached, self._go_on = threading.Event(), threading.Event()
        self._pool = ThreadPoolExecutor(1)
        self._export = self._pool.submit(export, self._passed)

    def _passed(self, point: str) -> None:
        if point == self._point:
            self._reached.set()
            assert self._go_on.wait(60)

    def __enter__(self) -> Paused:
        assert self._reached.wait(60)
        return self

    def __exit__(self, *exception: object) -> None:
        self._go_on.set()
        self._pool.shutdown()

    def finish(self) -> object:
        """Let it go on; what it returns, or raises."""
        self._go_on.set()
        return self._export.result(60)


def lose_session(registry: Registry, cluster: Sandbox, group: str) -> None:
    """End the session of the group's export."""
    (stat,) = registry.read([Exists(znodes.export_lock(group))])
    assert isinstance(stat, Stat)
    expire_session(cluster.connect, stat.owner)
