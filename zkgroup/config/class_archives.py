"""Archives of Java classes in the cache folder, 20 to 70 MB each: one for each Java and class path."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path
from typing import Final

_DAY: Final = 24 * 60 * 60.0


def use(archive: Path) -> bool:
    """True if the archive exists; it then counts as used now."""
    if not archive.is_file():
        return False
    with contextlib.suppress(OSError):  # of another user's folder
        os.utime(archive)
    return True


def tidy(folder: Path, pattern: str, keep: int) -> None:
    """Remove archives that were not used for a day, and the marks and remains of killed processes beside them. The
    ``keep`` last used ones stay, with their marks. A process that has mapped one keeps it."""
    now = time.time()
    found = {path: _used(path) for path in folder.glob(pattern)}
    archives = sorted((path for path in found if path.suffix == ".jsa"), key=found.__getitem__, reverse=True)
    kept = {path.stem for place, path in enumerate(archives) if place < keep or found[path] >= now - _DAY}
    for path, used in found.items():
        if path.stem not in kept and used < now - _DAY:
            with contextlib.suppress(OSError):
                path.unlink()


def _used(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:  # removed meanwhile
        return time.time()
