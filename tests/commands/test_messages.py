"""Printing batches of messages. The messages are real ones, fetched from librdkafka's own mock brokers."""

from __future__ import annotations

import base64
import json
import re
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lines import names

from zkgroup.clients.kafka.client import Consumer, KafkaTopicPartition, Message, Producer
from zkgroup.commands._message_format import compile_format, json_lines, values_lines, visible_json_lines, weave
from zkgroup.commands._output import iso_utc
from zkgroup.errors import UsageError

STAMP = 1411294187842


@dataclass(frozen=True)
class Fake:
    """What has a message's methods, for contents by the thousand."""

    v: bytes | None = None
    k: bytes | None = None
    t: str = "t"
    p: int = 0
    o: int = 0
    ts: tuple[int, int] = (1, STAMP)
    h: Sequence[tuple[str, bytes | None]] | None = None

    def value(self) -> bytes | None:
        return self.v

    def key(self) -> bytes | None:
        return self.k

    def topic(self) -> str:
        return self.t

    def partition(self) -> int:
        return self.p

    def offset(self) -> int:
        return self.o

    def timestamp(self) -> tuple[int, int]:
        return self.ts

    def headers(self) -> Sequence[tuple[str, bytes | None]] | None:
        return self.h


@pytest.fixture(scope="module")
def exchange() -> Iterator[Callable[..., list[Message]]]:
    """``exchange(*messages)`` produces messages (value, key, headers) and returns them as fetched."""
    producer = Producer({"bootstrap.servers": "none", "test.mock.num.brokers": 1, "log_level": 0})
    brokers = ",".join(f"{b.host}:{b.port}" for b in producer.list_topics(timeout=10).brokers.values())
    topics = iter(f"topic-{number}" for number in range(1000))

    def send(*messages: tuple[bytes | None, bytes | None, Any]) -> list[Message]:
        topic = next(topics)
        for value, key, headers in messages:
            producer.produce(topic, value, key, partition=0, headers=headers, timestamp=STAMP)
        assert producer.flush(10) == 0
        consumer = Consumer({"bootstrap.servers": brokers, "group.id": "unused", "auto.offset.reset": "earliest"})
        consumer.assign([KafkaTopicPartition(topic, 0, 0)])
        found: list[Message] = []
        while len(found) < len(messages):
            batch = consumer.consume(len(messages) - len(found), 10.0)
            assert batch, "the mock broker gave nothing within 10 s"
            found += [message for message in batch if message.error() is None]
        consumer.close()
        return found

    yield send
    producer.purge()


def test_real_messages(exchange: Callable[..., list[Message]]) -> None:
    """All three ways of printing, on messages as confluent_kafka delivers them: nulls, empties, bytes, headers."""
    batch = exchange(
        (b"v1", b"k1", [("a", b"1"), ("b", None), ("a", b"\xff")]),
        (None, None, None),
        (b"", b"", [("c", b"")]),
        (b"\xff\x00", b"k\xfe", None),
    )
    topic = batch[0].topic().encode()
    assert values_lines(batch) == b"v1\n\n\n\xff\x00\n"
    formatted = compile_format("%t %p %o|%k|%K|%s|%S|%T|%h|%%\\n")(batch)
    assert formatted.split(b"\n") == [
        topic + b" 0 0|k1|2|v1|2|1411294187842|a=1,b=NULL,a=\xff|%",
        topic + b" 0 1||-1||-1|1411294187842||%",
        topic + b" 0 2||0||0|1411294187842|c=|%",
        topic + b" 0 3|k\xfe|2|\xff\x00|2|1411294187842||%",
        b"",
    ]
    rows = [json.loads(line) for line in json_lines(batch).splitlines()]
    assert list(rows[0]) == ["topic", "partition", "offset", "timestamp", "timestamp_type", "key", "value", "headers"]
    assert rows[0] == {
        "topic": topic.decode(),
        "partition": 0,
        "offset": 0,
        "timestamp": "2014-09-21T10:09:47.842Z",
        "timestamp_type": "CreateTime",
        "key": "k1",
        "value": "v1",
        "headers": [
            {"key": "a", "value": "1"},
            {"key": "b", "value": None},
            {"key": "a", "value": {"base64": "/w=="}},
        ],
    }
    assert [row["key"] for row in rows] == ["k1", None, "", {"base64": "a/4="}]
    assert [row["value"] for row in rows] == ["v1", None, "", {"base64": "/wA="}]
    assert [row["headers"] for row in rows[1:]] == [[], [{"key": "c", "value": ""}], []]


def test_a_plain_batch(exchange: Callable[..., list[Message]]) -> None:
    """The common case: text values, no keys, no headers."""
    batch = exchange(*((b"message %d" % number, None, None) for number in range(50)))
    assert values_lines(batch) == b"".join(b"message %d\n" % number for number in range(50))
    rows = [json.loads(line) for line in json_lines(batch).splitlines()]
    assert [(row["offset"], row["value"], row["key"]) for row in rows] == [(n, f"message {n}", None) for n in range(50)]


@pytest.mark.parametrize(
    ("fmt", "expected"),
    [
        ("%s", b"v"),
        ("%s\\n", b"v\n"),
        ("\\t\\r\\\\%%", b"\t\r\\%"),
        ("\\x41\\x00\\xfF\\x4g", b"A\x00\xff\x04g"),
        ("\\033\\10\\q", b"\x1b\nq"),
        ("a\\", b"a\\"),
        ("no tokens", b"no tokens"),
        ("ü%t", "üt".encode()),
        ("%R%s", struct.pack(">i", 1) + b"v"),
        ("%%s", b"%s"),
        ("", b""),
    ],
)
def test_formats(fmt: str, expected: bytes) -> None:
    """kcat's tokens and escapes."""
    assert compile_format(fmt)([Fake(b"v")]) == expected


@pytest.mark.parametrize(("fmt", "token"), [("%x", "%x"), ("a%", "%"), ("%J", "%J")])
def test_unknown_tokens_are_refused(fmt: str, token: str) -> None:
    """A format is checked before anything is read, and the known tokens are listed."""
    with pytest.raises(UsageError) as caught:
        compile_format(fmt)
    assert names(str(caught.value), "--format", token, "%s %S")


def test_nothing_comes_of_nothing() -> None:
    """An empty batch prints nothing."""
    assert (values_lines([]), json_lines([]), compile_format("x%s")([])) == (b"", b"", b"")


def test_missing_timestamps() -> None:
    """Old message formats have none: −1 as kcat has it, null in JSON. LogAppendTime is distinguished."""
    stamps = [(0, 0), (1, 5), (2, 1000), (1, 2**60), (1, -1), (2, -1), (1, -(2**63)), (1, 1_700_000_000 * 10**9)]
    batch = [Fake(ts=stamp) for stamp in stamps]
    assert compile_format("%T ")(batch[:5]) == b"-1 5 1000 %d -1 " % 2**60
    rows = [json.loads(line) for line in json_lines(batch).splitlines()]
    assert [(row["timestamp"], row.get("timestamp_raw"), row["timestamp_type"]) for row in rows] == [
        (None, None, None),
        ("1970-01-01T00:00:00.005Z", None, "CreateTime"),
        ("1970-01-01T00:00:01.000Z", None, "LogAppendTime"),
        (None, 2**60, "CreateTime"),
        (None, None, None),
        (None, None, None),
        (None, -(2**63), "CreateTime"),
        (None, 1_700_000_000 * 10**9, "CreateTime"),
    ]
    assert list(rows[3])[3:6] == ["timestamp", "timestamp_raw", "timestamp_type"]
    assert not [row for row in rows if "timestamp_raw" in row and row["timestamp_raw"] is None]


CONTENTS = st.none() | st.binary(max_size=6) | st.text(max_size=6).map(lambda text: text.encode("utf-8", "replace"))
TRICKY = st.sampled_from([b"", b"\x7f", b'"', b'","', b"\\u001f", b"\n", b"\\", b"\x00", b"a"])
STAMPS = st.tuples(st.integers(0, 2), st.integers(-1, 2**42)) | st.just((1, STAMP))
FAKES = st.builds(
    Fake,
    v=CONTENTS | TRICKY,
    k=CONTENTS | TRICKY,
    t=st.sampled_from(["t", "u.v"]),
    p=st.integers(0, 3),
    o=st.integers(0, 2**63 - 1),
    ts=STAMPS,
    h=st.none() | st.lists(st.tuples(st.text(max_size=3), CONTENTS), max_size=3),
)


def as_json(content: bytes | None) -> object:
    if content is None:
        return None
    try:
        return content.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(content).decode()}


@given(st.lists(FAKES, min_size=1, max_size=8))
def test_every_batch_prints_as_its_messages_would_one_by_one(batch: list[Fake]) -> None:
    """The shortcuts for whole batches never change what is printed, whatever is mixed in them."""
    types = {0: None, 1: "CreateTime", 2: "LogAppendTime"}
    rows = [json.loads(line) for line in json_lines(batch).split(b"\n")[:-1]]
    assert rows == [
        {
            "topic": m.t,
            "partition": m.p,
            "offset": m.o,
            "timestamp": iso_utc(m.ts[1]) if m.ts[0] and m.ts[1] != -1 else None,
            "timestamp_type": types[m.ts[0] if m.ts[1] != -1 else 0],
            "key": as_json(m.k),
            "value": as_json(m.v),
            "headers": [{"key": name, "value": as_json(value)} for name, value in m.h or ()],
        }
        for m in batch
    ]
    for make in (values_lines, json_lines, *map(compile_format, ("%t %p %o %s\\n", "%k%K%S%R%T%h", "%s", "x"))):
        assert make(batch) == b"".join(make([message]) for message in batch)


def test_times_that_are_all_different() -> None:
    """Of a topic that is written slowly; printed as those that are nearly all the same."""
    stamps = [STAMP + 317 * number for number in range(60)]
    rows = [json.loads(line) for line in json_lines([Fake(ts=(2, stamp)) for stamp in stamps]).splitlines()]
    assert [(row["timestamp"], row["timestamp_type"]) for row in rows] == [
        (iso_utc(stamp), "LogAppendTime") for stamp in stamps
    ]
    for missing in ((0, 0), (1, 2**60), (1, -1)):
        odd = [*(Fake(ts=(1, stamp)) for stamp in stamps), Fake(ts=missing)]
        assert [json.loads(line)["timestamp"] for line in json_lines(odd).splitlines()][-2:] == [
            iso_utc(stamps[-1]), None
        ]  # fmt: skip


OBEYED = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
ATTACKS = ["\x1b]52;c;cm0gLXJm\x07", "\x9b2J", "\x9d52;c;x\x9c", "\u202egpj", "a\r\nb", "\x7f", "\t"]
HOSTILE = st.sampled_from([b"\x9b2J", *map(str.encode, ATTACKS)]) | CONTENTS


@given(HOSTILE, HOSTILE, st.text(max_size=3), HOSTILE, st.sampled_from(["t", "t\x1b[2J"]))
def test_a_terminal_gets_no_control_characters(
    value: bytes | None, key: bytes | None, name: str, content: bytes | None, topic: str
) -> None:
    """Whatever a message has, in every token and in JSON; of the format itself what it says is kept. JSON keeps its
    values."""
    batch = [Fake(value, key, topic, h=[(name, content)]), Fake(b"a" * 27)]
    formatter = compile_format("\\x1b[1m%t %p %o %k %K %s %S %R %T %h\\n", visible=True)
    for printed in (formatter(batch), formatter(batch[:1])):
        assert not OBEYED.search(printed.decode().replace("\x1b[1m", "").replace("\n", "", len(batch)))
        assert printed.startswith(b"\x1b[1m")
    lines = visible_json_lines(batch)
    assert not OBEYED.search(lines.decode().replace("\n", "", len(batch)))
    assert list(map(json.loads, lines.splitlines())) == list(map(json.loads, json_lines(batch).split(b"\n")[:-1]))


def test_what_a_terminal_shows() -> None:
    """As in tables; what needs no change, nulls and lengths stay as they are."""
    show = compile_format("%k|%K|%s|%h\\n", visible=True)
    batch = [
        Fake(b"\x1b]52;c;cm0=\x07", None, h=[("a\tb", b"\x9b"), ("c", None)]),
        Fake("Grüße, 世界\u202e".encode(), b"1\n2"),
        Fake(None, b""),
    ]
    assert show(batch).decode().splitlines() == [
        r"|-1|\x1b]52;c;cm0=\x07|a\tb=\x9b,c=NULL",
        r"1\n2|3|Grüße, 世界\u202e|",
        "|0||",
    ]


@given(st.integers(1, 5), st.lists(st.booleans(), max_size=6))
def test_weaving(count: int, shape: list[bool]) -> None:
    """Columns and fixed text come out in their order, once for each message."""
    parts = [[b"c%d-%d " % (i, n) for n in range(count)] if column else b"f%d " % i for i, column in enumerate(shape)]
    expected = b"".join(part[n] if isinstance(part, list) else part for n in range(count) for part in parts)
    assert weave(parts, count) == expected
