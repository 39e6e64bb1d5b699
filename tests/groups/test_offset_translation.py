"""Offsets translated between real clusters: each at the very message, or at an earlier one, whatever lies between."""

from __future__ import annotations

import json
from dataclasses import replace
from random import Random

import pytest
from mirrored_clusters import Cluster, mirror
from support import fresh_name, wait_until

from zkgroup.clients.kafka.client import KafkaSettings, KafkaTopicPartition, admin_client, producer
from zkgroup.clients.kafka.log_offsets import LogRange
from zkgroup.clients.kafka.responses import ReadMessage
from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.groups.changes import offset_translation
from zkgroup.groups.changes.offset_translation import Position, translate_offsets
from zkgroup.protocol.names import TopicPartition
from zkgroup.protocol.operations import Create, Ensure
from zkgroup.sandbox.local_cluster import Sandbox
from zkgroup.sandbox.topic_admin import ProducerRecord, create_topic

THEN = 1_700_000_000_000
#: Messages of a topic that was there before the mirror began.
OTHERS = [ProducerRecord(b"other %d" % n, None, 0, THEN - 1_000_000 + n) for n in range(7)]


@pytest.fixture
def usual(cluster: Sandbox, registry: Registry, kafka: KafkaSettings) -> Cluster:
    """The shared cluster, 1.1.1."""
    return Cluster("1.1.1", cluster.connect, registry, kafka)


def numbered(count: int, start: int = 0) -> list[ProducerRecord]:
    """Messages with all that a message can have, ten to a second."""
    return [
        ProducerRecord(b"value %d" % n, b"key %d" % (n % 5), 0, THEN + n * 100, (("n", b"%d" % n),))
        for n in range(start, start + count)
    ]


def create_with(cluster: Cluster, topic: str, settings: dict[str, str]) -> None:
    """A topic with settings of its own."""
    config = json.dumps({"version": 1, "config": settings}).encode()
    assert cluster.registry.write(Ensure("/config/topics")) is None
    assert cluster.registry.write(Create(f"/config/topics/{topic}", config)) is None
    create_topic(cluster.registry, topic)


def position(source: Cluster, target: Cluster, topic: str, to_topic: str, offset: int) -> Position:
    """The position of one offset of partition 0."""
    key, copy = TopicPartition(topic, 0), TopicPartition(to_topic, 0)
    return translate_offsets(source.kafka, target.kafka, {key: offset}, {key: copy}, 10)[key]


@pytest.mark.parametrize("direction", ["old to new", "new to old", "new to usual"])
def test_each_offset_is_at_the_very_message(oldest: Cluster, newest: Cluster, usual: Cluster, direction: str) -> None:
    """At the start, in the midst and at the end of a log; the target has other offsets."""
    source, target = {"old to new": (oldest, newest), "new to old": (newest, oldest), "new to usual": (newest, usual)}[
        direction
    ]
    topic, to_topic = source.topic(numbered(1000)), target.topic(OTHERS)
    mirror(source, target, topic, to_topic)
    for offset in (0, 1, 2, 500, 999, 1000):
        found = position(source, target, topic, to_topic, offset)
        assert found == Position(offset + len(OTHERS)), offset
    assert position(source, target, topic, to_topic, 1001).reason == "outside"


@pytest.mark.parametrize("direction", ["old to new", pytest.param("new to old", marks=pytest.mark.long)])
def test_a_mirror_that_lags_or_has_started_late(oldest: Cluster, newest: Cluster, direction: str) -> None:
    """What is not there yet, or never was, is not found; what is there next to it is."""
    source, target = (oldest, newest) if direction == "old to new" else (newest, oldest)
    topic, to_topic = source.topic(numbered(600)), target.topic()
    assert position(source, target, topic, to_topic, 300).reason == "not mirrored yet", "an empty log"
    mirror(source, target, topic, to_topic, 250, 400)
    for offset, expected in {
        0: Position(None, reason="mirrored later"),
        240: Position(None, reason="mirrored later"),
        250: Position(0),
        251: Position(1),
        400: Position(150),
        410: Position(None, reason="not mirrored yet"),
    }.items():
        assert position(source, target, topic, to_topic, offset) == expected, offset
    mirror(source, target, topic, to_topic, 400)
    assert position(source, target, topic, to_topic, 410) == Position(160)


def test_where_nothing_is_consumed(newest: Cluster, usual: Cluster) -> None:
    """The first message of the source is searched; of two empty logs the start is its place."""
    topic, to_topic = newest.topic(), usual.topic()
    assert position(newest, usual, topic, to_topic, 0) == Position(0), "both are empty"
    newest.send(topic, numbered(100))
    assert position(newest, usual, topic, to_topic, 0).reason == "not mirrored yet"
    mirror(newest, usual, topic, to_topic, 50)
    assert position(newest, usual, topic, to_topic, 0).reason == "mirrored later", "50 messages would be skipped"
    assert position(newest, usual, newest.topic(), to_topic, 0).reason == "empty"


def test_random_mirrors(newest: Cluster, usual: Cluster) -> None:
    """A partition each: a part of the log, with missing and doubled stretches. At each committed offset no unconsumed
    message of the target is before the position only; there is none where the mirror began behind the offset."""
    random, count, length = Random(35), 16, 12
    topic = newest.topic([replace(one, partition=n) for one in numbered(length) for n in range(count)], count)
    copies: list[list[int]] = []
    for _ in range(count):
        start, end = sorted((random.randint(0, length), random.choice((length, random.randint(0, length)))))
        back, until = sorted((random.randint(start, end), random.randint(start, end)))
        gone = random.randint(0, 3 * length)
        copies.append([one for one in (*range(start, until), *range(back, end)) if one != gone])
    records = numbered(length)
    to_topic = usual.topic([replace(records[one], partition=n) for n in range(count) for one in copies[n]], count)
    partitions = {TopicPartition(topic, n): TopicPartition(to_topic, n) for n in range(count)}
    found = 0
    for committed in range(length + 1):
        offsets = dict.fromkeys(partitions, committed)
        for key, one in translate_offsets(newest.kafka, usual.kafka, offsets, partitions, 10).items():
            if one.offset is not None:
                found += 1
                there = copies[key.partition]
                assert {n for n in there if n >= committed} <= set(there[one.offset :]), (key.partition, committed)
                assert min(there) <= committed, (key.partition, committed)
                assert one.repeated or there[one.offset : one.offset + 1] in ([], [committed])
    assert found > count * length // 4


@pytest.mark.parametrize("direction", ["old to new", pytest.param("new to old", marks=pytest.mark.long)])
def test_a_mirror_that_was_restarted_has_messages_twice(oldest: Cluster, newest: Cluster, direction: str) -> None:
    """The last place counts from which all unread messages follow; what follows twice is repeated."""
    source, target = (oldest, newest) if direction == "old to new" else (newest, oldest)
    topic, to_topic = source.topic(numbered(100)), target.topic()
    mirror(source, target, topic, to_topic, 0, 60)
    mirror(source, target, topic, to_topic, 40)
    assert position(source, target, topic, to_topic, 50) == Position(70)
    assert position(source, target, topic, to_topic, 20) == Position(20, 20)
    assert position(source, target, topic, to_topic, 80) == Position(100)


@pytest.mark.parametrize("direction", ["old to new", pytest.param("new to old", marks=pytest.mark.long)])
def test_equal_messages(oldest: Cluster, newest: Cluster, direction: str) -> None:
    """A run of equal messages among others is placed by those; equal messages alone are not."""
    source, target = (oldest, newest) if direction == "old to new" else (newest, oldest)
    ping = ProducerRecord(b"ping", None, 0, THEN + 10_000)
    records = [*numbered(50), *[ping] * 20, *numbered(50, 50)]
    topic, to_topic = source.topic(records), target.topic()
    mirror(source, target, topic, to_topic)
    assert position(source, target, topic, to_topic, 60) == Position(60)
    records = [*numbered(50), *[ping] * 2000, *numbered(50, 50)]
    topic, to_topic = source.topic(records), target.topic()
    mirror(source, target, topic, to_topic)
    assert position(source, target, topic, to_topic, 1000) == Position(1000)
    topic, to_topic = source.topic([ping] * 50), target.topic()
    mirror(source, target, topic, to_topic)
    assert position(source, target, topic, to_topic, 20) == Position(None, reason="ambiguous")


def test_equal_values_at_other_times(newest: Cluster, usual: Cluster) -> None:
    """The timestamps tell them apart."""
    topic = newest.topic([ProducerRecord(b"ping", None, 0, THEN + n) for n in range(1000)])
    to_topic = usual.topic(OTHERS)
    mirror(newest, usual, topic, to_topic, 100)
    for offset in (100, 500, 1000):
        assert position(newest, usual, topic, to_topic, offset) == Position(offset - 100 + len(OTHERS))
    assert position(newest, usual, topic, to_topic, 50).offset is None


def test_times_of_the_target(newest: Cluster, usual: Cluster) -> None:
    """Keys and values find the messages where the target's brokers give the times; times that the mirror gave are no
    copy's."""
    records = [ProducerRecord(b"value %d" % n, b"key %d" % n, 0, THEN + n) for n in range(300)]
    topic, to_topic = newest.topic(records), fresh_name("append")
    create_with(usual, to_topic, {"message.timestamp.type": "LogAppendTime"})
    usual.send(to_topic, OTHERS)
    mirror(newest, usual, topic, to_topic)
    assert position(newest, usual, topic, to_topic, 150) == Position(150 + len(OTHERS))
    late = usual.topic(OTHERS)
    usual.send(late, [replace(one, timestamp_ms=THEN + 5000 + n) for n, one in enumerate(records)])
    assert position(newest, usual, topic, late, 150).reason == "absent"


def test_messages_that_differ_in_headers_alone(newest: Cluster, usual: Cluster) -> None:
    """They are no copies of each other, also where the target has other times. Copies without the headers of consumed
    messages are repeated, and counted."""
    records = [ProducerRecord(b"order", b"o", 0, THEN + n, (("event", b"%d" % n),)) for n in range(20)]
    topic, to_topic = newest.topic(records), fresh_name("append")
    create_with(usual, to_topic, {"message.timestamp.type": "LogAppendTime"})
    mirror(newest, usual, topic, to_topic, 10)
    mirror(newest, usual, topic, to_topic, 0, 5)
    assert position(newest, usual, topic, to_topic, 12) == Position(2, 5)
    assert position(newest, usual, topic, to_topic, 4).offset is None
    bare = [replace(one, headers=()) for one in numbered(90)]
    unread = [replace(one, headers=()) for one in numbered(10, 90)]
    topic, to_topic = newest.topic([bare[0], *numbered(89, 1), *unread]), usual.topic([*bare, *unread])
    assert position(newest, usual, topic, to_topic, 90) == Position(1, 89)


def test_messages_that_recur_and_a_mirror_that_lacks_some(oldest: Cluster, newest: Cluster, usual: Cluster) -> None:
    """A heartbeat between the messages, or two states in turn: a mirror that began late or has dropped a stretch has
    like messages, and not those of the offset."""
    beats = [replace(one, value=b"beat", key=None) if n % 10 == 0 else one for n, one in enumerate(numbered(1000))]
    states = [ProducerRecord(b"up" if n % 2 else b"down", b"host", 0, THEN + n) for n in range(1000)]
    for records in (beats, states):
        for source in (oldest, newest):
            topic, late, dropped = source.topic(records), usual.topic(), usual.topic()
            mirror(source, usual, topic, late, 501)
            assert position(source, usual, topic, late, 250).offset is None
            mirror(source, usual, topic, dropped, 0, 500)
            mirror(source, usual, topic, dropped, 520)
            assert position(source, usual, topic, dropped, 500).offset is None


def test_a_stretch_that_comes_again_later(oldest: Cluster, newest: Cluster, usual: Cluster) -> None:
    """From before it what is copied again is repeated; from within it nothing is."""
    topic, to_topic = oldest.topic(numbered(1000)), newest.topic()
    mirror(oldest, newest, topic, to_topic, 0, 800)
    mirror(oldest, newest, topic, to_topic, 420)
    assert position(oldest, newest, topic, to_topic, 500) == Position(880)
    assert position(oldest, newest, topic, to_topic, 400) == Position(400, 380)
    topic, to_topic = newest.topic(numbered(3000)), usual.topic()
    mirror(newest, usual, topic, to_topic, 0, 2500)
    mirror(newest, usual, topic, to_topic, 420)
    assert position(newest, usual, topic, to_topic, 500) == Position(2580)
    assert position(newest, usual, topic, to_topic, 400) == Position(400, 2080)


def test_a_replay_far_behind_the_offset(newest: Cluster, usual: Cluster) -> None:
    """With its old timestamps, thousands of messages on; the mirror begins at it, and lacks what was before."""
    topic, to_topic = newest.topic([*numbered(3000), *numbered(1000), *numbered(4000)[3000:]]), usual.topic()
    mirror(newest, usual, topic, to_topic, 3000)
    assert position(newest, usual, topic, to_topic, 300) == Position(None, reason="absent")


@pytest.mark.parametrize("isolation", ["read_committed", pytest.param("read_uncommitted", marks=pytest.mark.long)])
def test_transactions(newest: Cluster, usual: Cluster, isolation: str) -> None:
    """Whether the mirror copies what was aborted or not: the next committed message is found, also behind markers and
    aborted messages, and at the end."""
    topic, to_topic = newest.topic(), usual.topic(OTHERS)
    client = producer(newest.kafka, transactional_id=topic)
    client.init_transactions(30)
    ends = []
    for turn in range(4):
        client.begin_transaction()
        for n in range(5):
            client.produce(topic, b"%d %d" % (turn, n), partition=0, timestamp=THEN + turn * 1000 + n)
        client.flush(30)
        (client.abort_transaction if turn % 2 else client.commit_transaction)(30)
        ends.append(6 * (turn + 1))
        wait_until(lambda: newest.log(topic)[1] == ends[-1], what="the marker is written")
    mirror(newest, usual, topic, to_topic, isolation=isolation)
    copied = len(usual.messages(to_topic))
    for offset, consumed in {1: b"0 0", 3: b"0 2", 5: b"0 4", 6: b"0 4", 13: b"2 0", 24: b"2 4"}.items():
        found = position(newest, usual, topic, to_topic, offset)
        assert found.offset is not None, offset
        before = [record.value for at, record in usual.messages(to_topic) if at < found.offset]
        assert consumed in before, "nothing committed is read again"
        unread = [record.value for at, record in usual.messages(to_topic) if at >= found.offset]
        committed = [record.value for at, record in newest.messages(topic) if at >= offset]
        assert [one for one in unread if one in committed] == committed, "nothing is skipped"
    assert copied == len(OTHERS) + (10 if isolation == "read_committed" else 20)


def test_compacted_logs(newest: Cluster, usual: Cluster) -> None:
    """Messages that the target has lost by compaction are not missing: their keys have later ones."""
    to_topic = fresh_name("compacted")
    settings = {"cleanup.policy": "compact", "segment.bytes": "20000", "min.cleanable.dirty.ratio": "0.01"}
    create_with(newest, to_topic, settings)
    records = [ProducerRecord(b"%d " % n + b"x" * 500, b"key %d" % (n % 37), 0, THEN + n) for n in range(400)]
    topic = usual.topic(records)
    for start in range(0, 400, 20):  # a batch is to fit into a segment
        mirror(usual, newest, topic, to_topic, start, start + 20)
    wait_until(lambda: len(newest.messages(to_topic)) < 200, 60, "the log is compacted")
    for offset in (1, 150, 300, 370, 399, 400):
        found = position(usual, newest, topic, to_topic, offset)
        assert found.offset is not None, offset
        left = {at: int((record.value or b"").split()[0]) for at, record in newest.messages(to_topic)}
        assert all(at >= found.offset for at, n in left.items() if n >= offset), offset
        again = [n for at, n in left.items() if at >= found.offset and n < offset]
        assert len(again) <= found.repeated, offset


def test_a_mirror_with_another_partitioner(newest: Cluster, usual: Cluster) -> None:
    """Messages of the partition are in another one, as MirrorMaker 1 puts them there: what seems to be to come would be
    skipped. Nothing is found of the whole topic, and nothing is guessed."""
    topic, to_topic = newest.topic(numbered(100)), usual.topic(partitions=2)
    usual.send(to_topic, [replace(one, partition=1) for one in numbered(100)])
    usual.send(to_topic, OTHERS)
    assert position(newest, usual, topic, to_topic, 50) == Position(None, reason="scattered")
    usual.send(to_topic, numbered(5, 1000))
    assert position(newest, usual, topic, to_topic, 50) == Position(None, reason="scattered")


@pytest.mark.parametrize("direction", ["old to new", "new to usual"])
def test_messages_in_other_partitions(oldest: Cluster, newest: Cluster, usual: Cluster, direction: str) -> None:
    """The mirror has put the newest messages of one partition into the other. Where they are to come, or the other
    partition has had messages like them, the places are found."""
    source, target = (oldest, newest) if direction == "old to new" else (newest, usual)
    others = [ProducerRecord(b"of 1: %d" % n, None, 1, THEN + n) for n in range(300)]
    records = [*numbered(60), *others]
    topic, scattered, lagging = source.topic(records, 2), target.topic(partitions=2), target.topic(partitions=2)
    places = {}
    for to_topic, late in ((scattered, [replace(one, partition=1) for one in numbered(10, 50)]), (lagging, [])):
        target.send(to_topic, [*numbered(50), *others[:100], *late, *others[100:]])
        partitions = {TopicPartition(topic, n): TopicPartition(to_topic, n) for n in range(2)}
        offsets = dict(zip(partitions, (50, 300), strict=True))
        places[to_topic] = list(translate_offsets(source.kafka, target.kafka, offsets, partitions, 10).values())
    assert places == {
        scattered: [Position(None, reason="scattered")] * 2,
        lagging: [Position(50), Position(300)],
    }
    ping = ProducerRecord(b"ping", None, 0, THEN)
    topic, to_topic = source.topic([*numbered(50), ping, replace(ping, partition=1)], 2), target.topic(partitions=2)
    target.send(to_topic, [*numbered(50), replace(ping, partition=1)])
    partitions = {TopicPartition(topic, n): TopicPartition(to_topic, n) for n in range(2)}
    offsets = dict(zip(partitions, (50, 1), strict=True))
    found = list(translate_offsets(source.kafka, target.kafka, offsets, partitions, 10).values())
    assert found[0] == Position(50), "the other partition has its own"


def test_what_the_source_has_lost(newest: Cluster, usual: Cluster) -> None:
    """An offset before the log's start is not translated; at its start the next message is found."""
    topic, to_topic = newest.topic(numbered(100)), usual.topic(OTHERS)
    mirror(newest, usual, topic, to_topic)
    admin = admin_client(newest.kafka, 10)
    for future in admin.delete_records([KafkaTopicPartition(topic, 0, 40)]).values():
        future.result(10)
    wait_until(lambda: newest.log(topic)[0] == 40)
    assert position(newest, usual, topic, to_topic, 39).reason == "outside"
    assert position(newest, usual, topic, to_topic, 40) == Position(40 + len(OTHERS))
    assert position(newest, usual, topic, to_topic, 41) == Position(41 + len(OTHERS))


def test_a_log_without_times_is_read_from_its_end(
    oldest: Cluster, newest: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where no time leads there, a part of the log is read: back from where the offset is as far from the end as at the
    source. As there may be copies before it, it must have all unread messages."""
    monkeypatch.setattr(offset_translation, "AROUND", 500)
    topic, to_topic = oldest.topic(numbered(5000)), newest.topic(OTHERS)
    mirror(oldest, newest, topic, to_topic, 0, 4900)
    assert position(oldest, newest, topic, to_topic, 3000) == Position(None, reason="not mirrored yet")
    mirror(oldest, newest, topic, to_topic, 4900)
    for offset in (1, 3000, 4990, 5000):
        assert position(oldest, newest, topic, to_topic, offset) == Position(offset + len(OTHERS))
    newest.send(to_topic, numbered(400, 5000))
    assert position(oldest, newest, topic, to_topic, 3000) == Position(3000 + len(OTHERS), 400), "400 may be older ones"
    newest.send(to_topic, numbered(200, 5400))
    assert position(oldest, newest, topic, to_topic, 3000).reason == "mirrored later", "the part begins behind it"
    monkeypatch.setattr(offset_translation, "MAX_MESSAGES", 1000)
    assert position(oldest, newest, topic, to_topic, 3000) == Position(None, reason="too far behind")


def test_the_newest_messages_first(newest: Cluster, usual: Cluster) -> None:
    """A mirror that copied what was new, and then what was there before: also where the new ones have older times, and
    while it copies."""
    for records in (numbered(1000), [*numbered(600, 400), *numbered(400)]):
        topic, to_topic = newest.topic(records), usual.topic()
        mirror(newest, usual, topic, to_topic, 600)
        mirror(newest, usual, topic, to_topic, 0, 300)
        assert position(newest, usual, topic, to_topic, 200).reason == "absent", "300 to 599 are to come"
        assert position(newest, usual, topic, to_topic, 700) == Position(100, 300)
        mirror(newest, usual, topic, to_topic, 300, 600)
        assert position(newest, usual, topic, to_topic, 200) == Position(0, 200)


def test_producers_that_have_moved_before_the_group(oldest: Cluster, newest: Cluster, usual: Cluster) -> None:
    """Their messages stand behind the last copy, or between the last copies: none is skipped."""
    for source in (oldest, newest):
        topic, to_topic = source.topic(numbered(300)), usual.topic()
        mirror(source, usual, topic, to_topic, 0, 290)
        usual.send(to_topic, [replace(one, value=b"new") for one in numbered(5, 290)])
        mirror(source, usual, topic, to_topic, 290)
        usual.send(to_topic, numbered(5, 300))
        assert position(source, usual, topic, to_topic, 300) == Position(290, 10)
        assert position(source, usual, topic, to_topic, 100) == Position(100)


def test_messages_that_are_written_while_the_logs_are_read(
    oldest: Cluster, newest: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Messages like the unread ones are produced, and mirrored, when the source's end has been read: they are no copies
    of those."""
    topic, to_topic = oldest.topic(), newest.topic()
    up = [ProducerRecord(b"up", None, 0, THEN)]
    oldest.send(topic, [*numbered(1), *up * 15])
    mirror(oldest, newest, topic, to_topic)
    last_consumed = offset_translation._Search._last_consumed

    def produce_meanwhile(search: offset_translation._Search, log: LogRange) -> list[ReadMessage]:
        oldest.send(topic, up * 4)
        mirror(oldest, newest, topic, to_topic, log.end)
        return last_consumed(search, log)

    monkeypatch.setattr(offset_translation._Search, "_last_consumed", produce_meanwhile)
    for offset in (10, 16, 24):
        assert position(oldest, newest, topic, to_topic, offset) == Position(offset), offset


def test_a_mirror_that_copies_what_is_aborted_and_lacks_what_is_not(newest: Cluster, usual: Cluster) -> None:
    """The copies of aborted messages show how far it came."""
    topic, to_topic = newest.topic(numbered(3)), usual.topic()
    client = producer(newest.kafka, transactional_id=topic)
    client.init_transactions(30)
    client.begin_transaction()
    for n in range(2):
        client.produce(topic, b"aborted %d" % n, partition=0, timestamp=THEN + 1000 + n)
    client.flush(30)
    client.abort_transaction(30)
    wait_until(lambda: newest.log(topic)[1] == 6, what="the marker is written")
    mirror(newest, usual, topic, to_topic, 0, 1)
    mirror(newest, usual, topic, to_topic, 3, isolation="read_uncommitted")
    assert len(usual.messages(to_topic)) == 3
    assert position(newest, usual, topic, to_topic, 0) == Position(None, reason="absent")
