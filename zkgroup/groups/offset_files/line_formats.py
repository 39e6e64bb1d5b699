"""Offset files with one offset a line: ExportZkOffsets, KIP-122's CSV, rpk's columns, tables with a head.

Blank lines, lines that begin with ``#``, and the lines that Kafka's tools print around their tables are skipped.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

from zkgroup.groups.offset_files.file_entries import ELSEWHERE, MAX_ENTRIES, Entries
from zkgroup.protocol.znodes import excerpt
from zkgroup.text import with_formula

#: The columns that hold the offset, the best first: a plan is followed by its target.
OFFSET_COLUMNS: Final = ("offset", "target", "new-offset", "committed", "current-offset")
#: Of a file with an offset a line; some say nothing.
MAX_LINES: Final = 2 * MAX_ENTRIES
#: Characters: a table has some ten columns, and names have some 250 at most. Once split, each field takes fifty bytes.
MAX_LINE: Final = 1 << 16
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
    for start, end in islice(_lines(text), MAX_LINES):
        if said := _said(text[start : min(end, start + MAX_LINE)]):
            return said
    return ""


def _lines_of(text: str, entries: Entries) -> Iterator[tuple[int, str]]:
    """The lines that say something, with their numbers from 1. None is taken apart that is longer than any can be."""
    for number, (start, end) in enumerate(_lines(text), 1):
        if end - start > MAX_LINE:
            entries.fail(number, f"is longer than {MAX_LINE:,} characters", ELSEWHERE)
        if said := _said(text[start:end]):
            yield number, said


def _lines(text: str) -> Iterator[tuple[int, int]]:
    """Where lines begin and end: all of them at once would be a copy of the text."""
    start = 0
    while (end := text.find("\n", start)) >= 0:
        yield start, end
        start = end + 1
    yield start, len(text)


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
    around = (
        _AROUND.fullmatch(text[start : min(end, start + MAX_LINE)].strip()) for start, end in islice(_lines(text), 10)
    )
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
