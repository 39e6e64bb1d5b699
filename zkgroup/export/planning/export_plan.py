"""What an export or a backfill reads and where it leaves the group: decided from facts alone, but for
``plan_backfill``, which reads the destination.

A plan fixes the ranges before anything is read, with the version of every offset node: its run can be repeated, and can
be refused. A backfill exports what no record accounts for, and the offsets of files that are gone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from zkgroup.clients.kafka.client import KafkaSettings
from zkgroup.errors import NotFoundError, Notice, RefusedError, Remedy, UsageError
from zkgroup.export.destination.coverage import ExpectedFile, ExpectedFiles
from zkgroup.export.destination.run_log import Destination, Owner
from zkgroup.export.destination.table_format import CommittedTables, TableFormat
from zkgroup.export.model.accounting import Interval, subtract, union
from zkgroup.export.model.choices import OnMismatch
from zkgroup.export.model.layout import is_read
from zkgroup.export.model.plan_types import (
    ExportPlan,
    LostRange,
    PartitionFacts,
    PartitionPlan,
)
from zkgroup.export.model.run_record import RunRecord, TopicIdentity
from zkgroup.export.planning.export_request import ExportRequest
from zkgroup.export.planning.mismatch import Mismatch, MismatchError, NoOffsetError, StartOffset, find_start
from zkgroup.protocol.names import TopicPartition
from zkgroup.text import are, counted, group_command, listed


def make_plan(
    group: str,
    destination: str,
    facts: Iterable[PartitionFacts],
    *,
    on_mismatch: OnMismatch = "fail",
    joins: bool = False,
    max_messages: int | None = None,
) -> ExportPlan:
    """Plan the export of ``group``'s partitions from their offsets to the ends of their logs.

    ``max_messages``: offsets to read at most, shared by the partitions. ``joins``: the export is a member of its group.
    Raises ``MismatchError`` for partitions that cannot simply continue, if ``on_mismatch`` does not answer that,
    ``NoOffsetError`` where nothing says where to begin, and ``RefusedError`` for a beginning that is none.
    """
    answers = _Answers(group, destination, on_mismatch)
    parts: list[PartitionPlan] = []
    for fact in sorted(facts, key=lambda fact: fact.partition):
        _refuse_begin(group, fact)
        start = answers.settle(fact, find_start(fact, joins=joins))
        if start is not None:
            end = fact.log_end if fact.until is None else max(start.offset, min(fact.until, fact.log_end))
            parts.append(PartitionPlan(fact.partition, fact.committed, fact.version, start.offset, end, start.skipped))
    answers.refuse()
    if max_messages is not None:
        parts = _limited(parts, max_messages)
    return ExportPlan(tuple(parts), tuple(answers.left_out))


class _Answers:
    """The answer to partitions that cannot simply continue, and those without a start."""

    def __init__(self, group: str, destination: str, answer: OnMismatch) -> None:
        self._group, self._destination, self._answer = group, destination, answer
        self.left_out: list[tuple[TopicPartition, str]] = []
        self.open: list[Mismatch] = []
        self.unknown: list[str] = []

    def settle(self, fact: PartitionFacts, found: StartOffset | Mismatch | None) -> StartOffset | None:
        """Where to start, after the answer; None where there is no start, or the answer leaves the partition out."""
        if found is None:
            self.unknown.append(str(fact.partition))
        if not isinstance(found, Mismatch):
            return found
        if self._answer == "skip":
            self.left_out.append((fact.partition, str(found)))
            return None
        start = found.start(self._answer)
        if start is None:
            self.open.append(found)
        return start

    def refuse(self) -> None:
        """Raise ``MismatchError`` or ``NoOffsetError`` where a partition has no start."""
        if self.open:
            raise MismatchError(self._group, self._destination, self.open)
        if self.unknown:
            count = counted(len(self.unknown), "partition")
            raise NoOffsetError(
                f"group {self._group} has no committed offset for {count} ({listed(self.unknown, most=3)})",
                "--from earliest or --from latest says where to begin",
            )


def _refuse_begin(group: str, fact: PartitionFacts) -> None:
    """Raise ``RefusedError`` where ``--from`` names another offset than the committed one, or one behind the log."""
    committed, begin = fact.committed, fact.begin
    if begin is None or fact.is_recreated:
        return
    if committed is not None and fact.is_exact and committed != begin:
        part = "{}:{}".format(*fact.partition)
        raise RefusedError(
            f"{fact.partition} has the offset {committed} of its own, and --from names {begin}",
            Remedy(
                "leave --from out to continue, --backfill exports without moving the group, a reset moves it",
                group_command("reset-offsets", group, "--topic", part, "--to-offset", str(begin)),
            ),
        )
    if committed is None and begin > fact.log_end:
        raise RefusedError(
            f"--from begins behind the end of the log ({fact.partition}: {begin}, its log ends at {fact.log_end})",
            "name an offset that the log has; --from latest begins where it ends",
        )


def make_backfill(
    group: str,
    destination: str,
    facts: Iterable[PartitionFacts],
    *,
    on_mismatch: OnMismatch = "fail",
    max_messages: int | None = None,
    lost: Mapping[TopicPartition, Sequence[LostRange]] | None = None,
) -> ExportPlan:
    """Plan the export of what the destination lacks between each partition's ``begin`` and ``until``, up to where
    exports end, or to the group's offset; the group stays.

    A partition without a ``begin`` is left alone. ``lost``: the ranges of files that are gone; one is written again as
    a whole if any of it is asked for, whatever ``max_messages`` says.
    """
    answers = _Answers(group, destination, on_mismatch)
    parts: list[PartitionPlan] = []
    rewritten: list[PartitionPlan] = []
    for fact in sorted(facts, key=lambda fact: fact.partition):
        if fact.begin is None:
            continue
        if fact.is_recreated:
            raise RefusedError(
                f"topic {fact.partition.topic} was deleted and created again, and has no export of the new log",
                "export it first; a backfill fills what lies below",
            )
        for lacking in subtract((fact.begin, _upper(fact)), fact.coverage):
            if part := _fill_range(fact, lacking, answers):
                parts.append(part)
        end = fact.log_end if fact.until is None else fact.until
        begin = fact.begin if fact.begin > fact.log_start else 0  # offsets of a lost file alone are named, too
        wanted = [one for one in (lost or {}).get(fact.partition, ()) if begin < one.end and one.start < end]
        for low, high in union((one.start, one.end) for one in wanted):
            if part := _fill_range(fact, (low, high), answers):
                again = tuple(one for one in wanted if low <= one.start and one.end <= high)
                rewritten.append(replace(part, again=again))
    if max_messages is not None:
        parts = [part for part in _limited(parts, max_messages) if part.start < part.end or part.skipped]
    answers.refuse()
    parts = sorted([*parts, *rewritten], key=lambda part: (part.partition, part.start))
    return ExportPlan(tuple(parts), tuple(answers.left_out))


def _upper(fact: PartitionFacts) -> int:
    """Where a backfill ends at the latest: what lies from there on is for the group's next export."""
    place = (fact.committed or 0) if fact.ended is None else fact.ended
    return min(place, fact.log_end if fact.until is None else fact.until, fact.log_end)


def _fill_range(fact: PartitionFacts, lacking: Interval, answers: _Answers) -> PartitionPlan | None:
    """The part that exports ``lacking``, as far as the log has it; None where it has not, or there is nothing."""
    low, high = lacking
    start = StartOffset(low)
    if low < fact.log_start:
        found = find_start(replace(fact, committed=None, begin=low, coverage=(), ended=None, is_new=False))
        settled = answers.settle(fact, found)
        if settled is None:
            return None
        start = StartOffset(
            min(settled.offset, high), tuple(gap._replace(end=min(gap.end, high)) for gap in settled.skipped)
        )
    if start.offset >= high and not start.skipped:
        return None
    return PartitionPlan(fact.partition, fact.committed, fact.version, start.offset, high, start.skipped, commits=False)


def _limited(partitions: Sequence[PartitionPlan], most: int) -> list[PartitionPlan]:
    """Share ``most`` offsets out evenly: no partition gets more than it has, and the others get the rest."""
    limited = list(partitions)
    order = sorted(range(len(limited)), key=lambda number: limited[number].end - limited[number].start)
    for done, number in enumerate(order):
        part = limited[number]
        share = min(part.end - part.start, most // (len(order) - done))
        limited[number] = replace(part, end=part.start + share)
        most -= share
    return limited


def plan_backfill(
    destination: Destination,
    tables: TableFormat,
    request: ExportRequest,
    facts: Sequence[PartitionFacts],
    identities: Mapping[str, TopicIdentity],
    owners: Mapping[str, Sequence[Owner]],
    isolation: str,
    on_warning: Callable[[Notice], None],
) -> tuple[ExportPlan, frozenset[str]]:
    """What is to be filled, of partitions with these ``facts``; and the names of the files in records.

    Raises ``UsageError`` for bounds that name no place, ``NotFoundError`` for a group that has read nothing of it,
    ``RefusedError`` where a file that no record names may hold what is missing, and as ``make_backfill``.
    ``on_warning`` receives what cannot be filled.
    """
    if request.begin.kind == "committed":
        raise UsageError("--backfill needs a place to begin", "--from earliest, @TIME, TOPIC:PARTITION=OFFSET or FILE")
    if all(fact.committed is None and fact.ended is None for fact in facts):
        nowhere = listed(sorted({fact.partition.topic for fact in facts}))
        raise NotFoundError(
            f"group {request.group} has no offset of {nowhere}, and no exports",
            "check the group's name; a first export begins with --from, without --backfill",
        )
    expected = ExpectedFiles()
    groups = {request.group, *(owner.group for some in owners.values() for owner in some)}
    for group in sorted(groups):
        for record in destination.records(group):
            expected.add(record)
    topics = sorted({fact.partition.topic for fact in facts})
    there = {file.name: file.size for file in tables.files(topics)}
    lost: dict[TopicPartition, list[LostRange]] = {}
    earlier: set[str] = set()
    sources: dict[str, ExpectedFile] = {}
    for known, partition, one in () if isinstance(tables, CommittedTables) else expected.missing(there):
        if known.file.topic not in identities:
            continue
        if known.tag != identities[known.file.topic].tag:
            earlier.add(one.file)
            continue
        lost.setdefault(partition, []).append(one)
        sources[one.file] = known
    if earlier:
        gone = sorted(earlier)
        what = f"{listed(gone)} {are(len(gone))} missing, of an earlier log of the topic"
        on_warning(Notice(f"{what}: they cannot be written again"))
    if sources:
        _refuse_unknown(destination, there, expected)
    if lost and (request.max_messages is not None or request.max_bytes is not None):
        what = f"{listed(sorted(sources), most=3)} {are(len(sources))} missing, and not written again"
        on_warning(Notice(what, Remedy("leave --max-messages and --max-bytes out: a file is written as a whole")))
        lost = {}
    sizes = {name: known.file.bytes for name, known in expected.files.items()}
    if changed := sorted(name for name, size in sizes.items() if there.get(name, size) != size):
        what = f"{listed(changed)} {are(len(changed))} not of the size in the record, and count as there"
        on_warning(Notice(what, Remedy("move what is damaged out of the destination to have it written again")))
    plan = make_backfill(
        request.group,
        destination.store.uri,
        facts,
        on_mismatch=request.on_mismatch,
        max_messages=request.max_messages,
        lost=lost,
    )
    _refuse_other_isolation(sources, (one for part in plan.partitions for one in part.again), isolation)
    return plan, frozenset(expected.files)


def as_exported(kafka: KafkaSettings, newest: RunRecord | None, on_warning: Callable[[Notice], None]) -> KafkaSettings:
    """Settings that take the messages of transactions as the group's newest run did, where they do not say it."""
    if newest is None or "isolation.level" in kafka.properties:
        return kafka
    if newest.isolation != "read_committed":
        on_warning(Notice(f"--isolation {newest.isolation}, as in the group's last export here"))
    return kafka.with_isolation(newest.isolation)


def _refuse_unknown(destination: Destination, there: Iterable[str], expected: ExpectedFiles) -> None:
    """Raise where files are missing, and a reader takes others of these topics that no record names: they may be the
    missing ones under other names, and their messages would be there twice."""
    unknown = sorted(name for name in there if name not in expected.files and is_read(name))
    if unknown:
        raise RefusedError(
            f"files are missing, and {destination}/{unknown[0]} is there, which no record names: its offsets may be "
            "there twice",
            Remedy(
                "give it back the name that it had, or move it out of the destination; see both",
                destination.verify_command,
            ),
        )


def _refuse_other_isolation(sources: Mapping[str, ExpectedFile], again: Iterable[LostRange], isolation: str) -> None:
    """Raise where what is written again would be without messages that it had, or with others."""
    for lost in again:
        before = sources[lost.file].isolation
        if before != isolation:
            raise RefusedError(
                f"{lost.file}, which is missing, was written with --isolation {before}, and would be written again "
                f"with {isolation}",
                f"--isolation {before} writes its messages",
            )
