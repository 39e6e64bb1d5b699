"""What a task holds in memory: the same for a long range as for a short one, with large messages and in each layout."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from support import fresh_name

from zkgroup.export.layout import Layout
from zkgroup.export.taskdata import FileOptions, TaskSettings
from zkgroup.sandbox.topics import Record, produce
from zkgroup.servers.kafka import KafkaSettings

NOON = 1_714_564_800_000  # 2024-05-01T12:00Z
MESSAGES, SIZE = 18, 10_000_000
LIMIT = 250 << 10  # KiB

_TASK = """
import pickle, re, sys
from zkgroup.export.task import run_task
settings, topic, end = pickle.load(sys.stdin.buffer)
answers = list(run_task(settings, [(topic, 0, 0, end)]))
assert [answer[0] for answer in answers if answer[0] != "file"] == ["done"], answers
rows = sum(answer.rows for answer in answers if answer[0] == "file")
files = sum(answer[0] == "file" for answer in answers)
status = open("/proc/self/status").read()
print(rows, files, re.search(r"VmHWM:\\s+([0-9]+) kB", status)[1])
"""


@pytest.fixture(scope="module")
def large(kafka: KafkaSettings) -> str:
    """A topic with some messages of 10 MB of JSON, each of another hour, in no order."""
    topic = fresh_name("large")
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1, config={"max.message.bytes": "20000000"})])[topic].result(30)
    value = b'"' + bytes(SIZE - 2).replace(b"\0", b"x") + b'"'
    settings = KafkaSettings(kafka.bootstrap, {"message.max.bytes": "20000000"})
    produce(settings, topic, [Record(value, b"k", 0, NOON + i * 7 % MESSAGES * 3_600_000) for i in range(MESSAGES)])
    return topic


@pytest.mark.parametrize(
    ("layout", "files"),
    [(Layout(), 1), (Layout(("date", "hour")), MESSAGES), (Layout((), "UTC", "text", "json"), 1)],
    ids=["partition", "hour", "json"],
)
def test_a_task_with_messages_of_ten_megabytes_stays_small(
    large: str, kafka: KafkaSettings, unique: Callable[[str], str], tmp_path: Path, layout: Layout, files: int
) -> None:
    """180 MB go through a task's process, whose memory never passes the bound, as Spark's workers are
    set up."""
    (tmp_path / "work").mkdir()
    options = FileOptions(tmp_path, "work", ("zstd", 1), 512 << 20, {}, layout)
    environment = os.environ | {
        "ARROW_DEFAULT_MEMORY_POOL": "system",
        "MALLOC_MMAP_THRESHOLD_": str(4 << 20),
        "MALLOC_TRIM_THRESHOLD_": str(32 << 20),
    }
    done = subprocess.run(
        [sys.executable, "-c", _TASK],
        input=pickle.dumps((TaskSettings(kafka, options), large, MESSAGES)),
        env=environment,
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    rows, written, peak = map(int, done.stdout.split())
    assert (rows, written) == (MESSAGES, files)
    assert peak < LIMIT, f"{peak >> 10} MB"
