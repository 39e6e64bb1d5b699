"""Iceberg tables, by the package ``pyiceberg``: a table a topic, ``NAMESPACE.TOPIC`` in a catalog, in the folder
``TOPIC`` of the destination.

A run is one commit of each of its tables, which adds its files by their metadata alone, and

- table properties: ``zkgroup.run.GROUP``, the number of the run, and ``zkgroup.end.GROUP.PARTITION@LOG``, the offset
  where it ends. ``LOG``: the topic's ``czxid``, in hexadecimal. They stay when snapshots expire.
- in the snapshot's summary ``zkgroup.run``: ``GROUP@RUN``.

A rollback takes rows away and leaves the properties. So the newest run of a table is the newest among the ancestors of
its current snapshot, unless these have expired. Then a rollback is not seen whose snapshots have expired, too, or are
kept by a tag alone: ``--verify`` counts the rows.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from zkgroup.errors import RefusedError, UsageError
from zkgroup.export.destination.run_log import CATALOG, Destination, number_of
from zkgroup.export.destination.table_columns import difference, table_schema, wider_columns
from zkgroup.export.destination.table_format import CommittedTables, s3_options
from zkgroup.export.model.layout import Layout, table_name
from zkgroup.export.model.plan_types import RecordFile, StoredFile
from zkgroup.export.model.run_record import RunRecord
from zkgroup.export.stores.store import require

_RUN: Final = "zkgroup.run"
_TOPIC: Final = "zkgroup.topic"
_RETRIES: Final = "commit.retry.num-retries"


class IcebergTables(CommittedTables):
    """The tables of one destination."""

    def __init__(self, destination: Destination, layout: Layout) -> None:
        super().__init__(destination, layout)
        if isinstance(self._store.address, Path):
            self._root = f"file://{self._root}"
        elif not layout.catalog_name:
            raise UsageError("Iceberg tables in a bucket need a catalog", "name one of pyiceberg's with --catalog")
        require("pyiceberg", "pyarrow", extra="iceberg")
        from pyiceberg.utils.config import Config

        if (name := layout.catalog_name) and Config().get_catalog_config(name) is None:
            raise UsageError(
                f"pyiceberg's configuration has no catalog {name}",
                f"name one of ~/.pyiceberg.yaml, or set PYICEBERG_CATALOG__{name.upper()}__URI",
            )
        self._catalog: Any = None
        self._topics: dict[str, str] = {}  # by the names of their tables

    # --- what a table has -------------------------------------------------------------------------------------------

    def _run_of(self, table: Any, group: str, topic: str) -> int:
        from pyiceberg.table.snapshots import ancestors_of

        number = int(table.properties.get(f"{_RUN}.{group}", 0))
        if not number:
            return 0
        oldest = None
        for oldest in ancestors_of(table.current_snapshot(), table.metadata):
            if (found := _run_in(oldest, group)) is not None:
                return found
        if oldest is None or (oldest.sequence_number or 0) <= 1:  # the table's first: an expiry leaves no parents
            return 0
        # What came before has expired. Runs that are in other snapshots were rolled back, to before the first of them:
        # an expiry would have removed them as well, unless a tag or a branch keeps them.
        metadata = table.metadata
        kept = {
            one.snapshot_id
            for ref in metadata.refs.values()
            for one in ancestors_of(metadata.snapshot_by_id(ref.snapshot_id), metadata)
        }
        others = (one for one in metadata.snapshots if one.snapshot_id not in kept)
        runs = [run for one in others if (run := _run_in(one, group)) is not None]
        if not runs:
            return number
        first = self._destination.entries(group)[min(runs) - 1]
        return self._destination.record(group, first).bases.get(topic, 0)

    def _refuse_place(self, topic: str) -> None:
        if (other := self._topics.setdefault(table_name(topic), topic)) != topic:
            raise RefusedError(
                f"{self._name(topic)} is the table of two topics, {other} and {topic}",
                "export one of them to another --catalog or --to",
            )
        table = self._open(topic)
        if table is not None and (known := table.properties.get(_TOPIC)) != topic:
            what = f"of topic {known}" if known else "that no export has made"
            raise RefusedError(f"{self._name(topic)} is a table {what}", "choose another --catalog or --to")

    def _difference(self, topic: str, table: Any, schema: Any) -> str:
        with self._translated("read", topic):
            spec = [(one.name, str(one.transform)) for one in table.spec().fields]
            names, ours = set(table.schema().column_names), self._schema(schema).column_names
            theirs = table.schema().as_arrow()
            before = {name for one in table.metadata.schemas for name in one.column_names}
        if spec != [(name, transform) for _, transform, name in self._partitions]:
            return f"is partitioned by {', '.join(f'{kind}({name})' for name, kind in spec) or 'nothing'}"
        if gone := [name for name in ours if name in before and name not in names]:
            return f"has no column {min(gone, key=len)} any more"  # not a field of it
        return difference(theirs, table_schema(schema, self._folders), "iceberg")

    # --- a commit ---------------------------------------------------------------------------------------------------

    def _has(self, record: RunRecord, topic: str) -> bool:
        table = self._open(topic)
        return table is not None and int(table.properties.get(f"{_RUN}.{record.group}", 0)) >= number_of(record.run)

    def _create(self, topic: str, schema: Any) -> None:
        from pyiceberg.exceptions import CommitFailedException, TableAlreadyExistsError

        identifier = self._identifier(topic)
        with self._translated("make", topic):
            self._open_catalog().create_namespace_if_not_exists(identifier[:-1])
            with contextlib.suppress(TableAlreadyExistsError, CommitFailedException):  # another process has made it
                transaction = self._open_catalog().create_table_transaction(
                    identifier, self._schema(schema), f"{self._root}/{topic}", properties={_TOPIC: topic}
                )
                with transaction.update_spec() as spec:
                    for column, transform, name in self._partitions:
                        spec.add_field(column, transform, name)
                mapping = transaction.table_metadata.schema().name_mapping.model_dump_json()
                transaction.set_properties({"schema.name-mapping.default": mapping})
                transaction.commit_transaction()

    def _add_files(self, table: Any, record: RunRecord, topic: str, schema: Any) -> None:
        transaction = _without_retries(table).transaction()
        transaction.set_properties({f"{_RUN}.{record.group}": str(number_of(record.run)), **_ends(record, topic)})
        if wider_columns(table.schema().as_arrow(), table_schema(schema, self._folders), "iceberg"):
            with transaction.update_schema() as update:
                update.union_by_name(self._schema(schema))
        with transaction.update_snapshot({_RUN: f"{record.group}@{record.run}"}).fast_append() as append:
            # A refusal may be the answer to a request that was repeated on its way: the files of the first one stay.
            append._clean_all_uncommitted = lambda: None
            for file in record.files:
                if file.topic == topic:
                    append.append_data_file(self._data_file(table, file))
        transaction.commit_transaction()

    def _is_conflict(self, error: Exception) -> bool:
        from pyiceberg.exceptions import CommitFailedException

        return isinstance(error, CommitFailedException)

    def _data_file(self, table: Any, file: RecordFile) -> Any:
        from pyiceberg.conversions import to_bytes
        from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
        from pyiceberg.typedef import Record

        period = self._layout.period_of_folder(file.name)
        values = {"topic": file.topic, "partition": file.ranges[0].partition, "timestamp": period}
        limits: dict[str, dict[int, bytes]] = {"low": {}, "high": {}}
        nulls: dict[int, int] = {}
        for one in file.statistics:
            field = table.schema().find_field(one.column)
            nulls[field.field_id] = one.nulls
            factor = 1000 if one.column == "timestamp" else 1
            for side in limits:
                if (value := getattr(one, side)) is not None:
                    limits[side][field.field_id] = to_bytes(field.field_type, value * factor)
        return DataFile.from_args(
            content=DataFileContent.DATA,
            file_path=f"{self._root}/{file.name}",
            file_format=FileFormat.PARQUET,
            partition=Record(*(values[column] for column, _, _ in self._partitions)),
            record_count=file.rows,
            file_size_in_bytes=file.bytes,
            column_sizes={},
            value_counts=dict.fromkeys(nulls, file.rows),
            null_value_counts=nulls,
            nan_value_counts={},
            lower_bounds=limits["low"],
            upper_bounds=limits["high"],
            key_metadata=None,
            split_offsets=None,
            equality_ids=None,
            sort_order_id=None,
            spec_id=table.metadata.default_spec_id,
        )

    # --- files ------------------------------------------------------------------------------------------------------

    def _files(self, table: Any, topic: str) -> Iterator[tuple[StoredFile, int | None]]:
        columns = [column for column, _, _ in self._partitions]
        place = columns.index("partition") if "partition" in columns else None
        for data in (task.file for task in table.scan().plan_files()):
            file = StoredFile(data.file_path.removeprefix(f"{self._root}/"), data.file_size_in_bytes)
            yield file, None if place is None else data.partition[place]

    def _read_file(self, table: Any, name: str) -> Any:
        is_ours = not re.match(r"/|\w+:", name)  # else as it is: Spark's are file:/…
        return table.io.new_input(f"{self._root}/{name}" if is_ours else name).open()

    # --- pyiceberg --------------------------------------------------------------------------------------------------

    @property
    def _partitions(self) -> list[tuple[str, str, str]]:
        """Column, transform, name of the partition field."""
        kinds = {"partition": ("partition", "identity", "partition"), "date": ("timestamp", "day", "timestamp_day")}
        kinds["hour"] = ("timestamp", "hour", "timestamp_hour")
        parts = [part for part in self._layout.by if part != "date" or "hour" not in self._layout.by]
        return [("topic", "identity", "topic"), *(kinds[part] for part in parts)]

    @property
    def _folders(self) -> list[str]:
        return [name for name in ("topic", *self._layout.by) if name in ("topic", "partition")]

    def _schema(self, schema: Any) -> Any:
        from pyiceberg.io.pyarrow import _pyarrow_to_schema_without_ids
        from pyiceberg.schema import assign_fresh_schema_ids

        return assign_fresh_schema_ids(_pyarrow_to_schema_without_ids(table_schema(schema, self._folders)))

    def _open_catalog(self) -> Any:
        if self._catalog is None:
            from pyiceberg.catalog import load_catalog

            if name := self._layout.catalog_name:
                # Metadata goes where the tasks' files go, whatever else a catalog's configuration says.
                keys = ("s3.region", "s3.access-key-id", "s3.secret-access-key", "s3.endpoint")
                self._catalog = load_catalog(name, **s3_options(self._store.address, *keys))
            else:
                path = Path(str(self._store.address)) / CATALOG
                path.parent.mkdir(parents=True, exist_ok=True)
                self._catalog = load_catalog("zkgroup", type="sql", uri=f"sqlite:///{path}", warehouse=self._root)
        return self._catalog

    def _identifier(self, topic: str) -> tuple[str, ...]:
        return *self._layout.namespace.split("."), table_name(topic)

    def _name(self, topic: str) -> str:
        return f"{self._layout.catalog_name or 'catalog'}: {'.'.join(self._identifier(topic))}"

    def _find(self, topic: str) -> Any:
        from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

        is_own, path = not self._layout.catalog_name, Path(str(self._store.address))
        if is_own and not (path / CATALOG).exists():
            return None  # nothing is made by reading
        try:
            table = self._open_catalog().load_table(self._identifier(topic))
        except (NoSuchTableError, NoSuchNamespaceError):
            return None
        place = Path(table.location().removeprefix("file://")).parent
        if is_own and table.properties.get(_TOPIC) == topic and place.resolve() != path.resolve():
            raise RefusedError(
                f"{self._destination} was moved or copied from {place}: its Iceberg tables and their catalog name "
                "files by whole paths",
                f"export with --to {place}",
            )
        return table


def _run_in(snapshot: Any, group: str) -> int | None:
    owner, _, run = ((snapshot.summary or {}).get(_RUN) or "").rpartition("@")
    return number_of(run) if owner == group else None


def _ends(record: RunRecord, topic: str) -> dict[str, str]:
    log = f"{record.topics[topic].czxid:x}"
    return {
        f"zkgroup.end.{record.group}.{part.partition.partition}@{log}": str(part.end)
        for part in record.partitions
        if part.partition.topic == topic and part.commits
    }


def _without_retries(table: Any) -> Any:
    """A table whose commits the library tries once, whatever its properties say: they are left as they are."""
    properties = {**table.metadata.properties, _RETRIES: "0"}
    table.metadata = table.metadata.model_copy(update={"properties": properties})
    return table
