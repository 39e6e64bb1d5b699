"""Three questions in Kafka's own words (version 0 of each: 0.8 to 3.9), and how to ask several brokers at once.

For brokers of 0.8 and 0.9 that are spoken to in plain text. librdkafka (2.16) asks such a broker for nothing before its
first real request, so it takes one that accepts connections and is silent (stopped, hung) for one that works: when it
has heard of all brokers, it asks any of them for metadata, and waits for that one in vain, though another would answer.
(Newer brokers tell their versions first, and SSL and SASL begin with a handshake: there it passes over silent ones.)
"""

from __future__ import annotations

import contextlib
import queue
import socket
import struct
import threading
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final, Generic, TypeVar

from zkgroup.protocol.broker_znodes import Endpoint
from zkgroup.protocol.names import TopicPartition

_LIST_OFFSETS, _METADATA = 2, 3
_NUMBER: Final = 1  # of a request: there is one on each connection
_CLIENT: Final = b"zkgroup"
_LARGEST: Final = 100 * 1024 * 1024  # an answer, as brokers bound a request

Key = TypeVar("Key", bound=Hashable)


# Questions


def _request(api: int, body: bytes) -> bytes:
    head = struct.pack(f"!hhih{len(_CLIENT)}s", api, 0, _NUMBER, len(_CLIENT), _CLIENT)
    return struct.pack("!i", len(head) + len(body)) + head + body


def metadata_request() -> bytes:
    """Brokers, all topics, and who leads their partitions. It makes no topic come into being."""
    return _request(_METADATA, struct.pack("!i", 0))


def offsets_request(partitions: Sequence[TopicPartition], at: int) -> bytes:
    """An offset in each partition: at a time (milliseconds since 1970: the start of a segment), −2 for the first, −1
    for the next one to be written. Of no partition it is a question that every broker answers, whatever it holds."""
    topics = [(topic, list(group)) for topic, group in groupby(sorted(partitions), lambda one: one.topic)]
    body = struct.pack("!ii", -1, len(topics))  # a client, not a replica
    for topic, group in topics:
        name = topic.encode()
        body += struct.pack(f"!h{len(name)}si", len(name), name, len(group))
        body += b"".join(struct.pack("!iqi", one.partition, at, 1) for one in group)
    return _request(_LIST_OFFSETS, body)


# Answers


@dataclass(frozen=True, slots=True)
class Led:
    """A partition: Kafka's code for its trouble (0: none), and its leader (−1: nobody)."""

    error: int
    leader: int


@dataclass(frozen=True, slots=True)
class Metadata:
    """Brokers by id; topics: the code of a topic's trouble, and its partitions."""

    brokers: Mapping[int, Endpoint]
    topics: Mapping[str, tuple[int, Mapping[int, Led]]]


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def take(self, layout: str) -> tuple[int, ...]:
        found: tuple[int, ...] = struct.unpack_from("!" + layout, self._data, self._at)
        self._at += struct.calcsize("!" + layout)
        return found

    def text(self) -> str:
        (length,) = self.take("h")
        self._at += max(0, length)
        return self._data[self._at - max(0, length) : self._at].decode(errors="replace")

    def count(self) -> range:
        return range(self.take("i")[0])


def read_metadata(answer: bytes) -> Metadata:
    """Raises struct.error for what is no such answer."""
    reader = _Reader(answer)
    brokers = {}
    for _ in reader.count():
        (number,) = reader.take("i")
        host = reader.text()
        brokers[number] = Endpoint("PLAINTEXT", "PLAINTEXT", host, reader.take("i")[0])
    topics = {}
    for _ in reader.count():
        (error,) = reader.take("h")
        topic = reader.text()
        partitions = {}
        for _ in reader.count():
            trouble, number, leader = reader.take("hii")
            partitions[number] = Led(trouble, leader)
            for _ in ("replicas", "in sync"):
                reader.take(f"{len(reader.count())}i")
        topics[topic] = error, partitions
    return Metadata(brokers, topics)


def read_offsets(answer: bytes) -> dict[TopicPartition, tuple[int, int]]:
    """For each partition Kafka's code for its trouble, and the offset (−1: none). Raises struct.error as above."""
    reader = _Reader(answer)
    found = {}
    for _ in reader.count():
        topic = reader.text()
        for _ in reader.count():
            number, error = reader.take("ih")
            offsets = reader.take(f"{len(reader.count())}q")
            found[TopicPartition(topic, number)] = error, offsets[0] if offsets else -1
    return found


# Asking


class NotKafkaError(OSError):
    """What answered speaks something else."""


def exchange(
    requests: Mapping[Key, tuple[Endpoint, bytes]],
    timeout: float,
    wait: Callable[[Mapping[Key, bytes], set[Key]], float] = lambda answers, missing: float("inf"),
    failures: dict[Key, str] | None = None,
) -> dict[Key, bytes]:
    """Send each request on a connection of its own, all at the same time; returns the answers that came within
    ``timeout`` seconds. An empty request is answered by the connection itself. After each answer that came, or that
    will not, ``wait`` tells how much longer the ``missing`` ones are to be waited for. ``failures`` gets why others did
    not come, in words."""
    inbox: queue.SimpleQueue[tuple[Key, bytes | None]] = queue.SimpleQueue()
    deadline = time.monotonic() + timeout
    asking = [_Asking(key, endpoint, request, deadline, inbox) for key, (endpoint, request) in requests.items()]
    answers: dict[Key, bytes] = {}
    missing = set(requests)
    try:
        while missing:
            key, answer = inbox.get(timeout=max(0.0, deadline - time.monotonic()))
            missing.discard(key)
            if answer is not None:
                answers[key] = answer
            deadline = min(deadline, time.monotonic() + wait(answers, missing))
    except queue.Empty:
        pass
    for one in asking:
        if failures is not None and one.key not in answers:
            failures[one.key] = one.failure
        one.close()
    return answers


class _Asking(Generic[Key]):
    """One broker being asked, on a thread of its own, since names are looked up without a time-out."""

    def __init__(
        self,
        key: Key,
        endpoint: Endpoint,
        request: bytes,
        deadline: float,
        inbox: queue.SimpleQueue[tuple[Key, bytes | None]],
    ) -> None:
        self.key = key
        self._error: OSError | None = None
        self._endpoint = endpoint
        self._request = request
        self._deadline = deadline
        self._inbox = inbox
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._closed = False
        # A daemon: a resolver that hangs must not keep the process from ending.
        self._thread = threading.Thread(target=self._run, name=f"zkgroup-asking-{endpoint.port}", daemon=True)
        self._thread.start()

    @property
    def failure(self) -> str:
        """Why no answer has come, in words."""
        match self._error:
            case socket.gaierror():
                return "the name is not known"
            case ConnectionRefusedError():
                return "nothing listens there"
            case NotKafkaError():
                return "what listens there is no Kafka broker"
            case ConnectionResetError():
                return "it ends the connection at the first request"
            case OSError(strerror=str(why)) if not isinstance(self._error, TimeoutError):
                return why.lower()
        return "no connection is taken there" if self._socket is None else "it takes connections, and is silent"

    def close(self) -> None:
        """End it, whatever it waits for; a look-up of its name alone is left behind."""
        with self._lock:
            self._closed = True
            if self._socket is not None:
                with contextlib.suppress(OSError):  # it was not connected, or is no more
                    self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join(0.05)

    def _run(self) -> None:
        answer: bytes | None = None
        try:
            answer = self._ask()
        except OSError as error:
            self._error = error
        self._inbox.put((self.key, answer))

    def _left(self) -> float:
        return max(0.001, self._deadline - time.monotonic())

    def _ask(self) -> bytes | None:
        address = (self._endpoint.host, self._endpoint.port)
        with socket.create_connection(address, timeout=self._left()) as connection:
            with self._lock:
                if self._closed:
                    return None
                self._socket = connection
            if not self._request:
                return b""
            connection.sendall(self._request)
            length, number = struct.unpack("!ii", self._receive(connection, 8))
            if number != _NUMBER or not 4 <= length <= _LARGEST:
                raise NotKafkaError
            return self._receive(connection, length - 4)

    def _receive(self, connection: socket.socket, size: int) -> bytes:
        """Raises OSError where that much does not come."""
        data = bytearray()
        while len(data) < size:
            connection.settimeout(self._left())
            if not (more := connection.recv(min(size - len(data), 1 << 20))):
                raise ConnectionResetError
            data += more
        return bytes(data)
