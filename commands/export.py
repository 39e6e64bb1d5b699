"""``zkgroup export``: a group's messages as Parquet files, through Spark."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from zkgroup.errors import UsageError

from ._context import connection, open_registry, warn
from ._options import Given, OutputOption
from ._render import print_rows

if TYPE_CHECKING:
    from zkgroup.export.run import Progress

COLUMNS = ("topic", "partition", "start", "end", "rows", "bytes", "files")
_SIZE = re.compile(r"([0-9]{1,12})\s*(?:([kmgt])(?:i?b)?|b)?", re.ASCII | re.IGNORECASE)
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


def export(
    ctx: typer.Context,
    group: Annotated[str, typer.Option("--group", "-g", metavar="GROUP", help="The consumer group.")],
    to: Annotated[str, typer.Option("--to", metavar="URI", help="The folder to write to: a path or file:///PATH.")],
    topics: Annotated[
        list[str] | None,
        typer.Argument(metavar="[TOPIC]…", help="Topics; without any, all that the group has offsets for."),
    ] = None,
    whitelist: Annotated[
        str | None, typer.Option("--whitelist", metavar="RE", help="Topics whose whole name matches.")
    ] = None,
    begin: Annotated[
        Literal["earliest", "latest"] | None,
        typer.Option("--from", help="Where a partition without a committed offset begins.", show_default=False),
    ] = None,
    skip_lost: Annotated[
        bool,
        typer.Option(
            "--skip-lost", help="Go on where the log starts if messages were deleted before they were exported."
        ),
    ] = False,
    master: Annotated[
        str | None,
        typer.Option("--master", metavar="URL", help="Spark's master. All cores of this machine by default."),
    ] = None,
    conf: Annotated[
        list[str] | None, typer.Option("--conf", metavar="KEY=VALUE", help="A Spark property; repeatable.")
    ] = None,
    compression: Annotated[
        Literal["zstd", "snappy", "gzip", "lz4", "none"], typer.Option("--compression", help="Of the Parquet files.")
    ] = "zstd",
    target_file_size: Annotated[
        str, typer.Option("--target-file-size", metavar="SIZE", help="A file that reaches it is followed by another.")
    ] = "512MB",
    output: OutputOption = "table",
) -> None:
    """Write a group's messages to Parquet files, each exactly once.

    From the committed offsets to the ends of the logs as they are now. The files are
    FOLDER/topic=T/partition=P/START-END.parquet. Offsets are committed when all of them are in place, so the next
    export takes only what is new. The group must have no members. One row for each partition is printed.
    """
    spark = dict(_key_value(item) for item in conf or ())
    target_bytes = _size(target_file_size)
    settings = connection(ctx)
    # kazoo, librdkafka: not for --help. pyspark and pyarrow wait until there is something to export.
    from zkgroup.export.output import parse_destination
    from zkgroup.export.run import ExportRequest, run_export
    from zkgroup.protocol.filters import TopicFilter
    from zkgroup.servers.brokers import Brokers
    from zkgroup.servers.kafka import KafkaSettings

    request = ExportRequest(
        group=group,
        root=parse_destination(to),
        topics=tuple(dict.fromkeys(topics or ())),
        whitelist=None if whitelist is None else TopicFilter("white_list", whitelist),
        begin=begin,
        skip_lost=skip_lost,
        master=master,
        conf=spark,
        compression=compression,
        target_bytes=target_bytes,
    )
    line = _ProgressLine(shown=sys.stderr.isatty() and not ctx.ensure_object(Given).quiet)
    with open_registry(settings) as registry:
        brokers: Callable[[], KafkaSettings]
        if settings.bootstrap:
            given = KafkaSettings(",".join(map(str, settings.bootstrap)), settings.kafka)
            brokers = lambda: given  # noqa: E731
        else:
            brokers = Brokers(registry.read, settings.kafka).settings

        def say(warning: str) -> None:
            line.clear()
            warn(ctx, [warning])

        try:
            rows = run_export(request, registry, brokers, progress=line.show, warn=say)
        finally:
            line.clear()
    print_rows(rows, COLUMNS, output)


class _ProgressLine:
    """One line on stderr that is written over; nothing at all where ``shown`` is false."""

    def __init__(self, *, shown: bool) -> None:
        self._shown = shown
        self._dirty = False

    def show(self, progress: Progress) -> None:
        """Write how far it is."""
        if not self._shown:
            return
        share = (
            f" {progress.done:,} of {progress.total:,} ({progress.done / progress.total:.0%})" if progress.done else ""
        )
        sys.stderr.write(f"\r\x1b[K{progress.stage}{share}")
        sys.stderr.flush()
        self._dirty = True

    def clear(self) -> None:
        """Wipe the line."""
        if self._dirty:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
            self._dirty = False


def _key_value(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise UsageError(f"--conf {text[:80]!r} is no KEY=VALUE", "write it like spark.executor.memory=2g")
    return key.strip(), value


def _size(text: str) -> int:
    match = _SIZE.fullmatch(text.strip())
    size = int(match[1]) * _UNITS[(match[2] or "").lower()] if match else 0
    if size <= 0:
        raise UsageError(f"--target-file-size {text[:40]!r} is no size", "write it like 512MB or 1GB")
    return size
