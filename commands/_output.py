"""Rows → table, JSON, YAML or CSV. Every command prints its rows with this module.

On a terminal Rich prints tables, without spare columns and with long names cut; ``wide`` keeps all of them. Control
characters are visible in tables, and wherever stdout is a terminal; JSON, YAML and CSV in a file or a pipe are exact.
"""

from __future__ import annotations

import dataclasses
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Literal, TextIO, TypeAlias

import orjson

from zkgroup.errors import UsageError, did_you_mean
from zkgroup.text import duration_text, shortened, without_formula

from ._error_output import printing
from ._terminal_text import escape, fit, fitting, json_escape, width

if TYPE_CHECKING:
    from zkgroup.clients.kafka.responses import MessageAge

#: The formats. A new one is added here alone: to ``_OBJECTS`` if it has objects, and where this module writes lines.
Output: TypeAlias = Literal["table", "wide", "json", "yaml", "csv"]
_OBJECTS: Final = frozenset({"json", "yaml"})
Row: TypeAlias = Mapping[str, Any] | object

GAP = "  "
# Characters of a cell in a table: a node may have a megabyte. JSON and CSV have all of it.
MAX_CELL = 4000
# Columns: a wider cell does not widen its column.
WIDEST = 120
# If a table is too wide for the terminal, names lose their middle, notes and lists their end: as much as it takes for
# all rows to fit, the widest first. ``NARROWEST`` columns are left, or ``WIDEST_NAME`` where even that does not fit.
ENDLESS = frozenset({"note", "subscription", "holders", "losers"})
CUT = frozenset({"group", "topic", "owner", "member", "host", "current", "process"}) | ENDLESS
WIDEST_NAME = 60
NARROWEST = 15
# These are cut before columns are left out. Ids of members, which are copied, are cut last.
NARROWED = ("group", "topic")
# Quoted in CSV, whatever separator a reader expects; a leading ' marks what would be a formula.
_QUOTED = re.compile("[\",;\t\r\n]|\\A'")
# What is no other value than a text, in every YAML; and what would be.
_YAML_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_./@-]*", re.ASCII)
_YAML_UNSAFE = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")
_YAML_WORDS = frozenset({"null", "true", "false", "yes", "no", "on", "off", "y", "n"})
#: Columns that a table leaves out if it is too wide for the terminal, the least important first.
SPARE = (
    "target_time", "taken_at", "session_id", "registered_at", "log_start", "leader", "committed_at", "since", "pattern",
    "registered", "host", "topics", "partitions", "behind", "log_end",
)  # fmt: skip
DAY = 86_400_000
# Columns of sentences, which are not padded.
UNPADDED = frozenset({"message"})


@dataclasses.dataclass(frozen=True, slots=True)
class Column:
    """A column: the key in JSON and CSV and the head in tables. ``convert`` is applied to values that are not None.
    ``attribute``: of the row, where it has another name."""

    name: str
    convert: Callable[[Any], Any] | None = None
    attribute: str | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class RowLayout:
    """The only columns to print, in their order (all without any), and whether tables and CSV name them first."""

    columns: tuple[str, ...] = ()
    has_header: bool = True

    @classmethod
    def of(cls, columns: str | None, no_header: bool) -> RowLayout:
        """The layout of the options ``--columns`` (``NAME,NAME``) and ``--no-header``."""
        return cls(tuple(name.strip() for name in columns.split(",")) if columns is not None else (), not no_header)

    def chosen(self, columns: Sequence[Column]) -> list[Column]:
        """Those columns. Raises ``UsageError`` for a name that is none of them."""
        known = {column.name: column for column in columns}
        for name in self.columns:
            if name not in known:
                raise UsageError(f"no column {name!r}", did_you_mean(name, known, f"there are {', '.join(known)}"))
        return [known[name] for name in self.columns] or list(columns)


class AtLeast(int):
    """A number in a table that is a part of the whole: ``≥20``."""

    def __str__(self) -> str:
        return f"≥{int(self)}"


class Figure(str):
    """A number as text, such as ``1.2k``: at the right of its column."""


def is_table(output: Output) -> bool:
    """True for the format for people, which may leave out columns, shorten values and add lines."""
    return output in ("table", "wide")


def has_objects(output: Output) -> bool:
    """True for a format for programs that shows objects; the others show rows of cells."""
    return output in _OBJECTS


def iso_utc(millis: int | None) -> str | None:
    """Milliseconds since 1970 as ISO 8601 in UTC; None, and what no calendar has, as None."""
    if millis is None:
        return None
    try:
        moment = datetime.fromtimestamp(millis // 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return None
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{millis % 1000:03d}Z"


def short_time(millis: int | None) -> str | None:
    """The same for a terminal: the time of day within 24 hours, else the date and the minute."""
    text = iso_utc(millis)
    if text is None or millis is None:
        return None
    return text[11:19] if abs(time.time() * 1000 - millis) < DAY else f"{text[:10]} {text[11:16]}"


def time_column(name: str) -> Column:
    """A column whose values are milliseconds since 1970."""
    return Column(name, iso_utc)


def shown_age(age: MessageAge) -> str:
    """An age for people: ``3 h 12 min``; ``≥1 h`` of which only that much is known."""
    return f"{'≥' if age.is_at_least else ''}{duration_text(age.seconds)}"


def behind_columns(output: Output) -> tuple[Column | str, ...]:
    if is_table(output):
        return (Column("behind", shown_age),)
    return ("lag_seconds", "lag_seconds_at_least") if has_objects(output) else ("lag_seconds",)


def print_rows(
    rows: Iterable[Row],
    columns: Sequence[Column | str],
    output: Output,
    *,
    stream: TextIO | None = None,
    spare: Sequence[str] = (),
    layout: RowLayout = RowLayout(),  # it is frozen
) -> None:
    """Print rows (dataclasses or mappings that have the columns) on stdout. ``spare``: columns that are left out, one
    after the other, until the table fits the terminal, unless ``layout`` names columns. Times are short on a
    terminal."""
    stream = sys.stdout if stream is None else stream
    terminal = stream.isatty()
    declared = layout.chosen([Column(column) if isinstance(column, str) else column for column in columns])
    if output == "table" and terminal:
        declared = [dataclasses.replace(c, convert=short_time) if c.convert is iso_utc else c for c in declared]
    values = (_values(row, declared) for row in rows)
    names = [column.name for column in declared]
    if output == "table" and terminal:
        room = shutil.get_terminal_size().columns
        lines = iter(_fitted(list(values), names, () if layout.columns else spare, room))
    else:
        lines = format_rows(values, names, output)
    if not layout.has_header and not has_objects(output):
        next(lines)
    if is_table(output) and terminal:
        _print_rich_table(lines, stream, has_header=layout.has_header)
        return
    for line in lines:
        with printing(stream):
            stream.write(escape_line(line, output) if terminal else line)


def print_object(value: Mapping[str, Any], output: Output) -> None:
    """Print one object on stdout, in a format that has objects."""
    stream = sys.stdout
    text = yaml_text(value) if output == "yaml" else json_text(value, indent=True) + "\n"
    with printing(stream):
        stream.write(escape_line(text, output) if stream.isatty() else text)


def stream_line(row: Mapping[str, Any], output: Output) -> str:
    """A row of an endless output, as one line: an object, or cells without a head."""
    if has_objects(output):
        return yaml_text([row]) if output == "yaml" else json_text(row) + "\n"
    return list(format_rows([list(row.values())], list(row), output))[-1]


def stream_head(names: Sequence[str], output: Output) -> str:
    """The first line of an endless output; empty where there is none."""
    return next(iter(format_rows([], names, output))) if output == "csv" else ""


def escape_line(line: str, output: Output) -> str:
    """A line for a terminal: control characters are visible."""
    return json_escape(line) if has_objects(output) else escape(line[:-1]) + "\n"


def as_objects(rows: Iterable[Row], columns: Sequence[Column | str]) -> list[dict[str, Any]]:
    """Rows as in JSON, as a part of an object."""
    declared = [Column(column) if isinstance(column, str) else column for column in columns]
    names = [column.name for column in declared]
    return [dict(zip(names, _values(row, declared), strict=True)) for row in rows]


def format_rows(rows: Iterable[Sequence[Any]], names: Sequence[str], output: Output) -> Iterator[str]:
    """Lines, each with its end. JSON and CSV are made row by row; a table needs all of them first."""
    match output:
        case "json":
            return _json_lines(rows, names)
        case "yaml":
            return _yaml_lines(rows, names)
        case "csv":
            return _csv_lines(rows, names)
        case "table" | "wide":
            return _table_lines(list(rows), names)


def json_text(value: object, *, indent: bool = False) -> str:
    """A value as JSON text. Dataclasses become objects; lone surrogates are escaped."""
    option = orjson.OPT_NON_STR_KEYS | (orjson.OPT_INDENT_2 if indent else 0)
    try:
        return orjson.dumps(value, option=option).decode()
    except orjson.JSONEncodeError:
        return orjson.dumps(_encodable(value), option=option).decode()


def _encodable(value: object) -> object:
    """The value with lone surrogates (bytes that are no UTF-8) escaped, as orjson refuses them."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, Mapping):
        return {_encodable(key): _encodable(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_encodable(item) for item in value]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _encodable(dataclasses.asdict(value))
    return value


def _values(row: Row, columns: Sequence[Column]) -> list[Any]:
    found = [row[c.name] if isinstance(row, Mapping) else getattr(row, c.attribute or c.name) for c in columns]
    return [
        value if value is None or column.convert is None else column.convert(value)
        for value, column in zip(found, columns, strict=True)
    ]


def _json_lines(rows: Iterable[Sequence[Any]], names: Sequence[str]) -> Iterator[str]:
    start = "[\n"
    for row in rows:
        yield start + json_text(dict(zip(names, row, strict=True)))
        start = ",\n"
    yield "[]\n" if start == "[\n" else "\n]\n"


def _yaml_lines(rows: Iterable[Sequence[Any]], names: Sequence[str]) -> Iterator[str]:
    is_empty = True
    for row in rows:
        is_empty = False
        yield yaml_text([dict(zip(names, row, strict=True))])
    if is_empty:
        yield "[]\n"


def yaml_text(value: object) -> str:
    """A value as YAML 1.2 text, with its last line's end: that of its JSON, in blocks, with names unquoted."""
    return "\n".join(_yaml_block(orjson.loads(json_text(value)))) + "\n"


def _yaml_block(value: object) -> list[str]:
    if isinstance(value, dict) and value:
        entries = [(f"{_yaml_scalar(key)}:", item) for key, item in value.items()]
    elif isinstance(value, list) and value:
        entries = [("-", item) for item in value]
    else:
        return [_yaml_scalar(value)]
    lines = []
    for mark, item in entries:
        block = _yaml_block(item)
        if not isinstance(item, dict | list) or not item:
            lines.append(f"{mark} {block[0]}")
        elif mark == "-":
            lines += [f"{'- ' if number == 0 else '  '}{line}" for number, line in enumerate(block)]
        else:
            lines += [mark, *(f"  {line}" for line in block)]
    return lines


def _yaml_scalar(value: object) -> str:
    if isinstance(value, str) and _YAML_PLAIN.fullmatch(value) and value.lower() not in _YAML_WORDS:
        return value
    if isinstance(value, float):
        return _yaml_number(json_text(value))
    return _YAML_UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", json_text(value))


def _yaml_number(text: str) -> str:
    """``5e-324`` as ``5.0e-324``: a reader of YAML 1.1 takes it for text where the point or the sign is missing."""
    mantissa, exponent, power = text.partition("e")
    if not exponent:
        return text
    return f"{mantissa if '.' in mantissa else mantissa + '.0'}e{power if power[0] in '+-' else '+' + power}"


def _csv_lines(rows: Iterable[Sequence[Any]], names: Sequence[str]) -> Iterator[str]:
    yield ",".join(names) + "\n"
    for row in rows:
        yield (",".join(map(_csv_field, row)) or '""') + "\n"


def _csv_field(value: object) -> str:
    if value is None or isinstance(value, int | float):
        return "" if value is None else _plain(value)
    text = without_formula(_plain(value))
    return '"' + text.replace('"', '""') + '"' if _QUOTED.search(text) else text


def _plain(value: object) -> str:
    """A value in a cell: lists with commas, mappings as ``key=value``, truth in lower case."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, Mapping):
        return ",".join(f"{key}={_plain(item)}" for key, item in value.items())
    if isinstance(value, list | tuple | set | frozenset):
        return ",".join(map(_plain, value))
    return str(value)


def cell_text(value: object) -> str:
    return "-" if value is None else shortened(escape(_plain(value)[: MAX_CELL + 1]), MAX_CELL) or "-"


def _is_number(value: object) -> bool:
    return value is None or (isinstance(value, int | float | Figure) and not isinstance(value, bool))


def _table_lines(rows: Sequence[Sequence[Any]], names: Sequence[str]) -> Iterator[str]:
    cells = [list(names)] + [list(map(cell_text, row)) for row in rows]
    numeric = [all(map(_is_number, column)) for column in zip(*rows, strict=True)] if rows else [False] * len(names)
    # Cells wider than ``WIDEST`` do not count.
    widths = [
        max((one for one in map(width, column) if one <= WIDEST), default=0) for column in zip(*cells, strict=True)
    ]
    last = len(names) - 1
    for line in cells:
        parts = []
        for index, (text, room, right) in enumerate(zip(line, widths, numeric, strict=True)):
            fill = " " * max(0, room - width(text))
            loose = index == last or names[index] in UNPADDED
            parts.append(fill + text if right else text if loose else text + fill)
        yield GAP.join(parts) + "\n"


def fitted_lines(rows: Iterable[Row], columns: Sequence[str], room: int, spare: Sequence[str]) -> list[str]:
    """The lines of a table, its head first, no wider than ``room`` if that is possible: without the ``spare`` columns
    that do not fit, and with long names cut."""
    values = [_values(row, [Column(column) for column in columns]) for row in rows]
    return [line.rstrip() for line in _fitted(values, columns, spare, room, NARROWEST)]


def _fitted(
    rows: list[list[Any]], names: Sequence[str], spare: Sequence[str], columns: int, least: int = WIDEST_NAME
) -> Iterator[str]:
    kept = _kept(rows, names, spare, columns)
    names = [names[index] for index in kept]
    return _table_lines(_narrowed([[row[index] for index in kept] for row in rows], names, columns, least), names)


def _kept(rows: Sequence[Sequence[Any]], names: Sequence[str], spare: Sequence[str], columns: int) -> list[int]:
    """The indexes of the columns to show. Spare ones are left out until the rest fits; those that still fit return.
    A long name that can be cut costs no column."""
    rooms = [min(room, WIDEST) for room in _rooms(rows, names)]
    most = max(NARROWEST, min(WIDEST_NAME // 2, columns // 4))
    rooms = [min(room, most) if name.lower() in NARROWED else room for name, room in zip(names, rooms, strict=True)]
    kept = set(range(len(names)))

    def has_room_for(indexes: set[int]) -> bool:
        return sum(rooms[index] for index in indexes) + len(GAP) * (len(indexes) - 1) <= columns

    left_out: list[int] = []
    for index in (names.index(name) for name in spare if name in names):
        if not has_room_for(kept):
            kept.remove(index)
            left_out.append(index)
    for index in reversed(left_out):
        if has_room_for({*kept, index}):
            kept.add(index)
    return sorted(kept)


def _narrowed(rows: list[list[Any]], names: Sequence[str], columns: int, least: int) -> list[list[Any]]:
    """The rows with names and notes cut so that the table fits; to ``least`` columns where that is impossible."""
    rooms = _rooms(rows, names)
    gaps = len(GAP) * (len(names) - 1)

    def needed(room: int) -> int:
        return gaps + sum(
            min(one, room) if name.lower() in CUT else one for one, name in zip(rooms, names, strict=True)
        )

    most = next((room for room in range(columns, NARROWEST - 1, -1) if needed(room) <= columns), least)
    return [
        [_cut(cell, most, name.lower()) if name.lower() in CUT else cell for cell, name in zip(row, names, strict=True)]
        for row in rows
    ]


def _rooms(rows: Sequence[Sequence[Any]], names: Sequence[str]) -> list[int]:
    return [max([width(name), *(width(cell_text(row[at])) for row in rows)]) for at, name in enumerate(names)]


def _cut(value: Any, room: int, column: str) -> Any:
    """A note without its end, or a name without its middle: names differ at their ends."""
    text = "" if value is None else escape(_plain(value))
    if width(text) <= room:
        return value
    if column in ENDLESS:
        return fit(text, room)
    return f"{fitting(text, room // 2)}…{fitting(text[::-1], (room - 1) // 2)[::-1]}"


def print_marked(parts: Sequence[tuple[str, str]]) -> None:
    """Print a line of parts, each with its style on a terminal; elsewhere the text alone."""
    if not sys.stdout.isatty():
        sys.stdout.write("".join(text for text, _ in parts) + "\n")
        return
    from rich.console import Console  # as below
    from rich.text import Text

    Console(highlight=False, emoji=False, markup=False).print(Text.assemble(*parts), soft_wrap=True)


def _print_rich_table(lines: Iterable[str], stream: TextIO, *, has_header: bool) -> None:
    """Print lines with a bold head. They may be longer than a terminal is wide: names that are folded inside their
    cells can be neither read nor copied."""
    from rich.console import Console  # 50 ms that only a terminal is worth
    from rich.text import Text

    console = Console(file=stream, highlight=False, emoji=False, markup=False)
    for number, line in enumerate(lines):
        text = Text(line.rstrip(), style="bold" if number == 0 and has_header else "")
        text.highlight_regex(r"(?<!\S)-(?!\S)", "dim")  # missing values
        console.print(text, soft_wrap=True)
