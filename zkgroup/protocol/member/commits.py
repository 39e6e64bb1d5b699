"""Commits, and who waits for them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence

from zkgroup.errors import SessionLostError
from zkgroup.protocol import events as ev
from zkgroup.protocol import procedures as do
from zkgroup.protocol.member.member_context import Ground
from zkgroup.protocol.names import TopicPartition
from zkgroup.protocol.offset_versions import CommitError, ForeignWrite


class Commits:
    """Writes offsets: ZooKeeper first; Kafka, which has no compare-and-set, only if that succeeded."""

    def __init__(self, ground: Ground) -> None:
        self._ground = ground
        self._asked: list[int] = []
        self._serving: list[int] = []

    @property
    def asked(self) -> bool:
        """Whether somebody waits for a commit that has not begun."""
        return bool(self._asked)

    def ask(self, token: int) -> None:
        """Somebody wants what is consumed now to be committed."""
        self._asked.append(token)

    def ask_during(self, request: int, token: int) -> None:
        """A listener that was called with ``request`` wants that. Where the session that it was called under is over,
        what it would commit may be somebody else's."""
        if self._ground.awaits(request):
            self.ask(token)
        else:
            lost = "the session ended while the rebalance listener was at work"
            self._ground.do(ev.Committed(token, SessionLostError(lost, "what is not committed will be read again")))

    def nothing(self) -> None:
        """Nothing is consumed that could be committed: so much for those who wait."""
        self.dropped()
        waiting, self._asked = self._asked, []
        for token in waiting:
            self._ground.do(ev.Committed(token, None))

    def dropped(self) -> None:
        """A commit was given up in the middle: those who wait for it are served by the next one."""
        self._asked, self._serving = self._serving + self._asked, []

    def refuse(self, error: Exception) -> None:
        """No commit will serve those who wait."""
        self.dropped()
        waiting, self._asked = self._asked, []
        for token in waiting:
            self._ground.do(ev.Committed(token, error))

    def commit(
        self,
        consumed: Mapping[TopicPartition, int],
        then: Callable[[Exception | None], None],
        *,
        until: float | None = None,
    ) -> None:
        """Commit, for all who wait; ``then`` gets the error, if it failed. Tried again before ``until``, if that is
        given, as often as the settings say."""
        self._serving, self._asked = self._serving + self._asked, []
        _Commit(self._ground, consumed, lambda error: self._ended(error, then), until).begin()

    def _ended(self, error: Exception | None, then: Callable[[Exception | None], None]) -> None:
        g = self._ground
        if error is None:
            g.counters.commits += 1
        else:
            g.counters.failed_commits += 1
        served, self._serving = self._serving, []
        for token in served:
            g.do(ev.Committed(token, error))
        then(error)


class _Commit:
    """One commit, with its retries."""

    def __init__(
        self,
        ground: Ground,
        consumed: Mapping[TopicPartition, int],
        ended: Callable[[Exception | None], None],
        until: float | None,
    ) -> None:
        self._ground = ground
        self._consumed = consumed
        self._ended = ended
        self._until = until
        self._tries = 0

    def begin(self) -> None:
        g = self._ground
        if g.holdings.doubtful:
            # Somebody may have taken partitions from us by hand: Kafka's offsets would not tell.
            share = g.holdings.look()
            g.talk.run(lambda: do.lost(g.settings.group, share, g.session_id), self._looked, self._failed)
        else:
            self._write()

    def _looked(self, lost: Sequence[TopicPartition]) -> None:
        g = self._ground
        g.holdings.looked(kept=not lost)
        self._consumed = {p: offset for p, offset in self._consumed.items() if p not in lost}
        self._write()

    def _write(self) -> None:
        g = self._ground
        if g.settings.uses_zookeeper:
            g.talk.run(lambda: g.book.commit(self._consumed, g.session_id), self._to_kafka, self._failed)
        else:
            self._to_kafka([])

    def _to_kafka(self, foreign: Sequence[ForeignWrite]) -> None:
        g = self._ground
        for write in foreign:
            g.counters.foreign_writes += 1
            found = "deleted or made illegible" if write.value is None else f"set to {write.value}"
            g.log(logging.WARNING, f"offset of {write.partition} was {found} by somebody who does not own it")
        owned = {
            partition: offset
            for partition, offset in self._consumed.items()
            if partition in g.holdings.share and (partition in g.book or not g.settings.uses_zookeeper)
        }
        if not g.settings.uses_kafka or not owned:
            self._ended(None)
        elif not g.talk.lease.holds(g.now):
            self._failed(CommitError("the lease on the session ran out before the commit to Kafka"))
        else:
            g.request(lambda request: ev.CommitKafka(request, owned), self._answered)

    def _answered(self, answer: ev.Answered) -> None:
        if answer.error is None:
            self._ended(None)
        else:
            self._failed(answer.error)

    def _failed(self, error: Exception) -> None:
        g = self._ground
        self._tries += 1
        again_at = g.now + g.settings.commit_backoff
        if self._until is None or again_at > self._until or self._tries > g.settings.commit_retries:
            self._ended(error)
        else:
            g.log(logging.WARNING, f"commit failed, trying again: {error}")
            g.timers.set("recommit", again_at, self.begin)
