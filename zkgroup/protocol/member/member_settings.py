"""The settings of a member, and its counters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from zkgroup.protocol.assignors import Compat, Strategy
from zkgroup.protocol.names import INTERNAL_TOPICS
from zkgroup.protocol.znodes import Registration


@dataclass(frozen=True, slots=True)
class MemberSettings:
    """The settings of a member. Durations are seconds.

    ``internal``: the topics that ``exclude_internal`` keeps out of filters. ``quiesce_timeout``: how long a rebalance
    waits for readers, and for commits that are tried again. ``leave_timeout``: how long leaving may take as a whole.
    """

    group: str
    consumer_id: str
    registration: Registration
    strategy: Strategy = "range"
    compat: Compat = "1.1"
    exclude_internal: bool = True
    internal: frozenset[str] = INTERNAL_TOPICS
    auto_commit: bool = True
    auto_commit_interval: float = 60.0
    storage: Literal["zookeeper", "kafka"] = "zookeeper"
    dual_commit: bool = False
    reset: Literal["smallest", "largest"] = "largest"
    max_retries: int = 4
    backoff: float = 2.0
    keep_trying: bool = False
    session_timeout: float = 6.0
    connect_timeout: float = 6.0
    quiesce_timeout: float = 2.0
    leave_timeout: float = 10.0
    commit_retries: int = 5
    commit_backoff: float = 1.0

    @property
    def uses_zookeeper(self) -> bool:
        """Whether offsets are read from and written to ZooKeeper."""
        return self.storage == "zookeeper" or self.dual_commit

    @property
    def uses_kafka(self) -> bool:
        """Whether offsets are read from and written to Kafka."""
        return self.storage == "kafka"


@dataclass(slots=True)
class Counters:
    """What a member has done so far.

    ``foreign_writes``: offsets changed by a client that does not own the partition. ``abandoned``: rebalances that did
    not wait for a batch any longer.
    """

    rebalances: int = 0
    failed_attempts: int = 0
    sessions: int = 0
    commits: int = 0
    failed_commits: int = 0
    foreign_writes: int = 0
    abandoned: int = 0
