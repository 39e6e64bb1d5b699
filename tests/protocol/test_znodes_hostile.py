"""Znodes that hold anything at all: decoders understand it, or say in one short line that they do not."""

from __future__ import annotations

import json
import time
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zkgroup.errors import MalformedZnodeError
from zkgroup.protocol.broker_znodes import decode_broker, decode_partition_state, decode_topic
from zkgroup.protocol.znodes import decode_offset, decode_registration, registration_defects

DECODERS: list[Callable[[str, bytes | None], object]] = [
    decode_registration,
    decode_broker,
    decode_topic,
    decode_partition_state,
    decode_offset,
]
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
KEYS = st.one_of(
    st.sampled_from(["version", "subscription", "pattern", "timestamp"]),
    st.sampled_from(["host", "port", "endpoints", "listener_security_protocol_map", "rack"]),
    st.sampled_from(["partitions", "topic_id", "leader", "leader_epoch", "isr", "controller_epoch"]),
)


def check_all(data: bytes | None) -> None:
    """Every decoder either understands the data or says in a short line that it does not."""
    errors: list[MalformedZnodeError] = []
    for decode in DECODERS:
        try:
            decode("/brokers/ids/1", data)
        except MalformedZnodeError as error:
            errors.append(error)
    assert all(len(error.why) < 160 and "\n" not in str(error) for error in errors)
    assert all(len(defect.text) < 160 for defect in registration_defects(data))


@given(st.binary(max_size=200))
def test_any_bytes(data: bytes) -> None:
    """No bytes make a decoder raise anything but MalformedZnodeError."""
    check_all(data)


@given(st.dictionaries(KEYS, JSON_VALUES))
def test_any_json(value: dict[str, object]) -> None:
    """No JSON with the right keys and wrong values does either."""
    check_all(json.dumps(value).encode("utf-8", "surrogatepass"))


@pytest.mark.parametrize(
    "data",
    [
        b"[" * 100_000,
        b'{"partitions":' * 100_000,
        b'{"pattern":"static","subscription":' + b'{"a":' * 900 + b"1" + b"}" * 901,
        b"9" * 100_000,
        b'{"leader":' + b"9" * 100_000 + b',"leader_epoch":0,"isr":[]}',
        b'{"pattern":"static","subscription":{"t":' + b"9" * 30 + b"}}",
        b'{"pattern":"static","subscription":{"t":NaN}}',
        b'{"pattern":"static","subscription":{"t":1e999}}',
        b'{"pattern":"\xff\xfe","subscription":{}}',
        b"\xef\xbb\xbf{}",
        b'{"pattern":"static","subscription":{"' + b"x" * 100_000 + b'":0}}',
        b'{"host":"h","port":1,"endpoints":["' + b"x" * 100_000 + b'"]}',
        b'{"\\ud800":1}',
        b"\\" * 100_000,
    ],
    ids=lambda data: repr(data[:20]),
)
def test_hostile_data(data: bytes) -> None:
    """Deep nesting, huge numbers, NaN, broken UTF-8 and long strings end in a short error."""
    check_all(data)


def test_a_hundred_megabytes_are_refused_at_once() -> None:
    """Nothing larger than 1 MiB is parsed."""
    data = b'{"a":"' + b"x" * 100_000_000 + b'"}'
    started = time.process_time()
    for decode in DECODERS:
        with pytest.raises(MalformedZnodeError):
            decode("/brokers/ids/1", data)
    assert time.process_time() - started < 1
