"""A destination with one table of two runs, for tests of what others do to it between exports."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from export_points import Export
from exports import read
from walked_tables import WalkedTable, walked_table

from zkgroup.clients.kafka.client import KafkaSettings
from zkgroup.export.destination.run_log import Destination
from zkgroup.export.model.choices import TableKind
from zkgroup.export.stores.store import FolderStore
from zkgroup.sandbox.topic_admin import ProducerRecord, produce


class TableLake:
    """A table with two runs: offsets 0 to 9 and 10 to 19 of one partition."""

    def __init__(
        self, export: Export, kind: TableKind, topic: str, group: str, kafka: KafkaSettings, out: Path
    ) -> None:
        self.export, self.topic, self.group, self.out = export, topic, group, out
        self.table: WalkedTable = walked_table(kind, out, topic)
        self.destination = Destination(FolderStore(out))
        self._kafka = kafka
        self._sent = 0
        self.more()
        self.more()

    def send(self) -> None:
        """Ten messages."""
        records = [ProducerRecord(b"%d" % i, None, 0) for i in range(self._sent, self._sent + 10)]
        produce(self._kafka, self.topic, records)
        self._sent += 10

    def more(self, **options: Any) -> list[tuple[int, int]]:
        """Ten messages, exported; what the export has read."""
        self.send()
        return read(self.export(self.group, self.topic, **options))

    def offsets(self) -> list[int]:
        """All that a reader finds; each row is the message that was sent."""
        rows = self.table.rows()
        assert all(row["value"] == b"%d" % row["offset"] for row in rows)
        return [row["offset"] for row in rows]
