"""Read files of settings, secrets and credentials, up to a size limit."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

from zkgroup.errors import UsageError

MAX_SIZE: Final = 1 << 20  # bytes
MAX_SECRET_SIZE: Final = 64 << 10
#: ZooKeeper's own scheme that takes credentials.
DIGEST: Final = "digest"


def read_settings(path: Path, remedy: str) -> bytes:
    """A file's bytes. Raises ``FileNotFoundError``, and ``UsageError`` if it is unreadable, or larger than 1 MiB."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_SIZE + 1)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}", remedy) from None
    if len(data) > MAX_SIZE:
        raise UsageError(f"{path} is larger than {MAX_SIZE >> 20} MiB", "check that it is the right file")
    return data


def read_secrets(path: Path, origin: str) -> tuple[str | None, bool]:
    """A secret file's text, None if it is no UTF-8 or longer than 64 KiB; and True if other users may read the file.

    Raises ``UsageError``, which shows nothing of the text; ``origin`` is where the file was named.
    """
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            data = file.read(MAX_SECRET_SIZE + 1)
    except OSError as error:
        why = error.strerror or error
        raise UsageError(f"{origin}: cannot read {path}: {why}", "name a file that can be read") from None
    try:
        text = data.decode("utf-8") if len(data) <= MAX_SECRET_SIZE else None
    except UnicodeDecodeError:
        text = None
    return text, stat.S_ISREG(mode) and bool(mode & (stat.S_IRGRP | stat.S_IROTH))


def read_auth_file(file: str, origin: str) -> tuple[tuple[tuple[str, str], ...], list[str]]:
    """Scheme and credentials, one per line as ``addauth`` of ZooKeeper's shell takes them: ``digest USER:PASSWORD``, or
    ``USER:PASSWORD``. Blank lines, and those that begin with ``#``, are skipped.

    Also returns warnings. Raises ``UsageError``, which shows nothing of the file; ``origin`` is where the file was
    named.
    """
    path = Path(file).expanduser()
    text, exposed = read_secrets(path, origin)
    lines = ["?"] if text is None else text.splitlines()
    found = []
    for number, line in enumerate(lines, 1):
        entry = line.strip()
        if not entry or entry.startswith("#"):
            continue
        scheme, _, credentials = entry.partition(" ")
        if ":" in scheme:  # none is named; a password may have blanks
            scheme, credentials = DIGEST, entry
        user, colon, password = credentials.strip().partition(":")
        if scheme != DIGEST or not user or not colon or not password:
            raise UsageError(f"{origin}: line {number} of {path} is no credentials", "write USER:PASSWORD, one a line")
        found.append((scheme, f"{user}:{password}"))
    if not found:
        raise UsageError(f"{origin}: {path} has no credentials", "write USER:PASSWORD, one a line")
    return tuple(found), [f"{path} has credentials, and others may read it: chmod 600"] if exposed else []


def is_encrypted(key_file: str) -> bool:
    """True if a PEM file has a key that needs a password; False if it cannot be read."""
    try:
        with Path(key_file).open("rb") as file:
            return b"ENCRYPTED" in file.read(MAX_SECRET_SIZE)
    except OSError:
        return False
