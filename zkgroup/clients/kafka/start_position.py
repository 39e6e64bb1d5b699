"""Where reading starts: earliest, latest, an offset, the last N messages, a time."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from zkgroup.clients.kafka.client import AdminClient, KafkaSettings
from zkgroup.clients.kafka.log_offsets import LogRange, log_offsets, out_of_range
from zkgroup.clients.kafka.message_times import offsets_since
from zkgroup.config.settings_table import Reset
from zkgroup.config.time_arguments import parse_time
from zkgroup.errors import OffsetOutOfRangeError, UsageError
from zkgroup.protocol.names import TopicPartition


@dataclass(frozen=True, slots=True)
class StartAt:
    """A position in a partition. ``value``: an offset, a number of messages before the end, or milliseconds since 1970.

    ``reset``: where to start instead if the offset is outside the log; without it that is an error.
    """

    kind: Literal["earliest", "latest", "offset", "tail", "time"]
    value: int = 0
    reset: Reset | None = None

    @classmethod
    def after_reset(cls, reset: Reset | None) -> StartAt:
        """Where ``auto.offset.reset`` has reading begin."""
        return cls("earliest" if reset == "smallest" else "latest")


def parse_start(text: str, reset: Reset | None = None) -> StartAt:
    """Read ``earliest``, ``latest`` (in any case), ``N``, ``-N`` (the last N) or ``@TIME``. Raises UsageError.

    A time is as in ``time_arguments``, or milliseconds since 1970; times before that count as 1970.
    """
    match text.lower():
        case "earliest" | "beginning" | "smallest":
            return StartAt("earliest")
        case "latest" | "end" | "largest":
            return StartAt("latest")
    if re.fullmatch(r"[0-9]{1,18}", text, re.ASCII):
        return StartAt("offset", int(text), reset)
    if re.fullmatch(r"-[0-9]{1,18}", text, re.ASCII):
        return StartAt("tail", -int(text))
    if re.fullmatch(r"@[0-9]{1,8}", text, re.ASCII):
        return StartAt("time", int(text[1:]))
    if text.startswith("@"):
        return StartAt("time", parse_time(text[1:]))
    raise UsageError(
        f"{text[:80]!r} is no position to start at",
        "write earliest, latest, N, -N, or @TIME such as @2024-05-01T12:00 or '@3h ago'",
    )


def resolve_start(
    settings: KafkaSettings, partitions: Iterable[TopicPartition], start: StartAt, timeout: float
) -> dict[TopicPartition, int]:
    """The offset in each partition.

    Raises OffsetOutOfRangeError for an offset outside the log, UnreachableError, NotFoundError, or the error of a
    partition whose log offsets cannot be read.
    """
    return _offsets(settings, log_ranges(settings, list(partitions), timeout), start, timeout)


def resolve_created(
    settings: KafkaSettings, partitions: Iterable[TopicPartition], start: StartAt, timeout: float
) -> dict[TopicPartition, int | None]:
    """As ``resolve_start``, but None for a partition without a leader, or one that is not created yet.

    Raises UnreachableError where no broker answers.
    """
    answers = log_offsets(settings, partitions, timeout)
    known = {partition: answer for partition, answer in answers.items() if isinstance(answer, LogRange)}
    return dict.fromkeys(answers) | _offsets(settings, known, start, timeout)


def _offsets(
    settings: KafkaSettings, ranges: Mapping[TopicPartition, LogRange], start: StartAt, timeout: float
) -> dict[TopicPartition, int]:
    if start.kind == "time":
        return offsets_since(settings, {p: (log.start, log.end) for p, log in ranges.items()}, start.value, timeout)
    return {partition: _offset(start, partition, log) for partition, log in ranges.items()}


def log_ranges(
    settings: KafkaSettings,
    partitions: Sequence[TopicPartition],
    timeout: float,
    *,
    read_committed: bool = False,
    client: AdminClient | None = None,
) -> dict[TopicPartition, LogRange]:
    """As ``log_offsets``, but raises the first error of a partition."""
    ranges: dict[TopicPartition, LogRange] = {}
    answers = log_offsets(settings, partitions, timeout, read_committed=read_committed, client=client)
    for partition, answer in answers.items():
        if not isinstance(answer, LogRange):
            raise answer
        ranges[partition] = answer
    return ranges


def log_ends(
    settings: KafkaSettings, partitions: Sequence[TopicPartition], timeout: float
) -> dict[TopicPartition, int]:
    """Where reading ends now: before open transactions, unless ``isolation.level`` says otherwise.

    Raises as ``log_ranges``.
    """
    committed = settings.isolation == "read_committed"
    return {p: log.end for p, log in log_ranges(settings, partitions, timeout, read_committed=committed).items()}


def _offset(start: StartAt, partition: TopicPartition, log: LogRange) -> int:
    match start.kind:
        case "earliest":
            return log.start
        case "latest":
            return log.end
        case "offset":
            if log.start <= start.value <= log.end:
                return start.value
            if start.reset is None:
                raise OffsetOutOfRangeError(
                    out_of_range(partition, start.value, log).message,
                    "start elsewhere, or say where to go on then with -X auto.offset.reset=smallest|largest",
                )
            return log.start if start.reset == "smallest" else log.end
        case "tail":
            return max(log.start, log.end - start.value)
        case "time":
            raise AssertionError("brokers find it, for all partitions at once")
