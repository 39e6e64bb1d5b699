"""READING, CLAIMING, ROLLING_BACK, BACKING_OFF, LOADING, STARTING: get a share."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence

from zkgroup.errors import RebalanceFailedError, UnreachableError, ZkgroupError, notice_of
from zkgroup.protocol import events as ev
from zkgroup.protocol import procedures as do
from zkgroup.protocol.assignors import Assignment, assign
from zkgroup.protocol.member.member_context import Ground
from zkgroup.protocol.member.offset_loading import Loading, Starts
from zkgroup.protocol.member.phases import Phase
from zkgroup.protocol.member.rebalance_retries import Attempts
from zkgroup.protocol.member.release import release_all
from zkgroup.protocol.names import ConsumerThreadId, TopicPartition, spans
from zkgroup.protocol.offset_versions import CommitError, Procedure
from zkgroup.protocol.registry_cache import Known


class Acquiring:
    """From nothing to a share that is read, or back to nothing and a pause.

    ``started`` is called with where reading starts and what is held back; ``unregistered`` where our id node is gone;
    ``again`` for the next attempt; ``outdated`` where a claim has to be given back because the group has changed
    meanwhile.
    """

    def __init__(
        self,
        ground: Ground,
        *,
        started: Callable[[Starts], None],
        unregistered: Callable[[], None],
        again: Callable[[], None],
        outdated: Callable[[], None],
        failed: Callable[[Exception], None],
    ) -> None:
        s = ground.settings
        self._ground = ground
        self._started = started
        self._unregistered = unregistered
        self._again = again
        self._outdated = outdated
        self._failed = failed
        self._loading = Loading(ground)
        self.attempts = Attempts(s.max_retries, s.backoff)
        self.known = Known()
        self.registry: do.Registry | None = None
        self.plan = Assignment({})
        self._told: tuple[str, ...] = ()  # the damage that was told of already

    def forget(self) -> None:
        """The session is over."""
        self.registry, self.plan = None, Assignment({})
        self.known.forget()

    # ------------------------------------------------------------ reading

    def begin(self) -> None:
        """Read the group, and go on from there."""
        g = self._ground
        g.enter(Phase.READING)
        g.dirty, g.unsure = "", False
        g.talk.run(self.reading, self._plan, self._read_failed)

    def reading(self) -> Procedure[do.Registry]:
        """Read the group, watching what matters to us."""
        g, s = self._ground, self._ground.settings
        return do.read_registry(
            s.group,
            s.consumer_id,
            s.registration,
            s.strategy,
            g.session_id,
            exclude_internal=s.exclude_internal,
            internal=s.internal,
            known=self.known,
        )

    def _read_failed(self, error: Exception) -> None:
        g = self._ground
        if isinstance(error, do.OwnIdMissingError):
            g.log(logging.WARNING, f"{error}: registering again")
            g.step(self._unregistered)
        elif isinstance(error, do.RegistryRefusedError):
            self._failed(error)
        else:
            self._attempt_failed(error)

    def _plan(self, registry: do.Registry) -> None:
        g = self._ground
        self.registry = registry
        for member in registry.refused:
            g.log(
                logging.WARNING,
                f"member {member} has registered a filter that is no Java regular expression: the plan is made as if it"
                " read nothing, and no member of the reference can rebalance until it goes",
            )
        for damage in registry.damaged:
            if damage not in self._told:
                told = f"{damage}: nothing is read of that topic, by no member, until its node is mended"
                g.log(logging.WARNING, told)
        self._told = registry.damaged
        try:
            self.plan = assign(g.settings.strategy, g.settings.compat, registry.members, registry.partitions)
        except ZkgroupError as error:
            self._attempt_failed(error)
            return
        g.step(self._claim)

    # ------------------------------------------------------------ claiming

    def _claim(self) -> None:
        g = self._ground
        g.enter(Phase.CLAIMING)
        share = self.plan.of(g.settings.consumer_id)
        g.holdings.claim(share)
        g.talk.run(
            lambda: do.claim(g.settings.group, share, g.session_id),
            lambda _: self._claimed(share),
            self._claim_failed,
        )

    def _claimed(self, share: Mapping[TopicPartition, ConsumerThreadId]) -> None:
        g = self._ground
        g.holdings.claimed(share)
        if g.dirty:
            # The plan is outdated already. Nothing was started, so there is nothing to stop or commit.
            g.step(self._outdated)
        else:
            g.step(self._load)

    def _claim_failed(self, error: Exception) -> None:
        if isinstance(error, do.RegistryRefusedError):
            self._failed(error)
        else:
            self._attempt_failed(error)

    # ------------------------------------------------------------ attempts that fail

    def _attempt_failed(self, error: Exception) -> None:
        """Give back what this attempt claimed, all of it, then wait for what is in the way, or for time."""
        g = self._ground
        self.attempts.failed()
        if self.attempts.count > 1:
            self.known.forget()  # the first may fail because others are slower; then nothing is taken for granted
        g.counters.failed_attempts += 1
        g.log(logging.INFO, notice_of(f"rebalance attempt {self.attempts.count} failed", error))
        g.enter(Phase.ROLLING_BACK)
        g.talk.run(lambda: release_all(g), lambda _: self._rolled_back(error), self._failed)

    def _rolled_back(self, error: Exception) -> None:
        g = self._ground
        g.holdings.forget()
        g.book.forget()
        g.step(lambda: self._back_off(error))

    def _back_off(self, error: Exception) -> None:
        g = self._ground
        g.enter(Phase.BACKING_OFF)
        if self.attempts.used_up(g.now):
            if not g.settings.keep_trying:
                self._failed(self._final(error))
                return
            g.log(logging.ERROR, notice_of(f"cannot get its share of group {g.settings.group}, trying on", error))
        if self.attempts.is_last(g.now) and not g.settings.keep_trying:
            g.timers.set("retry", g.now + self.attempts.patience(g.now), lambda: self._give_up(error))
        else:
            g.timers.set("retry", g.now + self.attempts.pause(g.now), self._retry)
        if isinstance(error, do.OwnerConflictError):
            self.attempts.blockers = set(error.paths)
            g.talk.run(lambda: do.watch_gone(error.paths), self._blocked, lambda _: None)
        elif isinstance(error, do.RegistryReadError):
            self.retry_soon()

    def _final(self, error: Exception) -> ZkgroupError:
        group, attempts = self._ground.settings.group, self.attempts.count
        notice = notice_of(f"cannot get its share of group {group} after {attempts} attempts, and has left it", error)
        kind = UnreachableError if isinstance(error, UnreachableError) else RebalanceFailedError
        return kind(notice.message, notice.remedy)

    def _retry(self) -> None:
        if self._ground.phase is Phase.BACKING_OFF:
            self.attempts.blockers.clear()
            self._again()

    def _give_up(self, error: Exception) -> None:
        if self._ground.phase is Phase.BACKING_OFF:
            self._failed(self._final(error))

    def _blocked(self, still_there: Sequence[str]) -> None:
        self.attempts.keep(still_there)
        if not self.attempts.blockers:
            self.retry_soon()

    def unblocked(self, path: str) -> bool:
        """Whether ``path`` was in our way. The last one of those lets us try again soon."""
        if path not in self.attempts.blockers:
            return False
        self.attempts.blockers.discard(path)
        if not self.attempts.blockers:
            self.retry_soon()
        return True

    def retry_soon(self) -> None:
        """Something has changed that may let the next attempt succeed."""
        g = self._ground
        if g.phase is Phase.BACKING_OFF:
            g.timers.hasten("retry", g.now + self.attempts.early_pause(), self._retry)

    # ------------------------------------------------------------ starting

    def _load(self) -> None:
        g = self._ground
        g.enter(Phase.LOADING)
        self._loading.begin(g.holdings.share, lambda starts: g.step(lambda: self._loaded(starts)), self._load_failed)

    def _load_failed(self, error: Exception) -> None:
        if isinstance(error, CommitError):
            self._failed(error)
        else:
            self._attempt_failed(error)

    def _loaded(self, starts: Starts) -> None:
        g = self._ground
        for partition in starts.malformed:
            # The others that are held back may have a leader in a moment: ``Owning`` tells of them, if need be.
            g.log(logging.ERROR, f"{partition} is owned and not read: {starts.held[partition]}")
        if starts.malformed and len(starts.malformed) == len(g.holdings.share):
            # A member that can read nothing of its share, until somebody comes, says so by leaving.
            self._failed(next(iter(starts.malformed.values())))
            return
        g.enter(Phase.STARTING)
        g.notify("before_starting", self.plan.owners, lambda: g.step(lambda: self._start(starts)))

    def _start(self, starts: Starts) -> None:
        g = self._ground
        g.generation += 1
        g.granted = True
        g.counters.rebalances += 1
        share = g.holdings.share
        g.do(ev.Grant(g.generation, {p: (share[p], offset) for p, offset in starts.offsets.items()}))
        names = f": {spans(share)}" if share else ""
        g.log(logging.INFO, f"owns {len(share)} of {len(self.plan.owners)} partitions{names}")
        self._started(starts)

    def load_held(
        self, held: Mapping[TopicPartition, str], done: Callable[[Starts], None], failed: Callable[[Exception], None]
    ) -> None:
        """Ask again where to start in partitions that are held back."""
        self._loading.begin(held, done, failed)
