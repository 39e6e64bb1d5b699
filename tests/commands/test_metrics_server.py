"""``inspect-group --serve``: metrics over HTTP, of real groups, for clients of every kind."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import re
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli import ZKGROUP, environment, run
from group_nodes import Groups
from lines import names
from prometheus_client.parser import text_string_to_metric_families
from tcp_proxy import TcpProxy

from zkgroup.commands import _metrics_server
from zkgroup.commands._metrics_server import MetricsReading, MetricsServer
from zkgroup.sandbox.local_cluster import Sandbox
from zkgroup.sandbox.processes import free_port


class Served:
    """A server that runs, and its answers."""

    def __init__(self, process: subprocess.Popen[str], port: int) -> None:
        self.process = process
        self.port = port

    def get(self, path: str = "/metrics", method: str = "GET", timeout: float = 30.0) -> tuple[int, str]:
        """Status and body."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        with contextlib.closing(connection):
            connection.request(method, path)
            response = connection.getresponse()
            return response.status, response.read().decode()

    def series(self) -> dict[tuple[str, ...], float]:
        """The metrics: the values of labels in the order of their names, behind the name."""
        status, text = self.get()
        assert status == 200, text
        return {
            (sample.name, *(sample.labels[label] for label in sorted(sample.labels))): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }

    @property
    def threads(self) -> int:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"Threads:\s+(\d+)", status)[1])  # type: ignore[index]

    def connect(self, data: bytes = b"") -> socket.socket:
        """A client that has sent so much of a request."""
        client = socket.create_connection(("127.0.0.1", self.port), timeout=30.0)
        client.sendall(data)
        return client


@contextlib.contextmanager
def serving(*words: str) -> Iterator[Served]:
    """``zkgroup inspect-group WORDS… --serve 0``, which must end cleanly."""
    command = [ZKGROUP, "inspect-group", *words, "--serve", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment()) as process:
        try:
            assert process.stderr is not None
            line = process.stderr.readline()
            found = re.search(r" http://127\.0\.0\.1:(\d+)/metrics\n", line)
            assert found is not None, line
            yield Served(process, int(found[1]))
        finally:
            process.kill()


def test_what_is_served_is_what_is_written(cluster: Sandbox, groups: Groups, topic: str, tmp_path: Path) -> None:
    """The metrics of ``--metrics``, those of a check, and the server's own, anew for each request; a signal ends it
    with its code, and nothing more is said."""
    group = groups.make({}, {}, {(topic, p): 4 for p in range(3)})
    words = (group, "--check", "--history-file", str(tmp_path / "history"), "-z", cluster.connect)
    written = run("inspect-group", *words, "--metrics", "-").stdout
    with serving(*words) as served:
        first = served.series()
        own = {key: value for key, value in first.items() if len(key) == 1}
        assert {name for name, *_ in first if (name,) not in own} == set(re.findall(r"(?m)^(\w+)\{", written))
        assert first["kafka_consumergroup_lag_sum", group, topic] == 18
        assert first["zkgroup_consumergroup_status", group] == 1
        assert (own.pop(("zkgroup_up",)), own.pop(("zkgroup_error_code",))) == (1, 0)
        took, age = own.pop(("zkgroup_snapshot_duration_seconds",)), own.pop(("zkgroup_snapshot_age_seconds",))
        assert 0 < took <= age + 0.01
        assert age < 10
        assert own == {}
        taken_at = "zkgroup_snapshot_timestamp_seconds", group
        threads = served.threads
        for _ in range(3):
            again = served.series()
            assert again[taken_at] > first[taken_at]
        assert served.threads <= threads + 2
        assert served.get("/healthz") == (200, "ok\n")
        assert served.get("/")[0] == 404
        assert served.get("/metrics", "POST")[0] == 405
        served.process.send_signal(signal.SIGTERM)
        assert served.process.wait(10) == 143
        assert served.process.stderr is not None
        assert served.process.stderr.read() == ""


def test_a_server_outlives_its_servers(cluster: Sandbox, groups: Groups, topic: str) -> None:
    """Without ZooKeeper it is not up, with the exit code in a metric, and no groups; without brokers it has what
    ZooKeeper keeps; each is said once. When they answer again, all is there."""
    group = groups.make({}, {}, {(topic, 0): 4})
    committed = "kafka_consumergroup_current_offset", group, "0", topic
    proxied, _, chroot = cluster.connect.partition("/")
    with TcpProxy(proxied) as proxy:
        words = (group, "--connect-timeout", "2", "-z", f"{proxy.address}/{chroot}")
        with serving(*words) as served:
            assert served.series()["zkgroup_up",] == 1
            proxy.cut()
            for _ in range(2):
                found = served.series()
                assert (found["zkgroup_up",], found["zkgroup_error_code",], len(found)) == (0, 3, 4)
            proxy.heal()
            assert served.series()[committed] == 4
            served.process.send_signal(signal.SIGINT)
            assert served.process.wait(10) == 130
            assert served.process.stderr is not None
            assert served.process.stderr.read().count(proxy.address) == 1
        away = f"127.0.0.1:{free_port()}"
        with serving(*words, "--bootstrap-server", away) as served:
            found = served.series()
            assert (found["zkgroup_up",], found["zkgroup_error_code",], found[committed]) == (0, 3, 4)
            assert ("kafka_consumergroup_lag", group, "0", topic) not in found


def test_clients_that_keep_a_server_waiting(cluster: Sandbox, groups: Groups, topic: str) -> None:
    """Many clients that never end their requests, requests that are too long, and a client that takes no
    response, delay nobody, and cost no thread."""
    group = groups.make({}, {}, {(topic, 0): 4})
    with serving(group, "-z", cluster.connect) as served, contextlib.ExitStack() as stack:
        assert served.series()["zkgroup_up",] == 1
        threads = served.threads
        slow = [served.connect(b"GET /metrics HTTP/1.1\r\nHost:") for _ in range(84)]
        for client in slow:
            stack.enter_context(client)
        began = time.monotonic()
        assert served.get("/healthz") == (200, "ok\n")
        assert served.series()["zkgroup_up",] == 1
        assert time.monotonic() - began < _metrics_server.REQUEST_TIMEOUT
        assert served.threads <= threads + 2
        endless = stack.enter_context(served.connect(b"GET /" + b"a" * 100_000))
        with contextlib.suppress(ConnectionError):
            assert endless.recv(1) == b""
        for client in slow:
            with contextlib.suppress(ConnectionError):
                assert client.recv(1) == b"", "it was dropped at the time-out"


@pytest.mark.parametrize(
    ("words", "facts"),
    [
        (["g", "--serve", "metrics"], ["--serve", "'metrics'"]),
        (["g", "--serve", "127.0.0.1:99999"], ["--serve", "'127.0.0.1:99999'"]),
        (["g", "--serve", "9308", "--verify"], ["--verify", "--serve"]),
        (["--serve", "9308"], ["GROUP", "--all"]),
    ],
)
def test_wrong_usage(words: list[str], facts: list[str]) -> None:
    """Each in one line, before any server is asked."""
    refused = run("inspect-group", *words, "-z", "127.0.0.1:1")
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
    assert names(refused.stderr, *facts), refused.stderr


def test_a_port_that_is_taken() -> None:
    """One line, and 1."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        refused = run("inspect-group", "g", "--serve", f"{port}", "-z", "127.0.0.1:1")
    assert (refused.returncode, refused.stderr.count("\n")) == (1, 1)
    assert names(refused.stderr, "--serve", f"127.0.0.1:{port}")


def test_an_address_that_can_be_none() -> None:
    """A host with an empty label: one line, and 1."""
    refused = run("inspect-group", "g", "--serve", "a..b:9000", "-z", "127.0.0.1:1")
    assert (refused.returncode, refused.stderr.count("\n")) == (1, 1)
    assert names(refused.stderr, "--serve", "a..b:9000")


def test_one_reading_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests that come during a reading get its metrics; where it takes too long, those of the last one with their
    age, or an error before there is one. None of them begins another."""
    begun, may_end = threading.Semaphore(0), threading.Semaphore(0)
    readings: list[MetricsReading] = []

    def read() -> MetricsReading:
        begun.release()
        may_end.acquire()
        readings.append(MetricsReading(f"metric {len(readings)}\n", time.monotonic() - 100.0, 1.5, 0))
        return readings[-1]

    async def get(address: str) -> str:
        host, _, port = address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"GET /metrics?a=b HTTP/1.1\r\n\r\n")
        answer = (await reader.read()).decode()
        writer.close()
        return answer

    class Counting(MetricsServer):
        """Counts the requests that it has."""

        asked = 0

        async def _response(self, request: bytes) -> bytes:
            self.asked += 1
            return await super()._response(request)

    async def talk() -> None:
        server = Counting(read)
        async with server.listening("127.0.0.1", 0) as (address,):
            monkeypatch.setattr(_metrics_server, "MAX_WAIT", 0.2)
            assert (await get(address)).startswith("HTTP/1.1 503 ")
            monkeypatch.setattr(_metrics_server, "MAX_WAIT", 30.0)
            together = [asyncio.create_task(get(address)) for _ in range(20)]
            async with asyncio.timeout(20):
                while server.asked < 21:
                    await asyncio.sleep(0.01)
            may_end.release()
            answers = await asyncio.gather(*together)
            assert all("\r\n\r\nmetric 0\n" in answer for answer in answers)
            monkeypatch.setattr(_metrics_server, "MAX_WAIT", 0.2)
            answer = await get(address)
            assert "\r\n\r\nmetric 0\n" in answer
            assert re.search(r"(?m)^zkgroup_snapshot_age_seconds 10\d\.", answer)
            assert "\nzkgroup_snapshot_duration_seconds 1.5\n" in answer

    asyncio.run(talk())
    assert [begun.acquire(blocking=False) for _ in range(3)] == [True, True, False]
    may_end.release()
