"""Files that have another name, or lie elsewhere, than their export put them: readers take them for data all the same,
and what they hold is there."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from zkgroup.export.footer import Footer, UnreadableFileError, read_footer
from zkgroup.export.judging import look_at, wrong_with
from zkgroup.export.lake import Lake, Published
from zkgroup.export.layout import is_read, read_name


def renamed_files(lake: Lake, topics: Collection[str], named: Collection[str]) -> Iterator[tuple[str, Footer]]:
    """The names and footers of such files, of those that no run has ``named``: below these topics' folders, and
    wherever a name is none that an export gives."""
    folders = tuple(f"topic={topic}/" for topic in topics)
    for file in (file for files in lake.contents() for file in files):
        told = read_name(file.name)
        if file.name in named or not is_read(file.name):
            continue
        try:
            if told is None:
                yield file.name, read_footer(lake.store, file.name)
            elif file.name.startswith(folders):
                published = Published(file.name, file.size, told)
                look = look_at(lake, published)
                if look.footer is not None and wrong_with(published, look, None):
                    yield file.name, look.footer
        except UnreadableFileError:
            continue
