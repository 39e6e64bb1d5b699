"""Reports of a change that ended early: refused, failed, cut off, or interrupted by a signal.

An offset that may be written is never reported as unwritten: a transaction whose answer was lost is reported by itself.
An interruption (``KeyboardInterrupt``, and all that is no ``Exception``) carries it as a ``Notice``, which is shown
where the process ends.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from zkgroup.clients.kafka.responses import KafkaGroup, words_of
from zkgroup.errors import (
    Notice,
    Remedy,
    UnreachableError,
    VerificationError,
    ZkgroupError,
    add_notice,
    as_remedy,
)
from zkgroup.groups.changes.plan import GO_ON, StalePlanError
from zkgroup.protocol.names import TopicPartition, span_list
from zkgroup.text import are, counted, group_command, listed, offset_text


def check_complete(group: str, kafka_group: KafkaGroup) -> None:
    """Raise ``UnreachableError`` where Kafka has not answered all questions about a group."""
    if kafka_group.failures:
        raise UnreachableError(
            "; ".join(words_of(f"group {group}", kafka_group.failures)), "check the brokers and their logs"
        )


def unknown_in_kafka(group: str, error: ZkgroupError) -> ZkgroupError:
    """The error where it is unknown what Kafka has of a group: a change, or a saved file, could be of one half
    alone."""
    error.add_context(f"whether group {group} has offsets in Kafka is not known")
    error.add_remedy("give --store zookeeper to leave Kafka alone")
    return error


def refuse_changed(
    group: str, changed: Iterable[tuple[TopicPartition, int | None, int | None]], where: str = ""
) -> None:
    """Raise ``StalePlanError`` for offsets that were and are: they are not those of the plan."""
    if found := [f"{key} (was {offset_text(was)}, is {offset_text(now)})" for key, was, now in changed]:
        raise StalePlanError(
            f"offsets of group {group}{where} have changed since the plan was made: {listed(found)}",
            "find the client that commits for the group, then plan again",
        )


@dataclass(frozen=True, slots=True)
class WriteReport:
    """The outcome of the writes, without offsets that had their target before. Whether ``doubtful`` are written is
    unknown."""

    written: tuple[TopicPartition, ...] = ()
    unwritten: tuple[TopicPartition, ...] = ()
    doubtful: tuple[TopicPartition, ...] = ()

    def describe(self, where: str = "") -> str:
        """For people; ``where`` as in `` to Kafka``."""
        if not self.written and not self.doubtful:
            return f"nothing was written{where}"
        parts = []
        if count := len(self.written):
            parts.append(f"{counted(count, 'offset')} {are(count)} written{where} ({named(self.written)})")
        if count := len(self.doubtful):
            what = f"{counted(count, 'offset')} ({named(self.doubtful)}) {are(count)} written{where}"
            parts.append(f"whether {what} is not known")
        if count := len(self.unwritten):
            parts.append(f"{count} {are(count)} not ({named(self.unwritten)})")
        return ", ".join(parts)

    def remedy(self, group: str, go_on: str = GO_ON) -> Remedy | None:
        """How to go on; None where nothing is begun."""
        if self.doubtful:
            return Remedy(f"{go_on}; once it can be reached, see what is there", group_command("offsets", group))
        return Remedy(go_on) if self.written else None


class Reporter:
    """A writer of offsets of ``group`` that knows its progress. The outcome of those ``_under_way`` is unknown."""

    group: str
    where: str = ""
    go_on: str = GO_ON
    _todo: dict[TopicPartition, Any]
    _under_way: Collection[TopicPartition]
    _written: Collection[TopicPartition]

    def report(self) -> WriteReport:
        """How far it has come."""
        return WriteReport(
            tuple(self._written),
            tuple(partition for partition in self._todo if partition not in self._under_way),
            tuple(partition for partition in self._todo if partition in self._under_way),
        )


@contextmanager
def after(what: str, remedy: Remedy | str | None = None) -> Iterator[None]:
    """Add to an error or interruption ``what`` is done by then, and how to go on. A failed verification says so
    itself."""
    try:
        yield
    except VerificationError:
        raise
    except ZkgroupError as error:
        error.add_outcome(what)
        error.add_remedy(remedy)
        raise
    except BaseException as stop:
        note(stop, what, remedy)
        raise


@contextmanager
def reported(writer: Reporter) -> Iterator[None]:
    """Add the report of a ``writer`` to an error or interruption."""
    try:
        yield
    except BaseException:
        report = writer.report()
        with after(report.describe(writer.where), report.remedy(writer.group, writer.go_on)):
            raise


def note(stop: BaseException, what: str, remedy: Remedy | str | None = None) -> None:
    """Add a note of ``what`` is done to an interruption."""
    if not isinstance(stop, Exception):
        add_notice(stop, Notice(what, as_remedy(remedy)))


def named(partitions: Iterable[TopicPartition]) -> str:
    """Partitions for people, neighbours together, a few at most."""
    return listed(span_list(partitions))
