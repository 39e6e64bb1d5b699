"""The values of ``--from`` and ``--until``: a word, a time, or offsets."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from zkgroup.clients.kafka.start_position import parse_start
from zkgroup.errors import NotFoundError, RefusedError, UsageError
from zkgroup.export.model.plan_types import ExportPlan, PartitionFacts
from zkgroup.groups.group_model import Cluster
from zkgroup.groups.offset_files.file_entries import Wanted
from zkgroup.groups.offset_files.offset_file import STDIO, read_offsets
from zkgroup.protocol.names import TopicPartition, validate_topic
from zkgroup.text import are, counted, listed

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
        return Bound("time", _millis(text, option), text=text)
    pieces = text.split(",")
    if all(_OFFSET.fullmatch(piece) for piece in pieces):
        offsets: dict[TopicPartition, Wanted] = {}
        for piece in pieces:
            match = _OFFSET.fullmatch(piece)
            assert match is not None
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


def _millis(text: str, option: str) -> int:
    try:
        return parse_start(text).value
    except UsageError as error:
        raise UsageError(f"{option} {text[:80]!r}: {error.message}", error.remedy) from None


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
        topic = unknown[0].topic
        raise NotFoundError(
            f"{option} names {names}, which {are(len(unknown))} not among the partitions that are to be exported",
            f"topic {topic} has {counted(len(topics[topic]), 'partition')}, from 0 on"
            if topic in topics
            else f"leave it out, or check the name: what is exported is {listed(sorted(topics), most=3)}",
        )


def notes_on(
    begin: Bound, until: Bound, facts: Sequence[PartitionFacts], plan: ExportPlan, *, fills: bool, by_segments: bool
) -> list[str]:
    """What times come to that no message has, or that leave nothing to export, and which partitions an end does not
    name, or lies behind; ``fills``: it is a backfill, for which every partition begins where ``begin`` says;
    ``by_segments``: brokers know times of segments only. Pure."""
    return [*_of_times(begin, until, facts, plan, fills, by_segments), *_of_offsets(until, facts, fills)]


def _of_offsets(until: Bound, facts: Sequence[PartitionFacts], fills: bool) -> Iterator[str]:
    if until.kind != "offsets":
        return
    begun = (fact.partition for fact in facts if not fills or fact.begin is not None)
    if unnamed := [str(partition) for partition in begun if partition not in until.offsets]:
        yield f"--until names no place in {listed(unnamed, most=3)}: of what is not named nothing is exported"
    for fact in () if fills else facts:  # a backfill warns of them as it is planned
        if fact.until is not None and fact.until > fact.log_end:
            yield f"{fact.partition}: --until {fact.until} lies behind the end of its log, which is {fact.log_end}"


def _of_times(
    begin: Bound, until: Bound, facts: Sequence[PartitionFacts], plan: ExportPlan, fills: bool, by_segments: bool
) -> Iterator[str]:
    coarse = " (before 0.10 brokers know the times of whole segments only)" if by_segments else ""
    there = [fact for fact in facts if fact.log_start < fact.log_end]
    begun = [fact for fact in there if fills or fact.committed is None]
    if begin.kind == "time" and begun and all((fact.begin or 0) >= fact.log_end for fact in begun):
        ends = "partitions without an offset begin at their ends, and what is there is not exported"
        what = "there is nothing to export" if fills else ends
        yield f"no message is as late as --from {begin}: {what}{coarse}"
    elif until.kind == "time" and there and all((fact.until or 0) >= fact.log_end for fact in there):
        yield f"no message is as late as --until {until}: the export ends where the logs end now{coarse}"
    elif there and not plan.reads and not plan.left_out and (until.kind == "time" or _is_passed(until, there, fills)):
        coarse = coarse if until.kind == "time" else ""
        what = f"nothing that is left to export is known to lie before --until {until}"
        yield f"{what}: there is nothing to export{coarse}"


def _is_passed(until: Bound, facts: Sequence[PartitionFacts], fills: bool) -> bool:
    """Whether the group is behind listed offsets where the log goes on."""
    return (
        until.named
        and not fills
        and any(
            fact.until is not None and fact.committed is not None and fact.until < min(fact.committed, fact.log_end)
            for fact in facts
        )
    )
