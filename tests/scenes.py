"""A topic and a group that has exported some of it, for tests of what exports pass over."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from export_points import Export
from resets import drop_messages
from topics import delete_topic

from zkgroup.clients.kafka.client import KafkaSettings
from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.export.destination.parquet_destination import Destination
from zkgroup.export.planning.bounds import Bound
from zkgroup.export.stores.store import FolderStore
from zkgroup.protocol.names import TopicPartition
from zkgroup.sandbox.topic_admin import create_topic


@dataclass
class Scene:
    """A topic of two partitions, each of ten messages, and a group that has exported what is asked for."""

    export: Export
    registry: Registry
    kafka: KafkaSettings
    commit: Callable[[str, Mapping[TopicPartition, int]], None]
    fill: Callable[..., object]
    out: Path
    topic: str
    group: str

    @property
    def destination(self) -> Destination:
        """The destination."""
        return Destination(FolderStore(self.out))

    @property
    def first(self) -> TopicPartition:
        """The partition that gets into trouble."""
        return TopicPartition(self.topic, 0)

    def run(self, **options: Any) -> tuple[list[str], list[int]]:
        """What an export says, and the partitions of its rows; unless reported, it begins nowhere but at offsets."""
        lines: list[str] = []
        rows = self.export(self.group, self.topic, warn=lines.append, **{"begin": None, **options})
        return lines, [row.partition for row in rows]

    def skipped(self) -> list[tuple[str, int, int]]:
        """What the last run has recorded as passed over."""
        newest = self.destination.newest(self.group)
        return [] if newest is None else [tuple(gap) for part in newest.partitions for gap in part.skipped]


def up_to(scene: Scene, first: int) -> None:
    """Export partition 0 up to ``first``, and all of the other one."""
    offsets = {scene.first: first, TopicPartition(scene.topic, 1): 10}
    scene.export(scene.group, scene.topic, until=Bound("offsets", offsets=offsets))


def remake(scene: Scene) -> None:
    delete_topic(scene.registry, scene.topic)
    create_topic(scene.registry, scene.topic, 2)
    scene.fill(scene.topic, 20, 2)


def stop(point: str) -> Callable[[str], None]:
    """Ctrl-C at a point."""

    def passed(found: str) -> None:
        if found == point:
            raise KeyboardInterrupt

    return passed


def left_at(scene: Scene, point: str = "published for good", **wish: Any) -> None:
    """A run from the logs' starts, as Ctrl-C leaves it there."""
    with pytest.raises(KeyboardInterrupt):
        scene.run(passed=stop(point), **{"begin": "earliest", **wish})


def is_at(scene: Scene, offset: int) -> None:
    """Somebody moves the group there."""
    scene.commit(scene.group, {TopicPartition(scene.topic, number): offset for number in range(2)})


def retention(scene: Scene, start: int) -> None:
    """What lies before ``start`` goes, in both partitions."""
    for number in range(2):
        drop_messages(scene.kafka, TopicPartition(scene.topic, number), start)
