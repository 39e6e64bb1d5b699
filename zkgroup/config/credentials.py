"""Credentials for ZooKeeper, from a file of their own: neither a command line nor a shared configuration shows them."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

from zkgroup.errors import UsageError

#: The scheme of ZooKeeper's own that takes credentials.
DIGEST: Final = "digest"
_LARGEST: Final = 64 << 10  # bytes


def read_credentials(path: Path, origin: str) -> tuple[tuple[tuple[str, str], ...], list[str]]:
    """Scheme and credentials, as ``addauth`` of ZooKeeper's shell takes them, one a line: ``digest USER:PASSWORD``, or
    just ``USER:PASSWORD``. Blank lines, and those that begin with ``#``, are left out.

    Also warnings: others may read the file. Raises ``UsageError``, which shows nothing of what the file holds;
    ``origin`` is who named it.
    """
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            data = file.read(_LARGEST + 1)
    except OSError as error:
        why = error.strerror or error
        raise UsageError(f"{origin}: cannot read {path}: {why}", "name a file that can be read") from None
    try:
        lines = data.decode("utf-8").splitlines()
    except UnicodeDecodeError:
        lines = ["?"]
    found = []
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        scheme, _, credentials = text.partition(" ")
        if ":" in scheme:  # none is named; a password may have blanks
            scheme, credentials = DIGEST, text
        user, colon, password = credentials.strip().partition(":")
        if scheme != DIGEST or not user or not colon or not password or len(data) > _LARGEST:
            raise UsageError(f"{origin}: line {number} of {path} is no credentials", "write USER:PASSWORD, one a line")
        found.append((scheme, f"{user}:{password}"))
    if not found:
        raise UsageError(f"{origin}: {path} has no credentials", "write USER:PASSWORD, one a line")
    exposed = stat.S_ISREG(mode) and mode & (stat.S_IRGRP | stat.S_IROTH)
    return tuple(found), [f"{path} holds credentials, and others may read it: chmod 600"] if exposed else []
