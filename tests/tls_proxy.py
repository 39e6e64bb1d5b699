"""A server's end of TLS, with a certificate of the test's choice, before the real server: the certificates that no
server of the sandbox would start with."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from pathlib import Path
from typing import Self

from zkgroup.sandbox.certificates import Certificate

HOST = "127.0.0.1"


class TlsProxy:
    """Forwards what comes in over TLS to ``target`` (host:port), in plain text. One thread for each direction of each
    connection; ``close`` ends and joins them. ``accepted`` counts connections."""

    def __init__(self, target: str, certificate: Certificate, folder: Path) -> None:
        (folder / "proxy.pem").write_bytes(certificate.pem)
        (folder / "proxy.key").write_bytes(certificate.key_pem)
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(folder / "proxy.pem", folder / "proxy.key")
        host, _, port = target.rpartition(":")
        self._target = (host, int(port))
        self._listener = socket.create_server((HOST, 0))
        self.address = f"{HOST}:{self._listener.getsockname()[1]}"
        self.accepted = 0
        self._closed = False
        self._open: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept, name="tls-proxy")]

    def __enter__(self) -> Self:
        self._threads[0].start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closed = True
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._threads[0].join(5)
        for one in self._open:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
        for thread in self._threads[1:]:
            thread.join(5)

    def _accept(self) -> None:
        while not self._closed:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.accepted += 1
            connection.settimeout(5)
            try:
                client = self._context.wrap_socket(connection, server_side=True)
                server = socket.create_connection(self._target, 5)
            except OSError:  # a client that does not like the certificate
                connection.close()
                continue
            self._open += [client, server]
            for source, sink in ((client, server), (server, client)):
                self._threads.append(threading.Thread(target=self._carry, args=(source, sink), name="tls-proxy"))
                self._threads[-1].start()

    def _carry(self, source: socket.socket, sink: socket.socket) -> None:
        source.settimeout(None)
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                sink.sendall(data)
        for one in (source, sink):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
