"""Backfills: what earlier runs passed over, and what files held that are gone, is exported again; nothing else is."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from exports import abort, at, files_in, messages_in, published_in
from resets import drop_messages

from zkgroup.errors import RefusedError
from zkgroup.export.checks.run_history import history
from zkgroup.export.checks.verify import VerifyRow, verify
from zkgroup.export.destination.run_log import Destination
from zkgroup.export.model.layout import LayoutWish
from zkgroup.export.model.plan_types import Policies
from zkgroup.export.planning.bounds import COMMITTED, EARLIEST, LATEST
from zkgroup.export.run.run_export import PartitionSummary
from zkgroup.export.stores.store import FolderStore
from zkgroup.protocol.names import TopicPartition
from zkgroup.sandbox.topics import Record, produce
from zkgroup.servers.kafka import KafkaSettings

Export = Callable[..., list[PartitionSummary]]
HOUR, NOON = 3_600_000, 1_699_963_200_000


@pytest.fixture
def destination(tmp_path: Path) -> Destination:
    """The destination of ``in_process``."""
    return Destination(FolderStore(tmp_path / "out"))


@pytest.fixture
def fill_in(in_process: Export) -> Export:
    """``fill_in(group, topics…, option=…)``: a backfill, of everything up to the ends if nothing else is said."""

    def run(group: str, *topics: str, **options: Any) -> list[PartitionSummary]:
        return in_process(group, *topics, **{"backfill": True, "begin": EARLIEST, "until": LATEST, **options})

    return run


def offsets(out: Path) -> list[int]:
    """Of all messages that a reader of the lake finds."""
    return [row["offset"] for row in messages_in(out)]


def problems(destination: Destination) -> list[str | None]:
    """In words."""
    return [row.problem for row in verify(destination) if row.problem is not None]


def test_what_was_passed_over_since_the_group_was_moved_is_filled(
    in_process: Export, fill_in: Export, make_topic: Callable[..., str], fill: Callable[..., object],
    unique: Callable[[str], str], commit: Callable[..., None], committed: Callable[..., int | None], destination: Destination,
    tmp_path: Path,
) -> None:  # fmt: skip
    """A recorded gap is no reason to leave it: the messages are still in the log. The books know of it afterwards, the
    group is not moved, and a second backfill finds nothing."""
    topic, group = make_topic(), unique("group")
    fill(topic, 40)
    in_process(group, topic, max_messages=20)
    commit(group, {TopicPartition(topic, 0): 35})
    in_process(group, topic, policies=Policies(disagreement="group"))
    assert verify(destination) == [VerifyRow(topic, 0, 0, 40, 25, 0, 15, 2, None)]
    assert [(row.start, row.end, row.rows) for row in fill_in(group, topic, until=at(topic, 30))] == [(20, 30, 10)]
    assert [(row.start, row.end, row.rows) for row in fill_in(group, topic, until=COMMITTED)] == [(30, 35, 5)]
    assert verify(destination) == [VerifyRow(topic, 0, 0, 40, 40, 0, 0, 4, None)]
    assert offsets(tmp_path / "out") == list(range(40))
    assert fill_in(group, topic) == []
    assert committed(group, topic) == 40


def test_a_lost_file_is_written_again(
    in_process: Export, fill_in: Export, make_topic: Callable[..., str], fill: Callable[..., object],
    unique: Callable[[str], str], destination: Destination, tmp_path: Path,
) -> None:  # fmt: skip
    """What ``--verify`` misses is exported once more, as a whole if any of it is asked for, and then all is right, as
    often as it happens; what was not asked for stays missing."""
    topic, group, out = make_topic(2), unique("group"), tmp_path / "out"
    fill(topic, 80, 2)
    in_process(group, topic, range_messages=10, target_bytes=1)
    before, whole, run = messages_in(out), verify(destination), destination.runs(group)[0]
    gone = [f"topic={topic}/partition={number}/10-20.parquet" for number in range(2)]
    for _ in range(2):
        for name in gone:
            (out / name).unlink()
        assert len(problems(destination)) == 2
        told: list[str] = []
        made = fill_in(group, topic, begin=at(topic, 15), until=at(topic, 16), warn=told.append)
        assert [(row.partition, row.start, row.end, row.rows) for row in made] == [(0, 10, 20, 10)]
        assert told == [f"{topic}-0: {gone[0]} is missing: offsets 10 to 19 are exported again"]
        assert problems(destination) == [f"{gone[1]} of run {run} is missing"]
        fill_in(group, topic)
        run = destination.runs(group)[-1]
        assert verify(destination) == whole
        assert fill_in(group, topic) == []
    assert messages_in(out) == before
    assert [row.kind for row in history(destination)] == ["export"] + 4 * ["backfill"]


@pytest.mark.parametrize("layout", [None, LayoutWish(()), LayoutWish(("date", "hour"))], ids=["usual", "flat", "hours"])
def test_a_lost_file_is_written_again_with_what_has_come_behind_it(
    in_process: Export, fill_in: Export, make_topic: Callable[..., str], fill: Callable[..., object],
    unique: Callable[[str], str], destination: Destination, tmp_path: Path, layout: LayoutWish | None,
) -> None:  # fmt: skip
    """The newest file of a topic that goes on: what it held and what is new touch, and are accounted for apart, also
    where several lost files touch."""
    topic, group = make_topic(), unique("group")
    options = {} if layout is None else {"layout": layout}
    for _ in range(3):
        fill(topic, 20)
        in_process(group, topic, **options)
    fill(topic, 20)
    for lost in published_in(tmp_path / "out")[-2:]:
        (tmp_path / "out" / lost).unlink()
    assert [(row.start, row.end, row.rows) for row in fill_in(group, topic, **options)] == [
        (20, 60, 40), (60, 80, 20),
    ]  # fmt: skip
    assert offsets(tmp_path / "out") == list(range(80))
    assert problems(destination) == []


def test_a_lost_file_of_several_partitions_is_written_again_by_and_by(
    in_process: Export, fill_in: Export, make_topic: Callable[..., str], fill: Callable[..., object],
    unique: Callable[[str], str], destination: Destination, tmp_path: Path,
) -> None:  # fmt: skip
    """One of its partitions now, the others later: each time the rest is what is missing."""
    topic, group, out = make_topic(3), unique("group"), tmp_path / "out"
    fill(topic, 30, 3)
    in_process(group, topic, layout=LayoutWish(()))
    rows = [row.rows for row in verify(destination)]
    (name,) = published_in(out)
    (out / name).unlink()
    assert problems(destination) == 3 * [f"{name} of run {lake.runs(group)[0]} is missing"]
    assert [row.partition for row in fill_in(group, topic, begin=at(topic, 0))] == [0]
    assert [(row.partition, row.problem is None) for row in verify(destination)] == [
        (0, True), (1, True), (1, False), (2, True), (2, False)
    ]  # fmt: skip
    assert [row.partition for row in fill_in(group, topic)] == [1, 2]
    assert [row.rows for row in verify(destination)] == rows
    assert fill_in(group, topic) == []


def test_a_lost_file_of_an_hour_is_written_again_without_what_other_folders_hold(
    in_process: Export, fill_in: Export, make_topic: Callable[..., str], kafka: KafkaSettings,
    unique: Callable[[str], str], destination: Destination, tmp_path: Path,
) -> None:  # fmt: skip
    """Offsets of folders of times interleave: of what is read only the messages of the lost file are written."""
    topic, group, out = make_topic(), unique("group"), tmp_path / "out"
    times = [NOON + HOUR * (number % 3) + number for number in range(30)]
    produce(kafka, topic, [Record(b"%d" % moment, None, 0, moment) for moment in times])
    in_process(group, topic, layout=LayoutWish(by=("date", "hour")))
    whole, files = verify(destination), published_in(out)
    assert len(files) == 3
    for lost in (files[:1], files[1:]):
        for name in lost:
            (out / name).unlink()
        (row,) = fill_in(group, topic)
        assert row.rows == 10 * len(lost)
        assert (verify(destination), published_in(out)) == (whole, files)
        assert fill_in(group, topic) == []


def test_a_file_that_comes_back_meanwhile_is_not_written_again(
    in_process: Export, fill_in: Export, make_topic: Callable[..., str], fill: Callable[..., object],
    unique: Callable[[str], str], destination: Destination, tmp_path: Path,
) -> None:  # fmt: skip
    """Whoever restores it from a copy while the backfill reads is told, and nothing is there twice."""
    topic, group, out = make_topic(), unique("group"), tmp_path / "out"
    fill(topic, 10)
    in_process(group, topic)
    (name,) = published_in(out)
    content = (out / name).read_bytes()
    (out / name).unlink()

    def restore(point: str) -> None:
        if point == "files written":
            (out / name).write_bytes(content)

    with pytest.raises(RefusedError, match="was missing, and is there again"):
        fill_in(group, topic, passed=restore)
    assert verify(destination) == [VerifyRow(topic, 0, 0, 10, 10, 0, 0, 1, None)]
    assert not [file for file in files_in(out) if file.endswith(".tmp")]
    assert fill_in(group, topic) == []


def test_what_retention_took_of_a_lost_file_is_said(
    in_process: Export, fill_in: Export, make_topic: Callable[..., str], fill: Callable[..., object],
    unique: Callable[[str], str], destination: Destination, tmp_path: Path, kafka: KafkaSettings,
) -> None:  # fmt: skip
    """Refused unless the rest is wanted; then the rest is there, and the offsets that are gone are accounted for."""
    topic, group, out = make_topic(), unique("group"), tmp_path / "out"
    fill(topic, 20)
    in_process(group, topic)
    (name,) = published_in(out)
    (out / name).unlink()
    drop_messages(kafka, TopicPartition(topic, 0), 5)
    with pytest.raises(RefusedError, match="5 offsets are lost"):
        fill_in(group, topic)
    told: list[str] = []
    assert [row.rows for row in fill_in(group, topic, policies=Policies(expired="earliest"), warn=told.append)] == [15]
    assert any("offsets 0 to 4 are not exported (retention)" in line for line in told)
    assert verify(destination) == [VerifyRow(topic, 0, 0, 20, 15, 5, 0, 1, None)]


def test_a_backfill_takes_no_more_than_it_may(
    in_process: Export, make_topic: Callable[..., str], fill: Callable[..., object], unique: Callable[[str], str],
    commit: Callable[..., None], committed: Callable[..., int | None], tmp_path: Path,
) -> None:  # fmt: skip
    """A limit of messages is shared out among the holes of a backfill; further ones take the rest, the last finds
    nothing, and all is there once."""
    topic, group = make_topic(2), unique("group")
    fill(topic, 60, 2)
    commit(group, {TopicPartition(topic, number): 20 for number in range(2)})
    in_process(group, topic)
    taken: list[int] = []
    while rows := in_process(group, topic, backfill=True, max_messages=15):
        taken.append(sum(row.rows for row in rows))
        assert taken[-1] <= 15
        if not taken[-1]:
            break
    assert sum(taken) == 40
    assert taken[0] == taken[1] == 15
    found = [(row["partition"], row["offset"]) for row in messages_in(tmp_path / "out")]
    assert found == [(number, offset) for number in range(2) for offset in range(30)]
    assert [committed(group, topic, number) for number in range(2)] == [30, 30]


@pytest.mark.parametrize("lost", ["file", "run"])
def test_what_was_lost_is_written_again_as_it_was_read(
    in_process: Export, fill_in: Export, make_topic: Callable[..., str], fill: Callable[..., object], destination: Destination,
    unique: Callable[[str], str], kafka: KafkaSettings, lost: str,
) -> None:  # fmt: skip
    """A lake of uncommitted messages got its files back without the aborted ones, and was whole."""
    topic, group, out = make_topic(), unique("group"), Path(destination.store.uri)
    fill(topic, 5)
    abort(kafka, topic, 4)
    fill(topic, 5)
    in_process(group, topic, isolation="read_uncommitted")
    fill(topic, 5)
    in_process(group, topic, isolation="read_uncommitted")
    whole = [(row.rows, row.gaps) for row in verify(destination)]
    assert whole == [(19, 1)]
    (out / next(name for name in published_in(out) if "/0-" in name)).unlink()
    if lost == "run":
        shutil.rmtree(out / destination.folder(group, destination.runs(group)[0]))
    else:
        with pytest.raises(RefusedError, match="was written with --isolation read_uncommitted, and would be") as raised:
            fill_in(group, topic, isolation="read_committed")
        assert str(raised.value.remedy).startswith("--isolation read_uncommitted writes what it held")
    told: list[str] = []
    fill_in(group, topic, warn=told.append)
    assert "--isolation read_uncommitted, as in the group's last export here" in told
    assert [(row.rows, row.gaps, row.problem) for row in verify(destination)] == [(19, 1, None)]


def test_messages_that_cannot_be_written_again_are_counted(
    in_process: Export, fill_in: Export, make_topic: Callable[..., str], fill: Callable[..., object], destination: Destination,
    unique: Callable[[str], str], kafka: KafkaSettings,
) -> None:  # fmt: skip
    """Where the log has lost them since."""
    topic, group, out = make_topic(), unique("group"), Path(destination.store.uri)
    fill(topic, 10)
    in_process(group, topic)
    (out / published_in(out)[0]).unlink()
    drop_messages(kafka, TopicPartition(topic, 0), 7)
    told: list[str] = []
    fill_in(group, topic, policies=Policies(expired="earliest"), warn=told.append)
    assert [line for line in told if "7 of 10 messages of " in line and line.endswith("are not in the log any more")]
