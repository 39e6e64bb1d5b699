"""What became of a transaction whose answer was lost."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Final

from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.errors import UnreachableError
from zkgroup.protocol import znodes
from zkgroup.protocol.operations import Get, Result, Sync

_POLL: Final = 0.2


class Steady:
    """A registry that is replaced when its session is over. ``patience``: how many seconds a lost ZooKeeper is waited
    for. ``opened`` closes what is opened on the way."""

    def __init__(self, registry: Registry, patience: float, opened: ExitStack) -> None:
        self.registry = registry
        self._patience = patience
        self._opened = opened

    def read_back(self, paths: Sequence[str], patience: float | None = None) -> list[Result]:
        """The nodes after a lost answer, such that what is not applied by then never will be.

        Asked under the same session, if that lives: the server has then closed the old connection, or has answered what
        came before on it. If the session is over, nothing more is taken from it. ``patience`` in place of that of all.
        Raises ``UnreachableError``.
        """
        deadline = time.monotonic() + (self._patience if patience is None else patience)
        while True:
            try:
                if self.registry.lost:
                    fresh = Registry(self.registry.settings, self.registry.timeout)
                    self.registry = self._opened.enter_context(fresh)
                _, *results = self.registry.read([Sync(znodes.consumers()), *(Get(path) for path in paths)])
            except UnreachableError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(_POLL)
            else:
                return results
