"""A topic's table in each format, as others see it, and what they do to it: compact it, roll it back, drop it."""

from __future__ import annotations

import contextlib
import random
import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import unquote

import pyarrow as pa
from deltalake import write_deltalake
from deltalake.exceptions import DeltaError, TableNotFoundError
from exports import table_in
from pyiceberg.catalog import load_catalog
from pyiceberg.table.snapshots import Operation

from zkgroup.export.model.choices import TableKind
from zkgroup.export.model.layout import table_name


class WalkedTable(Protocol):
    """A table of ``topic`` in the folder ``out``, which may not be there yet."""

    def files(self) -> list[str]:
        """Its files, relative to ``out``; none without a table."""
        ...

    def rows(self) -> list[dict[str, Any]]:
        """Its messages, by partition and offset."""
        ...

    def duckdb_scan(self) -> str:
        """What DuckDB's extensions read it by."""
        ...

    def run_of(self, group: str) -> int:
        """The number of a group's newest run, as the table has it on record; 0 without one."""
        ...

    def end(self, group: str, partition: int, czxid: int) -> int:
        """Where that run ends in a partition of the log ``czxid``, on record as well."""
        ...

    def compact(self, dice: random.Random) -> None:
        """Put its rows into fewer files, and sometimes remove what no newer version needs."""
        ...

    def touch(self) -> None:
        """Make a commit that changes no row."""
        ...

    def delete(self, offset: int) -> None:
        """Delete the rows with this offset."""
        ...

    def insert_again(self, offset: int) -> None:
        """Insert the rows with this offset once more."""
        ...

    def step_back(self, steps: int = 1) -> Callable[[], object]:
        """Restore it to so many versions before the newest. What undoes that."""
        ...

    def roll_back(self, dice: random.Random) -> Callable[[], object] | None:
        """Restore it to an earlier version. What undoes that; None where nothing was done."""
        ...

    def drop(self) -> bool:
        """Whether it was there."""
        ...


class WalkedDelta:
    def __init__(self, out: Path, topic: str) -> None:
        self._out, self._topic = out, topic

    def _table(self) -> Any:
        with contextlib.suppress(TableNotFoundError):
            return table_in(self._out, self._topic)
        return None

    def files(self) -> list[str]:
        table = self._table()
        return [] if table is None else [unquote(str(Path(uri).relative_to(self._out))) for uri in table.file_uris()]

    def rows(self) -> list[dict[str, Any]]:
        return rows_in(self._table().to_pyarrow_table())

    def duckdb_scan(self) -> str:
        return f"delta_scan('{self._out}/{self._topic}')"

    def run_of(self, group: str) -> int:
        return self._table().transaction_version(f"zkgroup/{group}") or 0

    def end(self, group: str, partition: int, czxid: int) -> int:
        return self._table().transaction_version(f"zkgroup/{group}/{self._topic}@{czxid:x}-{partition}") or 0

    def touch(self) -> None:
        self._table().alter.set_table_description("touched")

    def delete(self, offset: int) -> None:
        self._table().delete(f"offset = {offset}")

    def insert_again(self, offset: int) -> None:
        table = self._table()
        write_deltalake(table, table.to_pyarrow_table(filters=[("offset", "=", offset)]), mode="append")

    def step_back(self, steps: int = 1) -> Callable[[], object]:
        version = self._table().version()
        self._table().restore(version - steps)
        return lambda: self._table().restore(version)

    def compact(self, dice: random.Random) -> None:
        if (table := self._table()) is not None:
            table.optimize.compact()
            if dice.random() < 0.3:
                table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False, full=False)

    def roll_back(self, dice: random.Random) -> Callable[[], object] | None:
        table = self._table()
        if table is None or (version := table.version()) < 2:
            return None
        try:
            table.restore(dice.randrange(1, version))
        except (DeltaError, OSError):  # of a version whose files were removed
            return None

        def undo() -> None:
            with contextlib.suppress(DeltaError, OSError):
                self._table().restore(version)

        return undo

    def drop(self) -> bool:
        there = self._table() is not None
        shutil.rmtree(self._out / self._topic, ignore_errors=True)
        return there


class WalkedIceberg:
    def __init__(self, out: Path, topic: str) -> None:
        self._out, self._name = out, ("kafka", table_name(topic))

    def _catalog(self) -> Any:
        path = self._out / "_zkgroup/catalog.db"
        return load_catalog("zkgroup", type="sql", uri=f"sqlite:///{path}") if path.exists() else None

    def _table(self) -> Any:
        catalog = self._catalog()
        return catalog.load_table(self._name) if catalog is not None and catalog.table_exists(self._name) else None

    def files(self) -> list[str]:
        table, root = self._table(), f"file://{self._out}/"
        return [] if table is None else [one.file.file_path.removeprefix(root) for one in table.scan().plan_files()]

    def rows(self) -> list[dict[str, Any]]:
        return rows_in(self._table().scan().to_arrow())

    def duckdb_scan(self) -> str:
        return f"iceberg_scan('{self._table().metadata_location}')"

    def run_of(self, group: str) -> int:
        return int(self._table().properties.get(f"zkgroup.run.{group}", 0))

    def end(self, group: str, partition: int, czxid: int) -> int:
        return int(self._table().properties.get(f"zkgroup.end.{group}.{partition}@{czxid:x}", 0))

    def touch(self) -> None:
        table = self._table()
        table.append(table.scan().to_arrow().slice(0, 0))

    def delete(self, offset: int) -> None:
        self._table().delete(f"offset = {offset}")

    def insert_again(self, offset: int) -> None:
        table = self._table()
        table.append(table.scan(row_filter=f"offset = {offset}").to_arrow())

    def step_back(self, steps: int = 1) -> Callable[[], object]:
        newest = self._table().current_snapshot()
        for _ in range(steps):
            parent = self._table().current_snapshot().parent_snapshot_id
            self._table().manage_snapshots().rollback_to_snapshot(parent).commit()
        return lambda: self._table().manage_snapshots().set_current_snapshot(newest.snapshot_id).commit()

    def compact(self, dice: random.Random) -> None:
        if (table := self._table()) is not None and table.current_snapshot() is not None:
            if any(str(field.transform) in ("day", "hour") for field in table.spec().fields):
                return  # pyiceberg writes to such tables with a further package, which exports do without
            table.overwrite(table.scan().to_arrow())
            if dice.random() < 0.3:
                self._table().maintenance.expire_snapshots().older_than(datetime.now(UTC)).commit()

    def roll_back(self, dice: random.Random) -> Callable[[], object] | None:
        table = self._table()
        newest = None if table is None else table.current_snapshot()
        ancestors = [] if table is None else [table.snapshot_by_id(one.snapshot_id) for one in table.history()[:-1]]
        # A compaction deletes all rows and adds them again: nobody has seen what was between.
        there = [one.snapshot_id for one in ancestors if one is not None and one.summary.operation != Operation.DELETE]
        if not there or newest is None:
            return None
        table.manage_snapshots().set_current_snapshot(dice.choice(there)).commit()
        return lambda: self._table().manage_snapshots().set_current_snapshot(newest.snapshot_id).commit()

    def drop(self) -> bool:
        if self._table() is None:
            return False
        self._catalog().drop_table(self._name)
        return True


class Chosen(random.Random):
    """For ``WalkedTable.compact``, a choice that is made: 0 also removes what no newer version needs, 1 does not."""

    def __init__(self, value: float) -> None:
        super().__init__()
        self.random = lambda: value  # type: ignore[method-assign]


def walked_table(kind: TableKind, out: Path, topic: str) -> WalkedTable:
    """A topic's table in the destination ``out``."""
    return (WalkedDelta if kind == "delta" else WalkedIceberg)(out, topic)


def rows_in(table: pa.Table) -> list[dict[str, Any]]:
    """The messages of a table, by partition and offset."""
    return sorted(table.to_pylist(), key=lambda row: (row["partition"], row["offset"]))
