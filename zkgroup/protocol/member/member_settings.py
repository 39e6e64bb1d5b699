"""The settings of a member, and its counters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from zkgroup.config.settings_table import DEFAULTS
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
    strategy: Strategy = DEFAULTS["partition_assignment_strategy"]
    compat: Compat = "1.1"
    exclude_internal: bool = DEFAULTS["exclude_internal_topics"]
    internal: frozenset[str] = INTERNAL_TOPICS
    auto_commit: bool = DEFAULTS["auto_commit_enable"]
    auto_commit_interval: float = DEFAULTS["auto_commit_interval_ms"] / 1000
    storage: Literal["zookeeper", "kafka"] = "zookeeper"
    dual_commit: bool = False
    reset: Literal["smallest", "largest"] = "largest"
    max_retries: int = DEFAULTS["rebalance_max_retries"]
    backoff: float = 2.0
    keep_trying: bool = False
    session_timeout: float = DEFAULTS["zookeeper_session_timeout_ms"] / 1000
    connect_timeout: float = DEFAULTS["zookeeper_session_timeout_ms"] / 1000
    quiesce_timeout: float = DEFAULTS["quiesce_timeout_ms"] / 1000
    leave_timeout: float = 10.0
    commit_retries: int = DEFAULTS["offsets_commit_max_retries"]
    commit_backoff: float = DEFAULTS["offsets_channel_backoff_ms"] / 1000

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
