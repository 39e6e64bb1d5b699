"""A group member's settings: ``consumer.properties``, checked, with zkgroup's own keys."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from zkgroup.config.setting_files import Property
from zkgroup.config.settings_table import (
    BY_KEY,
    DEFAULTS,
    KAFKA_PREFIX,
    MEMBERSHIP,
    OTHER_NAMES,
    RESERVED,
    Setting,
    Strategy,
)
from zkgroup.errors import UsageError, did_you_mean
from zkgroup.text import one_line

_NAME: Final = re.compile(r"[A-Za-z0-9._-]+", re.ASCII)
_RELEASE: Final = re.compile(r"[0-9]{1,4}(\.[0-9]{1,4}){1,3}", re.ASCII)
_INT32: Final = range(-(2**31), 2**31)
#: The later consumer's names of the values of ``auto.offset.reset``.
_LATER_RESETS: Final = {"earliest": "smallest", "latest": "largest"}
_RETRY_KEYS: Final = (
    "zookeeper.session.timeout.ms",
    "rebalance.max.retries",
    "rebalance.backoff.ms",
    "zookeeper.sync.time.ms",
)
#: The first parts of librdkafka's properties that ``consumer.properties`` has no key for.
_LIBRDKAFKA_ONLY: Final = frozenset({"isolation", "sasl", "security", "ssl"})


@dataclass(frozen=True)
class ConsumerConfig:
    """The keys of ``consumer.properties``, dots written as underscores. The defaults stand in the table of settings.
    Fields ending in ``_ms`` are milliseconds.

    A default that Kafka's own consumer derives from another key is derived here, too. After construction only
    ``auto_offset_reset`` and ``consumer_id`` may be None. ``earliest`` and ``latest`` become the older names;
    ``num_consumer_fetchers`` has no effect.

    Raises ``UsageError``, with key, value and remedy, for a value that a file may not have either.
    """

    group_id: str = DEFAULTS["group_id"]
    consumer_id: str | None = DEFAULTS["consumer_id"]
    client_id: str = DEFAULTS["client_id"]
    zookeeper_connect: str = DEFAULTS["zookeeper_connect"]
    zookeeper_session_timeout_ms: int = DEFAULTS["zookeeper_session_timeout_ms"]
    zookeeper_connection_timeout_ms: int = DEFAULTS["zookeeper_connection_timeout_ms"]
    zookeeper_sync_time_ms: int = DEFAULTS["zookeeper_sync_time_ms"]
    auto_commit_enable: bool = DEFAULTS["auto_commit_enable"]
    auto_commit_interval_ms: int = DEFAULTS["auto_commit_interval_ms"]
    #: None if it is not set: a missing offset then starts at the end, and one out of range is an error.
    auto_offset_reset: Literal["smallest", "largest"] | None = DEFAULTS["auto_offset_reset"]
    offsets_storage: Literal["zookeeper", "kafka"] = DEFAULTS["offsets_storage"]
    dual_commit_enabled: bool = DEFAULTS["dual_commit_enabled"]
    offsets_commit_max_retries: int = DEFAULTS["offsets_commit_max_retries"]
    offsets_channel_backoff_ms: int = DEFAULTS["offsets_channel_backoff_ms"]
    offsets_channel_socket_timeout_ms: int = DEFAULTS["offsets_channel_socket_timeout_ms"]
    partition_assignment_strategy: Strategy = DEFAULTS["partition_assignment_strategy"]
    rebalance_max_retries: int = DEFAULTS["rebalance_max_retries"]
    rebalance_backoff_ms: int = DEFAULTS["rebalance_backoff_ms"]
    consumer_timeout_ms: int = DEFAULTS["consumer_timeout_ms"]
    exclude_internal_topics: bool = DEFAULTS["exclude_internal_topics"]
    refresh_leader_backoff_ms: int = DEFAULTS["refresh_leader_backoff_ms"]
    queued_max_message_chunks: int = DEFAULTS["queued_max_message_chunks"]
    fetch_message_max_bytes: int = DEFAULTS["fetch_message_max_bytes"]
    fetch_min_bytes: int = DEFAULTS["fetch_min_bytes"]
    fetch_wait_max_ms: int = DEFAULTS["fetch_wait_max_ms"]
    socket_timeout_ms: int = DEFAULTS["socket_timeout_ms"]
    socket_receive_buffer_bytes: int = DEFAULTS["socket_receive_buffer_bytes"]
    num_consumer_fetchers: int = DEFAULTS["num_consumer_fetchers"]
    keep_trying: bool = DEFAULTS["keep_trying"]
    quiesce_timeout_ms: int = DEFAULTS["quiesce_timeout_ms"]
    kafka_version: str = DEFAULTS["kafka_version"]
    listener: str = DEFAULTS["listener"]

    #: librdkafka's properties (``kafka.NAME=…``). They may hold secrets and are never shown.
    kafka: Mapping[str, str] = field(default_factory=dict, repr=False)
    #: The keys that were set.
    explicit: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        def replace(name: str, value: object) -> None:
            object.__setattr__(self, name, value)

        def derive(key: str, value: object) -> None:
            setting = BY_KEY[key]
            if key not in self.explicit and getattr(self, setting.field) == setting.default:
                replace(setting.field, value)

        if unknown := sorted(self.explicit - BY_KEY.keys()):
            raise UsageError(f"explicit names {unknown[0]!r}, which is no key", "name keys as in consumer.properties")
        if not isinstance(self.kafka, Mapping):
            raise UsageError(f"kafka={self.kafka!r} is no mapping", 'give librdkafka\'s properties: {"NAME": "VALUE"}')
        derive("client.id", self.group_id)
        derive("zookeeper.connection.timeout.ms", self.zookeeper_session_timeout_ms)
        derive("rebalance.backoff.ms", self.zookeeper_sync_time_ms)
        if isinstance(self.offsets_storage, str):
            replace("offsets_storage", self.offsets_storage.lower())
        replace("auto_offset_reset", _LATER_RESETS.get(str(self.auto_offset_reset), self.auto_offset_reset))
        derive("dual.commit.enabled", self.offsets_storage == "kafka")
        replace("kafka", dict(self.kafka))
        self._check_fields()
        # Also those that only differ from their default.
        numbers = [key for key in BY_KEY.values() if key.librdkafka is not None and key.kind == "int"]
        replace("explicit", self.explicit | {key.key for key in numbers if getattr(self, key.field) != key.default})
        self._check_kafka()

    def _check_fields(self) -> None:
        for key in BY_KEY.values():
            value = getattr(self, key.field)
            is_unset = key.default in (None, "") and value == key.default and key.key not in self.explicit
            wrong = (
                None if is_unset or (key.key == "client.id" and value in ("", self.group_id)) else _wrong(key, value)
            )
            if wrong is not None:
                raise _BadValueError(f"{key.key}={one_line(str(value))} {wrong[0]}", wrong[1], key.key)
        if self.fetch_wait_max_ms > self.socket_timeout_ms:
            raise _BadValueError(
                f"fetch.wait.max.ms={self.fetch_wait_max_ms} > socket.timeout.ms={self.socket_timeout_ms}",
                "lower fetch.wait.max.ms or raise socket.timeout.ms",
                "fetch.wait.max.ms",
                "socket.timeout.ms",
            )

    def _check_kafka(self) -> None:
        """Check librdkafka's properties. No value is shown: it may be a secret."""
        mapped = _mapped(self.explicit)
        for name, value in self.kafka.items():
            key = f"{KAFKA_PREFIX}{name}"
            if not isinstance(name, str) or not name or name in RESERVED:
                raise _BadValueError(f"{key} cannot be set", RESERVED.get(name, "name the property"), key)
            if not isinstance(value, str):
                raise _BadValueError(f"{key} is no text", "give a string, as librdkafka wants it", key)
            if name in mapped:
                raise _BadValueError(f"{key} contradicts {mapped[name].key}", "remove one of the two", key)


class _BadValueError(UsageError):
    """``keys``: those whose values are wrong, one of which was set."""

    def __init__(self, message: str, remedy: str, *keys: str) -> None:
        super().__init__(message, remedy)
        self.keys = keys


@dataclass(frozen=True, slots=True)
class LoadedConfig:
    """A configuration and its warnings, one line each.

    ``membership``: librdkafka's properties that only a member of a group in Kafka has; they may hold secrets.
    """

    config: ConsumerConfig
    warnings: tuple[str, ...] = ()
    membership: Mapping[str, str] = field(default_factory=dict, repr=False)


def load_consumer_config(
    properties: Iterable[Property], *, group: str | None = None, coordinated: bool = False
) -> LoadedConfig:
    """The settings that the properties give; of equal keys the last one wins. ``group``: the command line's.
    ``coordinated``: for a member of a group in Kafka, for which some keys have another meaning, or none.

    Raises ``UsageError``, with file, line, key and remedy, for values that cannot be read or contradict one another.
    """
    reader = _PropertyReader(properties, MEMBERSHIP if coordinated else ())
    if group is not None:
        reader.set_group(group)
    if coordinated:
        reader.check_coordinated()
    config = reader.make_config()
    reader.warn_of_relations(config, waits_for_claims=not coordinated)
    return LoadedConfig(config, tuple(reader.warnings), reader.membership)


class _PropertyReader:
    """Reads properties one by one, then checks them together."""

    def __init__(self, properties: Iterable[Property], membership: Collection[str]) -> None:
        self.values: dict[str, Any] = {}
        self.membership: dict[str, str] = {}
        self.given: dict[str, Property] = {}
        self.kafka: dict[str, Property] = {}
        self.warnings: list[str] = []
        for prop in properties:
            name = prop.key.removeprefix(KAFKA_PREFIX)
            if name == prop.key:
                self._apply(prop)
            elif name in membership:
                self.membership[name] = prop.value
            else:
                self.kafka[name] = prop

    def _apply(self, prop: Property) -> None:
        key = BY_KEY.get(prop.key)
        if key is None:
            self.warnings += unknown_keys([prop])
            return
        earlier = self.given.get(key.key)
        if earlier is not None and earlier.value != prop.value:
            if key.key == "group.id":
                raise UsageError(
                    f"{earlier.origin}: group.id={one_line(earlier.value)} contradicts {prop.origin} "
                    f"group.id={one_line(prop.value)}",
                    "remove one of the two",
                )
            if _same_file(earlier, prop):
                self.warnings.append(f"{prop.origin}: {key.key} replaces the value of {earlier.origin}")
        if key.is_ignored:
            self.warnings.append(f"{prop.origin}: {key.key} has no effect: {key.doc}")
        self.given[key.key] = prop
        value: object = prop.value
        if key.kind == "bool":
            value = {"true": True, "false": False}.get(prop.value, prop.value)
        # Java's Integer.parseInt takes a sign and decimal digits, nothing else.
        elif key.kind == "int" and re.fullmatch(r"[+-]?[0-9]{1,10}", prop.value, re.ASCII):
            value = int(prop.value)
        elif key.key == "auto.offset.reset" and prop.value in _LATER_RESETS:
            value = _LATER_RESETS[prop.value]
            self.warnings.append(f"{prop.origin}: auto.offset.reset={prop.value} is taken as {value}")
        self.values[key.field] = value

    def set_group(self, group: str) -> None:
        """Set the group of the command line."""
        if not group:
            raise UsageError("--group names no group", "give it a name, or leave it out to read without a group")
        prop = self.given.get("group.id")
        if prop is not None and prop.value != group:
            raise UsageError(
                f"{prop.origin}: group.id={one_line(prop.value)} contradicts --group {group}", "remove one of the two"
            )
        self.values["group_id"] = group

    def check_coordinated(self) -> None:
        """Raise for keys that keep offsets in ZooKeeper; warn of keys without a meaning for Kafka's coordinator."""
        for name, wrong in (("offsets.storage", "zookeeper"), ("dual.commit.enabled", True)):
            prop = self.given.get(name)
            if prop is not None and self.values[BY_KEY[name].field] == wrong:
                raise UsageError(
                    f"{prop.origin}: {name}={prop.value}, but members of a group in Kafka commit to Kafka alone",
                    "remove it, or join with --coordinator zookeeper",
                )
        if idle := [key for key, setting in BY_KEY.items() if setting.zookeeper_only and key in self.given]:
            self.warnings.append(f"without effect on a member of a group in Kafka: {', '.join(idle)}")

    def make_config(self) -> ConsumerConfig:
        """The checked configuration. Raises ``UsageError`` with the place of what is wrong."""
        kafka = {name: prop.value for name, prop in self.kafka.items()}
        try:
            return ConsumerConfig(**self.values, kafka=kafka, explicit=frozenset(self.given))
        except _BadValueError as error:
            given = self.given | {prop.key: prop for prop in self.kafka.values()}
            origin = next((f"{given[key].origin}: " for key in error.keys if key in given), "")
            raise UsageError(f"{origin}{error.message}", error.remedy) from None

    def warn_of_relations(self, config: ConsumerConfig, *, waits_for_claims: bool) -> None:
        """Warn of unusual combinations. ``waits_for_claims``: for a member in ZooKeeper."""
        if "dual.commit.enabled" in self.given and config.dual_commit_enabled and config.offsets_storage != "kafka":
            self._warn("dual.commit.enabled", "has no effect: offsets.storage is zookeeper")
        if "auto.commit.interval.ms" in self.given and not config.auto_commit_enable:
            self._warn("auto.commit.interval.ms", "has no effect: auto.commit.enable is false")
        retry_time_ms = config.rebalance_max_retries * config.rebalance_backoff_ms
        tuned = [key for key in _RETRY_KEYS if key in self.given]
        if waits_for_claims and tuned and retry_time_ms < config.zookeeper_session_timeout_ms:
            self._warn(
                tuned[0],
                f"makes rebalance.max.retries × rebalance.backoff.ms ({retry_time_ms} ms) shorter than "
                f"zookeeper.session.timeout.ms ({config.zookeeper_session_timeout_ms} ms): a rebalance may give up "
                "before a dead member's claims expire",
            )
        if 0 <= config.consumer_timeout_ms < config.fetch_wait_max_ms:
            self._warn("consumer.timeout.ms", f"is shorter than fetch.wait.max.ms ({config.fetch_wait_max_ms})")
        for name in self.given:
            prop = BY_KEY[name].librdkafka
            if prop is not None and BY_KEY[name].kind == "int":
                taken = _for_librdkafka(BY_KEY[name], config)
                if taken != _wanted(BY_KEY[name], config):
                    self._warn(name, f"becomes {prop.name}={taken}, the nearest librdkafka takes")

    def _warn(self, name: str, text: str) -> None:
        prop = self.given.get(name)
        self.warnings.append(f"{prop.origin + ': ' if prop else ''}{name} {text}")


def _wrong(key: Setting, value: object) -> tuple[str, str] | None:
    """What is wrong with a value, and the remedy; None for a legal value."""
    if key.kind == "bool":
        return None if isinstance(value, bool) else ("is neither true nor false", "write one of the two")
    if key.kind == "int":
        if isinstance(value, bool) or not isinstance(value, int) or value not in _INT32:
            return "is no 32-bit integer", "give a whole number"
        return ("is too small", f"at least {key.lowest}") if value < key.lowest else None
    if not isinstance(value, str):
        return "is no text", "give a string"
    if key.key == "zookeeper.connect" and not value:
        return "is empty", "give a value or remove the line"
    if key.choices and value not in key.choices:
        return "is unknown", f"use {' or '.join(key.choices)}"
    if key.kind == "release" and not _RELEASE.fullmatch(value):
        return "is no Kafka release", "write it like 0.8.2 or 1.1"
    if key.kind == "name" and not _NAME.fullmatch(value):
        return "is not a legal name", "use letters, digits, '.', '_' and '-'"
    if key.key == "group.id" and value in (".", ".."):
        return "is not a legal name", "give another: it would be a relative path"
    return None


def librdkafka_properties(config: ConsumerConfig, client: Literal["fetch", "offsets"] = "fetch") -> dict[str, str]:
    """librdkafka's properties for the client that fetches, or for the one that commits offsets to Kafka.

    Only explicit keys are mapped: librdkafka's own defaults are better than those of Kafka's own consumer.
    ``config.kafka`` comes last and wins.
    """
    mapped = {
        name: str(_for_librdkafka(key, config))
        for name, key in _mapped(sorted(config.explicit), client).items()
        if key.kind == "int"
    }
    if config.client_id:
        mapped["client.id"] = config.client_id
    return mapped | dict(config.kafka)


def _mapped(keys: Iterable[str], client: str = "fetch") -> dict[str, Setting]:
    """The settings of the keys that set a property of this librdkafka client, by the property."""
    settings = [BY_KEY[key] for key in keys]
    return {
        one.librdkafka.name: one for one in settings if one.librdkafka is not None and one.librdkafka.client == client
    }


def _for_librdkafka(key: Setting, config: ConsumerConfig) -> int:
    """The value, or the nearest that librdkafka takes."""
    assert key.librdkafka is not None
    return min(max(_wanted(key, config), key.librdkafka.low), key.librdkafka.high)


def _wanted(key: Setting, config: ConsumerConfig) -> int:
    if key.key == "queued.max.message.chunks":
        return config.queued_max_message_chunks * config.fetch_message_max_bytes // 1024
    value: int = getattr(config, key.field)
    return value


def _same_file(first: Property, second: Property) -> bool:
    return first.origin.rpartition(", line ")[0] == second.origin.rpartition(", line ")[0] != ""


def unknown_keys(properties: Iterable[Property]) -> list[str]:
    """A warning for each property that has no meaning here."""
    return [
        f"{prop.origin}: unknown key {prop.key[:80]!r} is ignored{_suggestion(prop.key)}"
        for prop in properties
        if prop.key not in BY_KEY and not prop.key.startswith(KAFKA_PREFIX)
    ]


def _suggestion(name: str) -> str:
    if name in OTHER_NAMES:
        return f" (the name here is {OTHER_NAMES[name]})"
    if name.partition(".")[0] in _LIBRDKAFKA_ONLY:
        return f" (did you mean {KAFKA_PREFIX}{name}?)"
    remedy = did_you_mean(name[:80], BY_KEY, "")
    return f" ({remedy})" if remedy else ""
