"""A member's rebalance listener on real servers: what it is reported, and what it may do."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Literal

import pytest
from members import ReadMember, committed, connector, wait_for_rest
from support import wait_until

from zkgroup.clients.kafka.group_consumers import GroupOffsets
from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.connector import Connector
from zkgroup.errors import UsageError
from zkgroup.protocol.names import ConsumerThreadId, TopicPartition
from zkgroup.sandbox.local_cluster import Sandbox
from zkgroup.sandbox.topic_admin import ProducerRecord

Make = Callable[..., str]
Fill = Callable[..., list[ProducerRecord]]
Unique = Callable[[str], str]


class Listener:
    """Notes its calls, and on which thread."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, Mapping[TopicPartition, ConsumerThreadId]]] = []
        self.threads: set[str] = set()
        self.fail = False

    def before_releasing(self, partitions: Mapping[TopicPartition, ConsumerThreadId]) -> None:
        self._note("releasing", partitions)

    def before_starting(self, assignment: Mapping[TopicPartition, ConsumerThreadId]) -> None:
        self._note("starting", assignment)

    def _note(self, what: str, partitions: Mapping[TopicPartition, ConsumerThreadId]) -> None:
        self.calls.append((what, partitions))
        self.threads.add(threading.current_thread().name)
        if self.fail:
            raise RuntimeError("listener")


def test_a_listener_is_called_and_may_fail(
    cluster: Sandbox, registry: Registry, make_topic: Make, unique: Unique, caplog: pytest.LogCaptureFixture
) -> None:
    """Before releasing: our share, committed already, at the first join none. Before starting: everybody's. Its failure
    is logged, no more."""
    topic, group, listener = make_topic(2), unique("group"), Listener()
    p0, p1 = TopicPartition(topic, 0), TopicPartition(topic, 1)
    with ReadMember(cluster.connect, group, {topic: 1}, consumer_id="a", listener=listener) as first:
        me = ConsumerThreadId(first.id, 0)
        assert listener.calls == [("releasing", {}), ("starting", {p0: me, p1: me})]
        listener.fail = True
        with ReadMember(cluster.connect, group, {topic: 1}, consumer_id="b") as second:
            wait_for_rest(registry, group, 2)
            other = ConsumerThreadId(second.id, 0)
            assert listener.calls[2:4] == [("releasing", {p0: me, p1: me}), ("starting", {p0: me, p1: other})]
            raised = [record.exc_info[1] for record in caplog.records if record.exc_info]
            assert {repr(error) for error in raised} == {"RuntimeError('listener')"}
        assert len(listener.threads) == 1
        assert threading.current_thread().name not in listener.threads


class CallbackListener:
    """Does the same at every call, and notes how long it took and what came of it."""

    def __init__(self, act: Callable[[], object]) -> None:
        self.outcomes: list[tuple[str, float, Exception | None]] = []
        self._act = act

    def before_releasing(self, partitions: Mapping[TopicPartition, ConsumerThreadId]) -> None:
        self._do("releasing")

    def before_starting(self, assignment: Mapping[TopicPartition, ConsumerThreadId]) -> None:
        self._do("starting")

    def _do(self, when: str) -> None:
        began, failure = time.monotonic(), None
        try:
            self._act()
        except UsageError as error:
            failure = error
        self.outcomes.append((when, time.monotonic() - began, failure))


@pytest.mark.parametrize("storage", ["zookeeper", "kafka"])
def test_a_listener_commits_by_hand_before_it_releases(
    storage: Literal["zookeeper", "kafka"],
    cluster: Sandbox,
    registry: Registry,
    make_topic: Make,
    unique: Unique,
    fill: Fill,
    in_kafka: Callable[..., GroupOffsets],
) -> None:
    """Without auto-commit the listener's ``commit()`` keeps what was read when others join, neither waiting for the
    rebalance that waits for it nor keeping the others out; they read on where it was."""
    topic, group = make_topic(2), unique("group")
    fill(topic, 40, 2)
    made: list[Connector] = []
    listener = CallbackListener(lambda: [one.commit() for one in made])
    options = {"auto_commit_enable": False, "offsets_storage": storage, "dual_commit_enabled": False}
    with ReadMember(cluster.connect, group, {topic: 1}, consumer_id="a", listener=listener, **options) as first:
        made.append(first.connector)
        wait_until(lambda: len(first.records) == 40, 20, "everything read")
        with ReadMember(cluster.connect, group, {topic: 1}, consumer_id="b", **options) as second:
            wait_for_rest(registry, group, 2)
            both = [TopicPartition(topic, 0), TopicPartition(topic, 1)]
            if storage == "zookeeper":
                assert committed(registry, group, topic, 2) == [20, 20]
            else:
                assert in_kafka(group).fetch(both, 20.0) == dict.fromkeys(both, 20)
            fill(topic, 2, 2)
            wait_until(lambda: len(first.records) + len(second.records) == 42, 20, "what is new")
        assert first.connector.statistics().counters.failed_commits == 0
    assert [when for when, _, _ in listener.outcomes][:4] == ["releasing", "starting"] * 2
    assert max(seconds for _, seconds, _ in listener.outcomes) < 5.0


def test_a_listener_cannot_close_its_member_but_make_it_leave(
    cluster: Sandbox, make_topic: Make, unique: Unique
) -> None:
    """Leaving waits for the listener, so ``close()`` in it says so at once; ``leave()`` does what it is reported."""
    topic, made = make_topic(1), list[Connector]()
    listener = CallbackListener(lambda: [one.close() for one in made])
    member = connector(cluster.connect, unique("group"), listener=listener)
    made.append(member)
    member.streams({topic: 1})
    assert [when for when, _, _ in listener.outcomes] == ["releasing", "starting"]
    for _, seconds, failure in listener.outcomes:
        assert seconds < 1.0
        assert isinstance(failure, UsageError)
        assert "leave()" in str(failure)
    member.close()
    assert member.statistics().phase == "closed"

    leaving = list[Connector]()
    member = connector(
        cluster.connect, unique("group"), listener=CallbackListener(lambda: [one.leave() for one in leaving])
    )
    leaving.append(member)
    (stream,) = member.streams({topic: 1})[topic]
    assert list(stream.messages(20)) == []
    assert stream.has_ended
    member.close()
