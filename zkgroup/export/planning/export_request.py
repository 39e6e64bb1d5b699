"""What an export is asked for: its options, the values of ``--from`` and ``--until`` (a word, a time, or offsets), and
the commands that ask for one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from zkgroup.clients.kafka.start_position import parse_start
from zkgroup.clients.schema_registry import RegistrySettings
from zkgroup.errors import NotFoundError, RefusedError, UsageError
from zkgroup.export.model.accounting import Interval
from zkgroup.export.model.address import Address, name_address
from zkgroup.export.model.choices import OnMismatch
from zkgroup.export.model.layout import LayoutOptions, refuse_place
from zkgroup.export.model.run_record import COMPRESSION, RANGE_MESSAGES, TARGET_BYTES
from zkgroup.groups.group_model import Cluster
from zkgroup.groups.offset_files.file_formats import STDIO, read_offsets
from zkgroup.groups.offset_files.format_readers import Wanted
from zkgroup.protocol.names import TopicPartition, validate_topic
from zkgroup.protocol.topic_filter import TopicFilter
from zkgroup.schemas.field_schema import FieldSchemas
from zkgroup.text import Command, are, listed

if TYPE_CHECKING:
    from zkgroup.config import ConsumerConfig


_OFFSET = re.compile(r"([^:=,\s]+):([0-9]{1,9})=([0-9]{1,19})", re.ASCII)


@dataclass(frozen=True, slots=True)
class Bound:
    """A place in every partition, or in those that ``offsets`` names. ``millis``: milliseconds since 1970,
    ``text``: as the operator wrote them. ``named``: one by one, so that each is to be there. ``clusters``: of which the
    file is that they were read from, where it says so."""

    kind: Literal["committed", "earliest", "latest", "time", "offsets"]
    millis: int = 0
    offsets: Mapping[TopicPartition, Wanted] = field(default_factory=dict)
    text: str = field(default="", compare=False)
    named: bool = field(default=False, compare=False)
    clusters: tuple[Cluster, ...] = field(default=(), compare=False)

    def __str__(self) -> str:
        return self.text or (f"@{self.millis}" if self.kind == "time" else self.kind)


COMMITTED, EARLIEST, LATEST = Bound("committed"), Bound("earliest"), Bound("latest")
BEGINNINGS = {"committed": COMMITTED, "earliest": EARLIEST, "latest": LATEST, "end": LATEST}
_ENDS = {"committed": COMMITTED, "end": LATEST}


def parse_bound(text: str, group: str, option: str) -> Bound:
    """Read ``committed``, ``earliest``, ``latest`` (or ``end``; of ``--until`` these alone: ``committed``, ``end``),
    ``@TIME`` (as in ``time_arguments``), ``TOPIC:PARTITION=OFFSET,…``, or the name of an offset file, of
    which the group's offsets are taken, or those of its only group. Raises ``UsageError``."""
    places = _ENDS if option == "--until" else BEGINNINGS
    if (word := text.lower()) in places:
        return places[word]
    if word in BEGINNINGS:
        raise UsageError(f"{option} {text!r} is no place to stop at", "write committed, end, @TIME or offsets")
    if text.startswith("@"):
        try:
            return Bound("time", parse_start(text).value, text=text)
        except UsageError as error:
            raise UsageError(f"{option} {text[:80]!r}: {error.message}", error.remedy) from None
    matches = [_OFFSET.fullmatch(piece) for piece in text.split(",")]
    if all(matches):
        offsets: dict[TopicPartition, Wanted] = {}
        for match in filter(None, matches):
            partition = TopicPartition(validate_topic(match[1]), int(match[2]))
            if offsets.setdefault(partition, int(match[3])) != int(match[3]):
                raise UsageError(f"{option} names two offsets for {partition}", "keep one of the two")
        return Bound("offsets", offsets=offsets, text=text, named=True)
    if text != STDIO and not (text and Path(text).exists()):
        raise UsageError(
            f"{option} {text[:80]!r} is no place and no file",
            f"write {'committed, end' if option == '--until' else 'committed, earliest, latest'}, @TIME such as "
            "@2024-05-01T12:00, TOPIC:PARTITION=OFFSET,…, or the name of an offset file",
        )
    file = read_offsets(text)
    found = next(iter(file.groups.values())) if len(file.groups) == 1 else file.groups.get(group)
    if found is None:
        named = listed(sorted(map(str, file.groups)), most=3)
        raise UsageError(
            f"{option} {text[:80]!r} has offsets of groups {named}, and not of {group}", "give a file of one group"
        )
    return Bound("offsets", offsets=found, text=text, clusters=file.clusters)


def refuse_other_origin(here: Cluster, *bounds: Bound) -> None:
    """Raise ``RefusedError`` where a file of offsets says that it is of another cluster."""
    for bound in bounds:
        for other in bound.clusters:
            if other.differs(here):
                raise RefusedError(
                    f"{bound} is of another cluster{other.description}; this is {here.connect}{here.description}",
                    "its offsets mean other messages there: name the offsets, as TOPIC:PARTITION=OFFSET,…",
                )


def refuse_backwards(begin: Bound, until: Bound) -> None:
    """Raise ``UsageError`` where one time is to be the beginning, and an earlier one the end."""
    if begin.kind == until.kind == "time" and begin.millis > until.millis:
        raise UsageError(f"--from {begin} is later than --until {until}", "--from is the earlier of the two")
    for partition, start in begin.offsets.items() if begin.named and until.named else ():
        end = until.offsets.get(partition)
        if isinstance(start, int) and isinstance(end, int) and start > end:
            raise UsageError(f"{partition}: --from {start} is behind --until {end}", "--from is the lower of the two")


def refuse_unknown(begin: Bound, until: Bound, topics: Mapping[str, Sequence[int]]) -> None:
    """Raise ``NotFoundError`` for a partition that was listed, and is not among those that are exported."""
    for option, bound in (("--from", begin), ("--until", until)):
        unknown = sorted(p for p in bound.offsets if p.partition not in topics.get(p.topic, ()))
        if not bound.named or not unknown:
            continue
        names = listed([str(partition) for partition in unknown], most=3)
        raise NotFoundError(
            f"{option} names {names}, which {are(len(unknown))} not among the partitions that are to be exported",
            f"leave it out, or check its name and number: what is exported is {listed(sorted(topics), most=3)}",
        )


@dataclass(frozen=True, slots=True)
class ExportRequest:
    """What to export, and how. Without ``topics`` and ``whitelist``: all topics that the group has offsets for.

    ``begin``: where partitions without a committed offset begin, or, in a ``backfill``, all. ``until``: where to stop.
    ``max_messages`` and ``max_bytes`` (of keys and values): what a run takes at most; shared by the partitions.
    ``on_mismatch``: see ``mismatch``; with ``lake`` or ``group`` what retention deletes while it is read, and what
    nothing explains, is a recorded gap. ``take_over``: the group that owned the topics so far. ``abandon``: give up a
    decided run whose destination is lost, and do nothing else. ``join``: be a member of the group with these settings,
    and export what it is given of the topics. ``master`` None: that of ``conf``, else all cores of this machine.
    ``conf``: Spark's properties; ``spark_timeout``, ``log``: see ``SparkJobs``. ``range_messages``: about how many
    one task reads. ``schemas``: of keys and values, where ``layout`` names a format with one; ``registry``: of those
    without a text.
    """

    group: str
    root: Address
    topics: tuple[str, ...] = ()
    whitelist: TopicFilter | None = None
    begin: Bound = COMMITTED
    until: Bound = LATEST
    backfill: bool = False
    max_messages: int | None = None
    max_bytes: int | None = None
    on_mismatch: OnMismatch = "fail"
    take_over: str | None = None
    abandon: bool = False
    join: ConsumerConfig | None = None
    master: str | None = None
    conf: Mapping[str, str] = field(default_factory=dict)
    spark_timeout: float = 120.0
    log: Path | None = None
    compression: str = COMPRESSION
    layout: LayoutOptions = field(default_factory=LayoutOptions)
    schemas: FieldSchemas = field(default_factory=FieldSchemas)
    registry: RegistrySettings | None = None
    target_bytes: int = TARGET_BYTES
    range_messages: int = RANGE_MESSAGES

    def __post_init__(self) -> None:
        refuse_place(self.layout.format, self.root)  # before a store is asked, which may take long to answer

    @property
    def records_gaps(self) -> bool:
        """Whether messages that are missing from the log are recorded as gaps."""
        return self.on_mismatch in ("lake", "group")


#: So many partitions a command names one by one.
PARTITIONS: Final = 50


def export_command(
    destination: Address, *options: str, group: str | None = None, topics: Iterable[str] = ()
) -> Command:
    """``zkgroup export`` of these topics, or of all where there are none, or very many."""
    words = ["export", *(("--group", group) if group is not None else ()), "--to", name_address(destination), *options]
    named = sorted(topics)
    if 0 < len(named) <= PARTITIONS:
        words += ["--"] * any(name.startswith("-") for name in named) + named
    return tuple(words)


def status_command(group: str) -> Command:
    """``zkgroup export`` that shows the runs of a group."""
    return "export", "--group", group, "--status"


def backfill_options(ranges: Mapping[TopicPartition, Interval]) -> list[str]:
    """The options of a backfill of these offsets."""
    begin, end = (_places({key: edges[side] for key, edges in ranges.items()}) for side in (0, 1))
    return ["--backfill", "--from", begin, "--until", end]


def _places(offsets: Mapping[TopicPartition, int]) -> str:
    return ",".join(f"{topic}:{number}={offset}" for (topic, number), offset in sorted(offsets.items()))
