"""The servers of a run, and their observers: the writer of its records, the watch on what is committed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from faults.judge import Commit
from zkgroup.clients.kafka.client import KafkaError, KafkaException, KafkaSettings, Message, producer
from zkgroup.clients.zookeeper import ZooKeeperSettings
from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.errors import UnreachableError
from zkgroup.protocol import znodes
from zkgroup.protocol.names import TopicPartition
from zkgroup.protocol.operations import Children, Get, Node, Op, Result

# What a broker that has just started says of topics that it does not know yet: such records are sent again.
_FOR_NOW = (KafkaError._UNKNOWN_PARTITION, KafkaError._UNKNOWN_TOPIC, KafkaError.UNKNOWN_TOPIC_OR_PART)


class Patient:
    """A registry on servers that go away: who asks waits, under a new session if need be."""

    def __init__(self, connect: str) -> None:
        self._settings = ZooKeeperSettings(connect, connect_timeout=5.0)
        self._registry: Registry | None = None
        self._lock = threading.Lock()

    def try_read(self, ops: list[Op]) -> list[Result] | None:
        """The results, or None where there are none now."""
        with self._lock:
            try:
                if self._registry is None:
                    self._registry = Registry(self._settings).__enter__()
                return self._registry.read(ops)
            except UnreachableError:
                if self._registry is not None:
                    self._registry.close()
                    self._registry = None
                return None

    def read(self, ops: list[Op], timeout: float = 60.0) -> list[Result]:
        """The results, however long the servers are away, but no longer than that."""
        deadline = time.monotonic() + timeout
        while (results := self.try_read(ops)) is None:
            assert time.monotonic() < deadline, "ZooKeeper stays away"
            time.sleep(0.1)
        return results

    def members(self, group: str) -> tuple[str, ...]:
        """Who is registered."""
        (listed,) = self.read([Children(znodes.ids(group))])
        return listed if isinstance(listed, tuple) else ()

    def close(self) -> None:
        """End the session."""
        if self._registry is not None:
            self._registry.close()


class Thread:
    """A thread that does ``step`` until it is stopped; what it raises is raised again there."""

    def __init__(self, name: str, pause: float, step: Callable[[], None]) -> None:
        self._pause, self._step = pause, step
        self._stop = threading.Event()
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name=name)
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._stop.wait(self._pause):
                self._step()
        except Exception as error:  # noqa: BLE001 - raised again by who stops it
            self._error = error

    def check(self) -> None:
        """Raise what it has raised."""
        if self._error is not None:
            raise self._error

    def stop(self) -> None:
        """End it."""
        self._stop.set()
        self._thread.join(60)
        assert not self._thread.is_alive()
        self.check()


class Watch:
    """Reads what is committed, every ``pause`` seconds; ``commits`` is what it saw change."""

    def __init__(self, registry: Patient, group: str, topic: str, partitions: int, pause: float = 0.2) -> None:
        self.commits: list[Commit] = []
        self._registry = registry
        self._ops: list[Op] = [Get(znodes.offset(group, TopicPartition(topic, p))) for p in range(partitions)]
        self._last: dict[int, int] = {}
        self._thread = Thread("watch", pause, self.read_offsets)

    def read_offsets(self) -> None:
        """Once more."""
        results = self._registry.try_read(self._ops)
        at = time.monotonic_ns()
        for partition, node in enumerate(results or []):
            if isinstance(node, Node) and (offset := int(node.data)) != self._last.get(partition):
                self._last[partition] = offset
                self.commits.append(Commit(at, partition, offset))

    @property
    def last(self) -> dict[int, int]:
        """What is committed, as last seen."""
        return dict(self._last)

    def stop(self) -> None:
        """Look no more."""
        self._thread.stop()


class Writer:
    """Writes numbered records at a rate; ``ends`` shows where each log ends, by what the brokers have acknowledged."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, total: int, seconds: float) -> None:
        self.acknowledged = 0
        self.refused: list[str] = []
        self.ends: dict[int, int] = dict.fromkeys(range(partitions), 0)
        self._client = producer(
            KafkaSettings(bootstrap),
            linger_ms=20,
            acks=-1,
            delivery_timeout_ms=600_000,
            queue_buffering_max_messages=1_000_000,
            retry_backoff_ms=200,
            # A broker whose replica is taken away forgets who waits for its copies: they wait 30 s else.
            request_timeout_ms=5000,
        )
        self._topic, self._partitions, self._total = topic, partitions, total
        self._rate = total / seconds
        self._begun = time.monotonic()
        self._sent = 0
        self._again: list[int] = []
        self._thread = Thread("writer", 0.05, self._step)

    def _step(self) -> None:
        due = min(self._total, int((time.monotonic() - self._begun) * self._rate))
        while self._again and self._put(self._again[-1]):
            self._again.pop()
        while self._sent < due and self._put(self._sent):
            self._sent += 1
            if self._sent % 1000 == 0:
                self._client.poll(0)
        self._client.poll(0)

    def _put(self, number: int) -> bool:
        """Whether the client takes it."""

        def delivered(error: KafkaError | None, message: Message) -> None:
            self._delivered(number, error, message)

        partition = number % self._partitions
        try:
            self._client.produce(self._topic, b"%09d" % number, partition=partition, on_delivery=delivered)
        except KafkaException as error:
            if error.args[0].code() not in _FOR_NOW:
                raise
            return False
        return True

    def _delivered(self, number: int, error: KafkaError | None, message: Message) -> None:
        if error is not None and error.code() in _FOR_NOW:
            self._again.append(number)
            return
        if error is not None:
            self.refused.append(error.str())
            return
        self.acknowledged += 1
        partition, offset = message.partition(), message.offset()
        assert partition is not None
        assert offset is not None
        self.ends[partition] = max(self.ends[partition], offset + 1)

    @property
    def done(self) -> bool:
        """Whether the brokers have everything."""
        self._thread.check()
        return self.acknowledged + len(self.refused) == self._total

    def check(self) -> None:
        """Raise what keeps it from writing."""
        self._thread.check()

    def stop(self) -> None:
        """Write no more; what is on its way may arrive."""
        self._thread.stop()
        self._client.flush(60)
