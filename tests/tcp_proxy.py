"""A TCP proxy that tests put before a server to cut, stall and heal the network between it and a client."""

from __future__ import annotations

import contextlib
import selectors
import socket
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Self

HOST = "127.0.0.1"
CHUNK = 65_536
LIMIT = 1 << 20  # bytes held for a side that does not read


@dataclass(eq=False)
class _Side:
    """One socket of a pair: what is read from it goes to ``peer``, by way of the peer's ``waiting``."""

    connection: socket.socket
    is_client: bool
    waiting: bytearray = field(default_factory=bytearray)
    peer: _Side | None = None
    ended: bool = False


class TcpProxy:
    """Forwards connections on ``address`` to ``target`` (host:port), as long as it is let.

    ``cut`` resets all connections and refuses new ones; ``stall`` keeps connections and carries nothing, in both
    directions or in one (``requests``: towards the server, ``replies``: from it), as a network does that swallows
    packets; ``heal`` undoes both, and what was held meanwhile is delivered. ``drop`` resets the connections there are,
    once. Each call has taken effect when it returns. One thread does it all; ``close`` joins it.
    """

    def __init__(self, target: str) -> None:
        host, _, port = target.partition("/")[0].rpartition(":")
        self._target = (host, int(port))
        self._listener = self._listen(0)
        self.port: int = self._listener.getsockname()[1]
        self.accepted = 0
        self._sides: dict[socket.socket, _Side] = {}
        self._held: frozenset[str] = frozenset()
        self.closed_gate = threading.Event()
        self._gate: Callable[[], bool] | None = None
        self._at_gate: frozenset[str] = frozenset()
        #: Given, on the proxy's thread, what clients send: whose it is (one object for each connection), and the bytes.
        self.tap: Callable[[object, bytes], object] = lambda client, data: None
        self._commands: list[tuple[str, threading.Event]] = []
        self._lock = threading.Lock()
        self._wake, self._waker = socket.socketpair()
        self._selector = selectors.DefaultSelector()
        self._thread = threading.Thread(target=self._run, name=f"proxy-{self.port}")

    @property
    def address(self) -> str:
        """What a client connects to."""
        return f"{HOST}:{self.port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def cut(self) -> None:
        """Reset all connections, and refuse new ones until ``heal``."""
        self._do("cut")

    def drop(self) -> None:
        """Reset the connections there are; new ones are let through."""
        self._do("drop")

    def stall(self, *directions: str) -> None:
        """Carry nothing in these directions (``requests``, ``replies``; both if none is named) until ``heal``."""
        self._do("stall " + " ".join(directions or ("requests", "replies")))

    def stall_when(self, gate: Callable[[], bool], *directions: str) -> None:
        """Stall before the next request goes on at which ``gate``, asked on the proxy's thread, is true; it may have
        gone on by then if only ``replies`` are held. ``closed_gate`` is set when that has come about."""
        self._at_gate = frozenset(directions or ("requests", "replies"))
        self.closed_gate.clear()
        self._gate = gate

    def heal(self) -> None:
        """Carry everything again, what was held included."""
        self._do("heal")

    @property
    def connections(self) -> int:
        """How many clients are connected now."""
        return sum(side.is_client for side in list(self._sides.values()))

    def close(self) -> None:
        """End all connections and the thread."""
        if self._thread.is_alive():
            self._do("close")
            self._thread.join(10.0)

    def _do(self, command: str) -> None:
        done = threading.Event()
        with self._lock:
            self._commands.append((command, done))
            self._waker.send(b"!")  # under the lock: once "close" is obeyed there is nobody to wake
        if not done.wait(10.0):
            raise TimeoutError(f"proxy did not {command}")

    # What follows runs on the proxy's own thread.

    def _listen(self, port: int) -> socket.socket:
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((HOST, port))
        listener.listen(128)
        listener.setblocking(False)
        return listener

    def _run(self) -> None:
        self._selector.register(self._wake, selectors.EVENT_READ)
        self._selector.register(self._listener, selectors.EVENT_READ)
        while True:
            for key, events in self._selector.select(1.0):
                sock = key.fileobj
                assert isinstance(sock, socket.socket)
                if sock is self._wake:
                    self._wake.recv(4096)
                elif sock is self._listener:
                    self._accept()
                elif side := self._sides.get(sock):
                    self._move(side, events)
            with self._lock:
                commands, self._commands = self._commands, []
            for command, done in commands:
                self._obey(command)
                done.set()
                if command == "close":
                    return

    def _obey(self, command: str) -> None:
        word, *directions = command.split()
        if word in ("cut", "drop", "close"):
            for side in list(self._sides.values()):
                self._end(side)
        if word in ("cut", "close") and self._listener.fileno() >= 0:
            self._selector.unregister(self._listener)
            self._listener.close()
        if word == "stall":
            self._held = frozenset(directions)
        elif word == "heal":
            self._held = frozenset()
            if self._listener.fileno() < 0:
                self._listener = self._listen(self.port)
                self._selector.register(self._listener, selectors.EVENT_READ)
        elif word == "close":
            self._selector.close()
            self._wake.close()
            self._waker.close()
            return
        for side in list(self._sides.values()):
            self._watch(side)

    def _accept(self) -> None:
        try:
            near, _ = self._listener.accept()
        except OSError:
            return
        self.accepted += 1
        try:
            far = socket.create_connection(self._target, timeout=1.0)
        except OSError:
            _reset(near)
            return
        client, server = _Side(near, is_client=True), _Side(far, is_client=False)
        client.peer, server.peer = server, client
        for side in (client, server):
            side.connection.setblocking(False)
            side.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._sides[side.connection] = side
            self._watch(side)

    def _carries(self, source: _Side) -> bool:
        return ("requests" if source.is_client else "replies") not in self._held

    def _watch(self, side: _Side) -> None:
        """Ask for the events that the side can use now."""
        peer = side.peer
        if side.connection not in self._sides or peer is None:
            return
        wanted = 0
        if not side.ended and self._carries(side) and len(peer.waiting) < LIMIT:
            wanted |= selectors.EVENT_READ
        if side.waiting and self._carries(peer):
            wanted |= selectors.EVENT_WRITE
        known = self._selector.get_map().get(side.connection)
        if known is None and wanted:
            self._selector.register(side.connection, wanted)
        elif known is not None and not wanted:
            self._selector.unregister(side.connection)
        elif known is not None and known.events != wanted:
            self._selector.modify(side.connection, wanted)

    def _move(self, side: _Side, events: int) -> None:
        peer = side.peer
        assert peer is not None
        try:
            if events & selectors.EVENT_WRITE:
                del side.waiting[: side.connection.send(side.waiting)]
            if events & selectors.EVENT_READ:
                data = side.connection.recv(CHUNK)
                if side.is_client and data:
                    self._seen()
                    self.tap(side, data)
                peer.waiting += data
                side.ended = not data
        except BlockingIOError:
            pass
        except OSError:
            self._end(side)
            return
        if (side.ended and not peer.waiting) or (peer.ended and not side.waiting):
            self._end(side)
        else:
            self._watch(side)
            self._watch(peer)

    def _seen(self) -> None:
        """A client has asked something, which has not gone on yet."""
        if self._gate is not None and self._gate():
            self._held, self._gate = self._at_gate, None
            self.closed_gate.set()

    def _end(self, side: _Side) -> None:
        for one in (side, side.peer):
            if one is not None and self._sides.pop(one.connection, None) is not None:
                if one.connection in self._selector.get_map():
                    self._selector.unregister(one.connection)
                _reset(one.connection)


def _reset(connection: socket.socket) -> None:
    """Close at once: the other side sees a reset, and no port stays behind in TIME_WAIT."""
    with contextlib.suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()
