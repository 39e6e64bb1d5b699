"""Whether what an extra brings is installed: found out without importing it, which takes long."""

from __future__ import annotations

import importlib.util

from zkgroup.errors import MissingExtraError


def require(*packages: str, what: str = "export", extra: str = "export") -> None:
    """Raise ``MissingExtraError``, with the line that installs ``extra``, where any of ``packages`` is missing."""
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    if missing:
        raise MissingExtraError(what, " and ".join(missing), extra)
