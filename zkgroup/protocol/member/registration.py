"""REGISTERING and WAITING: our id node."""

from __future__ import annotations

import logging
from collections.abc import Callable

from zkgroup.errors import RebalanceFailedError
from zkgroup.protocol import procedures as do
from zkgroup.protocol import znodes
from zkgroup.protocol.member.member_context import Ground
from zkgroup.protocol.member.phases import Phase

#: How many session time-outs to wait for another session's node of our id.
PATIENCE = 1.5


class Registering:
    """Creates our id node; where another session holds it, waits for that to end: it usually is our own expired one,
    of which the server has not noticed yet."""

    def __init__(self, ground: Ground, done: Callable[[], None], failed: Callable[[Exception], None]) -> None:
        self._ground = ground
        self._done = done
        self._failed = failed
        self.path = znodes.member_id(ground.settings.group, ground.settings.consumer_id)
        self._until: float | None = None  # when to give up waiting
        self._data = znodes.encode_registration(ground.settings.registration)

    def begin(self) -> None:
        """Register, or try again to."""
        g = self._ground
        g.enter(Phase.REGISTERING)
        g.talk.run(
            lambda: do.register(g.settings.group, g.settings.consumer_id, self._data, g.session_id),
            self._registered,
            self._failed,
        )

    def _registered(self, ours: bool) -> None:
        g = self._ground
        if ours:
            self._until = None
            g.step(self._done)
            return
        if self._until is None:
            self._until = g.now + max(g.talk.lease.timeout, g.settings.session_timeout) * PATIENCE
            g.log(logging.WARNING, f"id {g.settings.consumer_id} is held by another session: waiting for it to end")
        if g.now >= self._until:
            self._failed(
                RebalanceFailedError(
                    f"another session holds the id {g.settings.consumer_id} in group {g.settings.group}",
                    "two members may not share a consumer.id: stop the other one or choose another",
                )
            )
            return
        g.enter(Phase.WAITING)
        g.timers.set("id", self._until, self.look_again)

    def look_again(self) -> None:
        """The node that is in our way has changed, or we may have missed it, or it is time to give up: which of these
        is seen by trying."""
        if self._ground.phase is Phase.WAITING:
            self._ground.step(self.begin)

    def forget(self) -> None:
        """The session is over, or how long the one in our way has left has changed: patience begins anew."""
        self._until = None
