"""Commits to Kafka for a group without members: what the coordinator refuses, what is read again, and in pieces."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest
from guarded_changes import commit
from lines import names
from resets import TIMEOUT, Kept

from zkgroup.clients.kafka.client import KafkaSettings
from zkgroup.clients.kafka.group_consumers import GroupOffsets
from zkgroup.clients.kafka.group_coordinator import Coordinators
from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.errors import Remedy, UnreachableError, ZkgroupError, notices_of
from zkgroup.groups.changes import kafka_writer
from zkgroup.groups.changes.change_reports import WriteReport
from zkgroup.groups.changes.kafka_writer import remove_from_kafka, write_kafka_offsets
from zkgroup.groups.changes.plan import GO_ON, StalePlanError
from zkgroup.groups.changes.preconditions import GroupActiveError
from zkgroup.protocol.names import TopicPartition
from zkgroup.sandbox.topic_admin import ProducerRecord

P = TopicPartition


@pytest.fixture
def topic(make_topic: Callable[..., str], fill: Callable[..., list[ProducerRecord]]) -> str:
    """A topic of three partitions with 100 messages each."""
    name = make_topic(3)
    fill(name, 300, 3)
    return name


class Commits(GroupOffsets):
    """Commits to the real brokers, and lets something happen before and after the first of them."""

    before: Callable[[], object] = staticmethod(lambda: None)
    after: Callable[[], object] = staticmethod(lambda: None)

    def commit(self, *args: Any) -> None:
        Commits.before()
        super().commit(*args)
        Commits.after()
        Commits.before = Commits.after = staticmethod(lambda: None)


def test_a_member_that_joins_in_kafka_after_the_last_read_wins(
    registry: Registry, kafka: KafkaSettings, unique: Callable[[str], str], topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The coordinator refuses the commit, and the refusal names the member; nothing is overwritten."""
    kept = Kept(registry, kafka, unique("late"), "kafka")
    kept.put({P(topic, 0): 10})
    with ExitStack() as members:
        monkeypatch.setattr(Commits, "before", staticmethod(lambda: members.enter_context(kept.alive(topic))))
        monkeypatch.setattr(kafka_writer, "GroupOffsets", Commits)
        with pytest.raises(GroupActiveError, match=rf"\b{kept.group}\b") as caught:
            write_kafka_offsets(kafka, kept.group, [commit(P(topic, 0), 50, 10)], TIMEOUT)
    assert [name.startswith("somebody-") for name in caught.value.members] == [True]
    assert (caught.value.exit_code, WriteReport().describe(" to Kafka") in caught.value.message) == (5, True)
    assert kept.get(P(topic, 0)) == [10]


def test_kafka_is_written_in_pieces(
    registry: Registry, kafka: KafkaSettings, unique: Callable[[str], str], topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A piece that is refused stops the rest; it is reported what is in place, and the same writes go on from there."""
    kept = Kept(registry, kafka, unique("pieces"), "kafka")
    keys = [P(topic, number) for number in range(3)]
    kept.put(dict.fromkeys(keys, 10))
    writes = [commit(key, 50, 10) for key in keys]
    monkeypatch.setattr(kafka_writer, "MAX_OFFSETS", 1)
    monkeypatch.setattr(Commits, "after", staticmethod(lambda: kept.put({keys[2]: 11})))
    monkeypatch.setattr(kafka_writer, "GroupOffsets", Commits)
    with pytest.raises(
        StalePlanError,
        match=rf"\b{keys[2]}\b.*\b10\b.*\b11\b.*; 2\b.*\b{topic}-0\.\.1\b.*\b1\b.*\b{keys[2]}\b",
    ):
        write_kafka_offsets(kafka, kept.group, writes, TIMEOUT)
    assert kept.get(*keys) == [50, 50, 11]
    kept.put({keys[2]: 10})
    report = write_kafka_offsets(kafka, kept.group, writes, TIMEOUT)
    assert kept.get(*keys) == [50, 50, 50]
    assert report == WriteReport((keys[2],))


@pytest.mark.parametrize("heard", [True, False])
def test_a_commit_whose_answer_is_lost(
    registry: Registry, kafka: KafkaSettings, unique: Callable[[str], str], topic: str, monkeypatch: pytest.MonkeyPatch,
    heard: bool,
) -> None:  # fmt: skip
    """The commit is in place. If the brokers can be asked it is reported as written, else as not known, and never as
    not written."""
    kept = Kept(registry, kafka, unique("lost"), "kafka")
    kept.put({P(topic, 0): 10})

    def lose() -> None:
        if not heard:
            monkeypatch.setattr(Commits, "fetch", no_answer)
        raise UnreachableError("no answer")

    def no_answer(*args: Any) -> dict[TopicPartition, int | None]:
        raise UnreachableError("no answer")

    monkeypatch.setattr(Commits, "after", staticmethod(lose))
    monkeypatch.setattr(kafka_writer, "GroupOffsets", Commits)
    with pytest.raises(ZkgroupError) as caught:
        write_kafka_offsets(kafka, kept.group, [commit(P(topic, 0), 50, 10)], 1.0)
    report = WriteReport((P(topic, 0),)) if heard else WriteReport(doubtful=(P(topic, 0),))
    assert report.describe(" to Kafka") in caught.value.message
    assert names(report.describe(" to Kafka"), 1, f"{topic}-0")
    assert caught.value.exit_code == 3
    assert kept.get(P(topic, 0)) == [50]


def test_a_commit_that_is_interrupted(
    registry: Registry, kafka: KafkaSettings, unique: Callable[[str], str], topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A signal while the answer is waited for: what became of that piece is found out, and reported with the rest."""
    kept = Kept(registry, kafka, unique("signal"), "kafka")
    keys = [P(topic, number) for number in range(3)]
    kept.put(dict.fromkeys(keys, 10))

    def interrupt() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(kafka_writer, "MAX_OFFSETS", 2)
    monkeypatch.setattr(Commits, "after", staticmethod(interrupt))
    monkeypatch.setattr(kafka_writer, "GroupOffsets", Commits)
    with pytest.raises(KeyboardInterrupt) as caught:
        write_kafka_offsets(kafka, kept.group, [commit(key, 50, 10) for key in keys], TIMEOUT)
    (reported,) = notices_of(caught.value)
    assert names(reported.message, 2, f"{topic}-0..1", 1, f"{topic}-2")
    assert reported.remedy == Remedy(GO_ON)
    assert kept.get(*keys) == [50, 50, 10]


def test_a_deletion_whose_answer_is_lost(
    registry: Registry, kafka: KafkaSettings, unique: Callable[[str], str], topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is said that it is not known, and how to see what is left."""
    kept = Kept(registry, kafka, unique("unheard"), "kafka")
    kept.put({P(topic, 0): 10})
    planned = Coordinators(kafka, TIMEOUT).read_group(kept.group)

    def lose(*_: object) -> None:
        raise UnreachableError("no answer")

    monkeypatch.setattr(Coordinators, "delete", lose)
    with pytest.raises(UnreachableError, match=rf"no answer.*\b{kept.group}\b") as caught:
        remove_from_kafka(kafka, kept.group, planned, TIMEOUT)
    assert caught.value.remedy is not None
    assert caught.value.remedy.commands == (("list-groups",),)
