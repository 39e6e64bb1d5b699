"""What exports read of real logs, from where to where, and how they account for what is not there."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from exports import messages_in, mismatches_of, nothing_in, problem_rows, published_in
from lines import names
from resets import drop_messages
from support import wait_until
from topic_changes import add_partitions

from zkgroup.clients.kafka.client import KafkaSettings, KafkaTopicPartition, admin_client, producer
from zkgroup.clients.kafka.log_offsets import LogRange, log_offsets
from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.errors import RefusedError, UsageError
from zkgroup.export.destination.run_log import Destination
from zkgroup.export.model.run_record import RunRecord
from zkgroup.export.planning.export_request import COMMITTED, EARLIEST, LATEST, Bound, parse_bound
from zkgroup.export.planning.group_state import GroupState
from zkgroup.export.planning.mismatch import MismatchError
from zkgroup.export.planning.notices import GapNotice
from zkgroup.export.run.run_export import PartitionSummary
from zkgroup.protocol.names import TopicPartition
from zkgroup.sandbox.topic_admin import ProducerRecord, produce

Export = Callable[..., list[PartitionSummary]]
Committed = Callable[..., int | None]


@pytest.fixture
def export(in_process: Export) -> Export:
    """One export without Spark."""
    return in_process


@pytest.fixture
def record(destination: Destination) -> Callable[[str], RunRecord]:
    """``record(group)``: that of the group's newest run."""

    def read(group: str) -> RunRecord:
        found = destination.newest(group)
        assert found is not None
        return found

    return read


def gap_of(notice: GapNotice) -> tuple[TopicPartition, int, int, int, str]:
    """What a warning says is not exported: a partition, offsets, how many of these, and why."""
    return notice.partition, notice.start, notice.end, notice.count, notice.kind


def log_of(kafka: KafkaSettings, topic: str, *, committed: bool = True) -> LogRange:
    found = log_offsets(kafka, [TopicPartition(topic, 0)], 10, read_committed=committed)[TopicPartition(topic, 0)]
    assert isinstance(found, LogRange)
    return found


def delete_records(kafka: KafkaSettings, topic: str, before: int) -> None:
    """As retention does: the log begins at ``before``."""
    admin = admin_client(kafka, 10)  # kept: its answers come through it
    for future in admin.delete_records([KafkaTopicPartition(topic, 0, before)]).values():
        future.result(10)
    wait_until(lambda: log_of(kafka, topic).start == before)


def produce_transactions(kafka: KafkaSettings, topic: str, sizes: list[int]) -> int:
    """Transactions of so many messages each, those of negative size aborted; how long the log is then."""
    client = producer(kafka, transactional_id=topic)
    client.init_transactions(30)
    for size in sizes:
        client.begin_transaction()
        for _ in range(abs(size)):
            client.produce(topic, b"aborted" if size < 0 else b"committed", partition=0)
        client.flush(30)
        (client.commit_transaction if size > 0 else client.abort_transaction)(30)
    length = sum(abs(size) + 1 for size in sizes)
    wait_until(lambda: log_of(kafka, topic).end == length, what="the last marker is written")
    return length


@pytest.mark.parametrize(
    ("isolation", "rows", "gaps"), [("read_committed", 7, 309), ("read_uncommitted", 312, 4), (None, 7, 309)]
)
def test_transactions_are_accounted_for(
    export: Export, make_topic: Callable[..., str], kafka: KafkaSettings, unique: Callable[[str], str],
    record: Callable[[str], RunRecord], tmp_path: Path, isolation: str | None, rows: int, gaps: int,
) -> None:  # fmt: skip
    """Markers and aborted messages, also more of them in a row than markers ever are, are explained; at the other level
    the aborted ones are rows."""
    topic, group = make_topic(), unique("group")
    length = produce_transactions(kafka, topic, [3, -300, 4, -5])
    (row,) = export(group, topic, isolation=isolation)
    assert (row.start, row.end, row.rows) == (0, length, rows)
    (part,) = record(group).partitions
    assert (part.gaps, part.rows, part.undecodable) == ({"transactions": gaps}, rows, 0)
    values = [message["value"] for message in messages_in(tmp_path / "out")]
    assert values.count(b"committed") == 7
    assert len(values) == rows
    assert record(group).isolation == isolation or "read_committed"


def test_compaction_is_accounted_for(
    export: Export, compacted: str, unique: Callable[[str], str], record: Callable[[str], RunRecord]
) -> None:
    """What compaction took is a gap of that name, known by the topic's policy."""
    group = unique("group")
    (row,) = export(group, compacted)
    (part,) = record(group).partitions
    assert part.gaps == {"compaction": row.end - row.rows}
    assert row.rows < row.end


def test_what_nothing_explains_is_refused(
    export: Export, compacted: str, unique: Callable[[str], str], record: Callable[[str], RunRecord],
    committed: Committed, destination: Destination, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Offsets missing from the middle of a topic that is not compacted: exit 5 with the stretch; or recorded."""
    from zkgroup.export.planning import group_state as module

    # The one thing that is not real here: what the brokers say of this topic's policy.
    monkeypatch.setattr(module, "cleanup_policies", lambda _, topics, __: dict.fromkeys(topics, "delete"))
    monkeypatch.setattr("zkgroup.export.model.accounting.MARKERS", 3)
    group = unique("group")
    with pytest.raises(RefusedError) as refused:
        export(group, compacted)
    assert committed(group, compacted) is None
    assert nothing_in(tmp_path / "out")
    warnings: list[Any] = []
    (row,) = export(group, compacted, on_mismatch="lake", on_warning=warnings.append)
    (part,) = record(group).partitions
    missing = part.gaps["unexplained"]
    assert missing > 3
    assert part.is_balanced
    assert names(str(refused.value), f"{compacted}-0", missing, 0, row.end - 1, "--on-mismatch group")
    partition = TopicPartition(compacted, 0)
    assert list(map(gap_of, warnings)) == [(partition, 0, row.end, missing, "unexplained")]
    (problem,) = problem_rows(destination)
    assert (problem.topic, problem.start, problem.end) == (compacted, 0, row.end)
    assert names(str(problem.problem), missing)
    assert problem.mend is None  # nothing is advised that would do nothing
    assert committed(group, compacted) == row.end


def test_retention_that_overtakes_the_plan_is_refused_or_recorded(
    export: Export, make_topic: Callable[..., str], kafka: KafkaSettings, unique: Callable[[str], str],
    record: Callable[[str], RunRecord], commit: Callable[..., None], committed: Committed, tmp_path: Path,
) -> None:  # fmt: skip
    """Messages deleted between plan and reading: the range that is gone is named; with an answer to that the next one
    takes what is left, of what it was to read and of what it reads itself, and the record has both gaps."""
    topic, group = make_topic(), unique("group")
    produce(kafka, topic, [ProducerRecord(b"%d" % i, None, 0) for i in range(100)])

    commit(group, {TopicPartition(topic, 0): 0})

    def overtake(point: str) -> None:
        if point == "planned":
            delete_records(kafka, topic, 30)

    with pytest.raises(RefusedError, match=rf"{topic}-0\b.*\b0\b.*\b29\b.*\b30\b.*--on-mismatch"):
        export(group, topic, on_point=overtake)
    assert committed(group, topic) == 0
    assert nothing_in(tmp_path / "out")

    def again(point: str) -> None:
        if point == "planned":
            delete_records(kafka, topic, 60)

    warnings: list[Any] = []
    (row,) = export(group, topic, on_point=again, on_mismatch="lake", on_warning=warnings.append)
    assert (row.start, row.end, row.rows) == (30, 100, 40)
    assert list(map(gap_of, warnings)) == [
        (TopicPartition(topic, 0), 0, 30, 30, "retention"),
        (TopicPartition(topic, 0), 30, 100, 30, "retention"),
    ]
    assert names(str(warnings[0]), f"{topic}-0", 0, 29, "retention")
    assert names(str(warnings[1]), f"{topic}-0", 30, 30, 99, "retention")
    assert record(group).partitions[0].gaps == {"retention": 30}
    assert [message["value"] for message in messages_in(tmp_path / "out")] == [b"%d" % i for i in range(60, 100)]


def test_retention_that_overtakes_a_run_is_reported(
    export: Export, make_topic: Callable[..., str], kafka: KafkaSettings, unique: Callable[[str], str]
) -> None:
    """With a range that was to be read, and where the log begins now; the next export asks how to continue."""
    topic, group = make_topic(4), unique("group")
    produce(kafka, topic, [ProducerRecord(b"%d" % i, None, i % 4) for i in range(400)])

    def overtake(point: str) -> None:
        if point == "planned":
            for number, low in ((1, 55), (2, 100)):
                drop_messages(kafka, TopicPartition(topic, number), low)

    with pytest.raises(RefusedError) as raised:
        export(group, topic, on_point=overtake, range_messages=10)
    gone = [
        (f"{topic}-{number}", start, end - 1, end - start, low)
        for number, low in ((1, 55), (2, 100))
        for start in range(0, low, 10)
        for end in (min(start + 10, low),)
    ]
    assert any(names(str(raised.value), *facts, "--on-mismatch") for facts in gone)


def test_retention_that_overtook_the_group_is_refused_or_recorded(
    export: Export, make_topic: Callable[..., str], kafka: KafkaSettings, unique: Callable[[str], str],
    record: Callable[[str], RunRecord], commit: Callable[..., None],
) -> None:  # fmt: skip
    """Before the plan: refused by name, or with an answer passed over, named in a warning and in the record."""
    topic, group, warnings = make_topic(), unique("group"), list[Any]()
    partition = TopicPartition(topic, 0)
    produce(kafka, topic, [ProducerRecord(b"%d" % i, None, 0) for i in range(50)])
    commit(group, {partition: 10})
    delete_records(kafka, topic, 20)
    with pytest.raises(MismatchError) as refused:
        export(group, topic)
    assert mismatches_of(refused.value) == [(partition, "expired", 10, None)]
    (row,) = export(group, topic, on_mismatch="lake", on_warning=warnings.append)
    assert (row.start, row.rows) == (20, 30)
    assert list(map(gap_of, warnings)) == [(partition, 10, 20, 10, "retention")]
    assert [tuple(gap) for gap in record(group).partitions[0].skipped] == [("retention", 10, 20)]


def test_limits_of_messages_and_bytes_take_several_runs(
    export: Export, make_topic: Callable[..., str], kafka: KafkaSettings, unique: Callable[[str], str],
    committed: Committed, tmp_path: Path,
) -> None:  # fmt: skip
    """Each run takes a share of each partition and commits it, the next one goes on there; then all is there once."""
    topic, group = make_topic(2), unique("group")
    sent = [ProducerRecord(random.Random(i).randbytes(100), b"k" * 10, i % 2) for i in range(300)]
    produce(kafka, topic, sent)
    assert [(r.start, r.end) for r in export(group, topic, max_messages=61)] == [(0, 30), (0, 31)]
    ends = [(row.end, row.rows) for row in export(group, topic, max_bytes=2 * 110 * 20 - 10)]
    assert ends == [(50, 20), (51, 20)]
    assert [committed(group, topic, p) for p in range(2)] == [50, 51]
    assert [(r.end, r.rows) for r in export(group, topic, max_bytes=1)] == [(51, 1), (52, 1)]
    export(group, topic)
    found = [(m["partition"], m["offset"], m["value"]) for m in messages_in(tmp_path / "out")]
    assert found == sorted((record.partition, i // 2, record.value) for i, record in enumerate(sent))


def test_a_backfill_fills_what_is_missing_and_moves_nobody(
    export: Export, make_topic: Callable[..., str], fill: Callable[..., object], unique: Callable[[str], str],
    commit: Callable[..., None], committed: Committed, tmp_path: Path,
) -> None:  # fmt: skip
    """What lies before the first export, and a gap that the group left once an export has recorded it; a second
    backfill finds nothing, and the next export continues where exports end."""
    topic, group = make_topic(), unique("group")
    fill(topic, 100)
    partition = TopicPartition(topic, 0)
    commit(group, {partition: 20})
    export(group, topic, until=parse_bound(f"{topic}:0=40", group, "--until"))
    commit(group, {partition: 60})
    with pytest.raises(MismatchError) as refused:
        export(group, topic)
    assert mismatches_of(refused.value) == [(partition, "ahead", 60, 40)]
    # What lies behind the exports' end is for the next export.
    rows = export(group, topic, backfill=True, until=Bound("committed"))
    assert [(row.start, row.end, row.rows) for row in rows] == [(0, 20, 20)]
    assert committed(group, topic) == 60
    rows = export(group, topic, on_mismatch="group", max_messages=10)
    assert [(row.start, row.end) for row in rows] == [(60, 70)]
    rows = export(group, topic, backfill=True, until=Bound("committed"))
    assert [(row.start, row.end, row.rows) for row in rows] == [(40, 60, 20)]
    assert export(group, topic, backfill=True, until=Bound("committed")) == []
    assert committed(group, topic) == 70
    (row,) = export(group, topic)
    assert (row.start, row.end) == (70, 100)
    assert [message["offset"] for message in messages_in(tmp_path / "out")] == list(range(100))
    with pytest.raises(UsageError, match=r"--backfill.*--from earliest"):
        export(group, topic, backfill=True, begin=COMMITTED)


def test_destination_and_group_must_agree(
    export: Export, make_topic: Callable[..., str], fill: Callable[..., object], unique: Callable[[str], str],
    commit: Callable[..., None], committed: Committed, record: Callable[[str], RunRecord], tmp_path: Path,
) -> None:  # fmt: skip
    """A group set back or forward since its last export is seen before anything is written, also where nothing is new;
    the export continues where it is reported to."""
    topic, group = make_topic(), unique("group")
    fill(topic, 30)
    export(group, topic, max_messages=10)
    partition = TopicPartition(topic, 0)
    commit(group, {partition: 4})
    with pytest.raises(MismatchError) as refused:
        export(group, topic)
    assert mismatches_of(refused.value) == [(partition, "behind", 4, 10)]
    export(group, topic, max_messages=5, on_mismatch="lake")
    assert committed(group, topic) == 15
    commit(group, {partition: 30})
    with pytest.raises(MismatchError) as refused:
        export(group, topic)
    assert mismatches_of(refused.value) == [(partition, "ahead", 30, 15)]
    assert len(published_in(tmp_path / "out")) == 2
    fill(topic, 5)
    (row,) = export(group, topic, on_mismatch="group")
    assert (row.start, row.end, row.rows) == (30, 35, 5)
    assert [tuple(gap) for gap in record(group).partitions[0].skipped] == [("moved", 15, 30)]
    assert [(row.start, row.rows) for row in export(group, topic)] == [(35, 0)]


@pytest.mark.parametrize(("module", "name"), [(Destination, "newest"), (GroupState, "facts")])
def test_an_export_that_was_overtaken_plans_again(
    export: Export, make_topic: Callable[..., str], fill: Callable[..., object], unique: Callable[[str], str],
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: Any, name: str,
) -> None:  # fmt: skip
    """Stopped after it has read the newest record, or the offsets, while another export of it begins
    and ends: there are then files, or offsets, that its view knows nothing of. It finds nothing new."""
    topic, group = make_topic(), unique("group")
    fill(topic, 10)
    export(group, topic)
    fill(topic, 5)

    def overtaken_once(*args: Any, **options: Any) -> Any:
        found = original(*args, **options)
        monkeypatch.undo()
        assert [(row.start, row.end) for row in export(group, topic)] == [(10, 15)]
        return found

    original = getattr(module, name)
    monkeypatch.setattr(module, name, overtaken_once)
    assert [(row.start, row.rows) for row in export(group, topic)] == [(15, 0)]
    assert [row["offset"] for row in messages_in(tmp_path / "out")] == list(range(15))


@pytest.mark.parametrize("begin", [COMMITTED, LATEST, EARLIEST])
def test_a_new_partition_begins_at_its_start(
    export: Export, make_topic: Callable[..., str], fill: Callable[..., object], unique: Callable[[str], str],
    registry: Registry, begin: Bound,
) -> None:  # fmt: skip
    """A partition that was added since the last export is all new, wherever others were to begin; an offset that is
    named for it is heeded."""
    topic, group = make_topic(), unique("group")
    fill(topic, 10)
    export(group, topic)
    add_partitions(registry, topic, 3)
    fill(topic, 15, 3)
    named = Bound("offsets", offsets={TopicPartition(topic, 2): 3})
    rows = export(group, topic, begin=named, until=LATEST)
    assert [(row.partition, row.start, row.end) for row in rows] == [(0, 10, 15), (1, 0, 5), (2, 3, 5)]
    add_partitions(registry, topic, 4)
    fill(topic, 4, 4)
    rows = export(group, topic, begin=begin, until=LATEST)
    assert [(row.partition, row.start, row.end) for row in rows] == [(0, 15, 16), (1, 5, 6), (2, 5, 6), (3, 0, 1)]
