"""Messages as columns: nulls where a message has nothing, also in a batch where others have."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zkgroup.export.columns import SCHEMA, record_batch
from zkgroup.servers.kafka import Message

TYPES = {0: None, 1: "CreateTime", 2: "LogAppendTime"}

messages = st.builds(
    dict,
    offset=st.integers(0, 2**62),
    timestamp=st.tuples(st.sampled_from([0, 1, 2]), st.sampled_from([-1, 0, 1, 1_600_000_000_000])),
    key=st.none() | st.binary(max_size=3),
    value=st.none() | st.binary(max_size=3),
    headers=st.none() | st.lists(st.tuples(st.text("aü", max_size=2), st.none() | st.binary(max_size=2)), max_size=2),
)


@given(st.lists(messages, min_size=1, max_size=5))
def test_columns_hold_what_the_messages_hold(given_messages: list[dict]) -> None:
    """Every part of every message, whatever mixture a batch is of. No type, or −1, is no time; no headers are null."""
    batch = record_batch([Message(topic="t", partition=0, **parts) for parts in given_messages])
    assert batch.schema == SCHEMA
    batch.validate(full=True)
    for parts, row in zip(given_messages, batch.to_pylist(), strict=True):
        kind, millis = parts["timestamp"]
        known = kind != 0 and millis >= 0
        assert row == {
            "offset": parts["offset"],
            "timestamp": datetime.fromtimestamp(millis / 1000, UTC) if known else None,
            "timestamp_type": TYPES[kind] if known else None,
            "key": parts["key"],
            "value": parts["value"],
            "headers": [{"key": k, "value": v} for k, v in parts["headers"]] if parts["headers"] else None,
        }


@pytest.mark.parametrize("count", [1, 500])
def test_the_common_batch_has_no_null_bitmaps(count: int) -> None:
    """Producers with a clock are the rule: their timestamps are taken over as they lie in memory."""
    batch = record_batch(
        [Message(topic="t", partition=0, offset=i, timestamp=(1, i), value=b"v") for i in range(count)]
    )
    assert batch.column("timestamp").null_count == batch.column("timestamp_type").null_count == 0
    assert batch.column("timestamp").buffers()[0] is None
    assert batch.column("offset").buffers()[0] is None
