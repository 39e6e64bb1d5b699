"""Folders that live as long as one export's process: Spark's scratch space, its log, its settings.

A process that is killed cannot remove its own, so the next one does. A lock on a file in the folder shows that the
owner lives: the kernel releases it when the process ends, however it ends. Process ids are used again.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Self

PREFIX: Final = "zkgroup-spark-"
_LOCK: Final = "owner.lock"


class ScratchFolder:
    """A folder of this process; ``path`` is there until ``remove``."""

    def __init__(self, path: Path, lock: int) -> None:
        self.path = path
        self._lock = lock

    @classmethod
    def make(cls) -> Self:
        """A new folder where temporary files are; those of processes that have ended are removed."""
        parent = Path(tempfile.gettempdir())
        for abandoned in _abandoned(parent):
            shutil.rmtree(abandoned, ignore_errors=True)
        path = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
        # Locked before it has its name: a lock file that can be seen and taken is that of a process that has ended.
        unnamed = path / f"{_LOCK}.new"
        lock = os.open(unnamed, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX)
        unnamed.rename(path / _LOCK)
        return cls(path, lock)

    def remove(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)


def _abandoned(parent: Path) -> Iterator[Path]:
    """This user's folders whose process has ended. One without a lock file is none that we know of."""
    for path in parent.glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):
            found = path.lstat()
            if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
                continue
            lock = os.open(path / _LOCK, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                yield path
            finally:
                os.close(lock)
