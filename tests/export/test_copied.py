"""A ZooKeeper that was copied node by node: all is as it was, but for the births of its nodes."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from exports import InProcess as Runner
from exports import offsets, problems

from zkgroup.errors import RefusedError
from zkgroup.export.lake.lake import Lake
from zkgroup.export.model.words import Policies
from zkgroup.export.planning.bounds import COMMITTED, EARLIEST
from zkgroup.export.planning.request import ExportRequest
from zkgroup.export.runs.run import run_export
from zkgroup.protocol import znodes
from zkgroup.protocol.names import TopicPartition
from zkgroup.protocol.ops import Create, Ensure, Get, Node, SetData, Stat
from zkgroup.sandbox.sandbox import Sandbox
from zkgroup.servers.kafka import KafkaSettings
from zkgroup.servers.registry import Registry
from zkgroup.servers.zookeeper import ZooKeeperSettings

SAME = Policies(recreated="same")
TOLD = "its topic is taken for the one that was exported before"


@dataclass
class Scene:
    """A topic of one partition and a group, in two ZooKeepers of one cluster; ``now`` is in use."""

    registries: list[Registry]
    kafka: KafkaSettings
    out: Path
    topic: str
    group: str
    now: int = 0

    def export(self, warn: Callable[[str], None] = lambda _: None, **options: Any) -> list[tuple[int, int]]:
        """What was read."""
        request = ExportRequest(self.group, topics=(self.topic,), **{"root": self.out, "begin": EARLIEST, **options})
        rows = run_export(request, self.registries[self.now], lambda: self.kafka, warn=warn, runner=Runner)
        return [(row.start, row.end) for row in rows if row.rows]

    def copy(self) -> None:
        """To the other ZooKeeper, which is in use from now on."""
        before, self.now = self.registries[self.now], 1 - self.now
        registry = self.registries[self.now]
        state = znodes.export_state(self.group)
        paths = [
            znodes.topic(self.topic),
            "/cluster/id",
            znodes.offset(self.group, TopicPartition(self.topic, 0)),
            state,
        ]
        for path, node in zip(paths, before.read([Get(path) for path in paths]), strict=True):
            if isinstance(node, Node):
                registry.read([Ensure(path.rpartition("/")[0])])
                if registry.write(Create(path, node.data)) is not None and path in paths[2:]:
                    assert isinstance(registry.write(SetData(path, node.data)), Stat)

    def commit(self, offset: int) -> None:
        """Set the group to it."""
        path = znodes.offset(self.group, TopicPartition(self.topic, 0))
        assert isinstance(self.registries[self.now].write(SetData(path, str(offset).encode())), Stat)


@pytest.fixture(params=["later", "earlier"])
def scene(
    request: pytest.FixtureRequest, cluster: Sandbox, registry: Registry, kafka: KafkaSettings,
    make_topic: Callable[..., str], fill: Callable[..., object], unique: Callable[[str], str], tmp_path: Path,
) -> Iterator[Scene]:  # fmt: skip
    """Twenty messages of thirty are exported, and then the nodes are copied to where births are later, or earlier."""
    with Registry(ZooKeeperSettings(f"{cluster.address}/{unique('copy')}"), 30.0) as other:
        other.read([Ensure(path) for path in ("/", znodes.topics(), znodes.consumers())])
        scene = Scene([registry, other], kafka, tmp_path / "out", make_topic(), unique("group"))
        if request.param == "earlier":
            scene.copy()
        fill(scene.topic, 20)
        for _ in range(2):
            assert scene.export(max_messages=10)
        fill(scene.topic, 10)
        scene.copy()
        yield scene


def test_a_copied_zookeeper_goes_on_once_that_was_said(scene: Scene, fill: Callable[..., object], lake: Lake) -> None:
    """Backfills read nothing again then, nor does a group that was set back; runs that were away are the log's own."""
    with pytest.raises(RefusedError, match="made again") as refused:
        scene.export()
    assert "same where ZooKeeper's nodes were copied" in str(refused.value.remedy)
    heard: list[str] = []
    assert scene.export(policies=SAME, warn=heard.append) == [(20, 30)]
    assert [line for line in heard if TOLD in line]
    assert scene.export() == []
    assert scene.export(backfill=True, until=COMMITTED) == []
    scene.commit(10)
    with pytest.raises(RefusedError, match="stands"):
        scene.export(max_messages=10)
    scene.commit(30)
    first = scene.out / lake.folder(scene.group, lake.runs(scene.group)[0])
    away = first.rename(scene.out.parent / "away")
    fill(scene.topic, 5)
    assert scene.export() == [(30, 35)]
    away.rename(first)
    assert (scene.export(), scene.export(backfill=True, until=COMMITTED)) == ([], [])
    scene.commit(0)
    with pytest.raises(RefusedError, match="stands"):
        scene.export(max_messages=10)
    assert (offsets(lake), problems(lake)) == (list(range(35)), [])


def test_it_is_remembered_though_nothing_was_new(scene: Scene, lake: Lake) -> None:
    """Said once is enough."""
    scene.commit(20)
    assert scene.export(policies=SAME, until=COMMITTED) == []
    assert scene.export() == [(20, 30)]
    assert (offsets(lake), problems(lake)) == (list(range(30)), [])


def test_files_of_both_are_adopted(scene: Scene, lake: Lake) -> None:
    """Footers tell it as manifests do."""
    assert scene.export(policies=SAME) == [(20, 30)]
    shutil.rmtree(scene.out / "_zkgroup")
    scene.export(adopt=True)
    assert (scene.export(), scene.export(backfill=True, until=COMMITTED)) == ([], [])
    assert (offsets(lake), problems(lake)) == (list(range(30)), [])


def test_two_copies_are_one_log(scene: Scene, fill: Callable[..., object], lake: Lake) -> None:
    """It may be copied again: back, too."""
    assert scene.export(policies=SAME) == [(20, 30)]
    scene.copy()
    fill(scene.topic, 5)
    assert scene.export() == [(30, 35)]
    assert (offsets(lake), problems(lake)) == (list(range(35)), [])
