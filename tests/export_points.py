"""What tests of the protocol share: an export as a process that harms itself, its points, harm at one of them."""

from __future__ import annotations

import os
import resource
import signal
import sys
import tempfile
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from exports import InProcess, make_member_config
from forked_process import PROCESSES
from session_expiry import expire_session

from zkgroup.clients.kafka.client import KafkaSettings
from zkgroup.clients.zookeeper import ZooKeeperSettings
from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.errors import ZkgroupError
from zkgroup.export.model.address import parse_address
from zkgroup.export.model.layout import LayoutOptions
from zkgroup.export.planning.export_request import EARLIEST
from zkgroup.export.run.run_export import ExportRequest, PartitionSummary, run_export
from zkgroup.protocol import znodes
from zkgroup.protocol.operations import Exists, Stat
from zkgroup.sandbox.local_cluster import Sandbox

MESSAGES, PARTITIONS = 40, 2
Points = list[str]
Export = Callable[..., list[PartitionSummary]]


def drive_export(
    short: ZooKeeperSettings,
    kafka: KafkaSettings,
    *,
    on_point: Callable[[int, str], object] = lambda *_: None,
    **wish: Any,
) -> tuple[int, Points]:
    """Run an export without Spark to its end, in a process of its own: its exit code, and the points that it has
    passed; behind them the text of its error.

    ``wish``: ``group``, ``topics``, ``out`` and ``on_mismatch``, as ``ExportRequest`` has them; ``format``, as
    ``LayoutOptions``. ``kill_at``: the point at which it sends itself SIGKILL. ``fsize``: no file may become larger, as
    on a disk that is full. ``join``: as a member. ``on_point`` receives the process's id and each point that it has
    passed.
    """
    passed, theirs = PROCESSES.Pipe(duplex=False)
    with tempfile.NamedTemporaryFile() as errors:
        given = (short.hosts, kafka.bootstrap, wish, theirs, errors.name, dict(os.environ))
        process = PROCESSES.Process(target=_drive, args=given)
        process.start()
        theirs.close()
        points: Points = []
        try:
            while passed.poll(120):
                points.append(passed.recv())
                on_point(process.pid or 0, points[-1])
        except EOFError:
            process.join(10)
        finally:
            process.kill()
        assert not errors.read()
    assert process.exitcode is not None, "an export hangs"
    return process.exitcode, points


def _drive(
    connect: str, bootstrap: str, wish: dict[str, Any], passed: Any, errors: str, environment: dict[str, str]
) -> None:
    """What such a process does."""
    os.environ.clear()
    os.environ.update(environment)
    with Path(errors).open("wb") as file:
        os.dup2(file.fileno(), 2)
    if "fsize" in wish:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (wish["fsize"], wish["fsize"]))

    def pass_point(point: str) -> None:
        passed.send(point)
        if point == wish.get("kill_at"):
            os.kill(os.getpid(), signal.SIGKILL)

    request = ExportRequest(
        wish["group"],
        parse_address(str(wish["out"])),
        tuple(wish["topics"]),
        begin=EARLIEST,
        range_messages=10,
        on_mismatch=wish.get("on_mismatch", "fail"),
        join=make_member_config(wish["group"]) if wish.get("join") else None,
        layout=LayoutOptions(format=wish.get("format")),
    )
    try:
        with Registry(ZooKeeperSettings(connect, session_timeout=2.0), 10.0) as registry:
            run_export(request, registry, lambda: KafkaSettings(bootstrap), on_point=pass_point, runner=InProcess)
    except ZkgroupError as error:
        passed.send(str(error))
        sys.exit(error.exit_code)


def points_of(export: Export, topic: str, unique: Callable[[str], str], tmp_path: Path) -> tuple[Points, Points]:
    """All points, up to the decision and from it on."""
    points: Points = []
    export(unique("group"), topic, root=tmp_path / "points", on_point=points.append)
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
