"""A member of a group that Kafka's coordinator keeps, for brokers from 0.9 on.

The member's thread owns the membership (``GroupMembership``), which fetches nothing. The streams fetch, each with a
client that is in no group. So a rebalance never waits for long until a reader has printed its batch: what a reader does
not finish within ``quiesce_timeout_ms`` is read again, by this member or another.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Literal, TypeAlias

from zkgroup.clients.connection_security import ConnectionFailure, FailureCause
from zkgroup.clients.kafka.client import KafkaSettings
from zkgroup.clients.kafka.group_consumers import GroupMembership, OutdatedError
from zkgroup.clients.kafka.start_position import StartAt, resolve_created
from zkgroup.config import ConsumerConfig, librdkafka_properties
from zkgroup.config.settings_table import STRATEGIES
from zkgroup.connector.consumer_connector import ConsumerConnector, MemberDriver, Statistics, StreamsOf, Topics
from zkgroup.connector.stream import Feed
from zkgroup.connector.stream_reader import BROKER_TIMEOUT
from zkgroup.errors import UnreachableError, ZkgroupError
from zkgroup.protocol.member import Counters
from zkgroup.protocol.names import TopicPartition, internal_topics
from zkgroup.protocol.topic_filter import TopicFilter

log = logging.getLogger(__name__)

#: How long one poll of the membership takes, in seconds.
POLL: Final = 0.05
#: Seconds between two reads of the topics that a filter selects from.
TOPICS_INTERVAL: Final = 5.0
#: Seconds between two attempts to find out where reading starts.
RETRY_INTERVAL: Final = 0.5
#: Seconds until a warning that joining takes long: other members may finish their batches first.
SLOW_JOIN: Final = 10.0


@dataclass(frozen=True, slots=True)
class Rebalance:
    """One step of a rebalance of a group in Kafka, as its member sees it. ``seconds`` is how long the step took.

    ``assigned``: the member reads its share; the step began when it gave up the share before, or asked to join.
    ``revoked``: the member has finished, committed and given up its share. ``lost``: the coordinator took the member
    for dead and has given its share to others. ``without_offset``: partitions without a committed offset, and the
    offset where reading begins in each.
    """

    kind: Literal["assigned", "revoked", "lost"]
    partitions: tuple[TopicPartition, ...]
    seconds: float
    without_offset: Mapping[TopicPartition, int] = field(default_factory=dict)


#: An error's class, and of a failed connection its server and cause: what makes another failure of it.
_Failure: TypeAlias = tuple[type[UnreachableError], str, FailureCause | None]


def _failure_of(error: UnreachableError) -> _Failure:
    if isinstance(error, ConnectionFailure):
        return type(error), error.server, error.cause
    return type(error), "", None


class KafkaDriver(MemberDriver):
    """Keeps the membership alive, starts and stops the streams as the coordinator assigns partitions, commits."""

    coordinator = "the brokers"

    def __init__(
        self,
        config: ConsumerConfig,
        brokers: Callable[[], KafkaSettings],
        topics: Mapping[str, int] | TopicFilter,
        *,
        feeds: Sequence[Feed],
        streams_of: Callable[[str], range],
        start: StartAt,
        strategies: Sequence[str],
        properties: Mapping[str, str],
        on_rebalance: Callable[[Rebalance], None],
    ) -> None:
        super().__init__(config.group_id, feeds)
        self._config = config
        self._brokers = brokers
        self._filter = topics if isinstance(topics, TopicFilter) else None
        self._topics: tuple[str, ...] = () if isinstance(topics, TopicFilter) else tuple(topics)
        self._streams_of = streams_of
        self._start = start
        self._strategies = strategies
        self._properties = properties
        self._on_rebalance = on_rebalance
        self._membership: GroupMembership | None = None
        self._requests: queue.SimpleQueue[int] = queue.SimpleQueue()  # commits that other threads wait for
        # Set by a signal's handler, too: plain attributes, which take no lock.
        self._leaving = self._at_once = False
        self._commit_last = True
        # The member's thread alone writes these:
        self._member_id = ""
        self._phase = "joining"
        self._counters = Counters()
        self._share: tuple[TopicPartition, ...] = ()
        self._assigned = False  # whether the streams read (a part of) the share
        self._waiting: set[TopicPartition] = set()  # of the share, partitions whose starting offset is not known yet
        self._held_back: dict[TopicPartition, str] = {}
        self._committed: dict[TopicPartition, int] = {}
        self._without_offset: dict[TopicPartition, int] = {}
        self._began = self._slow_at = 0.0
        self._topics_at = self._retry_at = self._commit_at = 0.0
        self._load_failure: _Failure | None = None

    # ------------------------------------------------------------ from other threads

    def statistics(self) -> Statistics:
        counters = self._counters
        return Statistics(
            self._member_id, self._phase, counters.rebalances, 0, self._share, counters, held_back=dict(self._held_back)
        )

    def leave(self, *, at_once: bool = False, commit: bool = True) -> None:
        if not self._leaving:
            self._commit_last = commit
        self._at_once = self._at_once or at_once
        self._leaving = True

    def fail(self, error: Exception) -> None:
        self.error, self._leaving = error, True

    def join(self) -> None:
        timeout = self._config.quiesce_timeout_ms / 1000 + BROKER_TIMEOUT
        if not self._ended.wait(0.5 if self._at_once else timeout) and self.error is None and not self._at_once:
            self.error = UnreachableError(
                f"the coordinator of group {self.group} gave no answer within {timeout:g} s",
                "what was not committed will be read again; the coordinator takes this member for dead soon",
            )

    def _begin_commit(self, token: int) -> None:
        if self.is_in_callback:
            self._commit_now(token)
        else:
            self._requests.put(token)

    # ------------------------------------------------------------ the member's thread

    def _serve(self) -> None:
        try:
            self._subscribe()
            while not self._leaving:
                self._turn()
            self._release()
        finally:
            self._share, self._phase = (), "left"

    def _disconnect(self) -> None:
        if self._membership is not None:
            self._membership.close()

    def _subscribe(self) -> None:
        self._began = time.monotonic()
        self._slow_at = self._began + SLOW_JOIN
        self._membership = GroupMembership(
            self._brokers(),
            self.group,
            strategies=self._strategies,
            properties=self._properties,
            assigned=self._on_assigned,
            revoked=self._on_revoked,
            committed=self._on_committed,
        )
        if self._filter is None:
            self._membership.subscribe(self._topics)

    def _turn(self) -> None:
        assert self._membership is not None
        now = time.monotonic()
        if self._filter is not None and now >= self._topics_at:
            self._select_topics(self._filter, self._membership)
            self._topics_at = now + TOPICS_INTERVAL
        self._membership.poll(POLL)
        if self._waiting and time.monotonic() >= self._retry_at:
            self._load_offsets(self._membership)
        while not self._requests.empty():
            self._commit_now(self._requests.get())
        if self._config.auto_commit_enable and time.monotonic() >= self._commit_at:
            self._commit_at = time.monotonic() + self._config.auto_commit_interval_ms / 1000
            if offsets := self._uncommitted():
                self._membership.begin_commit(offsets)
        if not self.ready.is_set() and time.monotonic() >= self._slow_at:
            self._slow_at = float("inf")
            log.warning(
                "group %s: not joined yet: the coordinator waits for members that have not given up their share",
                self.group,
            )

    def _select_topics(self, topic_filter: TopicFilter, membership: GroupMembership) -> None:
        """Subscribe to the topics that the filter selects now. Filters are Java's expressions, not librdkafka's."""
        try:
            existing = membership.topics(BROKER_TIMEOUT)
        except UnreachableError as error:
            log.debug("topics not read: %s", error)  # librdkafka logs its lost connections, too
            return
        config = self._config
        selected = topic_filter.select(
            existing, exclude_internal=config.exclude_internal_topics, internal=internal_topics(config.kafka_version)
        )
        if selected != self._topics:
            log.info("group %s: subscribing to %s", self.group, ", ".join(selected) or "nothing")
            self._topics = selected
            self._began = self._began or time.monotonic()
            membership.subscribe(selected)
        if not selected:
            self.ready.set()

    # ------------------------------------------------------------ rebalances

    def _on_assigned(self, share: tuple[TopicPartition, ...]) -> None:
        assert self._membership is not None
        self._member_id = self._membership.member_id
        self._counters.rebalances += 1
        self._share, self._waiting = share, set(share)
        self._assigned, self._committed, self._without_offset, self._held_back = False, {}, {}, {}
        self._phase, self._retry_at = "loading", 0.0
        if not share:
            self._assign({})

    def _load_offsets(self, membership: GroupMembership) -> None:
        """Find out where to start in partitions that are not read yet, and start."""
        try:
            committed = membership.offsets(self._waiting, BROKER_TIMEOUT)
            starts = {partition: offset for partition, offset in committed.items() if offset is not None}
            without: dict[TopicPartition, int] = {}
            if unknown := [partition for partition, offset in committed.items() if offset is None]:
                found = resolve_created(self._brokers(), unknown, self._start, BROKER_TIMEOUT)
                without = {partition: offset for partition, offset in found.items() if offset is not None}
        except UnreachableError as error:
            self._retry_at = time.monotonic() + RETRY_INTERVAL
            if (failure := _failure_of(error)) != self._load_failure:
                self._load_failure = failure
                log.warning("group %s: where to start is not known yet: %s", self.group, error)
            return
        self._load_failure = None
        self._committed |= starts
        self._without_offset |= without
        starts |= without
        self._waiting -= starts.keys()
        self._held_back = dict.fromkeys(self._waiting, "nothing can be asked of it now: has it a leader?")
        self._retry_at = time.monotonic() + RETRY_INTERVAL
        self._assign(starts)

    def _assign(self, starts: Mapping[TopicPartition, int]) -> None:
        """Let the streams read these partitions, from these offsets."""
        shares: list[dict[TopicPartition, int]] = [{} for _ in self._feeds]
        dealt: dict[range, int] = {}
        for partition in self._share:
            streams = self._streams_of(partition.topic)
            turn = dealt.get(streams, 0)
            dealt[streams] = turn + 1
            if partition in starts:
                shares[streams[turn % len(streams)]][partition] = starts[partition]
        for feed, part in zip(self._feeds, shares, strict=True):
            (feed.assign_more if self._assigned else feed.assign)(self._counters.rebalances, part)
        if self._assigned:
            return
        self._assigned = True
        now = time.monotonic()
        self._commit_at = now + self._config.auto_commit_interval_ms / 1000
        self._on_rebalance(Rebalance("assigned", self._share, now - self._began, dict(self._without_offset)))
        self._phase, self._began = "owning", 0.0
        self.ready.set()

    def _on_revoked(self, share: tuple[TopicPartition, ...], lost: bool) -> None:
        began = time.monotonic()
        if self._phase == "left":
            return  # given up already
        self._pause(abandon=lost)
        if not lost:
            self._commit_finally(self._uncommitted())
        self._share, self._waiting, self._assigned, self._held_back = (), set(), False, {}
        self._phase = "joining"
        self._began = self._began or began
        self._on_rebalance(Rebalance("lost" if lost else "revoked", share, time.monotonic() - began))

    def _pause(self, *, abandon: bool) -> None:
        """Pause the streams, and wait until their readers have no batch in hand, for ``quiesce_timeout_ms`` at most."""
        paused = [threading.Event() for _ in self._feeds]
        for feed, event in zip(self._feeds, paused, strict=True):
            feed.pause(event.set, abandon=abandon)
        deadline = time.monotonic() + self._config.quiesce_timeout_ms / 1000
        for feed, event in zip(self._feeds, paused, strict=True):
            while not event.wait(min(POLL, max(0.0, deadline - time.monotonic()))):
                if self._at_once or time.monotonic() >= deadline:
                    feed.pause(event.set, abandon=True)

    def _release(self) -> None:
        """Finish, commit, give up the share. The membership leaves the group when it is closed."""
        self._pause(abandon=self._at_once)
        offsets = self._uncommitted()
        self._end_streams()  # no reader need wait for the coordinator
        if self._commit_last and not self._at_once:
            self._commit_finally(offsets)

    # ------------------------------------------------------------ commits

    def _uncommitted(self) -> dict[TopicPartition, int]:
        if not self._assigned:
            return {}
        return {p: o for p, o in self._consumed().items() if p in self._share and self._committed.get(p) != o}

    def _commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        if offsets and self._membership is not None:
            self._membership.commit(offsets)
            self._committed |= offsets

    def _commit_now(self, token: int) -> None:
        try:
            self._commit(self._uncommitted())
        except ZkgroupError as error:
            self._end_commit(token, error)
        else:
            self._end_commit(token, None)

    def _commit_finally(self, offsets: Mapping[TopicPartition, int]) -> None:
        """The last automatic commit of this share."""
        if self._config.auto_commit_enable:
            try:
                self._commit(offsets)
            except ZkgroupError as error:
                log.warning("%s: what was printed since the last commit will be read again", error)

    def _on_committed(self, error: ZkgroupError | None, offsets: Mapping[TopicPartition, int]) -> None:
        if error is None:
            self._committed |= offsets
        elif isinstance(error, OutdatedError):
            log.debug("%s", error)  # the rebalance that is due commits, or reports the lost share
        else:
            log.warning("%s: trying again", error)


class KafkaConnector(ConsumerConnector):
    """A member of a group in Kafka.

        with KafkaConnector(config, lambda: KafkaSettings("broker:9092")) as connector:
            (stream,) = connector.merged_streams(["orders"], 1)

    ``brokers``: how to reach them now. ``start``: where to begin in partitions without a committed offset, instead of
    ``auto.offset.reset``. ``strategies``: the assignors that the member offers, the best first. ``properties``:
    librdkafka's, for the membership. ``on_rebalance`` is called on the member's thread, and must not block.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        brokers: Callable[[], KafkaSettings],
        *,
        start: StartAt | None = None,
        strategies: Sequence[str] = STRATEGIES,
        properties: Mapping[str, str] | None = None,
        on_rebalance: Callable[[Rebalance], None] = lambda rebalance: None,
    ) -> None:
        super().__init__(config, start, brokers)
        self._new_driver = partial(
            KafkaDriver,
            config,
            brokers,
            start=start or StartAt.after_reset(config.auto_offset_reset),
            strategies=tuple(strategies),
            properties=librdkafka_properties(config, "offsets") | dict(properties or {}),
            on_rebalance=on_rebalance,
        )

    def _make_driver(self, topics: Topics, count: int, streams_of: StreamsOf, feeds: Sequence[Feed]) -> KafkaDriver:
        return self._new_driver(topics, feeds=feeds, streams_of=streams_of)
