"""The lag in time of a group: which messages are read for it, and which are not."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

import pytest
from group_nodes import Groups
from lines import names

from zkgroup.clients.kafka import message_times
from zkgroup.clients.kafka.client import KafkaSettings, KafkaTopicPartition, admin_client
from zkgroup.clients.kafka.responses import MessageAge
from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.groups.group_model import GroupPartition, GroupSnapshot, StoredOffset
from zkgroup.groups.snapshot import group_reader
from zkgroup.groups.snapshot.group_reader import read_group
from zkgroup.groups.snapshot.table_rows import group_row, partition_rows
from zkgroup.sandbox.topic_admin import ProducerRecord, produce


def minutes(snapshot: GroupSnapshot) -> list[int | None]:
    """The age of the next message in each partition, in whole minutes."""
    ages = [p.behind("zookeeper") for p in snapshot.partitions]
    return [None if age is None else round(age.seconds / 60) for age in ages]


def test_the_next_message_is_read(
    registry: Registry, kafka: KafkaSettings, groups: Groups, make_topic: Callable[..., str]
) -> None:
    """At the committed offset; at the start of the log where that is later; nothing where there is no lag, none is
    committed, or the offset is beyond the log's end."""
    topic = make_topic(5)
    now = round(time.time() * 1000)
    produce(kafka, topic, [ProducerRecord(b"v", None, p, now - (60 - n) * 60_000) for p in range(5) for n in range(10)])
    admin = admin_client(kafka, 20)
    (future,) = admin.delete_records([KafkaTopicPartition(topic, 1, 5)]).values()
    future.result(20)
    group = groups.make({}, {}, {(topic, 0): 2, (topic, 1): 2, (topic, 2): 10, (topic, 4): 99})
    snapshot = read_group(registry, group, kafka=kafka, ages=None)
    assert minutes(snapshot) == [58, 55, 0, None, None]
    assert snapshot.age_warnings == ()
    assert [row.behind is None for row in partition_rows(snapshot, "zookeeper")] == [False, False, False, True, True]
    row = group_row(snapshot)
    assert row.lag_seconds is None, "a part is not given as the whole"
    assert round((row.lag_seconds_at_least or 0) / 60) == 58


def test_many_are_read_when_that_is_asked_for(
    registry: Registry, kafka: KafkaSettings, groups: Groups, make_topic: Callable[..., str],
    fill: Callable[..., object],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Beyond the limit a warning names the option; without lag, and unless it is asked for, no message is fetched."""
    topic = make_topic(2)
    fill(topic, 20, 2)
    group, done = groups.make({}, {}, {(topic, 0): 1, (topic, 1): 2}), groups.make({}, {}, {(topic, 0): 10})
    monkeypatch.setattr(group_reader, "MAX_AGES", 1)
    snapshot = read_group(registry, group, kafka=kafka, ages=None)
    assert minutes(snapshot) == [None, None]
    assert [names(str(warning), 2, "--behind") for warning in snapshot.age_warnings] == [True]
    assert minutes(read_group(registry, group, kafka=kafka, ages=True)) == [0, 0]

    def no_fetch(*args: object) -> None:
        raise AssertionError("a message is fetched")

    monkeypatch.setattr(message_times, "message_ages", no_fetch)
    assert minutes(read_group(registry, done, kafka=kafka, ages=True))[0] == 0
    assert minutes(read_group(registry, group, kafka=kafka)) == [None, None]


def test_the_furthest_behind_is_that_of_the_group() -> None:
    """Lower bounds and unknown ages make it a lower bound; without any age it is unknown."""
    stored = StoredOffset(5, 0, 0, 0, 0)
    one = GroupPartition("t", 0, stored=stored, log_start=0, log_end=9, next_age=MessageAge(50.0))
    none, bound = replace(one, log_end=5, next_age=None), replace(one, next_age=MessageAge(60.0, is_at_least=True))

    def behind(*partitions: GroupPartition) -> MessageAge | None:
        return group_row(GroupSnapshot("g", (), partitions, frozenset()), "zookeeper").behind

    assert behind(one, none) == MessageAge(50.0)
    assert behind(one, bound) == MessageAge(60.0, is_at_least=True)
    assert behind(one, replace(one, next_age=None)) == MessageAge(50.0, is_at_least=True)
    assert behind(none) == MessageAge(0.0)
    assert behind(replace(one, next_age=None)) is None
    assert behind() is None
