"""Exports into Delta tables: each message once, whatever dies when, and whatever others do to the tables."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from cli import run
from deltalake import CommitProperties, DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError
from deltalake.schema import Field, PrimitiveType
from export_points import MESSAGES, PARTITIONS, Export, Paused, Points, driven, lose_session
from exports import files_in, joining, nothing_in, problems, read, recreate_topic, rows_of, table_in
from object_store import SECRET, uri_of

from zkgroup.clients.kafka.client import KafkaSettings
from zkgroup.clients.zookeeper import ZooKeeperSettings
from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.errors import RefusedError, UsageError, ZkgroupError
from zkgroup.export.checks.run_history import history
from zkgroup.export.checks.verify import verify
from zkgroup.export.destination.coverage import roll_back
from zkgroup.export.destination.delta_tables import DeltaTables
from zkgroup.export.destination.parquet_destination import Destination
from zkgroup.export.model.address import parse_address
from zkgroup.export.model.layout import Layout, LayoutWish
from zkgroup.export.model.run_record import TopicCoverage, TopicIdentity
from zkgroup.export.planning.bounds import Bound
from zkgroup.export.planning.mismatch import MismatchError
from zkgroup.export.stores.store import FolderStore, open_store
from zkgroup.protocol import znodes
from zkgroup.protocol.names import TopicPartition
from zkgroup.protocol.operations import Children, Exists, Get, Node, Stat
from zkgroup.sandbox.local_cluster import Sandbox
from zkgroup.sandbox.topic_admin import Record, produce

DELTA = LayoutWish(format="delta")


@pytest.fixture
def export(in_process: Export) -> Export:
    """``export(group, topics…, option=…)``: one export into tables, without Spark."""
    return lambda group, *topics, **options: in_process(
        group, *topics, **{"layout": DELTA, "range_messages": 10, **options}
    )


@pytest.fixture
def brief_export(brief: Export) -> Export:
    """The same, under a session that ends soon."""
    return lambda group, *topics, **options: brief(group, *topics, **{"layout": DELTA, **options})


@pytest.fixture
def is_complete(registry: Registry) -> Callable[[str, str, Path], None]:
    """``is_complete(group, topic, out)``: everything is in the table once, and committed; nothing else is left."""

    def check(group: str, topic: str, out: Path) -> None:
        each = MESSAGES // PARTITIONS
        table = table_in(out, topic)
        found = [(row["topic"], row["partition"], row["offset"], row["value"]) for row in rows_of(table)]
        assert found == [(topic, p, i, b"m%06d" % (i * PARTITIONS + p)) for p in range(PARTITIONS) for i in range(each)]
        data = {str(Path(name).relative_to(out)) for name in table.file_uris()}
        names = files_in(out)
        assert {name for name in names if not name.startswith("_zkgroup/") and "_delta_log" not in name} == data
        kept = [name.split("/")[1:] for name in names if name.startswith("_zkgroup/")]
        assert {name[0] for name in kept} == {"log", "topics", "layout"}
        assert registry.read([Children(znodes.group(group))]) == [("offsets",)]
        paths = [znodes.offset(group, TopicPartition(topic, p)) for p in range(PARTITIONS)]
        nodes = cast("list[Node]", registry.read([Get(path) for path in paths]))
        assert [(node.data, node.stat.version) for node in nodes] == [(b"%d" % each, 0)] * PARTITIONS
        (stat,) = cast("list[Stat]", registry.read([Exists(znodes.topic(topic))]))
        for partition in range(PARTITIONS):
            assert table.transaction_version(f"zkgroup/{group}/{topic}@{stat.czxid:x}-{partition}") == each
        assert table.transaction_version(f"zkgroup/{group}") == 1

    return check


# --- killed, paused, unanswered -------------------------------------------------------------------------------------


def walk(
    points: Sequence[str], topic: str, short: ZooKeeperSettings, kafka: KafkaSettings, unique: Callable[[str], str],
    tmp_path: Path, export: Export, is_complete: Callable[..., None],
) -> None:  # fmt: skip
    """Kill an export at each point, and let another one go on."""

    def kill_and_go_on(point: str) -> None:
        name = unique("killed")
        wish = {"group": name, "topics": [topic], "out": tmp_path / name, "format": "delta"}
        code, lines = driven(short, kafka, kill_at=point, **wish)
        assert (code, lines[-1]) == (-9, point)
        export(name, topic, root=tmp_path / name)
        is_complete(name, topic, tmp_path / name)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(kill_and_go_on, points))


@pytest.mark.parametrize(
    "every", [False, pytest.param(True, marks=pytest.mark.long)], ids=["around the commit", "every point"]
)
def test_killed_at_a_point_and_run_again(
    brief_export: Export, filled: str, unique: Callable[[str], str], is_complete: Callable[..., None],
    short: ZooKeeperSettings, kafka: KafkaSettings, tmp_path: Path, every: bool,
) -> None:  # fmt: skip
    """SIGKILL as a point is passed: the table is the old one or the new one, and the next export ends it all."""
    points: Points = []
    group = unique("group")
    brief_export(group, filled, passed=points.append)
    is_complete(group, filled, tmp_path / "out")
    assert points[points.index("published for good") + 1 :][:2] == ["table 1 of 1 made", "table 1 of 1 committed"]
    first = points.index("published for good")
    chosen = points if every else [*points[first : first + 3], "decided"]
    walk(chosen, filled, short, kafka, unique, tmp_path, brief_export, is_complete)


@pytest.mark.parametrize("point", ["decided", "table 1 of 1 made", "table 1 of 1 committed"])
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
    export(group, filled)
    assert len(refused) == 2, refused
    is_complete(group, filled, tmp_path / "out")


@pytest.mark.parametrize("is_done", [True, False])
def test_a_commit_whose_answer_is_lost(
    export: Export, filled: str, unique: Callable[[str], str], is_complete: Callable[..., None], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, is_done: bool,
) -> None:  # fmt: skip
    """If it was done, the export ends well; if not, the next one commits, and reads nothing."""
    group, commit = unique("unanswered"), DeltaTable.create_write_transaction

    def unanswered(table: DeltaTable, *args: Any, **options: Any) -> None:
        if is_done:
            commit(table, *args, **options)
        raise OSError("the store is away")

    with monkeypatch.context() as patch:
        patch.setattr(DeltaTable, "create_write_transaction", unanswered)
        if is_done:
            export(group, filled)
        else:
            with pytest.raises(ZkgroupError, match=r"cannot write the table .*: the store is away"):
                export(group, filled)
            points: Points = []
            patch.undo()
            export(group, filled, passed=points.append)
            assert "runner started" not in points
    is_complete(group, filled, tmp_path / "out")


def test_commits_of_others_come_between(
    export: Export, filled: str, unique: Callable[[str], str], is_complete: Callable[..., None], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """A commit that another writer was faster than is tried again, on top of that one's."""
    group, commit, versions = unique("between"), DeltaTable.create_write_transaction, list[int]()

    def second(table: DeltaTable, *args: Any, **options: Any) -> None:
        versions.append(table.version())
        if len(versions) < 3:
            DeltaTable(tmp_path / "out" / filled).alter.set_table_description(f"{len(versions)}")
        commit(table, *args, **options)

    monkeypatch.setattr(DeltaTable, "create_write_transaction", second)
    export(group, filled)
    assert versions == [0, 1, 2]
    is_complete(group, filled, tmp_path / "out")


def test_what_fails_before_the_decision_leaves_no_table(
    export: Export, filled: str, unique: Callable[[str], str], tmp_path: Path
) -> None:
    """No folder of a table, and no file."""

    def fail(point: str) -> None:
        if point == "record written":
            raise ZkgroupError("on purpose")

    with pytest.raises(ZkgroupError, match="on purpose"):
        export(unique("group"), filled, passed=fail)
    assert nothing_in(tmp_path / "out")


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

    def send(self) -> None:
        """Ten messages."""
        records = [Record(b"%d" % i, None, 0) for i in range(self._sent, self._sent + 10)]
        produce(self._kafka, self.topic, records)
        self._sent += 10

    def more(self, **options: Any) -> list[tuple[int, int]]:
        """Ten messages, exported; what the export has read."""
        self.send()
        return read(self.export(self.group, self.topic, **options))

    @property
    def table(self) -> DeltaTable:
        return table_in(self.out, self.topic)

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


def test_a_table_that_was_compacted_goes_on(lake: Lake) -> None:
    """OPTIMIZE and VACUUM between two exports, and between a decision and its commit: nothing to ask, nothing wrong."""

    def compact(point: str = "published for good") -> None:
        if point == "published for good":
            assert lake.table.optimize.compact()["numFilesAdded"] <= 1
            lake.table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False, full=False)

    compact()
    assert len(lake.table.file_uris()) == 1
    assert problems(lake.destination) == []
    assert lake.more(passed=compact) == [(20, 30)]
    assert lake.more() == [(30, 40)]
    assert lake.offsets() == list(range(40))
    compact()
    assert problems(lake.destination) == []
    assert [row.rows for row in history(lake.destination)] == [10, 10, 10, 10]


def test_rows_that_others_take_out_or_put_in_are_named(lake: Lake) -> None:
    """A DELETE, and an INSERT of what is there: an export goes on, ``--verify`` says what is wrong."""
    lake.table.delete("offset = 5")
    assert lake.more() == [(20, 30)]
    ((start, end, why),) = problems(lake.destination)
    assert (start, end, why) == (0, 10, "others have put 9 rows in the place of 10")
    rows = lake.table.to_pyarrow_table(filters=[("offset", "=", 25)])
    write_deltalake(lake.table, rows, mode="append")
    ((start, end, why),) = problems(lake.destination)
    assert why == "others have put 10 rows in the place of 10, with other offsets"
    assert lake.more() == [(30, 40)]


@pytest.mark.parametrize("again", [False, True], ids=["restored", "restored, and restored again"])
def test_a_table_that_was_rolled_back_asks(lake: Lake, again: bool) -> None:
    """RESTORE takes the second run's rows away: the export asks, --verify names them, ``lake`` writes them again."""
    committed = lake.table.version()
    lake.table.restore(committed - 1)
    if again:
        lake.table.restore(committed)
        lake.table.restore(committed + 1)
    assert lake.offsets() == list(range(10))
    why = "the table was rolled back, and does not have all of these"
    assert problems(lake.destination) == [(10, 20, why)]
    with pytest.raises(MismatchError, match=r"the table was rolled back") as raised:
        lake.more()
    assert [answer for answer, _ in raised.value.answers] == ["lake", "group", "skip"]
    assert lake.more(on_mismatch="lake") == [(10, 40)]
    assert lake.offsets() == list(range(40))
    assert problems(lake.destination) == []
    assert lake.more() == [(40, 50)]


def test_a_restore_that_was_undone_is_none(lake: Lake) -> None:
    """Restored back, and forth to where the last run was."""
    version = lake.table.version()
    lake.table.restore(version - 1)
    lake.table.restore(version)
    assert problems(lake.destination) == []
    assert lake.more() == [(20, 30)]
    assert lake.offsets() == list(range(30))


def test_a_restore_that_is_undone_after_an_export(lake: Lake) -> None:
    """Rolled back, exported, and restored to before that: the first run that was away counts again, the export is what
    is missing."""
    version = lake.table.version()
    lake.table.restore(version - 1)
    assert lake.more(on_mismatch="group") == [(20, 30)]
    lake.table.restore(version)
    assert lake.offsets() == list(range(20))
    assert problems(lake.destination) == [(20, 30, "the table was rolled back, and does not have all of these")]
    assert lake.more(on_mismatch="lake") == [(20, 40)]
    assert lake.offsets() == list(range(40))
    assert problems(lake.destination) == []


def test_a_restore_may_be_answered_with_the_group(lake: Lake) -> None:
    """``group``: what was rolled back stays out, and is on record."""
    lake.table.restore(lake.table.version() - 1)
    assert lake.more(on_mismatch="group") == [(20, 30)]
    assert lake.offsets() == [*range(10), *range(20, 30)]
    assert problems(lake.destination) == []
    (row,) = verify(lake.destination)
    assert (row.start, row.end, row.rows, row.skipped) == (0, 30, 20, 10)


def test_a_member_does_not_take_a_restore_for_others_work(lake: Lake, unique: Callable[[str], str]) -> None:
    """--join asks, too: no other member has exported what was rolled back."""
    lake.table.restore(lake.table.version() - 1)
    with pytest.raises(MismatchError, match=r"the table was rolled back"):
        lake.more(join=joining(lake.group))


def test_a_table_that_was_dropped_asks(lake: Lake) -> None:
    """Its folder is gone: ``lake`` begins where the exports began."""
    shutil.rmtree(lake.out / lake.topic)
    with pytest.raises(MismatchError, match=r"the table was rolled back"):
        lake.more()
    assert lake.more(on_mismatch="lake") == [(0, 40)]
    assert lake.offsets() == list(range(40))
    assert problems(lake.destination) == []


def test_an_older_copy_of_a_table_asks(lake: Lake, tmp_path: Path) -> None:
    """A table's folder is restored from a copy, without a RESTORE: what came since is missing."""
    shutil.copytree(lake.out / lake.topic, tmp_path / "copy")
    lake.more()
    shutil.rmtree(lake.out / lake.topic)
    shutil.move(tmp_path / "copy", lake.out / lake.topic)
    with pytest.raises(MismatchError, match=r"the table was rolled back"):
        lake.more()
    assert lake.more(on_mismatch="lake") == [(20, 50)]
    assert lake.offsets() == list(range(50))


def test_an_older_copy_of_the_log_is_refused(lake: Lake, tmp_path: Path) -> None:
    """A table that has a run which the log does not: nothing is written."""
    shutil.copytree(lake.out / "_zkgroup", tmp_path / "copy")
    lake.more()
    shutil.rmtree(lake.out / "_zkgroup")
    shutil.move(tmp_path / "copy", lake.out / "_zkgroup")
    with pytest.raises(ZkgroupError, match=r"the record of run 3 in .* is missing"):
        lake.more()
    assert lake.offsets() == list(range(30))


@pytest.mark.parametrize("point", ["files written", "published for good"])
def test_a_restore_while_an_export_runs_is_refused(lake: Lake, point: str) -> None:
    """Before the decision nothing is done. After it the run waits until the table is restored to what it had."""
    version = lake.table.version()

    def restore(passed: str) -> None:
        if passed == point:
            lake.table.restore(version - 1)

    with pytest.raises(RefusedError, match=r"was rolled back, dropped or replaced while it was exported"):
        lake.more(passed=restore)
    assert lake.offsets() == list(range(10))
    lake.table.restore(version)
    lake.export(lake.group, lake.topic)
    assert lake.offsets() == list(range(30))
    assert problems(lake.destination) == []


def test_a_run_that_cannot_be_committed_is_given_up(lake: Lake) -> None:
    """Decided, and then the table is dropped: no export goes on until the run is abandoned; then it asks."""

    def drop(point: str) -> None:
        if point == "record in the log":
            shutil.rmtree(lake.out / lake.topic)

    dropped = r"was rolled back, dropped or replaced while it was exported"
    with pytest.raises(RefusedError, match=dropped):
        lake.more(passed=drop)
    with pytest.raises(RefusedError, match=dropped):
        lake.export(lake.group, lake.topic)
    warnings: list[str] = []
    lake.export(lake.group, abandon=True, warn=warnings.append)
    assert warnings == [w for w in warnings if "is not in the table of" in w]
    with pytest.raises(MismatchError, match=r"the table was rolled back"):
        lake.export(lake.group, lake.topic)
    assert read(lake.export(lake.group, lake.topic, on_mismatch="lake")) == [(0, 30)]
    assert lake.offsets() == list(range(30))
    assert problems(lake.destination) == []


def test_a_table_that_was_altered(lake: Lake) -> None:
    """A column more is no harm; what an export cannot heed is refused before anything is read."""
    lake.table.alter.add_columns([Field("note", PrimitiveType("string"))])
    assert lake.more() == [(20, 30)]
    assert [row["note"] for row in rows_of(lake.table)] == [None] * 30
    lake.table.alter.add_constraint({"early": "offset < 35"})
    points: Points = []
    with pytest.raises(RefusedError, match=r"has features that an export cannot heed"):
        lake.more(passed=points.append)
    assert "runner started" not in points
    assert lake.offsets() == list(range(30))


def test_a_table_of_others_is_left_alone(
    export: Export, filled: str, unique: Callable[[str], str], tmp_path: Path
) -> None:
    """A table of the topic's name that no export has made; and one without files, of another schema."""
    write_deltalake(tmp_path / "out" / filled, pa.table({"x": [1]}))
    with pytest.raises(RefusedError, match=r"is a table with 1 file, and no record of an export has it"):
        export(unique("group"), filled)
    DeltaTable.create(tmp_path / "empty" / filled, pa.schema([("x", pa.int64())]))
    with pytest.raises(RefusedError, match=r"is partitioned by nothing"):
        export(unique("group"), filled, root=tmp_path / "empty")
    assert table_in(tmp_path / "out", filled).version() == 0


def test_a_destination_has_one_format(
    in_process: Export, export: Export, filled: str, unique: Callable[[str], str], tmp_path: Path
) -> None:
    """Files stay files, tables stay tables; without --format it is as it was begun."""
    group = unique("group")
    export(group, filled, max_messages=10)
    with pytest.raises(RefusedError, match="was begun with --format delta --partition-by partition"):
        in_process(group, filled, layout=LayoutWish(format="parquet"))
    assert sum(row.rows for row in in_process(group, filled)) == MESSAGES - 10
    assert len(rows_of(table_in(tmp_path / "out", filled))) == MESSAGES
    in_process(group := unique("group"), filled, root=tmp_path / "files")
    with pytest.raises(RefusedError, match="was begun with --partition-by partition"):
        export(group, filled, root=tmp_path / "files")


def test_only_where_deltalake_writes() -> None:
    """Folders and S3."""
    with pytest.raises(UsageError, match="Delta tables are not written to gs: destinations"):
        DeltaTables(Destination(open_store(parse_address("gs://bucket/lake"))), Layout(format="delta"))


# --- what else an export does ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("by", [("partition",), (), ("date", "hour"), ("partition", "date")])
def test_every_reader_finds_the_columns(
    export: Export, make_topic: Callable[..., str], kafka: KafkaSettings, unique: Callable[[str], str], tmp_path: Path,
    by: tuple[Any, ...],
) -> None:  # fmt: skip
    """deltalake, DuckDB and pyarrow: the same rows and types, folders as columns; files are skipped by statistics."""
    topic = make_topic(2)
    for day in range(3):
        stamp = 1_714_521_600_000 + day * 86_400_000
        produce(kafka, topic, [Record(b"%d" % i, b"k", p, timestamp_ms=stamp + i) for p in range(2) for i in range(10)])
        export(topic, topic, layout=LayoutWish(by=by, format="delta"))
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
    assert {row["timestamp"].isoformat() for row in rows_of(table) if row["offset"] == 11} == {
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
    assert problems(Destination(FolderStore(tmp_path / "out"))) == []


def test_messages_without_time_have_null_statistics(
    export: Export, make_topic: Callable[..., str], kafka: KafkaSettings, unique: Callable[[str], str], tmp_path: Path
) -> None:
    """A column of nothing but nulls: its statistics say so, and readers of others skip the file."""
    topic = make_topic()
    produce(kafka, topic, [Record(b"x", None, 0, timestamp_ms=1 << 60)])
    export(unique("group"), topic)
    (row,) = pa.table(table_in(tmp_path / "out", topic).get_add_actions(flatten=True)).to_pylist()
    assert (row["null_count.timestamp"], row.get("min.timestamp"), row["min.offset"]) == (1, None, 0)


def test_a_backfill_and_a_take_over(
    export: Export, make_topic: Callable[..., str], kafka: KafkaSettings, unique: Callable[[str], str], tmp_path: Path,
    committed: Callable[..., int | None],
) -> None:  # fmt: skip
    """A backfill commits rows, and no offsets; a second one finds nothing. Another group takes over, and goes on."""
    topic, first, second = make_topic(), unique("first"), unique("second")
    produce(kafka, topic, [Record(b"%d" % i, None, 0) for i in range(30)])
    begin = Bound("offsets", offsets={TopicPartition(topic, 0): 20})
    assert read(export(first, topic, begin=begin)) == [(20, 30)]
    assert read(export(first, topic, backfill=True)) == [(0, 20)]
    assert read(export(first, topic, backfill=True)) == []
    assert committed(first, topic) == 30
    produce(kafka, topic, [Record(b"%d" % i, None, 0) for i in range(30, 40)])
    with pytest.raises(RefusedError, match=f"belongs to group {first}"):
        export(second, topic)
    assert read(export(second, topic, take_over=first)) == [(30, 40)]
    table = table_in(tmp_path / "out", topic)
    assert [row["offset"] for row in rows_of(table)] == list(range(40))
    assert problems(Destination(FolderStore(tmp_path / "out"))) == []
    table.restore(table.version() - 1)
    with pytest.raises(MismatchError, match=r"\(group 40, destination 30, log 0 to 40\): the table was rolled back"):
        export(second, topic)
    table.restore(1)
    with pytest.raises(RefusedError, match=f"was rolled back to before group {second} took over from group {first}"):
        export(second, topic)


def test_a_run_of_several_topics_is_finished(
    export: Export, make_topic: Callable[..., str], fill: Callable[..., object], unique: Callable[[str], str],
    tmp_path: Path,
) -> None:  # fmt: skip
    """Each topic is a table of its own. One that was stopped between two commits is gone on with at the second."""
    topics, group = sorted(make_topic() for _ in range(3)), unique("group")
    for topic in topics:
        fill(topic, 20)

    def stop(point: str) -> None:
        if point == "table 2 of 3 committed":
            raise ZkgroupError("on purpose")

    with pytest.raises(ZkgroupError, match="on purpose"):
        export(group, *topics, passed=stop)
    points: Points = []
    export(group, *topics, passed=points.append)
    assert [point for point in points if point.startswith("table")] == ["table 1 of 1 made", "table 1 of 1 committed"]
    for topic in topics:
        assert len(rows_of(table_in(tmp_path / "out", topic))) == 20
        assert [one["operation"] for one in table_in(tmp_path / "out", topic).history()] == ["WRITE", "CREATE TABLE"]


def test_a_topic_that_was_recreated(lake: Lake, registry: Registry, kafka: KafkaSettings) -> None:
    """Its offsets begin anew, in the same table, once that is answered."""
    recreate_topic(registry, lake.topic)
    produce(kafka, lake.topic, [Record(b"%d" % i, None, 0) for i in range(5)])
    with pytest.raises(MismatchError, match="was deleted and created again"):
        lake.export(lake.group, lake.topic)
    assert read(lake.export(lake.group, lake.topic, on_mismatch="lake")) == [(0, 5)]
    assert sorted(lake.offsets()) == sorted([*range(20), *range(5)])
    lake.table.optimize.compact()
    assert problems(lake.destination) == []


def test_into_a_bucket(export: Export, filled: str, unique: Callable[[str], str], s3_server: int, bucket: str) -> None:
    """s3://: the commit, a second one, what --verify says; no secret in what is kept."""
    root = parse_address(uri_of(s3_server, f"{bucket}/lake"))
    group = unique("group")
    export(group, filled, root=root, max_messages=20)
    export(group, filled, root=root)
    options = {"aws_endpoint_url": f"http://127.0.0.1:{s3_server}", "aws_allow_http": "true", "aws_region": "us-east-1"}
    table = DeltaTable(f"s3://{bucket}/lake/{filled}", storage_options=options)
    assert len(rows_of(table)) == MESSAGES
    assert SECRET not in json.dumps(table.history(), default=str)
    assert problems(Destination(open_store(root))) == []


def test_by_the_command(cluster: Sandbox, filled: str, unique: Callable[[str], str], tmp_path: Path) -> None:
    """``--format delta`` through Spark; the reports, and the question after a restore, with its commands."""
    group, out = unique("group"), tmp_path / "out"
    words = ("-z", cluster.connect, "export")
    done = run(*words, filled, "--group", group, "--from", "earliest", "--to", str(out), "--format", "delta")
    assert done.returncode == 0, done.stderr
    table = table_in(out, filled)
    assert len(rows_of(table)) == MESSAGES
    table.restore(0)
    done = run(*words, "--group", group, "--to", str(out), "--verify", "--output", "json")
    assert done.returncode == 6
    assert "was rolled back" in done.stderr
    done = run(*words, filled, "--group", group, "--to", str(out))
    assert done.returncode == 5
    assert "--on-mismatch lake" in done.stderr
    assert "was rolled back" in done.stderr


def test_a_table_that_was_rolled_back_accounts_for_less() -> None:
    """Pure: what it had then; nothing of a partition that came later, or of another log."""
    one, other = TopicIdentity(7), TopicIdentity(8)
    known = TopicCoverage(one, {0: ((5, 20),), 1: ((3, 9),)}, {0: 20, 1: 9})
    then = TopicCoverage(one, {0: ((5, 10),)}, {0: 10})
    assert roll_back(known, then) == TopicCoverage(one, {0: ((5, 10),), 1: ((3, 3),)}, {0: 10, 1: 3})
    nothing = TopicCoverage(one, {0: ((5, 5),), 1: ((3, 3),)}, {0: 5, 1: 3})
    assert roll_back(known, None) == roll_back(known, TopicCoverage(other, {0: ((0, 99),)}, {0: 99})) == nothing
