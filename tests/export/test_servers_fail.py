"""Brokers and ZooKeeper that go away while an export reads, decides and commits."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from export_points import at
from exports import InProcess, messages_in, nothing_in
from servers import Sandbox
from support import wait_until

from zkgroup.clients.kafka.client import KafkaSettings
from zkgroup.clients.kafka.log_offsets import LogRange, log_offsets
from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.errors import UnreachableError
from zkgroup.export.planning.export_request import EARLIEST
from zkgroup.export.run import range_tasks
from zkgroup.export.run.run_export import ExportRequest, PartitionSummary, run_export
from zkgroup.export.tasks import export_task
from zkgroup.export.tasks.parquet_files import TaskFiles
from zkgroup.export.tasks.task_data import TaskSettings
from zkgroup.protocol import znodes
from zkgroup.protocol.broker_znodes import decode_partition_state
from zkgroup.protocol.names import TopicPartition
from zkgroup.protocol.operations import Get, Node
from zkgroup.sandbox.local_cluster import START_TIMEOUT
from zkgroup.sandbox.topic_admin import ProducerRecord, create_topic, produce

# More than librdkafka fetches ahead: what is left must come from whoever leads the partition then.
EACH, SIZE = 6000, 4000


@pytest.fixture(scope="module")
def three(_own_state: None) -> Iterator[Sandbox]:
    """Three brokers with a ZooKeeper of their own."""
    with Sandbox("export-faults", brokers=3) as sandbox:
        yield sandbox


@pytest.fixture
def registry(three: Sandbox) -> Iterator[Registry]:
    """A registry on the three."""
    with three.registry(timeout=30.0) as registry:
        yield registry


@pytest.fixture
def topic(three: Sandbox, registry: Registry, unique: Callable[[str], str], request: pytest.FixtureRequest) -> str:
    """A topic of two partitions, with as many replicas as the test asks for."""
    name = unique("topic")
    create_topic(registry, name, 2, replication=request.param)
    produce(
        KafkaSettings(three.bootstrap),
        name,
        [ProducerRecord(b"%06d" % i * (SIZE // 6), None, i % 2) for i in range(2 * EACH)],
    )
    return name


Export = Callable[..., list[PartitionSummary]]


@pytest.fixture
def export(three: Sandbox, tmp_path: Path) -> Export:
    """``export(group, topic, on_point=…)``, under a session of its own."""

    def run(group: str, topic: str, on_point: Callable[[str], None] = lambda _: None) -> list[PartitionSummary]:
        kafka = KafkaSettings(three.bootstrap)
        with three.registry(timeout=30.0) as registry:
            request = ExportRequest(group, tmp_path / "out", (topic,), begin=EARLIEST)
            return run_export(request, registry, lambda: kafka, on_point=on_point, runner=InProcess)

    return run


@pytest.fixture
def in_the_middle(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object]], None]:
    """``in_the_middle(harm)``: do harm when the first messages of an export are being written."""

    def arrange(harm: Callable[[], object]) -> None:
        waiting = [harm]

        class Files(TaskFiles):
            def add(self, batch: list) -> None:  # type: ignore[type-arg]
                if waiting:
                    waiting.pop()()
                super().add(batch)

        monkeypatch.setattr(export_task, "TaskFiles", Files)

    return arrange


def leader(registry: Registry, topic: str) -> int:
    """The broker that leads partition 0."""
    path = znodes.partition_state(TopicPartition(topic, 0))
    (node,) = registry.read([Get(path)])
    assert isinstance(node, Node)
    return decode_partition_state(path, node.data).leader


def offsets(registry: Registry, group: str, topic: str) -> list[int | None]:
    paths = [znodes.offset(group, TopicPartition(topic, number)) for number in range(2)]
    nodes = zip(paths, registry.read([Get(path) for path in paths]), strict=True)
    return [znodes.decode_offset(path, node.data) if isinstance(node, Node) else None for path, node in nodes]


def is_complete(registry: Registry, group: str, topic: str, out: Path) -> bool:
    """All messages are there once, and committed."""
    found = [(row["partition"], row["offset"], row["value"][:6]) for row in messages_in(out)]
    wanted = [(number, i, b"%06d" % (2 * i + number)) for number in range(2) for i in range(EACH)]
    return found == wanted and offsets(registry, group, topic) == [EACH, EACH]


@pytest.mark.parametrize("topic", [3], indirect=True)
def test_a_leader_that_dies_while_it_is_read_from_is_followed(
    three: Sandbox, registry: Registry, topic: str, export: Export, unique: Callable[[str], str],
    in_the_middle: Callable[[Callable[[], object]], None], tmp_path: Path,
) -> None:  # fmt: skip
    """SIGKILL of the leader in the middle of a range: another replica leads, and the range is read to its end."""
    group, dead = unique("group"), leader(registry, topic)
    in_the_middle(three.broker(dead).kill)
    try:
        assert [row.rows for row in export(group, topic)] == [EACH, EACH]
        assert leader(registry, topic) != dead
    finally:
        three.start_broker(dead)
    assert is_complete(registry, group, topic, tmp_path / "out")


@pytest.mark.parametrize("topic", [1], indirect=True)
def test_a_broker_that_is_restarted_is_waited_for(
    three: Sandbox, registry: Registry, topic: str, export: Export, unique: Callable[[str], str],
    in_the_middle: Callable[[Callable[[], object]], None], tmp_path: Path,
) -> None:  # fmt: skip
    """The only replica's broker is stopped in the middle of a range, and comes back: the range is read to its end."""
    group, number = unique("group"), leader(registry, topic)
    back = threading.Thread(target=three.start_broker, args=(number,))

    def restart() -> None:
        three.broker(number).stop()
        back.start()

    in_the_middle(restart)
    assert [row.rows for row in export(group, topic)] == [EACH, EACH]
    back.join(60)
    assert is_complete(registry, group, topic, tmp_path / "out")


@pytest.mark.parametrize("topic", [1], indirect=True)
def test_one_partition_that_cannot_be_read_moves_none(
    three: Sandbox, registry: Registry, topic: str, export: Export, unique: Callable[[str], str],
    in_the_middle: Callable[[Callable[[], object]], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """A broker that stays away fails its partition's task, by name, and with it the run, whatever the other partition's
    task has done: nothing is left or committed. With the broker back the same command exports all."""
    group, dead = unique("group"), leader(registry, topic)
    in_the_middle(three.broker(dead).kill)
    try:
        with monkeypatch.context() as patch:
            patch.setattr(range_tasks, "TaskSettings", partial(TaskSettings, silence_timeout=1.0))
            with pytest.raises(UnreachableError, match=f"{topic}-0"):
                export(group, topic)
        assert nothing_in(tmp_path)
        assert offsets(registry, group, topic) == [None, None]
    finally:
        three.start_broker(dead)
    partition = TopicPartition(topic, 0)
    wait_until(lambda: isinstance(log_offsets(KafkaSettings(three.bootstrap), [partition], 10)[partition], LogRange))
    export(group, topic)
    assert is_complete(registry, group, topic, tmp_path / "out")


@pytest.mark.parametrize("topic", [1], indirect=True)
def test_a_zookeeper_that_is_restarted_is_waited_for(
    three: Sandbox, registry: Registry, topic: str, export: Export, unique: Callable[[str], str], tmp_path: Path
) -> None:
    """Stopped and started when the run is planned, before and after the decision: the export goes on by itself."""
    group = unique("group")

    def restart() -> None:
        three.zookeeper.stop()
        three.zookeeper.start(START_TIMEOUT)

    harms = [at(point, restart) for point in ("planned", "record written", "decided")]
    rows = export(group, topic, on_point=lambda point: [harm(point) for harm in harms] and None)
    assert [row.rows for row in rows] == [EACH, EACH]
    assert is_complete(registry, group, topic, tmp_path / "out")
