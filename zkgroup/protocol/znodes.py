"""The znodes of the registry: every path, and the content of members' nodes (brokers': ``broker_znodes``).

Paths are relative to the chroot. Layouts are those of Kafka 0.8.0 to 1.1.1 (``kafka.utils.ZkUtils``); written nodes
have the content that the Scala consumer of 1.1.1 writes. Every ``decode_*`` takes the znode's path (for messages) and
its data, and raises nothing but MalformedZnodeError.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple

import orjson

from zkgroup.errors import MalformedZnodeError, UsageError
from zkgroup.protocol.names import TopicPartition

# --- paths ----------------------------------------------------------------------------------------------------------

#: What ZooKeeper's ``PathUtils.validatePath`` refuses in a path; beyond U+FFFF Java sees surrogates, refused as well.
_REFUSED = re.compile("[/\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff\U00010000-\U0010ffff]")


def child(parent: str, name: str) -> str:
    """The path of ``name`` below ``parent``; UsageError for a name that ZooKeeper refuses or that would leave it."""
    if not name or name in (".", "..") or _REFUSED.search(name):
        raise UsageError(
            f"{excerpt(name)} cannot be the name of a znode",
            "no '/', no control characters, not empty, not '.' or '..'",
        )
    return f"{parent}/{name}"


def consumers() -> str:
    """Below it, one node a group."""
    return "/consumers"


def group(group_id: str) -> str:
    return child("/consumers", group_id)


def ids(group_id: str) -> str:
    """Below it, one ephemeral node a registered member."""
    return group(group_id) + "/ids"


def member_id(group_id: str, consumer_id: str) -> str:
    return child(ids(group_id), consumer_id)


def owners(group_id: str) -> str:
    return group(group_id) + "/owners"


def owner_topic(group_id: str, topic_name: str) -> str:
    return child(owners(group_id), topic_name)


def owner(group_id: str, partition: TopicPartition) -> str:
    """The ephemeral node that names the partition's owner."""
    return f"{owner_topic(group_id, partition.topic)}/{_number(partition.partition)}"


def offsets(group_id: str) -> str:
    return group(group_id) + "/offsets"


def offset_topic(group_id: str, topic_name: str) -> str:
    return child(offsets(group_id), topic_name)


def offset(group_id: str, partition: TopicPartition) -> str:
    """The node of the group's next offset to read."""
    return f"{offset_topic(group_id, partition.topic)}/{_number(partition.partition)}"


def offset_paths(group_id: str, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, str]:
    """``offset`` of many partitions, in their order; names are checked once a topic."""
    parents: dict[str, str] = {}
    paths = {}
    for partition in partitions:
        parent = parents.get(partition.topic)
        if parent is None:
            parent = parents[partition.topic] = offset_topic(group_id, partition.topic)
        paths[partition] = f"{parent}/{_number(partition.partition)}"
    return paths


def broker_ids() -> str:
    return "/brokers/ids"


def broker(broker_id: int) -> str:
    return f"/brokers/ids/{_number(broker_id)}"


def topics() -> str:
    return "/brokers/topics"


def topic(topic_name: str) -> str:
    return child("/brokers/topics", topic_name)


def partition_state(partition: TopicPartition) -> str:
    return f"{topic(partition.topic)}/partitions/{_number(partition.partition)}/state"


def controller() -> str:
    return "/controller"


def delete_topics() -> str:
    """Below it, one node a topic that is marked for deletion."""
    return "/admin/delete_topics"


def export_state(group_id: str) -> str:
    """Below it, the state of a running export of the group. zkgroup's own: no Scala consumer reads it."""
    return group(group_id) + "/zkgroup/export"


def export_lock(group_id: str) -> str:
    """Ephemeral: the group's one running export."""
    return export_state(group_id) + "/lock"


def _number(number: int) -> int:
    if number < 0:
        raise UsageError(f"{number} is no partition and no broker id", "they are 0 or more")
    return number


# --- JSON of other clients ------------------------------------------------------------------------------------------
# orjson refuses invalid UTF-8, NaN, nesting beyond 1,024 levels and numbers out of all bounds, with one kind of error.

#: ZooKeeper itself refuses larger ones by default (``jute.maxbuffer``).
MAX_BYTES: Final = 1024 * 1024

INT32_MAX: Final = 2**31 - 1


def excerpt(text: object) -> str:
    """A short quote of foreign text: one line, at most 40 characters."""
    try:
        shown = repr(text[:41] if isinstance(text, str | bytes) else text)
    except RecursionError:
        shown = "[[[..."
    return shown if len(shown) <= 40 else shown[:37] + "..."


def excerpt_json(value: object) -> str:
    """A short quote of a JSON value."""
    try:
        shown = orjson.dumps(value).decode()
    except orjson.JSONEncodeError:  # lone surrogates
        return excerpt(value)
    return shown if len(shown) <= 40 else shown[:37] + "..."


def parse_object(path: str, data: bytes | None, remedy: str | None = None) -> dict[str, Any]:
    """Parse a znode's data as a JSON object, else raise MalformedZnodeError."""
    if not data:
        raise MalformedZnodeError(path, "is empty, not JSON", remedy)
    check_size(path, data, remedy)
    try:
        parsed = orjson.loads(data)
    except orjson.JSONDecodeError:
        why = f"is no JSON: starts with {excerpt(data[:41].decode(errors='replace'))}"
        raise MalformedZnodeError(path, why, remedy) from None
    if not isinstance(parsed, dict):
        raise MalformedZnodeError(path, "is JSON, but no object", remedy)
    return parsed


def check_size(path: str, data: bytes, remedy: str | None = None) -> None:
    """Raise MalformedZnodeError where the data is larger than 1 MiB."""
    if len(data) > MAX_BYTES:
        raise MalformedZnodeError(path, f"has {len(data)} bytes, more than 1 MiB", remedy)


def as_int(value: object, low: int = -(2**31), high: int = INT32_MAX) -> int | None:
    """The value if it is an integer (no boolean, no fraction) within the bounds, else None."""
    if isinstance(value, int) and not isinstance(value, bool) and low <= value <= high:
        return value
    return None


def has_other_numbers(parsed: dict[str, Any]) -> bool:
    """Whether a number is no 32-bit integer: Scala's parser, as Kafka up to 0.11 uses it, then fails as a whole."""
    waiting: list[object] = [parsed]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            waiting.extend(value.values())
        elif isinstance(value, list):
            waiting.extend(value)
        elif isinstance(value, int | float) and not isinstance(value, bool) and as_int(value) is None:
            return True
    return False


# --- registrations --------------------------------------------------------------------------------------------------

FilterKind = Literal["white_list", "black_list"]
Pattern = Literal["static", FilterKind]
_PATTERNS: Final[dict[str, Pattern]] = {
    "static": "static",
    "white_list": "white_list",
    "black_list": "black_list",
}
_STOPS_THE_GROUP: Final = "Scala consumers cannot rebalance until this node goes: stop the client that wrote it"


class RegistrationDefect(NamedTuple):
    """What is wrong with a registration that can be read, as a short phrase. ``effect``: members of some releases
    cannot rebalance, or readers take other topics than are meant; None where it does no harm."""

    text: str
    effect: Literal["stops-releases", "changes-meaning"] | None = None


#: Defects that members of the Scala consumer write themselves.
UNESCAPED: Final = RegistrationDefect("backslashes are not escaped (0.8.0 and 0.8.1 write so)")
ESCAPED_TWICE: Final = RegistrationDefect("backslashes are escaped twice (1.0.1 to 1.1.1 write so)")
#: Defects that only other clients write.
SEVERAL_EXPRESSIONS: Final = RegistrationDefect(
    "a filter of several expressions, of which members read one", "changes-meaning"
)
OTHER_NUMBERS: Final = RegistrationDefect(
    "a number that is no 32-bit integer: members up to 0.11 cannot rebalance", "stops-releases"
)
NUMERIC_TIMESTAMP: Final = RegistrationDefect("timestamp is a number, not a string")
_NO_EXPRESSION: Final = RegistrationDefect(
    "a filter without an expression, which everyone reads as a subscription to nothing", "changes-meaning"
)
_CONTROL_CHARACTER: Final = RegistrationDefect(
    "a control character in the expression, where a backslash was not escaped", "changes-meaning"
)
_NULL_PATTERN: Final = RegistrationDefect(
    "pattern is null: members from 1.0 on cannot rebalance, older ones read it as static", "stops-releases"
)


@dataclass(frozen=True, slots=True)
class Registration:
    """A member's registration: topics (or, for a filter, its one expression), each with a number of streams.

    ``timestamp`` is in milliseconds since 1970. ``version`` is ignored by every reader.
    """

    pattern: Pattern
    subscription: Mapping[str, int]
    timestamp: int | None = None
    version: int | None = 1


def encode_registration(registration: Registration) -> bytes:
    """The id node's data, byte for byte as 1.1.1 writes it, but for backslashes: those are escaped once, not twice.

    Raises ValueError for a registration that would stop the whole group: no streams, or a filter without its one
    expression; also without a timestamp.
    """
    if registration.pattern != "static" and len(registration.subscription) != 1:
        raise ValueError("a filter is registered as one expression")
    if registration.timestamp is None:
        raise ValueError("a registration is written with its timestamp")
    for streams in registration.subscription.values():
        if as_int(streams, low=1) is None:
            raise ValueError(f"{streams} streams")
    return orjson.dumps(
        {
            "version": 1,
            "subscription": dict(registration.subscription),
            "pattern": registration.pattern,
            # A string: a number of this size breaks every Scala consumer up to 0.11.
            "timestamp": str(registration.timestamp),
        }
    )


def decode_registration(path: str, data: bytes | None) -> Registration:
    """Read an id node as the Scala consumer does: an unknown pattern is static, of a filter's keys the first counts.

    Raises MalformedZnodeError for a node that stops every Scala consumer of the group.
    """
    return _read_registration(path, data)[0]


def registration_defects(data: bytes | None) -> tuple[RegistrationDefect, ...]:
    """The defects of an id node's data; raises nothing."""
    try:
        return tuple(_read_registration("", data)[1])
    except MalformedZnodeError as error:
        return (RegistrationDefect(error.why),)


# Kafka 0.7 registers a filter so: its kind, its streams, the kind again, its expression.
_OLD_FILTER: Final = re.compile(r"([*!])([1-9][0-9]{0,5})\1(.+)", re.DOTALL)


def decode_foreign_registration(data: bytes, existing: Collection[str]) -> Registration | None:
    """Another client's meaning of an id node that the Scala consumer cannot read, or reads otherwise. None where the
    node does not name the topics: a bare name that no topic has may as well be the member's.

    Kafka 0.7 and Microsoft's C# client write ``{ "orders": 1 }``, for filters ``*1*EXPRESSION`` or ``!1!EXPRESSION``;
    pykafka writes the topic's bare name; kafka-node, kazoo-go and kafka-php write a white list of several topics;
    poseidon_cluster writes ``{}``.
    """
    try:
        text = data.decode("utf-8")
        if (old := _OLD_FILTER.fullmatch(text)) is not None:
            return Registration("white_list" if old[1] == "*" else "black_list", {old[3]: int(old[2])}, version=None)
        parsed = parse_object("", data)
    except UnicodeDecodeError:
        return None
    except MalformedZnodeError:
        return Registration("static", {text: 1}, version=None) if text in existing else None
    topics = parsed.get("subscription", parsed)
    if not isinstance(topics, dict) or not topics or any(as_int(n, low=1) is None for n in topics.values()):
        return None
    if topics is parsed and not any(name in existing for name in topics):
        return None
    return Registration("static", topics, version=None)


def _read_registration(path: str, data: bytes | None) -> tuple[Registration, list[RegistrationDefect]]:
    defects: list[RegistrationDefect] = []
    parsed = _parse_leniently(path, data, defects)
    pattern = _pattern(path, parsed, defects)
    subscription = parsed.get("subscription")
    if not isinstance(subscription, dict):
        raise MalformedZnodeError(path, "has no subscription", _STOPS_THE_GROUP)
    for name, streams in subscription.items():
        if as_int(streams, low=1) is None:
            why = f"subscribes to {excerpt(name)} with {excerpt_json(streams)} streams"
            raise MalformedZnodeError(path, why, _STOPS_THE_GROUP)
    if pattern != "static":
        if not subscription:
            defects.append(_NO_EXPRESSION)
            pattern = "static"
        elif len(subscription) > 1:
            defects.append(SEVERAL_EXPRESSIONS)
            subscription = dict([next(iter(subscription.items()))])
        defects += _expression_defects(next(iter(subscription), ""))
    version = as_int(parsed.get("version"))
    if version != 1:
        defects.append(RegistrationDefect("version is not 1"))
    timestamp = _timestamp(parsed, defects)
    if has_other_numbers(parsed):
        defects.append(OTHER_NUMBERS)
    return Registration(pattern, subscription, timestamp, version), defects


def _pattern(path: str, parsed: dict[str, Any], defects: list[RegistrationDefect]) -> Pattern:
    written = parsed.get("pattern")
    if isinstance(written, str) and written in _PATTERNS:
        return _PATTERNS[written]
    if isinstance(written, str):
        defects.append(RegistrationDefect(f"unknown pattern {excerpt(written)}, which everyone reads as static"))
    elif "pattern" in parsed and written is None:
        defects.append(_NULL_PATTERN)
    else:
        raise MalformedZnodeError(path, "has no pattern", _STOPS_THE_GROUP)
    return "static"


def _parse_leniently(path: str, data: bytes | None, defects: list[RegistrationDefect]) -> dict[str, Any]:
    try:
        return parse_object(path, data, _STOPS_THE_GROUP)
    except MalformedZnodeError:
        if not data or b"\\" not in data:
            raise
        try:
            parsed = parse_object(path, data.replace(b"\\", b"\\\\"), _STOPS_THE_GROUP)
        except MalformedZnodeError:
            parsed = None
        if parsed is None:
            raise
    defects.append(UNESCAPED)
    return parsed


def is_escaped_twice(expression: str) -> bool:
    """Whether a filter's expression matches a backslash, which no topic's name contains."""
    return "\\\\" in expression


def _expression_defects(expression: str) -> Iterator[RegistrationDefect]:
    if is_escaped_twice(expression):
        yield ESCAPED_TWICE
    if any(character < " " for character in expression):
        yield _CONTROL_CHARACTER


def _timestamp(parsed: dict[str, Any], defects: list[RegistrationDefect]) -> int | None:
    written = parsed.get("timestamp")
    if written is None:
        defects.append(RegistrationDefect("no timestamp"))
        return None
    if isinstance(written, str) and re.fullmatch(r"-?[0-9]{1,19}", written.strip(), re.ASCII):
        return int(written)
    number = as_int(written, -(2**63), 2**63 - 1)
    defects.append(NUMERIC_TIMESTAMP if number is not None else RegistrationDefect("timestamp is no time"))
    return number


# --- offsets --------------------------------------------------------------------------------------------------------

_OFFSET = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)
_OFFSET_REMEDY: Final = "set the offset again, or delete the node to start without one"


def encode_offset(next_offset: int) -> bytes:
    """The offset node's data: the next offset to read, in decimal. Raises ValueError for a negative one."""
    if not 0 <= next_offset < 2**63:
        raise ValueError(f"{next_offset} is no offset")
    return b"%d" % next_offset


def decode_offset(path: str, data: bytes | None) -> int | None:
    """The next offset to read; None for a negative number, with which members start as without an offset (−1; Flink 0.8
    wrote −915623761776). Blanks around the number are ignored."""
    check_size(path, data or b"", _OFFSET_REMEDY)
    text = (data or b"").decode("utf-8", "replace").strip()
    if not text:
        raise MalformedZnodeError(path, "is empty, not an offset", _OFFSET_REMEDY)
    if not _OFFSET.fullmatch(text) or not -(2**63) <= int(text) < 2**63:
        raise MalformedZnodeError(path, f"{excerpt(text)} is no offset", _OFFSET_REMEDY)
    value = int(text)
    return value if value >= 0 else None
