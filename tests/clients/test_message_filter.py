"""Which messages a filter passes, and what it refuses."""

from __future__ import annotations

import pytest
from lines import names

from zkgroup.clients.kafka import message_filter
from zkgroup.clients.kafka.client import Message
from zkgroup.clients.kafka.message_contents import UNREADABLE
from zkgroup.clients.kafka.message_filter import MessageFilter, parse_pattern
from zkgroup.errors import FilterLimitError, UsageError


@pytest.mark.parametrize(
    ("pattern", "matched", "others"),
    [
        ("order-*", [b"order-", b"order-1\n2"], [b"an order-1", b"Order-1", b""]),
        ("?", ["é".encode(), b"\xff", b"\n"], [b"", b"ab", b"\xff\xff"]),
        ("*[!0-9]", [b"1a", "é".encode(), b"\xc3"], [b"a1", b""]),
        ("/^$/", [b""], [b"a"]),
        ("[a[]*[]]", [b"[a]", b"a]"], [b"b]", b"a["]),
        ("*", [b"", b"\x00"], [None]),
        ("\udcff*", [b"\xff", b"\xff\xfe"], ["ÿ".encode(), b"a\xff"]),
        ("/order/", [b"order", b"an order\n"], [b"Order", b"/orde/"]),
        ("/^a.c$/", [b"abc", b"a\xffc", "aéc".encode()], [b"abcd", b"a\nc"]),
        ("/(?i)ÄB/", ["äb".encode()], [b"\xe4b"]),
        ("[/]a/*/", [b"/a/b/"], [b"a/b"]),
    ],
)
def test_patterns(pattern: str, matched: list[bytes], others: list[bytes | None]) -> None:
    """A glob is of the whole text, an expression found in it; a byte that is no UTF-8 is a character; null is none."""
    wanted = MessageFilter(value=[parse_pattern(pattern, "--filter-value")])
    messages = [Message(topic="t", partition=0, offset=0, value=value) for value in (*matched, *others)]
    assert wanted.passing(messages) == (messages[: len(matched)], len(messages))


def test_fields_and_limits() -> None:
    """Each field that has patterns matches one of them; of headers one with the name does. Those before the last that
    is needed were compared, and no more."""

    def message(key: bytes | None, *headers: tuple[str, bytes | None]) -> Message:
        return Message(topic="t", partition=0, offset=0, key=key, value=b"v", headers=list(headers) or None)

    matchers = [parse_pattern(one, "") for one in ("a", "/^b/")]
    messages = [
        message(b"a", ("x", b"no"), ("x", b"a")),
        message(b"bb", ("y", b"a")),
        message(b"c", ("x", b"a")),
        message(None, ("x", b"a")),
        message(b"a", ("x", None)),
        message(b"a"),
        message(b"a", *UNREADABLE),
        message(b"bb", ("x", b"b")),
        message(b"a"),
    ]
    wanted = MessageFilter(matchers, headers={"x": matchers})
    first, last = messages[0], messages[7]
    assert wanted.passing(messages) == ([first, last], 9)
    assert wanted.passing(messages, 3) == ([first, last], 9)
    assert wanted.passing(messages, 2) == ([first, last], 8)
    assert wanted.passing(messages, 1) == ([first], 1)
    assert wanted.passing(messages, 0) == ([], 0)
    assert MessageFilter(matchers, matchers, {"x": matchers}).passing(messages) == ([], 9)


@pytest.mark.parametrize(
    ("pattern", "instead"),
    [
        ("/a(/", ["missing )", "[/]"]),
        ("/k1", ["'/RE/'", "'[/]k1'"]),
        ("/k1/i", ["'/RE/'", "'[/]k1/i'"]),
        ("/", ["'/RE/'", "'[/]'"]),
        ("//", ["'/RE/'", "'[/]/'"]),
        ("*[a", ["[[]"]),
        ("[]", ["[[]"]),
        ("[a]b[!]", ["[[]"]),
        ("a[z-a]", ["[a-z]"]),
    ],
)
def test_malformed_patterns(pattern: str, instead: list[str]) -> None:
    """What could match nothing that was meant is refused, with what to write instead."""
    with pytest.raises(UsageError) as refused:
        parse_pattern(pattern, "--filter-key")
    assert names(str(refused.value), "--filter-key:", repr(pattern), *instead), refused.value


def test_an_empty_pattern() -> None:
    """It is refused, with what to write for any text, and for the empty one."""
    with pytest.raises(UsageError) as refused:
        parse_pattern("", "--filter-key")
    assert names(str(refused.value), "--filter-key:", "*", "/^$/"), refused.value


def test_an_endless_expression(monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends, and names the message that it met."""
    monkeypatch.setattr(message_filter, "MAX_MATCH_SECONDS", 0.1)
    wanted = MessageFilter(value=[parse_pattern("/^(a|aa)+$/", "")])
    message = Message(topic="orders", partition=3, offset=17, value=b"a" * 60 + b"!")
    with pytest.raises(FilterLimitError, match=r"\borders-3\b.*\b17\b"):
        wanted.passing([message])
