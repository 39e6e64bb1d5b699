"""Znodes: paths, and what is written to and read from them."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lines import names

from zkgroup.errors import MalformedZnodeError, UsageError
from zkgroup.protocol import znodes
from zkgroup.protocol.names import TopicPartition
from zkgroup.protocol.znodes import (
    ESCAPED_TWICE,
    NUMERIC_TIMESTAMP,
    OTHER_NUMBERS,
    SEVERAL_EXPRESSIONS,
    UNESCAPED,
    Registration,
    RegistrationDefect,
    decode_offset,
    decode_registration,
    encode_offset,
    encode_registration,
    registration_defects,
)

PATH = "/consumers/g/ids/c"
STREAMS = st.integers(1, 2**31 - 1)
NAMES = st.text(st.characters(codec="utf-8"), max_size=30)
REGISTRATIONS = st.one_of(
    st.builds(Registration, st.just("static"), st.dictionaries(NAMES, STREAMS), st.integers(0, 2**63 - 1)),
    st.builds(
        Registration,
        st.sampled_from(["white_list", "black_list"]),
        st.dictionaries(NAMES, STREAMS, min_size=1, max_size=1),
        st.integers(0, 2**63 - 1),
    ),
)


# --- paths


@given(st.lists(st.builds(TopicPartition, st.sampled_from(["t", "u.v", "/", ""]), st.integers(-1, 9)), max_size=8))
def test_paths_of_many_offsets_are_those_of_each(partitions: list[TopicPartition]) -> None:
    """Names and numbers that cannot be are refused here as there."""
    try:
        expected = {partition: znodes.offset("g", partition) for partition in partitions}
    except UsageError:
        with pytest.raises(UsageError):
            znodes.offset_paths("g", partitions)
    else:
        assert list(znodes.offset_paths("g", partitions).items()) == list(expected.items())


def test_paths() -> None:
    """Every path of the registry, relative to the chroot."""
    partition = TopicPartition("t.a-b_c", 3)
    assert znodes.consumers() == "/consumers"
    assert znodes.group("g") == "/consumers/g"
    assert znodes.ids("g") == "/consumers/g/ids"
    assert znodes.member_id("g", "g_host-1-ab") == "/consumers/g/ids/g_host-1-ab"
    assert znodes.owners("g") == "/consumers/g/owners"
    assert znodes.owner_topic("g", "t") == "/consumers/g/owners/t"
    assert znodes.owner("g", partition) == "/consumers/g/owners/t.a-b_c/3"
    assert znodes.offsets("g") == "/consumers/g/offsets"
    assert znodes.offset_topic("g", "t") == "/consumers/g/offsets/t"
    assert znodes.offset("g", partition) == "/consumers/g/offsets/t.a-b_c/3"
    assert znodes.broker_ids() == "/brokers/ids"
    assert znodes.broker(7) == "/brokers/ids/7"
    assert znodes.topics() == "/brokers/topics"
    assert znodes.topic("t") == "/brokers/topics/t"
    assert znodes.partition_state(partition) == "/brokers/topics/t.a-b_c/partitions/3/state"
    assert znodes.controller() == "/controller"
    assert znodes.delete_topics() == "/admin/delete_topics"


@pytest.mark.parametrize(
    "name", ["", ".", "..", "a/b", "/", "a\x00", "a\n", "\x7f", "\x9f", "\ud800", "\ue000", "\U0001f600"]
)
def test_a_name_never_leaves_its_place(name: str) -> None:
    """A name that ZooKeeper refuses, or that is another path, makes no path."""
    for path in (znodes.group, znodes.topic, lambda n: znodes.member_id("g", n), lambda n: znodes.offset_topic("g", n)):
        with pytest.raises(UsageError):
            path(name)


@given(st.text())
def test_a_path_has_as_many_parts_as_it_should(name: str) -> None:
    """Whatever a group is called, its path has two parts, or there is none."""
    try:
        path = znodes.group(name)
    except UsageError:
        return
    assert path.split("/") == ["", "consumers", name]
    assert name not in (".", "..")


def test_negative_numbers_make_no_path() -> None:
    """A partition −1 is a mistake, not a node."""
    with pytest.raises(UsageError):
        znodes.offset("g", TopicPartition("t", -1))


# --- registrations


def test_a_registration_is_written_as_the_scala_consumer_writes_it() -> None:
    """Key order, spacing, and the time stamp as a string are those of 1.1.1."""
    written = encode_registration(Registration("static", {"b": 2, "a": 1}, 1411294187842))
    assert written == b'{"version":1,"subscription":{"b":2,"a":1},"pattern":"static","timestamp":"1411294187842"}'


def test_backslashes_are_escaped_once() -> None:
    """A filter's backslashes are valid JSON, which every release reads (1.1.1 itself escapes them twice)."""
    written = encode_registration(Registration("white_list", {r"\w+\.log": 1}, 5))
    assert rb'{"\\w+\\.log":1}' in written


@given(REGISTRATIONS)
def test_registrations_survive_the_round_trip(registration: Registration) -> None:
    """What is written is read back the same, and any JSON reader understands it."""
    written = encode_registration(registration)
    assert decode_registration(PATH, written) == registration
    assert json.loads(written)["timestamp"] == str(registration.timestamp)


@pytest.mark.parametrize(
    "bad",
    [
        Registration("static", {"t": 0}, 1),
        Registration("static", {"t": -1}, 1),
        Registration("static", {"t": True}, 1),
        Registration("static", {"t": 2**31}, 1),
        Registration("static", {"t": 1}, None),
        Registration("white_list", {}, 1),
        Registration("black_list", {"a": 1, "b": 1}, 1),
    ],
)
def test_what_would_stop_the_group_is_never_written(bad: Registration) -> None:
    """A registration that Scala consumers cannot read is refused at the source."""
    with pytest.raises(ValueError, match=r".+"):
        encode_registration(bad)


@pytest.mark.parametrize(
    ("data", "expected", "defect"),
    [
        (
            rb'{ "pattern":"white_list", "subscription":{ "\w+\.a" : 2 }, "timestamp":"7", "version":1 }',
            Registration("white_list", {r"\w+\.a": 2}, 7),
            UNESCAPED,
        ),
        (
            rb'{"version":1,"subscription":{"\\\\w+":2},"pattern":"white_list","timestamp":"7"}',
            Registration("white_list", {r"\\w+": 2}, 7),
            ESCAPED_TWICE,
        ),
        (
            rb'{"version":1,"subscription":{"\bx":2},"pattern":"white_list","timestamp":"7"}',
            Registration("white_list", {"\bx": 2}, 7),
            ("changes-meaning",),
        ),
        (
            b'{"version":1,"subscription":{"t":1},"pattern":"fancy","timestamp":"7"}',
            Registration("static", {"t": 1}, 7),
            (None, "'fancy'"),
        ),
        (
            b'{"version":1,"subscription":{"t":1},"pattern":null,"timestamp":"7"}',
            Registration("static", {"t": 1}, 7),
            ("stops-releases", "1.0"),
        ),
        (
            b'{"version":1,"subscription":{"t":1},"pattern":"static","timestamp":1411294187842}',
            Registration("static", {"t": 1}, 1411294187842),
            NUMERIC_TIMESTAMP,
        ),
        (
            b'{"version":1,"subscription":{"t":1},"pattern":"static"}',
            Registration("static", {"t": 1}, None),
            (None,),
        ),
        (
            b'{"version":1,"subscription":{"t":1},"pattern":"static","timestamp":"noon"}',
            Registration("static", {"t": 1}, None),
            (None,),
        ),
        (
            b'{"subscription":{"t":1},"pattern":"static","timestamp":"7"}',
            Registration("static", {"t": 1}, 7, None),
            (None, 1),
        ),
        (
            b'{"version":1,"subscription":{"a.*":1,"b.*":2},"pattern":"black_list","timestamp":"7"}',
            Registration("black_list", {"a.*": 1}, 7),
            SEVERAL_EXPRESSIONS,
        ),
        (
            b'{"version":1,"subscription":{},"pattern":"white_list","timestamp":"7"}',
            Registration("static", {}, 7),
            ("changes-meaning",),
        ),
        (
            b'{"version":1,"subscription":{"t":1},"pattern":"static","timestamp":"7","load":0.5}',
            Registration("static", {"t": 1}, 7),
            OTHER_NUMBERS,
        ),
    ],
)
def test_what_others_write_is_read_and_its_defect_named(
    data: bytes, expected: Registration, defect: RegistrationDefect | tuple[str | None, *tuple[object, ...]]
) -> None:
    """The leniencies of the Scala consumer's readers, each with what is wrong, or with its effect and what it names."""
    assert decode_registration(PATH, data) == expected
    found, *_ = registration_defects(data)
    if isinstance(defect, RegistrationDefect):
        assert found is defect
    else:
        assert (found.effect, names(found.text, *defect[1:])) == (defect[0], True)


def test_harmless_registrations_have_no_defects() -> None:
    """0.8.0's blanks and sorted keys, unknown keys, and a subscription to nothing are all fine."""
    old = b'{ "pattern":"static", "subscription":{ "t" : 1 }, "timestamp":"7", "version":1 }'
    assert decode_registration(PATH, old) == Registration("static", {"t": 1}, 7)
    for data in (old, b'{"version":1,"subscription":{},"pattern":"static","timestamp":"7","x":[1,{"y":null}]}'):
        assert registration_defects(data) == ()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        None,
        b"hello",
        b"null",
        b"[]",
        b"{}",
        b'"text"',
        b'{"subscription":{"t":1}}',
        b'{"pattern":"static"}',
        b'{"pattern":1,"subscription":{"t":1}}',
        b'{"pattern":"static","subscription":["t"]}',
        b'{"pattern":"static","subscription":{"t":0}}',
        b'{"pattern":"static","subscription":{"t":-3}}',
        b'{"pattern":"static","subscription":{"t":"1"}}',
        b'{"pattern":"static","subscription":{"t":1.0}}',
        b'{"pattern":"static","subscription":{"t":true}}',
        b'{"pattern":"static","subscription":{"t":2147483648}}',
        b'{"pattern":"white_list","subscription":{".*":0}}',
        b'{"pattern":"static","subscription":{"t":1}} trailing',
    ],
)
def test_what_stops_every_member_is_malformed(data: bytes | None) -> None:
    """A node that makes every Scala consumers's rebalance fail is named as such, with what to do."""
    with pytest.raises(MalformedZnodeError) as caught:
        decode_registration(PATH, data)
    assert PATH in str(caught.value)
    assert caught.value.remedy is not None
    assert registration_defects(data) == (RegistrationDefect(caught.value.why),)


# --- offsets


@given(st.integers(0, 2**63 - 1), st.text(" \t\n\r", max_size=3), st.text(" \t\n\r", max_size=3))
def test_offsets_survive_the_round_trip(offset: int, before: str, after: str) -> None:
    """A written offset is read back, with or without blanks around it."""
    data = encode_offset(offset)
    assert data == str(offset).encode()
    assert decode_offset("/o", before.encode() + data + after.encode()) == offset


def test_minus_one_is_no_offset() -> None:
    """−1 is none; it is no error."""
    assert decode_offset("/o", b" -1\n") is None


@pytest.mark.parametrize(
    "data",
    [b"", None, b"  ", b"x", b"1 2", b"1.0", b"1_000", b"0x10", b"9223372036854775808", b"\xff", "٣".encode()],
)
def test_what_is_no_offset_is_malformed(data: bytes | None) -> None:
    """Empty nodes, words, fractions, and digits that only Python reads are errors with a remedy."""
    with pytest.raises(MalformedZnodeError) as caught:
        decode_offset("/consumers/g/offsets/t/0", data)
    assert "/consumers/g/offsets/t/0" in str(caught.value)
    assert caught.value.remedy is not None


@pytest.mark.parametrize("offset", [-1, 2**63])
def test_no_impossible_offset_is_written(offset: int) -> None:
    """What no reader takes is never written."""
    with pytest.raises(ValueError, match=str(offset)):
        encode_offset(offset)
