"""``zkgroup export``: a group's messages as Parquet files or tables, through Spark."""

from __future__ import annotations

import contextlib
import re
import sys
import warnings
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

import typer

from zkgroup.config import ConnectionSettings
from zkgroup.errors import (
    MalformedZnodeError,
    NotFoundError,
    Notice,
    Remedy,
    UsageError,
    VerificationError,
    ZkgroupError,
)
from zkgroup.export.model.choices import OnMismatch, TableKind
from zkgroup.text import counted

from ._completion import complete_group, complete_topic, complete_words
from ._context import connection, consumer_config, open_registry, warn
from ._error_output import render, render_command, say
from ._group_views import brokers_of
from ._output import Column, Output, print_rows, time_column
from ._shared_options import (
    FormatOption,
    GlobalOptions,
    OutputOption,
    check_options,
    is_given,
    option,
    parse_format,
    parse_key_values,
    read_schema,
    registry_of,
)
from ._terminal_text import rewrites

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

    from zkgroup.export.destination.run_log import Destination
    from zkgroup.export.run.run_export import Progress

COLUMNS = ("topic", "partition", "start", "end", "rows", "bytes", "files", "undecodable", "late")
TROUBLE = "When the export cannot simply continue"
REPORTS = "Reports"
SPARK = "Spark"
FILES = "Files and folders"
Isolation: TypeAlias = Literal["read_committed", "read_uncommitted"]
_SIZE = re.compile(r"([0-9]{1,12})\s*(?:([kmgt])(?:i?b)?|b)?", re.ASCII | re.IGNORECASE)
#: A Spark property with a secret, by what its key says; as Spark's own ``spark.redaction.regex``.
_SECRET = re.compile(r"(?is)^([^=]*(?:secret|password|token|access[.]?key)[^=]*=).*")
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


def export(
    ctx: typer.Context,
    group: Annotated[
        str | None, option("--group", "-g", metavar="GROUP", help="The consumer group.", complete=complete_group)
    ] = None,
    to: Annotated[str | None, option("--to", metavar="URI", help="A folder, or s3://BUCKET/PREFIX.")] = None,
    topics: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[TOPIC]…",
            help="Topics; without any, all that the group has offsets for.",
            autocompletion=complete_topic,
        ),
    ] = None,
    whitelist: Annotated[
        str | None, option("--whitelist", metavar="RE", help="Topics whose whole name matches.")
    ] = None,
    begin: Annotated[
        str,
        option(
            "--from",
            metavar="WHERE|FILE",
            help="No offset yet: earliest, latest, @TIME,…",
            show_default=False,
            complete=complete_words("committed", "earliest", "latest"),
        ),
    ] = "committed",
    until: Annotated[
        str,
        option(
            "--until",
            metavar="WHERE|FILE",
            help="Stop at committed, @TIME, FILE, TOPIC:P=N,…",
            show_default=False,
            complete=complete_words("committed", "end"),
        ),
    ] = "end",
    max_messages: Annotated[
        int | None, option("--max-messages", metavar="N", min=1, help="Read at most N offsets.")
    ] = None,
    max_bytes: Annotated[
        str | None, option("--max-bytes", metavar="SIZE", help="Export about SIZE of keys and values.")
    ] = None,
    isolation: Annotated[
        Isolation | None, option("--isolation", metavar="LEVEL", help="read_committed, or read_uncommitted.")
    ] = None,
    join: Annotated[bool, option("--join", help="Be a member of the group: export its share.")] = False,
    backfill: Annotated[bool, option("--backfill", help="Export what is missing; the group stays.")] = False,
    on_mismatch: Annotated[
        OnMismatch,
        option(
            "--on-mismatch",
            metavar="ANSWER",
            help="Where to continue: lake, group; skip, fail.",
            show_default=False,
            panel=TROUBLE,
        ),
    ] = "fail",
    take_over: Annotated[
        str | None,
        option(
            "--take-over",
            metavar="GROUP",
            help="Own the topics that GROUP has exported here so far.",
            panel=TROUBLE,
            complete=complete_group,
        ),
    ] = None,
    abandon: Annotated[
        bool, option("--abandon", help="Give up an unfinished run whose destination is lost.", panel=TROUBLE)
    ] = False,
    status: Annotated[bool, option("--status", help="Show what runs, and what is unfinished.", panel=REPORTS)] = False,
    history: Annotated[
        bool, option("--history", help="Show the runs in the destination's log.", panel=REPORTS)
    ] = False,
    verify: Annotated[
        bool, option("--verify", help="Check files and offsets of all runs (exit 6 if wrong).", panel=REPORTS)
    ] = False,
    master: Annotated[
        str | None,
        option("--master", metavar="URL", help="Spark's master. All cores of this machine by default.", panel=SPARK),
    ] = None,
    conf: Annotated[
        list[str] | None, option("--conf", metavar="KEY=VALUE", help="A Spark property; repeatable.", panel=SPARK)
    ] = None,
    properties_file: Annotated[
        Path | None,
        option("--properties-file", metavar="FILE", help="Spark properties; --conf comes before them.", panel=SPARK),
    ] = None,
    spark_timeout: Annotated[
        float,
        option(
            "--spark-timeout",
            metavar="SECONDS",
            help="How long Spark may take to start, and a cluster may have no active executor.",
            min=1.0,
            panel=SPARK,
        ),
    ] = 120.0,
    spark_log: Annotated[
        Path | None,
        option(
            "--log", metavar="FILE", help="Append Spark's log to this file; without it Spark is quiet.", panel=SPARK
        ),
    ] = None,
    table_format: Annotated[
        TableKind | None,
        option("--format", metavar="FORMAT", help="parquet; delta or iceberg: a table a topic.", panel=FILES),
    ] = None,
    catalog: Annotated[
        str | None,
        option("--catalog", metavar="NAME[.NAMESPACE]", help="Iceberg's, by pyiceberg's configuration.", panel=FILES),
    ] = None,
    partition_by: Annotated[
        str | None,
        option(
            "--partition-by",
            metavar="PARTS",
            help="partition, date, hour or none, with commas.",
            panel=FILES,
            complete=complete_words("partition", "date", "hour", "none"),
        ),
    ] = None,
    time_zone: Annotated[
        str | None, option("--time-zone", metavar="ZONE", help="Zone of date and hour: Europe/Berlin.", panel=FILES)
    ] = None,
    key_format: Annotated[
        FormatOption | None, option("--key-format", metavar="FORMAT", help="bytes, text, json or avro.", panel=FILES)
    ] = None,
    key_schema: Annotated[
        Path | None,
        option("--key-schema", metavar="SCHEMA", help="A file, or registry: decode json or avro.", panel=FILES),
    ] = None,
    value_format: Annotated[
        FormatOption | None,
        option("--value-format", metavar="FORMAT", help="bytes, text, json or avro.", panel=FILES),
    ] = None,
    value_schema: Annotated[
        Path | None,
        option("--value-schema", metavar="SCHEMA", help="A file, or registry: decode json or avro.", panel=FILES),
    ] = None,
    compression: Annotated[
        str,
        option(
            "--compression",
            metavar="CODEC[:LEVEL]",
            help="zstd, snappy, gzip, lz4, none.",
            panel=FILES,
            complete=complete_words("zstd", "snappy", "gzip", "lz4", "none"),
        ),
    ] = "zstd",
    target_file_size: Annotated[
        str, option("--target-file-size", metavar="SIZE", help="Size of a file, about.", panel=FILES)
    ] = "512MB",
    output: OutputOption = "table",
) -> None:
    """Write a group's messages to Parquet files, each exactly once.

    From the committed offsets to the logs' ends. The next export goes on there.

    \b
    zkgroup export orders --group lake --from earliest --to /data/lake
    zkgroup export --group lake --to /data/lake --verify
    """
    if sum((status, history, verify, backfill, abandon)) > 1:
        raise UsageError("--status, --history, --verify, --backfill and --abandon exclude each other", "choose one")
    check_options(ctx, dict.fromkeys(("status", "history", "verify"), ("group", "to", "output")))
    target_bytes = _size(target_file_size, "--target-file-size")
    from zkgroup.export.model.layout import LayoutOptions, parse_compression, parse_parts, parse_zone
    from zkgroup.export.spark.spark_properties import read_spark_properties

    spark = {} if properties_file is None else read_spark_properties(properties_file)
    spark |= parse_key_values(conf or (), "--conf")
    parse_compression(compression)
    parts = None if partition_by is None else parse_parts(partition_by)
    zone = None if time_zone is None else parse_zone(time_zone)
    key, value = parse_format("key", key_format, key_schema), parse_format("value", value_format, value_schema)
    layout = LayoutOptions(parts, zone, key, value, table_format, catalog)
    if history or verify:
        show_destination(ctx, _required(to, "--to"), group, output, verify=verify)
        return
    settings = connection(ctx)
    if status:
        show_status(ctx, settings, group, to, output)
        return
    group = _required(group, "--group")
    # kazoo, librdkafka: not for --help. pyspark and pyarrow wait until there is something to export.
    from zkgroup.export.model.address import parse_address
    from zkgroup.export.planning.export_request import parse_bound
    from zkgroup.export.planning.mismatch import MismatchError
    from zkgroup.export.run.run_export import ExportRequest, run_export
    from zkgroup.export.stores.store import require
    from zkgroup.protocol.names import validate_group_id
    from zkgroup.protocol.topic_filter import TopicFilter
    from zkgroup.schemas.field_schema import FieldSchemas

    require("pyspark", "pyarrow")  # before any server is asked
    if table_format in ("delta", "iceberg"):
        require({"delta": "deltalake", "iceberg": "pyiceberg"}[table_format], extra=table_format)
    schemas = FieldSchemas(read_schema("key", key, key_schema), read_schema("value", value, value_schema))
    validate_group_id(group)
    for prop in settings.properties:
        if prop.key == "group.id" and prop.value != group:
            raise UsageError(
                f"{prop.origin}: group.id={prop.value} contradicts --group {group}", "remove one of the two"
            )
    if whitelist is not None and not whitelist.strip():
        raise UsageError("--whitelist is empty, and matches no topic", "leave it out for all that the group has")
    request = ExportRequest(
        group=group,
        root=parse_address(_required(to, "--to")),
        topics=tuple(dict.fromkeys(topics or ())),
        whitelist=None if whitelist is None else TopicFilter("white_list", whitelist),
        begin=parse_bound(begin, group, "--from"),
        until=parse_bound(until, group, "--until"),
        backfill=backfill,
        max_messages=max_messages,
        max_bytes=None if max_bytes is None else _size(max_bytes, "--max-bytes"),
        on_mismatch=on_mismatch,
        take_over=take_over,
        abandon=abandon,
        join=consumer_config(ctx, settings, group).config if join else None,
        master=master,
        conf=spark,
        spark_timeout=spark_timeout,
        log=spark_log,
        compression=compression,
        layout=layout,
        schemas=schemas,
        registry=registry_of(settings, schemas.key, schemas.value),
        target_bytes=target_bytes,
    )
    properties = dict(settings.kafka)
    unheeded = "isolation.level is ignored: --isolation says which messages of transactions count"
    warn(ctx, [Notice(f"{prop.origin}: {unheeded}") for prop in settings.properties if prop.key == "isolation.level"])
    if isolation is not None:
        properties["isolation.level"] = isolation
    line = ProgressBar(shown=rewrites(sys.stderr) and not ctx.ensure_object(GlobalOptions).quiet)
    with open_registry(settings) as registry:
        brokers = brokers_of(replace(settings, kafka=properties), registry)

        def on_warning(warning: Notice) -> None:
            line.clear()
            warn(ctx, [warning])

        # About a pandas that Spark does not know yet, and that an export does not use.
        warnings.filterwarnings("ignore", category=FutureWarning, module=r"pyspark\.")
        try:
            rows = run_export(request, registry, brokers, on_progress=line.show, on_warning=on_warning)
        except MismatchError as error:
            line.clear()
            show_answers(ctx, error.answers)
            raise
        finally:
            line.clear()
    if not abandon:
        has_tables = any(row.table for row in rows)
        print_rows(rows, (*COLUMNS, "table") if has_tables else COLUMNS, output)


def show_answers(ctx: typer.Context, answers: Sequence[tuple[str, str]]) -> None:
    """Show on stderr what each answer to ``--on-mismatch`` does, with this command line's command for it."""
    for answer, effect in answers:
        say(f"{answer}: {effect}")
        command = ("export", "--on-mismatch", answer, *_words(ctx))
        sys.stderr.write(f"    {render_command(command, ctx.ensure_object(GlobalOptions))}\n")


def _words(ctx: typer.Context) -> list[str]:
    """The options and arguments of this command line, without secrets."""
    from zkgroup.export.model.address import name_address, parse_address

    words: list[str] = []
    for declared in ctx.command.params:
        name = str(declared.name)
        if not getattr(declared, "expose_value", False) or not is_given(ctx, name) or name in ("on_mismatch", "topics"):
            continue
        value = ctx.params[name]
        if value is True:
            words.append(declared.opts[0])
        elif name == "to":
            words += [declared.opts[0], name_address(parse_address(value))]
        else:
            given = value if isinstance(value, list | tuple) else [value]
            for one in given:
                words += [declared.opts[0], _SECRET.sub(r"\1…", str(one))]
    topics = ctx.params["topics"] or []
    words += ["--"] * any(topic.startswith("-") for topic in topics)
    return [*words, *topics]


def _required(value: str | None, option: str) -> str:
    if value is None:
        raise UsageError(f"export needs {option}", Remedy("see its options", ("export", "--help")))
    return value


def _size(text: str, option: str) -> int:
    match = _SIZE.fullmatch(text.strip())
    size = int(match[1]) * _UNITS[(match[2] or "").lower()] if match else 0
    if size <= 0:
        raise UsageError(f"{option} {text[:40]!r} is no size", "write it like 512MB or 1GB")
    return size


STATUS = ("group", "run", "state", "step", "host", "pid", time_column("since"), "output")
HISTORY = (
    "run", "group", "kind", "state", time_column("planned"), time_column("decided"), "partitions", "rows", "bytes",
    "files", "gaps", "skipped", "undecodable", "late",
)  # fmt: skip
VERIFY = ("topic", "partition", "start", "end", "rows", "undecodable", "gaps", "skipped", "files", "problem")


def show_status(
    ctx: typer.Context, settings: ConnectionSettings, group: str | None, to: str | None, output: Output
) -> None:
    """What is under way or unfinished, also what only the destination ``to`` knows of."""
    from zkgroup.export.checks.run_reports import status
    from zkgroup.export.destination.run_log import Destination
    from zkgroup.export.model.address import parse_address
    from zkgroup.export.stores.store import open_store

    destination = None if to is None else Destination(open_store(parse_address(to)))
    with open_registry(settings) as registry:
        advice = Column("advice", partial(render, given=ctx.ensure_object(GlobalOptions)))
        print_rows(status(registry, group, destination), (*STATUS, advice), output)


def show_destination(ctx: typer.Context, to: str, group: str | None, output: Output, *, verify: bool) -> None:
    """The runs of a destination; or whether they are all there, also against the group's offsets if it is named."""
    from zkgroup.export.checks.run_reports import history
    from zkgroup.export.destination.run_log import Destination
    from zkgroup.export.model.address import parse_address
    from zkgroup.export.stores.store import open_store

    destination = Destination(open_store(parse_address(to)))
    if not destination.store.exists():
        raise NotFoundError(f"there is no folder {destination}", "check --to")
    groups = destination.groups()
    if verify:
        _verify(ctx, destination, group, output)
    if group is not None and group not in groups:
        known = ", ".join(groups) or "none"
        raise NotFoundError(f"{destination} has no exports of group {group}", f"groups that it has: {known}")
    if not verify:
        damaged: list[ZkgroupError] = []
        print_rows(history(destination, None if group is None else [group], damaged.append), HISTORY, output)
        warn(ctx, damaged)


def _verify(ctx: typer.Context, destination: Destination, group: str | None, output: Output) -> None:
    from zkgroup.export.stores.store import require

    require("pyarrow")
    from zkgroup.export.checks.run_reports import status
    from zkgroup.export.checks.verify import read_committed, remedy_for
    from zkgroup.export.checks.verify import verify as check
    from zkgroup.export.model.run_record import DamagedDocumentError
    from zkgroup.export.planning.export_request import status_command

    committed, broken = None, None
    notes: list[Notice] = []
    if group is not None:
        see = Remedy("see its state", status_command(group))
        with open_registry(connection(ctx)) as registry:
            notes += [
                Notice(f"{f'run {row.run}' if row.run else 'an export'} of group {group} is not finished", see)
                for row in status(registry, group, destination)
                if row.state != "running"
            ]
            with contextlib.suppress(DamagedDocumentError):  # one of the rows
                newest = destination.newest(group)
                try:
                    if newest is not None:
                        committed = {group: read_committed(registry, group, newest, notes.append)}
                except MalformedZnodeError as error:  # which says nothing about the files
                    broken = error
                    notes.append(Notice(f"the offsets of group {group} are not compared: {error.message}"))
    rows = check(destination, committed, notes.append)
    given = ctx.ensure_object(GlobalOptions)
    shown = (
        row if row.problem is None else replace(row, problem=render(Notice(row.problem, row.remedy), given))
        for row in rows
    )
    print_rows(shown, VERIFY, output)
    warn(ctx, notes)
    if problems := [row for row in rows if row.problem is not None]:
        first = problems[0]
        layout = None
        with contextlib.suppress(ZkgroupError):  # one of the rows
            layout = destination.layout()
        schemas = () if layout is None else layout.schema_options
        where = "" if first.topic is None else f"{first.topic}-{first.partition} from offset {first.start} on: "
        raise VerificationError(
            f"{counted(len(problems), 'problem')} in {destination}; {where}{first.problem}",
            remedy_for(problems, destination.store.address, schemas),
        )
    if broken is not None:
        raise broken


#: Columns. Narrower terminals have room for the figures alone, up to billions of messages.
_WIDE = 64


class ProgressBar:
    """A line on a terminal that is written over, and gone in the end; nothing at all where ``shown`` is false.

    A stage first; then messages, bytes written, and the time that is left.
    """

    def __init__(self, *, shown: bool) -> None:
        self._shown = shown
        self._bar: Bar | None = None

    def show(self, progress: Progress) -> None:
        if not self._shown:
            return
        if progress.stage == "exporting":
            self._count(progress)
            return
        self.clear()
        sys.stderr.write(progress.stage)
        sys.stderr.flush()

    def _count(self, progress: Progress) -> None:
        from rich.filesize import decimal

        if self._bar is None:
            self.clear()
            self._bar = _bar()
            self._bar.add_task("exporting", total=None, size="")
            self._bar.start()
        size = decimal(progress.bytes) if progress.bytes else ""
        # Tasks report each range, of a million messages or so, at its end: until then just a sign of life.
        total = progress.total if progress.done else None
        self._bar.update(self._bar.task_ids[0], completed=progress.done, total=total, size=size)

    def clear(self) -> None:
        """Wipe it; what is printed next begins on a line of its own."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None
        if self._shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


def _bar() -> Bar:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, TextColumn, TimeRemainingColumn
    from rich.table import Column

    console = Console(stderr=True)
    whole = Column(no_wrap=True)  # a number that is cut is another one
    figures: list[ProgressColumn] = [
        MofNCompleteColumn(table_column=whole),
        TextColumn("{task.fields[size]}"),
        TimeRemainingColumn(),
    ]
    if console.width >= _WIDE:
        figures = [TextColumn("{task.description}"), BarColumn(), *figures]
    return Progress(*figures, console=console, transient=True, refresh_per_second=4)
