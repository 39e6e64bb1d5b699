"""Exported files in a lake that have no export's name."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import chain, islice
from typing import TYPE_CHECKING

from zkgroup.export.lake.lake import Lake
from zkgroup.export.model.layout import read_name

if TYPE_CHECKING:
    from zkgroup.export.lake.footer import Footer


def stray_files(
    lake: Lake, topics: Collection[str], named: int | None = None, read: int | None = None
) -> Iterator[tuple[str, Footer]]:
    """The names and footers of exported files in these topics' folders, and beside all topics', whose names no export
    gives. Of those beside ``named`` are looked at, and of all ``read``. Raises ``UnopenedFileError`` for one of which
    nobody knows what it holds; where not all are looked at, in a topic's folder alone."""
    from zkgroup.export.lake.footer import UnopenedFileError, UnreadableFileError, read_footer  # pyarrow

    within = chain.from_iterable(lake.below(f"topic={topic}") for topic in sorted(topics))
    beside = chain.from_iterable(map(lake.below, lake.strangers()))
    files = (file.name for file in chain(within, islice(beside, named)) if file.size)
    for name in islice((name for name in files if name.endswith(".parquet") and read_name(name) is None), read):
        try:
            yield name, read_footer(lake.store, name)
        except UnreadableFileError as error:
            if isinstance(error, UnopenedFileError) and (named is None or name.startswith("topic=")):
                raise
