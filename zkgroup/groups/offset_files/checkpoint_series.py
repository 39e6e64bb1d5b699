"""Offset files of one group in a folder, one a run, of which the newest are kept."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, Self
from urllib.parse import quote

from zkgroup.errors import RefusedError, ZkgroupError
from zkgroup.groups.offset_files.atomic_file import write_atomically

#: Every name has milliseconds, three digits: so the order of names (``ls``, in any locale) is that of time.
_STAMP: Final = "%Y-%m-%dT%H%M%S.%f"
_NAME: Final = r"\.(\d{4}-\d\d-\d\dT\d{6}\.\d{3})Z\.(?:txt|csv|json)"
_STEP: Final = timedelta(milliseconds=1)
_ENDINGS: Final = {"csv": "csv", "json": "json", "spark": "json"}
#: How long to wait for another run that writes there, in seconds.
LOCK_TIMEOUT: Final = 10.0


class Series:
    """The files of a group in ``folder``. A lock file keeps overlapping runs from removing each other's files."""

    def __init__(self, folder: Path, group: str, form: str | None) -> None:
        self._folder = folder
        # One folder may serve many groups, whose names may have any character.
        name = quote(group, safe="")
        self._stem = name if len(name) <= 180 else f"{name[:160]}~{hashlib.sha256(group.encode()).hexdigest()[:16]}"
        self._ending = _ENDINGS.get(form or "zk", "txt")

    @classmethod
    def of(cls, path: str, group: str, form: str | None) -> Self | None:
        """The series, where ``path`` is a folder; None where it is a file."""
        folder = Path(path)
        return cls(folder, group, form) if path.endswith("/") or folder.is_dir() else None

    def add(self, text: str, keep: int | None) -> Path:
        """Write one more, and remove all but the ``keep`` newest. Raises ``ZkgroupError``; nothing is removed then."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            with self._locked():
                path = self._next_name()
                write_atomically(str(path), text)
                if keep is not None:
                    for old in self.files()[:-keep]:
                        old.unlink(missing_ok=True)
        except OSError as error:
            raise ZkgroupError(f"cannot write to {self._folder}: {error.strerror}", "choose another folder") from None
        return path

    def files(self) -> list[Path]:
        """The group's files, oldest first; files with other names are ignored."""
        return [path for _, path in self._dated()]

    def _dated(self) -> list[tuple[datetime, Path]]:
        """The earliest time for a file that comes after it, the file."""
        pattern = re.compile(re.escape(self._stem) + _NAME, re.ASCII)
        found = []
        for path in self._folder.iterdir():
            if match := pattern.fullmatch(path.name):
                with contextlib.suppress(ValueError, OverflowError):  # digits that are no date
                    found.append((datetime.strptime(match[1], _STAMP).replace(tzinfo=UTC) + _STEP, path))
        return sorted(found)

    def _next_name(self) -> Path:
        """A name that sorts behind those of all files, even if the clock went back."""
        moment = max([datetime.now(UTC), *(after for after, _ in self._dated()[-1:])])
        return self._folder / f"{self._stem}.{moment.strftime(_STAMP)[:-3]}Z.{self._ending}"

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        descriptor = os.open(self._folder / f".{self._stem}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            until = time.monotonic() + LOCK_TIMEOUT
            while True:
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() > until:
                        raise RefusedError(
                            f"another run has been writing to {self._folder} for {LOCK_TIMEOUT:g} s",
                            "check that process",
                        ) from None
                    time.sleep(0.05)
            yield
        finally:
            os.close(descriptor)
