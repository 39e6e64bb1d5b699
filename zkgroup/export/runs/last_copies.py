"""What is in a run's files alone: looked for before they are taken back, as nobody could export it again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from typing import NamedTuple

from zkgroup.errors import RefusedError, UnreachableError, ZkgroupError
from zkgroup.export.model.rundata import Manifest, ManifestFile, RunPlan, TopicIdentity
from zkgroup.export.model.words import Slice
from zkgroup.export.planning.group import ExportGroup
from zkgroup.export.runs.under_way import UnderWay
from zkgroup.protocol.names import TopicPartition
from zkgroup.servers.kafka import KafkaSettings
from zkgroup.servers.logs import LogRange, log_offsets
from zkgroup.words import counted, listed

_REMEDY = "--settle keep leaves the files where they are; --settle withdraw --skip-lost gives these messages up"


class OnlyHere(NamedTuple):
    """``rows`` messages of a file, at most, that the partition's log has not: ``why``."""

    file: ManifestFile
    partition: TopicPartition
    rows: int
    why: str


def refuse_filed_before(run: UnderWay) -> None:
    """Raise ``RefusedError`` where the group's later runs stand behind this one: it was committed once, and whatever
    they account for they account for with it."""
    lake, plan = run.lake, run.plan
    later = lake.last(plan.group, but=plan.run).run
    if later in (runs := lake.runs(plan.group)) and runs.index(later) > runs.index(plan.run):
        raise RefusedError(
            f"{run} was committed before, as run {later} that came after it is in {lake.store.uri}: its files are part "
            "of that, and ZooKeeper's data is of an earlier time",
            "--settle keep ends the run; then --on-disagreement lake goes on where the exports end",
        )


def refuse_last_copies(run: UnderWay, manifest: Manifest, taken_back: Set[TopicPartition], *, skip_lost: bool) -> None:
    """Raise ``RefusedError`` where files of what is to be ``taken_back`` hold messages that no log has any more,
    ``UnreachableError`` where nobody tells. With ``skip_lost`` this is only said."""
    plan, warn = run.plan, run.surroundings.warn
    now = run.claim.persist(lambda: ExportGroup(run.claim.registry, plan.group, warn).identities(plan.topics))
    try:
        logs = _logs(plan, taken_back, now, run.surroundings.kafka, run.claim.registry.timeout)
    except ZkgroupError as error:
        if not skip_lost:
            raise UnreachableError(
                f"{run} is not taken back, as nobody tells whether the logs still have what its files hold: "
                f"{error.message}",
                "try again when the brokers answer; --settle keep leaves the files where they are; "
                "--settle withdraw --skip-lost gives up what may be lost",
            ) from None
        warn(f"{run} is taken back, and what that loses nobody tells: {error.message}")
        return
    found = [one for one in only_here(manifest.files, logs) if _is_there(run, one.file)]
    if not found:
        return
    text = listed(words_on(found), "; ", most=3)
    if not skip_lost:
        raise RefusedError(f"{run} is not taken back: its files hold what no log has any more ({text})", _REMEDY)
    warn(f"with {run} messages are given up that no log has any more: {text}")


def only_here(files: Iterable[ManifestFile], logs: Mapping[TopicPartition, LogRange | str]) -> Iterator[OnlyHere]:
    """What files hold of these partitions that their logs do not have: a range, or why there is none. Pure."""
    for file in files:
        for one in file.slices:
            partition = TopicPartition(file.topic, one.partition)
            found = logs.get(partition)
            if isinstance(found, str):
                yield OnlyHere(file, partition, one.rows, found)
            elif found is not None and (gone := _gone(one, found)):
                below = one.start < found.start
                why = f"starts at {found.start}" if below else f"ends at {found.end}"
                yield OnlyHere(file, partition, min(one.rows, gone), f"its log {why}")


def words_on(found: Iterable[OnlyHere]) -> list[str]:
    """Of each partition what is gone, and why."""
    sums: dict[tuple[TopicPartition, str], int] = {}
    for one in found:
        sums[one.partition, one.why] = sums.get((one.partition, one.why), 0) + one.rows
    return [f"{counted(rows, 'message')} of {partition}: {why}" for (partition, why), rows in sorted(sums.items())]


def _gone(one: Slice, log: LogRange) -> int:
    return (one.end - one.start) - max(0, min(one.end, log.end) - max(one.start, log.start))


def _logs(
    plan: RunPlan,
    partitions: Set[TopicPartition],
    now: Mapping[str, TopicIdentity],
    kafka: Callable[[], KafkaSettings],
    timeout: float,
) -> dict[TopicPartition, LogRange | str]:
    """The logs of these partitions, as far as they are the planned ones."""
    found: dict[TopicPartition, LogRange | str] = {}
    same: list[TopicPartition] = []
    for partition in sorted(partitions):
        topic = partition.topic
        if topic not in now:
            found[partition] = "the topic was deleted"
        elif not now[topic].same(plan.topics[topic]):
            found[partition] = "the topic was deleted and made again"
        else:
            same.append(partition)
    told = log_offsets(kafka(), same, timeout) if same else {}
    for partition, log in told.items():
        if isinstance(log, ZkgroupError):
            raise log
        found[partition] = log
    return found


def _is_there(run: UnderWay, file: ManifestFile) -> bool:
    """Published, or still in the run's own folder."""
    return any(run.lake.store.size(name) is not None for name in (file.name, f"{run.folder}/{file.work}"))
