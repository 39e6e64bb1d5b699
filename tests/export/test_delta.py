"""Exports into Delta tables: what is Delta's own; ``test_tables`` has what holds for all formats."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from cli import run
from deltalake import CommitProperties, DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError
from deltalake.schema import Field, PrimitiveType
from export_points import MESSAGES, PARTITIONS, Export, Points
from exports import problem_rows, table_in
from lines import names
from object_store_server import SECRET, uri_of
from table_lake import TableLake
from walked_tables import rows_in

from zkgroup.clients.kafka.client import KafkaSettings
from zkgroup.errors import RefusedError, UsageError
from zkgroup.export.destination import delta_tables
from zkgroup.export.destination.coverage import merge_coverage, roll_back
from zkgroup.export.destination.delta_tables import DeltaTables
from zkgroup.export.destination.run_log import Destination
from zkgroup.export.destination.table_format import TableChangedError
from zkgroup.export.model.address import parse_address
from zkgroup.export.model.choices import TableKind
from zkgroup.export.model.layout import Layout, LayoutOptions
from zkgroup.export.model.run_record import DamagedDocumentError, TopicCoverage, TopicIdentity
from zkgroup.export.planning.mismatch import MismatchError
from zkgroup.export.stores.store import FolderStore, open_store
from zkgroup.sandbox.local_cluster import Sandbox
from zkgroup.sandbox.topic_admin import ProducerRecord, produce


@pytest.fixture
def kind() -> TableKind:
    """Of all tables of this module."""
    return "delta"


def test_of_two_commits_of_a_run_the_table_refuses_one(
    table_export: Export, filled: str, unique: Callable[[str], str], is_complete_table: Callable[..., None],
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Both have opened the table before either commits, with whatever retries: the second one is refused."""
    group, commit = unique("twice"), DeltaTable.create_write_transaction
    refused: list[str] = []

    def commit_twice(table: DeltaTable, *args: Any, commit_properties: CommitProperties, **options: Any) -> None:
        commit(table, *args, commit_properties=commit_properties, **options)
        for retries in (0, 15):
            commit_properties.max_commit_retries = retries
            try:
                commit(table, *args, commit_properties=commit_properties, **options)
            except CommitFailedError as error:
                refused.append(str(error))

    monkeypatch.setattr(DeltaTable, "create_write_transaction", commit_twice)
    table_export(group, filled)
    assert len(refused) == 2, refused
    is_complete_table(group, filled, tmp_path / "out")


@pytest.mark.parametrize("restores", [False, True])
def test_commits_while_the_history_is_read(lake: TableLake, monkeypatch: pytest.MonkeyPatch, restores: bool) -> None:
    """It may be long: a commit of others that comes meanwhile costs no try, and a restore is seen."""
    run_of, commit, tries = DeltaTables._run_of, DeltaTable.create_write_transaction, list[int]()

    def slowly(tables: DeltaTables, table: DeltaTable, group: str, topic: str) -> int:
        monkeypatch.setattr(DeltaTables, "_run_of", run_of)  # once
        found = run_of(tables, table, group, topic)
        if restores:
            table_in(lake.out, lake.topic).restore(table.version() - 1)
        else:
            lake.table.touch()
        return found

    def counted(table: DeltaTable, *args: Any, **options: Any) -> None:
        tries.append(table.version())
        commit(table, *args, **options)

    def interfere(point: str) -> None:
        if point == "record in the log":
            monkeypatch.setattr(DeltaTables, "_run_of", slowly)
            monkeypatch.setattr(DeltaTable, "create_write_transaction", counted)

    if restores:
        with pytest.raises(TableChangedError, match=lake.topic):
            lake.more(on_point=interfere)
        assert (tries, lake.offsets()) == ([], list(range(10)))
    else:
        assert lake.more(on_point=interfere) == [(20, 30)]
        assert (len(tries), lake.offsets()) == (1, list(range(30)))


# --- what others do -------------------------------------------------------------------------------------------------


def test_a_table_that_was_restored_and_restored_again_asks(lake: TableLake) -> None:
    """To the first run, forth to the second, and to the first restore."""
    table = table_in(lake.out, lake.topic)
    version = table.version()
    table.restore(version - 1)
    table.restore(version)
    table.restore(version + 1)
    assert lake.offsets() == list(range(10))
    with pytest.raises(MismatchError) as refused:
        lake.more()
    assert [one.kind for one in refused.value.mismatches] == ["rolled back"]


def test_a_table_that_was_restored_to_a_time_asks(lake: TableLake, monkeypatch: pytest.MonkeyPatch) -> None:
    """To the first run, by a history that is longer than what is read of it at first."""
    monkeypatch.setattr(delta_tables, "_NEWEST", 1)
    table = table_in(lake.out, lake.topic)
    table.restore(datetime.fromtimestamp(table.history()[1]["timestamp"] / 1000, UTC))
    lake.table.touch()
    assert lake.offsets() == list(range(10))
    with pytest.raises(MismatchError) as refused:
        lake.more()
    assert [one.kind for one in refused.value.mismatches] == ["rolled back"]


def test_an_older_copy_of_a_table_asks(lake: TableLake, tmp_path: Path) -> None:
    """A table's folder is restored from a copy, without a RESTORE: what came since is missing."""
    shutil.copytree(lake.out / lake.topic, tmp_path / "copy")
    lake.more()
    shutil.rmtree(lake.out / lake.topic)
    shutil.move(tmp_path / "copy", lake.out / lake.topic)
    with pytest.raises(MismatchError) as refused:
        lake.more()
    assert [one.kind for one in refused.value.mismatches] == ["rolled back"]
    assert lake.more(on_mismatch="lake") == [(20, 50)]
    assert lake.offsets() == list(range(50))


def test_an_older_copy_of_the_log_is_refused(lake: TableLake, tmp_path: Path) -> None:
    """A table that has a run which the log does not: nothing is written."""
    shutil.copytree(lake.out / "_zkgroup", tmp_path / "copy")
    lake.more()
    shutil.rmtree(lake.out / "_zkgroup")
    shutil.move(tmp_path / "copy", lake.out / "_zkgroup")
    with pytest.raises(DamagedDocumentError, match=rf"\b3\b.*/_zkgroup/log/{lake.group}\b"):
        lake.more()
    assert lake.offsets() == list(range(30))
    assert names(str(problem_rows(lake.destination)[-1].problem), 3, f"_zkgroup/log/{lake.group}")


def test_a_table_that_was_altered(lake: TableLake) -> None:
    """A column more is no harm, nor is the change data feed. What an export cannot heed is refused before anything is
    read, and until it is undone: the table's writer version stays higher."""
    table_in(lake.out, lake.topic).alter.add_columns([Field("note", PrimitiveType("string"))])
    assert lake.more() == [(20, 30)]
    assert [row["note"] for row in lake.table.rows()] == [None] * 30
    table_in(lake.out, lake.topic).alter.add_constraint({"early": "offset < 35"})
    points: Points = []
    with pytest.raises(RefusedError, match=rf"{lake.topic}\b.*\(checkConstraints\)"):
        lake.more(on_point=points.append)
    assert "runner started" not in points
    assert lake.offsets() == list(range(30))
    table_in(lake.out, lake.topic).alter.drop_constraint("early")
    table_in(lake.out, lake.topic).alter.set_table_properties({"delta.enableChangeDataFeed": "true"})
    assert table_in(lake.out, lake.topic).protocol().min_writer_version == 4
    assert lake.more() == [(30, 50)]
    assert lake.offsets() == list(range(50))


def alter_log(
    folder: Path, version: int, features: list[str], properties: dict[str, str], column: dict[str, Any]
) -> None:
    """Commit to a table as another engine does: a writer version with these features, properties, and metadata of the
    column ``offset``."""
    table, log = DeltaTable(folder), folder / "_delta_log"
    lines = [json.loads(line) for file in sorted(log.glob("*.json")) for line in file.read_text().splitlines()]
    metadata = [line["metaData"] for line in lines if "metaData" in line][-1]
    schema = json.loads(metadata["schemaString"])
    (field,) = (one for one in schema["fields"] if one["name"] == "offset")
    field["metadata"] = column
    protocol = {
        "minReaderVersion": 1,
        "minWriterVersion": version,
        **({"writerFeatures": features} if features else {}),
    }
    changed = metadata | {"schemaString": json.dumps(schema), "configuration": properties}
    text = "".join(json.dumps(line) + "\n" for line in ({"protocol": protocol}, {"metaData": changed}))
    (log / f"{table.version() + 1:020}.json").write_text(text)


@pytest.mark.parametrize(
    ("version", "features", "properties", "column", "refused"),
    [
        (5, [], {"delta.columnMapping.mode": "none"}, {}, ""),
        (7, ["checkConstraints", "generatedColumns"], {}, {}, ""),
        (4, [], {}, {"delta.generationExpression": "1"}, "generatedColumns"),
        (7, ["generatedColumns"], {}, {"delta.generationExpression": "1"}, "generatedColumns"),
        (5, [], {"delta.columnMapping.mode": "name"}, {}, "columnMapping"),
        (6, [], {}, {}, "identityColumns"),
        (6, [], {"delta.constraints.a": "x"}, {"delta.identity.start": 1}, "checkConstraints, identityColumns"),
        (7, ["identityColumns"], {}, {}, "identityColumns"),
    ],
)  # fmt: skip
def test_features_count_where_a_table_uses_them(
    lake: TableLake, version: int, features: list[str], properties: dict[str, str], column: dict[str, Any], refused: str
) -> None:
    """A writer version stands for all features up to it, and remains after the last one is gone. deltalake itself
    refuses identity columns, used or not."""
    alter_log(lake.out / lake.topic, version, features, properties, column)
    assert table_in(lake.out, lake.topic).protocol().min_writer_version == version
    if refused:
        with pytest.raises(RefusedError, match=rf"\({refused}\)"):
            lake.more()
    else:
        assert lake.more() == [(20, 30)]
        assert lake.offsets() == list(range(30))


def test_a_table_of_others_is_left_alone(
    table_export: Export, filled: str, unique: Callable[[str], str],
    tmp_path: Path,
) -> None:  # fmt: skip
    """A table of the topic's name that no export has made; and one without files, of another schema."""
    write_deltalake(tmp_path / "out" / filled, pa.table({"x": [1]}))
    with pytest.raises(RefusedError, match=rf"/out/{filled}\b.*\b1\b"):
        table_export(unique("group"), filled)
    DeltaTable.create(tmp_path / "empty" / filled, pa.schema([("x", pa.int64())]))
    with pytest.raises(RefusedError, match=f"/empty/{filled}"):
        table_export(unique("group"), filled, root=tmp_path / "empty")
    assert table_in(tmp_path / "out", filled).version() == 0


def test_a_destination_has_one_format(
    in_process: Export, table_export: Export, filled: str, unique: Callable[[str], str],
    tmp_path: Path,
) -> None:  # fmt: skip
    """Files stay files, tables stay tables; without --format it is as it was begun."""
    group = unique("group")
    table_export(group, filled, max_messages=10)
    with pytest.raises(RefusedError, match="--format delta --partition-by partition"):
        in_process(group, filled, layout=LayoutOptions(format="parquet"))
    assert sum(row.rows for row in in_process(group, filled)) == MESSAGES - 10
    assert len(rows_in(table_in(tmp_path / "out", filled).to_pyarrow_table())) == MESSAGES
    in_process(group := unique("group"), filled, root=tmp_path / "files")
    with pytest.raises(RefusedError, match="--partition-by partition"):
        table_export(group, filled, root=tmp_path / "files")


def test_the_folder_of_the_log_is_no_table(tmp_path: Path) -> None:
    """A vacuum of such a table would remove the records of exports."""
    tables = DeltaTables(Destination(FolderStore(tmp_path)), Layout(format="delta"))
    with pytest.raises(RefusedError, match="_zkgroup"):
        tables.refuse_foreign("_zkgroup", is_recorded=False)
    tables.refuse_foreign("orders", is_recorded=False)


def test_only_where_deltalake_writes() -> None:
    """Folders and S3."""
    for place, why in (("gs://bucket/lake", "gs:"), ("/a%20b", "/a%20b .*%"), ("/a#b?c", r"/a#b\?c .*#")):
        with pytest.raises(UsageError, match=why):
            DeltaTables(Destination(open_store(parse_address(place))), Layout(format="delta"))


@pytest.mark.parametrize("place", ["gs://bucket/lake", "/data/a%20b", "/data/a#b", "/data/a?b"])
def test_a_place_for_no_table_is_refused_before_any_server_is_asked(place: str) -> None:
    """Neither the store nor ZooKeeper, which is not there."""
    for kind in ("delta", "iceberg"):
        done = run("-z", "127.0.0.1:1", "export", "orders", "-g", "warehouse", "--to", place, "--format", kind)
        assert done.returncode == 2, done.stderr


# --- what else an export does ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("by", [("partition",), (), ("date", "hour"), ("partition", "date")])
def test_every_reader_finds_the_columns(
    table_export: Export, make_topic: Callable[..., str], kafka: KafkaSettings, unique: Callable[[str], str],
    tmp_path: Path, by: tuple[Any, ...],
) -> None:  # fmt: skip
    """deltalake, DuckDB and pyarrow: the same rows and types, folders as columns; files are skipped by statistics."""
    topic = make_topic(2)
    for day in range(3):
        stamp = 1_714_521_600_000 + day * 86_400_000
        produce(
            kafka,
            topic,
            [ProducerRecord(b"%d" % i, b"k", p, timestamp_ms=stamp + i) for p in range(2) for i in range(10)],
        )
        table_export(topic, topic, layout=LayoutOptions(by=by, format="delta"))
    table = table_in(tmp_path / "out", topic)
    arrow = table.to_pyarrow_table()
    kinds = {field.name: str(field.type) for field in arrow.schema}
    assert kinds["topic"] == "string"
    assert kinds["partition"] == "int32"
    assert kinds["offset"] == "int64"
    assert kinds["timestamp"] == "timestamp[us, tz=UTC]"
    assert kinds["key"] == kinds["value"] == "binary"
    assert kinds.get("date") == ("date32[day]" if "date" in by else None)
    assert kinds.get("hour") == ("int32" if "hour" in by else None)
    assert sorted(zip(arrow["partition"].to_pylist(), arrow["offset"].to_pylist(), strict=True)) == [
        (p, offset) for p in range(2) for offset in range(30)
    ]
    assert {row["timestamp"].isoformat() for row in rows_in(table.to_pyarrow_table()) if row["offset"] == 11} == {
        "2024-05-02T00:00:00.001000+00:00"
    }
    dataset = table.to_pyarrow_dataset()
    early = (pc.field("offset") < 10) & (pc.field("partition") == 1)
    assert len(list(dataset.get_fragments(early))) == 1
    query = 'SELECT sum(value::VARCHAR::INT), max("offset") FROM dataset WHERE partition = 1'
    assert duckdb.sql(query).fetchall() == [(135, 29)]
    files = table.file_uris()
    assert duckdb.read_parquet(files, hive_partitioning=True).count("*").fetchall() == [(60,)]
    stats = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    assert all(row["num_records"] and row["null_count.timestamp"] == 0 for row in stats)
    assert problem_rows(Destination(FolderStore(tmp_path / "out"))) == []


def test_messages_without_time_have_null_statistics(
    table_export: Export,
    make_topic: Callable[..., str],
    kafka: KafkaSettings,
    unique: Callable[[str], str],
    tmp_path: Path,
) -> None:
    """A column of nothing but nulls: its statistics say so, and readers of others skip the file."""
    topic = make_topic()
    produce(kafka, topic, [ProducerRecord(b"x", None, 0, timestamp_ms=1 << 60)])
    table_export(unique("group"), topic)
    (row,) = pa.table(table_in(tmp_path / "out", topic).get_add_actions(flatten=True)).to_pylist()
    assert (row["null_count.timestamp"], row.get("min.timestamp"), row["min.offset"]) == (1, None, 0)


def test_into_a_bucket(
    table_export: Export, filled: str, unique: Callable[[str], str], s3_server: int, bucket: str
) -> None:
    """s3://: the commit, a second one, what --verify says; no secret in what is kept."""
    root = parse_address(uri_of(s3_server, f"{bucket}/lake"))
    group = unique("group")
    table_export(group, filled, root=root, max_messages=20)
    table_export(group, filled, root=root)
    options = {"aws_endpoint_url": f"http://127.0.0.1:{s3_server}", "aws_allow_http": "true", "aws_region": "us-east-1"}
    table = DeltaTable(f"s3://{bucket}/lake/{filled}", storage_options=options)
    assert len(rows_in(table.to_pyarrow_table())) == MESSAGES
    assert SECRET not in json.dumps(table.history(), default=str)
    assert problem_rows(Destination(open_store(root))) == []


def test_by_the_command(cluster: Sandbox, filled: str, unique: Callable[[str], str], tmp_path: Path) -> None:
    """``--format delta`` through Spark; the reports, and the question after a restore, with its commands."""
    group, out = unique("group"), tmp_path / "out"
    words = ("-z", cluster.connect, "export")
    done = run(*words, filled, "--group", group, "--from", "earliest", "--to", str(out), "--format", "delta")
    assert done.returncode == 0, done.stderr
    table = table_in(out, filled)
    assert len(rows_in(table.to_pyarrow_table())) == MESSAGES
    table.restore(0)
    done = run(*words, "--group", group, "--to", str(out), "--verify", "--output", "json")
    wrong = {(row["topic"], row["start"], row["end"]) for row in json.loads(done.stdout) if row["problem"]}
    assert (done.returncode, wrong) == (6, {(filled, 0, MESSAGES // PARTITIONS)})
    assert names(done.stderr, f"{filled}-0", "export", f"--group {group} --to {out} --on-mismatch lake")
    done = run(*words, filled, "--group", group, "--to", str(out))
    assert done.returncode == 5
    assert names(done.stderr, "export", "--on-mismatch lake", f"--group {group}")
    assert names(done.stderr, group, out, f"{filled}-0", "--on-mismatch", "lake")


def test_a_table_that_was_rolled_back_accounts_for_less() -> None:
    """Pure: what it had then; nothing of a partition that came later, or of another log."""
    one, other = TopicIdentity(7), TopicIdentity(8)
    known = TopicCoverage(one, {0: ((5, 20),), 1: ((3, 9),)}, {0: 20, 1: 9})
    then = TopicCoverage(one, {0: ((5, 10),)}, {0: 10})
    assert roll_back(known, then) == TopicCoverage(one, {0: ((5, 10),), 1: ((3, 3),)}, {0: 10, 1: 3})
    nothing = TopicCoverage(one, {0: ((5, 5),), 1: ((3, 3),)}, {0: 5, 1: 3})
    assert roll_back(known, None) == roll_back(known, TopicCoverage(other, {0: ((0, 99),)}, {0: 99})) == nothing


def test_of_two_logs_of_a_topic_the_later_one_counts() -> None:
    """Pure: one group has exported the first, which was deleted, another one the second."""
    first, second = (TopicCoverage(TopicIdentity(n), {0: ((0, n),)}, {0: n}) for n in (7, 8))
    assert merge_coverage(first, second) == merge_coverage(second, first) == second
