"""Java's properties format."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zkgroup.config.setting_files import parse_properties, read_properties
from zkgroup.errors import UsageError


def parsed(data: bytes) -> dict[str, str]:
    return {prop.key: prop.value for prop in parse_properties(data, "f")}


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"a=b", {"a": "b"}),
        (b"a:b", {"a": "b"}),
        (b"a b", {"a": "b"}),
        (b"a = b c ", {"a": "b c"}),
        (b"a  : = b", {"a": "= b"}),
        (b"  a\t=\tb", {"a": "b"}),
        (b"a", {"a": ""}),
        (b"a=1\rb=2\r\nc=3\n", {"a": "1", "b": "2", "c": "3"}),
        (b"# x=1\n! y=2\n\n  # z\na=1", {"a": "1"}),
        (b"# x\\\na=1", {"a": "1"}),
        (b"a=x,\\\n   y,\\\r\n\tz\nb=1", {"a": "x,y,z", "b": "1"}),
        (b"a=x\\\\\nb=1", {"a": "x\\", "b": "1"}),
        (b"a=x\\\n# no comment", {"a": "x# no comment"}),
        (b"\\\n# a comment, as nothing came before\nb=1", {"b": "1"}),
        (b"a=x\\", {"a": "x"}),
        (b"a\\ b\\=c=\\:d", {"a b=c": ":d"}),
        (b"a=\\t\\n\\u0041\\z\\\\", {"a": "A" + "z\\"}),
        (b"a=x\\u00e9\\uD83D\\uDE00", {"a": "x\u00e9\U0001f600"}),
        ("a=ü€".encode(), {"a": "ü€"}),
        (b"\xef\xbb\xbfa=b", {"a": "b"}),
        (b"a=\xfc", {"a": "ü"}),
        (b"=b", {"": "b"}),
    ],
)
def test_reads_what_java_reads(data: bytes, expected: dict[str, str]) -> None:
    """Separators, comments, continuations, escapes and encodings as ``Properties.load`` takes them, then trimmed."""
    assert parsed(data) == expected


@pytest.mark.parametrize("data", [b"a=\\u12", b"a=\\uXYZW", b"\\u=1"])
def test_names_the_line_of_a_malformed_escape(data: bytes) -> None:
    """Java throws here; the message says which line of which file."""
    with pytest.raises(UsageError, match=r"^f, line 3: .*\\uXXXX"):
        parse_properties(b"x=1\n\n" + data, "f")


def test_origin_is_the_first_line_of_a_continued_one() -> None:
    """Messages lead to the place where a setting begins, and repeated keys are all kept for the caller to judge."""
    found = parse_properties(b"a=1\nb=\\\n2\na=3", "c.properties")
    assert [(prop.key, prop.origin) for prop in found] == [
        ("a", "c.properties, line 1"),
        ("b", "c.properties, line 2"),
        ("a", "c.properties, line 4"),
    ]


def test_a_file_that_cannot_be_read_is_a_usage_error(tmp_path: Path) -> None:
    """The message names the file and the reason."""
    with pytest.raises(UsageError, match=r"absent\b.*No such file"):
        read_properties(tmp_path / "absent")


def stored(text: str, *, key: bool) -> str:
    """Write as ``Properties.store`` does."""
    out = []
    for index, character in enumerate(text):
        if character in "=:#!\\" or (character == " " and (key or index == 0)):
            out.append("\\" + character)
        elif character in "\t\n\r\f":
            out.append({"\t": "\\t", "\n": "\\n", "\r": "\\r", "\f": "\\f"}[character])
        elif " " <= character <= "~":
            out.append(character)
        else:
            units = character.encode("utf-16-be")
            out.append("".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2)))
    return "".join(out)


TEXTS = st.text(st.characters(blacklist_categories=["Cs"]), max_size=12)


@given(st.dictionaries(TEXTS, TEXTS, max_size=5))
def test_what_java_stores_comes_back(settings: dict[str, str]) -> None:
    """Any keys and values survive, but for the blanks around a value, which the Scala consumer trims."""
    lines = [f"{stored(key, key=True)}={stored(value, key=False)}\n" for key, value in settings.items()]
    trimmed = {key: value.strip("".join(map(chr, range(33)))) for key, value in settings.items()}
    assert parsed("".join(lines).encode("latin-1")) == trimmed


@pytest.mark.parametrize("data", [b"PK\x03\x04\x00\x00", "group.id=a".encode("utf-16")])
def test_binary_data_is_refused(data: bytes) -> None:
    """What is no text is not taken for one odd key."""
    with pytest.raises(UsageError, match=r"^c\.properties\b.*KEY=VALUE"):
        parse_properties(data, "c.properties")
