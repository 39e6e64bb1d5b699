"""How long leaving may take."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from zkgroup.errors import SessionLostError
from zkgroup.protocol.member.member_context import Ground
from zkgroup.protocol.member.phases import Phase

#: How long who leaves waits for a connection to ZooKeeper, in seconds: without one nothing can be committed, and what
#: is owned is released when the session ends.
UNCONNECTED: Final = 3.0
#: Whom it waits for where that is not ZooKeeper.
_WAITS_FOR: Final = {Phase.QUIETING: "a stream's reader", Phase.NOTIFYING: "the rebalance listener"}
UNCOMMITTED: Final = "what was not committed will be read again"


class Leaving:
    """Sets the alarm that ends a member that cannot leave in order: after ``leave_timeout`` as a whole, and after
    ``UNCONNECTED`` without a connection."""

    def __init__(self, ground: Ground, too_late: Callable[[], None]) -> None:
        self._ground = ground
        self._too_late = too_late
        self._began = 0.0

    def begin(self) -> None:
        """It is time to leave."""
        g = self._ground
        self._began = g.now
        g.timers.set("still leaving", g.now + UNCONNECTED, self._still)
        self.connected()
        if not g.talk.connected:
            self.disconnected()

    def connected(self) -> None:
        """There is a connection."""
        g = self._ground
        if g.leaving:
            g.timers.set("leave", self._began + g.settings.leave_timeout, self._too_late)

    def disconnected(self) -> None:
        """There is none any more."""
        g = self._ground
        if g.leaving and g.phase not in (Phase.NEW, Phase.CONNECTING):
            g.log(
                logging.WARNING,
                f"leaves, and waits {UNCONNECTED:g} s for a connection to ZooKeeper, to commit and to release",
            )
            g.timers.hasten("leave", g.now + UNCONNECTED)

    def _still(self) -> None:
        g = self._ground
        left = self._began + g.settings.leave_timeout - g.now
        if g.talk.connected and left > 0:
            what = "ZooKeeper" if not g.talk.idle else _WAITS_FOR.get(g.phase, "the brokers")
            g.log(logging.WARNING, f"still leaves ({g.phase.value}), and waits {left:.0f} s at most for {what}")

    def failure(self) -> SessionLostError:
        """Why it had to be given up."""
        taken = max(1.0, self._ground.now - self._began)
        return SessionLostError(f"could not leave the group cleanly within {taken:.0f} s", UNCOMMITTED)
