"""A process that is stopped past its lease and goes on, by what it then sends to ZooKeeper over the wire."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable
from pathlib import Path

from faults.cluster import Writer
from members import ProcessMember, committed, wait_for_rest
from support import wait_until
from tcp_proxy import TcpProxy

from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.sandbox.local_cluster import Sandbox

SESSION = 4.0
STOPS = 2
#: Types of requests (org.apache.zookeeper.ZooDefs.OpCode, 3.4 to 3.9).
WRITES = {1, 2, 5, 14, 15}  # create, delete, setData, multi, create2
SYNC = 9


class Wire:
    """What a client asks of its server: ``asked`` has ``write`` and ``sync``, in the order in which they passed."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self._streams: dict[object, bytearray] = {}
        self._greeted: set[object] = set()

    def hear(self, side: object, data: bytes) -> None:
        """For ``TcpProxy.tap``."""
        stream = self._streams.setdefault(side, bytearray())
        stream += data
        while len(stream) >= 4 and len(stream) >= (end := 4 + int.from_bytes(stream[:4])):
            frame = bytes(stream[4:end])
            del stream[:end]
            if side not in self._greeted:
                self._greeted.add(side)  # the hand-shake, which has neither number nor type
                continue
            (kind,) = struct.unpack_from("!i", frame, 4)
            if kind in WRITES or kind == SYNC:
                self.asked.append("sync" if kind == SYNC else "write")


def test_a_stopped_process_asks_whether_its_session_lives_before_it_writes(
    zookeeper: Sandbox,
    cluster: Sandbox,
    registry: Registry,
    make_topic: Callable[..., str],
    unique: Callable[[str], str],
    tmp_path: Path,
) -> None:
    """SIGSTOP past its lease and not past its session, when a commit is due: going on, it asks with a sync, and asks
    again, and writes nothing as long as that is not answered. (But for the request in which it was stopped: that is not
    each time.)"""
    topic, group, wire = make_topic(1), unique("group"), Wire()
    writer = Writer(cluster.bootstrap, topic, 1, 1_000_000, 10_000.0)
    with TcpProxy(zookeeper.address) as proxy:
        proxy.tap = wire.hear
        session = f"zookeeper.session.timeout.ms={SESSION * 1000:.0f}"
        process = ProcessMember(
            proxy.address + cluster.chroot, group, topic, "a", tmp_path, session, "auto.commit.interval.ms=1000"
        )

        def progress() -> None:
            before = committed(registry, group, topic, 1)[0] or 0
            wait_until(lambda: (committed(registry, group, topic, 1)[0] or 0) > before, 20, "progress")
            printed = len(process.printed)
            wait_until(lambda: len(process.printed) > printed, 20, "there is something to commit again")

        written: list[int] = []
        try:
            wait_for_rest(registry, group, 1)
            for _ in range(STOPS):
                progress()
                process.stop()
                stopped_at = time.monotonic()
                wait_until(lambda at=stopped_at: time.monotonic() - at > SESSION / 2 + 0.2, 20, "the lease is over")
                proxy.stall("replies")
                since = len(wire.asked)
                process.go_on()
                wait_until(lambda since=since: wire.asked[since:].count("sync") >= 2, 20, "it has asked twice")
                written.append(wire.asked[since:].count("write"))
                proxy.heal()
            progress()
            process.leave()
        finally:
            process.kill()
            writer.stop()
    assert max(written) <= 1, f"written before it was known that the session lives: {written}"
    assert sum(written) < STOPS, "written each time before it was known that the session lives"
