"""What others do to a topic's table on a random walk, in each format: compact it, roll it back, drop it."""

from __future__ import annotations

import contextlib
import random
import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import unquote

from deltalake.exceptions import DeltaError, TableNotFoundError
from exports import table_in
from pyiceberg.catalog import load_catalog

from zkgroup.export.model.layout import table_name


class WalkedTable(Protocol):
    """A table of ``topic`` in the folder ``out``, which may not be there yet."""

    def files(self) -> list[str]:
        """Its files, relative to ``out``; none without a table."""
        ...

    def compact(self, dice: random.Random) -> None:
        """Put its rows into fewer files, and sometimes remove what no newer version needs."""
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

    def compact(self, dice: random.Random) -> None:
        if (table := self._table()) is not None and table.current_snapshot() is not None:
            table.overwrite(table.scan().to_arrow())
            if dice.random() < 0.3:
                self._table().maintenance.expire_snapshots().older_than(datetime.now(UTC)).commit()

    def roll_back(self, dice: random.Random) -> Callable[[], object] | None:
        table = self._table()
        newest = None if table is None else table.current_snapshot()
        ancestors = [] if table is None else [one.snapshot_id for one in table.history()[:-1]]
        there = [one for one in ancestors if table.metadata.snapshot_by_id(one) is not None]
        if not there or newest is None:
            return None
        table.manage_snapshots().set_current_snapshot(dice.choice(there)).commit()
        return lambda: self._table().manage_snapshots().set_current_snapshot(newest.snapshot_id).commit()

    def drop(self) -> bool:
        if self._table() is None:
            return False
        self._catalog().drop_table(self._name)
        return True
