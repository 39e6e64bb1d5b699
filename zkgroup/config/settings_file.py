"""Reading files of settings: whole, and only so much as any such file can hold."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

from zkgroup.errors import UsageError

LARGEST: Final = 1 << 20  # bytes
LARGEST_SECRET: Final = 64 << 10


def read_settings(path: Path, remedy: str) -> bytes:
    """A file's bytes. Raises ``UsageError`` where it cannot be read, or is larger than 1 MiB (a device without an end
    is), and ``FileNotFoundError``."""
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST + 1)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}", remedy) from None
    if len(data) > LARGEST:
        raise UsageError(f"{path} is larger than {LARGEST >> 20} MiB", "see whether it is the right file")
    return data


def read_secrets(path: Path, origin: str) -> tuple[str | None, bool]:
    """What a file of secrets holds, None where it is no text of a bearable length; and whether others may read it.

    Raises ``UsageError``, which shows nothing of it; ``origin`` is who named the file.
    """
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            data = file.read(LARGEST_SECRET + 1)
    except OSError as error:
        why = error.strerror or error
        raise UsageError(f"{origin}: cannot read {path}: {why}", "name a file that can be read") from None
    try:
        text = data.decode("utf-8") if len(data) <= LARGEST_SECRET else None
    except UnicodeDecodeError:
        text = None
    return text, stat.S_ISREG(mode) and bool(mode & (stat.S_IRGRP | stat.S_IROTH))


def is_encrypted(key_file: str) -> bool:
    """Whether a PEM file holds a key that needs a password; False where it cannot be read."""
    try:
        with Path(key_file).open("rb") as file:
            return b"ENCRYPTED" in file.read(LARGEST_SECRET)
    except OSError:
        return False
