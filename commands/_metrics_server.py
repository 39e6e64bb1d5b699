"""``inspect-group --serve``: metrics for Prometheus over HTTP.

Groups are read when ``/metrics`` is requested. There is one reading at a time: requests that come meanwhile get its
metrics, or, where it takes longer than ``MAX_WAIT``, those of the last one, which have their age. One thread serves
all clients; each has ``REQUEST_TIMEOUT`` for a request of ``MAX_REQUEST`` bytes, and ``RESPONSE_TIMEOUT`` to take the
response.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import threading
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

import typer

from zkgroup.errors import Notice, UnreachableError, UsageError, ZkgroupError

from ._context import done, warn
from ._signals import StopRequest

if TYPE_CHECKING:
    from zkgroup.groups.findings.inspection import Inspection
    from zkgroup.groups.monitoring.group_check import GroupCheck

MAX_WAIT: Final = 8.0  # Prometheus waits for 10 s by default
MAX_REQUEST: Final = 8192
REQUEST_TIMEOUT: Final = 5.0
RESPONSE_TIMEOUT: Final = 10.0
#: Seconds between two checks whether a signal has come.
STOP_CHECK: Final = 0.1
LOOPBACK: Final = "127.0.0.1"

#: Reads the groups: what was found, the checks where they were asked for, and what is unknown.
Read: TypeAlias = Callable[[], "tuple[Sequence[Inspection], Mapping[str, GroupCheck] | None, Sequence[Notice]]"]


@dataclass(frozen=True, slots=True)
class MetricsReading:
    """The metrics of one reading of the groups. ``began``: monotonic seconds; ``took``: seconds; ``error_code``: an
    exit code of zkgroup, 0 where everything was read."""

    metrics: str
    began: float
    took: float
    error_code: int


def parse_listener(text: str) -> tuple[str, int]:
    """Host and port of ``[ADDRESS:]PORT``. Raises ``UsageError``."""
    host, _, port = text.rpartition(":")
    if not (port.isascii() and port.isdecimal()) or int(port) > 65535:
        raise UsageError(f"--serve {text[:80]!r} has no port", "write PORT, or ADDRESS:PORT (0.0.0.0: all addresses)")
    return host.strip("[]") or LOOPBACK, int(port)


def serve_metrics(ctx: typer.Context, listener: tuple[str, int], read: Read) -> int:
    """Serve until a signal comes; returns its exit code. Raises ``ZkgroupError`` where the port cannot be had."""

    async def serve(stop: StopRequest) -> None:
        async with MetricsServer(_reader(ctx, read)).listening(*listener) as addresses:
            for address in addresses:
                done(ctx, f"metrics are served at http://{address}/metrics")
            while not stop:
                await asyncio.sleep(STOP_CHECK)

    with StopRequest() as stop:
        asyncio.run(serve(stop))
    return stop.exit_code


def _reader(ctx: typer.Context, read: Read) -> Callable[[], MetricsReading]:
    """A function that reads the groups, and makes metrics of them; an error is one of these, and a warning when it
    changes."""
    from zkgroup.groups.monitoring.prometheus_metrics import format_metrics

    warned: frozenset[Notice] = frozenset()

    def read_metrics() -> MetricsReading:
        nonlocal warned
        began = time.monotonic()
        code, metrics = 0, ""
        warnings: Sequence[Notice] = []
        try:
            found, checks, warnings = read()
            metrics = format_metrics(found, checks)
            silent = [one for one in found if one.snapshot.warnings or one.snapshot.kafka_failures]
            if silent or (warnings and not found):  # of ZooKeeper everything is there
                code = UnreachableError.exit_code
        except ZkgroupError as error:
            code, warnings = error.exit_code, [Notice(error.message, error.remedy)]
        except Exception as error:  # noqa: BLE001  # at the next request it may be over
            code, warnings = ZkgroupError.exit_code, [Notice(str(error) or type(error).__name__)]
        gc.enable()  # see disable_garbage_collection: this process goes on
        warn(ctx, [one for one in warnings if one not in warned])
        warned = frozenset(warnings)
        return MetricsReading(metrics, began, time.monotonic() - began, code)

    return read_metrics


class MetricsServer:
    """Answers ``GET /metrics`` with what ``read`` returns, which is called on another thread, and ``GET /healthz``."""

    def __init__(self, read: Callable[[], MetricsReading]) -> None:
        self._read = read
        self._last: MetricsReading | None = None
        self._reading: asyncio.Future[None] | None = None

    @contextlib.asynccontextmanager
    async def listening(self, host: str, port: int) -> AsyncIterator[list[str]]:
        """Listen; gives the addresses, as HOST:PORT. Raises ``ZkgroupError``."""
        from zkgroup.protocol.broker_znodes import address

        try:
            server = await asyncio.start_server(self._serve_client, host, port, limit=MAX_REQUEST)
        except (OSError, UnicodeError) as error:  # the latter of a host with an empty label
            why = getattr(error, "strerror", None) or error
            raise ZkgroupError(f"--serve {host}:{port}: cannot listen there: {why}", "choose another port") from None
        try:
            yield [address(*one.getsockname()[:2]) for one in server.sockets]
        finally:
            server.close()

    async def _serve_client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT):
                request = await reader.readuntil(b"\r\n\r\n")
            writer.write(await self._response(request))
            writer.close()
            async with asyncio.timeout(RESPONSE_TIMEOUT):
                await writer.wait_closed()
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # nobody is there to be answered
        finally:
            writer.transport.abort()

    async def _response(self, request: bytes) -> bytes:
        method, path, *_ = [*request.split(b" ", 2), b"", b""]
        path = path.partition(b"?")[0]
        if path not in (b"/metrics", b"/healthz"):
            return _page("404 Not Found", "there are /metrics and /healthz\n")
        if method != b"GET":
            return _page("405 Method Not Allowed", "only GET is answered\n")
        if path == b"/healthz":
            return _page("200 OK", "ok\n")
        if self._reading is None or self._reading.done():
            self._reading = self._begin_reading()
        await asyncio.wait([self._reading], timeout=MAX_WAIT)
        if (last := self._last) is None:
            return _page("503 Service Unavailable", "the first reading of the groups is not complete\n")
        from zkgroup.groups.monitoring.prometheus_metrics import format_state

        return _page("200 OK", last.metrics + format_state(last.error_code, last.took, time.monotonic() - last.began))

    def _begin_reading(self) -> asyncio.Future[None]:
        loop = asyncio.get_running_loop()
        reading: asyncio.Future[None] = loop.create_future()

        def end(found: MetricsReading) -> None:
            self._last = found
            reading.set_result(None)

        def run() -> None:
            found = self._read()
            with contextlib.suppress(RuntimeError):  # the loop is over
                loop.call_soon_threadsafe(end, found)

        # A daemon: servers that do not answer must not keep the process from ending.
        threading.Thread(target=run, name="zkgroup-reading", daemon=True).start()
        return reading


def _page(status: str, text: str) -> bytes:
    body = text.encode()
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body
