"""Partitions whose export waits for an open transaction.

An export of committed messages stops there, and finds nothing new until the transaction ends. It warns of a transaction
that is open for longer than brokers allow.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, suppress
from datetime import UTC, datetime
from typing import Final

from zkgroup.clients.kafka.client import KafkaSettings
from zkgroup.clients.kafka.log_offsets import LogRange, log_offsets
from zkgroup.clients.kafka.range_reader import RangeReader, range_consumer
from zkgroup.errors import ZkgroupError
from zkgroup.export.model.plan_types import PartitionFacts
from zkgroup.protocol.names import TopicPartition
from zkgroup.text import counted, listed

log = logging.getLogger(__name__)

#: Milliseconds: ``transaction.max.timeout.ms``, where it is not set.
_LONG: Final = 15 * 60 * 1000
_SILENCE_TIMEOUT: Final = 3.0  # seconds without a message
_SHOWN: Final = 3


def open_transaction_notices(
    kafka: KafkaSettings, facts: Iterable[PartitionFacts], timeout: float, now: int
) -> Iterator[str]:
    """Warnings about partitions that are exported up to an open transaction that is too old at ``now`` (milliseconds
    since 1970). Brokers before 0.11 have no transactions."""
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
    times = _times(kafka, ends, behind)
    since = {partition: time for partition, time in times.items() if time is not None and now - time > _LONG}
    if not since:
        return
    # Ended by now, it was none: all came between two questions.
    ended = _beyond(ends, log_offsets(kafka, list(since), timeout, read_committed=True))
    open_ones = [
        f"{partition}, {counted(behind[partition], 'offset')} from {ends[partition]} on, since {_iso_time(time)}"
        for partition, time in sorted(since.items())
        if partition not in ended
    ]
    if open_ones:
        yield (
            "what lies behind open transactions is not exported until they end, and these are old (Kafka 3's "
            f"kafka-transactions.sh finds and aborts them): {listed(open_ones, '; ', most=_SHOWN)}"
        )


def _beyond(
    ends: Mapping[TopicPartition, int], found: Mapping[TopicPartition, LogRange | ZkgroupError]
) -> dict[TopicPartition, int]:
    """How far these logs reach beyond ``ends``."""
    return {
        partition: log_range.end - ends[partition]
        for partition, log_range in found.items()
        if isinstance(log_range, LogRange) and log_range.end > ends[partition]
    }


def _times(
    kafka: KafkaSettings, ends: Mapping[TopicPartition, int], behind: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int | None]:
    """The timestamps of the first messages behind these ends, committed or not; None where one has none."""
    found: dict[TopicPartition, int | None] = {}
    if not behind:
        return found
    with suppress(ZkgroupError), closing(range_consumer(kafka.with_isolation("read_uncommitted"))) as source:
        for partition, count in behind.items():
            reader = RangeReader(source, _SILENCE_TIMEOUT)
            for batch in reader.batches(partition, ends[partition], ends[partition] + count):
                kind, millis = batch[0].timestamp()
                found[partition] = millis if kind > 0 and millis > 0 else None
                break
    return found


def _iso_time(millis: int) -> str:
    return datetime.fromtimestamp(millis / 1000, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
