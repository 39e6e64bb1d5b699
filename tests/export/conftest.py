"""One Spark for all tests of exports, and what they share: groups with offsets, exports, messages read back."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from zkgroup.export.run import ExportRequest, PartitionSummary, run_export
from zkgroup.protocol import znodes
from zkgroup.protocol.names import TopicPartition
from zkgroup.protocol.ops import Ensure, Get, Node, SetData
from zkgroup.servers.kafka import KafkaSettings
from zkgroup.servers.registry import Registry


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A SparkSession. Exports in this process use its context; it reads their files back."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        builder = SparkSession.builder.master("local[2]").appName("tests")
        for key, value in {
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.sql.shuffle.partitions": "2",
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
            "spark.executorEnv.ARROW_DEFAULT_MEMORY_POOL": "system",
        }.items():
            builder = builder.config(key, value)
        session = builder.getOrCreate()
        session.sparkContext.setLogLevel("ERROR")
        yield session
        session.stop()


@pytest.fixture
def commit(registry: Registry) -> Callable[[str, Mapping[TopicPartition, int]], None]:
    """``commit(group, offsets)`` writes offsets as any other client of the group does: over whatever is there."""

    def write(group: str, offsets: Mapping[TopicPartition, int]) -> None:
        for partition, offset in offsets.items():
            path = znodes.offset(group, partition)
            registry.write(Ensure(path))
            registry.write(SetData(path, znodes.encode_offset(offset)))

    return write


@pytest.fixture
def committed(registry: Registry) -> Callable[[str, str, int], int | None]:
    """``committed(group, topic, partition)`` is the offset that stands in ZooKeeper, None where there is none."""

    def read(group: str, topic: str, partition: int = 0) -> int | None:
        path = znodes.offset(group, TopicPartition(topic, partition))
        (node,) = registry.read([Get(path)])
        return znodes.decode_offset(path, node.data) if isinstance(node, Node) else None

    return read


@pytest.fixture
def export(
    spark: SparkSession, registry: Registry, kafka: KafkaSettings, tmp_path: Path
) -> Callable[..., list[PartitionSummary]]:
    """``export(group, topics…, option=…)`` runs one export to ``tmp_path / "out"``, from the logs' starts."""

    def run(group: str, *topics: str, warn: Callable[[str], None] = lambda _: None, **options: Any) -> Any:
        request = ExportRequest(group, **{"root": tmp_path / "out", "topics": topics, "begin": "earliest", **options})
        return run_export(request, registry, lambda: kafka, warn=warn)

    return run
