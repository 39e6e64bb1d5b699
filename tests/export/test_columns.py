"""Messages as columns: nulls where a message has nothing, also in a batch where others have."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zkgroup.clients.kafka.arrow_columns import Columns
from zkgroup.clients.kafka.client import Message
from zkgroup.clients.kafka.message_contents import END_OF_TIME, Format
from zkgroup.clients.kafka.range_reader import memory_size
from zkgroup.schemas.field_schema import FieldSchema

TYPES = {0: None, 1: "CreateTime", 2: "LogAppendTime"}

#: None, the first and last that a calendar has, nanoseconds, the ends of 64 bits.
TIMES = [-1, 0, 1, 1_600_000_000_000, END_OF_TIME - 1, END_OF_TIME, 1_600_000_000_000_000_000, (1 << 63) - 1]
TIMES += [-2, -(1 << 63)]

messages = st.builds(
    dict,
    offset=st.sampled_from([1, 1, 1, 2, 100, 2**60]),  # behind the one before: what is compacted away is left out
    timestamp=st.tuples(st.sampled_from([0, 1, 2]), st.sampled_from(TIMES)),
    key=st.none() | st.binary(max_size=3),
    value=st.none() | st.binary(max_size=3),
    headers=st.none() | st.lists(st.tuples(st.text("aü", max_size=2), st.none() | st.binary(max_size=2)), max_size=2),
)


@given(st.lists(messages, min_size=1, max_size=5))
def test_columns_hold_what_the_messages_hold(given_messages: list[dict]) -> None:
    """Every part of every message, whatever mixture a batch is of: an empty key is one. No type, or −1, is no time; a
    number that no calendar has is not lost; no headers are null."""
    columns = Columns(has_partition=False)
    for before, parts in itertools.pairwise(given_messages):
        parts["offset"] += before["offset"]
    made = [Message(topic="t", partition=0, **parts) for parts in given_messages]
    assert memory_size(made) >= sum(len(parts["key"] or b"") + len(parts["value"] or b"") for parts in given_messages)
    batch, undecodable = columns.batch(made, 0)
    assert batch.schema == columns.schema
    assert undecodable == 0
    batch.validate(full=True)
    for parts, row in zip(given_messages, batch.to_pylist(), strict=True):
        kind, millis = parts["timestamp"]
        known = kind != 0 and millis != -1
        usable = known and 0 <= millis < END_OF_TIME
        assert row == {
            "offset": parts["offset"],
            "timestamp": datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=millis) if usable else None,
            "timestamp_type": TYPES[kind] if known else None,
            "timestamp_raw": millis if known and not usable else None,
            "key": parts["key"],
            "value": parts["value"],
            "headers": [{"key": k, "value": v} for k, v in parts["headers"]] if parts["headers"] else None,
        }


def test_a_message_is_undecodable_once() -> None:
    """However much of it is: a key that is no text, a value that is not of its schema."""
    columns = Columns("text", FieldSchema("json-schema", '{"type": "integer"}'))
    parts = [(b"\xff", b"x"), (b"\xff", b"1"), (b"k", b"x"), (b"k", b"1")]
    made = [Message(topic="t", partition=0, offset=i, key=key, value=value) for i, (key, value) in enumerate(parts)]
    batch, undecodable = columns.batch(made, 0)
    assert batch.column("key").to_pylist() == [None, None, "k", "k"]
    assert batch.column("value").to_pylist() == [None, 1, None, 1]
    assert undecodable == 3


@pytest.mark.parametrize("count", [1, 500])
def test_the_common_batch_has_no_null_bitmaps(count: int) -> None:
    """Producers with a clock are the rule: their timestamps are taken over as they lie in memory."""
    batch, _ = Columns(has_partition=False).batch(
        [Message(topic="t", partition=0, offset=i, timestamp=(1, i), value=b"v") for i in range(count)], 0
    )
    assert batch.column("timestamp").null_count == batch.column("timestamp_type").null_count == 0
    assert batch.column("timestamp").buffers()[0] is None
    assert batch.column("offset").buffers()[0] is None


_WITHOUT_PANDAS = """
import sys
from zkgroup.clients.kafka.arrow_columns import Columns
from zkgroup.clients.kafka.client import Message
given = [
    Message(topic="t", partition=0, offset=i, timestamp=(1, i), key=key, value=b"v", headers=[("a", b"b"), ("c", None)])
    for i, key in enumerate([None, b"k"])
]
assert Columns().batch(given, 0)[0].num_rows == 2
assert "pyarrow" in sys.modules and "pandas" not in sys.modules
"""


def test_columns_need_no_pandas() -> None:
    """pandas, where it is installed, takes each worker a quarter of a second: pyarrow imports it unasked."""
    done = subprocess.run([sys.executable, "-c", _WITHOUT_PANDAS], capture_output=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr.decode()


def is_right(data: bytes, kind: Format) -> bool:
    """By Python's own reading, which takes NaN and lone surrogates besides."""
    try:
        text = data.decode()
        if kind == "json":
            json.loads(text, parse_constant=lambda name: 1 / 0)
    except (ValueError, ZeroDivisionError):
        return False
    return True


pieces = st.sampled_from(
    [b"{}", b'{"a":1}', b"[1,", b"]", b"null", b"1e400", b"NaN", b"\xff", b"text", b'"\xc3\xbc"', b""]
)


@given(
    st.lists(st.tuples(st.none() | pieces, st.none() | pieces), min_size=1, max_size=6),
    st.sampled_from(get_args(Format)), st.sampled_from(get_args(Format)),
)  # fmt: skip
def test_what_cannot_be_decoded_is_kept_and_counted(
    pairs: list[tuple[bytes | None, bytes | None]], key: Format, value: Format
) -> None:
    """A key or value that is no text, or no JSON, is null in its column and whole in the raw one; all others are text,
    and a null stays a null. A message counts once, whichever of the two is wrong."""
    batch, undecodable = Columns(key, value).batch(
        [Message(topic="t", partition=3, offset=i, timestamp=(1, i), key=k, value=v) for i, (k, v) in enumerate(pairs)],
        3,
    )
    batch.validate(full=True)
    wrong = 0
    for row, pair in zip(batch.to_pylist(), pairs, strict=True):
        assert row["partition"] == 3
        bad = False
        for name, data, kind in zip(("key", "value"), pair, (key, value), strict=True):
            if kind == "bytes":
                assert row[name] == data
                assert f"{name}_raw" not in row
            elif data is None or is_right(data, kind):
                assert (row[name], row[f"{name}_raw"]) == (None if data is None else data.decode(), None)
            else:
                assert (row[name], row[f"{name}_raw"]) == (None, data)
                bad = True
        wrong += bad
    assert undecodable == wrong
