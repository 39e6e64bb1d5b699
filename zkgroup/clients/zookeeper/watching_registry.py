"""A registry whose watches are heard: for whoever looks at the same nodes for hours."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from zkgroup.clients.zookeeper import ZooKeeperSettings
from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.protocol.operations import Changed, SessionEvent

#: What ``on_change`` hears where all watches have ended with the connection.
EVERYTHING: Final = ""


class WatchingRegistry(Registry):
    """A ``Registry`` that tells which watched nodes have changed, before any answer that has seen the change.

    ``on_change`` gets the path, or ``EVERYTHING`` when the connection was lost, or the session: watches are gone then,
    and what was read may be outdated. It is called on a thread of the session's, and must only hand the news on.
    """

    def __init__(
        self, settings: ZooKeeperSettings, on_change: Callable[[str], None], timeout: float | None = None
    ) -> None:
        super().__init__(settings, timeout)
        self._on_change = on_change

    def _hear(self, event: SessionEvent) -> None:
        super()._hear(event)
        if isinstance(event, Changed):
            self._on_change(event.path)
            return
        # The first connection, too: whoever waits for one hears of it.
        self._on_change(EVERYTHING)
