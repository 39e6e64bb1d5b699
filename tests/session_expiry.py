"""Ending a ZooKeeper session from outside, as its expiry would: for tests of what its owner then does.

A session belongs to whoever knows its id and its password, and the password follows from the id: ZooKeeper (3.4 to 3.9,
``ZooKeeperServer.generatePasswd``) takes it from ``java.util.Random``, seeded with the id and a constant. So any
member's session can be ended, a Scala member's too. The server drops the owner's connection when the session is
taken over; the owner reconnects and is reported that its session has expired.
"""

from __future__ import annotations

import socket
import struct
import time

from zkgroup.errors import UnreachableError, UsageError
from zkgroup.protocol.names import session_text

_SUPER_SECRET = 0xB3415C00
_CLOSE_SESSION = -11
_MASK = (1 << 48) - 1


def session_password(session_id: int) -> bytes:
    """The 16 bytes that ZooKeeper gives to the session ``session_id`` (signed or not) as its password."""
    seed = (session_id ^ _SUPER_SECRET ^ 0x5DEECE66D) & _MASK
    password = b""
    for _ in range(4):
        seed = (seed * 0x5DEECE66D + 0xB) & _MASK
        password += struct.pack("<I", seed >> 16)
    return password


def expire_session(address: str, session_id: int, timeout: float = 10.0) -> None:
    """End the session on the server at ``address`` (host:port), and return when the server knows it no more.

    Raises ``UnreachableError`` if that is not so within ``timeout`` seconds.
    """
    host, _, port = address.partition("/")[0].partition(",")[0].rpartition(":")
    deadline = time.monotonic() + timeout
    if session_id == 0:  # the server would take it for a wish for a new one
        raise UsageError("session 0 is no session", "read the id while the session lives")
    while True:
        try:
            with socket.create_connection((host, int(port)), timeout=max(0.1, deadline - time.monotonic())) as server:
                if not _take_over(server, session_id):
                    return
                server.sendall(struct.pack(">iii", 8, 1, _CLOSE_SESSION))
                while server.recv(4096):  # the answer, then the end
                    pass
        except OSError as error:
            why = f": {error}"
        else:
            why = ": its owner took it back each time"
        if time.monotonic() > deadline:
            raise UnreachableError(
                f"session {session_text(session_id)} could not be ended within {timeout:g} s{why}", "check the server"
            )


def _take_over(server: socket.socket, session_id: int) -> bool:
    """Connect to the session; False if the server knows none of this id."""
    signed = struct.unpack(">q", struct.pack(">Q", session_id % (1 << 64)))[0]
    request = struct.pack(">iqiqi", 0, 0, 10_000, signed, 16) + session_password(session_id) + b"\0"
    server.sendall(struct.pack(">i", len(request)) + request)
    (length,) = struct.unpack(">i", _receive(server, 4))
    _version, granted = struct.unpack_from(">ii", _receive(server, length))
    return bool(granted > 0)


def _receive(connection: socket.socket, length: int) -> bytes:
    """Exactly ``length`` bytes. Raises ``ConnectionError`` if the other side ends first."""
    data = b""
    while len(data) < length:
        part = connection.recv(length - len(data))
        if not part:
            raise ConnectionError("closed in the middle of an answer")
        data += part
    return data
