"""The formats of offset files: their entries, and a reader of each.

Lines have one offset each: ExportZkOffsets, KIP-122's CSV, rpk's columns, tables with a head. Blank lines, lines that
begin with ``#``, and the lines that Kafka's tools print around their tables are skipped. JSON is that of
kafka-utils, of Spark, and the rows that zkgroup itself prints.
"""

from __future__ import annotations

import csv
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, Literal, NoReturn, TypeAlias

from zkgroup.errors import UsageError
from zkgroup.groups.group_choices import FileFormat
from zkgroup.groups.group_model import Cluster
from zkgroup.protocol import znodes
from zkgroup.protocol.names import TopicPartition
from zkgroup.protocol.znodes import INT32_MAX, excerpt, excerpt_json
from zkgroup.text import listed, offset_text, with_formula

#: An offset, one of Spark's two places, or None where the file says that there is none.
Wanted: TypeAlias = int | Literal["earliest", "latest"] | None

#: The place of an entry: a line's number, or its names and indices in a JSON document.
Place: TypeAlias = int | tuple[str | int, ...]

_NUMBER = re.compile(r"\+?[0-9]{1,19}", re.ASCII)
_NONE = ("", "-", "null", "unknown")
_MAX_NUMBER: Final = 2**63 - 1

ELSEWHERE: Final = "see whether it is the right file"
#: Kafka's clusters on ZooKeeper have up to 200,000 partitions; a file may have several groups.
MAX_ENTRIES: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class OffsetFile:
    """Offsets by group; the group None fits any. ``clusters``: those that the file names."""

    name: str
    format: FileFormat
    groups: Mapping[str | None, Mapping[TopicPartition, Wanted]]
    clusters: tuple[Cluster, ...] = ()

    def offsets_of(self, group: str) -> Mapping[TopicPartition, Wanted]:
        """The offsets for ``group``. Raises ``UsageError`` where the file has only other groups."""
        found = self.groups.get(group, self.groups.get(None))
        if found is None:
            named = sorted(str(name) for name in self.groups)
            others = listed([excerpt(name) for name in named], most=3)
            raise UsageError(
                f"{self.name} has offsets of group {others}, not of {group}",
                f"say whose are meant: --from-group {named[0]}",
            )
        return found


class Entries:
    """The entries of one file while it is read. ``name`` is the file's."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.groups: dict[str | None, dict[TopicPartition, tuple[Wanted, Place]]] = {}
        self.clusters: list[Cluster] = []
        self._count = 0
        self._topics: set[str] = set()  # that were checked

    def refuse_many(self, most: int, what: str) -> NoReturn:
        """Refuse the file for its size."""
        raise UsageError(f"{self.name} has more than {most:,} {what}", ELSEWHERE)

    def fail(self, place: Place, why: str, remedy: str | None = None) -> NoReturn:
        """Refuse the file for an entry."""
        where = f", {_place_text(place)}" if place != () else ""
        raise UsageError(f"{self.name}{where}: {why}", remedy)

    def add(self, place: Place, group: str | None, topic: str, partition: int, offset: Wanted) -> None:
        """Add an entry. An equal one is accepted twice, another offset for the same partition is not."""
        self._count += 1
        if self._count > MAX_ENTRIES:
            self.refuse_many(MAX_ENTRIES, "offsets")
        key = TopicPartition(topic, partition)
        before, at = self.groups.setdefault(group, {}).setdefault(key, (offset, place))
        if before != offset:
            other = f"{offset_text(before)} in {_place_text(at)}"
            self.fail(place, f"{key} is to have offset {offset_text(offset)}, but {other}", "keep one of the two")

    def topic(self, place: Place, name: str) -> str:
        """Check a topic's name: one that a znode can have."""
        if name not in self._topics:
            try:
                znodes.offset_topic("group", name)
            except UsageError:
                self.fail(place, f"{excerpt(name)} cannot be a topic")
            self._topics.add(name)
        return name

    def partition(self, place: Place, text: str) -> int:
        """Parse a partition's number."""
        if not _NUMBER.fullmatch(text) or int(text) > INT32_MAX:
            self.fail(place, f"{excerpt(text)} is no partition", "partitions are numbers from 0")
        return int(text)

    def offset(self, place: Place, text: str, *, none: bool) -> int | None:
        """Parse an offset; with ``none``, an empty text, ``-``, ``null``, ``unknown`` and -1 are no offset."""
        if none and (text in _NONE or text == "-1"):
            return None
        if not _NUMBER.fullmatch(text) or int(text) > _MAX_NUMBER:
            self.fail(place, f"{excerpt(text)} is no offset", "offsets are numbers from 0")
        return int(text)

    def finished(self, form: FileFormat) -> OffsetFile:
        """All entries. Raises ``UsageError`` where there are none."""
        if not any(self.groups.values()):
            raise UsageError(f"{self.name} has no offsets", ELSEWHERE)
        groups = {
            group: {key: offset for key, (offset, _) in found.items()} for group, found in self.groups.items() if found
        }
        return OffsetFile(self.name, form, groups, tuple(self.clusters))


def _place_text(place: Place) -> str:
    if isinstance(place, int):
        return f"line {place}"
    return "$" + "".join(f"[{part}]" if isinstance(part, int) else f".{excerpt(part)[1:-1]}" for part in place)


# --- lines -----------------------------------------------------------------------------------------------------------

#: The columns that hold the offset, the best first: a plan is followed by its target.
OFFSET_COLUMNS: Final = ("offset", "target", "new-offset", "committed", "current-offset")
#: Of a file with an offset a line; some say nothing.
MAX_LINES: Final = 2 * MAX_ENTRIES
#: Characters: a table has some ten columns, and names have some 250 at most. Once split, each field takes fifty bytes.
MAX_LINE: Final = 1 << 16
_LINE: Final = re.compile(r"^.*$", re.MULTILINE)
_GROUP_COLUMNS: Final = ("group", "groupid", "group-name")
_PARTITION_COLUMNS: Final = ("partition", "pid")  # kafka.tools.ConsumerOffsetChecker says Pid
# What Kafka's tools (0.8 to 3.9) print before, in and behind their tables, their log included.
_AROUND: Final = re.compile(
    r"Note: This will (not|only) show information about .*"
    r"|(Warning: )?Consumer group '(?P<group>.*)' (has no active members|is rebalancing)\."
    r"|(Error: )?Could not fetch offset from zookeeper for group .* due to missing offset data in zookeeper\."
    r"|BROKER INFO|[0-9]+ -> \S+:[0-9]+"
    r"|\[[0-9 :,-]+\] (INFO|WARN|ERROR) .*|(log4j:(WARN|ERROR)|SLF4J:) .*"
)
# Kafka 0.7 and pykafka put the broker's id before the partition: 0-3.
_ZK_LINE: Final = re.compile(r"/(?:.*/)?consumers/([^/]+)/offsets/([^/]+)/(?:[0-9]+-)?([0-9]+):([^:/]*)", re.ASCII)
_ZK_REMEDY: Final = "lines are /consumers/GROUP/offsets/TOPIC/PARTITION:OFFSET"


@dataclass(frozen=True, slots=True)
class _Layout:
    """The fields of a line by their meaning. ``group`` is None where lines name no group."""

    width: int
    group: int | None
    topic: int
    partition: int
    offset: int
    head: tuple[str, ...] = ()


def first_line(text: str) -> str:
    """The first line with content, up to the longest line of offsets; empty without one."""
    return next(filter(None, map(_said, islice(_beginnings(text), MAX_LINES))), "")


def _lines_of(text: str, entries: Entries) -> Iterator[tuple[int, str]]:
    """The lines that say something, with their numbers from 1. None is taken apart that is longer than any can be."""
    for number, line in enumerate(_beginnings(text), 1):
        if len(line) > MAX_LINE:
            entries.fail(number, f"is longer than {MAX_LINE:,} characters", ELSEWHERE)
        if said := _said(line):
            yield number, said


def _beginnings(text: str) -> Iterator[str]:
    """The lines, one after the other, as far as one can be long, and a character more."""
    for match in _LINE.finditer(text):
        yield text[match.start() : min(match.end(), match.start() + MAX_LINE + 1)]


def _said(line: str) -> str:
    said = line.strip()
    return "" if said.startswith("#") or _AROUND.fullmatch(said) else said


def read_zk(text: str, entries: Entries) -> None:
    """``/consumers/G/offsets/T/P:123``, as kafka.tools.ExportZkOffsets (0.8.0 to 0.10.2) writes, below any chroot. An
    empty node, or -1, is no offset."""
    for number, line in _lines_of(text, entries):
        match = _ZK_LINE.fullmatch(line)
        if match is None:
            entries.fail(number, f"{excerpt(line)} is no offset of a group in ZooKeeper", _ZK_REMEDY)
        group, topic, partition, value = match.groups()
        offset = entries.offset(number, value.strip(), none=True)
        entries.add(number, group, entries.topic(number, topic), entries.partition(number, partition), offset)


def read_csv(text: str, entries: Entries) -> None:
    """``topic,partition,offset`` (KIP-122), ``group,topic,partition,offset`` (several groups: KIP-222), or a head line
    that names the columns, as zkgroup's own ``--output csv`` has it."""

    def split(number: int, line: str) -> list[str]:
        try:
            fields = next(csv.reader([line], strict=True, skipinitialspace=True))
            return [with_formula(field.strip()) for field in fields]
        except csv.Error as error:
            why = "a quote in it does not end, or text follows it" if '"' in line else str(error)
            entries.fail(number, f"{excerpt(line)} is no CSV: {why}")

    _read_fields(text, entries, split, "topic,partition,offset", {3, 4})


def read_columns(text: str, entries: Entries) -> None:
    """``TOPIC PARTITION OFFSET``, as ``rpk group seek --to-file`` takes it, or a table whose head names the columns."""
    _read_fields(text, entries, lambda _, line: line.split(), "TOPIC PARTITION OFFSET", {3})


def _read_fields(
    text: str, entries: Entries, split: Callable[[int, str], list[str]], form: str, widths: set[int]
) -> None:
    layout: _Layout | None = None
    # A table of Kafka's tool before 2.0 has no column for the group, and may have this line above it.
    around = (_AROUND.fullmatch(line.strip()) for line in islice(_beginnings(text), 10))
    named = next((match["group"] for match in around if match and match["group"]), None)
    for number, line in _lines_of(text, entries):
        fields = split(number, line)
        if layout is None:
            layout = _headed(number, fields, entries) or _headless(number, fields, entries, form, widths)
        names = _names(fields)
        if layout.head == names:
            continue
        if len(fields) != layout.width:
            entries.fail(number, f"{excerpt(line)} has {len(fields)} fields, not {layout.width}", f"lines are {form}")
        group = named if layout.group is None else fields[layout.group]
        topic = entries.topic(number, fields[layout.topic])
        partition = entries.partition(number, fields[layout.partition])
        offset = entries.offset(number, fields[layout.offset], none=bool(layout.head))
        entries.add(number, group, topic, partition, offset)


def _headed(number: int, fields: Sequence[str], entries: Entries) -> _Layout | None:
    """The layout that a head line describes, None where the line is none."""
    names = _names(fields)
    partition = next((names.index(name) for name in _PARTITION_COLUMNS if name in names), None)
    if "topic" not in names or partition is None:
        return None
    offset = next((names.index(name) for name in OFFSET_COLUMNS if name in names), None)
    if offset is None:
        entries.fail(number, "no column has offsets", f"name one of them {' or '.join(OFFSET_COLUMNS)}")
    group = next((names.index(name) for name in _GROUP_COLUMNS if name in names), None)
    return _Layout(len(names), group, names.index("topic"), partition, offset, names)


def _headless(number: int, fields: Sequence[str], entries: Entries, form: str, widths: set[int]) -> _Layout:
    if len(fields) not in widths:
        entries.fail(
            number,
            f"{len(fields)} fields, where {' or '.join(map(str, sorted(widths)))} are expected",
            f"lines are {form}",
        )
    first = len(fields) - 3
    return _Layout(len(fields), 0 if first else None, first, first + 1, first + 2)


def _names(fields: Sequence[str]) -> tuple[str, ...]:
    return tuple(field.lower().replace("_", "-").replace(" ", "-") for field in fields)


# --- JSON ------------------------------------------------------------------------------------------------------------

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


def read_cluster(value: dict[str, Any], entries: Entries) -> None:
    """Read the cluster that an object names."""
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
