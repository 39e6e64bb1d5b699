"""A task writes the same with both readers: rows, files' folders and slices, and the account of the range."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from zkgroup.clients.kafka.client import KafkaSettings
from zkgroup.clients.kafka.native_reader import VARIABLE, native_module
from zkgroup.export.model.layout import Layout
from zkgroup.export.tasks.export_task import run_task
from zkgroup.export.tasks.task_data import FileAnswer, FileOptions, RangeAnswer, TaskSettings
from zkgroup.protocol.names import TopicPartition
from zkgroup.sandbox.topic_admin import Record, produce

NOON, HOUR = 1_714_564_800_000, 3_600_000
MESSAGES = 6000
CONTENTS = [None, b"", b'{"a": 1}', b'{"a": 1', b"text", "ü".encode(), b"\xff", b'"\\ud800"', b"[1, 2]", b"x" * 300]

if native_module() is None:
    pytest.skip("there is no native reader: no compiler was here", allow_module_level=True)


@pytest.fixture
def topic(kafka: KafkaSettings, make_topic: Callable[..., str]) -> str:
    """A topic of one partition: hours one after the other, then in no order, then times that are none."""
    name, dice = make_topic(), random.Random(1)
    records = []
    for number in range(MESSAGES):
        time = NOON + number * 5_000
        if number >= MESSAGES // 2:
            time = NOON + dice.randrange(30) * HOUR
        if number % 100 == 7 and number > MESSAGES // 4:
            time = dice.choice([2**60, 253_402_128_000_000])
        headers = (("h", dice.choice(CONTENTS)),) if dice.random() < 0.3 else ()
        records.append(Record(dice.choice(CONTENTS), dice.choice(CONTENTS), 0, time, headers))
    produce(kafka, name, records)
    return name


def written(kafka: KafkaSettings, topic: str, folder: Path, **options: Any) -> tuple[list[Any], dict[str, Any]]:
    """The accounts of two ranges, and what the files of each folder hold, with their slices."""
    only = options.pop("only", {})
    limit = options.pop("max_bytes", None)
    (folder / "work").mkdir(parents=True)
    files = FileOptions(folder, "work", ("zstd", 1), 64 << 20, {}, Layout(**options), only=only)
    ranges = [(topic, 0, 3, MESSAGES // 2 - 1), (topic, 0, MESSAGES // 2 - 1, MESSAGES - 5)]
    answers: list[Any] = list(run_task(TaskSettings(kafka, files, max_bytes=limit), ranges))
    assert all(isinstance(answer, RangeAnswer | FileAnswer) for answer in answers), answers
    found: dict[str, Any] = {}
    for answer in answers:
        if isinstance(answer, FileAnswer):
            table = pq.read_table(folder / answer.work)
            assert answer.folder not in found
            found[answer.folder] = (answer.rows, answer.slices, table)
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
    accounts, native = written(kafka, topic, tmp_path / "native", **options)
    monkeypatch.setenv(VARIABLE, "0")
    same_accounts, python = written(kafka, topic, tmp_path / "Python", **options)
    assert accounts == same_accounts
    assert sum(account.rows for account in accounts) > 100
    check_same(native, python)


def test_a_repair_writes_the_same_with_both_readers(
    kafka: KafkaSettings, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only some stretches of some folders."""
    layout = Layout(by=("date",))
    calendar = layout.calendar()
    folder = layout.folder(topic, 0, calendar.period(NOON))
    only = {TopicPartition(topic, 0): [(folder, 10, 700), (folder, 3500, 4000)]}
    accounts, native = written(kafka, topic, tmp_path / "native", by=("date",), only=only)
    monkeypatch.setenv(VARIABLE, "0")
    same_accounts, python = written(kafka, topic, tmp_path / "Python", by=("date",), only=only)
    assert accounts == same_accounts
    assert list(native) == [folder]
    check_same(native, python)


def check_same(native: dict[str, Any], python: dict[str, Any]) -> None:
    assert native.keys() == python.keys()
    for folder, (rows, slices, table) in native.items():
        same_rows, same_slices, same = python[folder]
        assert (rows, slices) == (same_rows, same_slices)
        assert isinstance(table, pa.Table)
        assert table.equals(same)
