"""What tests of exports share besides fixtures: the files of a folder, and the messages in them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds

#: What a reader is told where topics look like numbers: see ``zkgroup.export.output``.
FOLDERS = ds.partitioning(pa.schema([("topic", pa.string()), ("partition", pa.int32())]), flavor="hive")


def files_in(folder: Path) -> list[str]:
    """All files below ``folder``, relative to it."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def messages_in(folder: Path) -> list[dict[str, Any]]:
    """All messages of an export, by topic, partition and offset."""
    rows = ds.dataset(folder, partitioning=FOLDERS).to_table().to_pylist()
    return sorted(rows, key=lambda row: (row["topic"], row["partition"], row["offset"]))
