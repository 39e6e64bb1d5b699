"""Requests of Kafka's protocol (version 0: 0.8 to 3.9), sent to several brokers at once: metadata and log offsets of
brokers of 0.8 and 0.9 without TLS and SASL, and why any broker gives no answer.

librdkafka (2.16) sends such an old broker nothing before its first real request. So it takes a silent broker (stopped,
hung) that accepts connections for one that works: it sends its Metadata request to any broker, and waits for that one
in vain, though another would answer. (Newer brokers send their versions first, and TLS and SASL begin with a handshake:
there it skips silent ones.)
"""

from __future__ import annotations

import contextlib
import math
import queue
import socket
import struct
import threading
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby
from typing import Final, TypeAlias, TypeVar

from zkgroup.protocol.broker_znodes import Endpoint
from zkgroup.protocol.names import TopicPartition

_LIST_OFFSETS, _METADATA, _API_VERSIONS = 2, 3, 18
_NUMBER: Final = 1  # the correlation id: there is one request on each connection
_CLIENT: Final = b"zkgroup"
_MAX_RESPONSE_BYTES: Final = 100 * 1024 * 1024  # bytes of a response, as brokers limit a request


class NoAnswer(StrEnum):
    """Why a server gave no answer, and as text."""

    UNKNOWN_NAME = "the name is not known"
    REFUSED = "nothing listens there"
    NOT_ACCEPTED = "no connection is accepted there"
    SILENT = "it accepts connections, and is silent"
    ENDED = "it ends the connection at the first request"
    NOT_KAFKA = "the server there is no Kafka broker"


#: ``NoAnswer``, or the system's text on another error.
Trouble: TypeAlias = NoAnswer | str
#: Seconds for a thread to report that it has waited in vain.
_REPORT: Final = 0.2

Key = TypeVar("Key", bound=Hashable)
Answer = TypeVar("Answer")


# Requests


def _request(api: int, body: bytes) -> bytes:
    head = struct.pack(f"!hhih{len(_CLIENT)}s", api, 0, _NUMBER, len(_CLIENT), _CLIENT)
    return struct.pack("!i", len(head) + len(body)) + head + body


def metadata_request(*topics: str) -> bytes:
    """Metadata: brokers, the topics (without names: all), the leaders of their partitions. A name that is unknown is
    created where brokers have ``auto.create.topics.enable``."""
    names = [topic.encode() for topic in topics]
    return _request(_METADATA, struct.pack("!i", len(names)) + b"".join(_short(name) for name in names))


def _short(data: bytes) -> bytes:
    return struct.pack("!h", len(data)) + data


def offsets_request(partitions: Sequence[TopicPartition], at: int) -> bytes:
    """ListOffsets: an offset of each partition. ``at``: a time (milliseconds since 1970: the start of a segment), −2
    for the log start offset, −1 for the log end offset. Without partitions every broker answers."""
    topics = [(topic, list(group)) for topic, group in groupby(sorted(partitions), lambda one: one.topic)]
    body = struct.pack("!ii", -1, len(topics))  # a client, not a replica
    for topic, group in topics:
        body += _short(topic.encode()) + struct.pack("!i", len(group))
        body += b"".join(struct.pack("!iqi", one.partition, at, 1) for one in group)
    return _request(_LIST_OFFSETS, body)


# Responses


@dataclass(frozen=True, slots=True)
class PartitionLeader:
    """A partition: Kafka's error code (0: none), its leader (−1: none), its replicas, and those in sync."""

    error: int
    leader: int
    replicas: tuple[int, ...] = ()
    in_sync: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Metadata:
    """Brokers by id; topics with their error code and partitions."""

    brokers: Mapping[int, Endpoint]
    topics: Mapping[str, tuple[int, Mapping[int, PartitionLeader]]]


class _ResponseReader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def unpack(self, layout: str) -> tuple[int, ...]:
        found: tuple[int, ...] = struct.unpack_from("!" + layout, self._data, self._at)
        self._at += struct.calcsize("!" + layout)
        return found

    def text(self) -> str:
        (length,) = self.unpack("h")
        self._at += max(0, length)
        return self._data[self._at - max(0, length) : self._at].decode(errors="replace")

    def count(self) -> range:
        return range(self.unpack("i")[0])


def read_metadata(answer: bytes) -> Metadata:
    """Decode a Metadata response. Raises struct.error for other bytes."""
    reader = _ResponseReader(answer)
    brokers = {}
    for _ in reader.count():
        (number,) = reader.unpack("i")
        host = reader.text()
        brokers[number] = Endpoint("PLAINTEXT", "PLAINTEXT", host, reader.unpack("i")[0])
    topics = {}
    for _ in reader.count():
        (error,) = reader.unpack("h")
        topic = reader.text()
        partitions = {}
        for _ in reader.count():
            trouble, number, leader = reader.unpack("hii")
            replicas = reader.unpack(f"{len(reader.count())}i")
            in_sync = reader.unpack(f"{len(reader.count())}i")
            partitions[number] = PartitionLeader(trouble, leader, replicas, in_sync)
        topics[topic] = error, partitions
    return Metadata(brokers, topics)


def read_offsets(answer: bytes) -> dict[TopicPartition, tuple[int, int]]:
    """Decode a ListOffsets response: for each partition its error code and offset (−1: none). Raises struct.error as
    above."""
    reader = _ResponseReader(answer)
    found = {}
    for _ in reader.count():
        topic = reader.text()
        for _ in reader.count():
            number, error = reader.unpack("ih")
            offsets = reader.unpack(f"{len(reader.count())}q")
            found[TopicPartition(topic, number)] = error, offsets[0] if offsets else -1
    return found


# Exchange


def exchange(
    requests: Mapping[Key, tuple[Endpoint, bytes]],
    read: Callable[[bytes], Answer],
    timeout: float,
    grace: float = math.inf,
) -> tuple[dict[Key, Answer], dict[Key, Trouble]]:
    """Send each request on a connection of its own, all at the same time. Returns the answers that came within
    ``timeout`` seconds, and within ``grace`` seconds after the first one, decoded by ``read``; and of the others why
    none came. An empty request is answered by the connection itself."""
    inbox: queue.SimpleQueue[tuple[Key, Answer | Trouble]] = queue.SimpleQueue()
    deadline = time.monotonic() + timeout

    def run(key: Key, endpoint: Endpoint, request: bytes) -> None:
        inbox.put((key, _ask(endpoint, request, read, deadline)))

    for key, request in requests.items():
        # A thread each, as names are resolved without a time-out. Daemons: a resolver that hangs must not keep the
        # process from ending.
        threading.Thread(target=run, args=(key, *request), name="zkgroup-asking", daemon=True).start()
    answers: dict[Key, Answer] = {}
    failures: dict[Key, Trouble] = dict.fromkeys(requests, NoAnswer.NOT_ACCEPTED)
    end = deadline + _REPORT
    with contextlib.suppress(queue.Empty):
        for _ in requests:
            key, answer = inbox.get(timeout=max(0.0, end - time.monotonic()))
            if isinstance(answer, str):
                failures[key] = answer
            else:
                answers[key] = answer
                del failures[key]
                end = min(end, time.monotonic() + grace)
    return answers, failures


def _ask(endpoint: Endpoint, request: bytes, read: Callable[[bytes], Answer], deadline: float) -> Answer | Trouble:
    """The answer, or why there is none."""
    silence = NoAnswer.NOT_ACCEPTED
    try:
        with socket.create_connection((endpoint.host, endpoint.port), timeout=_left(deadline)) as connection:
            if not request:
                return read(b"")
            silence = NoAnswer.SILENT
            connection.sendall(request)
            length, number = struct.unpack("!ii", _receive(connection, 8, deadline))
            if number != _NUMBER or not 4 <= length <= _MAX_RESPONSE_BYTES:
                return NoAnswer.NOT_KAFKA
            return read(_receive(connection, length - 4, deadline))
    except struct.error:
        return NoAnswer.NOT_KAFKA
    except (socket.gaierror, UnicodeError):  # the latter of an empty label
        return NoAnswer.UNKNOWN_NAME
    except ConnectionRefusedError:
        return NoAnswer.REFUSED
    except ConnectionResetError:
        return NoAnswer.ENDED
    except TimeoutError:
        return silence
    except OSError as error:
        return (error.strerror or str(error)).lower()


def _left(deadline: float) -> float:
    return max(0.001, deadline - time.monotonic())


def _receive(connection: socket.socket, size: int, deadline: float) -> bytes:
    data = bytearray()
    while len(data) < size:
        connection.settimeout(_left(deadline))
        if not (more := connection.recv(min(size - len(data), 1 << 20))):
            raise ConnectionResetError
        data += more
    return bytes(data)


#: Seconds to wait for the others after the first answer.
GRACE: Final = 1.0
#: Seconds to find out why a broker gives no answer.
PROBE: Final = 0.5


def answering(endpoints: Sequence[Endpoint], timeout: float) -> list[Endpoint]:
    """Those that answer: all are asked, for at most ``timeout`` seconds, and ``GRACE`` once one has answered."""
    question = offsets_request((), -1)
    answers, _ = exchange({endpoint: (endpoint, question) for endpoint in endpoints}, bytes, timeout, GRACE)
    return [endpoint for endpoint in endpoints if endpoint in answers]


def troubles(endpoints: Sequence[Endpoint], *, plain: bool) -> tuple[dict[Endpoint, Trouble], list[Endpoint]]:
    """Why each broker does not answer, and the other brokers in the metadata of those that do.

    All are asked at once, for ``PROBE`` seconds; those that end the connection are asked once more, whether they are
    brokers. Without ``plain`` text they are only connected to.
    """
    if not plain:
        return exchange({one: (one, b"") for one in endpoints}, bytes, PROBE)[1], []
    answers, failures = exchange({one: (one, metadata_request()) for one in endpoints}, read_metadata, PROBE)
    others = dict.fromkeys(other for answer in answers.values() for other in answer.brokers.values())
    versions = _request(_API_VERSIONS, b"")  # which each broker from 0.10 on answers, also one that wants a user first
    ended = {one: (one, versions) for one, why in failures.items() if why is NoAnswer.ENDED}
    _, unknown = exchange(ended, bytes, PROBE)
    failures |= dict.fromkeys(unknown, NoAnswer.NOT_KAFKA)
    return failures, [one for one in others if str(one) not in set(map(str, endpoints))]


def in_words(failures: Mapping[Endpoint, Trouble], *, named: bool = False) -> str:
    """The result of ``troubles`` as text; a single server is named only if ``named``."""
    if len(failures) == 1 and not named:
        return next(iter(failures.values()))
    return "; ".join(f"{endpoint}: {why}" for endpoint, why in failures.items())


def fetch_metadata(endpoints: Sequence[Endpoint], timeout: float, *topics: str) -> Metadata | None:
    """The metadata of the first broker that answers, of all topics where none is named (``metadata_request``); None if
    none does within ``timeout`` seconds."""
    question = metadata_request(*topics)
    requests = {endpoint: (endpoint, question) for endpoint in endpoints}
    answers, _ = exchange(requests, read_metadata, timeout, grace=0)
    return next(iter(answers.values()), None)


def fetch_offsets(
    led: Mapping[Endpoint, Sequence[TopicPartition]], times: Sequence[int], timeout: float
) -> list[dict[TopicPartition, tuple[int, int]]]:
    """For each of ``times`` (as in ``offsets_request``) Kafka's error code and the offset of each
    partition. Partitions whose leader does not answer within ``timeout`` seconds are missing."""
    requests = {
        (number, leader): (leader, offsets_request(partitions, at))
        for number, at in enumerate(times)
        for leader, partitions in led.items()
    }
    found: list[dict[TopicPartition, tuple[int, int]]] = [{} for _ in times]
    answers, _ = exchange(requests, read_offsets, timeout)
    for (number, _), answer in answers.items():
        found[number] |= answer
    return found
