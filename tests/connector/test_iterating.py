"""Iterating a stream of a member on real servers: records, breaking off, what counts as consumed."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from members import committed, connector
from support import wait_until

from zkgroup.clients.kafka.client import KafkaSettings
from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.errors import SessionLostError, UsageError
from zkgroup.sandbox.local_cluster import Sandbox
from zkgroup.sandbox.topic_admin import ProducerRecord, produce

Make = Callable[..., str]
Fill = Callable[..., list[ProducerRecord]]
Unique = Callable[[str], str]


def test_what_a_record_has(cluster: Sandbox, make_topic: Make, unique: Unique, kafka: KafkaSettings) -> None:
    """Keys and values as they are, tombstones as None; time stamps and headers come along."""
    topic = make_topic(1)
    headers = (("h", b"1"), ("h", None))
    produce(kafka, topic, [ProducerRecord(b"7", b"k", 0, 1_700_000_000_123, headers), ProducerRecord(None, None, 0, 5)])
    with connector(cluster.connect, unique("group")) as member:
        (stream,) = member.streams({topic: 1})[topic]
        first, second = itertools.islice(stream.messages(10), 2)
        assert (first.key, first.value, first.timestamp, first.headers) == (
            b"k",
            b"7",
            1_700_000_000_123,
            list(headers),
        )
        assert (second.key, second.value, second.offset, second.headers) == (None, None, 1, [])


def test_the_configured_time_out_ends_an_iteration(
    cluster: Sandbox, make_topic: Make, unique: Unique, fill: Fill
) -> None:
    """``consumer_timeout_ms`` counts where no other time-out is given; the member stays, and reading may go on."""
    topic = make_topic(1)
    fill(topic, 5)
    with connector(cluster.connect, unique("group"), consumer_timeout_ms=700) as member:
        (stream,) = member.streams({topic: 1})[topic]
        assert len(list(stream)) == 5
        began = time.monotonic()
        assert stream.batch() is None
        assert time.monotonic() - began >= 0.7
        assert not stream.has_ended
        fill(topic, 1)
        assert len(list(stream.messages(2))) == 1


def test_breaking_off_an_iteration_skips_nothing(
    cluster: Sandbox, registry: Registry, make_topic: Make, unique: Unique, fill: Fill
) -> None:
    """After a ``break`` the next loop goes on behind the last message, though a whole batch was fetched; what was never
    handed on is not committed."""
    topic, group = make_topic(1), unique("group")
    fill(topic, 100)
    with connector(cluster.connect, group) as member:
        (stream,) = member.streams({topic: 1})[topic]
        assert [record.offset for record in itertools.islice(stream, 10)] == list(range(10))
        assert [record.offset for record in itertools.islice(stream, 10)] == list(range(10, 20))
        member.commit()
        assert committed(registry, group, topic, 1) == [19], "the last one is still in hand"
        stream.mark()
        member.commit()
        assert committed(registry, group, topic, 1) == [20]
        with pytest.raises(UsageError, match=r"messages\(\)"):
            stream.batch(10)
        assert [record.offset for record in itertools.islice(stream, 80)] == list(range(20, 100))
        stream.mark()
    assert committed(registry, group, topic, 1) == [100]


def test_a_timeout_leaves_the_stream_usable(cluster: Sandbox, make_topic: Make, unique: Unique, fill: Fill) -> None:
    """Without a message for so long an iteration ends, and another may begin."""
    topic = make_topic(1)
    with connector(cluster.connect, unique("group")) as member:
        (stream,) = member.streams({topic: 1})[topic]
        began = time.monotonic()
        assert list(stream.messages(0.3)) == []
        assert 0.3 <= time.monotonic() - began < 3.0
        assert not stream.has_ended
        fill(topic, 5)
        assert len(list(stream.messages(2.0))) == 5
        assert stream.batch(0.0) is None


def test_commit_writes_what_is_consumed_now(
    cluster: Sandbox, registry: Registry, make_topic: Make, unique: Unique, fill: Fill
) -> None:
    """Without auto-commit nothing is stored unless asked for, and a leave stores nothing either."""
    topic, group = make_topic(1), unique("group")
    fill(topic, 20)
    with connector(cluster.connect, group, auto_commit_enable=False) as member:
        (stream,) = member.streams({topic: 1})[topic]
        read = 0
        while read < 20:
            batch = stream.batch(10)
            assert batch is not None
            read += len(batch.messages)
        member.commit()
        assert committed(registry, group, topic, 1) == [20 - len(batch.messages)], "in hand is not consumed"
        stream.mark()
        member.commit()
        assert committed(registry, group, topic, 1) == [20]
        fill(topic, 5)
        while stream.statistics().messages < 25:
            assert stream.batch(10) is not None
        stream.mark()
    assert committed(registry, group, topic, 1) == [20]
    with pytest.raises(SessionLostError):
        member.commit()


def test_a_message_counts_when_the_next_is_asked_for(
    cluster: Sandbox, registry: Registry, make_topic: Make, unique: Unique, fill: Fill
) -> None:
    """Leaving in the middle of a message leaves it to the next member."""
    topic, group = make_topic(1), unique("group")
    fill(topic, 20)
    with connector(cluster.connect, group) as member:
        (stream,) = member.streams({topic: 1})[topic]
        for record in stream:
            if record.offset == 7:
                break
    assert committed(registry, group, topic, 1) == [7]


def test_a_second_thread_is_refused_and_loses_nothing(
    cluster: Sandbox, make_topic: Make, unique: Unique, fill: Fill
) -> None:
    """Whoever comes while another waits for a message, works on one, or has a batch in hand gets an error at once; the
    first one reads all there is."""
    topic = make_topic(1)
    fill(topic, 2000)

    def second(read: Callable[[], object]) -> None:
        """Read on another thread, which must be refused."""
        with ThreadPoolExecutor(1) as pool, pytest.raises(UsageError, match=r"mark\(\)"):
            pool.submit(read).result(10)

    with connector(cluster.connect, unique("group")) as member, ThreadPoolExecutor(1) as pool:
        (stream,) = member.streams({topic: 1})[topic]
        offsets = []
        for record in stream.messages(1.0):
            offsets.append(record.offset)
            if record.offset in (0, 700):
                second(lambda: next(stream.messages(1.0)))
                second(lambda: stream.batch(0.0))
        assert offsets == list(range(2000))
        waiting = pool.submit(stream.batch, 60.0)
        wait_until(lambda: stream._turns._inside, 10, "it waits")
        second(lambda: stream.batch(0.0))
        fill(topic, 1)
        batch = waiting.result(30)
        assert batch is not None
        second(lambda: stream.batch(0.0))
        stream.mark()
        assert stream.batch(0.2) is None, "it has marked: now it is another's turn"


def test_a_stream_may_be_passed_on(cluster: Sandbox, make_topic: Make, unique: Unique, fill: Fill) -> None:
    """One thread after another: when the first has left its loop, or handed on its iterator, or has ended."""
    topic = make_topic(1)
    fill(topic, 1500)
    with connector(cluster.connect, unique("group")) as member:
        (stream,) = member.streams({topic: 1})[topic]
        offsets = [record.offset for record in itertools.islice(stream.messages(10.0), 100)]
        with ThreadPoolExecutor(1) as pool:
            offsets += pool.submit(lambda: [r.offset for r in itertools.islice(stream.messages(10.0), 900)]).result(30)
        iterator = stream.messages(1.0)
        offsets.append(next(iterator).offset)
        with ThreadPoolExecutor(1) as pool:
            offsets += pool.submit(lambda: [record.offset for record in iterator]).result(30)
            fill(topic, 1)
            assert pool.submit(stream.batch, 10.0).result(30) is not None
        assert offsets == list(range(1500))
        fill(topic, 1)
        batch = stream.batch(10.0)
        assert batch is not None
        assert batch.runs[0].first == 1501
