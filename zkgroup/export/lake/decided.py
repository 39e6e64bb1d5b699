"""The runs of a lake that count: those that were decided, less what was taken back."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from zkgroup.export.lake.asking import at_once
from zkgroup.export.lake.lake import Lake
from zkgroup.export.model.rundata import Manifest
from zkgroup.protocol.names import TopicPartition


def decided(lake: Lake, group: str) -> Iterator[tuple[Manifest, set[TopicPartition]]]:
    """A group's decided runs, the oldest first, each with the partitions that were taken back."""
    for answer in at_once(partial(decided_run, lake, group), lake.runs(group)):
        if (found := answer.result()) is not None:
            yield found


def decided_run(lake: Lake, group: str, run: str) -> tuple[Manifest, set[TopicPartition]] | None:
    """A run with the partitions that were taken back; None where it was not decided. Raises ``ZkgroupError``."""
    found = lake.manifest(group, run)
    if found is None:
        return None
    settled = lake.settled(group, run)
    return found[0], set(settled.left) if settled is not None and settled.how == "withdraw" else set()
