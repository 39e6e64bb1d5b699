"""Reading exports back with Spark: what the demo bases its verdict on."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from zkgroup.errors import ZkgroupError
from zkgroup.export.spark.readback import PartitionRows, read_back
from zkgroup.protocol.names import TopicPartition


def test_an_export_is_counted_and_copies_in_it_are_seen(
    export: Callable[..., object],
    make_topic: Callable[..., str],
    fill: Callable[..., object],
    unique: Callable[[str], str],
    tmp_path: Path,
) -> None:
    """Rows, different offsets and the outermost ones of each partition; a file that is there twice shows as rows
    without offsets of their own. An empty partition is not there."""
    topic = make_topic(3)
    fill(topic, 20, 2)
    export(unique("group"), topic)
    root = tmp_path / "out"
    assert read_back([root]) == [{TopicPartition(topic, number): PartitionRows(10, 10, 0, 9) for number in (0, 1)}]
    (file,) = (root / f"topic={topic}" / "partition=1").glob("*.parquet")
    shutil.copyfile(file, file.with_name("copy.parquet"))
    assert read_back([root])[0][TopicPartition(topic, 1)] == PartitionRows(20, 10, 0, 9)


def test_topics_that_look_like_numbers_keep_their_names(
    export: Callable[..., object],
    make_topic: Callable[..., str],
    fill: Callable[..., object],
    unique: Callable[[str], str],
    tmp_path: Path,
) -> None:
    """Spark would make integers of folders that are named so, and 007 be 7."""
    topic = make_topic(1)
    fill(topic, 3)
    export(unique("group"), topic)
    (tmp_path / "out" / f"topic={topic}").rename(tmp_path / "out" / "topic=007")
    assert read_back([tmp_path / "out"]) == [{TopicPartition("007", 0): PartitionRows(3, 3, 0, 2)}]


def test_a_folder_without_files_is_one_line(spark: SparkSession, tmp_path: Path) -> None:
    """What Spark says of it, without its stack."""
    with pytest.raises(ZkgroupError, match=str(tmp_path)) as raised:
        read_back([tmp_path])
    assert "\n" not in str(raised.value)
