"""zkgroup's folders for downloads and for state."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

CACHE_VARIABLE: Final = "ZKGROUP_CACHE_DIR"
STATE_VARIABLE: Final = "ZKGROUP_STATE_DIR"


def cache_dir() -> Path:
    """The folder for downloads: ``$ZKGROUP_CACHE_DIR``, else the platform's cache folder."""
    return _folder(CACHE_VARIABLE, "XDG_CACHE_HOME", ".cache", "Library/Caches")


def state_dir() -> Path:
    """The folder for sandboxes and backups: ``$ZKGROUP_STATE_DIR``, else the platform's state folder."""
    return _folder(STATE_VARIABLE, "XDG_STATE_HOME", ".local/state", "Library/Application Support")


def _folder(variable: str, xdg: str, unix: str, macos: str) -> Path:
    if own := os.environ.get(variable):
        return Path(own).expanduser().absolute()
    base = os.environ.get(xdg, "")
    if base.startswith("/"):  # the XDG specification: relative paths are ignored
        return Path(base) / "zkgroup"
    return Path.home() / (macos if sys.platform == "darwin" else unix) / "zkgroup"
