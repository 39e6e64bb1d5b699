"""A group in this process that reads while something happens to it; at the end it is judged by what was delivered,
committed and written (``faults.judge``)."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from faults.cluster import Patient, Watch, Writer
from faults.judge import Delivery, Verdict, judge
from members import ReadMember
from support import wait_until

from zkgroup.connector import Record
from zkgroup.errors import ZkgroupError
from zkgroup.protocol.events import ListenerMethod
from zkgroup.protocol.member import Phase
from zkgroup.protocol.names import ConsumerThreadId, TopicPartition

#: Records a second.
RATE = 200


class Held:
    """A rebalance listener that counts shares, and can be held in either of its calls."""

    def __init__(self) -> None:
        self.shares = 0
        self.reached = threading.Event()
        self._where = ""
        self._go_on = threading.Event()

    def hold(self, where: ListenerMethod) -> None:
        """The next such call returns only after ``go_on``; ``reached`` shows when it has come."""
        self._go_on.clear()
        self._where = where

    def go_on(self) -> None:
        """Whoever is held returns."""
        self._where = ""
        self._go_on.set()

    def before_releasing(self, partitions: Mapping[TopicPartition, ConsumerThreadId]) -> None:
        self._wait("before_releasing")

    def before_starting(self, assignment: Mapping[TopicPartition, ConsumerThreadId]) -> None:
        self.shares += 1
        self._wait("before_starting")

    def _wait(self, where: str) -> None:
        if self._where == where:
            self.reached.set()
            assert self._go_on.wait(60)


class Observed:
    """The group ``group``, reading ``topic``, to which records come in steadily.

    Leaving the block waits until everything is read and committed, closes the members and has what was seen against
    the guarantees. ``excused`` names members (and how often) that had an early end of their session, or stood still.
    """

    def __init__(self, connect: str, bootstrap: str, group: str, topic: str, partitions: int) -> None:
        self.group, self.topic, self.partitions = group, topic, partitions
        self.connect = connect
        self.excused: Counter[str] = Counter()
        self.members: list[ReadMember] = []
        self.verdict = Verdict()
        self.rest = 60.0  # seconds that everything may take to be read and committed in the end
        self._deliveries: list[Delivery] = []
        self.registry = Patient(connect)
        self.writer = Writer(bootstrap, topic, partitions, 10_000_000, 10_000_000 / RATE)
        self.watch = Watch(self.registry, group, topic, partitions, 0.02)

    def join(
        self,
        name: str,
        connect: str | None = None,
        *,
        subscription: Any = None,
        listener: Held | None = None,
        **options: Any,
    ) -> ReadMember:
        """A member ``GROUP_NAME``, which has its share when this returns."""
        counter = Held() if listener is None else listener

        def note(record: Record) -> None:
            if record.topic == self.topic:
                at = time.monotonic_ns()
                self._deliveries.append(Delivery(at, f"{name}/{counter.shares}", record.partition, record.offset))

        pace = options.pop("pace", None)

        def heed(record: Record) -> None:
            note(record)
            if pace is not None:
                pace(record)

        options = {"consumer_id": name, "pace": heed, "listener": counter} | options
        member = ReadMember(connect or self.connect, self.group, subscription or {self.topic: 1}, **options)
        self.members.append(member)
        return member

    def wait_for_progress(self) -> None:
        """Wait until every partition has been committed further than it is now."""
        before = self.watch.last
        wait_until(
            lambda: all(self.watch.last.get(p, -1) > before.get(p, 0) for p in range(self.partitions)), 30, "progress"
        )

    def wait_until_read(self) -> None:
        """Wait until every partition was read further than its log went when this was called."""
        ends = dict(self.writer.ends)

        def read() -> bool:
            last: dict[int, int] = {}
            for delivery in list(self._deliveries):
                last[delivery.partition] = max(last.get(delivery.partition, -1), delivery.offset)
            return all(last.get(p, -1) >= end for p, end in ends.items())

        wait_until(read, 60, "every partition is read")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.writer.stop()
            if error is None:
                wait_until(self._committed, self.rest, "everything is read and committed")
        finally:
            self._close(quietly=error is not None)
        if error is None:
            self.verdict = judge(self._deliveries, self.watch.commits, self.writer.ends, self.watch.last, self.excused)
            assert self.verdict.wrong == []

    def _committed(self) -> bool:
        for member in self.members:
            if member.connector.statistics().phase == Phase.OWNING.value:
                with contextlib.suppress(ZkgroupError):  # it is rebalancing by now, and will be asked again
                    member.connector.commit()
        return self.watch.last == self.writer.ends

    def _close(self, *, quietly: bool) -> None:
        late: ZkgroupError | None = None
        for member in self.members:
            try:
                member.close()
            except ZkgroupError as error:
                late = error
        self.watch.stop()
        self.registry.close()
        if late is not None and not quietly:
            raise late
