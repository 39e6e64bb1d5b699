"""zkgroup's folders for downloads and for state."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

CACHE_VARIABLE: Final = "ZKGROUP_CACHE_DIR"
STATE_VARIABLE: Final = "ZKGROUP_STATE_DIR"


def cache_dir() -> Path:
    """The folder for downloads: ``$ZKGROUP_CACHE_DIR``, else in the user's cache folder."""
    return _folder(CACHE_VARIABLE, "XDG_CACHE_HOME", ".cache")


def state_dir() -> Path:
    """The folder for sandboxes and backups: ``$ZKGROUP_STATE_DIR``, else in the user's state folder."""
    return _folder(STATE_VARIABLE, "XDG_STATE_HOME", ".local/state")


def _folder(variable: str, xdg: str, otherwise: str) -> Path:
    if own := os.environ.get(variable):
        return Path(own).expanduser().absolute()
    base = os.environ.get(xdg, "")
    if base.startswith("/"):  # the XDG specification: relative paths are ignored
        return Path(base) / "zkgroup"
    return Path.home() / otherwise / "zkgroup"
