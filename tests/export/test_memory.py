"""What a task has in memory: the same for a long range as for a short one, with large messages and in each layout."""

from __future__ import annotations

import os
import pickle
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from support import fresh_name

from zkgroup.clients.kafka.client import KafkaSettings
from zkgroup.export.model.layout import Layout
from zkgroup.export.model.plan_types import OffsetRange
from zkgroup.export.spark.spark_properties import default_properties
from zkgroup.export.tasks.task_data import FileOptions, TaskSettings
from zkgroup.protocol.names import TopicPartition
from zkgroup.sandbox.topic_admin import ProducerRecord, produce

NOON = 1_714_564_800_000  # 2024-05-01T12:00Z
MESSAGES, SIZE = 18, 10_000_000
LIMIT = 250 << 10  # KiB

_TASK = """
import pickle, re, sys
from zkgroup.export.model.plan_types import RecordFile
from zkgroup.export.tasks.export_task import run_task
from zkgroup.export.tasks.task_data import RangeAnswer
settings, piece = pickle.load(sys.stdin.buffer)
answers = list(run_task(settings, [piece]))
written = [answer for answer in answers if isinstance(answer, RecordFile)]
assert [type(answer) for answer in answers if answer not in written] == [RangeAnswer], answers
rows, files = sum(file.rows for file in written), len(written)
status = open("/proc/self/status").read()
print(rows, files, re.search(r"VmHWM:\\s+([0-9]+) kB", status)[1])
"""


def peak_of(kafka: KafkaSettings, topic: str, end: int, folder: Path, layout: Layout) -> tuple[int, int, int]:
    """Rows and files that a task writes, and the most memory that its process has had, in KiB; as Spark's workers are
    set up."""
    (folder / "work").mkdir()
    options = FileOptions(folder, "work", ("zstd", 1), 512 << 20, "g", "00000001-aaaaaaaa", layout)
    properties = default_properties("yarn", folder)
    prefix = "spark.executorEnv."
    environment = os.environ | {
        key.removeprefix(prefix): value for key, value in properties.items() if key.startswith(prefix)
    }
    done = subprocess.run(
        [sys.executable, "-c", _TASK],
        input=pickle.dumps((TaskSettings(kafka, options), OffsetRange(TopicPartition(topic, 0), 0, end))),
        env=environment,
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    rows, files, peak = map(int, done.stdout.split())
    return rows, files, peak


def make_topic_of(kafka: KafkaSettings, codec: str, records: list[ProducerRecord]) -> str:
    """A topic of one partition that takes large messages, with these, compressed by the producer."""
    topic = fresh_name("memory")
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1, config={"max.message.bytes": "20000000"})])[topic].result(30)
    produce(
        KafkaSettings(kafka.bootstrap, {"message.max.bytes": "20000000", "compression.codec": codec}), topic, records
    )
    return topic


@pytest.fixture(scope="module", params=[pytest.param("none", marks=pytest.mark.long), "gzip"])
def large(kafka: KafkaSettings, request: pytest.FixtureRequest) -> str:
    """A topic with some messages of 10 MB of JSON, each of another hour, in no order; gzip makes 10 KB of each."""
    value = b'"' + bytes(SIZE - 2).replace(b"\0", b"x") + b'"'
    hours = [NOON + i * 7 % MESSAGES * 3_600_000 for i in range(MESSAGES)]
    return make_topic_of(kafka, request.param, [ProducerRecord(value, b"k", 0, hour) for hour in hours])


@pytest.mark.parametrize(
    ("layout", "files"),
    [(Layout(), 1), (Layout(("date", "hour")), MESSAGES), (Layout((), "UTC", "text", "json"), 1)],
    ids=["partition", "hour", "json"],
)
def test_a_task_with_messages_of_ten_megabytes_stays_small(
    large: str, kafka: KafkaSettings, unique: Callable[[str], str], tmp_path: Path, layout: Layout, files: int
) -> None:
    """180 MB go through a task's process, whose memory never passes the bound, however well they were compressed."""
    rows, written, peak = peak_of(kafka, large, MESSAGES, tmp_path, layout)
    assert (rows, written) == (MESSAGES, files)
    assert peak < LIMIT, f"{peak >> 10} MB"


@pytest.mark.parametrize(
    "large",
    [
        pytest.param(ProducerRecord(b"x" * SIZE, None, 0), id="value"),
        pytest.param(ProducerRecord(b"", b"x" * SIZE, 0), id="key", marks=pytest.mark.long),
        pytest.param(ProducerRecord(b"", None, 0, headers=(("h", b"x" * SIZE),)), id="header", marks=pytest.mark.long),
    ],
)
def test_large_messages_after_many_small_ones(
    kafka: KafkaSettings, tmp_path: Path, large: ProducerRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hundreds are asked for at a time when the first of them come; by each of the two readers."""
    small = ProducerRecord(b"small", None, 0)
    topic = make_topic_of(kafka, "gzip", [small] * 5000 + [large] * MESSAGES)
    for name in ("usual", "python"):
        folder = tmp_path / name
        folder.mkdir()
        if name == "python":
            monkeypatch.setenv("ZKGROUP_NATIVE", "0")
        rows, _, peak = peak_of(kafka, topic, 5000 + MESSAGES, folder, Layout())
        assert rows == 5000 + MESSAGES
        assert peak < LIMIT, f"{name} reader: {peak >> 10} MB"


@pytest.mark.parametrize(
    ("value", "count"),
    [
        pytest.param(b'{"sensor":"s-7","state":"ok"}', 1_000_000, id="heartbeats"),
        pytest.param(b'{"a":"' + b"abc" * 323 + b'"}', 300_000, id="records", marks=pytest.mark.long),
    ],
)
def test_many_messages_that_were_compressed_well_stay_small(
    kafka: KafkaSettings, tmp_path: Path, value: bytes, count: int
) -> None:
    """A fetched megabyte would be a hundred, and a million messages, once it is unpacked."""
    topic = make_topic_of(kafka, "gzip", [ProducerRecord(value, None, 0)] * count)
    rows, _, peak = peak_of(kafka, topic, count, tmp_path, Layout())
    assert rows == count
    assert peak < LIMIT, f"{peak >> 10} MB"


def _mixture() -> list[ProducerRecord]:
    """Mostly small values, some of kilobytes, and one in a hundred of one to three megabytes, as some keys; no two of
    the same size, and each in one of ten hours."""
    dice = random.Random(16)
    stock = dice.randbytes(2 << 20)

    def large() -> bytes:
        size = dice.randrange(1 << 20, 3 << 20)
        return b'{"a":"' + b"y" * size + b'"}' if dice.random() < 0.7 else stock[:size]

    def one() -> ProducerRecord:
        lot = dice.random()
        value = large() if lot < 0.01 else stock[: dice.randrange(100, 20_000)] if lot < 0.1 else b"hello " * 40
        key = large() if dice.random() < 0.0005 else b"k"
        return ProducerRecord(value, key, 0, NOON + dice.randrange(10) * 3_600_000)

    return [one() for _ in range(20_000)]


_BY_HOUR = Layout(("date", "hour"), "UTC", "json", "json")


@pytest.mark.parametrize(
    ("codec", "layout"),
    [
        pytest.param("none", Layout(), id="none-partition", marks=pytest.mark.long),
        pytest.param("zstd", _BY_HOUR, id="zstd-hour"),
        pytest.param("zstd", Layout(), id="zstd-partition", marks=pytest.mark.long),
        pytest.param("none", _BY_HOUR, id="none-hour", marks=pytest.mark.long),
    ],
)
def test_megabytes_among_small_messages_leave_no_holes(
    kafka: KafkaSettings, tmp_path: Path, codec: str, layout: Layout
) -> None:
    """With larger ones in the heap its peak was 219 to 226 MB, and that of worse ones above the bound."""
    made = _mixture()
    topic = make_topic_of(kafka, codec, made)
    rows, _, peak = peak_of(kafka, topic, len(made), tmp_path, layout)
    assert rows == len(made)
    assert peak < 200 << 10, f"{peak >> 10} MB"


def _tombstones() -> list[ProducerRecord]:
    keys = [random.Random(seed).randbytes(7500) * 200 for seed in range(4)]
    return [ProducerRecord(None, keys[i % 4], 0) for i in range(200)]


def _with_headers(count: int, every: int, *headers: tuple[str, bytes | None]) -> list[ProducerRecord]:
    """Small messages, some of which have these headers; never the last."""
    some = ProducerRecord(b"x", None, 0, headers=headers)
    return [some if i % every == 0 else ProducerRecord(b"x", b"k", 0) for i in range(count)]


@pytest.mark.parametrize(
    ("codec", "records"),
    [
        pytest.param("lz4", _tombstones, id="keys", marks=pytest.mark.long),
        pytest.param("none", lambda: _with_headers(4001, 2, ("h", random.Random(1).randbytes(100_000))), id="headers"),
        pytest.param(
            "zstd",
            lambda: _with_headers(2001, 2, ("h", random.Random(1).randbytes(4000) * 50)),
            id="compressed-headers",
            marks=pytest.mark.long,
        ),
        pytest.param(
            "zstd",
            lambda: [ProducerRecord(b"x", b"x" * 60_000 if i % 4 == 0 else b"k", 0) for i in range(20_001)],
            id="some-keys",
        ),
        pytest.param("zstd", lambda: _with_headers(2000, 1, ("n" * 100_000, None)), id="names", marks=pytest.mark.long),
    ],
)
def test_large_keys_and_headers_are_counted(
    kafka: KafkaSettings, tmp_path: Path, codec: str, records: Callable[[], list[ProducerRecord]]
) -> None:
    """librdkafka bounds what it fetches ahead by the bytes of values alone; and one message does not tell of the next.
    Whatever keys, headers and their names hold stays within the bound, and the reader that takes over loses nothing."""
    made = records()
    topic = make_topic_of(kafka, codec, made)
    rows, _, peak = peak_of(kafka, topic, len(made), tmp_path, Layout())
    assert rows == len(made)
    assert peak < LIMIT, f"{peak >> 10} MB"
