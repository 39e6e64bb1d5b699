"""How a destination is laid out: format, folders, time zone, columns. A destination has one layout, from its first
run on.

Folders are Hive's: ``topic=T``, then as chosen ``partition=P``, ``date=YYYY-MM-DD``, ``hour=H``. Date and hour are
those of a message's timestamp on a clock in the layout's time zone, as SQL's ``date()`` and ``hour()`` compute them:
a day may have 23 or 25 hours, and the hour that a clock strikes twice is one folder with two hours of messages. Hours
have no leading zero, or DuckDB would read them as text. A message without a timestamp, or with one that no calendar
has, goes to ``date=0001-01-01``, ``hour=-1``: values that no message has otherwise, of the types that readers guess for
the other folders. (Hive's null makes pyarrow 25 and pandas 3 fail: on a column of nothing else, "No non-null segments
were available", and with dates, "Cannot yet unify dictionaries with nulls".)

A file's name has its offsets: ``START-END.parquet``, with the partition before it (``P.START-END``) where that is no
folder. Where a file has more than one range, ``+N.RUN`` follows: so many more, which the run's record and the
file's footer list. ``.gTAG`` marks a later incarnation of a topic. Offsets of a name are those of the range, or, in
folders of times, from the first row on to behind the last one.

Tables (``--format delta``) have a folder a topic, and in it the same folders; their columns are the table's partition
columns. ``+N.RUN`` is in each name there: a table that was rolled back gets the same ranges again.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Final, Literal, NamedTuple, TypeAlias
from zoneinfo import ZoneInfo

from zkgroup.clients.kafka.message_contents import END_OF_TIME, FieldFormat
from zkgroup.errors import RefusedError, UsageError
from zkgroup.export.model.address import Address
from zkgroup.export.model.choices import TableKind
from zkgroup.export.model.plan_types import Slice
from zkgroup.schemas.field_schema import SCHEMA_FORMATS

Part = Literal["partition", "date", "hour"]
PARTS: Final[tuple[Part, ...]] = ("partition", "date", "hour")

#: Date and hour of messages without a usable time.
NO_DATE: Final = "0001-01-01"
NO_HOUR: Final = "-1"
#: Of Iceberg tables, where none is named.
NAMESPACE: Final = "kafka"
#: Days or hours since 1970 on the zone's clock; None: no usable timestamp.
Period: TypeAlias = int | None

_DAY, _HOUR, _QUARTER = 86_400, 3_600, 900
_CACHED: Final = 100_000
_NUMBER = re.compile(r"[0-9]{1,10}", re.ASCII)
_NAME = re.compile(
    r"(?:([0-9]{1,10})\.)?([0-9]{1,19})-([0-9]{1,19})(?:\+([0-9]{1,19})\.([0-9]{8,}-[0-9a-f]{8}))?"
    r"(?:\.g([0-9a-f]+))?\.parquet",
    re.ASCII,
)


@dataclass(frozen=True, slots=True)
class Layout:
    """``by``: what is a folder besides the topic, in the order of ``PARTS``. ``zone``: an IANA name. ``catalog``: of
    Iceberg tables, ``NAME`` or ``NAME.NAMESPACE``; empty for the destination's own."""

    by: tuple[Part, ...] = ("partition",)
    zone: str = "UTC"
    key: FieldFormat = "bytes"
    value: FieldFormat = "bytes"
    format: TableKind = "parquet"
    catalog: str = ""

    @property
    def catalog_name(self) -> str:
        """Of Iceberg's catalog, as pyiceberg's configuration has it; empty: the destination's own."""
        return self.catalog.partition(".")[0]

    @property
    def namespace(self) -> str:
        """Of Iceberg tables."""
        return self.catalog.partition(".")[2] or NAMESPACE

    @property
    def has_tables(self) -> bool:
        """Whether each topic is a table of its own."""
        return self.format != "parquet"

    def table(self, topic: str, uri: str) -> str | None:
        """What a reader opens for a topic's table: NAMESPACE.NAME, or a place in the destination ``uri``. None for
        plain Parquet."""
        if self.format == "iceberg":
            return f"{self.namespace}.{table_name(topic)}"
        return f"{uri}/{topic}" if self.has_tables else None

    @property
    def is_timed(self) -> bool:
        """Whether messages are dealt out by their times."""
        return "date" in self.by

    def calendar(self) -> Calendar:
        """For ``is_timed`` layouts."""
        return Calendar(self.zone, hours="hour" in self.by)

    def folder(self, topic: str, partition: int, period: Period) -> str:
        """Where a message goes."""
        parts = [*([topic] if self.has_tables else []), f"topic={topic}"]
        if "partition" in self.by:
            parts.append(f"partition={partition}")
        if self.is_timed:
            day = period if period is None or "hour" not in self.by else period // 24
            parts.append(f"date={NO_DATE if day is None else day_name(day)}")
        if "hour" in self.by:
            parts.append(f"hour={NO_HOUR if period is None else period % 24}")
        return "/".join(parts)

    def name(self, slices: Sequence[Slice], run: str, tag: str | None) -> str:
        """Of a file with these slices, in its folder."""
        first = slices[0]
        head = f"{first.start}-{first.end}"
        if "partition" not in self.by:
            head = f"{first.partition}.{head}"
        more = f"+{len(slices) - 1}.{run}" if len(slices) > 1 or self.has_tables else ""
        return f"{head}{more}{f'.g{tag}' if tag else ''}.parquet"

    def period_of_folder(self, name: str) -> Period:
        """That of a file's folder, by its name. Raises ``ValueError`` where the name has none."""
        found = dict(part.split("=", 1) for part in name.split("/")[:-1] if "=" in part)
        if found.get("date", NO_DATE) == NO_DATE:
            return None
        day = (datetime.date.fromisoformat(found["date"]) - _EPOCH).days
        return day * 24 + int(found.get("hour", "")) if "hour" in self.by else day

    def options(self) -> str:
        """The command's options for it."""
        words = [f"--format {self.format}"] if self.has_tables else []
        words += [f"--catalog {self.catalog}"] if self.catalog else []
        words.append(f"--partition-by {','.join(self.by) or 'none'}")
        words += [f"--time-zone {self.zone}"] if self.is_timed else []
        for name, kind in (("key", self.key), ("value", self.value)):
            words += self._schema_options(name, kind) or [f"--{name}-format {kind}"]
        return " ".join(words)

    @property
    def schema_options(self) -> list[str]:
        """Those of them that each export needs."""
        return [*self._schema_options("key", self.key), *self._schema_options("value", self.value)]

    @staticmethod
    def _schema_options(name: str, kind: FieldFormat) -> list[str]:
        schema = [f"--{name}-format", kind.removesuffix("-schema"), f"--{name}-schema", "FILE"]
        return schema if kind in SCHEMA_FORMATS else []


@dataclass(frozen=True, slots=True)
class ColumnTypes:
    """The Arrow types of keys and values that have a schema, encoded: see ``zkgroup.schemas.column_types``."""

    key: bytes | None = None
    value: bytes | None = None


def table_name(topic: str) -> str:
    """Of a topic's Iceberg table: what engines take without quotes."""
    return re.sub(r"\W|^(?=\d)", "_", topic, flags=re.ASCII)


class FileName(NamedTuple):
    """The parts of a published file's name. ``more``: the number of further ranges, listed in footer and record."""

    topic: str
    partition: int
    start: int
    end: int
    more: int
    run: str | None
    tag: str | None


def read_name(name: str) -> FileName | None:
    """Read a file's name, with its folders; None for what no export has named so."""
    *folders, last = name.split("/")
    keys = dict(folder.split("=", 1) for folder in folders if "=" in folder)
    match = _NAME.fullmatch(last)
    if match is None or "topic" not in keys or len(keys) != len(folders):
        return None
    partition = keys.get("partition", match[1])
    if partition is None or not _NUMBER.fullmatch(partition) or ("partition" in keys) == (match[1] is not None):
        return None
    return FileName(keys["topic"], int(partition), int(match[2]), int(match[3]), int(match[4] or 0), match[5], match[6])


def is_read(name: str) -> bool:
    """Whether a reader of the destination takes a file for data: Spark and pyarrow whatever begins neither with ``_``
    nor with ``.``, folders included, and a pattern such as ``**/*.parquet`` whatever ends so."""
    return name.endswith(".parquet") or not any(part.startswith(("_", ".")) for part in name.split("/"))


@dataclass(frozen=True, slots=True)
class LayoutOptions:
    """The layout options; None: as the destination has it, or else the default."""

    by: tuple[Part, ...] | None = None
    zone: str | None = None
    key: FieldFormat | None = None
    value: FieldFormat | None = None
    format: TableKind | None = None
    catalog: str | None = None

    def resolve(self, found: Layout | None, where: str) -> Layout:
        """The layout to write in. Raises ``RefusedError`` where the destination has another one, ``UsageError`` for
        a zone without a use for it."""
        given = {name: value for name in Layout.__slots__ if (value := getattr(self, name)) is not None}
        wanted = replace(found or Layout(), **given)
        if not wanted.is_timed and self.zone is not None:
            raise UsageError("--time-zone is for folders of times", "add --partition-by date, or hour")
        if not wanted.is_timed:
            wanted = replace(wanted, zone="UTC")
        if wanted.catalog and wanted.format != "iceberg":
            raise UsageError("--catalog is for Iceberg tables", "add --format iceberg")
        if wanted.format == "iceberg" and wanted.zone != "UTC":
            raise UsageError("the days and hours of Iceberg tables are those of UTC", "leave --time-zone out")
        if found is not None and wanted != found:
            raise RefusedError(
                f"{where} was begun with {found.options()}, and readers need one layout and one schema",
                "leave these options out to go on in that way, or choose another --to",
            )
        return wanted


def refuse_place(kind: TableKind | None, address: Address) -> None:
    """Raise ``UsageError`` where no tables of this ``kind`` are written. Pure."""
    if kind is None or kind == "parquet":
        return
    if not isinstance(address, Path) and address.scheme != "s3":
        raise UsageError(
            f"{kind.capitalize()} tables are not written to {address.scheme}: destinations",
            "choose a folder or s3://BUCKET/PREFIX, or leave --format out",
        )
    if isinstance(address, Path) and (found := re.search("[%#?]", str(address))):
        raise UsageError(
            f"{address} has a {found[0]}, and {kind.capitalize()} takes a table's folder for a URI",
            "choose a folder without %, # and ?",
        )


def parse_parts(text: str) -> tuple[Part, ...]:
    """Read ``--partition-by``: names of ``PARTS`` with commas, or ``none``. ``hour`` implies ``date``."""
    words = [word.strip().lower() for word in text.split(",")]
    if words == ["none"]:
        return ()
    unknown = [word for word in words if word not in PARTS]
    if unknown or len(set(words)) != len(words):
        raise UsageError(
            f"--partition-by {text[:60]!r} is no list of {', '.join(PARTS)}", "such as partition, or date,hour, or none"
        )
    if "hour" in words:
        words.append("date")
    return tuple(part for part in PARTS if part in words)


# Of the files next to IANA's zones those that mean another zone on each machine, or that count seconds otherwise.
_NOT_IANA = re.compile(r"(?:localtime|posixrules|Factory)$|(?:posix|right)/")


def parse_zone(text: str) -> str:
    """An IANA time zone's name, checked. Raises ``UsageError``."""
    try:
        if text != text.strip() or not text or _NOT_IANA.match(text):
            raise ValueError(text)
        ZoneInfo(text)
    except (OSError, ValueError, KeyError):  # ZoneInfoNotFoundError is a KeyError
        raise UsageError(f"there is no time zone {text[:60]!r}", "an IANA name, such as Europe/Berlin or UTC") from None
    return text


_EPOCH = datetime.date(1970, 1, 1)


@lru_cache(4096)
def day_name(day: int) -> str:
    """Of the day so many days behind 1970-01-01: ``2024-05-01``."""
    return (_EPOCH + datetime.timedelta(days=day)).isoformat()


class Calendar:
    """Times → periods, in one zone: days, or hours. Reads the zone's rules once for each quarter of an hour it meets,
    and for each message only where the clock changes or a period begins within the quarter.

    Two clock changes within a quarter of an hour are the one thing that it would not see; no zone ever had them.
    """

    def __init__(self, zone: str, *, hours: bool) -> None:
        self._zone = ZoneInfo(parse_zone(zone))
        self._unit = _HOUR if hours else _DAY
        self._quarters: dict[int, Period | Literal["mixed"]] = {}

    def period(self, ms: int | None) -> Period:
        """Of a timestamp in milliseconds since 1970."""
        if ms is None or ms < 0:
            return None
        found = self._quarter(ms // (_QUARTER * 1000))
        return self._at(ms // 1000)[1] if found == "mixed" else found

    def period_of_all(self, first: int, last: int) -> tuple[bool, Period]:
        """Whether all times from ``first`` to ``last`` have surely the same period; and which."""
        quarter = first // (_QUARTER * 1000)
        if first < 0 or quarter != last // (_QUARTER * 1000):
            return False, None
        found = self._quarter(quarter)
        return (False, None) if found == "mixed" else (True, found)

    def _quarter(self, quarter: int) -> Period | Literal["mixed"]:
        try:
            return self._quarters[quarter]
        except KeyError:
            pass
        if len(self._quarters) >= _CACHED:
            self._quarters.clear()
        start = quarter * _QUARTER
        found: Period | Literal["mixed"] = None
        if start * 1000 < END_OF_TIME:
            first = self._at(start)
            found = first[1] if first == self._at(start + _QUARTER - 1) else "mixed"
        self._quarters[quarter] = found
        return found

    def _at(self, second: int) -> tuple[int, int]:
        """What the zone's clock is ahead of UTC then, in seconds, and the period."""
        offset = datetime.datetime.fromtimestamp(second, self._zone).utcoffset()
        assert offset is not None
        ahead = int(offset.total_seconds())
        return ahead, (second + ahead) // self._unit


# The lowest level of zstd is the fastest and loses little; the highest of gzip, pyarrow's default, takes ages.
_LEVELS: Final = {"zstd": (1, 22, 1), "gzip": (1, 9, 6), "lz4": (1, 12, None), "snappy": None, "none": None}


def parse_compression(text: str) -> tuple[str, int | None]:
    """Read ``CODEC`` or ``CODEC:LEVEL``: the codec and its level. Raises ``UsageError``."""
    codec, separator, level = text.strip().lower().partition(":")
    if codec not in _LEVELS:
        raise UsageError(f"there is no compression {text[:40]!r}", f"one of {', '.join(_LEVELS)}")
    known = _LEVELS[codec]
    if not separator:
        return codec, None if known is None else known[2]
    if known is None:
        raise UsageError(f"{codec} has no levels", f"--compression {codec}")
    if not (level.isascii() and level.isdecimal() and known[0] <= int(level) <= known[1]):
        raise UsageError(f"{codec} has no level {level[:20]!r}", f"{known[0]} to {known[1]}")
    return codec, int(level)
