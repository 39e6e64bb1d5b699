"""Commits, and the callers that wait for them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence

from zkgroup.errors import SessionLostError
from zkgroup.protocol import events as ev
from zkgroup.protocol import procedures as do
from zkgroup.protocol.member.member_context import MemberContext
from zkgroup.protocol.names import TopicPartition
from zkgroup.protocol.offset_versions import CommitError, ForeignWrite


class Commits:
    """Writes offsets: ZooKeeper first; Kafka, which has no compare-and-set, only if that succeeded."""

    def __init__(self, context: MemberContext) -> None:
        self._context = context
        self._requested: list[int] = []
        self._serving: list[int] = []

    @property
    def requested(self) -> bool:
        """Whether a caller waits for a commit that has not begun."""
        return bool(self._requested)

    def request(self, token: int) -> None:
        """A caller wants what is consumed now to be committed."""
        self._requested.append(token)

    def request_in_listener(self, request: int, token: int) -> None:
        """A listener that was called with ``request`` wants a commit. It is refused where the session of that call is
        over: others may own the share."""
        if self._context.awaits(request):
            self.request(token)
        else:
            lost = "the session ended during the call of the rebalance listener"
            self._context.do(ev.Committed(token, SessionLostError(lost, "what is not committed will be read again")))

    def report_nothing_to_commit(self) -> None:
        """Answer all callers: nothing is consumed that could be committed."""
        self.requeue()
        waiting, self._requested = self._requested, []
        for token in waiting:
            self._context.do(ev.Committed(token, None))

    def requeue(self) -> None:
        """The current commit was given up: the next one serves its callers."""
        self._requested, self._serving = self._serving + self._requested, []

    def refuse(self, error: Exception) -> None:
        """Answer all callers with an error."""
        self.requeue()
        waiting, self._requested = self._requested, []
        for token in waiting:
            self._context.do(ev.Committed(token, error))

    def commit(
        self,
        consumed: Mapping[TopicPartition, int],
        then: Callable[[Exception | None], None],
        *,
        until: float | None = None,
    ) -> None:
        """Commit, for all callers; ``then`` gets the error, if it failed. It is tried again as often as the settings
        say, but not later than ``until``; without ``until`` not at all."""
        self._serving, self._requested = self._serving + self._requested, []
        _Commit(self._context, consumed, lambda error: self._ended(error, then), until).begin()

    def _ended(self, error: Exception | None, then: Callable[[Exception | None], None]) -> None:
        ctx = self._context
        if error is None:
            ctx.counters.commits += 1
        else:
            ctx.counters.failed_commits += 1
        served, self._serving = self._serving, []
        for token in served:
            ctx.do(ev.Committed(token, error))
        then(error)


class _Commit:
    def __init__(
        self,
        context: MemberContext,
        consumed: Mapping[TopicPartition, int],
        ended: Callable[[Exception | None], None],
        until: float | None,
    ) -> None:
        self._context = context
        self._consumed = consumed
        self._ended = ended
        self._until = until
        self._tries = 0

    def begin(self) -> None:
        ctx = self._context
        if ctx.owned.has_unverified:
            # An owner node may have been deleted by hand: Kafka's offsets would not show that.
            share = ctx.owned.begin_check()
            ctx.zookeeper.run(
                lambda: do.lost(ctx.settings.group, share, ctx.session_id), self._owners_checked, self._failed
            )
        else:
            self._write()

    def _owners_checked(self, lost: Sequence[TopicPartition]) -> None:
        ctx = self._context
        ctx.owned.end_check(kept=not lost)
        self._consumed = {p: offset for p, offset in self._consumed.items() if p not in lost}
        self._write()

    def _write(self) -> None:
        ctx = self._context
        if ctx.settings.uses_zookeeper:
            ctx.zookeeper.run(
                lambda: ctx.offset_versions.commit(self._consumed, ctx.session_id), self._to_kafka, self._failed
            )
        else:
            self._to_kafka([])

    def _to_kafka(self, foreign: Sequence[ForeignWrite]) -> None:
        ctx = self._context
        for write in foreign:
            ctx.counters.foreign_writes += 1
            found = "deleted or made illegible" if write.value is None else f"set to {write.value}"
            ctx.log(logging.WARNING, f"offset of {write.partition} was {found} by a client that does not own it")
        owned = {
            partition: offset
            for partition, offset in self._consumed.items()
            if partition in ctx.owned.share and (partition in ctx.offset_versions or not ctx.settings.uses_zookeeper)
        }
        if not ctx.settings.uses_kafka or not owned:
            self._ended(None)
        elif not ctx.zookeeper.lease.is_valid(ctx.now):
            self._failed(CommitError("the lease on the session ran out before the commit to Kafka"))
        else:
            ctx.request(lambda request: ev.CommitKafkaOffsets(request, owned), self._answered)

    def _answered(self, answer: ev.Answered) -> None:
        if answer.error is None:
            self._ended(None)
        else:
            self._failed(answer.error)

    def _failed(self, error: Exception) -> None:
        ctx = self._context
        self._tries += 1
        again_at = ctx.now + ctx.settings.commit_backoff
        if self._until is None or again_at > self._until or self._tries > ctx.settings.commit_retries:
            self._ended(error)
        else:
            ctx.log(logging.WARNING, f"commit failed, trying again: {error}")
            ctx.timers.set("recommit", again_at, self.begin)
