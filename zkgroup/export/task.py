"""What a Spark task does: read ranges of offsets, write their files, tell of them.

A task answers in plain tuples. What went wrong in an expected way is an answer too: it then needs no parsing of a
traceback in the driver, and Spark does not repeat in vain what cannot succeed. What is unexpected is raised, and Spark
repeats the task.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

from zkgroup.errors import UnreachableError, ZkgroupError
from zkgroup.export.files import FileOptions, RangeFiles
from zkgroup.export.plan import OffsetRange
from zkgroup.protocol.names import TopicPartition
from zkgroup.servers.kafka import KafkaSettings
from zkgroup.servers.ranges import RangeReader, range_consumer

# Brokers that are restarted one by one are back by then.
_ATTEMPTS = 3

#: (path, start, end, rows, bytes)
FileAnswer: TypeAlias = tuple[str, int, int, int, int]
#: ("done", topic, partition, start, end, files, hole), where the hole is (start, end) or None
DoneAnswer: TypeAlias = tuple[Literal["done"], str, int, int, int, tuple[FileAnswer, ...], tuple[int, int] | None]
#: ("failed", name of the error's class, message, remedy)
FailedAnswer: TypeAlias = tuple[Literal["failed"], str, str, str | None]
Answer: TypeAlias = DoneAnswer | FailedAnswer


@dataclass(frozen=True, slots=True)
class TaskSettings:
    """What every task of an export is told. ``patience`` is in seconds, see ``RangeReader``."""

    kafka: KafkaSettings
    files: FileOptions
    patience: float = 30.0


def run_task(settings: TaskSettings, ranges: list[tuple[str, int, int, int]]) -> Iterator[Answer]:
    """Export ``ranges``, each (topic, partition, start, end), one after the other; stops at the first that fails."""
    for topic, partition, start, end in ranges:
        piece = OffsetRange(TopicPartition(topic, partition), start, end)
        try:
            yield _export_patiently(settings, piece)
        except ZkgroupError as error:
            yield "failed", type(error).__name__, error.message, error.remedy
            return
        except OSError as error:
            where = error.filename or settings.files.folder
            yield "failed", "ZkgroupError", f"cannot write {where}: {error.strerror or error}", None
            return


def _export_patiently(settings: TaskSettings, piece: OffsetRange) -> Answer:
    for _ in range(_ATTEMPTS - 1):
        try:
            return _export(settings, piece)
        except UnreachableError:
            continue
    return _export(settings, piece)


def _export(settings: TaskSettings, piece: OffsetRange) -> Answer:
    source = range_consumer(settings.kafka)
    files = RangeFiles(piece, settings.files)
    try:
        reader = RangeReader(source, settings.patience)
        for batch in reader.batches(*piece):
            files.add(batch)
            del batch  # not held while the next is fetched: it may be large
        written = files.finish()
    except BaseException:
        files.abandon()
        raise
    finally:
        source.close()
    partition, start, end = piece
    hole = (reader.hole.start, reader.hole.end) if reader.hole is not None else None
    plain = tuple((f.path, f.start, f.end, f.rows, f.bytes) for f in written)
    return "done", partition.topic, partition.partition, start, end, plain, hole
