"""A registry that reports the events of its watches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from zkgroup.clients.zookeeper import ZooKeeperSettings
from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.protocol.operations import Changed, SessionEvent

#: ``on_change`` gets this where all watches have ended with the connection.
EVERYTHING: Final = ""


class WatchingRegistry(Registry):
    """A ``Registry`` that reports the changes of watched nodes, before any answer that has seen the change.

    ``on_change`` gets the path, or ``EVERYTHING`` when the connection or the session was lost: watches are gone then,
    and nodes that were read may be outdated. It is called on a thread of the session, and must not block.
    """

    def __init__(
        self, settings: ZooKeeperSettings, on_change: Callable[[str], None], timeout: float | None = None
    ) -> None:
        super().__init__(settings, timeout)
        self._on_change = on_change

    def _on_event(self, event: SessionEvent) -> None:
        super()._on_event(event)
        if isinstance(event, Changed):
            self._on_change(event.path)
            return
        # The first connection, too: the caller may wait for one.
        self._on_change(EVERYTHING)
