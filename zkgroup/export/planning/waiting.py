"""Partitions that stand still behind an open transaction.

An export of committed messages stops there, and finds nothing new, for as long as nobody ends it. That is as it should
be for a while; one that is open for longer than brokers let any live is told.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final

from zkgroup.errors import ZkgroupError
from zkgroup.export.model.words import PartitionFacts
from zkgroup.protocol.names import TopicPartition
from zkgroup.servers.kafka import KafkaSettings
from zkgroup.servers.logs import LogRange, log_offsets
from zkgroup.servers.ranges import RangeReader, range_consumer
from zkgroup.words import counted

log = logging.getLogger(__name__)

#: Milliseconds: ``transaction.max.timeout.ms``, where nobody has set it.
_LONG: Final = 15 * 60 * 1000
_PATIENCE: Final = 3.0  # seconds without a message


def standing_still(kafka: KafkaSettings, facts: Iterable[PartitionFacts], timeout: float, now: int) -> Iterator[str]:
    """What is to be said of partitions of which committed messages are exported up to an old transaction that is open,
    ``now`` (milliseconds since 1970). Brokers before 0.11 know none."""
    ends = {
        fact.partition: fact.log_end
        for fact in facts
        if fact.log_end == (fact.log_start if fact.committed is None else fact.committed)
    }
    if not ends or kafka.legacy_release is not None:
        return
    behind = _beyond(ends, log_offsets(kafka, list(ends), timeout))
    for partition, count in behind.items():
        log.info("%s: %d offsets wait behind an open transaction", partition, count)
    since = {
        partition: time
        for partition, count in behind.items()
        if (time := _time_at(kafka, partition, ends[partition], count)) is not None and now - time > _LONG
    }
    if since:  # Ended by now, it was none: all came between two questions.
        again = log_offsets(kafka, list(since), timeout, read_committed=True)
        ended = _beyond(ends, again)
        for partition, time in since.items():
            if partition not in ended:
                yield (
                    f"{partition}: {counted(behind[partition], 'offset')} from {ends[partition]} on wait for a "
                    f"transaction that is open since {_told(time)}: nothing of them is exported until it is ended "
                    "(kafka-transactions.sh finds and aborts it)"
                )


def _beyond(
    ends: Mapping[TopicPartition, int], found: Mapping[TopicPartition, LogRange | ZkgroupError]
) -> dict[TopicPartition, int]:
    """How far these logs reach beyond ``ends``."""
    return {
        partition: told.end - ends[partition]
        for partition, told in found.items()
        if isinstance(told, LogRange) and told.end > ends[partition]
    }


def _time_at(kafka: KafkaSettings, partition: TopicPartition, offset: int, count: int) -> int | None:
    """The time of the first message from ``offset`` on, whatever its transaction is; None where it has none, or nobody
    tells."""
    asked = replace(kafka, properties={**kafka.properties, "isolation.level": "read_uncommitted"})
    with suppress(ZkgroupError), closing(range_consumer(asked)) as source:
        for batch in RangeReader(source, _PATIENCE).batches(partition, offset, offset + count):
            kind, millis = batch[0].timestamp()
            return millis if kind > 0 and millis > 0 else None
    return None


def _told(millis: int) -> str:
    return datetime.fromtimestamp(millis / 1000, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
