"""Messages that librdkafka would not write, sent to a broker as they are: record batches of version 2."""

from __future__ import annotations

import socket
import struct
from collections.abc import Sequence

NOW = 1_700_000_000_000


def send_raw(bootstrap: str, topic: str, headers: Sequence[Sequence[tuple[bytes, bytes]]]) -> None:
    """One message ``b"0"``, ``b"1"``, … to partition 0 for each list of headers, whatever bytes their names are."""
    records = b""
    for number, pairs in enumerate(headers):
        parts = [b"\0", _varint(0), _varint(number), _varint(-1), _sized(b"%d" % number), _varint(len(pairs))]
        record = b"".join([*parts, *(_sized(name) + _sized(value) for name, value in pairs)])
        records += _sized(record)
    last = len(headers) - 1
    body = struct.pack("!hiqqqhii", 0, last, NOW, NOW, -1, -1, -1, last + 1) + records
    batch = struct.pack("!qiib", 0, len(body) + 9, -1, 2) + struct.pack("!I", _crc32c(body)) + body
    name = topic.encode()
    data = struct.pack("!ii", 0, len(batch)) + batch
    asked = struct.pack("!hhii", -1, -1, 10_000, 1) + struct.pack("!h", len(name)) + name + struct.pack("!i", 1) + data
    head = struct.pack("!hhih", 0, 3, 1, 3) + b"raw"  # Produce, version 3
    host, port = bootstrap.split(":")
    with socket.create_connection((host, int(port)), 10) as connection:
        connection.sendall(struct.pack("!i", len(head) + len(asked)) + head + asked)
        (size,) = struct.unpack("!i", connection.recv(4, socket.MSG_WAITALL))
        answer = connection.recv(size, socket.MSG_WAITALL)
    _, error, _ = struct.unpack_from("!ihq", answer, 4 + 4 + 2 + len(name) + 4)
    assert error == 0


def _sized(data: bytes) -> bytes:
    return _varint(len(data)) + data


def _varint(number: int) -> bytes:
    left = (number << 1) ^ (number >> 63)
    out = bytearray()
    while left > 127:
        out.append(left & 127 | 128)
        left >>= 7
    return bytes([*out, left])


def _crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF
