"""Exports into Iceberg tables: what is Iceberg's own; ``test_tables`` has what holds for all formats."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import duckdb
import pyarrow as pa
import pytest
from cli import WITHOUT_SPARK, run
from export_points import MESSAGES, Export, Points
from exports import problem_rows, read
from lines import names
from object_store_server import SECRET, Harm, HarmfulProxy, uri_of
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError, TableAlreadyExistsError
from pyiceberg.table import Table, Transaction
from pyiceberg.utils.config import Config
from rest_catalog import rest_catalog
from table_lake import TableLake
from walked_tables import Chosen, rows_in

from zkgroup.clients.kafka.client import KafkaSettings
from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.errors import RefusedError, UsageError, ZkgroupError
from zkgroup.export.destination.iceberg_tables import IcebergTables
from zkgroup.export.destination.run_log import Destination
from zkgroup.export.model.address import parse_address
from zkgroup.export.model.choices import TableKind
from zkgroup.export.model.layout import Layout, LayoutOptions, table_name
from zkgroup.export.planning.mismatch import MismatchError
from zkgroup.export.run.publication import schema_of
from zkgroup.export.stores.store import FolderStore, open_store
from zkgroup.sandbox.local_cluster import Sandbox
from zkgroup.sandbox.topic_admin import ProducerRecord, create_topic, produce
from zkgroup.schemas.field_schema import FieldSchemas


@pytest.fixture
def kind() -> TableKind:
    """Of all tables of this module."""
    return "iceberg"


def catalog_of(out: Path) -> Catalog:
    """The destination's own."""
    return load_catalog("zkgroup", type="sql", uri=f"sqlite:///{out}/_zkgroup/catalog.db", warehouse=f"file://{out}")


def table_of(out: Path, topic: str) -> Table:
    return catalog_of(out).load_table(("kafka", table_name(topic)))


def rows_of(table: Table) -> list[dict[str, Any]]:
    """All messages of a table, by partition and offset."""
    return rows_in(table.scan().to_arrow())


def let_a_rival_commit(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Have another exporter commit the same run between the preparation of the next commit and that commit. What is
    refused comes into the list."""
    commit, commit_transaction, refused = IcebergTables._commit, Transaction.commit_transaction, list[str]()

    def commit_beside(tables: IcebergTables, *args: Any) -> None:
        def commit_second(transaction: Transaction) -> Table:
            monkeypatch.setattr(Transaction, "commit_transaction", commit_transaction)
            commit(IcebergTables(tables._destination, tables._layout), *args)
            try:
                return commit_transaction(transaction)
            except CommitFailedException as error:
                refused.append(str(error))
                raise

        monkeypatch.setattr(Transaction, "commit_transaction", commit_second)
        commit(tables, *args)

    monkeypatch.setattr(IcebergTables, "_commit", commit_beside)
    return refused


def test_of_two_commits_of_a_run_the_table_refuses_one(
    table_export: Export, filled: str, unique: Callable[[str], str], is_complete_table: Callable[..., None],
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Two exporters have prepared the same commit from the same snapshot: pyiceberg's retries, four by default, would
    have committed both, and every row twice."""
    group, refused = unique("twice"), let_a_rival_commit(monkeypatch)
    table_export(group, filled)
    assert len(refused) == 1
    is_complete_table(group, filled, tmp_path / "out")


# --- other catalogs, and other stores -------------------------------------------------------------------------------


def configure(monkeypatch: pytest.MonkeyPatch, name: str, **properties: str) -> None:
    """Name a catalog as pyiceberg's users do; it reads its configuration as it is imported."""
    for key, value in properties.items():
        monkeypatch.setenv(f"PYICEBERG_CATALOG__{name.upper()}__{key.upper()}", value)
    monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())


def test_into_a_bucket(
    table_export: Export, filled: str, unique: Callable[[str], str], s3_server: int, bucket: str, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """s3://, with a catalog that knows nothing of the store: the commit, a second one, what --verify says; no secret in
    what is kept."""
    configure(monkeypatch, "lakehouse", type="sql", uri=f"sqlite:///{tmp_path}/lakehouse.db")
    root, group = parse_address(uri_of(s3_server, f"{bucket}/lake")), unique("group")
    layout = LayoutOptions(format="iceberg", catalog="lakehouse.raw")
    (row, *_) = table_export(group, filled, root=root, max_messages=20, layout=layout)
    table_export(group, filled, root=root)
    assert row.table is not None
    store = {"s3.endpoint": f"http://127.0.0.1:{s3_server}", "s3.region": "us-east-1"}
    table = load_catalog("lakehouse", **store).load_table(row.table)
    assert len(rows_of(table)) == MESSAGES
    assert table.location() == f"s3://{bucket}/lake/{filled}"
    assert SECRET not in table.metadata.model_dump_json()
    assert problem_rows(Destination(open_store(root))) == []


def test_a_catalog_that_may_not_be_written(
    table_export: Export, in_process: Export, filled: str, unique: Callable[[str], str], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """It is found out before anything is read, and the group is free for exports elsewhere."""
    file, points = tmp_path / "lakehouse.db", Points()
    configure(monkeypatch, "closed", type="sql", uri=f"sqlite:///file:{file}?mode=ro&uri=true")
    load_catalog("open", type="sql", uri=f"sqlite:///{file}").create_namespace("kafka")
    group, layout = unique("group"), LayoutOptions(format="iceberg", catalog="closed")
    with pytest.raises(ZkgroupError, match=rf"closed: kafka\.{table_name(filled)}\b.*readonly database"):
        table_export(group, filled, layout=layout, on_point=points.append)
    assert "runner started" not in points
    assert sum(row.rows for row in in_process(group, filled, root=tmp_path / "elsewhere")) == MESSAGES


def test_a_run_whose_catalog_is_not_configured_here_is_not_given_up(
    table_export: Export, filled: str, unique: Callable[[str], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its table cannot be asked, and has the run already."""

    def stop(point: str) -> None:
        if point == "table 1 of 1 committed":
            raise ZkgroupError("on purpose")

    group, layout = unique("group"), LayoutOptions(format="iceberg", catalog="lakehouse")
    with monkeypatch.context() as patch:
        configure(patch, "lakehouse", type="sql", uri=f"sqlite:///{tmp_path}/lakehouse.db")
        with pytest.raises(ZkgroupError, match="on purpose"):
            table_export(group, filled, layout=layout, on_point=stop)
    with pytest.raises(UsageError, match=r"\blakehouse\b.*PYICEBERG_CATALOG__LAKEHOUSE__"):
        table_export(group, abandon=True)
    configure(monkeypatch, "lakehouse", type="sql", uri=f"sqlite:///{tmp_path}/lakehouse.db")
    table_export(group, filled)
    assert problem_rows(Destination(FolderStore(tmp_path / "out"))) == []


def test_a_namespace_of_several_levels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is the same one where it is made and where its tables are opened: catalogs may keep its levels apart."""
    configure(monkeypatch, "prod", type="rest", uri="http://127.0.0.1:1")
    catalog = Mock()
    catalog.load_table.side_effect = NoSuchTableError
    catalog.create_table_transaction.side_effect = TableAlreadyExistsError
    monkeypatch.setattr(IcebergTables, "_open_catalog", lambda _: catalog)
    layout = Layout(format="iceberg", catalog="prod.lake.raw")
    tables = IcebergTables(Destination(FolderStore(tmp_path)), layout)
    tables.make(["orders"], schema_of(layout, FieldSchemas()), lambda _: None)
    catalog.create_namespace_if_not_exists.assert_called_once_with(("lake", "raw"))
    catalog.load_table.assert_called_once_with(("lake", "raw", "orders"))
    assert catalog.create_table_transaction.call_args.args[0] == ("lake", "raw", "orders")


@pytest.mark.long
def test_through_a_rest_catalog(
    table_export: Export, make_topic: Callable[..., str], fill: Callable[..., object], unique: Callable[[str], str],
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Iceberg's own server, whose answers are lost, or which is away, as a run is committed; and two exporters of one
    run."""
    layout = LayoutOptions(format="iceberg", catalog="prod.lake.raw")
    with rest_catalog(tmp_path / "rest") as port, HarmfulProxy(port) as proxy:
        configure(monkeypatch, "prod", type="rest", uri=f"http://127.0.0.1:{proxy.port}")

        def export(topic: str, harm: Harm | None = None, **options: Any) -> str:
            """Into a table; the first commit of a run to it is harmed."""
            name = f"/tables/{table_name(topic)}"
            proxy.harmed.clear()
            proxy.choose = lambda request: (
                harm if request.method == "POST" and request.path.endswith(name) and not proxy.harmed else None
            )
            (row,) = table_export(topic, topic, layout=layout, **options)
            assert row.table is not None
            return row.table

        def count(table: str) -> int:
            return len(rows_of(load_catalog("prod").load_table(table)))

        topic = make_topic()
        for rows in (10, 20):
            fill(topic, 10)
            table = export(topic)
            assert count(table) == rows
        for harm, rows in (("lose", 30), ("refuse", 40)):
            fill(topic, 10)
            with contextlib.nullcontext() if harm == "lose" else pytest.raises(ZkgroupError, match=table_name(topic)):
                export(topic, harm)
            assert len(proxy.harmed) == 1
            points: Points = []
            export(topic, on_point=points.append)
            assert "runner started" not in points
            assert count(table) == rows
        refused = let_a_rival_commit(monkeypatch)
        fill(topic, 10)
        export(topic)
        assert (len(refused), count(table)) == (1, 50)
        fresh = make_topic()
        fill(fresh, 10)
        with pytest.raises(ZkgroupError, match=table_name(fresh)):  # it is made, and nobody says so
            export(fresh, "lose")
        assert count(export(fresh)) == 10
        assert problem_rows(Destination(FolderStore(tmp_path / "out"))) == []


# --- what others do -------------------------------------------------------------------------------------------------


def test_a_table_that_was_compacted_and_expired_goes_on(lake: TableLake) -> None:
    """Its rows are in other files, and no snapshot of an export is left: nothing to ask, nothing wrong."""
    lake.table.compact(Chosen(0))
    assert problem_rows(lake.destination) == []
    assert not any((one.summary or {}).get("zkgroup.run") for one in table_of(lake.out, lake.topic).metadata.snapshots)
    assert lake.more() == [(20, 30)]
    assert lake.more() == [(30, 40)]
    assert lake.offsets() == list(range(40))
    assert problem_rows(lake.destination) == []
    lake.table.step_back(2)  # to where only expired snapshots had the runs
    assert [(row.start, row.end, row.mend) for row in problem_rows(lake.destination)] == [(20, 40, "mismatch")]
    assert lake.more(on_mismatch="lake") == [(20, 50)]
    assert lake.offsets() == list(range(50))


def test_files_of_others_may_lie_anywhere(lake: TableLake, tmp_path: Path) -> None:
    """Spark names those of a local table ``file:/…``."""
    for place in (f"file:{lake.out}/{lake.topic}/data", f"{tmp_path}/elsewhere"):
        with table_of(lake.out, lake.topic).transaction() as transaction:
            transaction.set_properties({"write.data.path": place})
        lake.table.compact(Chosen(1))
        (found,) = table_of(lake.out, lake.topic).scan().plan_files()
        assert found.file.file_path.startswith(f"{place}/")
        assert problem_rows(lake.destination) == []


def test_a_tag_that_keeps_an_older_run_is_no_rollback(lake: TableLake) -> None:
    """A snapshot of the first run is kept while those behind it expire."""
    newest = table_of(lake.out, lake.topic).current_snapshot()
    assert newest is not None
    assert newest.parent_snapshot_id is not None
    table_of(lake.out, lake.topic).manage_snapshots().create_tag(newest.parent_snapshot_id, "kept").commit()
    lake.table.compact(Chosen(0))
    assert len(table_of(lake.out, lake.topic).metadata.snapshots) == 2
    assert problem_rows(lake.destination) == []
    assert lake.more() == [(20, 30)]
    assert lake.offsets() == list(range(30))


def test_a_table_that_was_altered(lake: TableLake) -> None:
    """A column more is no harm; a column less is refused before anything is read."""
    from pyiceberg.types import StringType

    with table_of(lake.out, lake.topic).update_schema() as update:
        update.add_column("note", StringType())
    assert lake.more() == [(20, 30)]
    assert [row["note"] for row in lake.table.rows()] == [None] * 30
    with table_of(lake.out, lake.topic).update_schema() as update:
        update.rename_column("value", "payload")
    points: Points = []
    with pytest.raises(RefusedError, match=rf"{table_name(lake.topic)}\b.*\bvalue\b"):
        lake.more(on_point=points.append)
    assert "runner started" not in points
    with table_of(lake.out, lake.topic).update_schema() as update:
        update.rename_column("payload", "value")
        update.delete_column("headers")
    with pytest.raises(RefusedError, match=rf"{table_name(lake.topic)}\b.*\bheaders\b"):
        lake.more()


def test_a_table_of_others_is_left_alone(
    table_export: Export, make_topic: Callable[..., str], fill: Callable[..., object], unique: Callable[[str], str],
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
    with pytest.raises(RefusedError, match=rf"{table_name(dotted)}\b.*({dotted}\b.*{dashed}|{dashed}\b.*{dotted})\b"):
        table_export(group, dotted, dashed)
    table_export(group, dotted)
    assert len(rows_of(table_of(tmp_path / "out", dotted))) == 5
    with pytest.raises(RefusedError, match=rf"{table_name(dashed)}\b.*{dotted}"):
        table_export(group, dashed)
    catalog_of(tmp_path / "out").create_table(("kafka", table_name(plain)), pa.schema([("x", pa.int64())]))
    with pytest.raises(RefusedError, match=table_name(plain)):
        table_export(group, plain)


def test_a_destination_that_was_copied_is_refused(lake: TableLake, tmp_path: Path) -> None:
    """Its catalog names the files by whole paths: an export to the copy would commit to the table that was copied. A
    link to the destination is the destination."""
    copy, link = (tmp_path / name for name in ("copy", "link"))
    shutil.copytree(lake.out, copy)
    with pytest.raises(RefusedError, match=rf"{copy}\b.*{lake.out}\b.*--to {lake.out}"):
        lake.more(root=copy)
    lake.send()
    link.symlink_to(lake.out)
    assert read(lake.export(lake.group, lake.topic, root=link)) == [(20, 40)]
    assert lake.offsets() == list(range(40))


def test_an_older_copy_of_the_log_and_its_catalog_asks(lake: TableLake, tmp_path: Path) -> None:
    """Both are in ``_zkgroup``: what came since is not there, and its files harm nobody."""
    shutil.copytree(lake.out / "_zkgroup", tmp_path / "copy")
    lake.more()
    shutil.rmtree(lake.out / "_zkgroup")
    shutil.move(tmp_path / "copy", lake.out / "_zkgroup")
    with pytest.raises(MismatchError) as refused:
        lake.more()
    assert [one.kind for one in refused.value.mismatches] == ["ahead"]
    assert lake.more(on_mismatch="lake") == [(20, 50)]
    assert lake.offsets() == list(range(50))
    assert problem_rows(lake.destination) == []


# --- what else an export does ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("by", [("partition",), (), ("date", "hour"), ("partition", "date")])
def test_every_reader_finds_the_columns(
    table_export: Export, make_topic: Callable[..., str], kafka: KafkaSettings, unique: Callable[[str], str],
    tmp_path: Path, by: tuple[Any, ...],
) -> None:  # fmt: skip
    """pyiceberg, pyarrow and DuckDB: the same rows and types; files are skipped by partitions and by statistics."""
    topic = make_topic(2)
    for day in range(3):
        stamp = 1_714_521_600_000 + day * 86_400_000
        produce(
            kafka,
            topic,
            [ProducerRecord(b"%d" % i, b"k", p, timestamp_ms=stamp + i) for p in range(2) for i in range(10)],
        )
        table_export(topic, topic, layout=LayoutOptions(by=by, format="iceberg"))
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
    assert problem_rows(Destination(FolderStore(tmp_path / "out"))) == []


def test_messages_without_a_time(
    table_export: Export,
    make_topic: Callable[..., str],
    kafka: KafkaSettings,
    unique: Callable[[str], str],
    tmp_path: Path,
) -> None:
    """Their partition is null, as Iceberg has it."""
    topic = make_topic()
    produce(kafka, topic, [ProducerRecord(b"x", None, 0, timestamp_ms=1 << 60)])
    table_export(unique("group"), topic, layout=LayoutOptions(by=("date",), format="iceberg"))
    table = table_of(tmp_path / "out", topic)
    (task,) = table.scan().plan_files()
    assert task.file.partition[1] is None
    assert [row["timestamp"] for row in rows_of(table)] == [None]


def test_options_that_do_not_fit() -> None:
    """A zone, a catalog for other formats, a bucket without a catalog, a place that pyiceberg is not written to."""
    with pytest.raises(UsageError, match=r"UTC.*--time-zone"):
        LayoutOptions(("date",), "Europe/Berlin", format="iceberg").resolve(None, "x")
    with pytest.raises(UsageError, match=r"--catalog .*--format iceberg"):
        LayoutOptions(format="delta", catalog="prod").resolve(None, "x")
    for place, why in (("s3://bucket/lake", "--catalog"), ("gs://bucket/lake", "gs:")):
        with pytest.raises(UsageError, match=why):
            IcebergTables(Destination(open_store(parse_address(place))), Layout(format="iceberg"))
    with pytest.raises(UsageError, match=r"\bnosuch\b.*PYICEBERG_CATALOG__NOSUCH__"):
        IcebergTables(Destination(open_store(parse_address("/lake"))), Layout(format="iceberg", catalog="nosuch.raw"))


def test_by_the_command_into_a_named_catalog(
    cluster: Sandbox, filled: str, unique: Callable[[str], str], tmp_path: Path
) -> None:
    """``--catalog lakehouse.raw``, configured as pyiceberg's users do; later exports and ``--verify``
    need no option, and another catalog is refused."""
    group, out, catalog = unique("group"), tmp_path / "out", f"sqlite:///{tmp_path}/lakehouse.db"
    named = "PYICEBERG_CATALOG__LAKEHOUSE"
    env = {f"{named}__TYPE": "sql", f"{named}__URI": catalog, f"{named}__WAREHOUSE": f"file://{tmp_path}/warehouse"}
    words = ("-z", cluster.connect, "export")
    begin = ("--group", group, "--from", "earliest", "--to", str(out))
    done = run(*words, filled, *begin, "--format", "iceberg", "--catalog", "lakehouse.raw", env=env | WITHOUT_SPARK)
    assert done.returncode == 0, done.stderr
    table = load_catalog("lakehouse", type="sql", uri=catalog).load_table(("raw", table_name(filled)))
    assert len(rows_of(table)) == MESSAGES
    done = run(*words, "--group", group, "--to", str(out), "--verify", env=env)
    assert (done.returncode, done.stderr) == (0, "")
    done = run(*words, filled, *begin, "--catalog", "other", env=env)
    assert (done.returncode, names(done.stderr, out, "--format iceberg --catalog lakehouse.raw")) == (5, True)


def test_names_that_no_table_has_are_reported(
    cluster: Sandbox, registry: Registry, fill: Callable[..., object], unique: Callable[[str], str],
    table_export: Export, tmp_path: Path,
) -> None:  # fmt: skip
    """Dots, hyphens and a leading digit: the summary has the table's name."""
    topic, group = f"2024.{unique('orders')}", unique("group")
    create_topic(registry, topic)
    fill(topic, 5)
    out = tmp_path / "out"
    name = f"kafka._{topic.replace('.', '_').replace('-', '_')}"
    assert [row.table for row in table_export(group, topic)] == [name]
    done = run("-z", cluster.connect, "export", "--group", group, "--to", str(out), "--output", "json")
    assert [row["table"] for row in json.loads(done.stdout)] == [name]
    assert catalog_of(out).table_exists(name)
