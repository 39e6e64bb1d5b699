"""Offset files in JSON: kafka-utils', Spark's, Burrow's, and the rows that zkgroup itself prints.

Python's parser, not orjson: it shows names that come twice in an object, of which others would hide all but one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Final, NoReturn, TypeGuard

import orjson

from zkgroup.errors import UsageError
from zkgroup.groups.group_model import Cluster
from zkgroup.groups.offset_files.file_entries import ELSEWHERE, MAX_ENTRIES, Entries, FileFormat, Place, Wanted
from zkgroup.protocol.znode_json import excerpt

# Spark's startingOffsets (2.0 and later).
_SPARK_PLACES: Final[dict[str, Wanted]] = {"-2": "earliest", "-1": "latest"}
_ROW_OFFSETS: Final = ("offset", "target", "committed")
#: As in backups.
CLUSTER_KEYS: Final = ("cluster_id", "consumers_made")
_LARGE: Final = 1 << 20
# An offset takes one name where they are below their topics; some ten in a table's row, some fifty in Burrow's answers.
_MAX_NAMES: Final = MAX_ENTRIES + 100_000
_MAX_NAMES_IN_ROWS: Final = 5 * MAX_ENTRIES
_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s"{}\[\],:]+', re.DOTALL)


class _Object(list[tuple[str, Any]]):
    """A JSON object as its pairs, repeated names included."""

    def find(self, name: str) -> tuple[int, Any]:
        """The number of the pair with that name, and its value; (−1, None) without one."""
        return next(((index, value) for index, (key, value) in enumerate(self) if key == name), (-1, None))


class _Other(str):
    """A number that is no integer, as written."""

    __slots__ = ()


def line_of(text: str, place: Place) -> int:
    """The line on which a child of a JSON document begins; ``text`` is known to be JSON."""
    if isinstance(place, int):
        return place
    here: list[int] = []  # in every open container, the number of the child that is being read
    for match in _TOKEN.finditer(text):
        token = match[0]
        if token in ("}", "]"):
            here.pop()
        elif token == ",":
            here[-1] += 1
        elif token != ":":
            if tuple(here) == place:
                return text.count("\n", 0, match.start()) + 1
            if token in ("{", "["):
                here.append(0)
    return 1


def read_json(text: str, entries: Entries, forced: FileFormat | None) -> FileFormat:
    """Read any of the forms; ``forced`` names the one that it must be. Returns which it was.

    kafka-utils: ``{"groupid": "g", "offsets": {"topic": {"0": 123}}}``, as kafka-consumer-manager's offset_save
    writes. Spark: ``{"topic": {"0": 123}}``, where −2 is the earliest offset and −1 the latest. Rows: a list of objects
    with ``topic``, ``partition`` and ``target`` or ``committed``, or an object that has such a list as ``partitions``.
    Burrow (1.0 and later): what ``/v3/kafka/CLUSTER/consumer/GROUP`` answers, and ``…/status`` and ``…/lag`` below it.
    """
    value = _parse(text, entries)
    if isinstance(value, _Object) and value.find("zkgroup_backup")[0] >= 0:
        entries.fail((), "is a backup that a change of zkgroup has written", "put it back with --undo")
    if forced != "spark":
        if _is_list(value):
            _read_rows(entries, value, None, ())
            return "json"
        if isinstance(value, _Object):
            index, rows = value.find("partitions")
            if _is_list(rows):
                _read_rows(entries, rows, _group(entries, value, "group"), (index,))
                return "json"
            if _is_burrow(value):
                _read_burrow(entries, value)
                return "json"
            index, topics = value.find("offsets")
            if forced == "json" or _is_text(value.find("groupid")[1]) or _has_topics(topics):
                if not isinstance(topics, _Object):
                    entries.fail((), 'has no object "offsets"', ELSEWHERE)
                _read_topics(entries, topics, _group(entries, value, "groupid"), (index,), {})
                _read_cluster(entries, value)
                return "json"
    if not isinstance(value, _Object):
        entries.fail((), "is JSON without offsets", ELSEWHERE)
    _read_topics(entries, value, None, (), _SPARK_PLACES)
    return "spark"


def read_cluster(text: str, entries: Entries) -> None:
    """Read the cluster that the file names in the one object that is ``text``."""
    value = _parse(text, entries)
    if isinstance(value, _Object):
        _read_cluster(entries, value)


def _read_cluster(entries: Entries, value: _Object) -> None:
    cluster_id, made = (value.find(name)[1] for name in CLUSTER_KEYS)
    numbers = [number for name, number in made if name in ("czxid", "ctime")] if isinstance(made, _Object) else []
    pair = [int(number) for number in numbers if isinstance(number, _Integer) and len(number) < 20]
    if _is_text(cluster_id) or len(pair) == 2:
        entries.clusters.append(
            Cluster("", cluster_id if _is_text(cluster_id) else None, (pair[0], pair[1]) if len(pair) == 2 else None)
        )


def _is_burrow(value: _Object) -> bool:
    names = [name for name, _ in value]
    return names[:2] == ["error", "message"] and ("status" in names or "topics" in names)


def _read_burrow(entries: Entries, value: _Object) -> None:
    """Read the newest commit of each partition."""
    above, status = value.find("status")
    if isinstance(status, _Object):
        index, rows = status.find("partitions")
        found = rows if _is_list(rows) else []
        group = _group(entries, status, "group")
        for number, row in enumerate(found):
            place: Place = (above, index, number)
            end = row.find("end")[1] if isinstance(row, _Object) else None
            if isinstance(end, _Object):
                topic, partition = row.find("topic")[1], row.find("partition")[1]
                _add_burrow(entries, place, group, topic, partition, end)
        return
    for place, topic, partition, commits in _burrow_topics(value):
        seen = [commit for commit in commits if isinstance(commit, _Object)]
        if seen:
            _add_burrow(entries, place, None, topic, _Integer(partition), seen[-1])


def _burrow_topics(value: _Object) -> Iterator[tuple[Place, str, int, list[Any]]]:
    above, topics = value.find("topics")
    for number, (topic, partitions) in enumerate(topics if isinstance(topics, _Object) else []):
        for partition, one in enumerate(partitions if _is_list(partitions) else []):
            commits = one.find("offsets")[1] if isinstance(one, _Object) else None
            if isinstance(commits, list) and _is_list(commits):
                yield (above, number, partition), topic, partition, commits


def _add_burrow(entries: Entries, place: Place, group: str | None, topic: Any, partition: Any, commit: _Object) -> None:
    if not _is_text(topic) or not isinstance(partition, _Integer):
        entries.fail(place, "a partition of Burrow's without topic or number", ELSEWHERE)
    key = entries.topic(place, topic), entries.partition(place, partition)
    entries.add(place, group, *key, _offset(entries, place, commit.find("offset")[1]))


def _parse(text: str, entries: Entries) -> Any:
    def refuse(name: str) -> NoReturn:
        raise UsageError(f"{entries.name} is no JSON: it has {name} for a number", ELSEWHERE)

    most = _MAX_NAMES_IN_ROWS if any(f'"{name}"' in text for name in _ROW_OFFSETS) else _MAX_NAMES
    for mark, what in ((":", "names"), (",", "values")):
        if text.count(mark) > most:  # before it is taken apart, which takes long, and some sixty bytes for each
            entries.refuse_many(most, what)
    if len(text) > _LARGE:  # a large file that ends too early is refused at once
        try:
            orjson.loads(text)
        except orjson.JSONDecodeError as error:
            entries.fail(error.lineno, f"is no JSON, or ends too early (character {error.colno})")
        except UnicodeEncodeError:
            pass  # half a character: no name can have it: refused below
    try:
        # As written: neither bounds of numbers nor their digits are the parser's business.
        return json.loads(
            text, object_pairs_hook=_Object, parse_int=_Integer, parse_float=_Other, parse_constant=refuse
        )
    except json.JSONDecodeError as error:
        entries.fail(error.lineno, f"is no JSON: {error.msg[:1].lower()}{error.msg[1:]} (character {error.colno})")
    except RecursionError:
        raise UsageError(f"{entries.name} is nested too deeply to hold offsets", ELSEWHERE) from None


class _Integer(str):
    """An integer, as it is written."""

    __slots__ = ()


def _is_list(value: Any) -> bool:
    return isinstance(value, list) and not isinstance(value, _Object)


def _is_text(value: Any) -> TypeGuard[str]:
    return isinstance(value, str) and not isinstance(value, _Integer | _Other)


def _has_topics(offsets: Any) -> bool:
    """Whether these are topics with partitions, and not the partitions of a topic called ``offsets``."""
    return isinstance(offsets, _Object) and any(isinstance(value, _Object) for _, value in offsets)


def _group(entries: Entries, value: _Object, name: str) -> str | None:
    index, group = value.find(name)
    if group is not None and not _is_text(group):
        entries.fail((index,), f"{_shown(group)} is no group")
    return group


def _read_topics(
    entries: Entries, topics: _Object, group: str | None, above: tuple[int, ...], places: dict[str, Wanted]
) -> None:
    for number, (topic, partitions) in enumerate(topics):
        if not isinstance(partitions, _Object):
            entries.fail((*above, number), f"{excerpt(topic)} has {_shown(partitions)}, no partitions with offsets")
        for index, (partition, offset) in enumerate(partitions):
            place = (*above, number, index)
            key = entries.topic(place, topic), entries.partition(place, partition)
            written = isinstance(offset, _Integer) and places.get(offset)
            entries.add(place, group, *key, written or _offset(entries, place, offset))


def _read_rows(entries: Entries, rows: list[Any], group: str | None, above: tuple[int, ...]) -> None:
    for number, row in enumerate(rows):
        place = (*above, number)
        if not isinstance(row, _Object):
            entries.fail(place, f"{_shown(row)} is no row with topic, partition and offset")
        fields = dict(row)
        name = next((name for name in _ROW_OFFSETS if name in fields), None)
        topic, partition, owner = fields.get("topic"), fields.get("partition"), fields.get("group")
        if name is None or not _is_text(topic) or not isinstance(partition, str):
            missing = "offset" if name is None else "partition" if _is_text(topic) else "topic"
            entries.fail(
                place, f"a row without {missing}", "rows have topic, partition, and offset, target or committed"
            )
        key = entries.topic(place, topic), entries.partition(place, partition)
        entries.add(place, owner if _is_text(owner) else group, *key, _offset(entries, place, fields[name]))


def _offset(entries: Entries, place: Place, value: Any) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, str) or isinstance(value, _Other):
        entries.fail(place, f"{_shown(value)} is no offset", "offsets are numbers from 0")
    return entries.offset(place, value, none=False)


def _shown(value: Any) -> str:
    """A foreign value for messages."""
    if isinstance(value, _Integer | _Other):
        return str(value)[:40]
    if isinstance(value, str):
        return excerpt(value)
    if isinstance(value, list):
        return "an object" if isinstance(value, _Object) else "a list"
    return "null" if value is None else str(value).lower()
