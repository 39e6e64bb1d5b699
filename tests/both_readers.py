"""A topic read by both readers: the Python one is the measure, the native one gives the same bytes and columns."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, get_args

from hypothesis import strategies as st

from zkgroup.clients.kafka.arrow_columns import Columns, make_table
from zkgroup.clients.kafka.client import KafkaSettings, Message, Producer
from zkgroup.clients.kafka.fetcher import Fetched, runs_of
from zkgroup.clients.kafka.log_offsets import LogRange, log_offsets
from zkgroup.clients.kafka.message_contents import END_OF_TIME, Format, time_of
from zkgroup.clients.kafka.native_reader import NativeMessages, open_reader
from zkgroup.commands._message_format import compile_format, json_lines, values_lines
from zkgroup.protocol.ledger import Run
from zkgroup.protocol.names import TopicPartition

PARTITIONS = 3
FORMATS_OF_KCAT = ("%t %p %o %s\\n", "%o|%k|%K|%s|%S|%R|%T|%h|%%|%s%s\\x00\\t", "%s", "fixed\\n", "%h" * 100 + "%p")
COLUMNS = [Columns(key, value) for key, value in itertools.product(get_args(Format), repeat=2)]
#: What a value may be made of: what JSON escapes, what is UTF-8 and what only looks like it.
PIECES = [
    *(
        b"",
        b"plain",
        b'quo"te',
        b"back\\slash",
        b"\x00\x01\x07\x08\t\n\x0b\x0c\r\x1f",
        b"\x7f",
        b"a" * 7,
        b"x" * 31 + b'"',
    ),
    *("äöü€😀\u2028\ufffd".encode(), b"\xed\x9f\xbf", b"\xee\x80\x80", b"\xf4\x8f\xbf\xbf"),
    *(
        b"\xff",
        b"\xc3",
        b"\xc0\xaf",
        b"\xe0\x80\x80",
        b"\xed\xa0\x80",
        b"\xe2\x82",
        b"\xf0\x80\x80\x80",
        b"\xf0\x9f\x98",
    ),
    *(
        b"\xf4\x90\x80\x80",
        b"[",
        b"]",
        b"{",
        b"}",
        b'{"a": [1, 2.5e-3, null, true]}',
        b'"\\ud83d\\ude00"',
        b"1e400",
        b",",
    ),
]
TIMES = [1, 999, 1000, 1_700_000_000_123, 253_402_127_999_999, 253_402_128_000_000, 253_402_300_799_999, 2**53, 2**62]

contents = st.none() | st.binary(max_size=40) | st.lists(st.sampled_from(PIECES), max_size=6).map(b"".join)
headers = st.lists(
    st.tuples(
        st.sampled_from(["a", "", "näme", "x" * 50, 'q"']) | st.text(max_size=5).filter(lambda s: "\0" not in s),
        contents,
    ),
    max_size=4,
)


@dataclass(frozen=True)
class Sent:
    """A message to produce."""

    key: bytes | None
    value: bytes | None
    partition: int
    timestamp: int
    headers: list[tuple[str, bytes | None]]


messages = st.lists(
    st.builds(Sent, contents, contents, st.integers(0, PARTITIONS - 1), st.sampled_from([0, *TIMES]), headers),
    min_size=1,
    max_size=200,
)


def send(kafka: KafkaSettings, topic: str, sent: Sequence[Sent], **properties: Any) -> None:
    """Produce, with headers and times where the broker takes them."""
    client = Producer(kafka.base() | dict(kafka.properties) | {"linger.ms": 5} | properties)
    for one in sent:
        extra = {} if kafka.legacy_release else {"headers": one.headers, "timestamp": one.timestamp}
        client.produce(topic, one.value, one.key, partition=one.partition, **extra)
    assert client.flush(30) == 0


def log_starts(kafka: KafkaSettings, topic: str, partitions: int) -> dict[TopicPartition, int]:
    found = log_offsets(kafka, [TopicPartition(topic, number) for number in range(partitions)], 10)
    assert all(isinstance(log, LogRange) for log in found.values()), found
    return {partition: log.start for partition, log in found.items() if isinstance(log, LogRange)}


def read(
    kafka: KafkaSettings, topic: str, partitions: int = PARTITIONS, *, native: bool, **options: Any
) -> list[Fetched]:
    """All batches from where the logs start up to where they end."""
    fetched: list[Fetched] = []
    wanted = log_starts(kafka, topic, partitions)
    deadline = time.monotonic() + 60
    with closing(open_reader(kafka, native=native, report_ends=True, **options)) as reader:
        reader.assign(wanted)
        while wanted.keys() - {partition for one in fetched for partition in one.ends}:
            assert time.monotonic() < deadline, "the ends are not reached"
            fetched.append(reader.fetch(0.1))
            assert fetched[-1].errors == []
    return fetched


def ends_of(fetched: Sequence[Fetched]) -> dict[TopicPartition, int]:
    return {partition: end for one in fetched for partition, end in one.ends.items()}


def by_partition(fetched: Sequence[Fetched]) -> dict[TopicPartition, list[Message]]:
    """What the Python reader gives."""
    found: dict[TopicPartition, list[Message]] = {}
    for one in fetched:
        for run in one.runs:
            found.setdefault(run.partition, []).extend(one.messages[run.start : run.stop])
    return found


def facts(message: Message) -> tuple[Any, ...]:
    return (
        *(message.topic(), message.partition(), message.offset(), message.key(), message.value()),
        *(message.timestamp(), message.headers() or None),
    )


def check_sent(found: dict[TopicPartition, list[Message]], sent: Sequence[Sent]) -> None:
    """The messages are those that were sent, in order, with their headers and times."""
    for partition, messages in found.items():
        wanted = [one for one in sent if one.partition == partition.partition]
        assert [(one.key(), one.value(), one.headers() or []) for one in messages] == [
            (one.key, one.value, one.headers) for one in wanted
        ]
        times = [message.timestamp()[1] for message in messages]
        assert times == [one.timestamp or time for one, time in zip(wanted, times, strict=True)]
    assert sum(map(len, found.values())) == len(sent)


def compare(
    kafka: KafkaSettings, topic: str, sent: Sequence[Sent] | int, partitions: int = PARTITIONS, **options: Any
) -> None:
    """Read a topic both ways: the Python reader gives what was ``sent`` (a number: so many messages); every formatter's
    bytes, all columns, runs and ends are equal."""
    python = read(kafka, topic, partitions, native=False, **options)
    native = read(kafka, topic, partitions, native=True, **options)
    assert ends_of(native) == ends_of(python)
    left = by_partition(python)
    if isinstance(sent, int):
        assert sum(map(len, left.values())) == sent
    else:
        check_sent(left, sent)
    formats = [compile_format(one) for one in FORMATS_OF_KCAT]
    for one in filter(lambda one: len(one.messages), native):
        same: list[Message] = []
        for run in one.runs:
            some = left[run.partition][: len(range(run.start, run.stop))]
            del left[run.partition][: len(some)]
            same += some
            compare_columns(one.messages[run.start : run.stop], some, run)
        assert [Run(*vars_of(run)) for run in runs_of(same)] == one.runs
        table = make_table(one.messages, one.runs)
        table.validate(full=True)
        assert table.equals(make_table(same, one.runs))
        compare_text(one.messages, same, formats)
    assert not any(left.values())


def vars_of(run: Run) -> tuple[Any, ...]:
    return run.partition, run.start, run.stop, run.first, run.next


def compare_text(mine: Any, same: list[Message], formats: Sequence[Any]) -> None:
    assert isinstance(mine, NativeMessages)
    half = len(mine) // 2
    assert list(map(facts, mine)) == list(map(facts, same))
    assert list(mine.offsets()) == [message.offset() for message in same]
    assert facts(mine[half]) == facts(same[half])
    assert list(mine.sizes()) == [len(message) + len(message.key() or b"") for message in same]
    with_headers = mine.sizes(headers=True)
    for message, size, more in zip(same, mine.sizes(), with_headers, strict=True):
        assert more - size >= sum(len(name) + len(value or b"") for name, value in message.headers() or ())
    assert list(mine.times(END_OF_TIME)) == [-1 if (time := time_of(message)) is None else time for message in same]
    for formatter in (values_lines, json_lines, *formats):
        assert bytes(formatter(mine)) == formatter(same)
        assert bytes(formatter(mine[half:])) == formatter(same[half:])


def compare_columns(mine: Any, same: list[Message], run: Run) -> None:
    for columns in COLUMNS:
        got, got_bad = columns.batch(mine, run.partition.partition)
        got.validate(full=True)
        wanted, wanted_bad = columns.batch(same, run.partition.partition)
        assert got.equals(wanted), [
            name for name in got.schema.names if not got.column(name).equals(wanted.column(name))
        ]
        assert got_bad == wanted_bad


def examples(seed: int, count: int) -> list[Sent]:
    """Messages of all kinds; the same for the same seed."""
    dice = random.Random(seed)

    def content() -> bytes | None:
        kind = dice.random()
        if kind < 0.3:
            return None if kind < 0.15 else dice.randbytes(dice.randrange(40))
        return b"".join(dice.choice(PIECES) for _ in range(dice.randrange(6)))

    return [
        Sent(
            *(content(), content(), dice.randrange(PARTITIONS), dice.choice([0, *TIMES])),
            [(dice.choice(["a", "", "näme", 'q"']), content()) for _ in range(dice.choice([0, 0, 1, 3]))],
        )
        for _ in range(count)
    ]
