"""Exports into Iceberg tables: each message once, whatever dies when, and whatever others do to the tables."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import duckdb
import pyarrow as pa
import pytest
from cli import run
from export_points import MESSAGES, PARTITIONS, Export, Paused, Points, driven, lose_session
from exports import joining, problems, read
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table, Transaction

from zkgroup.clients.kafka.client import KafkaSettings
from zkgroup.clients.zookeeper import ZooKeeperSettings
from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.errors import RefusedError, UsageError, ZkgroupError
from zkgroup.export.checks.verify import verify
from zkgroup.export.destination.iceberg_tables import IcebergTables
from zkgroup.export.destination.parquet_destination import Destination
from zkgroup.export.model.address import parse_address
from zkgroup.export.model.layout import Layout, LayoutWish, table_name
from zkgroup.export.planning.bounds import Bound
from zkgroup.export.planning.mismatch import MismatchError
from zkgroup.export.stores.store import FolderStore, open_store
from zkgroup.protocol import znodes
from zkgroup.protocol.names import TopicPartition
from zkgroup.protocol.operations import Children, Get, Node
from zkgroup.sandbox.local_cluster import Sandbox
from zkgroup.sandbox.topic_admin import Record, create_topic, produce

ICEBERG = LayoutWish(format="iceberg")


def catalog_of(out: Path) -> Catalog:
    """The destination's own."""
    return load_catalog("zkgroup", type="sql", uri=f"sqlite:///{out}/_zkgroup/catalog.db", warehouse=f"file://{out}")


def table_of(out: Path, topic: str) -> Table:
    return catalog_of(out).load_table(("kafka", table_name(topic)))


def rows_of(table: Table) -> list[dict[str, Any]]:
    """All messages of a table, by partition and offset."""
    return sorted(table.scan().to_arrow().to_pylist(), key=lambda row: (row["partition"], row["offset"]))


@pytest.fixture
def export(in_process: Export) -> Export:
    """``export(group, topics…, option=…)``: one export into tables, without Spark."""
    return lambda group, *topics, **options: in_process(
        group, *topics, **{"layout": ICEBERG, "range_messages": 10, **options}
    )


@pytest.fixture
def brief_export(brief: Export) -> Export:
    """The same, under a session that ends soon."""
    return lambda group, *topics, **options: brief(group, *topics, **{"layout": ICEBERG, **options})


@pytest.fixture
def is_complete(registry: Registry) -> Callable[[str, str, Path], None]:
    """``is_complete(group, topic, out)``: everything is in the table once, and committed; no run is left."""

    def check(group: str, topic: str, out: Path) -> None:
        each = MESSAGES // PARTITIONS
        table = table_of(out, topic)
        found = [(row["topic"], row["partition"], row["offset"], row["value"]) for row in rows_of(table)]
        assert found == [(topic, p, i, b"m%06d" % (i * PARTITIONS + p)) for p in range(PARTITIONS) for i in range(each)]
        assert not (out / "_zkgroup/runs").exists()
        assert registry.read([Children(znodes.group(group))]) == [("offsets",)]
        paths = [znodes.offset(group, TopicPartition(topic, p)) for p in range(PARTITIONS)]
        nodes = cast("list[Node]", registry.read([Get(path) for path in paths]))
        assert [(node.data, node.stat.version) for node in nodes] == [(b"%d" % each, 0)] * PARTITIONS
        ends = {name: end for name, end in table.properties.items() if name.startswith("zkgroup.end.")}
        assert list(ends.values()) == [str(each)] * PARTITIONS
        assert table.properties[f"zkgroup.run.{group}"] == "1"

    return check


def test_killed_around_the_commit_and_run_again(
    brief_export: Export, filled: str, unique: Callable[[str], str], is_complete: Callable[..., None],
    short: ZooKeeperSettings, kafka: KafkaSettings, tmp_path: Path,
) -> None:  # fmt: skip
    """SIGKILL as a point is passed: the table is the old one or the new one, and the next export ends it all."""
    points = ("published for good", "table 1 of 1 made", "table 1 of 1 committed")

    def kill_and_go_on(point: str) -> None:
        name = unique("killed")
        wish = {"group": name, "topics": [filled], "out": tmp_path / name, "format": "iceberg"}
        code, lines = driven(short, kafka, kill_at=point, **wish)
        assert (code, lines[-1]) == (-9, point)
        brief_export(name, filled, root=tmp_path / name)
        is_complete(name, filled, tmp_path / name)

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(kill_and_go_on, points))


@pytest.mark.parametrize("point", ["table 1 of 1 made", "table 1 of 1 committed"])
def test_one_that_was_given_up_for_dead_does_no_harm(
    brief_export: Export, filled: str, unique: Callable[[str], str], is_complete: Callable[..., None],
    cluster: Sandbox, registry: Registry, tmp_path: Path, point: str,
) -> None:  # fmt: skip
    """An export is paused, another one commits its run to the table; then the first one wakes up."""
    group = unique("zombie")
    with Paused(lambda passed: brief_export(group, filled, passed=passed), point) as first:
        lose_session(registry, cluster, group)
        brief_export(group, filled)
        is_complete(group, filled, tmp_path / "out")
        first.finish()
    is_complete(group, filled, tmp_path / "out")


def test_of_two_commits_of_a_run_the_table_refuses_one(
    export: Export, filled: str, unique: Callable[[str], str], is_complete: Callable[..., None], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Two exporters have prepared the same commit from the same snapshot: pyiceberg's retries, four by default, would
    have committed both, and every row twice."""
    group, commit = unique("twice"), IcebergTables._commit
    commits, refused = Transaction.commit_transaction, list[str]()

    def rival(tables: IcebergTables, *args: Any) -> None:
        """Between the other's preparation and its commit."""

        def commit_second(transaction: Transaction) -> Table:
            monkeypatch.setattr(Transaction, "commit_transaction", commits)
            other = IcebergTables(tables._destination, tables._layout)
            commit(other, *args)
            try:
                return commits(transaction)
            except CommitFailedException as error:
                refused.append(str(error))
                raise

        monkeypatch.setattr(Transaction, "commit_transaction", commit_second)
        commit(tables, *args)

    monkeypatch.setattr(IcebergTables, "_commit", rival)
    export(group, filled)
    assert len(refused) == 1
    is_complete(group, filled, tmp_path / "out")


@pytest.mark.parametrize("is_done", [True, False])
def test_a_commit_whose_answer_is_lost(
    export: Export, filled: str, unique: Callable[[str], str], is_complete: Callable[..., None], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, is_done: bool,
) -> None:  # fmt: skip
    """If it was done, the export ends well; if not, the next one commits, and reads nothing."""
    group, commit = unique("unanswered"), Table._do_commit

    def unanswered(table: Table, *args: Any, **options: Any) -> None:
        if is_done:
            commit(table, *args, **options)
        raise OSError("the catalog is away")

    def spoil(point: str) -> None:
        if point == "table 1 of 1 made":
            monkeypatch.setattr(Table, "_do_commit", unanswered)

    if is_done:
        export(group, filled, passed=spoil)
    else:
        with pytest.raises(ZkgroupError, match=r"cannot write the table .*: the catalog is away"):
            export(group, filled, passed=spoil)
        monkeypatch.undo()
        points: Points = []
        export(group, filled, passed=points.append)
        assert "runner started" not in points
    is_complete(group, filled, tmp_path / "out")


# --- what others do -------------------------------------------------------------------------------------------------


class Lake:
    """A table with two runs: offsets 0 to 9 and 10 to 19 of one partition."""

    def __init__(self, export: Export, topic: str, group: str, kafka: KafkaSettings, out: Path) -> None:
        self.export, self.topic, self.group, self.out = export, topic, group, out
        self._kafka = kafka
        self._sent = 0
        self.destination = Destination(FolderStore(out))
        self.more()
        self.more()

    def more(self, **options: Any) -> list[tuple[int, int]]:
        """Ten messages, exported; what the export has read."""
        records = [Record(b"%d" % i, None, 0) for i in range(self._sent, self._sent + 10)]
        produce(self._kafka, self.topic, records)
        self._sent += 10
        return read(self.export(self.group, self.topic, **options))

    @property
    def table(self) -> Table:
        return table_of(self.out, self.topic)

    def roll_back(self) -> None:
        """To before the last snapshot."""
        table = self.table
        parent = table.current_snapshot().parent_snapshot_id  # type: ignore[union-attr]
        assert parent is not None
        table.manage_snapshots().rollback_to_snapshot(parent).commit()

    def offsets(self) -> list[int]:
        """All that a reader finds; each row is the message that was sent."""
        rows = rows_of(self.table)
        assert all(row["value"] == b"%d" % row["offset"] for row in rows)
        return [row["offset"] for row in rows]


@pytest.fixture
def lake(
    export: Export, make_topic: Callable[..., str], kafka: KafkaSettings, unique: Callable[[str], str], tmp_path: Path
) -> Lake:
    return Lake(export, make_topic(), unique("group"), kafka, tmp_path / "out")


def test_a_table_that_was_compacted_and_expired_goes_on(lake: Lake) -> None:
    """Its rows are in other files, and no snapshot of an export is left: nothing to ask, nothing wrong."""
    table = lake.table
    table.overwrite(table.scan().to_arrow())
    assert problems(lake.destination) == []
    table = lake.table
    table.maintenance.expire_snapshots().older_than(datetime.now(UTC)).commit()
    assert not any((one.summary or {}).get("zkgroup.run") for one in lake.table.metadata.snapshots)
    assert lake.more() == [(20, 30)]
    assert lake.more() == [(30, 40)]
    assert lake.offsets() == list(range(40))
    assert problems(lake.destination) == []
    for _ in range(2):  # to where only expired snapshots had the runs
        lake.roll_back()
    assert problems(lake.destination) == [(20, 40, "the table was rolled back, and does not have all of these")]
    assert lake.more(on_mismatch="lake") == [(20, 50)]
    assert lake.offsets() == list(range(50))


def test_a_commit_of_others_comes_between(lake: Lake) -> None:
    """A table that another writer appends to, between two exports and before a commit: the export's commit goes on
    top of that."""

    def append(point: str) -> None:
        if point == "record in the log":
            lake.table.append(lake.table.scan().to_arrow().slice(0, 0))

    append("record in the log")
    assert lake.more(passed=append) == [(20, 30)]
    assert lake.offsets() == list(range(30))


def test_a_table_that_was_rolled_back_asks(lake: Lake) -> None:
    """A rollback takes the second run's rows away: the export asks, --verify names them, ``lake`` writes them again."""
    lake.roll_back()
    assert lake.offsets() == list(range(10))
    assert problems(lake.destination) == [(10, 20, "the table was rolled back, and does not have all of these")]
    with pytest.raises(MismatchError, match=r"the table was rolled back") as raised:
        lake.more()
    assert [answer for answer, _ in raised.value.answers] == ["lake", "group", "skip"]
    with pytest.raises(MismatchError, match=r"the table was rolled back"):
        lake.more(join=joining(lake.group))
    assert lake.more(on_mismatch="lake") == [(10, 50)]
    assert lake.offsets() == list(range(50))
    assert problems(lake.destination) == []
    assert lake.more() == [(50, 60)]


def test_a_rollback_that_was_undone_is_none(lake: Lake) -> None:
    """Back, and forth to where the last run was."""
    table = lake.table
    newest = table.current_snapshot()
    lake.roll_back()
    lake.table.manage_snapshots().set_current_snapshot(newest.snapshot_id).commit()  # type: ignore[union-attr]
    assert problems(lake.destination) == []
    assert lake.more() == [(20, 30)]


def test_a_rollback_may_be_answered_with_the_group(lake: Lake) -> None:
    """``group``: what was rolled back stays out, and is on record."""
    lake.roll_back()
    assert lake.more(on_mismatch="group") == [(20, 30)]
    assert lake.offsets() == [*range(10), *range(20, 30)]
    (row,) = verify(lake.destination)
    assert (row.start, row.end, row.rows, row.skipped, row.problem) == (0, 30, 20, 10, None)


@pytest.mark.parametrize("point", ["files written", "published for good"])
def test_a_rollback_while_an_export_runs_is_refused(lake: Lake, point: str) -> None:
    """Before the decision nothing is done. After it the run waits until the table is as it was."""
    newest = lake.table.current_snapshot()

    def roll_back(passed: str) -> None:
        if passed == point:
            lake.roll_back()

    with pytest.raises(RefusedError, match=r"was rolled back, dropped or replaced while it was exported"):
        lake.more(passed=roll_back)
    assert lake.offsets() == list(range(10))
    lake.table.manage_snapshots().set_current_snapshot(newest.snapshot_id).commit()  # type: ignore[union-attr]
    lake.export(lake.group, lake.topic)
    assert lake.offsets() == list(range(30))
    assert problems(lake.destination) == []


def test_a_table_that_was_dropped_asks(lake: Lake) -> None:
    """``lake`` begins where the exports began."""
    catalog_of(lake.out).drop_table(("kafka", table_name(lake.topic)))
    with pytest.raises(MismatchError, match=r"the table was rolled back"):
        lake.more()
    assert lake.more(on_mismatch="lake") == [(0, 40)]
    assert lake.offsets() == list(range(40))
    assert problems(lake.destination) == []


def test_a_table_that_was_altered(lake: Lake) -> None:
    """A column more is no harm; a column less is refused before anything is read."""
    from pyiceberg.types import StringType

    with lake.table.update_schema() as update:
        update.add_column("note", StringType())
    assert lake.more() == [(20, 30)]
    assert [row["note"] for row in rows_of(lake.table)] == [None] * 30
    with lake.table.update_schema() as update:
        update.rename_column("value", "payload")
    points: Points = []
    with pytest.raises(RefusedError, match=r"has no column value any more"):
        lake.more(passed=points.append)
    assert "runner started" not in points


def test_a_table_of_others_is_left_alone(
    export: Export, make_topic: Callable[..., str], fill: Callable[..., object], unique: Callable[[str], str],
    registry: Registry, tmp_path: Path,
) -> None:  # fmt: skip
    """Two topics whose names become one table's: in one export, and in two; and a table that no export has made."""
    dotted, plain = f"{unique('name')}.x", make_topic()
    dashed = dotted.replace(".x", "-x")
    for topic in (dotted, dashed):
        create_topic(registry, topic)
    for topic in (dotted, dashed, plain):
        fill(topic, 5)
    group = unique("group")
    with pytest.raises(RefusedError, match=r"is the table of two topics"):
        export(group, dotted, dashed)
    export(group, dotted)
    assert len(rows_of(table_of(tmp_path / "out", dotted))) == 5
    with pytest.raises(RefusedError, match=f"is a table of topic {dotted}"):
        export(group, dashed)
    catalog_of(tmp_path / "out").create_table(("kafka", table_name(plain)), pa.schema([("x", pa.int64())]))
    with pytest.raises(RefusedError, match=r"is a table that no export has made"):
        export(group, plain)


# --- what else an export does ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("by", [("partition",), (), ("date", "hour"), ("partition", "date")])
def test_every_reader_finds_the_columns(
    export: Export, make_topic: Callable[..., str], kafka: KafkaSettings, unique: Callable[[str], str], tmp_path: Path,
    by: tuple[Any, ...],
) -> None:  # fmt: skip
    """pyiceberg, pyarrow and DuckDB: the same rows and types; files are skipped by partitions and by statistics."""
    topic = make_topic(2)
    for day in range(3):
        stamp = 1_714_521_600_000 + day * 86_400_000
        produce(kafka, topic, [Record(b"%d" % i, b"k", p, timestamp_ms=stamp + i) for p in range(2) for i in range(10)])
        export(topic, topic, layout=LayoutWish(by=by, format="iceberg"))
    table = table_of(tmp_path / "out", topic)
    arrow = table.scan().to_arrow()
    kinds = {field.name: str(field.type) for field in arrow.schema}
    assert kinds["partition"] == "int32"
    assert kinds["offset"] == "int64"
    assert kinds["timestamp"] == "timestamp[us, tz=UTC]"
    assert "binary" in kinds["value"]
    assert sorted(zip(arrow["partition"].to_pylist(), arrow["offset"].to_pylist(), strict=True)) == [
        (p, offset) for p in range(2) for offset in range(30)
    ]
    assert {row["timestamp"].isoformat() for row in rows_of(table) if row["offset"] == 11} == {
        "2024-05-02T00:00:00.001000+00:00"
    }
    wanted = ["offset < 10", "timestamp >= '2024-05-02T00:00:00+00:00' and timestamp < '2024-05-03T00:00:00+00:00'"]
    for condition in wanted:
        found = {task.file.file_path for task in table.scan(row_filter=condition).plan_files()}
        assert len(found) == len(list(table.scan().plan_files())) // 3, condition
        assert len(table.scan(row_filter=condition).to_arrow()) == 20
    assert duckdb.sql('SELECT sum(value::VARCHAR::INT), max("offset") FROM arrow WHERE partition = 1').fetchall() == [
        (135, 29)
    ]
    assert problems(Destination(FolderStore(tmp_path / "out"))) == []


def test_messages_without_a_time(
    export: Export, make_topic: Callable[..., str], kafka: KafkaSettings, unique: Callable[[str], str], tmp_path: Path
) -> None:
    """Their partition is null, as Iceberg has it."""
    topic = make_topic()
    produce(kafka, topic, [Record(b"x", None, 0, timestamp_ms=1 << 60)])
    export(unique("group"), topic, layout=LayoutWish(by=("date",), format="iceberg"))
    table = table_of(tmp_path / "out", topic)
    (task,) = table.scan().plan_files()
    assert task.file.partition[1] is None
    assert [row["timestamp"] for row in rows_of(table)] == [None]


def test_a_backfill_and_a_take_over(
    export: Export, make_topic: Callable[..., str], kafka: KafkaSettings, unique: Callable[[str], str], tmp_path: Path
) -> None:
    """A backfill commits rows, and no offsets; a second one finds nothing. Another group takes over, and goes on."""
    topic, first, second = make_topic(), unique("first"), unique("second")
    produce(kafka, topic, [Record(b"%d" % i, None, 0) for i in range(30)])
    begin = Bound("offsets", offsets={TopicPartition(topic, 0): 20})
    assert read(export(first, topic, begin=begin)) == [(20, 30)]
    assert read(export(first, topic, backfill=True)) == [(0, 20)]
    assert read(export(first, topic, backfill=True)) == []
    produce(kafka, topic, [Record(b"%d" % i, None, 0) for i in range(30, 40)])
    assert read(export(second, topic, take_over=first)) == [(30, 40)]
    assert [row["offset"] for row in rows_of(table_of(tmp_path / "out", topic))] == list(range(40))
    assert problems(Destination(FolderStore(tmp_path / "out"))) == []


def test_options_that_do_not_fit() -> None:
    """A zone, a catalog for other formats, a bucket without a catalog, a place that pyiceberg is not written to."""
    with pytest.raises(UsageError, match="those of UTC"):
        LayoutWish(("date",), "Europe/Berlin", format="iceberg").resolve(None, "x")
    with pytest.raises(UsageError, match="--catalog is for Iceberg tables"):
        LayoutWish(format="delta", catalog="prod").resolve(None, "x")
    for place, why in (("s3://bucket/lake", "need a catalog"), ("gs://bucket/lake", "are not written to gs:")):
        with pytest.raises(UsageError, match=why):
            IcebergTables(Destination(open_store(parse_address(place))), Layout(format="iceberg"))


def test_by_the_command_into_a_named_catalog(
    cluster: Sandbox, filled: str, unique: Callable[[str], str], tmp_path: Path
) -> None:
    """``--catalog lakehouse.raw``, configured as pyiceberg's users do, through Spark; later exports and ``--verify``
    need no option, and another catalog is refused."""
    group, out, catalog = unique("group"), tmp_path / "out", f"sqlite:///{tmp_path}/lakehouse.db"
    named = "PYICEBERG_CATALOG__LAKEHOUSE"
    env = {f"{named}__TYPE": "sql", f"{named}__URI": catalog, f"{named}__WAREHOUSE": f"file://{tmp_path}/warehouse"}
    words = ("-z", cluster.connect, "export")
    begin = ("--group", group, "--from", "earliest", "--to", str(out))
    done = run(*words, filled, *begin, "--format", "iceberg", "--catalog", "lakehouse.raw", env=env)
    assert done.returncode == 0, done.stderr
    table = load_catalog("lakehouse", type="sql", uri=catalog).load_table(("raw", table_name(filled)))
    assert len(rows_of(table)) == MESSAGES
    done = run(*words, "--group", group, "--to", str(out), "--verify", env=env)
    assert (done.returncode, done.stderr) == (0, "")
    done = run(*words, filled, *begin, "--catalog", "other", env=env)
    assert done.returncode == 5
    assert "was begun with --format iceberg --catalog lakehouse.raw" in done.stderr
