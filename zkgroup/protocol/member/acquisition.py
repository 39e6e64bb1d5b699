"""REGISTERING and WAITING: our id node. READING … STARTING: get a share, trying again where that fails."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from zkgroup.errors import RebalanceFailedError, UnreachableError, ZkgroupError, notice_of
from zkgroup.protocol import events as ev
from zkgroup.protocol import procedures as do
from zkgroup.protocol import znodes
from zkgroup.protocol.assignors import Assignment, assign
from zkgroup.protocol.member.member_context import MemberContext, Phase
from zkgroup.protocol.member.ownership_release import release_all
from zkgroup.protocol.names import ConsumerThreadId, TopicPartition, spans
from zkgroup.protocol.offset_versions import CommitError, LoadedOffsets, Procedure
from zkgroup.protocol.procedures import RegistryCache

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


@dataclass(frozen=True, slots=True)
class StartOffsets:
    """Start offsets. ``held_back``: partitions without one, each with the reason; ``malformed``: those of them whose
    offset node has no offset."""

    offsets: Mapping[TopicPartition, int]
    held_back: Mapping[TopicPartition, str] = field(default_factory=dict)
    malformed: Mapping[TopicPartition, Exception] = field(default_factory=dict)


class OffsetLoading:
    """Reads committed offsets, from ZooKeeper, Kafka or both (the larger one counts, as with the Scala consumer), and
    the log start or log end of partitions without one.

    A partition without a leader, or with a malformed offset node, is held back; the member reads the others.
    """

    def __init__(self, context: MemberContext) -> None:
        self._context = context

    def begin(
        self,
        partitions: Collection[TopicPartition],
        done: Callable[[StartOffsets], None],
        failed: Callable[[Exception], None],
    ) -> None:
        """Find the start offsets of claimed partitions. ``failed`` is called where none can be found."""
        ctx = self._context
        wanted = sorted(partitions)
        if not wanted:
            done(StartOffsets({}))
        elif ctx.settings.uses_zookeeper:
            ctx.zookeeper.run(
                lambda: ctx.offset_versions.load(wanted), lambda loaded: self._loaded(loaded, done, failed), failed
            )
        else:
            self._loaded(LoadedOffsets(dict.fromkeys(wanted)), done, failed)

    def _loaded(
        self, loaded: LoadedOffsets, done: Callable[[StartOffsets], None], failed: Callable[[Exception], None]
    ) -> None:
        ctx = self._context
        if not ctx.settings.uses_kafka or not loaded.offsets:
            self._list_offsets(loaded, done, failed)
            return

        def fetched(answer: ev.Answered) -> None:
            if answer.error is not None:
                failed(answer.error)
                return
            both = {p: _larger(offset, answer.offsets.get(p)) for p, offset in loaded.offsets.items()}
            self._list_offsets(LoadedOffsets(both, loaded.malformed), done, failed)

        ctx.request(lambda request: ev.FetchKafkaOffsets(request, tuple(loaded.offsets)), fetched)

    def _list_offsets(
        self, loaded: LoadedOffsets, done: Callable[[StartOffsets], None], failed: Callable[[Exception], None]
    ) -> None:
        stored = {p: offset for p, offset in loaded.offsets.items() if offset is not None}
        missing = tuple(p for p, offset in loaded.offsets.items() if offset is None)
        malformed = {p: str(error) for p, error in loaded.malformed.items()}
        if not missing:
            done(StartOffsets(stored, malformed, loaded.malformed))
            return

        def listed(answer: ev.Answered) -> None:
            if answer.error is not None and not stored:
                failed(answer.error)
                return
            why = "no leader that answers" if answer.error is None else str(answer.error)
            found = {p: offset for p in missing if (offset := answer.offsets.get(p)) is not None}
            unanswered = {p: why for p in missing if p not in found}
            done(StartOffsets(stored | found, malformed | unanswered, loaded.malformed))

        ctx = self._context
        ctx.request(lambda request: ev.ListOffsets(request, missing, ctx.settings.reset), listed)


def _larger(one: int | None, other: int | None) -> int | None:
    return max((offset for offset in (one, other) if offset is not None), default=None)


#: The shortest pause before a retry that a change in ZooKeeper has triggered, in seconds; doubled with each attempt.
MIN_RETRY_PAUSE: Final = 0.05
#: The longest pause of a member that keeps trying, in seconds.
LONGEST_PAUSE: Final = 30.0
_MAX_DOUBLINGS: Final = 16


class RebalanceRetries:
    """The attempts of one rebalance: when the next one is due, and when to give up. Durations are seconds."""

    def __init__(self, max_retries: int, backoff: float) -> None:
        self.count = 0
        self.blockers: set[str] = set()  # owner nodes of others in our share
        self._max_retries = max_retries
        self._backoff = backoff
        self._began = 0.0

    def begin(self, now: float) -> None:
        self.count, self._began = 0, now
        self.blockers.clear()

    def failed(self) -> None:
        """Count a failed attempt."""
        self.count += 1
        self.blockers.clear()

    def exhausted(self, now: float) -> bool:
        """Whether to give up: after ``max_retries`` attempts, and the time that the Scala consumer would take for them.

        The time matters because a change may have triggered all retries early.
        """
        return self.count >= self._max_retries and not self.remaining_time(now)

    def is_last(self, now: float) -> bool:
        """Whether no other attempt is due by time alone: only a change may bring one, within ``remaining_time``.

        The Scala consumer sleeps after its last attempt, too, and then gives up.
        """
        return self.count >= self._max_retries and self._backoff >= self.remaining_time(now)

    def remaining_time(self, now: float) -> float:
        """How much is left of the time that the Scala consumer would take."""
        return max(0.0, self._began + self._max_retries * self._backoff - now)

    def pause(self, now: float) -> float:
        """The longest wait before the next attempt; it grows for a member that keeps trying."""
        if not self.exhausted(now):
            return self._backoff
        grown = self._backoff * 2.0 ** min(_MAX_DOUBLINGS, self.count - self._max_retries)
        return min(max(LONGEST_PAUSE, self._backoff), max(MIN_RETRY_PAUSE, grown))

    def early_pause(self) -> float:
        """The wait when the blocking owner nodes are gone."""
        return min(self._backoff, MIN_RETRY_PAUSE * 2.0 ** min(_MAX_DOUBLINGS, self.count - 1))

    def keep(self, still_there: Iterable[str]) -> None:
        """Keep only those blockers that still exist."""
        self.blockers.intersection_update(still_there)


class Acquisition:
    """Claims a share and starts its streams, or gives back what it has claimed and tries again.

    ``started`` is called with the start offsets when the share is read; ``unregistered`` where our id node is gone;
    ``again`` for the next attempt; ``outdated`` where the group has changed since the plan was made, and the claim must
    be given back; ``failed`` where trying again is of no use.
    """

    def __init__(
        self,
        context: MemberContext,
        *,
        started: Callable[[StartOffsets], None],
        unregistered: Callable[[], None],
        again: Callable[[], None],
        outdated: Callable[[], None],
        failed: Callable[[Exception], None],
    ) -> None:
        s = context.settings
        self._context = context
        self._started = started
        self._unregistered = unregistered
        self._again = again
        self._outdated = outdated
        self._failed = failed
        self._loading = OffsetLoading(context)
        self.retries = RebalanceRetries(s.max_retries, s.backoff)
        self.cache = RegistryCache()
        self.registry: do.RebalanceInput | None = None
        self.plan = Assignment({})
        self._reported: tuple[str, ...] = ()  # damage that a warning has named

    def forget(self) -> None:
        """The session is over."""
        self.registry, self.plan = None, Assignment({})
        self.cache.forget()

    # ------------------------------------------------------------ reading

    def begin(self) -> None:
        """Read the group, plan, claim."""
        ctx = self._context
        ctx.enter(Phase.READING)
        ctx.rebalance_reason, ctx.group_unverified = "", False
        ctx.zookeeper.run(self.read_group, self._plan, self._read_failed)

    def read_group(self) -> Procedure[do.RebalanceInput]:
        """Read the group, with watches on what may change the plan."""
        ctx, s = self._context, self._context.settings
        return do.read_registry(
            s.group,
            s.consumer_id,
            s.registration,
            s.strategy,
            ctx.session_id,
            exclude_internal=s.exclude_internal,
            internal=s.internal,
            cache=self.cache,
        )

    def _read_failed(self, error: Exception) -> None:
        ctx = self._context
        if isinstance(error, do.OwnIdMissingError):
            ctx.log(logging.WARNING, f"{error}: registering again")
            ctx.step(self._unregistered)
        elif isinstance(error, do.RegistryRefusedError):
            self._failed(error)
        else:
            self._attempt_failed(error)

    def _plan(self, registry: do.RebalanceInput) -> None:
        ctx = self._context
        self.registry = registry
        for member in registry.refused:
            ctx.log(
                logging.WARNING,
                f"member {member} has registered a filter that is no Java regular expression: the plan is made as if it"
                " read nothing, and no Scala consumer can rebalance until it goes",
            )
        for damage in registry.damaged:
            if damage not in self._reported:
                ctx.log(logging.WARNING, f"{damage}: no member reads that topic until its node is mended")
        self._reported = registry.damaged
        try:
            self.plan = assign(ctx.settings.strategy, ctx.settings.compat, registry.members, registry.partitions)
        except ZkgroupError as error:
            self._attempt_failed(error)
            return
        ctx.step(self._claim)

    # ------------------------------------------------------------ claiming

    def _claim(self) -> None:
        ctx = self._context
        ctx.enter(Phase.CLAIMING)
        share = self.plan.of(ctx.settings.consumer_id)
        ctx.owned.claim(share)
        ctx.zookeeper.run(
            lambda: do.claim(ctx.settings.group, share, ctx.session_id),
            lambda _: self._claimed(share),
            self._claim_failed,
        )

    def _claimed(self, share: Mapping[TopicPartition, ConsumerThreadId]) -> None:
        ctx = self._context
        ctx.owned.claimed(share)
        if ctx.rebalance_reason:
            # The plan is outdated already. No stream was started, so nothing must be paused or committed.
            ctx.step(self._outdated)
        else:
            ctx.step(self._load)

    def _claim_failed(self, error: Exception) -> None:
        if isinstance(error, do.RegistryRefusedError):
            self._failed(error)
        else:
            self._attempt_failed(error)

    # ------------------------------------------------------------ attempts that fail

    def _attempt_failed(self, error: Exception) -> None:
        """Give back all that this attempt has claimed, then wait until the blocking owner nodes go, or for time."""
        ctx = self._context
        self.retries.failed()
        if self.retries.count > 1:
            self.cache.forget()  # the first may fail as others are slower; after it all is read again
        ctx.counters.failed_attempts += 1
        ctx.log(logging.INFO, notice_of(f"rebalance attempt {self.retries.count} failed", error))
        ctx.enter(Phase.ROLLING_BACK)
        ctx.zookeeper.run(lambda: release_all(ctx), lambda _: self._rolled_back(error), self._failed)

    def _rolled_back(self, error: Exception) -> None:
        ctx = self._context
        ctx.owned.forget()
        ctx.offset_versions.forget()
        ctx.step(lambda: self._back_off(error))

    def _back_off(self, error: Exception) -> None:
        ctx = self._context
        ctx.enter(Phase.BACKING_OFF)
        if self.retries.exhausted(ctx.now):
            if not ctx.settings.keep_trying:
                self._failed(self._final(error))
                return
            ctx.log(logging.ERROR, notice_of(f"cannot get its share of group {ctx.settings.group}, trying on", error))
        if self.retries.is_last(ctx.now) and not ctx.settings.keep_trying:
            ctx.timers.set("retry", ctx.now + self.retries.remaining_time(ctx.now), lambda: self._give_up(error))
        else:
            ctx.timers.set("retry", ctx.now + self.retries.pause(ctx.now), self._retry)
        if isinstance(error, do.OwnerConflictError):
            self.retries.blockers = set(error.paths)
            ctx.zookeeper.run(lambda: do.watch_gone(error.paths), self._blocked, lambda _: None)
        elif isinstance(error, do.RegistryReadError):
            self.retry_soon()

    def _final(self, error: Exception) -> ZkgroupError:
        group, attempts = self._context.settings.group, self.retries.count
        notice = notice_of(f"cannot get its share of group {group} after {attempts} attempts, and has left it", error)
        kind = UnreachableError if isinstance(error, UnreachableError) else RebalanceFailedError
        return kind(notice.message, notice.remedy)

    def _retry(self) -> None:
        if self._context.phase is Phase.BACKING_OFF:
            self.retries.blockers.clear()
            self._again()

    def _give_up(self, error: Exception) -> None:
        if self._context.phase is Phase.BACKING_OFF:
            self._failed(self._final(error))

    def _blocked(self, still_there: Sequence[str]) -> None:
        self.retries.keep(still_there)
        if not self.retries.blockers:
            self.retry_soon()

    def unblocked(self, path: str) -> bool:
        """Whether ``path`` was a blocking owner node. When the last of them is gone the next attempt comes soon."""
        if path not in self.retries.blockers:
            return False
        self.retries.blockers.discard(path)
        if not self.retries.blockers:
            self.retry_soon()
        return True

    def retry_soon(self) -> None:
        """Try again soon: a change may let the next attempt succeed."""
        ctx = self._context
        if ctx.phase is Phase.BACKING_OFF:
            ctx.timers.hasten("retry", ctx.now + self.retries.early_pause(), self._retry)

    # ------------------------------------------------------------ starting

    def _load(self) -> None:
        ctx = self._context
        ctx.enter(Phase.LOADING)
        self._loading.begin(ctx.owned.share, lambda starts: ctx.step(lambda: self._loaded(starts)), self._load_failed)

    def _load_failed(self, error: Exception) -> None:
        if isinstance(error, CommitError):
            self._failed(error)
        else:
            self._attempt_failed(error)

    def _loaded(self, starts: StartOffsets) -> None:
        ctx = self._context
        for partition in starts.malformed:
            # The others that are held back may have a leader in a moment: ``OwnedShare`` reports them later.
            ctx.log(logging.ERROR, f"{partition} is owned and not read: {starts.held_back[partition]}")
        if starts.malformed and len(starts.malformed) == len(ctx.owned.share):
            # A member that can read nothing of its share until an operator mends it leaves with the error.
            self._failed(next(iter(starts.malformed.values())))
            return
        ctx.enter(Phase.STARTING)
        ctx.notify("before_starting", self.plan.owners, lambda: ctx.step(lambda: self._start(starts)))

    def _start(self, starts: StartOffsets) -> None:
        ctx = self._context
        ctx.generation += 1
        ctx.assigned = True
        ctx.counters.rebalances += 1
        share = ctx.owned.share
        ctx.do(ev.Assign(ctx.generation, {p: (share[p], offset) for p, offset in starts.offsets.items()}))
        names = f": {spans(share)}" if share else ""
        ctx.log(logging.INFO, f"owns {len(share)} of {len(self.plan.owners)} partitions{names}")
        self._started(starts)

    def load_held_back(
        self,
        held_back: Mapping[TopicPartition, str],
        done: Callable[[StartOffsets], None],
        failed: Callable[[Exception], None],
    ) -> None:
        """Load start offsets of partitions that are held back."""
        self._loading.begin(held_back, done, failed)
