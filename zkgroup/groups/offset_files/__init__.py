"""Files of offsets: ``offset_file`` recognises, reads and writes them; each format has a reader and a writer."""

from __future__ import annotations

from typing import Literal, TypeAlias

#: Here, as options of commands have it, and a help should not wait for what reads files.
FileFormat: TypeAlias = Literal["zk", "csv", "json", "rpk", "spark"]
