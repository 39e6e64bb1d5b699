"""Exports through Spark: every message once, whatever happens meanwhile."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from exports import committed_end, files_in, messages_in, mismatches_of, nothing_in, published_in
from lines import names
from pyspark.sql import SparkSession
from support import wait_until

from zkgroup.c_extensions import avro_module
from zkgroup.clients.kafka.client import KafkaSettings, producer
from zkgroup.clients.kafka.native_reader import native_module
from zkgroup.errors import NotFoundError, UsageError, ZkgroupError
from zkgroup.export.model.layout import Layout
from zkgroup.export.model.plan_types import OffsetRange, PartitionPlan, RecordFile, Slice
from zkgroup.export.model.run_record import RecordPart, TopicIdentity
from zkgroup.export.planning.export_request import COMMITTED, LATEST
from zkgroup.export.planning.mismatch import MismatchError, NoOffsetError
from zkgroup.export.run import planner, range_tasks
from zkgroup.export.run.planner import RunPlan
from zkgroup.export.run.range_tasks import AccountError, assemble
from zkgroup.export.run.run_export import ExportRequest, PartitionSummary
from zkgroup.export.spark.spark_context import pack_code
from zkgroup.export.tasks.export_task import run_task
from zkgroup.export.tasks.task_data import DoneAnswer, FileOptions, RangeAnswer, TaskSettings
from zkgroup.protocol.names import TopicPartition
from zkgroup.sandbox.local_cluster import Sandbox
from zkgroup.sandbox.topic_admin import ProducerRecord, produce
from zkgroup.schemas.field_schema import FieldSchema, FieldSchemas

Export = Callable[..., list[PartitionSummary]]
Committed = Callable[..., int | None]
MakeTopic = Callable[..., str]


def rows_of(spark: SparkSession, folder: Path) -> set[tuple[Any, ...]]:
    """What Spark makes of an export: (topic, partition, offset, key, value)."""
    found = spark.read.parquet(str(folder)).select("topic", "partition", "offset", "key", "value").collect()
    return {(t, p, o, None if k is None else bytes(k), None if v is None else bytes(v)) for t, p, o, k, v in found}


def test_every_message_is_there_once_across_two_exports(
    export: Export, make_topic: MakeTopic, kafka: KafkaSettings, unique: Callable[[str], str], committed: Committed,
    spark: SparkSession, tmp_path: Path,
) -> None:  # fmt: skip
    """The first export takes what there is, the second what is new, the third nothing: no message twice or missing."""
    topic, group = make_topic(3), unique("group")
    sent = [ProducerRecord(b"value-%d" % i, b"key-%d" % i, i % 3) for i in range(3000)]
    produce(kafka, topic, sent[:2000])
    first = export(group, topic, range_messages=300)
    assert [(row.partition, row.start, row.end, row.rows, row.files) for row in first] == [
        (0, 0, 667, 667, 3),
        (1, 0, 667, 667, 3),
        (2, 0, 666, 666, 3),
    ]
    sizes = {path.stat().st_size for path in (tmp_path / "out").rglob("*.parquet")}
    assert sum(row.bytes for row in first) == sum(path.stat().st_size for path in (tmp_path / "out").rglob("*.parquet"))
    assert min(sizes) > 0
    produce(kafka, topic, sent[2000:])
    second = export(group, begin=COMMITTED)
    assert [(row.start, row.end, row.rows) for row in second] == [(667, 1000, 333), (667, 1000, 333), (666, 1000, 334)]
    assert [(row.start, row.end, row.rows, row.files) for row in export(group)] == [(1000, 1000, 0, 0)] * 3
    assert [committed(group, topic, number) for number in range(3)] == [1000] * 3
    rows = rows_of(spark, tmp_path / "out")
    assert len(messages_in(tmp_path / "out")) == 3000
    assert rows == {(topic, i % 3, i // 3, record.key, record.value) for i, record in enumerate(sent)}


def test_transactions_are_exported_as_committed_readers_see_them(
    export: Export, make_topic: MakeTopic, kafka: KafkaSettings, unique: Callable[[str], str], committed: Committed,
    tmp_path: Path,
) -> None:  # fmt: skip
    """Committed messages are there, aborted ones and markers are not, an open transaction waits for the next export."""
    topic, group = make_topic(), unique("group")
    client = producer(kafka, transactional_id=topic)
    client.init_transactions(30)
    for number, committed_one in enumerate([True, False, True]):
        client.begin_transaction()
        client.produce(topic, b"%d" % number, partition=0)
        client.flush(30)
        (client.commit_transaction if committed_one else client.abort_transaction)(30)
    client.begin_transaction()
    client.produce(topic, b"open", partition=0)
    client.flush(30)
    (summary,) = export(group, topic)
    assert [row["value"] for row in messages_in(tmp_path / "out")] == [b"0", b"2"]
    assert committed(group, topic) == summary.end == 6  # three messages, three markers
    client.commit_transaction(30)
    wait_until(lambda: committed_end(kafka, topic) == 8)
    (summary,) = export(group, topic)
    assert (summary.start, summary.end, summary.rows) == (6, 8, 1)
    assert [row["value"] for row in messages_in(tmp_path / "out")] == [b"0", b"2", b"open"]


def test_a_range_without_messages_moves_the_offset_and_writes_no_file(
    export: Export, make_topic: MakeTopic, kafka: KafkaSettings, unique: Callable[[str], str], committed: Committed,
    tmp_path: Path,
) -> None:  # fmt: skip
    """A log of aborted messages alone is passed over: no empty file, and the next export does not read it again."""
    topic, group = make_topic(), unique("group")
    client = producer(kafka, transactional_id=topic)
    client.init_transactions(30)
    client.begin_transaction()
    client.produce(topic, b"x", partition=0)
    client.flush(30)
    client.abort_transaction(30)
    wait_until(lambda: committed_end(kafka, topic) == 2)
    (summary,) = export(group, topic)
    assert (summary.start, summary.end, summary.rows, summary.files) == (0, 2, 0, 0)
    assert committed(group, topic) == 2
    assert published_in(tmp_path / "out") == []


def test_a_file_that_grows_is_followed_by_another(
    export: Export, make_topic: MakeTopic, kafka: KafkaSettings, unique: Callable[[str], str], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Files are cut at the size asked for, between messages, and their names still tell every offset once."""
    topic = make_topic()
    produce(kafka, topic, [ProducerRecord(b"%d" % i * 20_000, None, 0) for i in range(1000)])
    (summary,) = export(unique("group"), topic, target_bytes=2 << 20, compression="none")
    folder = tmp_path / "out" / f"topic={topic}" / "partition=0"
    edges = sorted(tuple(map(int, path.stem.split("-"))) for path in folder.iterdir())
    assert summary.files == len(edges) > 1
    assert [start for start, _ in edges] == [0, *(end for _, end in edges[:-1])]
    assert edges[-1][1] == 1000
    for start, end in edges:
        assert pq.read_table(folder / f"{start}-{end}.parquet")["offset"].to_pylist() == list(range(start, end))


@pytest.mark.parametrize("compression", ["zstd", "snappy", "gzip", "lz4", "none"])
def test_every_compression_is_read_by_spark(
    export: Export, make_topic: MakeTopic, fill: Callable[..., list[ProducerRecord]], unique: Callable[[str], str],
    spark: SparkSession, tmp_path: Path, compression: str,
) -> None:  # fmt: skip
    """All that can be asked for can be read elsewhere."""
    topic = make_topic()
    fill(topic, 50)
    export(unique("group"), topic, compression=compression)
    assert len(rows_of(spark, tmp_path / "out")) == 50


def test_a_group_needs_a_start(
    export: Export, make_topic: MakeTopic, fill: Callable[..., list[ProducerRecord]], unique: Callable[[str], str],
    committed: Committed, tmp_path: Path,
) -> None:  # fmt: skip
    """Without an offset: refused; from latest: committed at once, so that the next export takes what is new."""
    topic, group = make_topic(), unique("group")
    fill(topic, 10)
    with pytest.raises(NoOffsetError, match=rf"{topic}-0\b.*--from"):
        export(group, topic, begin=COMMITTED)
    assert committed(group, topic) is None
    assert [(row.start, row.end, row.files) for row in export(group, topic, begin=LATEST)] == [(10, 10, 0)]
    assert committed(group, topic) == 10
    fill(topic, 5)
    assert [(row.start, row.end, row.rows) for row in export(group)] == [(10, 15, 5)]


def test_what_is_exported_already_is_not_doubled(
    export: Export, make_topic: MakeTopic, fill: Callable[..., list[ProducerRecord]], unique: Callable[[str], str],
    commit: Callable[..., None], tmp_path: Path,
) -> None:  # fmt: skip
    """The group was set back below what the folder has already: refused, with both positions."""
    topic, group = make_topic(), unique("group")
    fill(topic, 10)
    export(group, topic)
    commit(group, {TopicPartition(topic, 0): 4})
    with pytest.raises(MismatchError, match="--on-mismatch") as refused:
        export(group, topic)
    assert mismatches_of(refused.value) == [(TopicPartition(topic, 0), "behind", 4, 10)]
    assert names(refused.value.message, f"{topic}-0", 4, 10)
    assert published_in(tmp_path / "out") == [f"topic={topic}/partition=0/0-10.parquet"]


def test_a_task_that_fails_fails_the_export_with_its_own_words(
    export: Export, make_topic: MakeTopic, fill: Callable[..., list[ProducerRecord]], unique: Callable[[str], str],
    committed: Committed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """What a task meets arrives as the error it was, not as a traceback of Spark's; nothing is left or committed."""
    topic, group = make_topic(), unique("group")
    fill(topic, 10)

    def longer(*args: object, **options: object) -> object:
        plan = original(*args, **options)
        (part,) = plan.partitions
        return replace(plan, partitions=(replace(part, end=60),))

    original = planner.make_plan
    monkeypatch.setattr(planner, "make_plan", longer)
    monkeypatch.setattr(range_tasks, "TaskSettings", partial(TaskSettings, silence_timeout=2.0))
    with pytest.raises(ZkgroupError, match=rf"{topic}-0\b.*\b10\b.*\b60\b"):
        export(group, topic)
    assert nothing_in(tmp_path / "out")
    assert committed(group, topic) is None


def test_a_folder_that_tasks_cannot_write_to_is_named(
    export: Export, make_topic: MakeTopic, fill: Callable[..., list[ProducerRecord]], unique: Callable[[str], str],
    tmp_path: Path,
) -> None:  # fmt: skip
    """Found out before anything is read, with the folder's name."""
    topic = make_topic()
    fill(topic, 1)
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match=str(tmp_path / "file")):
        export(unique("group"), topic, root=tmp_path / "file" / "out")


T0 = TopicPartition("t", 0)
PLAN = RunPlan(
    "00000001-aaaaaaaa", ExportRequest("g", Path("/out"), range_messages=10), ("c",), 0, "read_committed",
    {"t": TopicIdentity(7)}, (PartitionPlan(T0, 0, 3, 0, 20),), {}, Layout(),
)  # fmt: skip


def done(
    start: int, end: int, rows: int = 0, *, partition: int = 0, reached: int | None = None, **gaps: int
) -> RangeAnswer:
    """A task's answer for ``[start, end)``."""
    reached = end if reached is None else reached
    return RangeAnswer(OffsetRange(TopicPartition("t", partition), start, end), reached, gaps, rows, 0, 0, {})


def file(name: str, *slices: tuple[int, int, int, int]) -> RecordFile:
    """A task's answer for a file, with (partition, start, end, rows)."""
    held = tuple(Slice(*one) for one in slices)
    return RecordFile(f"{name}.tmp", f"topic=t/{name}", "t", sum(one.rows for one in held), 100, held)


FIRST, SECOND = done(0, 10, transactions=10), done(10, 20, transactions=10)


@pytest.mark.parametrize(
    "answers",
    [
        [],
        [FIRST],
        [FIRST, done(10, 20, 10), file("b", (0, 10, 15, 9))],
        [FIRST, done(10, 20, 10), file("b", (0, 10, 15, 5)), file("c", (0, 15, 21, 5))],
        [FIRST, done(10, 20, 10), file("b", (0, 10, 16, 5)), file("c", (0, 15, 20, 5))],
        [FIRST, done(10, 20, 9), file("b", (0, 10, 20, 9))],
        [FIRST, done(10, 20, 10), file("b", (0, 10, 20, 10), (1, 0, 5, 5))],
        [FIRST, SECOND, file("b", (0, 10, 20, 0)), file("b", (0, 10, 20, 0))],
        [FIRST, done(10, 20, reached=15, transactions=5)],
        [FIRST, done(10, 20, reached=21, transactions=11)],
        [FIRST, SECOND, done(0, 1, partition=1)],
        [FIRST, SECOND, done(10, 20)],
    ],
)
def test_answers_that_are_not_the_plan_are_not_committed(answers: list[DoneAnswer]) -> None:
    """A range that is missing, half written, doubled or foreign, or whose offsets do not add up, stops the export
    before anything is published."""
    with pytest.raises(AccountError):
        assemble(PLAN, answers)


def test_answers_in_any_order_make_the_plan() -> None:
    """Tasks end as they like: files come in the order of the plan, and a range without messages has none."""
    answers = [
        done(10, 20, 9, transactions=1),
        file("c", (0, 12, 20, 8)),
        done(0, 10, transactions=4, compaction=6),
        file("b", (0, 10, 12, 1)),
    ]
    made = assemble(replace(PLAN, layout=Layout(())), answers)
    assert made.parts == [RecordPart(T0, 0, 3, 0, 20, rows=9, undecodable=0, gaps={"transactions": 5, "compaction": 6})]
    assert made.files == [answers[3], answers[1]]


_ELSEWHERE = """
import pickle, sys
sys.path.insert(0, sys.argv[1])
sys.modules |= dict.fromkeys(("kazoo", "msgspec", "regex", "rich", "typer"))  # executors need none of these
task, settings = pickle.load(sys.stdin.buffer)
from zkgroup.export.model.plan_types import OffsetRange, TopicPartition
answers = [
    answer
    for topic in (sys.argv[2], "missing-topic")
    for answer in task(settings, [OffsetRange(TopicPartition(topic, 0), 0, 10)])
]
used = {m.__file__ for name, m in sys.modules.items() if name.partition(".")[0] == "zkgroup" and m.__file__}
assert used and all(file.startswith(sys.argv[1]) for file in used), used
for extension in ("zkgroup.clients.kafka._native", "zkgroup.schemas._avro"):
    assert (extension in sys.modules) == (sys.argv[3] == "native")
sys.stdout.buffer.write(pickle.dumps(answers))
"""


@pytest.mark.parametrize("reader", ["native", "Python", "foreign"])
def test_tasks_run_on_the_code_that_travels_with_them(
    make_topic: MakeTopic, fill: Callable[..., list[ProducerRecord]], cluster: Sandbox, tmp_path: Path, reader: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """What is shipped to a cluster is enough: a task works with that alone, and imports nothing of ours besides. The
    extensions travel where this process may use them; a task goes without those of another platform."""
    topic = make_topic()
    fill(topic, 10)
    if reader == "Python":
        monkeypatch.setenv("ZKGROUP_NATIVE", "0")
    elif (native := native_module()) is None or (avro := avro_module()) is None:
        pytest.skip("there are no C extensions")
    elif reader == "foreign":
        foreign = tmp_path / "foreign.so"
        foreign.write_bytes(b"\x7fELF of another machine")
        for extension in (native, avro):
            monkeypatch.setattr(extension, "__file__", str(foreign))
    code = pack_code(tmp_path / "code.zip")
    out = tmp_path / "out"
    (out / "work").mkdir(parents=True)
    schemas = FieldSchemas(value=FieldSchema("avro", '{"type": "fixed", "name": "All", "size": 7}'))
    files = FileOptions(out, "work", ("zstd", 1), 1 << 20, "g", "00000001-aaaaaaaa", Layout(value="avro"), schemas)
    settings = TaskSettings(KafkaSettings(cluster.bootstrap), files, silence_timeout=0.2)
    done = subprocess.run(
        [sys.executable, "-c", _ELSEWHERE, f"./{code.name}", topic, reader],  # so executors name it
        cwd=tmp_path,
        input=pickle.dumps((run_task, settings)),
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    first, written, second = pickle.loads(done.stdout)
    assert isinstance(first, RangeAnswer)
    piece = OffsetRange(TopicPartition(topic, 0), 0, 10)
    assert (first.piece, first.rows, first.undecodable) == (piece, 10, 0)
    assert isinstance(written, RecordFile)
    assert ([f"work/{written.work}"], written.topic) == (files_in(out), topic)
    assert isinstance(second, NotFoundError)
