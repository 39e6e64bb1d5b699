"""QUIETING, COMMITTING, NOTIFYING, RELEASING: give up a share, and keep what was consumed of it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from zkgroup.protocol import events as ev
from zkgroup.protocol import procedures as do
from zkgroup.protocol import znodes
from zkgroup.protocol.member.commits import Commits
from zkgroup.protocol.member.member_context import Ground
from zkgroup.protocol.member.phases import Phase
from zkgroup.protocol.names import TopicPartition, spans
from zkgroup.protocol.offset_versions import CommitError, Procedure
from zkgroup.protocol.operations import Sync


class Releasing:
    """From a share that is read, or claimed only, or from nothing, to nothing."""

    def __init__(
        self,
        ground: Ground,
        commits: Commits,
        done: Callable[[], None],
        failed: Callable[[Exception], None],
        uncommitted: Callable[[Exception], None],
    ) -> None:
        self._ground = ground
        self._commits = commits
        self._done = done
        self._failed = failed
        self._uncommitted = uncommitted
        self._consumed: Mapping[TopicPartition, int] = {}  # of the generation that is given up
        self._serving = False  # a commit is under way that somebody asked for while the listener is at work
        self._told = False  # the listener has returned

    def begin(self) -> None:
        """Give up the share. What was under way is dropped."""
        g = self._ground
        g.drop()
        g.timers.cancel("commit", "retry", "held", "tell held", "recommit")
        self._commits.dropped()
        if not g.granted:
            self._consumed = {}
            if g.leaving:
                self.release()
            else:  # as the Scala consumer tells its listener at the start of every attempt, the first one included
                self._notify()
            return
        g.enter(Phase.QUIETING)
        g.timers.set("quiet", g.now + g.settings.quiet_timeout, self._too_slow)
        g.quiet()

    def _too_slow(self) -> None:
        g = self._ground
        if g.phase is Phase.QUIETING:
            g.counters.abandoned += 1
            g.log(logging.WARNING, "a stream does not come back for more: its batch will be read again")
            g.abandon()

    def quieted(self, event: ev.Quieted) -> None:
        """The streams have stopped: commit what they consumed."""
        g = self._ground
        if g.phase is not Phase.QUIETING or event.generation != g.generation:
            return
        g.timers.cancel("quiet")
        g.granted = False
        g.enter(Phase.COMMITTING)
        self._consumed = event.consumed
        if (g.settings.auto_commit or self._commits.asked) and not g.discarding:
            self._commit(self._committed)
        else:
            self._committed(None)

    def _commit(self, then: Callable[[Exception | None], None]) -> None:
        g = self._ground
        # Peers give up after some 8 s of waiting for our release: what is tried again must not take that long.
        # When leaving, leave_timeout is the limit.
        patience = float("inf") if g.leaving else g.settings.quiet_timeout
        self._commits.commit(self._consumed, then, until=g.now + patience)

    def _committed(self, error: Exception | None) -> None:
        g = self._ground
        if error is not None:
            g.log(logging.ERROR, f"not committed before the release: {error}")
            self._uncommitted(error)
        self._notify()

    def _notify(self) -> None:
        g = self._ground
        g.enter(Phase.NOTIFYING)
        self._serving = self._told = False
        g.notify("before_releasing", g.holdings.share, self._returned)

    def _returned(self) -> None:
        self._told = True

    def advance(self) -> None:
        """The listener is at work, or was: commit where it (or anybody) asks for that, and go on when it has returned.
        What the streams held is still ours until then."""
        g = self._ground
        while g.phase is Phase.NOTIFYING and not self._serving:
            if self._commits.asked and g.discarding:
                self._commits.refuse(CommitError("the member leaves without committing"))
            elif self._commits.asked and not self._consumed:
                self._commits.nothing()
            elif self._commits.asked:
                self._serving = True
                self._commit(self._served)
            elif self._told:
                self.release()
            else:
                return

    def _served(self, error: Exception | None) -> None:
        self._serving = False
        if error is not None:
            self._ground.log(logging.ERROR, f"not committed before the release: {error}")

    def release(self) -> None:
        """Delete our owner nodes. Nothing of them is read."""
        g = self._ground
        if g.holdings.share:
            g.log(logging.INFO, f"gives up {spans(g.holdings.share)}")
        g.enter(Phase.RELEASING)
        g.talk.run(lambda: release_all(g), lambda _: self._released(), self._failed)

    def _released(self) -> None:
        self._ground.holdings.forget()
        self._ground.book.forget()
        self._done()


def release_all(ground: Ground) -> Procedure[None]:
    """Delete all owner nodes that may be ours, and are.

    The sync comes first because a watch may come late: what was told of our nodes before its answer is heard before it,
    and only those of which nothing was told are deleted without a look.
    """
    if ground.holdings.share:
        yield (Sync(znodes.consumers()),)
    touched, sure = ground.holdings.let_go()
    yield from do.release(ground.settings.group, touched, ground.session_id, surely_ours=sure)
