"""An S3 endpoint for tests (moto's server, as a process), and a proxy before it that does harm to single requests.

moto keeps what it is given, lists what it keeps, and is strongly consistent. It checks no signatures and no
permissions, is never slow and never full: what a store does that is, is the proxy's part.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import socket
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Literal, Self

import pyarrow.fs as pafs
from support import wait_until

HOST = "127.0.0.1"
KEY, SECRET = "test-access-key", "test/secret+key"
CREDENTIALS = {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_EC2_METADATA_DISABLED": "true"}


def uri_of(port: int, place: str) -> str:
    """``--to`` for ``BUCKET/PREFIX`` at an endpoint on this machine."""
    return f"s3://{place}?scheme=http&endpoint_override={HOST}:{port}&region=us-east-1"


@contextlib.contextmanager
def object_server(log: Path) -> Iterator[int]:
    """A running server; its port."""
    command = [sys.executable, "-m", "moto.server", "-H", HOST, "-p"]
    with serving(lambda port: [*command, str(port)], log, _answers, CREDENTIALS) as port:
        yield port


@contextlib.contextmanager
def serving(
    command: Callable[[int], list[str]], log: Path, answers: Callable[[int], bool], environment: Mapping[str, str]
) -> Iterator[int]:
    """A server's process, on a port of its own, once it ``answers`` there; the port."""
    with socket.socket() as free:
        free.bind((HOST, 0))
        port: int = free.getsockname()[1]
    with log.open("wb") as out:
        server = subprocess.Popen(command(port), stdout=out, stderr=out, env={**os.environ, **environment})

    def ready() -> bool:
        assert server.poll() is None, log.read_text()
        return answers(port)

    try:
        wait_until(ready, timeout=60)
        yield port
    finally:
        server.kill()
        server.wait(20)


def _answers(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://{HOST}:{port}/", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def filesystem(port: int, **options: bool) -> pafs.S3FileSystem:
    """The server, as somebody else sees it."""
    return pafs.S3FileSystem(
        access_key=KEY,
        secret_key=SECRET,
        scheme="http",
        endpoint_override=f"{HOST}:{port}",
        region="us-east-1",
        **options,
    )


@dataclass
class Request:
    """What a client asks: ``copy``: from where, if it is a copy."""

    method: str
    path: str
    copy: str | None


#: ``refuse``: a 503 instead of the answer, nothing is done. ``forbid``: a 403. ``lose``: it is done, and the connection
#: is cut before the answer. ``stall``: nothing is done, and nothing comes.
Harm = Literal["refuse", "forbid", "lose", "stall"]


@dataclass
class HarmfulProxy:
    """Hands requests on to ``target``, a port, and harms those that ``choose`` picks: it returns a harm, or None."""

    target: int
    choose: Callable[[Request], Harm | None] = lambda _: None
    seen: list[Request] = field(default_factory=list)
    harmed: list[Request] = field(default_factory=list)

    def __enter__(self) -> Self:
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_all(self) -> None:
                proxy.handle(self)

            do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = handle_all

            def log_message(self, format: str, *args: object) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_: object) -> None:
                pass  # connections that are cut are what this is for

        self._ended = threading.Event()
        self._server = Server((HOST, 0), Handler)
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._server.shutdown()
        self._thread.join(20)
        self._server.server_close()

    def handle(self, handler: BaseHTTPRequestHandler) -> None:
        """One request."""
        body = _body(handler)
        request = Request(handler.command, handler.path, handler.headers.get("x-amz-copy-source"))
        self.seen.append(request)
        harm = self.choose(request)
        if harm is not None:
            self.harmed.append(request)
        if harm == "stall":
            self._ended.wait(60)
        if harm in ("refuse", "forbid"):
            self._answer(handler, 503 if harm == "refuse" else 403, {}, b"")
            return
        if harm != "stall":
            client = http.client.HTTPConnection(HOST, self.target, timeout=60)
            headers = {name: value for name, value in handler.headers.items() if name.lower() not in _OF_ONE_HOP}
            client.request(handler.command, handler.path, body, headers | {"Content-Length": str(len(body))})
            answer = client.getresponse()
            content = answer.read()
            client.close()
            if harm is None:
                self._answer(handler, answer.status, {k.title(): v for k, v in answer.getheaders()}, content)
                return
        handler.close_connection = True
        with contextlib.suppress(OSError):
            handler.connection.shutdown(socket.SHUT_RDWR)

    def _answer(self, handler: BaseHTTPRequestHandler, status: int, headers: dict[str, str], content: bytes) -> None:
        handler.send_response_only(status)
        for name, value in headers.items():
            if name.lower() not in ("content-length", "transfer-encoding", "connection"):
                handler.send_header(name, value)
        length = headers.get("Content-Length", "0") if handler.command == "HEAD" else str(len(content))
        handler.send_header("Content-Length", length)
        handler.end_headers()
        if handler.command != "HEAD":
            handler.wfile.write(content)


_OF_ONE_HOP = ("transfer-encoding", "content-length", "expect", "connection")


def _body(handler: BaseHTTPRequestHandler) -> bytes:
    if handler.headers.get("Transfer-Encoding", "").lower() != "chunked":
        return handler.rfile.read(int(handler.headers.get("Content-Length") or 0))
    body = b""
    while size := int(handler.rfile.readline().split(b";")[0], 16):
        body += handler.rfile.read(size)
        handler.rfile.readline()
    while handler.rfile.readline().strip():  # trailers of HTTP; AWS's own are in the body
        pass
    return body
