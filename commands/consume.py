"""``zkgroup consume``: messages to stdout, as a member of a group or without one."""

from __future__ import annotations

import dataclasses
import logging
import os
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from zkgroup.config.settings_table import Strategy
from zkgroup.errors import Notice, Remedy, UsageError
from zkgroup.groups.group_choices import OffsetStore
from zkgroup.text import counted

from ._completion import complete_group, complete_topic, complete_words
from ._context import connection, consumer_config, done, warn
from ._error_output import stdout_descriptor
from ._message_format import Formatter, compile_format, decoded_json_lines, json_lines, values_lines, visible_json_lines
from ._message_sink import Sink
from ._shared_options import SchemaChoice, option, parse_format, read_schema, registered, registry_of
from ._signals import before_start

if TYPE_CHECKING:
    from zkgroup.clients.kafka.message_filter import Matcher, MessageFilter

    from ._consumption import Subscription

log = logging.getLogger("zkgroup.consume")

MEMBER = "As a member of a group"
WHEN = "Where to begin, and when to leave"
SCHEMA = "With a schema: JSON lines, as export would write them"
FILTER = "Which messages to print; the others are consumed, too"
PATTERN = "A glob of all of it, such as 'order-*'; or /RE/, a regular expression found in it. Repeatable: one matches."
AT_END = "no message yet: reading began at the end of the logs{}; --from-beginning reads what is there, too"


def consume(
    ctx: typer.Context,
    topics: Annotated[
        list[str] | None,
        typer.Argument(metavar="[TOPIC]…", help="Topics to read.", autocompletion=complete_topic),
    ] = None,
    whitelist: Annotated[
        str | None, option("--whitelist", metavar="RE", help="Topics whose whole name matches.")
    ] = None,
    blacklist: Annotated[
        str | None, option("--blacklist", metavar="RE", help="Topics whose whole name does not match.")
    ] = None,
    group: Annotated[
        str | None,
        option(
            "--group", "-g", metavar="GROUP", help="Be a member of this group.", complete=complete_group, panel=MEMBER
        ),
    ] = None,
    coordinator: Annotated[
        OffsetStore,
        option(
            "--coordinator",
            help="Where the group's members meet: in ZooKeeper, or at Kafka's coordinator, as newer consumers do.",
            panel=MEMBER,
        ),
    ] = "zookeeper",
    streams: Annotated[int, option("--streams", metavar="N", min=1, help="Streams of this member.", panel=MEMBER)] = 1,
    from_beginning: Annotated[
        bool,
        option(
            "--from-beginning",
            help="The same as --offset earliest. It wins over auto.offset.reset, which then only says where to go on "
            "after messages are lost.",
            panel=WHEN,
        ),
    ] = False,
    partition: Annotated[
        list[int] | None,
        option("--partition", metavar="P", min=0, help="Only this partition, without a group; repeatable."),
    ] = None,
    offset: Annotated[
        str | None,
        option(
            "--offset",
            metavar="earliest|latest|N|-N|@TIME",
            complete=complete_words("earliest", "latest"),
            help="Where to start; with a group only where it has no offset stored. -N: the last N. By default latest, "
            "or earliest where auto.offset.reset is smallest.",
            panel=WHEN,
        ),
    ] = None,
    max_messages: Annotated[
        int | None,
        option("--max-messages", "-n", metavar="N", min=0, help="Leave after N messages are printed.", panel=WHEN),
    ] = None,
    timeout_ms: Annotated[
        int | None,
        option("--timeout-ms", metavar="MS", min=0, help="Leave after so long without a message.", panel=WHEN),
    ] = None,
    until_end: Annotated[
        bool, option("--until-end", "-e", help="Leave when the ends seen at the start are reached.", panel=WHEN)
    ] = False,
    fmt: Annotated[
        str | None,
        option(
            "--format",
            "-f",
            metavar="FMT",
            help=r"kcat's tokens: %t topic, %p partition, %o offset, %k key, %s value, %T timestamp, %h headers, "
            r"%K %S lengths; \n \t \xXX.",
        ),
    ] = None,
    filter_key: Annotated[
        list[str] | None,
        option("--filter-key", metavar="PATTERN", help=f"Only messages whose key matches. {PATTERN}", panel=FILTER),
    ] = None,
    filter_value: Annotated[
        list[str] | None,
        option("--filter-value", metavar="PATTERN", help="Only messages whose value matches.", panel=FILTER),
    ] = None,
    filter_header: Annotated[
        list[str] | None,
        option(
            "--filter-header",
            metavar="NAME=PATTERN",
            help="Only messages with a header of that name that matches.",
            panel=FILTER,
        ),
    ] = None,
    key_format: Annotated[
        SchemaChoice | None,
        option("--key-format", help="The format of keys that --key-schema decodes.", panel=SCHEMA),
    ] = None,
    key_schema: Annotated[
        Path | None,
        option("--key-schema", metavar="SCHEMA", help="A file, or registry: decode keys by it.", panel=SCHEMA),
    ] = None,
    value_format: Annotated[
        SchemaChoice | None,
        option("--value-format", help="The format of values that --value-schema decodes.", panel=SCHEMA),
    ] = None,
    value_schema: Annotated[
        Path | None,
        option("--value-schema", metavar="SCHEMA", help="A file, or registry: decode values by it.", panel=SCHEMA),
    ] = None,
    output: Annotated[
        Literal["raw", "json"], option("--output", help="raw: values, one a line. json: one object a line.")
    ] = "raw",
    raw: Annotated[
        bool,
        option("--raw", help="On a terminal, too, print control characters of messages as they are, not made visible."),
    ] = False,
    strategy: Annotated[
        Strategy | None,
        option("--strategy", help="How the group shares its partitions; the same for all members.", panel=MEMBER),
    ] = None,
    no_commit: Annotated[
        bool, option("--no-commit", help="As a member, but leave the group's offsets as they are.", panel=MEMBER)
    ] = False,
) -> int:
    """Print messages, one per line.

    With --group it is a full member: it shares the partitions with the others, and commits what it has printed.
    Messages written to a pipe whose reader has gone are not committed. Without --group it reads the partitions that
    are there when it begins, and leaves nothing behind. It goes on until it is stopped (Ctrl-C leaves cleanly, a second
    one after more than a second at once), unless an option ends it.

    With --coordinator kafka it joins the group of that name that lives in Kafka (brokers from 0.9 on), commits there,
    and says on stderr what each rebalance gives and takes. The two kinds of group know nothing of each other.

    With --value-schema, or --key-schema, it prints what an export with these options would write, a JSON object a line.

    With --filter-key, --filter-value or --filter-header it prints the messages that pass all of these. The others are
    consumed and committed, too; how many were printed is shown at the end. A filter compares the bytes of a message,
    before a schema decodes them: those that are no UTF-8 each count as a character. What is null matches nothing.

    \b
    zkgroup consume orders --group billing
    zkgroup consume orders --offset -10 --until-end --format '%p %o %s\\n'
    zkgroup consume orders --group billing --coordinator kafka
    zkgroup consume orders --from-beginning -e --filter-key 'order-7*'
    """
    descriptor = stdout_descriptor()
    key = parse_format("key", key_format, key_schema, needs_schema=True)
    value = parse_format("value", value_format, value_schema, needs_schema=True)
    visible = not raw and os.isatty(descriptor)
    formatter = _formatter(fmt, output, visible=visible)
    if fmt is not None and (key or value):
        raise UsageError("--format and a schema contradict each other", "give one of them")
    schemas = read_schema("key", key, key_schema), read_schema("value", value, value_schema)
    if from_beginning and offset is not None:
        raise UsageError("--from-beginning and --offset contradict each other", "give one of them")
    wanted = _filter(filter_key or (), filter_value or (), filter_header or ())
    settings = connection(ctx)
    if any(schemas):
        registry = registry_of(settings, *schemas)
        if registry is not None and not topics:
            raise UsageError("--whitelist and --blacklist name no subjects of a registry", "name topics")
        by_key = registered("key", schemas[0], registry, topics or ())
        by_value = registered("value", schemas[1], registry, topics or ())
        formatter = decoded_json_lines(by_key, by_value, visible=visible)
    if group:
        from zkgroup.protocol.names import validate_group_id

        validate_group_id(group)
    loaded = consumer_config(ctx, settings, group, coordinated=coordinator == "kafka")
    config = loaded.config
    member = bool(config.group_id) and not partition
    if not member:
        for given, name in (
            (no_commit, "--no-commit"),
            (strategy, "--strategy"),
            (streams > 1, "--streams"),
            (coordinator == "kafka", "--coordinator kafka"),
        ):
            if given:
                raise UsageError(f"{name} is for members of a group", "give --group, and no --partition")
    if strategy is not None:
        explicit = config.explicit | {"partition.assignment.strategy"}
        config = dataclasses.replace(config, partition_assignment_strategy=strategy, explicit=explicit)
    if no_commit:
        config = dataclasses.replace(config, auto_commit_enable=False)
    if timeout_ms is None and config.consumer_timeout_ms >= 0:
        timeout_ms = config.consumer_timeout_ms
    with before_start():
        from zkgroup.clients.kafka.native_reader import reader_in_use
        from zkgroup.connector import parse_start
        from zkgroup.protocol.znodes import is_escaped_twice

        from ._consumption import Consumption, consume_as_member, consume_plainly

    log.info("messages are read by the %s reader", reader_in_use() if wanted is None else "Python")

    subscription = _subscription(topics or [], whitelist, blacklist)
    if subscription.filter is not None and is_escaped_twice(subscription.filter.expression):
        # Backslashes that the shell did not need escaped: Java reads a doubled one as a backslash.
        effect = "excludes" if subscription.filter.kind == "black_list" else "matches"
        text = f"the filter '{subscription.filter.expression}' has a doubled backslash, which {effect} no topic: "
        warn(ctx, [Notice(text + "no topic's name contains a backslash", Remedy("write a single one"))])
    where = "earliest" if from_beginning else offset
    if where is None and not member:
        where = "earliest" if config.auto_offset_reset == "smallest" else "latest"
    start = None if where is None else parse_start(where, config.auto_offset_reset)
    if max_messages == 0:
        return 0
    at_end = config.auto_offset_reset != "smallest" if start is None else start.kind == "latest"
    unread = AT_END.format(" where the group has no offset" if member else "") if at_end and sys.stderr.isatty() else ""
    sink = Sink(descriptor, formatter, limit=max_messages, wanted=wanted)
    timeout = None if timeout_ms is None else timeout_ms / 1000
    settings = dataclasses.replace(settings, kafka=config.kafka)  # without what a membership alone has
    asked = Consumption(settings, config, subscription, start, sink, timeout, until_end, unread)
    try:
        if member:
            report = partial(done, ctx)
            return consume_as_member(asked, coordinator, streams, loaded.membership, report)
        return consume_plainly(asked, partition or [])
    finally:
        if wanted is not None:
            done(ctx, f"{sink.written} of {counted(sink.consumed, 'message')} printed")


def _filter(keys: Sequence[str], values: Sequence[str], headers: Sequence[str]) -> MessageFilter | None:
    """What the options ask for; None without any. Raises ``UsageError``."""
    if not (keys or values or headers):
        return None
    with before_start():
        from zkgroup.clients.kafka.message_filter import MessageFilter, parse_pattern
    by_name: dict[str, list[Matcher]] = {}
    for one in headers:
        name, _, pattern = one.partition("=")
        if not name or not pattern:
            raise UsageError(f"--filter-header {one[:80]!r} is no NAME=PATTERN", "NAME=* is any value")
        by_name.setdefault(name, []).append(parse_pattern(pattern, "--filter-header"))
    return MessageFilter(
        [parse_pattern(one, "--filter-key") for one in keys],
        [parse_pattern(one, "--filter-value") for one in values],
        by_name,
    )


def _subscription(topics: Sequence[str], whitelist: str | None, blacklist: str | None) -> Subscription:
    from zkgroup.protocol.names import validate_topic
    from zkgroup.protocol.topic_filter import TopicFilter

    from ._consumption import Subscription

    given = (("topics", topics or None), ("--whitelist", whitelist), ("--blacklist", blacklist))
    named = [name for name, value in given if value is not None]
    if not named:
        raise UsageError("no topic is named", "name some, or give one of --whitelist and --blacklist")
    if len(named) > 1:
        raise UsageError(f"{' and '.join(named)} contradict each other", "give one of them")
    for value, name in ((whitelist, "--whitelist"), (blacklist, "--blacklist")):
        if value is not None and not value.strip():
            raise UsageError(f"{name} is empty", "give it a regular expression")
    if whitelist is not None:
        return Subscription((), TopicFilter("white_list", whitelist))
    if blacklist is not None:
        return Subscription((), TopicFilter("black_list", blacklist))
    return Subscription(tuple(dict.fromkeys(map(validate_topic, topics))), None)


def _formatter(fmt: str | None, output: str, *, visible: bool) -> Formatter:
    if output == "json":
        if fmt is not None:
            raise UsageError("--format and --output json contradict each other", "give one of them")
        return visible_json_lines if visible else json_lines
    if fmt is None and not visible:
        return values_lines
    return compile_format("%s\\n" if fmt is None else fmt, visible=visible)
