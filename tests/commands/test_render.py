"""Rows as tables, JSON and CSV."""

from __future__ import annotations

import csv
import io
import json
import re
import sys
import time
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from cli import run_on_terminal
from hypothesis import example, given
from hypothesis import strategies as st

from zkgroup.clients.kafka.responses import MessageAge
from zkgroup.commands import inspect_group, offsets, owners, sandbox
from zkgroup.commands._assignment_view import COLUMNS as ASSIGNED
from zkgroup.commands._assignment_view import OUTCOME_COLUMNS as OUTCOMES
from zkgroup.commands._assignment_view import SHARE_COLUMNS as SHARES
from zkgroup.commands._group_views import BOTH, HEAD, MEMBERS, PARTITIONS, STORE_COLUMNS, SUMMARY, SUMMARY_SPARE
from zkgroup.commands._output import (
    SPARE,
    Column,
    Output,
    RowLayout,
    format_rows,
    iso_utc,
    print_object,
    print_rows,
    time_column,
    yaml_text,
)
from zkgroup.commands._terminal_text import escape, json_escape, one_line, width
from zkgroup.errors import UsageError
from zkgroup.groups.offset_files.file_formats import parse_offsets
from zkgroup.protocol.names import TopicPartition
from zkgroup.text import with_formula


def shown(rows: Sequence[Any], columns: Sequence[Column | str], output: Output) -> str:
    stream = io.StringIO()
    print_rows(rows, columns, output, stream=stream)
    return stream.getvalue()


@dataclass(frozen=True)
class Row:
    topic: str
    partition: int
    owner: str | None
    registered: bool
    since: int | None


ROWS = [Row("orders", 0, "g_h-1", True, 1411294187842), Row("日本", 10, None, False, None)]
COLUMNS = ("topic", "partition", "owner", "registered", time_column("since"))


def test_a_table_is_aligned_text() -> None:
    """Numbers to the right, wide characters counted as two columns, - for what is missing, no blanks at line ends."""
    assert shown(ROWS, COLUMNS, "table") == (
        "topic   partition  owner  registered  since\n"
        "orders          0  g_h-1  true        2014-09-21T10:09:47.842Z\n"
        "日本           10  -      false       -\n"
    )


def test_json_is_one_array_a_row_a_line() -> None:
    """Keys in the columns' order, numbers as numbers, truth as truth, null for what is missing."""
    text = shown(ROWS, COLUMNS, "json")
    assert text == (
        '[\n{"topic":"orders","partition":0,"owner":"g_h-1","registered":true,"since":"2014-09-21T10:09:47.842Z"},\n'
        '{"topic":"日本","partition":10,"owner":null,"registered":false,"since":null}\n]\n'
    )
    assert len(json.loads(text)) == 2


def test_csv_has_a_header_and_empty_cells() -> None:
    """What is missing is empty; truth is written as in JSON."""
    assert shown(ROWS, COLUMNS, "csv") == (
        "topic,partition,owner,registered,since\norders,0,g_h-1,true,2014-09-21T10:09:47.842Z\n日本,10,,false,\n"
    )


@pytest.mark.parametrize(("output", "text"), [("table", "a  b\n"), ("json", "[]\n"), ("csv", "a,b\n")])
def test_no_rows(output: Output, text: str) -> None:
    """An empty result is still a table, an array, a file with a header."""
    assert shown([], ["a", "b"], output) == text


def test_lists_and_mappings() -> None:
    """Lists are commas, mappings key=value in a cell; JSON keeps them."""
    row = {"l": ["a", "b"], "m": {"t": 2}, "f": 0.5, "e": ""}
    assert shown([row], list(row), "table").splitlines()[1].split() == ["a,b", "t=2", "0.5", "-"]
    assert shown([row], list(row), "csv").splitlines()[1] == '"a,b",t=2,0.5,'
    assert json.loads(shown([row], list(row), "json")) == [row]


@pytest.mark.parametrize(
    ("millis", "text"),
    [(0, "1970-01-01T00:00:00.000Z"), (-1, "1969-12-31T23:59:59.999Z"), (None, None), (2**62, None)],
)
def test_times(millis: int | None, text: str | None) -> None:
    """Milliseconds to ISO 8601; what no calendar has counts as missing."""
    assert iso_utc(millis) == text


@pytest.mark.parametrize(
    ("text", "safe"),
    [
        ("plain", "plain"),
        ("a\x1b[31mb\x07", "a\\x1b[31mb\\x07"),
        ("a\nb\tc\rd", "a\\nb\\tc\\rd"),
        ("\x9b1m", "\\x9b1m"),
        ("abc\u202edef", "abc\\u202edef"),
        ("\udcff", "\\udcff"),
        ("a\u200bb\u2060", "a\\u200bb\\u2060"),
        ("a\U000e0041", "a\\U000e0041"),
        ("ü日😀", "ü日😀"),
    ],
)
def test_control_characters_are_made_visible(text: str, safe: str) -> None:
    """Whatever a terminal would obey is shown as an escape; other text stays as it is."""
    assert escape(text) == safe
    assert shown([{"a": text}], ["a"], "table") == f"a\n{safe}\n"


def test_every_format_character_is_made_visible() -> None:
    """Nothing of Unicode's categories for controls, formats, separators of lines and surrogates is left as it is."""
    hidden = [
        chr(n) for n in range(sys.maxunicode + 1) if unicodedata.category(chr(n)) in {"Cc", "Cf", "Cs", "Zl", "Zp"}
    ]
    assert [character for character in hidden if not escape(character).isascii()] == []
    text = json.dumps("".join(hidden[:-1]), ensure_ascii=False).encode("utf-8", "replace").decode()
    assert json_escape(text).isascii()
    assert json.loads(json_escape(text)) == json.loads(text)


def test_messages_are_one_line() -> None:
    """Line breaks in an error become blanks."""
    assert one_line(" a\n  b\r\n\x1b ") == "a b \\x1b"
    assert one_line("\u2028t\n\u3000") == "\\u2028t \u3000"


@given(st.lists(st.tuples(st.text(), st.none() | st.integers(-(2**53), 2**53)), max_size=5))
def test_json_and_csv_give_back_what_they_were_given(rows: list[tuple[str, int | None]]) -> None:
    """Any text in any cell survives both, and escaping for a terminal does not change JSON's meaning."""
    given_rows = [{"s": s.encode("utf-8", "replace").decode(), "n": n} for s, n in rows]
    text = shown(given_rows, ["s", "n"], "json")
    assert json.loads(text) == given_rows
    assert json.loads(json_escape(text)) == given_rows
    if not any("\0" in row["s"] or "\r" in row["s"] for row in given_rows):
        read = list(csv.DictReader(io.StringIO(shown(given_rows, ["s", "n"], "csv"), newline="")))
        assert [{"s": with_formula(row["s"]), "n": row["n"]} for row in read] == [
            {"s": row["s"], "n": "" if row["n"] is None else str(row["n"])} for row in given_rows
        ]


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("=1+1", '"\'=1+1"'),
        ('=HYPERLINK("http://x","y")', '"\'=HYPERLINK(""http://x"",""y"")"'),
        ("+cmd|' /C calc'!A0", "\"'+cmd|' /C calc'!A0\""),
        ("-2+3", '"\'-2+3"'),
        ("@SUM(1)", '"\'@SUM(1)"'),
        ("\t=1", '"\'\t=1"'),
        ("\r=1", '"\'\r=1"'),
        ("\n=1", '"\'\n=1"'),
        ("\uff1d1", '"\'\uff1d1"'),
        ("-", '"\'-"'),
        ("-0x1", '"\'-0x1"'),
        ("a;=1", '"a;=1"'),  # a spreadsheet of another country takes ; for the end of a field
        ("a\t=1", '"a\t=1"'),
        ("-1", "-1"),
        ("+1.5e-3", "+1.5e-3"),
        ("a=1", "a=1"),
        ("'a", '"\'a"'),
        (-1, "-1"),
        (-0.5, "-0.5"),
        (["=1", "b"], '"\'=1,b"'),
        ({"=1": "b"}, '"\'=1=b"'),
    ],
)
def test_no_spreadsheet_runs_a_name(text: object, field: str) -> None:
    """Whatever begins as a formula and is no number is text, by the sign that spreadsheets have for that."""
    assert shown([{"a": "x", "b": text}], ["a", "b"], "csv") == f"a,b\nx,{field}\n"


def test_a_name_of_our_csv_is_read_as_it_was() -> None:
    """A group and a topic that look like formulas, out of ``offsets --output csv`` into a reset."""
    rows = [{"group": "-g", "topic": "-t", "partition": 0, "committed": 5}]
    text = shown(rows, list(rows[0]), "csv")
    assert text.splitlines()[1] == '"\'-g","\'-t",0,5'
    assert parse_offsets(text.encode(), "here").offsets_of("-g") == {TopicPartition("-t", 0): 5}


@given(
    st.lists(st.lists(st.text(max_size=8) | st.none() | st.integers(), min_size=3, max_size=3), min_size=1, max_size=4)
)
def test_table_columns_line_up(rows: list[list[str | int | None]]) -> None:
    """Whatever the cells hold, a table has one line a row and every column starts where its head does."""
    lines = shown([dict(zip("abc", row, strict=True)) for row in rows], ["a", "b", "c"], "table").split("\n")[:-1]
    assert len(lines) == len(rows) + 1
    heads = [line[: line.index("c")] if index == 0 else "" for index, line in enumerate(lines)]
    numeric = all(row[2] is None or isinstance(row[2], int) for row in rows)
    for line, row in zip(lines[1:], rows, strict=True):
        cell = "-" if row[2] is None or row[2] == "" else escape(str(row[2]))
        assert line.endswith(cell)
        if not numeric:
            assert width(line) - width(cell) == width(heads[0])


class Terminal(io.StringIO):
    """A stream that says that it is a terminal."""

    def isatty(self) -> bool:
        return True


def on_terminal(
    rows: Sequence[Any], columns: Sequence[Column | str], spare: Sequence[str] = (), output: Output = "table"
) -> list[str]:
    """The lines of a table on a terminal, without what makes them bold."""
    stream = Terminal()
    print_rows(rows, columns, output, stream=stream, spare=spare)
    return re.sub(r"\x1b\[\d*m", "", stream.getvalue()).splitlines()


@pytest.mark.parametrize("name", ["g" * 249, "日" * 120, "g\x1b" * 50, "g" * 76])
def test_a_long_name_makes_no_row_two(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """On a terminal that the table would be too wide for, a group's name loses as much of its middle as it takes, and
    every row fits; a wider terminal, a pipe, JSON and CSV have all of it."""
    rows = [{"group": name, "lag": 5}, {"group": "h" * 50, "lag": None}]
    for columns in (80, 40, 22):
        monkeypatch.setenv("COLUMNS", str(columns))
        lines = on_terminal(rows, ["group", "lag"])
        assert max(map(width, lines)) <= columns
        cut = lines[1].split()[0]
        assert width(cut) >= min(56, columns - 8)
        before, after = cut.split("…")
        assert escape(name).startswith(before)
        assert escape(name).endswith(after)
        assert min(width(before), width(after)) >= 5
        assert ("h" * 50 in lines[2]) == (columns == 80)
    for output in ("table", "json", "csv"):
        assert "…" not in shown(rows, ["group", "lag"], output)
    monkeypatch.setenv("COLUMNS", "300")
    assert escape(name) in on_terminal(rows, ["group", "lag"])[1]


@pytest.mark.parametrize(("columns", "there"), [(30, "abcd"), (25, "abd"), (16, "ad"), (5, "ad")])
def test_a_narrow_terminal_goes_without_columns(monkeypatch: pytest.MonkeyPatch, columns: int, there: str) -> None:
    """Those that are only good to know are left out, one after the other, as long as the rest is too wide."""
    monkeypatch.setenv("COLUMNS", str(columns))
    lines = on_terminal([dict.fromkeys("abcd", "123456")], ["a", "b", "c", "d"], ("c", "b"))
    assert lines[0].split() == list(there)


def test_the_summary_of_all_groups_fits_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """With names of usual length, and figures of any group that is there."""
    monkeypatch.setenv("COLUMNS", "80")
    texts = {"group": "orders-to-billing-2", "store": "zookeeper", "state": "inactive"}
    texts["behind"] = MessageAge(11_520.0, is_at_least=True)
    row = (
        dict.fromkeys([column if isinstance(column, str) else column.name for column in SUMMARY], 100)
        | {"lag": 12_345_678}
        | texts
    )
    lines = on_terminal([row], SUMMARY, SUMMARY_SPARE)
    assert {"group", "lag", "critical", "warning"} <= set(lines[0].split())
    assert "orders-to-billing-2" in lines[1]
    assert max(map(len, lines)) <= 80


MEMBER = "billing_web1.example.com-1415824923411-deadbeef"


@pytest.mark.parametrize("topic", ["orders", "t" * 100])
@pytest.mark.parametrize(
    ("columns", "spare", "there"),
    [
        (owners.COLUMNS, ("member", *SPARE), {"topic", "partition", "owner"}),
        (offsets.COLUMNS, SPARE, {"topic", "partition", "committed", "lag"}),
        ((*offsets.COLUMNS, *STORE_COLUMNS), (*SPARE, "committed"), {"topic", *STORE_COLUMNS, "lag"}),
        (PARTITIONS, (*SPARE, "owner"), {"topic", "partition", "committed", "log_end", "lag"}),
        (BOTH, (*SPARE, "owner"), {"topic", "partition", *STORE_COLUMNS, "lag"}),
        (HEAD, SPARE, {"group", "store", "state", "members", "lag"}),
        (sandbox.COLUMNS, sandbox.SPARE, {"sandbox", "process", "address", "state"}),
    ],
)
def test_every_table_fits_80_columns(
    monkeypatch: pytest.MonkeyPatch, topic: str, columns: Sequence[Column | str], spare: Sequence[str], there: set[str]
) -> None:
    """No row becomes two: times are short, and what is spare is left out, in its order."""
    monkeypatch.setenv("COLUMNS", "80")
    texts = {"topic": topic, "group": topic, "owner": f"{MEMBER}-0", "member": MEMBER, "host": "web1.example.com"}
    texts |= {"store": "zookeeper", "state": "inactive", "strategy": "roundrobin", "catch_up": "in 25 min"}
    texts |= {"behind": MessageAge(11_520.0, is_at_least=True), "sandbox": "default", "process": MEMBER}
    texts |= {
        "address": "127.0.0.1:12345",
        "log": f"/home/ops/.local/state/zkgroup/sandbox/default/members/{MEMBER}.log",
    }
    names = [column if isinstance(column, str) else column.name for column in columns]
    moment = round(time.time() * 1000)
    times = dict.fromkeys(("since", "taken_at", "committed_at"), moment)
    row = (
        dict.fromkeys(names, 12_345_678)
        | {"partition": 0, "registered": True, "leader": 1, "members": 1}
        | texts
        | times
    )
    lines = on_terminal([{name: row[name] for name in names}], columns, spare)
    assert max(map(width, lines)) <= 80, lines
    assert there <= set(lines[0].split())


def test_times_are_short_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time of what is less than a day away, day and minute of what is further away; a pipe has all of it."""
    monkeypatch.setenv("COLUMNS", "80")
    lately = round(time.time() * 1000) - 60_000
    rows = [{"at": lately}, {"at": 1_411_294_187_842}, {"at": None}, {"at": 2**62}]
    whole = [str(iso_utc(lately)), "2014-09-21T10:09:47.842Z", "-", "-"]
    assert on_terminal(rows, [time_column("at")])[1:] == [whole[0][11:19], "2014-09-21 10:09", "-", "-"]
    assert shown(rows, [time_column("at")], "table").splitlines()[1:] == whole


def test_what_fits_after_all_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of columns that were left out for a wide one that goes after them."""
    monkeypatch.setenv("COLUMNS", "30")
    (head, _) = on_terminal([{"a": 1, "b": 2, "c": "w" * 40}], ["a", "b", "c"], ("b", "c"))
    assert head.split() == ["a", "b"]


LONG_MEMBER = "billing-service_app1.prod.example.com-1411294187842-0a1b2c3d"


@pytest.mark.parametrize(
    ("columns", "spare"),
    [(owners.COLUMNS, ("member", *SPARE)), (ASSIGNED, ("member", *SPARE)), (SHARES, ()), (MEMBERS, SPARE)],
)
def test_long_ids_of_members_make_no_row_two(
    monkeypatch: pytest.MonkeyPatch, columns: Sequence[Column | str], spare: Sequence[str]
) -> None:
    """They lose no more of their middle than it takes; ids that fit, and those in pipes and in ``wide``, are whole."""
    monkeypatch.setenv("COLUMNS", "80")
    owner = f"{LONG_MEMBER}-0"
    texts = {"topic": "orders", "owner": owner, "member": LONG_MEMBER, "current": owner, "change": "to another stream"}
    texts |= {"host": "app1.prod.example.com", "subscription": "orders=1,payments=1"}
    names = [column if isinstance(column, str) else column.name for column in columns]
    row = {name: texts.get(name, 1) for name in names}
    lines = on_terminal([row], columns, spare)
    cut = [word for word in lines[1].split() if "…" in word]
    assert cut
    assert all(LONG_MEMBER.startswith(word.partition("…")[0]) for word in cut)
    assert all(owner.endswith(word.partition("…")[2]) or LONG_MEMBER.endswith(word.partition("…")[2]) for word in cut)
    assert 80 - len(cut) < len(lines[1]) <= 80
    for text in (shown([row], columns, "table"), *on_terminal([row], columns, spare, "wide")[1:]):
        assert LONG_MEMBER in text
        assert "…" not in text
    short = {"topic": "orders", "owner": "a_web1-1411294187842-0a1b2c3d-0"}
    assert short["owner"] in on_terminal([short], list(short))[1]


@pytest.mark.parametrize(
    ("columns", "lists"),
    [
        (OUTCOMES, {"holders", "losers"}),
        (MEMBERS, {"subscription"}),
        (inspect_group.COLUMNS["members"], {"subscription"}),
    ],
)
def test_long_lists_make_no_row_two(
    monkeypatch: pytest.MonkeyPatch, columns: Sequence[Column | str], lists: set[str]
) -> None:
    """They lose their end; a pipe has it."""
    monkeypatch.setenv("COLUMNS", "80")
    row = dict.fromkeys([one if isinstance(one, str) else one.name for one in columns], 1) | {
        "member": LONG_MEMBER,
        "host": "app1.prod.example.com",
    }
    row |= {name: {f"{name}-{n}": 1 for n in range(20)} for name in lists}
    head, line = on_terminal([row], columns, SPARE)
    assert lists <= set(head.split())
    assert width(line) <= 80
    for name in lists:
        assert re.search(rf"{name}-0=1,\S*…(  |$)", line)
        assert f"{name}-19=1" in shown([row], columns, "table")


def test_what_goes_from_a_plan_that_is_too_wide(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time at the target, then the end of the note."""
    monkeypatch.setenv("COLUMNS", "80")
    note = "clamped to the log's start, which retention has moved since the group committed"
    row = {"topic": "orders", "partition": 0, "current": 12_345_678, "target": 12_345_679, "change": 1}
    row |= {"target_time": 1_411_294_187_842, "note": note}
    lines = on_terminal([row], [*list(row)[:5], time_column("target_time"), "note"], SPARE)
    assert lines[0].split() == [*list(row)[:5], "note"]
    assert width(lines[1]) == 80
    assert lines[1].endswith("…")
    assert note.startswith(lines[1].split("  ")[-1][:-1])


def test_sentences_are_not_padded() -> None:
    """What is after a message follows it at once: a table of findings is not made of blanks."""
    rows = [{"code": "a", "message": "m" * 50, "remedy": "r"}, {"code": "bb", "message": "short", "remedy": "r"}]
    assert shown(rows, ["code", "message", "remedy"], "table").split("\n")[::2] == [
        "code  message  remedy",
        "bb    short  r",
    ]


def test_text_that_is_no_unicode() -> None:
    """Bytes that were no UTF-8 arrive as lone surrogates: JSON shows them escaped instead of failing."""
    assert json.loads(shown([{"a": "x\udcff", "b": ["\udcfe"]}], ["a", "b"], "json")) == [
        {"a": "x\\udcff", "b": ["\\udcfe"]}
    ]


def test_one_thing_is_one_object(capsys: pytest.CaptureFixture[str]) -> None:
    """Commands that show one thing print one JSON object."""
    print_object({"group": "g", "members": [{"member": "m"}]}, "json")
    printed = capsys.readouterr().out
    assert json.loads(printed) == {"group": "g", "members": [{"member": "m"}]}
    assert printed.endswith("}\n")


def test_on_a_terminal() -> None:
    """Rich prints the table there, with a bold head; NO_COLOR and JSON bring no colour."""
    code, text = run_on_terminal("version")
    assert code == 0
    assert "\x1b[1m" in text
    assert "zkgroup" in text
    code, text = run_on_terminal("version", env={"NO_COLOR": "1"})
    assert code == 0
    assert "\x1b[3" not in text
    code, text = run_on_terminal("version", "--output", "json")
    assert json.loads(text)["zkgroup"]


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]))
    | st.sampled_from(["yes", "No", "null", "~", "0x1f", "1e5", "a: b", "- a", "a #b", "", " a", "2024-05-01", "<<"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=12,
)  # fmt: skip


@given(VALUES)
@example(5e-324)
@example(1e16)
@example({"a": [-1.5e300]})
def test_yaml_has_what_json_has(value: Any) -> None:
    """Whatever a value is, a reader of YAML takes it for the same."""
    yaml = pytest.importorskip("yaml")
    assert yaml.safe_load(yaml_text(value)) == json.loads(json.dumps(value))


def test_rows_in_yaml() -> None:
    """An array of objects in blocks, as people write it; an empty one is one, too."""
    rows = [["orders", 0, None, {"a": [1, "x y"]}], ["pay\u0007", 1, True, []]]
    text = "".join(format_rows(rows, ["topic", "partition", "owner", "more"], "yaml"))
    assert text == (
        '- topic: orders\n  partition: 0\n  owner: null\n  more:\n    a:\n      - 1\n      - "x y"\n'
        '- topic: "pay\\u0007"\n  partition: 1\n  owner: true\n  more: []\n'
    )
    assert list(format_rows([], ["topic"], "yaml")) == ["[]\n"]


@pytest.mark.parametrize("output", ["table", "wide", "json", "yaml", "csv"])
def test_columns_are_chosen(output: Output) -> None:
    """In the order in which they are named, in every format, with a head or without; others are wrong usage."""
    stream = io.StringIO()
    rows = [{"topic": "a", "lag": 5, "owner": None}]
    print_rows(
        rows, ["topic", "lag", "owner"], output, stream=stream, layout=RowLayout(("owner", "lag"), has_header=False)
    )
    assert stream.getvalue() == {
        "table": "    -    5\n", "wide": "    -    5\n", "csv": ",5\n",
        "json": '[\n{"owner":null,"lag":5}\n]\n', "yaml": "- owner: null\n  lag: 5\n",
    }[output]  # fmt: skip
    with pytest.raises(UsageError, match=r"'lagg'.*\blag\b"):
        print_rows(rows, ["topic", "lag", "owner"], output, stream=stream, layout=RowLayout(("lagg",)))


def test_a_wide_table_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a terminal that is too narrow for it, too."""
    monkeypatch.setenv("COLUMNS", "20")
    rows = [{"topic": "t" * 70, "lag": 5, "log_end": 7}]
    narrow, wide = (on_terminal(rows, ["topic", "lag", "log_end"], SPARE, output) for output in ("table", "wide"))
    assert narrow[0].split() == ["topic", "lag"]
    assert wide[0].split() == ["topic", "lag", "log_end"]
    assert "t" * 70 in wide[1]
