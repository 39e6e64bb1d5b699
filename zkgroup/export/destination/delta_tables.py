"""Delta tables, by the package ``deltalake``: a table a topic, in the folder ``TOPIC`` of the destination.

A run is one commit of each of its tables, which adds its files by their metadata alone, and three kinds of facts:

- ``txn`` of ``zkgroup/GROUP``: the number of the run. So a run is committed once, and a second exporter that commits
  the same run is refused by the table.
- ``txn`` of ``zkgroup/GROUP/TOPIC@LOG-PARTITION``: the offset where the run ends. ``LOG``: the topic's ``czxid``, in
  hexadecimal.
- ``zkgroup.run`` in the commit's information: ``GROUP@RUN``.

A ``RESTORE`` takes rows away and leaves every ``txn``. So the newest run of a table is that of the version to which it
was restored last, unless a run came after that. A restore is seen as long as the table's log keeps it: 30 days, if
nothing else is set.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import orjson
import pyarrow as pa

from zkgroup import __version__
from zkgroup.errors import RefusedError, ZkgroupError
from zkgroup.export.destination.run_log import ROOT, Destination, number_of
from zkgroup.export.destination.table_columns import difference, table_schema, wider_columns
from zkgroup.export.destination.table_format import CommittedTables, s3_options
from zkgroup.export.model.layout import Layout
from zkgroup.export.model.plan_types import RecordFile, StoredFile
from zkgroup.export.model.run_record import RunRecord
from zkgroup.export.stores.store import require

_RUN: Final = "zkgroup.run"
#: Entries of a table's history that are read first; all of it where none of them is ours.
_NEWEST: Final = 20
#: Of writers: what adding files has to heed nothing of.
_HARMLESS: Final = frozenset(
    {"appendOnly", "invariants", "timestampNtz", "changeDataFeed", "vacuumProtocolCheck", "v2Checkpoint"}
)
#: Features that a table may declare, or have by its writer version, without a use of them; and how the name of the
#: property, or of a column's metadata, begins that uses one.
_USES: Final = {
    "checkConstraints": "delta.constraints.",
    "generatedColumns": "delta.generationExpression",
    "columnMapping": "delta.columnMapping.mode",
}


class DeltaTables(CommittedTables):
    """The tables of one destination."""

    def __init__(self, destination: Destination, layout: Layout) -> None:
        super().__init__(destination, layout)
        names = ("aws_region", "aws_access_key_id", "aws_secret_access_key", "aws_endpoint_url")
        self._options = s3_options(self._store.address, *names)
        if self._options.get("aws_endpoint_url", "").startswith("http:"):
            self._options["aws_allow_http"] = "true"
        require("deltalake", "pyarrow", extra="delta")

    # --- what a table has -------------------------------------------------------------------------------------------

    def _run_of(self, table: Any, group: str, topic: str) -> int:
        with self._translated("read", topic):
            version = newest = table.version()
            for commit in _history(table):
                if commit["version"] > version:
                    continue
                if _RUN in commit:
                    break
                if commit.get("operation") == "RESTORE":
                    version = self._restored(topic, commit)
            if version != newest:
                table = self._load(topic, version)
            return table.transaction_version(_application(group)) or 0

    def _restored(self, topic: str, commit: Mapping[str, Any]) -> int:
        wanted = commit.get("operationParameters") or {}
        if (version := wanted.get("version")) not in (None, "null", ""):
            return int(version)
        if (millis := wanted.get("datetime")) not in (None, "null", ""):
            table = self._load(topic)
            table.load_as_version(datetime.fromtimestamp(int(millis) / 1000, UTC))
            return int(table.version())
        raise RefusedError(
            f"the table {self._name(topic)} was restored to a time that its log does not name as a version "
            f"(version {commit['version']})",
            "restore it to a version, then run it again",
        )

    def _refuse_place(self, topic: str) -> None:
        if topic == ROOT:  # a vacuum of that table would remove the log
            raise RefusedError(f"topic {topic} has the name of the folder that has the log of exports", "leave it out")

    def _difference(self, topic: str, table: Any, schema: Any) -> str:
        with self._translated("read", topic):
            protocol, metadata, own = table.protocol(), table.metadata(), table.schema()
            theirs = pa.schema(own.to_arrow())
        features = set(protocol.writer_features or ()) - _HARMLESS - _USES.keys()
        if protocol.min_writer_version == 6:
            features.add("identityColumns")  # deltalake does not write to this version, with or without one
        names = [name for name, value in metadata.configuration.items() if value != "none"]
        names += [name for field in own.fields for name in field.metadata]
        features |= {feature for feature, start in _USES.items() if any(name.startswith(start) for name in names)}
        if features:
            return f"has features that an export cannot heed ({', '.join(sorted(features))})"
        if metadata.partition_columns != self._partitions:
            return f"is partitioned by {', '.join(metadata.partition_columns) or 'nothing'}"
        return difference(theirs, table_schema(schema, self._partitions), "delta")

    # --- a commit ---------------------------------------------------------------------------------------------------

    def _has(self, record: RunRecord, topic: str) -> bool:
        table = self._open(topic)
        if table is None:
            return False
        with self._translated("read", topic):
            return (table.transaction_version(_application(record.group)) or 0) >= number_of(record.run)

    def _create(self, topic: str, schema: Any) -> None:
        from deltalake import DeltaTable

        with self._translated("make", topic):
            DeltaTable.create(
                self._path(topic),
                self._schema(schema),
                mode="ignore",  # another process may make it at this moment
                partition_by=self._partitions,
                name=topic,
                storage_options=self._options,
            )

    def _add_files(self, table: Any, record: RunRecord, topic: str, schema: Any) -> None:
        from deltalake import Schema
        from deltalake.exceptions import CommitFailedError
        from deltalake.transaction import AddAction, CommitProperties

        opened = table.version()
        table.update_incremental()  # to read the history may have taken longer than others need to commit
        newer = table.version() - opened
        if newer and any(_RUN in one or one.get("operation") == "RESTORE" for one in table.history(newer)):
            raise CommitFailedError("a run or a restore came first")
        columns = table_schema(schema, self._partitions)
        if wider := wider_columns(pa.schema(table.schema().to_arrow()), columns, "delta"):
            fields = Schema.from_arrow(pa.schema(wider)).fields
            table.alter.add_columns(fields, commit_properties=CommitProperties(max_commit_retries=0))
        made, cut = record.decided, len(topic) + 1
        actions = [
            AddAction(file.name[cut:], file.bytes, _folders(file), made, True, _stats(file))
            for file in record.files
            if file.topic == topic
        ]
        properties = CommitProperties(
            custom_metadata={_RUN: f"{record.group}@{record.run}", "zkgroup.version": __version__},
            max_commit_retries=0,
            app_transactions=_transactions(record, topic),
        )
        table.create_write_transaction(
            actions, "append", self._schema(schema), self._partitions, commit_properties=properties
        )

    def _is_conflict(self, error: Exception) -> bool:
        from deltalake.exceptions import CommitFailedError

        return isinstance(error, CommitFailedError)

    # --- files ------------------------------------------------------------------------------------------------------

    def _files(self, table: Any, topic: str) -> Iterator[tuple[StoredFile, int | None]]:
        added = pa.table(table.get_add_actions(flatten=True))
        folders = "partition.partition"
        numbers = added[folders].to_pylist() if folders in added.column_names else [None] * added.num_rows
        for path, size, number in zip(added["path"].to_pylist(), added["size_bytes"].to_pylist(), numbers, strict=True):
            yield StoredFile(f"{topic}/{path}", size), number

    def _read_file(self, table: Any, name: str) -> Any:
        return self._store.open(name)

    # --- deltalake --------------------------------------------------------------------------------------------------

    @property
    def _partitions(self) -> list[str]:
        return ["topic", *self._layout.by]

    def _schema(self, schema: Any) -> Any:
        """A table's schema: the columns that are folders, and those of its files. All may be null: else the table has
        invariants, which deltalake does not declare where a timestamp without a zone makes it declare features."""
        from deltalake import Schema

        columns = table_schema(schema, self._partitions)
        return Schema.from_arrow(pa.schema([field.with_nullable(nullable=True) for field in columns]))

    def _path(self, topic: str) -> str:
        return f"{self._root}/{topic}"

    def _name(self, topic: str) -> str:
        return f"{self._destination}/{topic}"

    def _find(self, topic: str) -> Any:
        from deltalake.exceptions import TableNotFoundError

        try:
            return self._load(topic)
        except TableNotFoundError:
            return None

    def _load(self, topic: str, version: int | None = None) -> Any:
        from deltalake import DeltaTable

        return DeltaTable(self._path(topic), version, self._options)

    def _failure(self, what: str, topic: str, error: Exception) -> ZkgroupError:
        address = self._store.address
        if isinstance(address, Path):
            return super()._failure(what, topic, error)
        from zkgroup.export.stores.object_store import store_failure

        return store_failure(address, f"cannot {what} the table", error, self._name(topic))


def _application(group: str) -> str:
    return f"zkgroup/{group}"


def _history(table: Any) -> Iterator[Mapping[str, Any]]:
    first = table.history(_NEWEST)
    yield from first
    if len(first) == _NEWEST:
        yield from table.history()[_NEWEST:]


def _transactions(record: RunRecord, topic: str) -> list[Any]:
    from deltalake.transaction import Transaction

    application = _application(record.group)
    ends = {
        f"{application}/{topic}@{record.topics[topic].czxid:x}-{part.partition.partition}": part.end
        for part in record.partitions
        if part.partition.topic == topic and part.commits
    }
    now = record.decided
    return [Transaction(application, number_of(record.run), now)] + [Transaction(*end, now) for end in ends.items()]


def _folders(file: RecordFile) -> dict[str, str | None]:
    folders = (folder.partition("=") for folder in file.name.split("/")[1:-1])
    return {name: value for name, _, value in folders}


def _stats(file: RecordFile) -> str:
    limits = {
        side: {one.column: _value(one.column, getattr(one, side)) for one in file.statistics if one.low is not None}
        for side in ("low", "high")
    }
    found = {
        "numRecords": file.rows,
        "minValues": limits["low"],
        "maxValues": limits["high"],
        "nullCount": {one.column: one.nulls for one in file.statistics},
    }
    return orjson.dumps(found).decode()


def _value(column: str, value: int) -> int | str:
    if column != "timestamp":
        return value
    time = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=value)
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")
