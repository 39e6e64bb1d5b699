"""A group member's settings: the reference's ``consumer.properties``, checked, with zkgroup's own beside them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Final, Literal

from zkgroup.config.consumer_keys import (
    BY_NAME,
    LATER_NAMES,
    MEMBERSHIP,
    RESERVED,
    ZOOKEEPER_ONLY,
    Key,
    Status,
    find_key,
)
from zkgroup.config.java_properties import Property
from zkgroup.config.value_checks import LATER_RESETS, check_fields, check_raw, complaint
from zkgroup.errors import UsageError, did_you_mean

KAFKA_PREFIX: Final = "kafka."


@dataclass(frozen=True)
class ConsumerConfig:
    """The reference's keys, dots written as underscores, with its defaults. Fields ending in ``_ms`` are milliseconds.

    Where the reference derives a default from another key, leaving the field at None (or empty) does the same; after
    construction all fields but ``auto_offset_reset`` and ``consumer_id`` hold a value.

    Raises UsageError, naming field, value and remedy, for values that a file may not have either.
    As there, ``earliest`` and ``latest`` are taken for the older names, and ``num_consumer_fetchers`` has no effect.
    """

    group_id: str = ""
    consumer_id: str | None = None
    client_id: str = ""
    zookeeper_connect: str = ""
    zookeeper_session_timeout_ms: int = 6000
    zookeeper_connection_timeout_ms: int = -1
    zookeeper_sync_time_ms: int = 2000
    auto_commit_enable: bool = True
    auto_commit_interval_ms: int = 60000
    #: None if it was not set: then a missing offset starts at the end, and one out of range is an error.
    auto_offset_reset: Literal["smallest", "largest"] | None = None
    offsets_storage: Literal["zookeeper", "kafka"] = "zookeeper"
    dual_commit_enabled: bool = None  # type: ignore[assignment]  # derived: never None once constructed
    offsets_commit_max_retries: int = 5
    offsets_channel_backoff_ms: int = 1000
    offsets_channel_socket_timeout_ms: int = 10000
    partition_assignment_strategy: Literal["range", "roundrobin"] = "range"
    rebalance_max_retries: int = 4
    rebalance_backoff_ms: int = -1
    consumer_timeout_ms: int = -1
    exclude_internal_topics: bool = True
    refresh_leader_backoff_ms: int = 200
    queued_max_message_chunks: int = 2
    fetch_message_max_bytes: int = 1024 * 1024
    fetch_min_bytes: int = 1
    fetch_wait_max_ms: int = 100
    socket_timeout_ms: int = 30000
    socket_receive_buffer_bytes: int = 65536
    num_consumer_fetchers: int = 1

    # zkgroup's own (``zkgroup.*`` in a file), which the reference does not have.
    #: After a failed rebalance try again, with growing pauses, instead of leaving the group.
    keep_trying: bool = False
    #: How long a rebalance waits for a reader to finish the batch in its hands.
    quiesce_timeout_ms: int = 3000
    #: The release whose roundrobin this member computes.
    kafka_version: str = "1.1"
    #: The brokers' listener, by its name; empty: one that speaks the security protocol.
    listener: str = ""

    #: Raw librdkafka properties (``kafka.NAME=…``). They may hold secrets and are never shown.
    kafka: Mapping[str, str] = field(default_factory=dict, repr=False)
    #: The keys that somebody set, by their names in the file.
    explicit: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        def derive(name: str, unset: object, value: object) -> None:
            if getattr(self, name) == unset:
                object.__setattr__(self, name, value)

        derive("client_id", "", self.group_id)
        derive("zookeeper_connection_timeout_ms", -1, self.zookeeper_session_timeout_ms)
        derive("rebalance_backoff_ms", -1, self.zookeeper_sync_time_ms)

        def replace(name: str, value: object) -> None:
            object.__setattr__(self, name, value)

        if isinstance(self.offsets_storage, str):
            replace("offsets_storage", self.offsets_storage.lower())
        replace("auto_offset_reset", LATER_RESETS.get(str(self.auto_offset_reset), self.auto_offset_reset))
        derive("dual_commit_enabled", None, self.offsets_storage == "kafka")
        if not isinstance(self.kafka, Mapping):
            raise UsageError(f"kafka={self.kafka!r} is no mapping", 'give librdkafka\'s properties: {"NAME": "VALUE"}')
        replace("kafka", dict(self.kafka))
        check_fields({each.name: getattr(self, each.name) for each in fields(self)})
        replace("explicit", self._explicit())
        mapped = [BY_NAME[name] for name in self.explicit]
        check_raw(self.kafka, {k.target.name: k for k in mapped if k.target is not None and k.target.client == "fetch"})

    def _explicit(self) -> frozenset[str]:
        """What somebody set, also without saying so: else it would never reach librdkafka."""
        unknown = sorted(self.explicit - BY_NAME.keys())
        if unknown:
            raise UsageError(f"explicit names {unknown[0]!r}, which is no key", "name keys as in consumer.properties")
        defaults = {each.name: each.default for each in fields(self)}
        numbers = [key for key in BY_NAME.values() if key.target is not None and key.kind == "int"]
        return self.explicit | {key.name for key in numbers if getattr(self, key.field) != defaults[key.field]}


@dataclass(frozen=True, slots=True)
class LoadedConfig:
    """A configuration and what its reader should be told about it, one line each.

    ``membership``: librdkafka's properties that only a member of a group in Kafka has; they may hold secrets.
    """

    config: ConsumerConfig
    warnings: tuple[str, ...] = ()
    membership: Mapping[str, str] = field(default_factory=dict, repr=False)


def load_consumer_config(
    properties: Iterable[Property], *, group: str | None = None, coordinated: bool = False
) -> LoadedConfig:
    """Settings out of properties, the later of equal keys winning. ``group`` is the one of the command line.
    ``coordinated``: for a member of a group in Kafka, to which some keys mean something else, or nothing.

    Raises ``UsageError``, naming file, line, key and remedy, for values that cannot be read or contradict one another.
    """
    reader = _Reader(properties, MEMBERSHIP if coordinated else ())
    if group is not None:
        reader.set_group(group)
    if coordinated:
        reader.check_coordinated()
    reader.check_relations(waits_for_claims=not coordinated)
    config = ConsumerConfig(
        **reader.values,  # type: ignore[arg-type]  # _Reader.convert has seen to the types
        kafka=reader.kafka,
        explicit=frozenset(reader.given),
    )
    return LoadedConfig(config, tuple(reader.warnings), reader.membership)


class _Reader:
    """Takes properties one by one, then checks what they mean together."""

    def __init__(self, properties: Iterable[Property], membership: Collection[str]) -> None:
        self.values: dict[str, object] = {}
        self.membership: dict[str, str] = {}
        self._membership_names = membership
        self.given: dict[str, Property] = {}
        self.kafka: dict[str, str] = {}
        self.warnings: list[str] = []
        self._kafka_given: dict[str, Property] = {}
        for prop in properties:
            self._take(prop)

    def _take(self, prop: Property) -> None:
        if prop.key.startswith(KAFKA_PREFIX):
            name = prop.key.removeprefix(KAFKA_PREFIX)
            if name in self._membership_names:
                self.membership[name] = prop.value
                return
            if not name or name in RESERVED:
                raise UsageError(f"{prop.origin}: {prop.key} cannot be set", RESERVED.get(name, "name the property"))
            self.kafka[name] = prop.value
            self._kafka_given[name] = prop
            return
        key = find_key(prop.key)
        if key is None:
            self.warnings += unknown_keys([prop])
            return
        earlier = self.given.get(key.name)
        if key.name == "group.id" and earlier is not None and earlier.value != prop.value:
            raise UsageError(
                f"{earlier.origin}: group.id={_shown(earlier.value)} contradicts {prop.origin} "
                f"group.id={_shown(prop.value)}",
                "remove one of the two",
            )
        if earlier is not None and earlier.value != prop.value and _same_file(earlier, prop):
            self.warnings.append(f"{prop.origin}: {key.name} replaces the value of {earlier.origin}")
        if key.status is Status.IGNORED:
            self.warnings.append(f"{prop.origin}: {key.name} has no effect: {key.note}")
        self.values[key.field] = self._convert(key, prop)
        self.given[key.name] = prop

    def _convert(self, key: Key, prop: Property) -> object:
        text = prop.value
        if key.kind == "bool":
            if text not in ("true", "false"):
                raise _bad(prop, "is neither true nor false", "write one of the two")
            return text == "true"
        if key.kind == "int":
            return _integer(key, prop)
        match key.name:
            case "auto.offset.reset":
                return self._reset(prop)
            case "offsets.storage":
                text = text.lower()
            case "zookeeper.connect" if not text:
                raise _bad(prop, "is empty", "give a value or remove the line")
        if (wrong := complaint(key, text)) is not None:
            raise _bad(prop, *wrong)
        return text

    def _reset(self, prop: Property) -> str:
        text = prop.value
        if (older := LATER_RESETS.get(text)) is not None:
            self.warnings.append(f"{prop.origin}: auto.offset.reset={text} is taken as {older}")
            text = older
        if (wrong := complaint(BY_NAME[prop.key], text)) is not None:
            raise _bad(prop, *wrong)
        return text

    def set_group(self, group: str) -> None:
        """Take the command line's group."""
        if not group:
            raise UsageError("--group names no group", "give it a name, or leave it out to read without a group")
        prop = self.given.get("group.id")
        if prop is not None and prop.value != group:
            raise UsageError(
                f"{prop.origin}: group.id={_shown(prop.value)} contradicts --group {group}", "remove one of the two"
            )
        self.values["group_id"] = group

    def check_coordinated(self) -> None:
        """What would keep offsets in ZooKeeper is an error, what means nothing to Kafka's coordinator is warned of."""
        for name, wrong in (("offsets.storage", "zookeeper"), ("dual.commit.enabled", True)):
            prop = self.given.get(name)
            if prop is not None and self.values[prop.key.replace(".", "_")] == wrong:
                raise UsageError(
                    f"{prop.origin}: {name}={prop.value}, but members of a group in Kafka commit to Kafka alone",
                    "remove it, or join with --coordinator zookeeper",
                )
        if idle := [name for name in ZOOKEEPER_ONLY if name in self.given]:
            self.warnings.append(f"without effect on a member of a group in Kafka: {', '.join(idle)}")

    def check_relations(self, *, waits_for_claims: bool) -> None:
        """What contradicts is an error; what is accepted but surely not meant is a warning. ``waits_for_claims``: as
        members in ZooKeeper do."""
        self._check_waits()
        config = ConsumerConfig(**self.values)  # type: ignore[arg-type]
        for name in sorted(self._kafka_given.keys() & self._mapped_names()):
            raise UsageError(
                f"{self._kafka_given[name].origin}: kafka.{name} contradicts {self._mapped_names()[name].key} "
                f"({self._mapped_names()[name].origin})",
                "remove one of the two",
            )
        if "dual.commit.enabled" in self.given and config.dual_commit_enabled and config.offsets_storage != "kafka":
            self._warn("dual.commit.enabled", "has no effect: offsets.storage is zookeeper")
        if "auto.commit.interval.ms" in self.given and not config.auto_commit_enable:
            self._warn("auto.commit.interval.ms", "has no effect: auto.commit.enable is false")
        patience = config.rebalance_max_retries * config.rebalance_backoff_ms
        tuned = [key for key in _PATIENCE if key in self.given]
        if waits_for_claims and tuned and patience < config.zookeeper_session_timeout_ms:
            self._warn(
                tuned[0],
                f"makes rebalance.max.retries × rebalance.backoff.ms ({patience} ms) shorter than "
                f"zookeeper.session.timeout.ms ({config.zookeeper_session_timeout_ms} ms): a rebalance may give up "
                "before a dead member's claims expire",
            )
        if 0 <= config.consumer_timeout_ms < config.fetch_wait_max_ms:
            self._warn("consumer.timeout.ms", f"is shorter than fetch.wait.max.ms ({config.fetch_wait_max_ms})")
        for key, prop in self.given.items():
            self._note_clamped(BY_NAME[key], prop, config)

    def _mapped_names(self) -> dict[str, Property]:
        """librdkafka properties that reference keys already decide."""
        targets = {name: BY_NAME[name].target for name in self.given}
        return {t.name: self.given[key] for key, t in targets.items() if t is not None and t.client == "fetch"}

    def _note_clamped(self, key: Key, prop: Property, config: ConsumerConfig) -> None:
        if key.target is None or key.kind != "int":
            return
        wanted = _wanted(key, config)
        taken = min(max(wanted, key.target.low), key.target.high)
        if taken != wanted:
            self.warnings.append(
                f"{prop.origin}: {key.name} becomes {key.target.name}={taken}, the nearest librdkafka takes"
            )

    def _warn(self, name: str, text: str) -> None:
        prop = self.given.get(name)
        self.warnings.append(f"{prop.origin + ': ' if prop else ''}{name} {text}")

    def _check_waits(self) -> None:
        names = ("fetch.wait.max.ms", "socket.timeout.ms")
        given = {name: self.given[name].value if name in self.given else BY_NAME[name].default for name in names}
        wait, patience = map(int, given.values())
        if wait > patience:
            origin = next(self.given[name].origin for name in names if name in self.given)
            raise UsageError(
                f"{origin}: {names[0]}={wait} > {names[1]}={patience}", f"lower {names[0]} or raise {names[1]}"
            )


_PATIENCE = ("zookeeper.session.timeout.ms", "rebalance.max.retries", "rebalance.backoff.ms", "zookeeper.sync.time.ms")


def librdkafka_properties(config: ConsumerConfig, client: Literal["fetch", "offsets"] = "fetch") -> dict[str, str]:
    """librdkafka's properties for the client that fetches, or for the one that commits offsets to Kafka.

    Only what somebody set is mapped: librdkafka's own defaults are better than the reference's. Raw ``kafka.*``
    properties come last and win; those the configuration contradicts were refused when it was loaded.
    """
    mapped: dict[str, str] = {}
    for name in sorted(config.explicit):
        key = BY_NAME[name]
        if key.target is None or key.target.client != client or key.kind != "int":
            continue
        mapped[key.target.name] = str(min(max(_wanted(key, config), key.target.low), key.target.high))
    if config.client_id:
        mapped["client.id"] = config.client_id
    return mapped | dict(config.kafka)


def _wanted(key: Key, config: ConsumerConfig) -> int:
    if key.name == "queued.max.message.chunks":
        return config.queued_max_message_chunks * config.fetch_message_max_bytes // 1024
    value = getattr(config, key.field)
    assert isinstance(value, int)
    return value


def _integer(key: Key, prop: Property) -> int:
    # Integer.parseInt takes a sign and decimal digits, nothing else.
    if not re.fullmatch(r"[+-]?[0-9]{1,10}", prop.value, re.ASCII):
        raise _bad(prop, "is no 32-bit integer", "write decimal digits only")
    number = int(prop.value)
    if (wrong := complaint(key, number)) is not None:
        raise _bad(prop, *wrong)
    return number


def _bad(prop: Property, why: str, remedy: str) -> UsageError:
    return UsageError(f"{prop.origin}: {prop.key}={_shown(prop.value)} {why}", remedy)


def _shown(value: str) -> str:
    """A value in a line: Java's format lets it have ends of lines."""
    part = value[:80]
    return part if part.isprintable() else repr(part)


def _same_file(first: Property, second: Property) -> bool:
    return first.origin.rpartition(", line ")[0] == second.origin.rpartition(", line ")[0] != ""


_OF_BROKERS: Final = frozenset({"isolation", "sasl", "security", "ssl"})  # how keys begin that librdkafka has alone


def unknown_keys(properties: Iterable[Property]) -> list[str]:
    """Warnings of those that nobody reads."""
    return [
        f"{prop.origin}: unknown key {prop.key[:80]!r} is ignored{_suggestion(prop.key)}"
        for prop in properties
        if find_key(prop.key) is None and not prop.key.startswith(KAFKA_PREFIX)
    ]


def _suggestion(name: str) -> str:
    if name in LATER_NAMES:
        return f" (the name here is {LATER_NAMES[name]})"
    if name.partition(".")[0] in _OF_BROKERS:
        return f" (did you mean {KAFKA_PREFIX}{name}?)"
    remedy = did_you_mean(name[:80], BY_NAME, "")
    return f" ({remedy})" if remedy else ""
