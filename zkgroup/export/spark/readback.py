"""Reading an export back with Spark, as any other job would read the folder: what is there, and how often."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from zkgroup.errors import ZkgroupError
from zkgroup.export.spark.spark_context import SparkJobs
from zkgroup.protocol.names import TopicPartition

_SETTINGS: Final = {
    # A topic stays a string, also where its name looks like a number.
    "spark.sql.sources.partitionColumnTypeInference.enabled": "false",
    # Two hundred, as it is otherwise, would take longer to start than to run.
    "spark.sql.shuffle.partitions": "2",
}


@dataclass(frozen=True, slots=True)
class PartitionRows:
    """What the files hold of one partition: rows, different offsets among them, the lowest and the highest."""

    rows: int
    offsets: int
    first: int
    last: int


def read_back(roots: Sequence[Path]) -> list[dict[TopicPartition, PartitionRows]]:
    """Count the rows of each folder, with a Spark that is started and stopped here.

    Raises ``UsageError`` where Spark does not start and ``ZkgroupError`` where a folder cannot be read.
    """
    with SparkJobs(None, {}) as spark:
        session = SparkSession(spark.context).newSession()
        for key, value in _SETTINGS.items():
            session.conf.set(key, value)
        try:
            return [_count(session, root) for root in roots]
        except (PySparkException, Py4JError) as error:
            why = str(error).strip().partition("\n")[0]
            raise ZkgroupError(f"Spark cannot read {', '.join(map(str, roots))}: {why}") from None


def _count(session: SparkSession, root: Path) -> dict[TopicPartition, PartitionRows]:
    offset = f.col("offset")
    counts = (f.count("*"), f.count_distinct(offset), f.min(offset), f.max(offset))
    rows = session.read.parquet(str(root)).groupBy("topic", "partition").agg(*counts).collect()
    return {TopicPartition(topic, int(number)): PartitionRows(*found) for topic, number, *found in rows}
