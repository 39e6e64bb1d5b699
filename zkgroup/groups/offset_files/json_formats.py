"""Offset files in JSON: kafka-utils', Spark's, and the rows that zkgroup itself prints."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any, Final, NoReturn

from zkgroup.errors import UsageError
from zkgroup.groups.group_model import Cluster
from zkgroup.groups.offset_files.file_entries import ELSEWHERE, MAX_ENTRIES, Entries, FileFormat, Place, Wanted
from zkgroup.protocol.znodes import excerpt, excerpt_json

# Spark's startingOffsets (2.0 and later).
_SPARK_PLACES: Final[dict[int, Wanted]] = {-2: "earliest", -1: "latest"}
_ROW_OFFSETS: Final = ("offset", "target", "committed")
#: The cluster's id, and the creation of its ``/consumers``.
CLUSTER_KEYS: Final = ("cluster_id", "consumers_made")
# An offset takes one name where they are below their topics; some ten in a table's row.
_MAX_NAMES: Final = MAX_ENTRIES + 100_000
_MAX_NAMES_IN_ROWS: Final = 5 * MAX_ENTRIES


def read_json(text: str, entries: Entries, forced: FileFormat | None) -> FileFormat:
    """Read any of the forms; ``forced`` names the one that it must be. Returns which it was.

    kafka-utils: ``{"groupid": "g", "offsets": {"topic": {"0": 123}}}``, as kafka-consumer-manager's offset_save
    writes. Spark: ``{"topic": {"0": 123}}``, where −2 is the earliest offset and −1 the latest. Rows: a list of objects
    with ``topic``, ``partition`` and ``target`` or ``committed``, or an object that has such a list as ``partitions``.
    """
    value = parse_json(text, entries)
    if isinstance(value, list) and forced != "spark":
        _read_rows(entries, value, None, ())
        return "json"
    if not isinstance(value, dict):
        entries.fail((), "is JSON without offsets", ELSEWHERE)
    if "zkgroup_backup" in value:
        entries.fail((), "is a backup that a change of zkgroup has written", "put it back with --undo")
    if forced == "spark" or not _read_object(entries, value, is_forced=forced == "json"):
        _read_topics(entries, value, None, (), _SPARK_PLACES)
        return "spark"
    return "json"


def _read_object(entries: Entries, value: dict[str, Any], *, is_forced: bool) -> bool:
    """Read an object that is not Spark's; returns whether it is one."""
    rows, topics = value.get("partitions"), value.get("offsets")
    if isinstance(rows, list):
        _read_rows(entries, rows, _group(entries, value, "group"), ("partitions",))
    elif is_forced or isinstance(value.get("groupid"), str) or _has_topics(topics):
        if not isinstance(topics, dict):
            entries.fail((), 'has no object "offsets"', ELSEWHERE)
        _read_topics(entries, topics, _group(entries, value, "groupid"), ("offsets",), {})
        read_cluster(value, entries)
    else:
        return False
    return True


def read_cluster(value: Any, entries: Entries) -> None:
    """Read the cluster that an object names."""
    if not isinstance(value, dict):
        return
    cluster_id, made = (value.get(name) for name in CLUSTER_KEYS)
    czxid, ctime = (made.get(name) if isinstance(made, dict) else None for name in ("czxid", "ctime"))
    created = (czxid, ctime) if isinstance(czxid, int) and isinstance(ctime, int) else None
    if isinstance(cluster_id, str) or created is not None:
        entries.clusters.append(Cluster("", cluster_id if isinstance(cluster_id, str) else None, created))


def parse_json(text: str, entries: Entries) -> Any:
    """The document. Raises ``UsageError``; also for a name that comes twice in an object, which hides a value."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            (twice, _), *_ = Counter(name for name, _ in pairs).most_common(1)
            raise UsageError(f"{entries.name} has {excerpt(twice)} twice in one object", "keep one of the two")
        return found

    def refuse(name: str) -> NoReturn:
        raise UsageError(f"{entries.name} is no JSON: it has {name} for a number", ELSEWHERE)

    most = _MAX_NAMES_IN_ROWS if any(f'"{name}"' in text for name in _ROW_OFFSETS) else _MAX_NAMES
    for mark, what in ((":", "names"), (",", "values")):
        if text.count(mark) > most:  # before it is taken apart, which takes long, and some sixty bytes for each
            entries.refuse_many(most, what)
    try:
        return json.loads(text, object_pairs_hook=unique, parse_constant=refuse)
    except json.JSONDecodeError as error:
        entries.fail(error.lineno, f"is no JSON: {error.msg[:1].lower()}{error.msg[1:]} (character {error.colno})")
    except ValueError:  # int refuses thousands of digits
        raise UsageError(f"{entries.name} has a number that is no offset", ELSEWHERE) from None
    except RecursionError:
        raise UsageError(f"{entries.name} is nested too deeply to hold offsets", ELSEWHERE) from None


def _has_topics(offsets: Any) -> bool:
    """Whether these are topics with partitions, and not the partitions of a topic called ``offsets``."""
    return isinstance(offsets, dict) and any(isinstance(value, dict) for value in offsets.values())


def _group(entries: Entries, value: dict[str, Any], name: str) -> str | None:
    group = value.get(name)
    if group is not None and not isinstance(group, str):
        entries.fail((name,), f"{excerpt_json(group)} is no group")
    return group


def _read_topics(
    entries: Entries, topics: dict[str, Any], group: str | None, above: tuple[str, ...], places: dict[int, Wanted]
) -> None:
    for topic, partitions in topics.items():
        if not isinstance(partitions, dict):
            entries.fail(above, f"{excerpt(topic)} has {excerpt_json(partitions)}, no partitions with offsets")
        for partition, offset in partitions.items():
            place = (*above, topic, partition)
            key = entries.topic(place, topic), entries.partition(place, partition)
            named = places.get(offset) if type(offset) is int else None
            entries.add(place, group, *key, named or _offset(entries, place, offset))


def _read_rows(entries: Entries, rows: list[Any], group: str | None, above: tuple[str, ...]) -> None:
    for number, row in enumerate(rows):
        if not isinstance(row, dict):
            entries.fail((*above, number), f"{excerpt_json(row)} is no row with topic, partition and offset")
        owner = row.get("group")
        _add(entries, (*above, number), owner if isinstance(owner, str) else group, row)


def _add(entries: Entries, place: Place, group: str | None, row: dict[str, Any]) -> None:
    name = next((name for name in _ROW_OFFSETS if name in row), None)
    topic, partition = row.get("topic"), row.get("partition")
    if name is None or not isinstance(topic, str) or type(partition) not in (int, str):
        missing = "offset" if name is None else "partition" if isinstance(topic, str) else "topic"
        entries.fail(place, f"a row without {missing}", "rows have topic, partition, and offset, target or committed")
    key = entries.topic(place, topic), entries.partition(place, str(partition))
    entries.add(place, group, *key, _offset(entries, place, row[name]))


def _offset(entries: Entries, place: Place, value: Any) -> int | None:
    if value is None:
        return None
    if type(value) not in (int, str):
        entries.fail(place, f"{excerpt_json(value)} is no offset", "offsets are numbers from 0")
    return entries.offset(place, str(value), none=False)
