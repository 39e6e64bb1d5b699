"""The file of ``--zookeeper-auth-file``: users and passwords of ZooKeeper's ``digest`` scheme."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from zkgroup.config.settings_file import read_secrets
from zkgroup.errors import UsageError

#: The scheme of ZooKeeper's own that takes credentials.
DIGEST: Final = "digest"


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
    return tuple(found), [f"{path} holds credentials, and others may read it: chmod 600"] if exposed else []
