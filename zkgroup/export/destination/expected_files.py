"""Which files are to be in a destination, by the records of its log. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace

from zkgroup.export.model.plan_types import LostRange
from zkgroup.export.model.run_record import RecordFile, RunRecord
from zkgroup.protocol.names import TopicPartition


@dataclass(frozen=True, slots=True)
class ExpectedFile:
    """A published file, with those of its ranges that were not written again elsewhere. ``tag``: of its topic's log."""

    file: RecordFile
    group: str
    run: str
    tag: str | None
    isolation: str


class ExpectedFiles:
    """The files of all records that were added, each group's in their order."""

    def __init__(self) -> None:
        self.files: dict[str, ExpectedFile] = {}

    def add(self, record: RunRecord) -> None:
        """A record: its files are to be there, in the place of those that it has written again."""
        for part in record.partitions:
            for lost in part.again:
                self._forget(lost, part.partition.partition)
        for file in record.files:
            identity = record.topics.get(file.topic)
            tag = None if identity is None else identity.tag
            self.files[file.name] = ExpectedFile(file, record.group, record.run, tag, record.isolation)

    def _forget(self, lost: LostRange, partition: int) -> None:
        known = self.files.get(lost.file)
        if known is None:
            return
        again = (partition, lost.start, lost.end)
        left = tuple(one for one in known.file.ranges if (one.partition, one.start, one.end) != again)
        if left:
            self.files[lost.file] = replace(known, file=replace(known.file, ranges=left))
        else:
            del self.files[lost.file]

    def missing(self, there: Collection[str]) -> Iterator[tuple[ExpectedFile, TopicPartition, LostRange]]:
        """Each range of the files that are not ``there``."""
        for name, known in self.files.items():
            if name not in there:
                for one in known.file.ranges:
                    partition = TopicPartition(known.file.topic, one.partition)
                    yield known, partition, LostRange(name, one.start, one.end, one.rows)
