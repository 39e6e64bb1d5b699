"""Batches: how far a reader has come in one, and what is left of it. Without a server."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zkgroup.clients.kafka.client import Message
from zkgroup.clients.kafka.fetcher import offset_of, partition_of, runs_of, topic_of
from zkgroup.connector.records import Batch, trimmed
from zkgroup.errors import MissingExtraError
from zkgroup.protocol.ledger import Run
from zkgroup.protocol.names import TopicPartition

#: Runs of a batch: topic, partition, and the offsets (rising, with gaps).
offsets = st.lists(st.integers(1, 4), min_size=1, max_size=5)
parts = st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 2), offsets), min_size=1, max_size=6)


def batch_of(parts: list[tuple[str, int, list[int]]]) -> Batch:
    """Messages as a fetch gives them: each partition's offsets rise over the whole batch."""
    reached: dict[tuple[str, int], int] = {}
    messages = []
    for topic, partition, steps in parts:
        for step in steps:
            offset = reached[topic, partition] = reached.get((topic, partition), 0) + step
            messages.append(Message(topic=topic, partition=partition, offset=offset, value=b"v"))
    return Batch(messages, runs_of(messages))


def consumed(messages: list[Message]) -> dict[TopicPartition, int]:
    """The next offset of each partition after these messages, counted one by one."""
    return {TopicPartition(topic_of(m), partition_of(m)): offset_of(m) + 1 for m in messages}


@given(parts)
def test_runs_tell_whose_the_messages_are(parts: list[tuple[str, int, list[int]]]) -> None:
    """Runs cover the batch without a gap, each of one partition, from its first offset to behind its last."""
    batch = batch_of(parts)
    assert [run.start for run in batch.runs] == [0, *(run.stop for run in batch.runs[:-1])]
    assert batch.runs[-1].stop == len(batch.messages)
    for run in batch.runs:
        part = batch.messages[run.start : run.stop]
        assert {TopicPartition(topic_of(m), partition_of(m)) for m in part} == {run.partition}
        assert (run.first, run.next) == (offset_of(part[0]), offset_of(part[-1]) + 1)
    if len({topic for topic, _, _ in parts}) == 1:
        assert runs_of(batch.messages) == batch.runs


@given(parts, st.data())
def test_any_number_of_messages_may_be_consumed(parts: list[tuple[str, int, list[int]]], data: st.DataObject) -> None:
    """What the first messages of a batch leave consumed is what counting them one by one says."""
    batch = batch_of(parts)
    count = data.draw(st.integers(0, len(batch.messages)))
    assert batch.offsets_before(count) == consumed(batch.messages[:count])


@given(parts, st.data())
def test_what_was_delivered_before_is_left_out(parts: list[tuple[str, int, list[int]]], data: st.DataObject) -> None:
    """Cut to positions, a batch has just the messages at or behind them, in their order."""
    batch = batch_of(parts)
    ends = consumed(batch.messages)
    positions = {partition: data.draw(st.integers(0, end)) for partition, end in ends.items()}
    runs = [run for run in batch.runs if run.next > positions[run.partition]]
    kept = [m for m in batch.messages if offset_of(m) >= positions[TopicPartition(topic_of(m), partition_of(m))]]
    cut = trimmed(batch.messages, runs, positions)
    assert cut.messages == kept
    assert [run.stop - run.start for run in cut.runs] == [
        sum(offset_of(m) >= positions[run.partition] for m in batch.messages[run.start : run.stop]) for run in runs
    ]
    assert all(isinstance(run, Run) and run.first == offset_of(cut.messages[run.start]) for run in cut.runs)


@given(parts)
def test_a_table_has_a_row_for_each_message(parts: list[tuple[str, int, list[int]]]) -> None:
    """In the order of the messages; a chunk for each run."""
    batch = batch_of(parts)
    table = batch.to_arrow()
    table.validate(full=True)
    rows = table.select(["topic", "partition", "offset", "value"]).to_pylist()
    assert [tuple(row.values()) for row in rows] == [
        (topic_of(m), partition_of(m), offset_of(m), b"v") for m in batch.messages
    ]
    assert {column.num_chunks for column in table.columns} == {len(batch.runs)}


def test_a_table_needs_pyarrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names what installs it."""
    monkeypatch.delitem(sys.modules, "zkgroup.clients.kafka.arrow_columns", raising=False)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingExtraError, match="pyarrow") as raised:
        batch_of([("a", 0, [1])]).to_arrow()
    assert "zkgroup[export]" in str(raised.value.remedy)
