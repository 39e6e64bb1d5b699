"""One contract for both readers: the Python one is the measure, the native one gives the same bytes and columns."""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from raw_batches import send_raw
from support import fresh_name

from zkgroup.clients.kafka.arrow_columns import Columns, make_table
from zkgroup.clients.kafka.client import KafkaError, KafkaSettings, Message, Producer
from zkgroup.clients.kafka.fetcher import Fetched, runs_of
from zkgroup.clients.kafka.json_check import is_json
from zkgroup.clients.kafka.message_formats import END_OF_TIME, FORMATS, time_of
from zkgroup.clients.kafka.native_reader import VARIABLE, NativeMessages, native_module, open_reader, reader_in_use
from zkgroup.commands._message_format import compile_format, json_lines, values_lines
from zkgroup.protocol.ledger import Run
from zkgroup.protocol.names import TopicPartition
from zkgroup.sandbox.local_cluster import Sandbox
from zkgroup.sandbox.topic_admin import create_topic

if native_module() is None:
    pytest.skip("there is no native reader: no compiler was here", allow_module_level=True)

PARTITIONS = 3
CODECS = ("none", "gzip", "snappy", "lz4")
FORMATS_OF_KCAT = ("%t %p %o %s\\n", "%o|%k|%K|%s|%S|%R|%T|%h|%%|%s%s\\x00\\t", "%s", "fixed\\n", "%h" * 100 + "%p")
COLUMNS = [Columns(key, value) for key, value in itertools.product(FORMATS, FORMATS)]
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
    """Produce, with headers where the broker takes them."""
    client = Producer(kafka.base() | dict(kafka.properties) | {"linger.ms": 5} | properties)
    for one in sent:
        extra = {} if kafka.legacy_release else {"headers": one.headers, "timestamp": one.timestamp}
        client.produce(topic, one.value, one.key, partition=one.partition, **extra)
    assert client.flush(30) == 0


def read(
    kafka: KafkaSettings, topic: str, partitions: int = PARTITIONS, *, native: bool, **options: Any
) -> list[Fetched]:
    """All batches up to the ends of the partitions."""
    fetched: list[Fetched] = []
    wanted = {TopicPartition(topic, number) for number in range(partitions)}
    deadline = time.monotonic() + 60
    with closing(open_reader(kafka, native=native, report_ends=True, **options)) as reader:
        reader.assign(dict.fromkeys(wanted, 0))
        while wanted - {partition for one in fetched for partition in one.ends}:
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


def compare(kafka: KafkaSettings, topic: str, partitions: int = PARTITIONS, **options: Any) -> int:
    """Read a topic both ways; every formatter's bytes and all columns must be equal. How many messages there were."""
    python = read(kafka, topic, partitions, native=False, **options)
    native = read(kafka, topic, partitions, native=True, **options)
    assert ends_of(native) == ends_of(python)
    left = by_partition(python)
    total = sum(map(len, left.values()))
    formats = [compile_format(one) for one in FORMATS_OF_KCAT]
    for one in filter(lambda one: len(one.messages), native):
        same: list[Message] = []
        for run in one.runs:
            some = left[run.partition][: len(range(run.start, run.stop))]
            del left[run.partition][: len(some)]
            same += some
            compare_columns(one.messages[run.start : run.stop], some, run)
        assert [Run(*vars_of(run)) for run in runs_of(same, single_topic=False)] == one.runs
        table = make_table(one.messages, one.runs)
        table.validate(full=True)
        assert table.equals(make_table(same, one.runs))
        compare_text(one.messages, same, one.runs, formats)
    assert not any(left.values())
    return total


def vars_of(run: Run) -> tuple[Any, ...]:
    return run.partition, run.start, run.stop, run.first, run.next


def compare_text(mine: Any, same: list[Message], runs: list[Run], formats: Sequence[Any]) -> None:
    assert isinstance(mine, NativeMessages)
    half = len(mine) // 2
    assert list(map(facts, mine)) == list(map(facts, same))
    assert list(mine.offsets()) == [message.offset() for message in same]
    assert facts(mine[half]) == facts(same[half])
    assert list(mine.sizes()) == [len(message) + len(message.key() or b"") for message in same]
    beside = mine.sizes(headers=True)
    for message, size, more in zip(same, mine.sizes(), beside, strict=True):
        assert more - size >= sum(len(name) + len(value or b"") for name, value in message.headers() or ())
    assert list(mine.times(END_OF_TIME)) == [-1 if (time := time_of(message)) is None else time for message in same]
    for formatter in (values_lines, json_lines, *formats):
        assert bytes(formatter(mine, runs)) == formatter(same, runs)
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


@pytest.mark.parametrize("codec", CODECS)
def test_both_readers_give_the_same(kafka: KafkaSettings, make_topic: Callable[..., str], codec: str) -> None:
    """Nulls, empty and odd contents, headers, odd times, in each codec: bytes, records, runs and columns are equal."""
    topic = make_topic(PARTITIONS)
    send(kafka, topic, examples(CODECS.index(codec), 2000), **{"compression.type": codec})
    assert compare(kafka, topic) == 2000


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(messages)
def test_messages_that_nobody_thought_of(kafka: KafkaSettings, registry: Any, sent: list[Sent]) -> None:
    """The same of whatever messages."""
    topic = fresh_name("topic")
    create_topic(registry, topic, PARTITIONS)
    send(kafka, topic, sent)
    assert compare(kafka, topic) == len(sent)


@settings(max_examples=500)
@given(
    st.binary(max_size=30)
    | st.lists(
        st.sampled_from([*PIECES, b" ", b":", b'"a"', b"\\u12", b"\\ud800", b"-0.5E+2", b"01", b"tru", b"\\"])
    ).map(b"".join)
    | st.recursive(
        st.none() | st.booleans() | st.floats() | st.integers() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    ).map(lambda value: json.dumps(value).encode())
)
def test_json_is_checked_alike(value: bytes) -> None:
    """The C check and the Python one say the same of any bytes."""
    assert native_module().is_json(value) == is_json(value)  # type: ignore[union-attr]


@pytest.mark.parametrize("levels", [1, 1023, 1024, 1025, 5000])
@pytest.mark.parametrize(("opening", "closing_"), [(b"[", b"]"), (b'{"a":', b"}")])
def test_json_of_many_levels_is_checked_alike(levels: int, opening: bytes, closing_: bytes) -> None:
    """Up to 1,024 levels, and neither reads behind its end."""
    value = opening * levels + b"1" + closing_ * levels
    for text in (value, value[:-1], value + b"]"):
        assert native_module().is_json(text) == is_json(text)  # type: ignore[union-attr]


def test_headers_whose_names_are_no_text(kafka: KafkaSettings, make_topic: Callable[..., str]) -> None:
    """They are unreadable in both, alone and among others."""
    topic = make_topic()
    named = [[(b"ok", b"1")], [(b"\xff\xfe", b"2")], [(b"ok", b"3"), (b"\xc3", b"4")], [], [(b"\xef\xbf\xbd", b"")]]
    send_raw(kafka.bootstrap, topic, named)
    assert compare(kafka, topic, 1) == len(named)


def test_transactions_and_ends(kafka: KafkaSettings, make_topic: Callable[..., str]) -> None:
    """Aborted messages are given to neither, and ends lie behind control records."""
    topic = make_topic(PARTITIONS)
    client = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": topic})
    client.init_transactions(30)
    for number, end in enumerate((client.abort_transaction, client.commit_transaction, client.abort_transaction)):
        client.begin_transaction()
        for _ in range(50):
            client.produce(topic, b"%d" % number, partition=number % 2)
        client.flush()
        end(30)
    assert compare(kafka, topic, isolation_level="read_committed") == 50
    assert compare(kafka, topic, isolation_level="read_uncommitted") == 150


@pytest.mark.parametrize("release", ["0.8.2.2", "0.10.2.2", "3.9.1"])
def test_both_readers_give_the_same_on_other_releases(
    zookeeper: Sandbox, make_sandbox: Callable[..., Sandbox], release: str
) -> None:
    """Message formats 0, 1 and 2."""
    sandbox = make_sandbox(kafka=release, zookeeper=zookeeper.address, chroot=f"/contract-{release}")
    legacy = "0.8.2.2" if release.startswith("0.8") else None
    kafka, topic = KafkaSettings(sandbox.bootstrap, legacy_release=legacy), fresh_name("topic")
    sent = examples(7, 1000)
    if release.startswith("0.10"):  # it has no headers
        sent = [Sent(one.key, one.value, one.partition, one.timestamp, []) for one in sent]
    with sandbox.registry(30.0) as registry:
        create_topic(registry, topic, PARTITIONS)
    send(kafka, topic, sent)
    assert compare(kafka, topic) == 1000


# ------------------------------------------------------------ what only the native reader may get wrong


@pytest.fixture
def filled(kafka: KafkaSettings, make_topic: Callable[..., str]) -> str:
    """A topic of one partition with 5,000 messages, with keys and headers."""
    topic = make_topic()
    send(kafka, topic, [Sent(b"k%d" % n, b"v%d" % n, 0, 1, [("h", b"x")]) for n in range(5000)])
    return topic


def native_reader(kafka: KafkaSettings, topic: str) -> Any:
    module: Any = native_module()
    reader = module.Reader({"bootstrap.servers": kafka.bootstrap, "group.id": "x", "enable.auto.commit": "false"})
    reader.assign([(topic, 0, 0)])
    return reader


def some(reader: Any, least: int = 1) -> Any:
    """A batch of at least so many messages."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        batch = reader.consume(4000, 64 << 20, 1.0)
        if len(batch) >= least:
            return batch
    raise AssertionError("nothing came")


def test_a_batch_outlives_its_reader(kafka: KafkaSettings, filled: str) -> None:
    """What was read is there after close(), until it is released; then its calls raise."""
    reader = native_reader(kafka, filled)
    batch = some(reader)
    before = bytes(batch.values(0, len(batch)))
    reader.close()
    reader.close()
    assert bytes(batch.values(0, len(batch))) == before
    with pytest.raises(RuntimeError, match="closed"):
        reader.consume(1, 1, 0.0)
    batch.release()
    for call in (lambda: batch.values(0, 1), lambda: batch.json(0, 1), lambda: batch.message(0)):
        with pytest.raises(ValueError, match="released"):
            call()


def test_the_first_messages_of_a_batch_are_freed_alone(kafka: KafkaSettings, filled: str) -> None:
    """Those behind them stay; what is freed is refused, and freed once."""
    reader = native_reader(kafka, filled)
    batch = some(reader, 10)
    rest = bytes(batch.json(5, len(batch)))
    for count in (3, 5, 0, -7, 5):
        batch.release_first(count)
    assert bytes(batch.json(5, len(batch))) == rest
    for start, stop in ((0, 1), (4, len(batch)), (0, len(batch))):
        with pytest.raises(ValueError, match="released"):
            batch.columns(start, stop, "b", "b", 9)
    with pytest.raises(ValueError, match="released"):
        batch.message(4)
    with pytest.raises(TypeError):
        batch.release_first("5")
    batch.release_first(2**40)
    batch.release()
    batch.release_first(1)
    reader.close()


def test_close_and_release_in_another_thread(kafka: KafkaSettings, filled: str) -> None:
    """Neither frees what a call in another thread works on; twenty times over."""
    for _ in range(20):
        reader = native_reader(kafka, filled)
        batch = some(reader)
        calls = [
            lambda batch=batch: batch.json(0, len(batch)),
            lambda batch=batch: batch.columns(0, len(batch), "b", "j", 9),
        ]
        calls.append(lambda reader=reader: reader.consume(100, 1 << 20, 1.0))
        ended: list[str] = []

        def repeat(call: Callable[[], Any], ended: list[str] = ended) -> None:
            with pytest.raises((ValueError, RuntimeError)) as raised:
                deque(iter(call, None), maxlen=0)  # until it raises
            ended.append(str(raised.value))

        threads = [threading.Thread(target=repeat, args=(call,)) for call in calls]
        for thread in threads:
            thread.start()
        time.sleep(0.02)
        reader.close()
        batch.release()
        for thread in threads:
            thread.join(20)
        assert sorted(ended) == ["the batch was released"] * 2 + ["the reader is closed"]


def test_keys_and_headers_count_into_the_size_of_a_batch(kafka: KafkaSettings, make_topic: Callable[..., str]) -> None:
    """Large keys and headers, with small values, make small batches."""
    topic = make_topic()
    send(kafka, topic, [Sent(bytes(20_000), b"v", 0, 1, [("h", bytes(20_000))]) for _ in range(600)])
    reader = native_reader(kafka, topic)
    held, count = [], 0
    while count < 600:
        batch = some(reader)
        count += len(batch)
        batch.release()
    reader.assign([(topic, 0, 0)])
    count = 0
    while count < 600:
        batch = reader.consume(4000, 1 << 20, 1.0)
        if len(batch):
            assert batch.key_bytes == 20_000 * len(batch)
            assert batch.header_bytes >= 20_000 * len(batch)
            held.append(batch.key_bytes + batch.header_bytes)
            count += len(batch)
        batch.release()
    reader.close()
    assert max(held) < 2 << 20


@pytest.mark.parametrize(
    "positions",
    [
        None,
        (),
        [1],
        ["abc"],
        [("t", 0)],
        [("t", "0", 0)],
        [(b"t", 0, 0)],
        [("t", 0, 0, 0)],
        [("t", 2**40, 0)],
        [["t", 0, 0]],
    ],
)
def test_assign_checks_its_items(kafka: KafkaSettings, positions: Any) -> None:
    """What is no list of (topic, partition, offset) is refused."""
    module: Any = native_module()
    reader = module.Reader({"bootstrap.servers": kafka.bootstrap, "group.id": "x"})
    for call in (reader.assign, reader.add, reader.drop):
        with pytest.raises((TypeError, OverflowError)):
            call(positions)
    reader.close()


def test_places_outside_a_batch_are_refused(kafka: KafkaSettings, filled: str) -> None:
    """So are unknown tokens and kinds of columns."""
    reader = native_reader(kafka, filled)
    batch = some(reader)
    for start, stop in ((-1, 1), (1, 0), (0, len(batch) + 1), (2**62, 2**62)):
        for call in (batch.values, batch.json, batch.offsets):
            with pytest.raises(ValueError, match="no such messages"):
                call(start, stop)
    for place in (-1, len(batch)):
        with pytest.raises(IndexError):
            batch.message(place)
    for parts in (("x",), ("",), ("ss",), ("\0",)):
        with pytest.raises(ValueError, match="format"):
            batch.format(parts, 0, 1)
    with pytest.raises(TypeError):
        batch.format((1,), 0, 1)
    with pytest.raises(ValueError, match="column"):
        batch.columns(0, 1, "x", "b", 0)
    batch.release()
    reader.close()


def test_wrong_properties_are_refused(kafka: KafkaSettings) -> None:
    """By name, without a value that may be a secret."""
    from zkgroup.errors import UsageError

    reader = open_reader(KafkaSettings(kafka.bootstrap, {"fetch.min.bytes": "hunter2"}), native=True)
    with pytest.raises(UsageError, match=r"fetch\.min\.bytes") as raised:
        reader.assign({TopicPartition("t", 0): 0})
    assert "hunter2" not in str(raised.value)


def test_a_signal_ends_a_wait_at_once(kafka: KafkaSettings, make_topic: Callable[..., str]) -> None:
    """Ctrl-C is heeded within 0.1 s; 0.5 s where the machine is busy."""
    reader = native_reader(kafka, make_topic())
    reader.consume(1, 1, 1.0)
    sent: list[float] = []

    def interrupt() -> None:
        sent.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)

    timer = threading.Timer(0.5, interrupt)
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        reader.consume(1, 1, 20.0)
    assert time.monotonic() - sent[0] < 0.5
    reader.close()


def test_a_fork_neither_hangs_nor_frees(kafka: KafkaSettings, filled: str) -> None:
    """In a process that was forked off calls raise, a new reader works, and the end does not wait for threads that are
    not there."""
    reader = native_reader(kafka, filled)
    batch = some(reader)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            for call in (lambda: reader.consume(1, 1, 0.1), lambda: batch.values(0, 1)):
                with pytest.raises((RuntimeError, ValueError), match="another process"):
                    call()
            own = native_reader(kafka, filled)
            assert len(some(own)) > 0
            own.close()
            reader.close()
            batch.release()
            del reader, batch, own
            code = 0
        finally:
            os._exit(code)
    deadline = time.monotonic() + 60
    while (ended := os.waitpid(child, os.WNOHANG))[0] == 0:
        assert time.monotonic() < deadline, "the child hangs"
        time.sleep(0.05)
    assert os.waitstatus_to_exitcode(ended[1]) == 0
    assert len(batch.values(0, len(batch))) > 0
    reader.close()


def test_positions_are_followed(kafka: KafkaSettings, filled: str, make_topic: Callable[..., str]) -> None:
    """``add`` and ``seek`` do as the Python reader does."""
    other = make_topic()
    send(kafka, other, [Sent(None, b"o%d" % n, 0, 1, []) for n in range(100)])
    for native in (True, False):
        with closing(open_reader(kafka, native=native)) as reader:
            reader.assign({TopicPartition(filled, 0): 4990})
            assert offsets_of(reader, 10) == [(filled, n) for n in range(4990, 5000)]
            reader.add({TopicPartition(filled, 0): 0, TopicPartition(other, 0): 90})
            assert offsets_of(reader, 10) == [(other, n) for n in range(90, 100)]
            reader.seek(TopicPartition(other, 0), 95)
            assert offsets_of(reader, 5) == [(other, n) for n in range(95, 100)]


def offsets_of(reader: Any, count: int) -> list[tuple[str, int]]:
    found: list[tuple[str, int]] = []
    deadline = time.monotonic() + 30
    while len(found) < count and time.monotonic() < deadline:
        found += [(message.topic(), message.offset()) for message in reader.fetch(0.1).messages]
    return found


def test_a_position_out_of_range_is_an_error_of_its_partition(kafka: KafkaSettings, filled: str) -> None:
    """In both readers."""
    for native in (True, False):
        with closing(open_reader(kafka, native=native)) as reader:
            reader.assign({TopicPartition(filled, 0): 10**9})
            deadline = time.monotonic() + 30
            errors: list[tuple[TopicPartition | None, KafkaError]] = []
            while not errors and time.monotonic() < deadline:
                errors = reader.fetch(0.2).errors
            assert [(partition, error.code()) for partition, error in errors] == [
                (TopicPartition(filled, 0), KafkaError._AUTO_OFFSET_RESET)
            ]


def test_brokers_that_are_away_are_reported_alike(caplog: pytest.LogCaptureFixture) -> None:
    """The error of the client, and the line of its log."""
    message = []
    for native in (True, False):
        caplog.clear()
        codes: set[int] = set()
        with closing(open_reader(KafkaSettings("127.0.0.1:1"), native=native)) as reader:
            reader.assign({TopicPartition("t", 0): 0})
            deadline = time.monotonic() + 20
            while KafkaError._ALL_BROKERS_DOWN not in codes and time.monotonic() < deadline:
                codes |= {error.code() for _, error in reader.fetch(0.2).errors}
        lines = {record.getMessage() for record in caplog.records if "Connect to" in record.getMessage()}
        message.append((codes, lines))
    assert KafkaError._ALL_BROKERS_DOWN in message[0][0]
    assert message[0] == message[1]
    assert message[0][1]


def test_the_variable_turns_it_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """``ZKGROUP_NATIVE=0`` chooses the Python reader."""
    assert reader_in_use() == "native"
    monkeypatch.setenv(VARIABLE, "0")
    assert reader_in_use() == "Python"
    assert type(open_reader(KafkaSettings("127.0.0.1:1"), native=True)).__name__ == "Fetcher"


def test_an_extension_of_another_source_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkout that was updated keeps the extension that was built before."""
    monkeypatch.setattr(native_module(), "interface", 0)
    assert reader_in_use() == "Python"
