"""What a backfill takes of a lake: what no run holds, whatever it passed over, and what files held that are gone.

One group exports a topic to a lake. What another group's runs account for is not exported beside them, also where its
file is gone: that group's own backfill writes it again, whether there is still such a group or not.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from zkgroup.errors import NotFoundError, RefusedError, UsageError
from zkgroup.export.lake.book import Book
from zkgroup.export.lake.decided import decided
from zkgroup.export.lake.holdings import UNKNOWN, Holdings, Incarnation
from zkgroup.export.lake.lake import Lake, LastRun, of_log
from zkgroup.export.lake.replacing import follow
from zkgroup.export.model.intervals import Interval, subtract, union
from zkgroup.export.model.layout import read_name
from zkgroup.export.model.rundata import RunPlan, TopicIdentity
from zkgroup.export.model.shell import PARTITIONS, export_command, filling
from zkgroup.export.model.words import ExportPlan, Lost, OffsetRange, PartitionFacts, Policies
from zkgroup.export.planning.plan import in_no_file, make_backfill
from zkgroup.export.planning.renamed import refuse_renamed
from zkgroup.export.planning.request import ExportRequest
from zkgroup.protocol.names import TopicPartition
from zkgroup.servers.kafka import KafkaSettings
from zkgroup.words import are, listed

ISOLATION: Final = "isolation.level"


def plan_backfill(
    lake: Lake,
    request: ExportRequest,
    facts: Sequence[PartitionFacts],
    identities: Mapping[str, TopicIdentity],
    tags: Mapping[str, str | None],
    book: Book,
    policies: Policies,
    isolation: str,
    tell: Callable[[str], None],
) -> ExportPlan:
    """What is to be filled, of partitions with these ``facts``. Files count as held, too, whoever wrote them.

    Raises ``UsageError`` and ``NotFoundError`` for bounds that name no place, ``RefusedError`` where another group is
    to fill it, or where it would be there twice, and as ``make_backfill``. ``tell`` hears what cannot be filled.
    """
    group = request.group
    if request.start.kind == "committed":
        raise UsageError("--backfill needs a place to begin", "--from earliest, @TIME, TOPIC:PARTITION=OFFSET or FILE")
    if request.until.kind == "committed" and facts and all(fact.committed is None for fact in facts):
        raise NotFoundError(
            f"group {group} has no offset of {listed(sorted(tags))}, and --until committed is to stop there",
            "name where each partition's exports ended: --until TOPIC:PARTITION=OFFSET,… (--history shows the runs)",
        )
    own = _held_by(lake, group)
    shared = {other: alike for other, last in book.others.items() if (alike := _shared(last, identities, tags))}
    others = {other: _held_by(lake, other) for other in shared}
    there = {file.name: file.size for topic in tags for file in lake.published(topic)}
    for known in (own, *others.values()):
        follow(known, there)
    lost = own.lost(there, tags)
    named = {name: live.file.bytes for some in (own, *others.values()) for name, live in some.files.items()}
    # In folders of times a file that is missing has all that its folder has of its range: that is written again first.
    found = [
        replace(fact, coverage=union((*own.held(Incarnation(*fact.partition, tag)),
                                      *lake.intervals(fact.partition, tag, named.keys(), exact=True),
                                      *((one.start, one.end) for one in lost.get(fact.partition, ())))))
        for fact in facts
        for tag in (tags.get(fact.partition.topic),)
    ]  # fmt: skip
    for other, theirs in others.items():
        alike = shared[other]
        _refuse_lost_of(other, lake, found, theirs.lost(there, alike))
        # Also what no file can show: offsets that are no messages.
        found = [
            replace(fact, coverage=union((*fact.coverage, *theirs.held(_incarnation(fact, alike)))))
            if fact.partition.topic in alike
            else fact
            for fact in found
        ]
    for fact in found if request.until.kind == "offsets" else ():
        if fact.until is not None and fact.until > fact.log_end:
            tell(f"{fact.partition}: --until {fact.until} lies behind the end of its log, which is {fact.log_end}")
    if unread := own.lost_of_earlier(there, tags):
        what = f"{listed(unread)} {are(len(unread))} missing, with messages of an earlier log of the topic"
        tell(f"{what}: they cannot be exported again")
    if damaged := sorted(name for name, size in there.items() if named.get(name, size) != size):
        what = f"{listed(damaged)} {are(len(damaged))} not of the size that a manifest tells"
        tell(f"{what}: what is damaged counts as there, and is exported again once it is moved away")
    if lost and (request.max_messages is not None or request.max_bytes is not None):
        tell("files that are missing are written again as a whole, and left out here: leave --max-… out")
        lost = {}
    plan = make_backfill(
        group,
        found,
        policies=policies,
        max_messages=request.max_messages,
        range_messages=request.range_messages,
        lost=lost,
        from_the_first=request.start.kind == "earliest",
    )
    again = [(part.partition, one) for part in plan.partitions for one in part.again]
    if again:
        _refuse_other_isolation(own, (one for _, one in again), isolation)
        for partition, one in again:
            if _is_open(one, own.held(Incarnation(*partition, tags[partition.topic]))):
                tell(f"{partition}: what else is missing between the messages of {one.file} the next backfill sees")
        _refuse_doubles(lake, again, own.files.keys(), group)
    wanted = [*in_no_file(plan.partitions, fills=False), *(OffsetRange(key, one.start, one.end) for key, one in again)]
    refuse_renamed(lake, wanted, identities, named, {group, *others})
    return plan


def refuse_to_finish(lake: Lake, left: RunPlan, state: str) -> None:
    """Raise where a backfill finds that another export was left unfinished: to finish that one moves the group."""
    if left.kind != "backfill":
        raise RefusedError(
            f"run {left.run} of group {left.group} was left {state}, and would have to be finished first: that moves "
            "the group, and a backfill never does",
            f"{export_command(lake.store.destination, '', left.group)} finishes it, --status tells of it; then run "
            "this again",
        )


def as_exported(lake: Lake, group: str, kafka: KafkaSettings, tell: Callable[[str], None]) -> KafkaSettings:
    """Settings that take the messages of transactions as the group's newest run did that tells so, where they do not
    say it."""
    if ISOLATION in kafka.properties:
        return kafka
    for run in reversed(lake.runs(group)):
        found = lake.manifest(group, run)
        if found is not None and found[0].isolation != UNKNOWN:
            if found[0].isolation != "read_committed":
                tell(f"--isolation {found[0].isolation}, as in the group's last export here")
            return replace(kafka, properties={**kafka.properties, ISOLATION: found[0].isolation})
    return kafka


def _refuse_other_isolation(held: Holdings, again: Iterable[Lost], isolation: str) -> None:
    """Raise where what is written again would be without messages that it had, or with others."""
    for lost in again:
        live = held.files.get(lost.file)
        if live is not None and live.isolation not in (UNKNOWN, isolation):
            raise RefusedError(
                f"{lost.file}, which is missing, was written with --isolation {live.isolation}, and would be written "
                f"again with {isolation}",
                f"--isolation {live.isolation} writes what it held; others are to be filled on their own then",
            )


def _is_open(lost: Lost, held: Sequence[Interval]) -> bool:
    """Whether no run accounts for more of a lost range than for its edges, or than its messages."""
    lacking = subtract((lost.start, lost.end), held)
    edges = [(lost.start, lost.start + 1), (lost.end - 1, lost.end)]
    return bool(lacking) and sum(high - low for low, high in union([*lacking, *edges])) > lost.rows


def _held_by(lake: Lake, group: str) -> Holdings:
    found = Holdings(lake.exact)
    for manifest, withdrawn in decided(lake, group):
        found.add(manifest, withdrawn)
    return found


def _incarnation(fact: PartitionFacts, tags: Mapping[str, str | None]) -> Incarnation:
    return Incarnation(*fact.partition, tags[fact.partition.topic])


def _shared(
    last: LastRun, identities: Mapping[str, TopicIdentity], tags: Mapping[str, str | None]
) -> dict[str, str | None]:
    """The topics whose present logs a group has exported as well, with their marks."""
    return {topic: tag for topic, tag in tags.items() if of_log([last], topic, identities[topic])}


def _refuse_lost_of(
    other: str, lake: Lake, facts: Sequence[PartitionFacts], lost: Mapping[TopicPartition, Sequence[Lost]]
) -> None:
    met: list[tuple[TopicPartition, Lost]] = []
    for fact in facts:
        end = fact.log_end if fact.until is None else min(fact.until, fact.log_end)
        lacking = [] if fact.begin is None else list(subtract((fact.begin, end), fact.coverage))
        for one in lost.get(fact.partition, ()):
            if any(low < one.end and one.start < high for low, high in lacking):
                met.append((fact.partition, one))
    if not met:
        return
    ranges: dict[TopicPartition, Interval] = {}
    for partition, one in met:
        low, high = ranges.get(partition, (one.start, one.end))
        ranges[partition] = min(low, one.start), max(high, one.end)
    named = dict(sorted(ranges.items())[:PARTITIONS])
    command = export_command(lake.store.destination, filling(named), other, {key.topic for key in named})
    partition, first = met[0]
    raise RefusedError(
        f"{lake.store.uri}/{first.file}, with offsets {first.start} to {first.end - 1} of {partition}, is missing, and "
        f"group {other} has exported it: no other group's run can take its place",
        f"{command} writes it again, also if there is no such group any more",
    )


def _refuse_doubles(
    lake: Lake, wanted: Iterable[tuple[TopicPartition, Lost]], named: Collection[str], group: str
) -> None:
    """Raise ``RefusedError`` where messages that a lost file held are in another file of its folder by now; unless runs
    have ``named`` that, it may be in the place of the lost one."""
    away = "move that file away, with the folder of the run that wrote it (its footer names it), then run this again"
    adopt = export_command(lake.store.destination, "--adopt", group)
    folders: dict[str, list[tuple[TopicPartition, Lost]]] = {}
    for partition, lost in wanted:
        folders.setdefault(lost.folder, []).append((partition, lost))
    for folder, ranges in folders.items():
        for file in lake.published_in(folder):
            for one in lake.slices(file):
                for partition, lost in ranges:
                    if (one.partition, file.told.tag) != (partition.partition, _tag_of(lost)):
                        continue
                    if one.start < lost.end and lost.start < one.end:
                        raise RefusedError(
                            f"{lake.store.uri}/{file.name} holds offsets {one.start} to {one.end - 1} of {partition}, "
                            f"which {lost.file} held before it was lost: written again they would be there twice",
                            away
                            if file.name in named
                            else f"{adopt} enters it in its place, if it is whole; or {away}",
                        )


def _tag_of(lost: Lost) -> str | None:
    """The mark of the incarnation in the file's name."""
    told = read_name(lost.file)
    return None if told is None else told.tag
