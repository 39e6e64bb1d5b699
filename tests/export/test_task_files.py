"""A task's files: whatever the ranges and layouts, every message is in one place once, and little waits in memory."""

from __future__ import annotations

import errno
import hashlib
import random
import tempfile
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import scaled

from zkgroup.clients.kafka.client import Message
from zkgroup.export.model.accounting import overlaps
from zkgroup.export.model.layout import Layout, read_name
from zkgroup.export.model.plan_types import OffsetRange, RecordFile
from zkgroup.export.tasks import parquet_files as files_module
from zkgroup.export.tasks.parquet_files import TaskFiles
from zkgroup.export.tasks.task_data import FileOptions
from zkgroup.protocol.names import TopicPartition

HOUR = 3_600_000
NOON = 1_714_564_800_000  # 2024-05-01T12:00Z

#: Ranges of a task: partition, whether it goes on where the one before ended, batches of (gap before, hour) for each
#: message, and the gap behind the last.
tasks = st.lists(
    st.tuples(
        st.integers(0, 2),
        st.booleans(),
        st.lists(
            st.lists(st.tuples(st.integers(0, 2), st.sampled_from([0, 0, 0, 1, 30, None])), min_size=1, max_size=6),
            max_size=4,
        ),
        st.integers(0, 2),
    ),
    max_size=6,
)
layouts = st.sampled_from(
    [Layout(()), Layout(), Layout(("date",)), Layout(("date", "hour")), Layout(("partition", "date"), "Europe/Berlin")]
)


def message(partition: int, offset: int, hour: int | None) -> Message:
    """A message; without a time for None."""
    time = (0, 0) if hour is None else (1, NOON + hour * HOUR + offset)
    return Message(
        topic="t", partition=partition, offset=offset, timestamp=time, value=hashlib.sha256(b"%d" % offset).digest()
    )


@settings(max_examples=scaled(150))
@given(tasks, layouts, st.sampled_from([1, 3000, 1 << 20]), st.booleans())
def test_every_message_is_in_its_folder_once(
    wanted: list[tuple[int, bool, list[list[tuple[int, int | None]]], int]], layout: Layout, target: int, shared: bool
) -> None:
    """Over random ranges with gaps, some of which go on where the last one ended: what files say they hold is what they
    hold, in order; slices of one folder have no offset in common and lie within the ranges; rows add up."""
    expected: dict[tuple[int, int], str] = {}
    counted = 0
    ranges: list[tuple[int, int, int]] = []
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "work").mkdir()
        files = TaskFiles(
            FileOptions(Path(folder), "work", ("zstd", 1), target, "g", "00000001-aaaaaaaa", layout, shared=shared)
        )
        place = dict.fromkeys(range(3), 0)
        for partition, goes_on, batches, tail in sorted(wanted, key=lambda one: one[0]):
            start = offset = place[partition] + (0 if goes_on else 5)
            made: list[list[Message]] = []
            for batch in batches:
                made.append([])
                for gap, hour in batch:
                    offset += gap
                    made[-1].append(message(partition, offset, hour))
                    period = (
                        None if hour is None or not layout.is_timed else layout.calendar().period(NOON + hour * HOUR)
                    )
                    expected[partition, offset] = layout.folder("t", partition, period)
                    offset += 1
            end = place[partition] = offset + tail
            files.begin(OffsetRange(TopicPartition("t", partition), start, end))
            for messages in made:
                files.add(messages)
            counted += files.end(end)[0]
            ranges.append((partition, start, end))
        files.finish()
        finished = files.pop_finished()
        found = [(*row, folder_of(file)) for file in finished for row in rows_of(Path(folder), file)]
        assert sorted(found) == sorted((*key, where) for key, where in expected.items())
        check_slices(finished, ranges)
        assert counted == len(found) == sum(file.rows for file in finished)
        assert shared or all(len({one.partition for one in file.ranges}) == 1 for file in finished)


def test_a_disk_that_is_full_from_the_first_byte_on_is_what_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cleaning up behind a file that could not be begun hides no reason, and leaves nothing."""
    (tmp_path / "work").mkdir()
    begin = files_module.pq.ParquetWriter

    def full(sink: object, *rest: object, **options: object) -> object:
        begin(sink, *rest, **options)  # its magic number is in the file by now
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(files_module.pq, "ParquetWriter", full)
    files = TaskFiles(FileOptions(tmp_path, "work", ("zstd", 1), 1, "g", "00000001-aaaaaaaa", Layout()))
    files.begin(OffsetRange(TopicPartition("t", 0), 0, 1))
    with pytest.raises(OSError, match="No space left"):
        for _ in (files.add([message(0, 0, 0)]), files.end(1), files.finish()):
            pass
    files.abandon()
    assert list((tmp_path / "work").iterdir()) == []


def folder_of(file: RecordFile) -> str:
    return file.name.rpartition("/")[0]


def rows_of(folder: Path, file: RecordFile) -> list[tuple[int, int]]:
    """Partition and offset of each row, compared with the file's slices, in their order."""
    table = pq.ParquetFile(folder / "work" / file.work).read()
    offsets = table["offset"].to_pylist()
    assert len(offsets) == file.rows == sum(one.rows for one in file.ranges)
    rows: list[tuple[int, int]] = []
    for one in file.ranges:
        mine, offsets = offsets[: one.rows], offsets[one.rows :]
        assert mine == sorted(set(mine))
        assert one.start <= mine[0] <= mine[-1] < one.end
        rows += [(one.partition, offset) for offset in mine]
    if "partition" in table.column_names:
        assert table["partition"].to_pylist() == [partition for partition, _ in rows]
    return rows


def check_slices(files: list[RecordFile], ranges: list[tuple[int, int, int]]) -> None:
    """Disjoint in each folder, within what was read, and under names that are all different."""
    held: dict[tuple[str, int], list[tuple[int, int]]] = {}
    names: set[str] = set()
    for file in files:
        message = read_name(file.name)
        assert message is not None
        assert (message.partition, message.start, message.end) == file.ranges[0][:3]
        names.add(file.name)
        for one in file.ranges:
            held.setdefault((folder_of(file), one.partition), []).append((one.start, one.end))
            covered = [range(low, high) for partition, low, high in ranges if partition == one.partition]
            assert all(any(offset in found for found in covered) for offset in range(one.start, one.end))
    assert len(names) == len(files)
    assert not any(overlaps(found) for found in held.values())


@pytest.mark.parametrize(
    ("layout", "folders"), [(Layout(("date", "hour")), 300), (Layout(("date",)), 13), (Layout(), 1)]
)
def test_what_waits_is_bounded_whatever_the_number_of_folders(
    layout: Layout, folders: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Messages of 300 hours in no order: no more than the bound and one batch wait, and no more files are open than may
    be; all of them come to rest in folders of their times."""
    monkeypatch.setattr(files_module, "_PENDING_BYTES", 2 << 20)
    monkeypatch.setattr(files_module, "_OPEN_FILES", 40)
    (tmp_path / "work").mkdir()
    files = TaskFiles(FileOptions(tmp_path, "work", ("none", None), 512 << 20, "g", "00000001-aaaaaaaa", layout))
    files.begin(OffsetRange(TopicPartition("t", 0), 0, 1 << 40))
    generator, batch, most, opened = random.Random(3), 200, 0, 0
    for start in range(0, 8000, batch):
        files.add(
            [
                Message(
                    topic="t", partition=0, offset=offset, value=bytes(1000),
                    timestamp=(1, NOON + generator.randrange(300) * HOUR),
                )
                for offset in range(start, start + batch)
            ]
        )  # fmt: skip
        most = max(most, files._load.pending)
        opened = max(opened, files._load.writers)
    assert 0 < most <= 2 << 20
    assert 0 < opened <= 40
    message = files.end(8000)
    files.finish()
    finished = files.pop_finished()
    assert message[0] == sum(file.rows for file in finished) == 8000
    assert files._load.pending == files._load.writers == 0
    assert len({folder_of(file) for file in finished}) == folders
