"""Topic filters: normalisation, what Java and we read alike, and the bound on the work."""

from __future__ import annotations

import pickle
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

import pytest
from expressions import Expressions
from hypothesis import given
from hypothesis import strategies as st
from jvm import java_machine
from py4j.protocol import Py4JJavaError

from zkgroup.errors import FilterLimitError, FilterSyntaxError, UsageError
from zkgroup.protocol.topic_filter import PatternError, TopicFilter, compile_java, normalise

TOPICS = [
    "orders",
    "orders-1",
    "orders.eu",
    "Orders",
    "payments",
    "payments_eu",
    "t",
    "t-1",
    "t-11",
    "__consumer_offsets",
]


def taken(expression: str, topics: Sequence[str] = TOPICS) -> list[str]:
    """What a white list takes."""
    return [topic for topic in topics if TopicFilter("white_list", expression).matches(topic)]


# --- normalisation and selection


@pytest.mark.parametrize(
    ("raw", "normal"),
    [
        ("a,b", "a|b"),
        (" a , b ", "a|b"),
        ("'a','b'", "a'|'b"),
        ("\"'a'\"", "a"),
        ("\t'a b'\n", "ab"),
        ("a{2,3}", "a{2|3}"),
        ("'", ""),
        ("", ""),
        ("'\ta'", "a"),
    ],
)
def test_normalisation(raw: str, normal: str) -> None:
    """Trim, commas to bars, no blanks, no quotes at the two ends of the whole."""
    assert normalise(raw) == normal


@given(st.text("ab,' \"\t\n|\x01", max_size=12))
def test_what_is_registered_is_read_the_same(raw: str) -> None:
    """Readers normalise again what was registered: that changes nothing more."""
    assert normalise(normalise(raw)) == normalise(raw)


def test_white_and_black_lists() -> None:
    """A white list takes what matches, a black list everything else; the whole name must match."""
    assert TopicFilter("white_list", "t|orders").select(TOPICS) == ("orders", "t")
    black = TopicFilter("black_list", "t.*,orders.*")
    assert black.select(TOPICS) == ("Orders", "payments", "payments_eu")
    assert not black.matches("t-1")


def test_internal_topics_are_left_out_on_demand() -> None:
    """Both kinds leave out Kafka's own topics unless reported otherwise; which ones depends on the reader."""
    topics = ["a", "__consumer_offsets", "__transaction_state"]
    everything = TopicFilter("white_list", ".*")
    assert everything.select(topics) == ("a",)
    assert everything.select(topics, exclude_internal=False) == ("__consumer_offsets", "__transaction_state", "a")
    assert everything.select(topics, internal={"__consumer_offsets"}) == ("__transaction_state", "a")
    assert TopicFilter("black_list", "a").select(topics) == ()


def test_names_that_are_no_topics_are_taken_by_nobody() -> None:
    """Beyond printable ASCII there are no topics, so that neither list takes such a node."""
    for kind in ("white_list", "black_list"):
        assert TopicFilter(kind, "x?|.*é").select(["é", "a\n", "\x7f", ""]) == ()


def test_filters_are_values() -> None:
    """Equal by kind and normalised expression, hashable, and fit for another process."""
    one, other = TopicFilter("white_list", " a,b "), TopicFilter("white_list", "a|b")
    assert one == other
    assert hash(one) == hash(other)
    assert one != TopicFilter("black_list", "a|b")
    assert pickle.loads(pickle.dumps(one)).select(["a", "b", "c"]) == ("a", "b")


# --- Java's dialect, by example


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (r"[A-Za-z]+", ["orders", "Orders", "payments", "t"]),
        (r"[a-z]+-\d+", ["orders-1", "t-1", "t-11"]),
        (r"\Qorders.eu\E", ["orders.eu"]),
        (r"\Qt-1\E+", ["t-1", "t-11"]),
        (r"\Qorders", ["orders"]),
        (r"orders\.eu", ["orders.eu"]),
        (r"orders[._-]\w+", ["orders-1", "orders.eu"]),
        (r"orders[-.]\w+", ["orders-1", "orders.eu"]),
        (r"[^\W_]+", ["orders", "Orders", "payments", "t"]),
        (r"(?i)ORDERS", ["orders", "Orders"]),
        (r"(?i)[N-P]rders", ["orders", "Orders"]),
        (r"t-1{2}", ["t-11"]),
        (r"t-(1)*", ["t-1", "t-11"]),
        (r"(?!o|O|_).*", ["payments", "payments_eu", "t", "t-1", "t-11"]),
        (r"^(?!__).*$", [one for one in TOPICS if one != "__consumer_offsets"]),
        (r".*(?<!\d|s)", ["orders.eu", "payments_eu", "t"]),
        (r".*(?<=-1)", ["orders-1", "t-1"]),
        (r"^orders$", ["orders"]),
        (r"(?:(?!er).)*", ["payments", "payments_eu", "t", "t-1", "t-11"]),
        (r"t-1*?1", ["t-1", "t-11"]),
        (r"[\]_]+consumer_offsets", ["__consumer_offsets"]),
        (r"t}|t]|t", ["t"]),
        (r"|t", ["t"]),
    ],
)
def test_java_expressions(expression: str, expected: list[str]) -> None:
    """Lists, classes, groups, counts, quotations, case, anchors and look-around as Java reads them."""
    assert taken(expression) == expected


INVALID = [
    *[
        "(",
        ")",
        "a**",
        "*",
        "[z-a]",
        "[a",
        "a{",
        "a{2",
        "a{2|1}x{",
        "a{99999999999}",
        "\\",
        "[\\",
        "(?:a",
        "|*",
    ],
]


@pytest.mark.parametrize("expression", INVALID)
def test_what_java_refuses_is_invalid(expression: str) -> None:
    """An expression that Java does not compile is a usage error that names it; it would stop the whole group."""
    with pytest.raises(FilterSyntaxError) as caught:
        TopicFilter("white_list", expression)
    assert expression in str(caught.value)


UNSUPPORTED = [
    *[
        "(?x)a",
        r"\p{Alpha}",
        r"\P{L}",
        r"\X",
        r"\b{g}",
        r"\bt",
        r"\Bt",
        r"\R",
        r"\Aa",
        r"a\z",
        r"\Ga",
        r"\x61",
        r"\u0061",
    ],
    *["[^a[b]]", "[a&&b]", "[&&a]", "[]a]", "[]", r"[\w-a]", r"[a-\w]", "[a-b-c]", "[a-é]", r"[\Qa\E]", r"\Q\Ea"],
    *["a++", "a*+1", "(?>t|t-1)", "(?<n>a)", "(?<1>a)", "(?P<n>a)", r"(a)\1", r"\k<n>", "a(?i)b", "(?i:a)", "(?z)a"],
    *[
        "(?<=a*)b",
        "(?<=(?=a))b",
        "^*a",
        "(?=a)?b",
        "(?:^|a){2}",
        "(?:(?=a)a?){2}",
        "a{2}{3}",
        "{2}a",
        r"\i",
        r"\t",
        r"\0101",
    ],
    *["a\\\nb", "(" * 60 + ")" * 60, "(){999999999}", "a{1001}", "a" * 100_001],
]


@pytest.mark.parametrize("expression", UNSUPPORTED, ids=lambda expression: expression[:20])
def test_what_cannot_be_had_exactly_is_refused(expression: str) -> None:
    """What Java and ``regex`` may read differently, or is out of proportion, is refused at once, in one short line that
    says what to write instead."""
    started = time.process_time()
    with pytest.raises(UsageError) as caught:
        TopicFilter("white_list", expression)
    assert type(caught.value) is UsageError  # not as what Java refuses, too
    assert caught.value.remedy
    assert len(str(caught.value)) < 400
    assert str(caught.value).isprintable()
    assert time.process_time() - started < 2


def test_expressions_of_any_text() -> None:
    """Lone surrogates, as an undecodable command line gives them, are an error; other characters just match nothing."""
    with pytest.raises(UsageError):
        TopicFilter("white_list", "a\udcff")
    assert taken("é|日本|t") == ["t"]


# --- bounds

EXPLODING = [
    "(a+)+$",
    "(a*)*b",
    "(a|a)*b",
    "(a|aa)+b",
    "(.*a){25}b",
    "(?:a?){200}a{200}b",
    "(x+x+)+y|(a+a+)+y",
    "([a-z]+)*#",
    "(?:(?:(?:a*)*)*)*b",
    "(a|b)*a(a|b){60}",
]


@pytest.mark.parametrize("expression", EXPLODING)
def test_what_explodes_is_stopped(expression: str) -> None:
    """However an expression is written: there is an answer in time, or an error that says so."""
    exploding = TopicFilter("white_list", expression)
    for match in (lambda: exploding.matches("a" * 248 + "!"), lambda: bool(exploding.select(["a" * 248 + "!"] * 9))):
        started = time.process_time()
        with suppress(FilterLimitError):
            assert match() is False
        assert time.process_time() - started < 3


def test_the_limit_is_met() -> None:
    """There are expressions that would take for ever."""
    with pytest.raises(FilterLimitError, match="'ababab"):
        TopicFilter("white_list", "(a|b|ab)*(?=c)c|(x+x+)+y").matches("ab" * 120 + "x" * 9)


def test_one_limit_holds_for_a_whole_selection() -> None:
    """Ten thousand names that each take many steps share one allowance."""
    costly = TopicFilter("white_list", "(?:(?:a|b|ab)*[cd])*e")
    started = time.process_time()
    with pytest.raises(FilterLimitError):
        costly.select(f"{'ab' * 20}c-{i}e" for i in range(10_000))
    assert time.process_time() - started < 15


def test_many_topics_are_quick() -> None:
    """10,000 topics take a fraction of a second, with look-around as well, and a list of 1,000 names as well."""
    topics = [f"{kind}.eu-west-{i}" for kind in ("orders", "payments") for i in range(5000)]
    for expression in ("orders.*", "(?!orders).*", r".*(?<!-7)", "|".join(topics[:1000])):
        started = time.process_time()
        assert TopicFilter("white_list", expression).select(topics)
        assert time.process_time() - started < 2


# --- against Java itself and against Python


@pytest.fixture(scope="module")
def java(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A Java virtual machine with nothing but its own classes."""
    with java_machine(None, tmp_path_factory.mktemp("jvm")) as jvm:
        yield jvm


class JavaRegex:
    """``String.matches`` for many names at once."""

    def __init__(self, jvm: Any) -> None:
        self._pattern = jvm.java.util.regex.Pattern
        self._lines = self._pattern.compile("\n")
        self._joined = jvm.java.util.stream.Collectors.joining("\n")

    def matching(self, expression: str, names: Sequence[str]) -> list[str] | None:
        """Those of the names that match; None where Java refuses the expression."""
        try:
            whole = self._pattern.compile(expression).asMatchPredicate()
        except Py4JJavaError as error:
            if error.java_exception.getClass().getSimpleName() != "PatternSyntaxException":
                raise
            return None
        found: str = self._lines.splitAsStream("\n".join(names)).filter(whole).collect(self._joined)
        return found.split("\n") if found else []


SUBJECTS = [
    *[
        "a",
        "b",
        "c",
        "A",
        "1",
        "_",
        "-",
        ".",
        " ",
        "]",
        "}",
        "&",
        "ab",
        "ba",
        "aa",
        "bb",
        "a1",
        "a.",
        "1a",
        "aB",
        "a b",
    ],
    *["abc", "aab", "aba", "bab", "a-b", "AbA", "a{2}", "a&&b", "aaaa", "abab", "aabb", "b.a_1", "aaaaaaaa", "~#a"],
    *["a.b.c-1_2", "aa2", "bbbaabba", "AAAA"],
]
PECULIAR = [
    r"(?<m>){0,2}\1",
    "[a-c&&[b]c]",
    "[^]a]&&]",
    "a{2}{3}",
    r"(?iu)ſ|K",
    "[&&a]",
    "[a-[b]]",
    r"[\v-a]",
    "{2}a",
    "a|{0}b",
    "(?:a|ab){2}+b",
    "(?>(?:|a)*)a",
    "(?:|a){2}",
    r"(a)\12",
    r"\06\Q1\E",
]


def matching(expression: str, names: Sequence[str]) -> list[str]:
    """What matches here. Raises PatternError."""
    pattern = compile_java(expression)
    return [name for name in names if pattern.fullmatch(name, timeout=10)]


def test_java_agrees(java: Any) -> None:
    """What is accepted matches the same names as in Java; what is called invalid Java refuses as well."""
    regex = JavaRegex(java)
    drawn = Expressions(20240817)
    compared = invalid = matched = 0
    for expression in [*PECULIAR, *(drawn.expression() for _ in range(20_000))]:
        try:
            ours = matching(expression, SUBJECTS)
        except PatternError as error:
            if not error.valid_in_java:
                invalid += 1
                assert regex.matching(expression, SUBJECTS) is None, expression
            continue
        assert ours == regex.matching(expression, SUBJECTS), expression
        compared += 1
        matched += bool(ours)
    assert compared > 4000
    assert matched > 1000
    assert invalid > 300


def test_python_agrees_where_the_dialects_do() -> None:
    """Literals, classes, groups, alternatives, counts and look-ahead mean the same to Python's own module."""
    drawn = Expressions(20240818, plain=True)
    names = ["", *SUBJECTS, "abbabaab"]
    compared = refused = invalid = 0
    for expression in (drawn.expression() for _ in range(2000)):
        theirs = [name for name in names if re.fullmatch(expression, name)]
        try:
            assert matching(expression, names) == theirs, expression
        except PatternError as error:
            refused += error.valid_in_java
            invalid += not error.valid_in_java
            continue
        compared += bool(theirs)
    assert compared > 500
    assert refused < 800
    assert invalid == 0


@given(st.text(max_size=40))
def test_no_expression_breaks_the_parser(expression: str) -> None:
    """Any text is either a filter or a usage error."""
    try:
        TopicFilter("black_list", expression).select(TOPICS)
    except UsageError as error:
        shown = str(error)
        assert "\n" not in shown
