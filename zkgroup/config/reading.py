"""Reading files of settings: whole, and only so much as any such file can hold."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from zkgroup.errors import UsageError

LARGEST: Final = 1 << 20  # bytes


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
