"""A member of a group that Kafka's coordinator keeps, with the streams and the words of ``Connector``.

A thread of its own holds the membership (``servers/membership.py``), which fetches nothing; the streams fetch, each
with a client that knows of no group. So a rebalance never waits for whoever reads what is printed: what a reader does
not finish within ``quiesce_timeout_ms`` is read again, by this member or another.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from zkgroup.clients.kafka.client import KafkaSettings
from zkgroup.clients.kafka.group_membership import Membership, OutdatedError
from zkgroup.config import ConsumerConfig, librdkafka_properties
from zkgroup.connector.context_manager import Closing
from zkgroup.connector.start_position import StartAt, resolve_known
from zkgroup.connector.stream import Feed, Stream
from zkgroup.errors import UnreachableError, UsageError, ZkgroupError
from zkgroup.protocol.names import TopicPartition, internal_topics, validate_group_id, validate_topic
from zkgroup.protocol.topic_filter import TopicFilter

log = logging.getLogger(__name__)

#: How long the membership is listened to at a time; whoever wants to leave waits for that.
POLL: Final = 0.05
#: How long a question to the brokers may take.
PATIENCE: Final = 5.0
#: How often topics are looked for that a filter takes, and offsets that could not be had.
TOPICS_LOOK: Final = 5.0
RETRY: Final = 0.5
#: How long joining may take until that is told: others are waited for as long as they may take for a message.
SLOW_JOIN: Final = 10.0

RawStream = Stream[bytes | None, bytes | None]


@dataclass(frozen=True, slots=True)
class Rebalance:
    """A step of a rebalance, as this member has it.

    ``assigned``: it has its share, and reads; ``seconds`` since it gave up the one before, or asked to join. ``fresh``
    are partitions that the group had no offset of, and where reading begins there. ``revoked``: it has given up its
    share after finishing and committing, which took ``seconds``. ``lost``: the coordinator took it for dead, and has
    given the share to others.
    """

    kind: Literal["assigned", "revoked", "lost"]
    partitions: tuple[TopicPartition, ...]
    seconds: float
    fresh: Mapping[TopicPartition, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CoordinatedStatistics:
    """A look at a member. ``phase``: ``joining``, ``loading`` (its offsets), ``owning``, ``left``. ``held`` is what it
    owns and cannot read now, and why."""

    member_id: str
    phase: str
    owned: tuple[TopicPartition, ...]
    held: Mapping[TopicPartition, str]
    rebalances: int


class CoordinatedConnector(Closing):
    """A member of a group in Kafka, for brokers from 0.9 on.

        with CoordinatedConnector(config, lambda: KafkaSettings("broker:9092")) as connector:
            (stream,) = connector.merged_streams(["orders"], 1)

    One of ``streams_by_filter`` and ``merged_streams`` is called, once: it joins the group and returns when the member
    has its share. What was handed out and marked is committed, every ``auto_commit_interval_ms``, when the share is
    given up, and by ``close()``.

    ``brokers``: how to reach them now. ``start``: where to begin in partitions without a committed offset, instead of
    ``auto.offset.reset``. ``strategies``: the rules of sharing that the member can follow, the best first.
    ``properties``: librdkafka's, for the membership. ``told`` hears of rebalances, on the member's thread.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        brokers: Callable[[], KafkaSettings],
        *,
        start: StartAt | None = None,
        strategies: Sequence[str] = ("range", "roundrobin"),
        properties: Mapping[str, str] | None = None,
        told: Callable[[Rebalance], None] = lambda rebalance: None,
    ) -> None:
        if not config.group_id:
            raise UsageError("a consumer group needs a name", "set group.id")
        validate_group_id(config.group_id)
        self.config = config
        self._brokers = brokers
        self._start = start or StartAt("earliest" if config.auto_offset_reset == "smallest" else "latest")
        self._strategies = tuple(strategies)
        self._properties = librdkafka_properties(config, "offsets") | dict(properties or {})
        self._told = told
        self._streams: list[RawStream] = []
        self._feeds: list[Feed] = []
        self._topics: tuple[str, ...] = ()
        self._filter: TopicFilter | None = None
        self._look_at = float("inf")
        self._membership: Membership | None = None
        self._thread = threading.Thread(target=self._run, name=f"zkgroup-{config.group_id}", daemon=True)
        self._settled = threading.Event()
        self._ended = threading.Event()  # of the thread; a join that a signal interrupts would take it for ended
        # Asked for from a signal's handler, too: plain attributes, which take no lock.
        self._leaving = self._at_once = False
        self._commit_last = True
        self._error: Exception | None = None
        # The member's thread alone writes these:
        self._member_id = ""
        self._phase = "joining"
        self._share: tuple[TopicPartition, ...] = ()
        self._granted = False  # whether the streams have (a part of) the share
        self._wanted: set[TopicPartition] = set()  # of the share, what has no place to start at yet
        self._held: dict[TopicPartition, str] = {}
        self._committed: dict[TopicPartition, int] = {}
        self._fresh: dict[TopicPartition, int] = {}
        self._began = 0.0
        self._generation = 0
        self._retry_at = self._commit_at = 0.0
        self._trouble = ""

    # ------------------------------------------------------------ joining

    def streams_by_filter(
        self, topic_filter: TopicFilter, count: int = 1, *, tell_ends: bool = False
    ) -> list[RawStream]:
        """Subscribe to all topics that the filter takes, as they come and go; looked for every ``TOPICS_LOOK`` s."""
        self._filter, self._look_at = topic_filter, 0.0
        return self._join(count, tell_ends=tell_ends)

    def merged_streams(self, topics: Sequence[str], count: int = 1, *, tell_ends: bool = False) -> list[RawStream]:
        """Subscribe to topics: ``count`` streams in all, which divide the member's partitions among them."""
        self._topics = tuple(map(validate_topic, topics))
        return self._join(count, tell_ends=tell_ends)

    def _join(self, count: int, *, tell_ends: bool) -> list[RawStream]:
        if self._thread.ident is not None or self._ended.is_set():
            raise UsageError("this connector has joined already", "make another one")
        properties = {
            name.replace(".", "_"): value
            for name, value in librdkafka_properties(self.config).items()
            if name not in self.config.kafka
        }
        self._streams = [
            Stream(
                self._brokers,
                lambda: True,
                self._stream_failed,
                sharers=count,
                reset=self.config.auto_offset_reset,
                key_decoder=lambda data: data,
                value_decoder=lambda data: data,
                properties=properties,
                tell_ends=tell_ends,
                timeout=None if self.config.consumer_timeout_ms < 0 else self.config.consumer_timeout_ms / 1000,
            )
            for _ in range(count)
        ]
        self._feeds = [Feed(stream) for stream in self._streams]
        self._thread.start()
        slow_at = time.monotonic() + SLOW_JOIN
        while not self._settled.wait(POLL):  # in slices, so that signals get through
            if time.monotonic() >= slow_at and not self._leaving:
                slow_at = float("inf")
                log.warning(
                    "group %s: not joined yet: the coordinator waits for members that have not given up their share",
                    self.config.group_id,
                )
        if self._error is not None:
            self.close()
        return self._streams

    def _stream_failed(self, error: Exception) -> None:
        self._error, self._leaving = error, True

    # ------------------------------------------------------------ what users ask

    def statistics(self) -> CoordinatedStatistics:
        """Where the member is, what it owns."""
        return CoordinatedStatistics(self._member_id, self._phase, self._share, self._held, self._generation)

    def leave(self, *, at_once: bool = False, commit: bool = True) -> None:
        """Begin to leave, without waiting. ``close()`` still has to follow. Without ``commit`` what was consumed since
        the last commit is left to be read again. ``at_once``: nor are readers waited for."""
        if not self._leaving:
            self._commit_last = commit
        self._at_once = self._at_once or at_once
        self._leaving = True

    def close(self) -> None:
        """Commit what is consumed (with auto-commit) and leave the group. Raises the error that made the member leave
        by itself, or that kept it from committing."""
        for stream in self._streams:
            stream.forsake()
        self.leave()
        if self._thread.ident is not None:
            patience = self.config.quiesce_timeout_ms / 1000 + PATIENCE
            if not self._ended.wait(0.5 if self._at_once else patience) and self._error is None and not self._at_once:
                self._error = UnreachableError(
                    f"the coordinator of group {self.config.group_id} gave no answer within {patience:g} s",
                    "what was not committed will be read again; the coordinator takes this member for dead soon",
                )
        for feed in self._feeds:
            feed.end(self._error)
            feed.close()
        if self._error is not None:
            raise self._error

    # ------------------------------------------------------------ the member's thread

    def _run(self) -> None:
        try:
            self._begin()
            while not self._leaving:
                self._turn()
            self._release()
        except ZkgroupError as error:
            self._error = self._error or error
        except Exception as error:
            # A defect, not a failure that is expected: nobody may wait for this member any longer.
            log.exception("the member of group %s has failed", self.config.group_id)
            self._error = self._error or error
        finally:
            self._share, self._phase = (), "left"
            for feed in self._feeds:
                feed.end(self._error)
            if self._membership is not None:
                self._membership.close()
            self._settled.set()
            self._ended.set()

    def _begin(self) -> None:
        self._began = time.monotonic()
        self._membership = Membership(
            self._brokers(),
            self.config.group_id,
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
        if self._filter is not None and now >= self._look_at:
            self._select(self._filter, self._membership)
            self._look_at = now + TOPICS_LOOK
        self._membership.poll(POLL)
        if self._wanted and time.monotonic() >= self._retry_at:
            self._load(self._membership)
        if self.config.auto_commit_enable and time.monotonic() >= self._commit_at:
            self._commit_at = time.monotonic() + self.config.auto_commit_interval_ms / 1000
            if offsets := self._uncommitted():
                self._membership.begin_commit(offsets)

    def _select(self, topic_filter: TopicFilter, membership: Membership) -> None:
        """Subscribe to what the filter takes now: the filters are Java's, not librdkafka's."""
        try:
            known = membership.topics(PATIENCE)
        except UnreachableError as error:
            log.debug("looking for topics: %s", error)  # its connections tell that, too
            return
        config = self.config
        chosen = topic_filter.select(
            known, exclude_internal=config.exclude_internal_topics, internal=internal_topics(config.compat)
        )
        if chosen != self._topics:
            log.info("group %s: subscribing to %s", config.group_id, ", ".join(chosen) or "nothing")
            self._topics = chosen
            self._began = self._began or time.monotonic()
            membership.subscribe(chosen)
        if not chosen:
            self._settled.set()

    def _on_assigned(self, share: tuple[TopicPartition, ...]) -> None:
        assert self._membership is not None
        self._member_id = self._membership.member_id
        self._generation += 1
        self._share, self._wanted = share, set(share)
        self._granted, self._committed, self._fresh, self._held = False, {}, {}, {}
        self._phase, self._retry_at = "loading", 0.0
        if not share:
            self._reading({})

    def _load(self, membership: Membership) -> None:
        """Find out where to start in what is new of the share, and start."""
        try:
            committed = membership.offsets(self._wanted, PATIENCE)
            places = {partition: offset for partition, offset in committed.items() if offset is not None}
            fresh: dict[TopicPartition, int] = {}
            if unknown := [partition for partition, offset in committed.items() if offset is None]:
                found = resolve_known(self._brokers(), unknown, self._start, PATIENCE)
                fresh = {partition: offset for partition, offset in found.items() if offset is not None}
        except UnreachableError as error:
            self._retry_at = time.monotonic() + RETRY
            if str(error) != self._trouble:
                self._trouble = str(error)
                log.warning("group %s: where to start is not known yet: %s", self.config.group_id, error)
            return
        self._trouble = ""
        self._committed |= places
        self._fresh |= fresh
        places |= fresh
        self._wanted -= places.keys()
        self._held = dict.fromkeys(self._wanted, "nothing can be asked of it now: has it a leader?")
        self._retry_at = time.monotonic() + RETRY
        self._reading(places)

    def _reading(self, places: Mapping[TopicPartition, int]) -> None:
        """Let the streams read from these places on."""
        shares: list[dict[TopicPartition, int]] = [{} for _ in self._feeds]
        for index, partition in enumerate(self._share):
            if partition in places:
                shares[index % len(shares)][partition] = places[partition]
        for feed, part in zip(self._feeds, shares, strict=True):
            (feed.extend if self._granted else feed.grant)(self._generation, part)
        if self._granted:
            return
        self._granted = True
        now = time.monotonic()
        self._commit_at = now + self.config.auto_commit_interval_ms / 1000
        self._told(Rebalance("assigned", self._share, now - self._began, dict(self._fresh)))
        self._phase, self._began = "owning", 0.0
        self._settled.set()

    def _on_revoked(self, share: tuple[TopicPartition, ...], lost: bool) -> None:
        began = time.monotonic()
        if self._phase == "left":
            return  # given up already
        self._quiet(abandon=lost)
        if not lost:
            self._commit(self._uncommitted())
        self._share, self._wanted, self._granted, self._held = (), set(), False, {}
        self._phase = "joining"
        self._began = self._began or began
        self._told(Rebalance("lost" if lost else "revoked", share, time.monotonic() - began))

    def _quiet(self, *, abandon: bool) -> None:
        """Hand out nothing more, and wait until readers have nothing in hand; not for ever."""
        stopped = [threading.Event() for _ in self._feeds]
        for feed, event in zip(self._feeds, stopped, strict=True):
            feed.quiet(event.set, abandon=abandon)
        deadline = time.monotonic() + self.config.quiesce_timeout_ms / 1000
        for feed, event in zip(self._feeds, stopped, strict=True):
            while not event.wait(min(POLL, max(0.0, deadline - time.monotonic()))):
                if self._at_once or time.monotonic() >= deadline:
                    feed.quiet(event.set, abandon=True)

    # ------------------------------------------------------------ commits

    def _uncommitted(self) -> dict[TopicPartition, int]:
        if not self._granted:
            return {}
        consumed: dict[TopicPartition, int] = {}
        for feed in self._feeds:
            consumed |= feed.consumed()
        return {p: o for p, o in consumed.items() if p in self._share and self._committed.get(p) != o}

    def _commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """The last commit of this share; what it cannot have is told."""
        if not offsets or not self.config.auto_commit_enable or self._membership is None:
            return
        try:
            self._membership.commit(offsets)
        except ZkgroupError as error:
            log.warning("%s: what was printed since the last commit will be read again", error)
        else:
            self._committed |= offsets

    def _on_committed(self, error: ZkgroupError | None, offsets: Mapping[TopicPartition, int]) -> None:
        if error is None:
            self._committed |= offsets
        elif isinstance(error, OutdatedError):
            log.debug("%s", error)  # the rebalance that is due commits, or tells that the share is lost
        else:
            log.warning("%s: trying again", error)

    def _release(self) -> None:
        """Finish, commit, give up the share; closing the membership leaves the group."""
        self._quiet(abandon=self._at_once)
        offsets = self._uncommitted()
        for feed in self._feeds:  # nobody need wait for the coordinator
            feed.end(self._error)
        if self._commit_last and not self._at_once:
            self._commit(offsets)
        self._share, self._phase = (), "left"
