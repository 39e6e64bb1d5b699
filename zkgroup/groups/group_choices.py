"""Values of options that the modules of groups know, too. Commands import this at start-up: it imports nothing."""

from __future__ import annotations

from typing import Literal, TypeAlias

#: One of the two places where a group keeps its offsets.
OffsetStore: TypeAlias = Literal["zookeeper", "kafka"]
Store: TypeAlias = Literal[OffsetStore, "both"]
State: TypeAlias = Literal["active", "inactive", "broken"]
#: Which offset counts where the store that is written to is ahead.
Prefer: TypeAlias = Literal["source", "larger"]
#: Of a file of offsets.
FileFormat: TypeAlias = Literal["zk", "csv", "json", "rpk", "spark"]
#: Of what is known about a group.
Section: TypeAlias = Literal["members", "partitions", "findings"]
