"""The keys of the reference's ``consumer.properties``, and what zkgroup makes of each.

Names and defaults are those of ``kafka.consumer.ConsumerConfig`` and ``kafka.utils.ZKConfig``, Kafka 0.8.0 to 1.1.1.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final, Literal


class Status(enum.Enum):
    """What zkgroup does with a key."""

    HONOURED = "honoured"
    MAPPED = "mapped"
    IGNORED = "ignored with a warning"


@dataclass(frozen=True, slots=True)
class Target:
    """A librdkafka property, its legal range, and which of a member's clients gets it."""

    name: str
    low: int = 0
    high: int = 0
    client: Literal["fetch", "offsets"] = "fetch"


@dataclass(frozen=True, slots=True)
class Key:
    """One key. ``default`` is shown in the docs; the value itself stands in ``ConsumerConfig``."""

    name: str
    kind: Literal["text", "int", "bool"]
    default: str
    status: Status
    note: str
    target: Target | None = None
    lowest: int = 0

    @property
    def field(self) -> str:
        """The attribute of ``ConsumerConfig`` that holds it."""
        return self.name.removeprefix("zkgroup.").replace(".", "_")


_H, _M, _I = Status.HONOURED, Status.MAPPED, Status.IGNORED

KEYS: Final[tuple[Key, ...]] = (
    Key("group.id", "text", "none", _H, "`--group` may repeat it, but not contradict it"),
    Key("consumer.id", "text", "generated", _H, "the member registers as `GROUP_CONSUMERID`"),
    Key("client.id", "text", "= group.id", _M, "", Target("client.id")),
    Key("zookeeper.connect", "text", "none", _H, "`--zookeeper`, `ZKGROUP_ZOOKEEPER` and a profile win over it"),
    Key("zookeeper.session.timeout.ms", "int", "6000", _H, "the server bounds it to 2–20 of its ticks", lowest=100),
    Key(
        "zookeeper.connection.timeout.ms",
        "int",
        "= zookeeper.session.timeout.ms",
        _H,
        "if set, also how long every command waits for ZooKeeper (otherwise 5 s)",
        lowest=1,
    ),
    Key(
        "zookeeper.sync.time.ms",
        "int",
        "2000",
        _H,
        "only as the default of `rebalance.backoff.ms`, as in the reference",
    ),
    Key("auto.commit.enable", "bool", "true", _H, ""),
    Key("auto.commit.interval.ms", "int", "60000", _H, "", lowest=1),
    Key(
        "auto.offset.reset",
        "text",
        "largest",
        _H,
        "`smallest` or `largest`; `earliest` and `latest` are taken too, with a note. Without a stored offset the "
        "default holds; an offset out of range is an error unless the key is set",
    ),
    Key("offsets.storage", "text", "zookeeper", _H, "`zookeeper` or `kafka`"),
    Key(
        "dual.commit.enabled",
        "bool",
        "true with offsets.storage=kafka, else false",
        _H,
        "without Kafka storage it means nothing and warns",
    ),
    Key("offsets.commit.max.retries", "int", "5", _H, "of a commit on shutdown and before a release, in both stores"),
    Key(
        "offsets.channel.backoff.ms",
        "int",
        "1000",
        _M,
        "for the connection that commits to Kafka",
        Target("retry.backoff.ms", 1, 300_000, "offsets"),
    ),
    Key(
        "offsets.channel.socket.timeout.ms",
        "int",
        "10000",
        _M,
        "for the connection that commits to Kafka",
        Target("socket.timeout.ms", 10, 300_000, "offsets"),
        lowest=1,
    ),
    Key("partition.assignment.strategy", "text", "range", _H, "`range` or `roundrobin`"),
    Key("rebalance.max.retries", "int", "4", _H, "attempts of one rebalance", lowest=1),
    Key(
        "rebalance.backoff.ms",
        "int",
        "= zookeeper.sync.time.ms",
        _H,
        "the longest wait: an owner in the way that goes ends it",
    ),
    Key("consumer.timeout.ms", "int", "-1", _H, "−1: wait for ever", lowest=-1),
    Key("exclude.internal.topics", "bool", "true", _H, "for topic filters"),
    Key(
        "refresh.leader.backoff.ms",
        "int",
        "200",
        _M,
        "",
        Target("topic.metadata.refresh.fast.interval.ms", 1, 60_000),
    ),
    Key(
        "queued.max.message.chunks",
        "int",
        "2",
        _M,
        "as chunks × `fetch.message.max.bytes`, in KiB",
        Target("queued.max.messages.kbytes", 1, 2_097_151),
        lowest=1,
    ),
    Key(
        "fetch.message.max.bytes",
        "int",
        "1048576",
        _M,
        "a larger message is fetched all the same, where the reference fails",
        Target("fetch.message.max.bytes", 1, 1_000_000_000),
        lowest=1,
    ),
    Key("fetch.min.bytes", "int", "1", _M, "", Target("fetch.min.bytes", 1, 100_000_000)),
    Key(
        "fetch.wait.max.ms",
        "int",
        "100",
        _M,
        "more than `socket.timeout.ms` is an error, as in the reference",
        Target("fetch.wait.max.ms", 0, 300_000),
    ),
    Key("socket.timeout.ms", "int", "30000", _M, "", Target("socket.timeout.ms", 10, 300_000), lowest=1),
    Key(
        "socket.receive.buffer.bytes",
        "int",
        "65536",
        _M,
        "unless set, the system sizes the buffer",
        Target("socket.receive.buffer.bytes", 0, 100_000_000),
    ),
    Key("num.consumer.fetchers", "int", "1", _I, "librdkafka keeps one connection to each broker"),
)

OWN_KEYS: Final[tuple[Key, ...]] = (
    Key("zkgroup.listener", "text", "none", _H, "as `--listener`: the brokers' listener, by its name"),
    Key(
        "zkgroup.keep.trying",
        "bool",
        "false",
        _H,
        "a member whose rebalance failed tries again, with growing pauses, instead of leaving",
    ),
    Key(
        "zkgroup.quiesce.timeout.ms",
        "int",
        "3000",
        _H,
        "how long a rebalance waits for a reader to finish the batch in its hands",
    ),
    Key(
        "zkgroup.kafka.version",
        "text",
        "1.1",
        _H,
        "the release whose roundrobin this member computes, and whose internal topics it leaves out of filters, such "
        "as 0.8.2 or 0.10.2",
    ),
)

BY_NAME: Final = {key.name: key for key in KEYS + OWN_KEYS}
ALIASES: Final = {"zkgroup.compat": "zkgroup.kafka.version"}


def find_key(name: str) -> Key | None:
    """The key of this name or alias."""
    return BY_NAME.get(ALIASES.get(name, name))


#: librdkafka properties that zkgroup sets itself, and what to use instead.
RESERVED: Final = {
    "bootstrap.servers": "use --bootstrap-server",
    "metadata.broker.list": "use --bootstrap-server",
    "group.id": "use --group",
    "group.instance.id": "zkgroup's members live in ZooKeeper",
    "group.protocol": "zkgroup's members live in ZooKeeper",
    "client.id": "use client.id",
    "partition.assignment.strategy": "use partition.assignment.strategy",
    "session.timeout.ms": "use zookeeper.session.timeout.ms",
    "auto.offset.reset": "use auto.offset.reset",
    "enable.auto.commit": "use auto.commit.enable",
    "auto.commit.interval.ms": "use auto.commit.interval.ms",
    "enable.auto.offset.store": "zkgroup keeps count of what was consumed",
    "enable.partition.eof": "zkgroup sets it where it needs it",
}

#: librdkafka properties that a member of a group in Kafka has, and no other client of ours (``consume --coordinator``).
MEMBERSHIP: Final = ("session.timeout.ms", "heartbeat.interval.ms", "max.poll.interval.ms", "group.instance.id")

#: Keys that mean nothing to a member of a group in Kafka.
ZOOKEEPER_ONLY: Final = (
    "consumer.id",
    "zookeeper.session.timeout.ms",
    "zookeeper.sync.time.ms",
    "rebalance.max.retries",
    "rebalance.backoff.ms",
    "offsets.commit.max.retries",
    "zkgroup.keep.trying",
)

#: What people write who know the later consumer.
LATER_NAMES: Final = {
    "enable.auto.commit": "auto.commit.enable",
    "session.timeout.ms": "zookeeper.session.timeout.ms",
    "fetch.max.wait.ms": "fetch.wait.max.ms",
    "max.partition.fetch.bytes": "fetch.message.max.bytes",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "request.timeout.ms": "socket.timeout.ms",
    "bootstrap.servers": "--bootstrap-server",
    "zk.connect": "zookeeper.connect",
    "groupid": "group.id",
    "autooffset.reset": "auto.offset.reset",
    "autocommit.enable": "auto.commit.enable",
}
