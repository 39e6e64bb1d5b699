"""What TAB offers: names from the table, and groups and cluster profiles that really exist.

A TAB never hangs and never fails: what is not known within a second is not offered. Only names of letters, digits and
``._-`` are: the shells evaluate what they are offered, and anybody may write names into ZooKeeper.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
from collections.abc import Callable, Iterable
from typing import Final

import typer

from zkgroup.errors import ZkgroupError

PATIENCE: Final = 0.6  # seconds; starting up takes its share of the second
_SAFE = re.compile(r"[A-Za-z0-9._-]+", re.ASCII)


def complete_group(ctx: typer.Context, incomplete: str) -> list[str]:
    """Groups in the ZooKeeper that the line so far, the environment or a profile names."""
    from zkgroup.protocol import znodes
    from zkgroup.protocol.ops import Children

    from ._context import connection, open_registry

    offered: list[str] = []

    def look() -> None:
        with open_registry(connection(ctx, quiet=True, ask=False)) as registry:
            names = registry.read([Children(znodes.consumers())])[0]
            offered.extend(names if isinstance(names, tuple) else ())

    _within(PATIENCE, look)
    return _safe(offered, incomplete)


def complete_cluster(incomplete: str) -> list[str]:
    """Profiles of ``config.toml``, and the sandbox."""
    from zkgroup.config.profiles import config_file, read_profiles

    try:
        path, must_exist = config_file(os.environ)
        known = list(read_profiles(path, must_exist=must_exist))
    except ZkgroupError:
        known = []
    return _safe([*known, "sandbox"], incomplete)


def _within(seconds: float, look: Callable[[], object]) -> None:
    """Run ``look`` for at most that long. Its thread is abandoned then: the process is about to end."""

    def run() -> None:
        try:
            with contextlib.suppress(ZkgroupError):  # a TAB has nowhere to complain
                look()
        finally:
            over.set()

    over = threading.Event()
    threading.Thread(target=run, name="zkgroup-complete", daemon=True).start()
    over.wait(seconds)


def _safe(names: Iterable[str], incomplete: str) -> list[str]:
    return sorted(name for name in names if name.startswith(incomplete) and _SAFE.fullmatch(name))
