"""Offsets of the brokers' logs: start, end, and the first one at a time."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from zkgroup.clients.kafka import wire_protocol
from zkgroup.clients.kafka.client import (
    MAX_REQUEST_PARTITIONS,
    MOVING,
    UNKNOWN,
    UNREACHABLE,
    AdminClient,
    ClusterMetadata,
    IsolationLevel,
    KafkaError,
    KafkaException,
    KafkaSettings,
    KafkaTopicPartition,
    OffsetSpec,
    admin_and_metadata,
    metadata_of,
    old_metadata,
)
from zkgroup.errors import NotFoundError, OffsetOutOfRangeError, UnreachableError, ZkgroupError
from zkgroup.protocol.broker_znodes import Endpoint, address, parse_endpoints
from zkgroup.protocol.names import TopicPartition
from zkgroup.protocol.procedures import batched

#: Special times: a log's first offset, and the next one to be written.
EARLIEST: Final = -2
LATEST: Final = -1
_SPECS: Final[Mapping[int, Callable[[], OffsetSpec]]] = {EARLIEST: OffsetSpec.earliest, LATEST: OffsetSpec.latest}
#: The offset that brokers return for a time after the last message. librdkafka's for "none" is far below.
_NOWHERE: Final = -1


@dataclass(frozen=True, slots=True)
class LogRange:
    """A partition's log: ``start`` is its first offset, ``end`` the next one to be written (the high watermark).

    ``leader``: the broker that answered, where that is known.
    """

    start: int
    end: int
    leader: int | None = field(default=None, compare=False)


#: A broker's answer about one partition's log.
Log: TypeAlias = LogRange | ZkgroupError


def leaderless(
    metadata: ClusterMetadata, partitions: Iterable[TopicPartition], settings: KafkaSettings
) -> dict[TopicPartition, ZkgroupError]:
    """Partitions without a leader to ask, each with the reason."""
    errors: dict[TopicPartition, ZkgroupError] = {}
    for partition in partitions:
        topic = metadata.topics.get(partition.topic)
        known = None if topic is None else topic.partitions.get(partition.partition)
        if topic is not None and topic.error is not None:
            errors[partition] = partition_error(partition, topic.error, settings)
        elif known is None:
            errors[partition] = partition_error(partition, KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART), settings)
        elif known.leader not in metadata.brokers:
            errors[partition] = partition_error(partition, KafkaError(KafkaError.LEADER_NOT_AVAILABLE), settings)
    return errors


def _list_offsets(
    settings: KafkaSettings,
    times: Sequence[Mapping[TopicPartition, int]],
    timeout: float,
    level: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    client: AdminClient | None = None,
) -> tuple[list[dict[TopicPartition, int | ZkgroupError]], dict[TopicPartition, int]]:
    """For each of ``times`` (or EARLIEST, LATEST), which are for the same partitions, the offset in every one of them,
    or why there is none; and the leaders that were asked.

    Only partitions with a leader are asked about, and only after all leaders have been read: librdkafka (2.16) crashes
    now and then where ``list_offsets`` has to look them up first. That search goes on in librdkafka's own thread, which
    frees the request when the brokers answer; if that is at once, the calling thread still uses it.
    """
    deadline = time.monotonic() + timeout
    if settings.is_old_and_plain:
        client, metadata = None, old_metadata(settings, timeout)
    elif client is None:
        client, metadata = admin_and_metadata(settings, timeout)
    else:
        metadata = metadata_of(client, settings, timeout)
    errors = leaderless(metadata, times[0], settings)
    leaders = {p: metadata.topics[p.topic].partitions[p.partition].leader for p in times[0] if p not in errors}
    led: dict[int, list[TopicPartition]] = {}
    for partition, leader in leaders.items():
        led.setdefault(leader, []).append(partition)
    places = {number: address(at.host or "", at.port) for number, at in metadata.brokers.items()}
    if client is not None:
        answers = _ask(client, settings, led.values(), times, level, deadline)
    else:
        asked = {parse_endpoints(places[leader])[0]: its for leader, its in led.items()}
        answers = _ask_old(settings, asked, times, deadline)
    silent = {p: leader for p, leader in leaders.items() if not all(p in its for its in answers)}
    silences = _silences(settings, places, silent, timeout) if silent else {}
    return [{**errors, **silences, **its} for its in answers], leaders


def _ask(
    client: AdminClient,
    settings: KafkaSettings,
    shares: Collection[Sequence[TopicPartition]],
    times: Sequence[Mapping[TopicPartition, int]],
    level: IsolationLevel,
    deadline: float,
) -> list[dict[TopicPartition, int | ZkgroupError]]:
    """The answers, without partitions that no broker has answered for. ``shares``: the partitions of each leader, which
    is asked by itself, all at the same time: librdkafka answers a request to several when the last of them has
    answered, and then has -1001 as the offset where a dead one did not."""
    asked = [
        [
            client.list_offsets(
                {KafkaTopicPartition(*partition): _spec(at[partition]) for partition in piece},
                isolation_level=level,
                request_timeout=max(1.0, deadline - time.monotonic()),
            )
            for share in shares
            for piece in batched(share, MAX_REQUEST_PARTITIONS)
        ]
        for at in times
    ]
    results: list[dict[TopicPartition, int | ZkgroupError]] = []
    for pieces in asked:
        found: dict[TopicPartition, int | ZkgroupError] = {}
        for key, future in (item for futures in pieces for item in futures.items()):
            partition = TopicPartition(key.topic, key.partition)
            try:
                offset = future.result(max(0.1, deadline + 1 - time.monotonic())).offset
                if offset >= _NOWHERE:
                    found[partition] = offset
            except KafkaException as error:
                if error.args[0].code() == KafkaError.UNSUPPORTED_FOR_MESSAGE_FORMAT:
                    found[partition] = _NOWHERE  # kept in the format of 0.9: brokers (1.1) find nothing by a time
                elif error.args[0].code() not in UNREACHABLE:
                    found[partition] = partition_error(partition, error.args[0], settings)
            except TimeoutError:
                pass
        results.append(found)
    return results


def _spec(at: int) -> OffsetSpec:
    return _SPECS[at]() if at in _SPECS else OffsetSpec.for_timestamp(at)


def _ask_old(
    settings: KafkaSettings,
    led: Mapping[Endpoint, Sequence[TopicPartition]],
    times: Sequence[Mapping[TopicPartition, int]],
    deadline: float,
) -> list[dict[TopicPartition, int | ZkgroupError]]:
    """As ``_ask``, of brokers that have neither transactions nor a time index: one time for all partitions."""
    same = [next(iter(at.values())) for at in times]
    return [
        {p: partition_error(p, KafkaError(code), settings) if code else offset for p, (code, offset) in its.items()}
        for its in wire_protocol.fetch_offsets(led, same, max(1.0, deadline - time.monotonic()))
    ]


def _silences(
    settings: KafkaSettings, places: Mapping[int, str], silent: Mapping[TopicPartition, int], timeout: float
) -> dict[TopicPartition, ZkgroupError]:
    """Errors for partitions whose leaders gave no answer. ``places``: the brokers' addresses by their ids."""
    endpoints = parse_endpoints(",".join(places.values()))
    failures, _ = wire_protocol.troubles(endpoints, plain=settings.protocol == "PLAINTEXT")
    causes = {str(endpoint): f": {why}" for endpoint, why in failures.items()}
    errors: dict[TopicPartition, ZkgroupError] = {}
    for partition, leader in silent.items():
        broker, cause = f"broker {leader} at {places[leader]}", causes.get(places[leader], "")
        silence = f"gave no answer within {round(timeout, 1):g} s{cause}"
        errors[partition] = UnreachableError(
            f"{broker}, the leader of {partition}, {silence}",
            "check that it runs and that this host may reach it",
            reason=f"{broker}, its leader, {silence}",
        )
    return errors


def log_offsets(
    settings: KafkaSettings,
    partitions: Iterable[TopicPartition],
    timeout: float,
    *,
    read_committed: bool = False,
    client: AdminClient | None = None,
) -> dict[TopicPartition, Log]:
    """First and end offsets of many partitions, in two requests a broker.

    A partition that the brokers do not know, that has no leader, or whose leader does not answer within ``timeout``
    seconds, gets its own error instead of a range. Raises ``UnreachableError`` when no broker answers at all.
    ``client``: a client for several calls; without it one is created.
    """
    wanted = dict.fromkeys(partitions)
    if not wanted:
        return {}
    level = IsolationLevel.READ_COMMITTED if read_committed else IsolationLevel.READ_UNCOMMITTED
    times = [dict.fromkeys(wanted, at) for at in (EARLIEST, LATEST)]
    (starts, ends), leaders = _list_offsets(settings, times, timeout, level, client)
    result: dict[TopicPartition, Log] = {}
    for partition in wanted:
        start, end = starts[partition], ends[partition]
        if isinstance(start, ZkgroupError):
            result[partition] = start
        elif isinstance(end, ZkgroupError):
            result[partition] = end
        else:
            result[partition] = LogRange(start, end, leaders[partition])
    return result


def offsets_for_times(
    settings: KafkaSettings,
    rounds: Sequence[Mapping[TopicPartition, int]],
    timeout: float,
    *,
    client: AdminClient | None = None,
) -> list[dict[TopicPartition, int | None]]:
    """The brokers' answers for times (milliseconds since 1970, for each partition its own), for many partitions in one
    request: the first offset whose message is not older. ``rounds``: several times for the same partitions, asked for
    at once; before 0.10 one time for all.

    None where they find none, which proves nothing (see ``message_times``). 0.8 and 0.9 have no time index: they
    return the start of a segment, and None means before the first one (so: the log's start). ``client``: as for
    ``log_offsets``.

    Raises ``ZkgroupError`` where a partition cannot be asked.
    """
    if not rounds[0]:
        return [{} for _ in rounds]
    answers, _ = _list_offsets(settings, rounds, timeout, client=client)
    found: list[dict[TopicPartition, int | None]] = []
    for its in answers:
        for offset in its.values():
            if isinstance(offset, ZkgroupError):
                raise offset
        found.append({p: offset if offset >= 0 else None for p, offset in its.items() if isinstance(offset, int)})
    return found


def partition_error(partition: TopicPartition, error: KafkaError, settings: KafkaSettings) -> ZkgroupError:
    """The error of one partition."""
    code = error.code()
    if code in UNKNOWN:
        return NotFoundError(
            f"the brokers know no partition {partition}",
            "check its name and this user's rights: it may be deleted, or not created yet",
            reason="the brokers do not know it",
        )
    reason = error.str()
    if code in UNREACHABLE:
        there = f"at {settings.bootstrap}: {reason}"
        return UnreachableError(f"broker of {partition} {there}", "check the brokers", reason=f"its broker {there}")
    message = f"partition {partition}: {reason}"
    if code in (KafkaError.LEADER_NOT_AVAILABLE, *MOVING):
        return UnreachableError(message, "start the brokers that hold it, then try again", reason=reason)
    return ZkgroupError(message, reason=reason)


def out_of_range(partition: TopicPartition, position: int, log_range: LogRange) -> OffsetOutOfRangeError:
    """The error that says how many offsets a reset would skip or repeat."""
    if position < log_range.start:
        what = f"the log starts at {log_range.start}, so {log_range.start - position} offsets are gone already"
    else:
        what = f"the log ends at {log_range.end}: it was truncated, or the topic recreated"
    return OffsetOutOfRangeError(
        f"offset {position} of {partition} is out of range: {what}",
        "choose where to go on with auto.offset.reset=smallest|largest, or reset the offset",
    )
