"""One Spark for all tests of exports, and what they share: groups with offsets, exports, messages read back."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest
from export_points import MESSAGES, PARTITIONS, Export
from exports import InProcess, commit_offsets, files_in, messages_in, published_in
from object_store_server import CREDENTIALS, filesystem, object_server
from pyspark.sql import SparkSession
from support import wait_until

from zkgroup.clients.kafka.client import KafkaSettings
from zkgroup.clients.kafka.range_reader import RangeReader, range_consumer
from zkgroup.clients.zookeeper import ZooKeeperSettings
from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.export.destination.run_log import Destination
from zkgroup.export.model.choices import TableKind
from zkgroup.export.model.layout import LayoutOptions
from zkgroup.export.planning.export_request import EARLIEST
from zkgroup.export.run.run_export import ExportRequest, PartitionSummary, run_export
from zkgroup.export.stores.store import FolderStore
from zkgroup.protocol import znodes
from zkgroup.protocol.names import TopicPartition
from zkgroup.protocol.operations import Children, Create, Ensure, Exists, Get, Node, Stat
from zkgroup.sandbox.local_cluster import Sandbox
from zkgroup.sandbox.topic_admin import ProducerRecord, create_topic, produce

if TYPE_CHECKING:
    from table_lake import TableLake


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A SparkSession. Exports in this process use its context; it reads their files back."""
    from zkgroup.export.spark.jvm_gateway import SparkJvm
    from zkgroup.export.spark.spark_context import SparkJobs

    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as folder:
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        builder = SparkSession.builder.master("local[2]").appName("tests")
        for key, value in {
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.sql.shuffle.partitions": "2",
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            "spark.executorEnv.ARROW_DEFAULT_MEMORY_POOL": "system",
        }.items():
            builder = builder.config(key, value)
        session = builder.getOrCreate()
        session.sparkContext.setLogLevel("ERROR")

        def enter(jobs: SparkJobs) -> SparkJobs:
            jobs.context, jobs._scratch, jobs._log_file = session.sparkContext, Path(folder), Path(folder, "spark.log")
            jobs._jvm = SparkJvm(jobs._scratch, jobs._log_file)
            return jobs

        patch.setattr(SparkJobs, "__enter__", enter)
        patch.setattr(SparkJobs, "__exit__", lambda *_: None)
        yield session
        session.stop()


@pytest.fixture
def commit(registry: Registry) -> Callable[[str, Mapping[TopicPartition, int]], None]:
    """``commit(group, offsets)``: ``commit_offsets``."""
    return partial(commit_offsets, registry)


@pytest.fixture
def committed(registry: Registry) -> Callable[[str, str, int], int | None]:
    """``committed(group, topic, partition)`` is the offset in ZooKeeper, None where there is none."""

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

    def run(group: str, *topics: str, on_warning: Callable[[str], None] = lambda _: None, **options: Any) -> Any:
        request = ExportRequest(group, **{"root": tmp_path / "out", "topics": topics, "begin": EARLIEST, **options})
        return run_export(request, registry, lambda: kafka, on_warning=on_warning)

    return run


@pytest.fixture
def in_process(registry: Registry, kafka: KafkaSettings, tmp_path: Path) -> Callable[..., list[PartitionSummary]]:
    """``in_process(group, topics…, option=…)``: one export without Spark, from the logs' starts."""

    def run(
        group: str,
        *topics: str,
        isolation: str | None = None,
        on_point: Callable[[str], None] = lambda _: None,
        on_warning: Callable[[str], None] = lambda _: None,
        **options: Any,
    ) -> list[PartitionSummary]:
        wish: dict[str, Any] = {"root": tmp_path / "out", "begin": EARLIEST, **options}
        properties = {} if isolation is None else {"isolation.level": isolation}
        settings = KafkaSettings(kafka.bootstrap, properties)
        request = ExportRequest(group, topics=topics, **wish)
        return run_export(
            request, registry, lambda: settings, on_point=on_point, on_warning=on_warning, runner=InProcess
        )

    return run


@pytest.fixture
def destination(tmp_path: Path) -> Destination:
    """The destination of ``in_process``."""
    return Destination(FolderStore(tmp_path / "out"))


@pytest.fixture(scope="module")
def short(cluster: Sandbox) -> ZooKeeperSettings:
    """Sessions that end soon after their owner."""
    return ZooKeeperSettings(cluster.connect, session_timeout=1.0)


@pytest.fixture
def brief(short: ZooKeeperSettings, kafka: KafkaSettings, tmp_path: Path) -> Export:
    """``brief(group, topics…, on_point=…, option=…)``: one export under a session of its own, from the logs' starts; a
    busy machine may lose one of a ``session`` of a second."""

    def run(
        group: str,
        *topics: str,
        on_point: Callable[[str], None] = lambda _: None,
        on_warning: Callable[[str], None] = lambda _: None,
        session: float = short.session_timeout,
        **options: Any,
    ) -> list[PartitionSummary]:
        wish: dict[str, Any] = {"root": tmp_path / "out", "begin": EARLIEST, "range_messages": 10, **options}
        with Registry(replace(short, session_timeout=session), 10.0) as registry:
            request = ExportRequest(group, topics=topics, **wish)
            return run_export(
                request, registry, lambda: kafka, on_point=on_point, on_warning=on_warning, runner=InProcess
            )

    return run


@pytest.fixture
def filled(make_topic: Callable[..., str], fill: Callable[..., object]) -> str:
    """A topic with a few messages in each of its partitions."""
    name = make_topic(PARTITIONS)
    fill(name, MESSAGES, PARTITIONS)
    return name


@pytest.fixture
def forty(make_topic: Callable[..., str], fill: Callable[..., object], unique: Callable[[str], str]) -> tuple[str, str]:
    """A topic with 40 messages, and a group."""
    topic = make_topic()
    fill(topic, 40)
    return topic, unique("group")


@pytest.fixture
def is_complete(registry: Registry) -> Callable[[str, str, Path], None]:
    """``is_complete(group, topic, out)``: everything is there once and committed, and nothing else is left anywhere."""

    def check(group: str, topic: str, out: Path) -> None:
        found = [(row["topic"], row["partition"], row["offset"], row["value"]) for row in messages_in(out)]
        each = MESSAGES // PARTITIONS
        assert found == [(topic, p, i, b"m%06d" % (i * PARTITIONS + p)) for p in range(PARTITIONS) for i in range(each)]
        assert published_in(out) == sorted(
            f"topic={topic}/partition={p}/{start}-{start + 10}.parquet"
            for p in range(PARTITIONS)
            for start in range(0, each, 10)
        )
        kept = [name.split("/")[1:] for name in files_in(out) if name.startswith("_zkgroup/")]
        assert {name[0] for name in kept} == {"log", "topics", "layout"}
        assert [name[1] for name in kept if name[0] == "log"] == [group]
        assert registry.read([Children(znodes.group(group))]) == [("offsets",)]
        paths = [znodes.offset(group, TopicPartition(topic, p)) for p in range(PARTITIONS)]
        nodes = cast("list[Node]", registry.read([Get(path) for path in paths]))
        assert [(node.data, node.stat.version) for node in nodes] == [(b"%d" % each, 0)] * PARTITIONS

    return check


@pytest.fixture
def table_export(in_process: Export, kind: TableKind) -> Export:
    """``table_export(group, topics…, option=…)``: as ``in_process``, into tables of the module's ``kind``."""
    return lambda group, *topics, **options: in_process(
        group, *topics, **{"layout": LayoutOptions(format=kind), "range_messages": 10, **options}
    )


@pytest.fixture
def brief_table_export(brief: Export, kind: TableKind) -> Export:
    """The same as ``brief``, under a session that ends soon."""
    return lambda group, *topics, **options: brief(group, *topics, **{"layout": LayoutOptions(format=kind), **options})


@pytest.fixture
def is_complete_table(registry: Registry, kind: TableKind) -> Callable[[str, str, Path], None]:
    """``is_complete_table(group, topic, out)``: everything is in the table once, and committed; no other file is left
    but metadata."""
    from walked_tables import walked_table  # deltalake and pyiceberg: not for all tests

    def check(group: str, topic: str, out: Path) -> None:
        each = MESSAGES // PARTITIONS
        table = walked_table(kind, out, topic)
        found = [(row["topic"], row["partition"], row["offset"], row["value"]) for row in table.rows()]
        assert found == [(topic, p, i, b"m%06d" % (i * PARTITIONS + p)) for p in range(PARTITIONS) for i in range(each)]
        names = [name for name in files_in(out) if not name.startswith("_zkgroup/")]
        metadata = {"delta": f"{topic}/_delta_log/", "iceberg": f"{topic}/metadata/"}[kind]
        assert {name for name in names if not name.startswith(metadata)} == set(table.files())
        kept = {name.split("/")[1] for name in files_in(out) if name.startswith("_zkgroup/")}
        assert kept - {"catalog.db"} == {"log", "topics", "layout"}
        assert registry.read([Children(znodes.group(group))]) == [("offsets",)]
        paths = [znodes.offset(group, TopicPartition(topic, p)) for p in range(PARTITIONS)]
        nodes = cast("list[Node]", registry.read([Get(path) for path in paths]))
        assert [(node.data, node.stat.version) for node in nodes] == [(b"%d" % each, 0)] * PARTITIONS
        (stat,) = cast("list[Stat]", registry.read([Exists(znodes.topic(topic))]))
        assert [table.end(group, p, stat.czxid) for p in range(PARTITIONS)] == [each] * PARTITIONS
        assert table.run_of(group) == 1

    return check


@pytest.fixture
def lake(
    table_export: Export, kind: TableKind, make_topic: Callable[..., str], kafka: KafkaSettings,
    unique: Callable[[str], str], tmp_path: Path,
) -> TableLake:  # fmt: skip
    """A destination with one table of two runs."""
    from table_lake import TableLake  # deltalake and pyiceberg, too

    return TableLake(table_export, kind, make_topic(), unique("group"), kafka, tmp_path / "out")


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of an S3 endpoint; credentials for it are in the environment."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in CREDENTIALS.items():
            patch.setenv(name, value)
        with object_server(tmp_path_factory.mktemp("s3") / "server.log") as port:
            yield port


@pytest.fixture
def bucket(s3_server: int, unique: Callable[[str], str]) -> str:
    """A bucket of its own."""
    name = unique("lake")
    filesystem(s3_server, allow_bucket_creation=True).create_dir(name)
    return name


@pytest.fixture(scope="session")
def compacted(registry: Registry, kafka: KafkaSettings) -> str:
    """A compacted topic that was compacted: some offsets are gone from its middle."""
    name = "compacted"
    registry.write(Ensure("/config/topics"))
    config = (
        b'{"version":1,"config":{"cleanup.policy":"compact","segment.ms":"100","min.cleanable.dirty.ratio":"0.01"}}'
    )
    assert registry.write(Create(f"/config/topics/{name}", config)) is None
    create_topic(registry, name)
    written = 0

    def shrunk() -> bool:
        # A record now and then rolls the segment, and what is behind it may be compacted.
        nonlocal written
        produce(kafka, name, [ProducerRecord(b"%d" % i, b"key", 0) for i in range(20)])
        written += 20
        with closing(range_consumer(kafka)) as source:
            return sum(map(len, RangeReader(source).batches(TopicPartition(name, 0), 0, written))) < written

    wait_until(shrunk, 60, "the log is compacted")
    return name
