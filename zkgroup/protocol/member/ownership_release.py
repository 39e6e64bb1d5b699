"""PAUSING, COMMITTING, NOTIFYING, RELEASING: give up a share, and commit what was consumed of it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from zkgroup.protocol import events as ev
from zkgroup.protocol import procedures as do
from zkgroup.protocol import znodes
from zkgroup.protocol.member.commits import Commits
from zkgroup.protocol.member.member_context import MemberContext, Phase
from zkgroup.protocol.names import TopicPartition, spans
from zkgroup.protocol.offset_versions import CommitError, Procedure
from zkgroup.protocol.operations import Sync


class OwnershipRelease:
    """Gives up a share that is read, or only claimed, or empty."""

    def __init__(
        self,
        context: MemberContext,
        commits: Commits,
        done: Callable[[], None],
        failed: Callable[[Exception], None],
        uncommitted: Callable[[Exception], None],
    ) -> None:
        self._context = context
        self._commits = commits
        self._done = done
        self._failed = failed
        self._uncommitted = uncommitted
        self._consumed: Mapping[TopicPartition, int] = {}  # in the generation that is given up
        self._serving = False  # a commit is under way that was requested during the listener's call
        self._listener_returned = False

    def begin(self) -> None:
        """Give up the share. The current step is dropped."""
        ctx = self._context
        ctx.drop()
        ctx.timers.cancel("commit", "retry", "held back", "report held back", "recommit")
        self._commits.requeue()
        if not ctx.assigned:
            self._consumed = {}
            if ctx.leaving:
                self.release()
            else:  # the Scala consumer calls its listener at the start of every attempt, too, also of the first one
                self._notify()
            return
        ctx.enter(Phase.PAUSING)
        ctx.timers.set("quiet", ctx.now + ctx.settings.quiesce_timeout, self._too_slow)
        ctx.pause_streams()

    def _too_slow(self) -> None:
        ctx = self._context
        if ctx.phase is Phase.PAUSING:
            ctx.counters.abandoned += 1
            ctx.log(logging.WARNING, "a stream does not come back for more: its batch will be read again")
            ctx.abandon_batches()

    def paused(self, event: ev.Paused) -> None:
        """The streams are paused: commit what they consumed."""
        ctx = self._context
        if ctx.phase is not Phase.PAUSING or event.generation != ctx.generation:
            return
        ctx.timers.cancel("quiet")
        ctx.assigned = False
        ctx.enter(Phase.COMMITTING)
        self._consumed = event.consumed
        if (ctx.settings.auto_commit or self._commits.requested) and not ctx.discarding:
            self._commit(self._committed)
        else:
            self._committed(None)

    def _commit(self, then: Callable[[Exception | None], None]) -> None:
        ctx = self._context
        # Other members give up after some 8 s of waiting for our release: retries must not take that long.
        # A member that leaves has leave_timeout.
        limit = float("inf") if ctx.leaving else ctx.settings.quiesce_timeout
        self._commits.commit(self._consumed, then, until=ctx.now + limit)

    def _committed(self, error: Exception | None) -> None:
        ctx = self._context
        if error is not None:
            ctx.log(logging.ERROR, f"not committed before the release: {error}")
            self._uncommitted(error)
        self._notify()

    def _notify(self) -> None:
        ctx = self._context
        ctx.enter(Phase.NOTIFYING)
        self._serving = self._listener_returned = False
        ctx.notify("before_releasing", ctx.owned.share, self._returned)

    def _returned(self) -> None:
        self._listener_returned = True

    def advance(self) -> None:
        """Commit during the listener's call as often as requested; the share is ours until it returns."""
        ctx = self._context
        while ctx.phase is Phase.NOTIFYING and not self._serving:
            if self._commits.requested and ctx.discarding:
                self._commits.refuse(CommitError("the member leaves without committing"))
            elif self._commits.requested and not self._consumed:
                self._commits.report_nothing_to_commit()
            elif self._commits.requested:
                self._serving = True
                self._commit(self._served)
            elif self._listener_returned:
                self.release()
            else:
                return

    def _served(self, error: Exception | None) -> None:
        self._serving = False
        if error is not None:
            self._context.log(logging.ERROR, f"not committed before the release: {error}")

    def release(self) -> None:
        """Delete our owner nodes. Their partitions are not read any more."""
        ctx = self._context
        if ctx.owned.share:
            ctx.log(logging.INFO, f"gives up {spans(ctx.owned.share)}")
        ctx.enter(Phase.RELEASING)
        ctx.zookeeper.run(lambda: release_all(ctx), lambda _: self._released(), self._failed)

    def _released(self) -> None:
        self._context.owned.forget()
        self._context.offset_versions.forget()
        self._done()


def release_all(context: MemberContext) -> Procedure[None]:
    """Delete those of the owner nodes we may have created that are ours.

    The sync comes first because a watch event may be late: every event from before its answer arrives before it. Only
    nodes without an event are deleted unread.
    """
    if context.owned.share:
        yield (Sync(znodes.consumers()),)
    candidates, sure = context.owned.release()
    yield from do.release(context.settings.group, candidates, context.session_id, surely_ours=sure)
