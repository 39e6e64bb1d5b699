"""Where the sandbox keeps what it downloads and what it runs."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

from zkgroup.errors import UsageError

CACHE_VARIABLE = "ZKGROUP_CACHE_DIR"
STATE_VARIABLE = "ZKGROUP_STATE_DIR"

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}\Z")


def cache_dir() -> Path:
    """The folder for downloads: ``$ZKGROUP_CACHE_DIR``, else the platform's cache folder."""
    return _folder(CACHE_VARIABLE, "XDG_CACHE_HOME", ".cache", "Library/Caches")


def state_dir() -> Path:
    """The folder for what must outlive a process: ``$ZKGROUP_STATE_DIR``, else the platform's state folder."""
    return _folder(STATE_VARIABLE, "XDG_STATE_HOME", ".local/state", "Library/Application Support")


def _folder(variable: str, xdg: str, unix: str, macos: str) -> Path:
    if own := os.environ.get(variable):
        return Path(own).expanduser().absolute()
    base = os.environ.get(xdg, "")
    if base.startswith("/"):  # the XDG specification: relative paths are to be ignored
        return Path(base) / "zkgroup"
    return Path.home() / (macos if sys.platform == "darwin" else unix) / "zkgroup"


def sandbox_folder(name: str) -> Path:
    """The folder of the sandbox called ``name``. Raises ``UsageError`` for a name that cannot be a folder."""
    if not _NAME.match(name):
        raise UsageError(f"{name!r} cannot name a sandbox", "use letters, digits, '.', '_' and '-', at most 64")
    return state_dir() / "sandbox" / name


def sandbox_names() -> list[str]:
    """The names of all sandboxes that have left a trace, running or not."""
    parent = state_dir() / "sandbox"
    found = parent.iterdir() if parent.is_dir() else ()
    return sorted(folder.name for folder in found if folder.is_dir() and _NAME.match(folder.name))
