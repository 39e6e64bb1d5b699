"""The options of an export that have few values: apart, so that ``--help`` needs nothing else."""

from __future__ import annotations

from typing import Literal

#: Plain Parquet, or a table a topic.
TableKind = Literal["parquet", "delta", "iceberg"]
#: Where to continue a partition about which group and destination disagree: nowhere (refuse), where the destination
#: ends, at the group's offset, or not at all in this export.
OnMismatch = Literal["fail", "lake", "group", "skip"]
