"""A task writes the same with both readers: rows, files' folders and slices, and the account of the range."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from raw_batches import send_raw
from support import fresh_name

from zkgroup.clients.kafka.client import KafkaSettings, producer
from zkgroup.clients.kafka.log_offsets import LogRange, log_offsets
from zkgroup.clients.kafka.native_reader import native_module
from zkgroup.clients.kafka.range_reader import RangeReader, range_consumer
from zkgroup.export.model.layout import Layout
from zkgroup.export.model.plan_types import OffsetRange, RecordFile
from zkgroup.export.tasks.export_task import run_task
from zkgroup.export.tasks.task_data import FileOptions, RangeAnswer, TaskSettings
from zkgroup.protocol.names import TopicPartition
from zkgroup.sandbox.local_cluster import Sandbox
from zkgroup.sandbox.topic_admin import ProducerRecord, create_topic, produce

NOON, HOUR = 1_714_564_800_000, 3_600_000
MESSAGES = 6000
CONTENTS = [None, b"", b'{"a": 1}', b'{"a": 1', b"text", "ü".encode(), b"\xff", b'"\\ud800"', b"[1, 2]", b"x" * 300]

if native_module() is None:
    pytest.skip("there is no native reader", allow_module_level=True)

BY_HOUR = {"by": ("date", "hour"), "key": "text", "value": "json"}


@pytest.fixture
def topic(kafka: KafkaSettings, make_topic: Callable[..., str]) -> str:
    """A topic of one partition, with ``records``."""
    name = make_topic()
    produce(kafka, name, records())
    return name


def records(*, headers: bool = True, times: bool = True) -> list[ProducerRecord]:
    """Hours one after the other, then in no order, then times that are none."""
    made, dice = [], random.Random(1)
    for number in range(MESSAGES):
        time = NOON + number * 5_000
        if number >= MESSAGES // 2:
            time = NOON + dice.randrange(30) * HOUR
        if number % 100 == 7 and number > MESSAGES // 4:
            time = dice.choice([2**60, 253_402_128_000_000])
        pairs = (("h", dice.choice(CONTENTS)),) if dice.random() < 0.3 else ()
        key, value = dice.choice(CONTENTS), dice.choice(CONTENTS)
        made.append(ProducerRecord(key, value, 0, time if times else None, pairs if headers else ()))
    return made


def write_topic(kafka: KafkaSettings, topic: str, folder: Path, **options: Any) -> tuple[list[Any], dict[str, Any]]:
    """The accounts of two ranges, and what the files of each folder hold, with their slices."""
    only = options.pop("only", {})
    limit, cleanup = options.pop("max_bytes", None), options.pop("cleanup", "delete")
    ranges = options.pop("ranges", [(3, MESSAGES // 2 - 1), (MESSAGES // 2 - 1, MESSAGES - 5)])
    (folder / "work").mkdir(parents=True)
    files = FileOptions(folder, "work", ("zstd", 1), 64 << 20, "g", "00000001-aaaaaaaa", Layout(**options), only=only)
    settings = TaskSettings(kafka, files, cleanup={topic: cleanup}, max_bytes=limit)
    answers: list[Any] = list(run_task(settings, (OffsetRange(TopicPartition(topic, 0), *ends) for ends in ranges)))
    assert all(isinstance(answer, RangeAnswer | RecordFile) for answer in answers), answers
    found: dict[str, Any] = {}
    for answer in answers:
        if isinstance(answer, RecordFile):
            table, place = pq.read_table(folder / "work" / answer.work), answer.name.rpartition("/")[0]
            assert place not in found
            found[place] = (answer.rows, answer.ranges, table)
    return [answer for answer in answers if isinstance(answer, RangeAnswer)], found


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"by": ("partition",)},
        {"key": "text", "value": "json"},
        {"key": "json", "value": "text", "by": ("date",)},
        {"by": ("date", "hour")},
        {"by": ("partition", "date", "hour"), "zone": "Asia/Kolkata"},
        {"max_bytes": 50_000},
        {"max_bytes": 50_000, "by": ("date",)},
    ],
    ids=str,
)
def test_a_task_writes_the_same_with_both_readers(
    kafka: KafkaSettings, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    """In each layout, with and without a limit of bytes."""
    accounts = compare(kafka, topic, tmp_path, monkeypatch, **options)
    assert sum(account.rows for account in accounts) > 100


@pytest.mark.parametrize(
    ("release", "options"),
    [
        ("0.8.2.2", {}),
        ("3.9.1", BY_HOUR),
        *(
            pytest.param(release, options, marks=pytest.mark.long)
            for release, options in (("0.8.2.2", BY_HOUR), ("0.10.2.2", {}), ("0.10.2.2", BY_HOUR), ("3.9.1", {}))
        ),
    ],
    ids=str,
)
def test_a_task_writes_the_same_of_other_releases(
    zookeeper: Sandbox, make_sandbox: Callable[..., Sandbox], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    release: str, options: dict[str, Any],
) -> None:  # fmt: skip
    """Messages without times, without headers, and those of today."""
    sandbox = make_sandbox(kafka=release, zookeeper=zookeeper.address, chroot=f"/{fresh_name('readers')}")
    legacy = "0.8.2.2" if release.startswith("0.8") else None
    kafka, name = KafkaSettings(sandbox.bootstrap, legacy_release=legacy), fresh_name("topic")
    with sandbox.registry(30.0) as registry:
        create_topic(registry, name)
    produce(kafka, name, records(headers=release == "3.9.1", times=legacy is None))
    compare(kafka, name, tmp_path, monkeypatch, **options)


def test_a_task_writes_the_same_of_a_log_with_gaps(
    kafka: KafkaSettings, make_topic: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Aborted messages, markers among and behind the messages, headers that are no text."""
    name = make_topic()
    send_raw(kafka.bootstrap, name, [[(b"ok", b"1")], [(b"\xff", b"2")], []])
    client = producer(kafka, transactional_id=name)
    client.init_transactions(30)
    for number in range(40):
        client.begin_transaction()
        for _ in range(100):
            client.produce(name, b"%d" % number, partition=0)
        client.flush(30)  # an abort would drop what is queued
        (client.abort_transaction if number % 3 else client.commit_transaction)(30)
    end = 3 + 40 * 101
    accounts = compare(kafka, name, tmp_path, monkeypatch, ranges=[(0, 1000), (1000, end)])
    assert sum(account.rows for account in accounts) == 3 + 14 * 100
    assert sum(account.undecodable for account in accounts) == 1
    assert sum(account.gaps["transactions"] for account in accounts) == 26 * 100 + 40


def test_a_task_writes_the_same_of_a_compacted_log(
    kafka: KafkaSettings, compacted: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Offsets are missing in its middle. Where the broker compacts it once more meanwhile, it is compared again."""
    end = log_offsets(kafka, [TopicPartition(compacted, 0)], 30)[TopicPartition(compacted, 0)]
    assert isinstance(end, LogRange)
    options: dict[str, Any] = {"ranges": [(0, end.end)], "cleanup": "compact"}
    for attempt in range(10):
        kept = message_count(kafka, compacted, end.end)
        try:
            with monkeypatch.context() as patch:
                (account,) = compare(kafka, compacted, tmp_path / str(attempt), patch, **options)
        except AssertionError:
            if message_count(kafka, compacted, end.end) == kept:
                raise
        else:
            break
    assert account.gaps == {"compaction": end.end - account.rows}
    assert 0 < account.rows < end.end


def message_count(kafka: KafkaSettings, topic: str, end: int) -> int:
    with closing(range_consumer(kafka)) as source:
        return sum(map(len, RangeReader(source).batches(TopicPartition(topic, 0), 0, end)))


def test_a_repair_writes_the_same_with_both_readers(
    kafka: KafkaSettings, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only some stretches of some folders."""
    layout = Layout(by=("date",))
    calendar = layout.calendar()
    folder = layout.folder(topic, 0, calendar.period(NOON))
    only = {TopicPartition(topic, 0): [(folder, 10, 700), (folder, 3500, 4000)]}
    compare(kafka, topic, tmp_path, monkeypatch, by=("date",), only=only)


def compare(
    kafka: KafkaSettings, topic: str, folder: Path, monkeypatch: pytest.MonkeyPatch, **options: Any
) -> list[RangeAnswer]:
    """Write a topic with both readers: accounts, folders, slices and contents are equal. The accounts."""
    accounts, native = write_topic(kafka, topic, folder / "native", **options)
    monkeypatch.setenv("ZKGROUP_NATIVE", "0")
    same_accounts, python = write_topic(kafka, topic, folder / "Python", **options)
    assert accounts == same_accounts
    assert native.keys() == python.keys()
    if "only" in options:
        assert set(native) == {place for wanted in options["only"].values() for place, _, _ in wanted}
    for place, (rows, slices, table) in native.items():
        same_rows, same_slices, same = python[place]
        assert (rows, slices) == (same_rows, same_slices)
        assert isinstance(table, pa.Table)
        assert table.equals(same)
    return accounts
