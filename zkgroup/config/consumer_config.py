"""A group member's settings: ``consumer.properties``, checked, with zkgroup's own keys."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from zkgroup.config.setting_files import Property
from zkgroup.config.settings_table import (
    BY_KEY,
    DEFAULTS,
    KAFKA_PREFIX,
    MEMBERSHIP,
    RESERVED,
    SETTINGS,
    Reset,
    Setting,
    Strategy,
)
from zkgroup.errors import Notice, UsageError, as_remedy, did_you_mean
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
    auto_offset_reset: Reset | None = DEFAULTS["auto_offset_reset"]
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

        derive("client.id", self.group_id)
        derive("zookeeper.connection.timeout.ms", self.zookeeper_session_timeout_ms)
        derive("rebalance.backoff.ms", self.zookeeper_sync_time_ms)
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
        for name in self.kafka:
            key = f"{KAFKA_PREFIX}{name}"
            if not name or name in RESERVED:
                raise _BadValueError(f"{key} cannot be set", RESERVED.get(name, "name the property"), key)
            if name in mapped:
                raise _BadValueError(f"{key} contradicts {mapped[name].key}", "remove one of the two", key)


class _BadValueError(UsageError):
    """``keys``: those whose values are wrong, one of which was set."""

    def __init__(self, message: str, remedy: str, *keys: str) -> None:
        super().__init__(message, remedy)
        self.keys = keys


@dataclass(frozen=True, slots=True)
class LoadedConfig:
    """A configuration and its warnings.

    ``membership``: librdkafka's properties that only a member of a group in Kafka has; they may hold secrets.
    """

    config: ConsumerConfig
    warnings: tuple[Notice, ...] = ()
    membership: Mapping[str, str] = field(default_factory=dict, repr=False)


def load_consumer_config(
    properties: Iterable[Property], *, group: str | None = None, coordinated: bool = False
) -> LoadedConfig:
    """The settings that the properties give; of equal keys the last one wins. ``group``: the command line's.
    ``coordinated``: for a member of a group in Kafka, for which some keys have another meaning, or none.

    Raises ``UsageError``, with file, line, key and remedy, for values that cannot be read or contradict one another.
    """
    given: dict[str, Property] = {}
    kafka: dict[str, Property] = {}
    membership: dict[str, str] = {}
    warnings: list[Notice] = []
    for prop in properties:
        name = prop.key.removeprefix(KAFKA_PREFIX)
        if prop.key in BY_KEY:
            if prop.key == "group.id":
                _check_group(given.get(prop.key), prop.value, f"{prop.origin} group.id={one_line(prop.value)}")
            if BY_KEY[prop.key].is_ignored:
                warnings.append(Notice(f"{prop.origin}: {prop.key} has no effect: {BY_KEY[prop.key].doc}"))
            given[prop.key] = prop
        elif name == prop.key:
            warnings += unknown_keys([prop])
        elif coordinated and name in MEMBERSHIP:
            membership[name] = prop.value
        else:
            kafka[name] = prop
    values = {BY_KEY[key].field: _value(BY_KEY[key], prop.value) for key, prop in given.items()}
    if group is not None:
        if not group:
            raise UsageError("--group names no group", "give it a name, or leave it out to read without a group")
        _check_group(given.get("group.id"), group, f"--group {group}")
        values["group_id"] = group
    if coordinated:
        warnings += _check_coordinated(given, values)
    try:
        texts = {name: prop.value for name, prop in kafka.items()}
        config = ConsumerConfig(**values, kafka=texts, explicit=frozenset(given))
    except _BadValueError as error:
        places = given | {prop.key: prop for prop in kafka.values()}
        origin = next((f"{places[key].origin}: " for key in error.keys if key in places), "")
        raise UsageError(f"{origin}{error.message}", error.remedy) from None
    warnings += _unusual(config, given, waits_for_claims=not coordinated)
    return LoadedConfig(config, tuple(warnings), membership)


def _check_group(earlier: Property | None, group: str, named: str) -> None:
    if earlier is not None and earlier.value != group:
        raise UsageError(
            f"{earlier.origin}: group.id={one_line(earlier.value)} contradicts {named}", "remove one of the two"
        )


def _value(key: Setting, text: str) -> Any:
    """The value, or the text where it is none: ``ConsumerConfig`` refuses that."""
    if key.kind == "bool":
        return {"true": True, "false": False}.get(text, text)
    # Java's Integer.parseInt takes a sign and decimal digits, nothing else.
    return int(text) if key.kind == "int" and re.fullmatch(r"[+-]?[0-9]{1,10}", text, re.ASCII) else text


def _check_coordinated(given: Mapping[str, Property], values: Mapping[str, Any]) -> list[Notice]:
    """Raise for keys that keep offsets in ZooKeeper; warn of keys without a meaning for Kafka's coordinator."""
    for name, wrong in (("offsets.storage", "zookeeper"), ("dual.commit.enabled", True)):
        if name in given and values[BY_KEY[name].field] == wrong:
            raise UsageError(
                f"{given[name].origin}: {name}={given[name].value}, but members of a group in Kafka commit to Kafka "
                "alone",
                "remove it, or join with --coordinator zookeeper",
            )
    idle = [key for key, setting in BY_KEY.items() if setting.zookeeper_only and key in given]
    return [Notice(f"without effect on a member of a group in Kafka: {', '.join(idle)}")] if idle else []


def _unusual(config: ConsumerConfig, given: Mapping[str, Property], *, waits_for_claims: bool) -> list[Notice]:
    """Warnings of values that work otherwise than they seem to. ``waits_for_claims``: for a member in ZooKeeper."""
    warnings = []
    retry_time_ms = config.rebalance_max_retries * config.rebalance_backoff_ms
    tuned = [key for key in _RETRY_KEYS if key in given]
    if waits_for_claims and tuned and retry_time_ms < config.zookeeper_session_timeout_ms:
        what = (
            f"{given[tuned[0]].origin}: {tuned[0]} makes rebalance.max.retries × rebalance.backoff.ms "
            f"({retry_time_ms} ms) shorter than zookeeper.session.timeout.ms "
            f"({config.zookeeper_session_timeout_ms} ms): a rebalance may give up before a dead member's claims expire"
        )
        warnings.append(Notice(what))
    for name, prop in given.items():
        mapped = BY_KEY[name].librdkafka
        if mapped is not None and BY_KEY[name].kind == "int":
            taken = _for_librdkafka(BY_KEY[name], config)
            if taken != _wanted(BY_KEY[name], config):
                what = f"{prop.origin}: {name} becomes {mapped.name}={taken}, the nearest librdkafka takes"
                warnings.append(Notice(what))
    return warnings


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


def unknown_keys(properties: Iterable[Property]) -> list[Notice]:
    """A warning for each property that has no meaning here."""
    known = [one.key for one in SETTINGS if one.key]
    return [
        Notice(
            f"{prop.origin}: unknown key {name!r} is ignored",
            as_remedy(did_you_mean(name, known, "check its name")),
        )
        for prop in properties
        for name in (prop.key[:80],)
        if prop.key not in BY_KEY and not prop.key.startswith(KAFKA_PREFIX)
    ]
