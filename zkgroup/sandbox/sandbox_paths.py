"""The folders of downloads and of sandboxes."""

from __future__ import annotations

import re
from pathlib import Path

from zkgroup.config.state_folders import CACHE_VARIABLE, STATE_VARIABLE, cache_dir, state_dir
from zkgroup.errors import UsageError

__all__ = ["CACHE_VARIABLE", "STATE_VARIABLE", "cache_dir", "sandbox_folder", "sandbox_names", "state_dir"]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}\Z")


def sandbox_folder(name: str) -> Path:
    """The folder of the sandbox called ``name``. Raises ``UsageError`` for a name that cannot be a folder."""
    if not _NAME.match(name):
        raise UsageError(f"{name!r} cannot name a sandbox", "use letters, digits, '.', '_' and '-', at most 64")
    return state_dir() / "sandbox" / name


def sandbox_names() -> list[str]:
    """The names of all sandboxes with a folder, running or not."""
    parent = state_dir() / "sandbox"
    found = parent.iterdir() if parent.is_dir() else ()
    return sorted(folder.name for folder in found if folder.is_dir() and _NAME.match(folder.name))
