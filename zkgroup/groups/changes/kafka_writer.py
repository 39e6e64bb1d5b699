"""Writing a group's offsets to Kafka, and deleting the group there, as safely as Kafka admits.

Kafka has no compare-and-set. The coordinator refuses a commit without a member (generation −1), and a deletion, while
the group has members there. Against other tools that commit without a member zkgroup reads the offsets again just
before: a commit in the milliseconds between is overwritten, or deleted, unseen. Kafka does not know members of the old
consumer that keep their offsets there: a ``check`` searches ZooKeeper for them before every piece.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from zkgroup.clients.kafka.client import KafkaSettings
from zkgroup.clients.kafka.group_consumers import GroupOffsets
from zkgroup.clients.kafka.group_coordinator import Coordinators
from zkgroup.clients.kafka.responses import KafkaGroup
from zkgroup.errors import Remedy, UnreachableError, VerificationError, ZkgroupError
from zkgroup.groups.changes.change_reports import Reporter, WriteReport, after, check_complete, refuse_changed, reported
from zkgroup.groups.changes.plan import GO_ON, OffsetChange, Source
from zkgroup.groups.changes.preconditions import GroupActiveError
from zkgroup.protocol.names import TopicPartition
from zkgroup.text import listed

#: Offsets a commit. The coordinator writes a commit as one batch, which must fit into one message (1 MB by default).
MAX_OFFSETS: Final = 1000

#: For how long commits are waited for after a change, in seconds, and how often offsets are read meanwhile: consumers
#: commit every five seconds by default.
COMMIT_WAIT: Final = 5.5
COMMIT_POLL: Final = 0.5

#: Raises ``RefusedError`` where the group has members that Kafka does not know.
Precondition: TypeAlias = Callable[[], object]


def refuse_if_active(group: str, kafka_group: KafkaGroup) -> None:
    """Raise ``GroupActiveError`` if the group has members in Kafka, ``UnreachableError`` where that is not known."""
    members = kafka_group.group.members if kafka_group.group is not None else ()
    if members:
        hosts = {member.member: member.host or "an unknown host" for member in members}
        raise GroupActiveError(group, hosts, store="kafka")
    check_complete(group, kafka_group)


def verification_moments(found: KafkaGroup) -> Iterator[None]:
    """When to read a group's offsets in Kafka after a change: once, and again and again for ``COMMIT_WAIT`` where no
    member has ever joined the group. A consumer that assigns its partitions itself (Spark, Flink) shows in its commits
    alone. Waits in between."""
    deadline = time.monotonic() + (COMMIT_WAIT if found.group is None or found.group.is_simple else 0.0)
    yield
    while time.monotonic() < deadline:
        time.sleep(COMMIT_POLL)
        yield


def check_before(settings: KafkaSettings, group: str, writes: Sequence[OffsetChange], timeout: float) -> None:
    """Raise as ``write_kafka_offsets``, for what it would refuse now: called before ZooKeeper's half of a
    change is written, which would stay alone."""
    with contextlib.closing(GroupOffsets(settings, group)) as offsets:
        writing = _KafkaOffsetWriting(settings, group, offsets, timeout, {write.key: write for write in writes})
        with after("nothing was written"):
            writing.check()


def write_kafka_offsets(
    settings: KafkaSettings,
    group: str,
    writes: Sequence[OffsetChange],
    timeout: float,
    *,
    check: Precondition = lambda: None,
    go_on: str = GO_ON,
) -> WriteReport:
    """Commit all of ``writes`` (each partition once), in pieces; ``timeout`` seconds a request.

    Everything is read before anything is written; an offset with its target is done. ``check`` is called before
    every piece. The report has no ``unwritten`` where this returns. Raises ``RefusedError`` (the check refuses, the
    group has members in Kafka, an offset has moved since the plan) and other errors, all with the report so far;
    offsets of unknown outcome are ``doubtful``. An interruption carries it as a note. ``go_on``: the remedy where only
    a part is written.
    """
    with contextlib.closing(GroupOffsets(settings, group)) as offsets:
        todo = {write.key: write for write in writes}
        writing = _KafkaOffsetWriting(settings, group, offsets, timeout, todo, check, go_on)
        with reported(writing):
            return writing.run()


@dataclass
class _KafkaOffsetWriting(Reporter):
    """The writing of ``_todo``. ``precondition`` is checked before each piece."""

    settings: KafkaSettings
    group: str
    offsets: GroupOffsets
    timeout: float
    _todo: dict[TopicPartition, OffsetChange]
    precondition: Precondition = lambda: None
    go_on: str = GO_ON
    where: str = " to Kafka"
    _written: dict[TopicPartition, None] = field(default_factory=dict)
    _under_way: Collection[TopicPartition] = ()

    def run(self) -> WriteReport:
        self._refuse_if_active()
        if len(self._todo) > MAX_OFFSETS:
            self._compare(list(self._todo.values()))
        while self._todo:
            piece = list(self._todo.values())[:MAX_OFFSETS]
            self.precondition()
            self._compare(piece)
            if left := [write for write in piece if write.key in self._todo]:
                self._put(left)
        return self.report()

    def check(self) -> None:
        """Read and compare all offsets; write nothing."""
        self._refuse_if_active()
        self._compare(list(self._todo.values()))

    def _refuse_if_active(self) -> None:
        kafka_group = Coordinators(self.settings, self.timeout).read_group(self.group)
        refuse_if_active(self.group, kafka_group)

    def _compare(self, writes: Sequence[OffsetChange]) -> None:
        """Read the offsets again. Raises ``RefusedError`` where one has moved."""
        found = self.offsets.fetch([write.key for write in writes], self.timeout)
        changed = []
        for write in writes:
            value = found[write.key]
            if value == write.target:
                self._todo.pop(write.key, None)
            elif value != write.current:
                changed.append((write.key, write.current, value))
        refuse_changed(self.group, changed, " in Kafka")

    def _put(self, writes: Sequence[OffsetChange]) -> None:
        values = {write.key: write.target for write in writes if write.target is not None}
        metadata = {write.key: write.metadata for write in writes}
        try:
            self._under_way = values.keys()
            self.offsets.commit(values, self.timeout, metadata)
            self._done(values)  # in here: a signal may come between any two steps
            self._under_way = ()
        except ZkgroupError as error:
            self._find_out(writes, error, self.timeout)
            raise
        except BaseException as stop:  # interrupted: the report depends on the answer
            self._find_out(writes, stop, 0.0)
            raise

    def _find_out(self, writes: Sequence[OffsetChange], error: BaseException, reconnect_timeout: float) -> None:
        """Find out whether a commit was applied that was answered with an error, or not at all; else it remains in
        doubt. Raises ``RefusedError`` where the reason is that the group has become active."""
        deadline = time.monotonic() + reconnect_timeout
        while True:
            try:
                found = self.offsets.fetch([write.key for write in writes], self.timeout)
                break
            except ZkgroupError as failed:  # the first error is the one to be reported
                if not isinstance(failed, UnreachableError) or time.monotonic() > deadline:
                    return
        self._done(write.key for write in writes if found[write.key] == write.target)
        # A request that was not answered may be carried out yet: only an offset that is read is certain.
        if isinstance(error, ZkgroupError) and not isinstance(error, UnreachableError):
            self._under_way = ()
            with contextlib.suppress(UnreachableError):  # the first error is the one to be reported
                self._refuse_if_active()

    def _done(self, partitions: Iterable[TopicPartition]) -> None:
        for partition in partitions:
            self._written[partition] = None
            self._todo.pop(partition, None)


_CHECK_GROUPS: Final = Remedy("see which groups are left; the backup has the deleted offsets", ("list-groups",))


def check_unmoved(coordinators: Coordinators, source: Source) -> None:
    """Raise ``RefusedError`` where the group has members in Kafka, or other offsets than were planned with, or where it
    is to be deleted by brokers that delete no groups; ``ZkgroupError`` where one of these is not known."""
    if source.is_deleted:
        coordinators.check_deletes(source.group)
    now = coordinators.read_group(source.group)
    refuse_if_active(source.group, now)
    planned = source.in_kafka or {}
    there = {key: offset for key, offset in now.offsets.items() if source.is_deleted or key in planned}
    # An offset that is gone, as they expire, is no loss.
    changed = ((key, planned.get(key), there[key]) for key in sorted(there) if planned.get(key) != there[key])
    moved = [(key, None if was is None else was.offset, now.offset) for key, was, now in changed]
    refuse_changed(source.group, moved, " in Kafka")


def remove_from_kafka(
    settings: KafkaSettings, group: str, planned: KafkaGroup, timeout: float, *, check: Precondition = lambda: None
) -> None:
    """Delete the group and its offsets, which must be as ``planned``; ``check`` is called before. A group
    that is gone already is no error. ``timeout`` (seconds) is for a broker's answer.

    Raises ``RefusedError`` where the check refuses, the group has members, or an offset has moved since the plan;
    or brokers delete no groups; ``VerificationError`` where the group has offsets again at once.
    """
    coordinators = Coordinators(settings, timeout)
    coordinators.leaders()  # connects, so that nothing is left to find out between the last reading and the deletion
    check()
    check_unmoved(coordinators, Source(group, planned.offsets, is_deleted=True))
    try:
        coordinators.delete(group)
    except UnreachableError as error:
        error.add_outcome(f"whether group {group} is deleted in Kafka is not known")
        error.add_remedy(_CHECK_GROUPS)
        raise
    for _ in verification_moments(planned):
        with after(f"group {group} is deleted in Kafka, which was not verified", _CHECK_GROUPS):
            again = coordinators.read_group(group)
        if again.offsets:
            found = listed([str(key) for key in sorted(again.offsets)])
            raise VerificationError(
                f"group {group} is deleted in Kafka, and has offsets there again: {found}",
                "find the client that commits for it; the backup has the deleted offsets",
            )
