"""What a backfill exports: what no record accounts for, and the offsets of files that are gone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from zkgroup.clients.kafka.client import KafkaSettings
from zkgroup.errors import NotFoundError, RefusedError, UsageError
from zkgroup.export.destination.expected_files import ExpectedFile, ExpectedFiles
from zkgroup.export.destination.run_log import Destination
from zkgroup.export.destination.table_format import CommittedTables, TableFormat
from zkgroup.export.destination.topic_owners import Owner
from zkgroup.export.model.layout import is_read
from zkgroup.export.model.plan_types import ExportPlan, LostRange, PartitionFacts
from zkgroup.export.model.run_record import RunRecord, TopicIdentity
from zkgroup.export.planning.export_plan import make_backfill
from zkgroup.export.planning.export_request import ExportRequest
from zkgroup.protocol.names import TopicPartition
from zkgroup.text import are, listed


def plan_backfill(
    destination: Destination,
    tables: TableFormat,
    request: ExportRequest,
    facts: Sequence[PartitionFacts],
    identities: Mapping[str, TopicIdentity],
    owners: Mapping[str, Sequence[Owner]],
    isolation: str,
    warn: Callable[[str], None],
) -> tuple[ExportPlan, frozenset[str]]:
    """What is to be filled, of partitions with these ``facts``; and the names of the files in records.

    Raises ``UsageError`` for bounds that name no place, ``NotFoundError`` for a group that has read nothing of it,
    ``RefusedError`` where a file that no record names may hold what is missing, and as ``make_backfill``. ``warn``
    receives what cannot be filled.
    """
    if request.start.kind == "committed":
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
        warn(f"{listed(gone)} {are(len(gone))} missing, of an earlier log of the topic: they cannot be written again")
    if sources:
        _refuse_unknown(destination, there, expected)
    if lost and (request.max_messages is not None or request.max_bytes is not None):
        warn("files that are missing are written again as a whole, and left out here: leave --max-… out")
        lost = {}
    sizes = {name: known.file.bytes for name, known in expected.files.items()}
    if changed := sorted(name for name, size in sizes.items() if there.get(name, size) != size):
        warn(
            f"{listed(changed)} {are(len(changed))} not of the size in the record, and count as there: move "
            "what is damaged out of the destination to have it written again"
        )
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


def as_exported(kafka: KafkaSettings, newest: RunRecord | None, warn: Callable[[str], None]) -> KafkaSettings:
    """Settings that take the messages of transactions as the group's newest run did, where they do not say it."""
    if newest is None or "isolation.level" in kafka.properties:
        return kafka
    if newest.isolation != "read_committed":
        warn(f"--isolation {newest.isolation}, as in the group's last export here")
    return kafka.with_isolation(newest.isolation)


def _refuse_unknown(destination: Destination, there: Iterable[str], expected: ExpectedFiles) -> None:
    """Raise where files are missing, and a reader takes others of these topics that no record names: they may be the
    missing ones under other names, and their messages would be there twice."""
    unknown = sorted(name for name in there if name not in expected.files and is_read(name))
    if unknown:
        raise RefusedError(
            f"files are missing, and {destination}/{unknown[0]} is there, which no record names: its offsets may be "
            "there twice",
            "give it back the name that it had, or move it out of the destination; export --verify names both",
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
