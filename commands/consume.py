"""``zkgroup consume``: messages to stdout, as a member of a group or without one."""

from __future__ import annotations

import dataclasses
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

import typer

from zkgroup.config import ConnectionSettings, ConsumerConfig
from zkgroup.errors import NotFoundError, UsageError, ZkgroupError

from ._completing import complete_group
from ._context import connection, consumer_config, open_registry, warn
from ._errors import reader_is_gone
from ._messages import Formatter, compile_format, json_lines, values_lines
from ._signals import StopRequest
from ._sink import Sink

if TYPE_CHECKING:
    from zkgroup.connector import Stream
    from zkgroup.protocol.filters import TopicFilter
    from zkgroup.protocol.names import TopicPartition
    from zkgroup.servers.kafka import KafkaSettings

_Raw: TypeAlias = "Stream[bytes | None, bytes | None]"

#: How often the command looks whether it is time to leave.
LOOK = 0.05


def consume(
    ctx: typer.Context,
    topics: Annotated[
        list[str] | None,
        typer.Argument(metavar="[TOPIC]…", help="Topics to read."),
    ] = None,
    whitelist: Annotated[
        str | None, typer.Option("--whitelist", metavar="RE", help="Topics whose whole name matches.")
    ] = None,
    blacklist: Annotated[
        str | None, typer.Option("--blacklist", metavar="RE", help="Topics whose whole name does not match.")
    ] = None,
    group: Annotated[
        str | None,
        typer.Option(
            "--group", "-g", metavar="GROUP", help="Be a member of this group.", autocompletion=complete_group
        ),
    ] = None,
    streams: Annotated[int, typer.Option("--streams", metavar="N", min=1, help="Streams of this member.")] = 1,
    from_beginning: Annotated[bool, typer.Option("--from-beginning", help="The same as --offset earliest.")] = False,
    partition: Annotated[
        list[int] | None,
        typer.Option("--partition", metavar="P", min=0, help="Only this partition, without a group; repeatable."),
    ] = None,
    offset: Annotated[
        str | None,
        typer.Option(
            "--offset",
            metavar="earliest|latest|N|-N|@TIME",
            help="Where to start; with a group only where it has no offset stored. -N: the last N.",
        ),
    ] = None,
    max_messages: Annotated[
        int | None, typer.Option("--max-messages", "-n", metavar="N", min=0, help="Leave after N messages.")
    ] = None,
    timeout_ms: Annotated[
        int | None,
        typer.Option("--timeout-ms", metavar="MS", min=0, help="Leave after so long without a message."),
    ] = None,
    until_end: Annotated[
        bool, typer.Option("--until-end", "-e", help="Leave when the ends seen at the start are reached.")
    ] = False,
    fmt: Annotated[
        str | None,
        typer.Option(
            "--format",
            "-f",
            metavar="FMT",
            help=r"kcat's tokens: %t topic, %p partition, %o offset, %k key, %s value, %T timestamp, %h headers, "
            r"%K %S lengths; \n \t \xXX.",
        ),
    ] = None,
    output: Annotated[
        Literal["raw", "json"], typer.Option("--output", help="raw: values, one a line. json: one object a line.")
    ] = "raw",
    strategy: Annotated[
        Literal["range", "roundrobin"] | None,
        typer.Option("--strategy", help="How the group shares its partitions; the same for all members."),
    ] = None,
    no_commit: Annotated[
        bool, typer.Option("--no-commit", help="As a member, but leave the group's offsets as they are.")
    ] = False,
) -> int:
    """Print messages, one a line.

    With --group it is a full member: it shares the partitions with the others, and what it has printed is what it
    commits. Without, it reads and leaves nothing behind. It goes on until it is stopped (Ctrl-C leaves cleanly), unless
    told when to leave.

    \b
    zkgroup consume orders --group billing
    zkgroup consume orders --offset -10 --until-end --format '%p %o %s\\n'
    """
    formatter = _formatter(fmt, output)
    selection = _selection(topics or [], whitelist, blacklist)
    if from_beginning and offset is not None:
        raise UsageError("--from-beginning and --offset contradict each other", "give one of them")
    start = "earliest" if from_beginning else offset
    settings = connection(ctx)
    config = consumer_config(ctx, settings, group)
    if strategy is not None:
        config = dataclasses.replace(config, partition_assignment_strategy=strategy)
    if no_commit:
        config = dataclasses.replace(config, auto_commit_enable=False)
    if timeout_ms is None and config.consumer_timeout_ms >= 0:
        timeout_ms = config.consumer_timeout_ms
    limits = _Limits(max_messages, None if timeout_ms is None else timeout_ms / 1000, until_end)
    sink = Sink(sys.stdout.fileno(), formatter, limit=max_messages)
    if max_messages == 0:
        return 0
    if config.group_id and not partition:
        run = _as_member(ctx, settings, config, selection, streams, start, limits, sink)
    else:
        for given, name in ((no_commit, "--no-commit"), (strategy, "--strategy"), (streams > 1, "--streams")):
            if given:
                raise UsageError(f"{name} is for members of a group", "give --group, and no --partition")
        run = _without_group(settings, config, selection, partition or [], start, limits, sink)
    return run


@dataclasses.dataclass(frozen=True, slots=True)
class _Limits:
    """When to leave. ``timeout`` is seconds without a message."""

    messages: int | None
    timeout: float | None
    until_end: bool


@dataclasses.dataclass(frozen=True, slots=True)
class _Selection:
    """Which topics: by name, or by a filter."""

    topics: tuple[str, ...]
    filter: TopicFilter | None

    def among(self, known: Sequence[str], *, exclude_internal: bool) -> tuple[str, ...]:
        """The topics meant, of those that exist. Raises NotFoundError for a named one that does not."""
        if self.filter is not None:
            return self.filter.select(known, exclude_internal=exclude_internal)
        for topic in self.topics:
            if topic not in known:
                raise NotFoundError(f"no topic {topic}", "check the name, and the chroot of --zookeeper")
        return self.topics


def _selection(topics: Sequence[str], whitelist: str | None, blacklist: str | None) -> _Selection:
    from zkgroup.protocol.filters import TopicFilter
    from zkgroup.protocol.names import validate_topic

    if (bool(topics), whitelist is not None, blacklist is not None).count(True) != 1:
        raise UsageError("which topics?", "name some, or give one of --whitelist and --blacklist")
    if whitelist is not None:
        return _Selection((), TopicFilter("white_list", whitelist))
    if blacklist is not None:
        return _Selection((), TopicFilter("black_list", blacklist))
    return _Selection(tuple(dict.fromkeys(map(validate_topic, topics))), None)


def _formatter(fmt: str | None, output: str) -> Formatter:
    if fmt is not None and output == "json":
        raise UsageError("--format and --output json contradict each other", "give one of them")
    if fmt is not None:
        return compile_format(fmt)
    return json_lines if output == "json" else values_lines


def _as_member(
    ctx: typer.Context,
    settings: ConnectionSettings,
    config: ConsumerConfig,
    selection: _Selection,
    streams: int,
    start: str | None,
    limits: _Limits,
    sink: Sink,
) -> int:
    from zkgroup.connector import Connector, parse_start
    from zkgroup.servers.zookeeper import ZooKeeperSettings

    start_at = None if start is None else parse_start(start)
    kafka, ends = _look_around(ctx, settings, config, selection, until_end=limits.until_end)
    zookeeper = ZooKeeperSettings(
        str(settings.require_zookeeper()),
        session_timeout=config.zookeeper_session_timeout_ms / 1000,
        connect_timeout=settings.timeout,
    )
    connector = Connector(config, zookeeper, start=start_at, kafka=kafka)

    def at_end(made: Sequence[Stream[Any, Any]]) -> bool:
        look = connector.statistics()
        return look.phase == "owning" and _reached(made, ends, set(look.owned))

    with StopRequest(connector.leave) as stop, connector:
        if selection.filter is not None:
            made: list[_Raw] = connector.streams_by_filter(selection.filter, streams, tell_ends=limits.until_end)
        else:
            made = connector.merged_streams(selection.topics, streams, tell_ends=limits.until_end)
        sink.start(made)
        _wait(sink, made, limits, stop, at_end)
        connector.leave()
        sink.wait(config.quiesce_timeout_ms / 1000 + 1)
    return _outcome(sink, stop)


def _look_around(
    ctx: typer.Context, settings: ConnectionSettings, config: ConsumerConfig, selection: _Selection, *, until_end: bool
) -> tuple[KafkaSettings | None, Mapping[TopicPartition, int]]:
    """Before joining, so that nothing is registered in vain: do the topics exist, do the brokers answer, where do the
    logs end?"""
    from zkgroup.connector.brokers import Brokers
    from zkgroup.connector.start import log_ranges
    from zkgroup.errors import UnreachableError
    from zkgroup.protocol import znodes
    from zkgroup.protocol.names import TopicPartition
    from zkgroup.protocol.ops import Children, Get, Node
    from zkgroup.servers.kafka import topics as topics_of

    given = _given_brokers(settings)
    with open_registry(settings) as registry:
        listed, brokers = registry.read([Children(znodes.topics()), Children(znodes.broker_ids())])
        chosen = selection.among(
            listed if isinstance(listed, tuple) else (), exclude_internal=config.exclude_internal_topics
        )
        if given is None and not (isinstance(brokers, tuple) and brokers):
            if until_end:
                raise UnreachableError("no broker is registered in ZooKeeper", "check that the brokers are up")
            warn(ctx, ["no broker is registered in ZooKeeper: waiting for one"])
            return None, {}
        kafka = Brokers(registry.read, dict(config.kafka), given).settings()
        nodes = registry.read([Get(znodes.topic(topic)) for topic in chosen]) if until_end else []
    topics_of(kafka, settings.timeout)
    partitions = [
        TopicPartition(topic, number)
        for topic, node in zip(chosen, nodes, strict=False)
        if isinstance(node, Node)
        for number in znodes.decode_topic(znodes.topic(topic), node.data).partitions
    ]
    return given, {p: log.end for p, log in log_ranges(kafka, partitions, settings.timeout).items()}


def _given_brokers(settings: ConnectionSettings) -> KafkaSettings | None:
    from zkgroup.servers.kafka import KafkaSettings

    if not settings.bootstrap:
        return None
    return KafkaSettings(",".join(map(str, settings.bootstrap)), settings.kafka)


def _without_group(
    settings: ConnectionSettings,
    config: ConsumerConfig,
    selection: _Selection,
    numbers: Sequence[int],
    start: str | None,
    limits: _Limits,
    sink: Sink,
) -> int:
    from zkgroup.config import librdkafka_properties
    from zkgroup.connector import Stream, parse_start
    from zkgroup.connector.brokers import Brokers
    from zkgroup.connector.start import log_ranges, resolve_start
    from zkgroup.connector.stream import out_of_range
    from zkgroup.protocol.names import TopicPartition
    from zkgroup.servers.kafka import topics as topics_of

    start_at = parse_start(start or ("earliest" if config.auto_offset_reset == "smallest" else "latest"))
    kafka = _given_brokers(settings)
    if kafka is None:
        with open_registry(settings) as registry:
            kafka = Brokers(registry.read, dict(config.kafka)).settings()
    known = topics_of(kafka, settings.timeout)
    chosen = selection.among(sorted(known), exclude_internal=config.exclude_internal_topics)
    partitions = [TopicPartition(topic, number) for topic in chosen for number in numbers or known[topic]]
    for partition in partitions:
        if partition.partition not in known[partition.topic]:
            raise NotFoundError(
                f"topic {partition.topic} has no partition {partition.partition}",
                f"it has {len(known[partition.topic])}, counted from 0",
            )
    ranges = log_ranges(kafka, partitions, settings.timeout)
    starts = resolve_start(kafka, partitions, start_at, settings.timeout)
    for partition, position in starts.items():
        log = ranges[partition]
        if config.auto_offset_reset is None and not log.start <= position <= log.end:
            raise out_of_range(partition, position, log)
    settled = kafka
    properties = {
        name.replace(".", "_"): value
        for name, value in librdkafka_properties(config).items()
        if name not in config.kafka
    }
    stream: _Raw = Stream(
        lambda: settled,
        lambda: True,
        lambda error: None,
        sharers=1,
        reset=config.auto_offset_reset,
        key_decoder=lambda data: data,
        value_decoder=lambda data: data,
        properties=properties,
        tell_ends=limits.until_end,
    )
    ends = {partition: log.end for partition, log in ranges.items()}
    stream.grant(1, starts)
    with StopRequest(sink.stop) as stop:
        try:
            sink.start([stream])
            _wait(sink, [stream], limits, stop, lambda made: _reached(made, ends, set(starts)))
            sink.stop()
            sink.wait(2.0)
        finally:
            stream.end(None)
            if sink.done:
                stream.close()
    return _outcome(sink, stop)


def _reached(
    streams: Sequence[Stream[Any, Any]], ends: Mapping[TopicPartition, int], mine: set[TopicPartition]
) -> bool:
    """Whether all of ``mine`` were read to the ends. A log's tail may hold nothing to hand out (compaction, control
    records): then the end is told as an event."""
    positions: dict[TopicPartition, int] = {}
    seen: dict[TopicPartition, int] = {}
    for stream in streams:
        positions |= stream.positions
        seen |= stream.ends
    return all(
        positions.get(partition, -1) >= ends.get(partition, 0) or seen.get(partition, -1) >= ends.get(partition, 0)
        for partition in mine
    )


def _wait(
    sink: Sink,
    streams: Sequence[Stream[Any, Any]],
    limits: _Limits,
    stop: StopRequest,
    at_end: Callable[[Sequence[Stream[Any, Any]]], bool],
) -> None:
    """Until the readers are done, or it is time to leave."""
    while not stop and not sink.wait(LOOK):
        if limits.timeout is not None and time.monotonic() - sink.last_message >= limits.timeout:
            return
        if limits.until_end and at_end(streams):
            return


def _outcome(sink: Sink, stop: StopRequest) -> int:
    if sink.failure is not None:
        raise sink.failure
    if sink.error is not None and not (isinstance(sink.error, BrokenPipeError) and reader_is_gone(1)):
        raise ZkgroupError(
            f"stdout cannot be written: {sink.error.strerror}", "what was not written is not committed"
        ) from sink.error
    return stop.exit_code
