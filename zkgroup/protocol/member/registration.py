"""REGISTERING and WAITING: our id node."""

from __future__ import annotations

import logging
from collections.abc import Callable

from zkgroup.errors import RebalanceFailedError
from zkgroup.protocol import procedures as do
from zkgroup.protocol import znodes
from zkgroup.protocol.member.member_context import MemberContext
from zkgroup.protocol.member.phases import Phase

#: How many session timeouts to wait until another session releases our id.
SESSION_TIMEOUTS = 1.5


class IdRegistration:
    """Creates our id node. Where another session owns it, waits for the end of that session: usually it is our own
    former one, which the server has not expired yet."""

    def __init__(self, context: MemberContext, done: Callable[[], None], failed: Callable[[Exception], None]) -> None:
        self._context = context
        self._done = done
        self._failed = failed
        self.path = znodes.member_id(context.settings.group, context.settings.consumer_id)
        self._until: float | None = None  # when to give up waiting
        self._data = znodes.encode_registration(context.settings.registration)

    def begin(self) -> None:
        ctx = self._context
        ctx.enter(Phase.REGISTERING)
        ctx.zookeeper.run(
            lambda: do.register(ctx.settings.group, ctx.settings.consumer_id, self._data, ctx.session_id),
            self._registered,
            self._failed,
        )

    def _registered(self, ours: bool) -> None:
        ctx = self._context
        if ours:
            self._until = None
            ctx.step(self._done)
            return
        if self._until is None:
            self._until = ctx.now + max(ctx.zookeeper.lease.timeout, ctx.settings.session_timeout) * SESSION_TIMEOUTS
            ctx.log(
                logging.WARNING, f"id {ctx.settings.consumer_id} is owned by another session: waiting for it to end"
            )
        if ctx.now >= self._until:
            self._failed(
                RebalanceFailedError(
                    f"another session owns the id {ctx.settings.consumer_id} in group {ctx.settings.group}",
                    "two members may not share a consumer.id: stop the other one or choose another",
                )
            )
            return
        ctx.enter(Phase.WAITING)
        ctx.timers.set("id", self._until, self.retry)

    def retry(self) -> None:
        """Register again: the other session's node has changed, or may have, or it is time to give up."""
        if self._context.phase is Phase.WAITING:
            self._context.step(self.begin)

    def forget(self) -> None:
        """Wait the whole time again: our session is over, or the other one may live longer."""
        self._until = None
