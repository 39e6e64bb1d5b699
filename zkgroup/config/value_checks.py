"""What may be the value of a key, whether it was written in a file or given to ``ConsumerConfig``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from zkgroup.config.consumer_keys import BY_NAME, RESERVED, Key
from zkgroup.errors import UsageError

_NAME = re.compile(r"[A-Za-z0-9._-]*", re.ASCII)
_RELEASE = re.compile(r"[0-9]{1,4}(\.[0-9]{1,4}){1,3}", re.ASCII)
_INT32 = range(-(2**31), 2**31)

#: How the later consumer names them.
LATER_RESETS: Final = {"earliest": "smallest", "latest": "largest"}
_CHOICES: Final = {
    "auto.offset.reset": ("smallest", "largest"),
    "offsets.storage": ("zookeeper", "kafka"),
    "partition.assignment.strategy": ("range", "roundrobin"),
}


def complaint(key: Key, value: object) -> tuple[str, str] | None:
    """What is wrong with a value, and what to do about it; None if nothing is."""
    if key.kind == "bool":
        return None if isinstance(value, bool) else ("is neither true nor false", "write one of the two")
    if key.kind == "int":
        return _of_integer(key, value)
    if not isinstance(value, str):
        return "is no text", "give a string"
    if (allowed := _CHOICES.get(key.name)) is not None and value not in allowed:
        return "is unknown", f"use {' or '.join(allowed)}"
    if key.name == "zkgroup.kafka.version" and not _RELEASE.fullmatch(value):
        return "is no Kafka release", "write it like 0.8.2 or 1.1"
    if key.name in ("group.id", "consumer.id", "client.id") and (
        not _NAME.fullmatch(value) or (not value and key.name != "client.id")
    ):
        return "is not a legal name", "use letters, digits, '.', '_' and '-'"
    if key.name == "group.id" and value in (".", ".."):
        return "is not a legal name", "give another: it would be a relative path"
    return None


def _of_integer(key: Key, value: object) -> tuple[str, str] | None:
    if isinstance(value, bool) or not isinstance(value, int) or value not in _INT32:
        return "is no 32-bit integer", "give a whole number"
    return ("is too small", f"at least {key.lowest}") if value < key.lowest else None


def check_fields(values: Mapping[str, object]) -> None:
    """Check ``ConsumerConfig``'s fields, derived ones included. Raises UsageError, naming the field."""
    for key in BY_NAME.values():
        value = values[key.field]
        unset = value is None and key.name in ("consumer.id", "auto.offset.reset")
        unset = unset or (key.name == "group.id" and value == "")
        unset = unset or (key.name == "client.id" and value == values["group_id"])
        if not unset and (wrong := complaint(key, value)) is not None:
            shown = f"{str(value)[:80]!r} {wrong[0]}"
            raise UsageError(
                f"group_id: group name {shown}" if key.name == "group.id" else f"{key.field}={shown}", wrong[1]
            )
    wait, patience = values["fetch_wait_max_ms"], values["socket_timeout_ms"]
    assert isinstance(wait, int)
    assert isinstance(patience, int)
    if wait > patience:
        raise UsageError(
            f"fetch_wait_max_ms={wait} > socket_timeout_ms={patience}", "lower fetch_wait_max_ms or raise the other"
        )


def check_raw(properties: Mapping[str, str], mapped: Mapping[str, Key]) -> None:
    """Check ``ConsumerConfig.kafka``. ``mapped``: librdkafka's properties that fields decide already. No value is
    shown: it may be a secret."""
    for name, value in properties.items():
        if not isinstance(name, str) or not name or name in RESERVED:
            raise UsageError(f"kafka[{name!r}] cannot be set", RESERVED.get(name, "name the property"))
        if not isinstance(value, str):
            raise UsageError(f"kafka[{name!r}] is no text", "give a string, as librdkafka wants it")
        if name in mapped:
            raise UsageError(f"kafka[{name!r}] contradicts {mapped[name].field}", "set one of the two")
