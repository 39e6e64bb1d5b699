"""The layout that published files tell, where no manifest does: somebody has deleted ``_zkgroup``, or the manifests.

Each file's footer has the layout that it was written in, but for files of older releases. A few files are looked at,
the newest ones: these are the likeliest to tell, and the way to them is some listings of single folders, however many
files there are.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from zkgroup.errors import RefusedError
from zkgroup.export.model.documents import decode_layout
from zkgroup.export.model.layout import Layout, read_name
from zkgroup.export.stores.store import Store

# Footers that are read; of one topic, since another may have newer files.
_FOOTERS = 8
_OF_TOPIC = 2


def layout_of_files(store: Store, *, must_tell: bool) -> Layout | None:
    """The layout that a published file tells; None where there is no file. Where there are some and none tells, None
    as well, or with ``must_tell`` a ``RefusedError``. Raises ``ZkgroupError`` where what is told cannot be read."""
    names = list(islice(_published(store), _FOOTERS))
    if not names:
        return None
    # pyarrow: where there are manifests, or no files, a look does without.
    from zkgroup.export.lake.footer import UnreadableFileError, read_footer

    for name in names:
        try:
            told = read_footer(store, name).told.get("layout")
        except UnreadableFileError:
            continue
        if told is not None:
            return decode_layout(f"the layout in {store.uri}/{name}", told)
    if must_tell:
        raise RefusedError(
            f"{store.uri} holds files, such as {names[0]}, and neither a manifest nor a footer tells the layout that "
            "they are in",
            "give --partition-by, --time-zone, --key-format and --value-format as the lake was begun (--partition-by "
            "partition if without any of them), or choose another --to",
        )
    return None


def _published(store: Store) -> Iterator[str]:
    for folder in store.names(""):
        if folder.startswith("topic="):
            yield from islice(_newest(store, folder), _OF_TOPIC)


def _newest(store: Store, folder: str) -> Iterator[str]:
    """Published files below a folder; those of later days first."""
    for name in reversed(store.names(folder)):
        path = f"{folder}/{name}"
        if read_name(path) is not None:
            yield path
        elif "=" in name and not name.endswith(".parquet"):
            yield from _newest(store, path)
