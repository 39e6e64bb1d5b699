"""Files that are written whole or not at all."""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path

from zkgroup.errors import ZkgroupError


def write_atomically(path: str, text: str) -> None:
    """Write a file whole or not at all: it replaces another one only when everything is on the disk.

    An existing file keeps its mode; pipes and devices are written to directly. Raises ``ZkgroupError``.
    """
    target = Path(path)
    try:
        target = target.resolve()  # what a link points to is replaced, not the link
        before = target.stat() if target.exists() else None
        if before is not None and not stat.S_ISREG(before.st_mode):
            target.write_text(text, encoding="utf-8")
            return
        with _temporary(target, text.encode(), None if before is None else stat.S_IMODE(before.st_mode)) as temporary:
            temporary.replace(target)
    except OSError as error:
        raise ZkgroupError(f"cannot write {path}: {error.strerror}", "choose another file") from None


def write_new(target: Path, data: bytes) -> None:
    """Write a new file that only its owner may read, whole and on the disk. Raises ``OSError``."""
    with _temporary(target.absolute(), data, 0o600) as temporary:
        try:
            os.link(temporary, target)
        except FileExistsError:
            raise
        except OSError:  # a file system without hard links
            os.close(os.open(target, os.O_CREAT | os.O_EXCL, 0o600))
            temporary.replace(target)


@contextlib.contextmanager
def _temporary(target: Path, data: bytes, mode: int | None) -> Iterator[Path]:
    """A temporary file in ``target``'s folder, on the disk, to be renamed. ``mode`` None: by the umask."""
    # Without the target's own name: that may be as long as a name can be.
    temporary = target.with_name(f".zkgroup-{os.getpid()}-{secrets.token_hex(4)}.tmp")
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        descriptor = os.open(temporary, flags, 0o666 if mode is None else 0o600)
        with os.fdopen(descriptor, "wb") as file:
            if mode is not None:
                os.fchmod(descriptor, mode)
            file.write(data)
            file.flush()
            os.fsync(descriptor)
        yield temporary
    finally:
        temporary.unlink(missing_ok=True)
    folder = os.open(target.parent, os.O_RDONLY)
    with contextlib.suppress(OSError):  # some network file systems know no fsync of folders; they write names through
        os.fsync(folder)
    os.close(folder)
