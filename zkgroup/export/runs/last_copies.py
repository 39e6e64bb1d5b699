"""What is in a run's files alone: looked for before they are taken back, as nobody could export it again."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from typing import Final, Literal, NamedTuple

from zkgroup.errors import RefusedError, UnreachableError, ZkgroupError
from zkgroup.export.lake.book import Book
from zkgroup.export.lake.lake import Lake
from zkgroup.export.lake.leftovers import filed, works
from zkgroup.export.lake.overlap import first_time, refuse_beside
from zkgroup.export.model.documents import decode_log
from zkgroup.export.model.intervals import Interval, common, difference, subtract
from zkgroup.export.model.rundata import Manifest, ManifestFile, RunPlan, TopicIdentity, plan_of
from zkgroup.export.model.words import PartitionPlan
from zkgroup.export.planning.group import ExportGroup
from zkgroup.export.runs.claim import ExportClaim
from zkgroup.export.runs.surroundings import Surroundings
from zkgroup.export.runs.under_way import UnderWay
from zkgroup.protocol.names import TopicPartition
from zkgroup.servers.logs import LogRange, log_offsets
from zkgroup.words import counted, listed

#: How a run may end that its files do not outlive. ``drop``: it was not decided, as far as ZooKeeper knows.
End = Literal["withdraw", "forget", "drop"]
#: What becomes of it then, and what gives its messages up.
_WORDS: Final[Mapping[End, tuple[str, str]]] = {
    "withdraw": ("taken back", "--settle withdraw --skip-lost"),
    "forget": ("forgotten", "--settle forget --skip-lost"),
    "drop": ("dropped", "--skip-lost"),
}
_KEEP: Final = "--settle keep leaves the files where they are"
#: Of a run that was not decided.
KEEPS: Final = "--settle keep publishes what it has written"
#: Of a run that has ended before, and lacks files.
ENDED_BEFORE: Final = (
    "--settle forget ends it; then --on-disagreement lake goes on where the exports end, and --verify names the "
    "backfill of what is gone"
)
_ADOPT: Final = "--settle keep publishes those of its files that are left, then --settle forget and --adopt enter them"


#: The offsets of rows.
Held = Mapping[TopicPartition, Sequence[Interval]]
NONE_HAD: Final[Held] = {}


class OnlyHere(NamedTuple):
    """``rows`` messages of a file, at most, that the partition's log has not: ``why``; they are among these
    ``offsets``."""

    file: ManifestFile
    partition: TopicPartition
    rows: int
    why: str
    offsets: tuple[Interval, ...]


def later_run(run: UnderWay) -> str | None:
    """See ``Lake.later``."""
    return run.lake.later(run.plan.group, run.plan.run)


def refuse_filed_before(run: UnderWay, manifest: Manifest) -> None:
    """Raise ``RefusedError`` where the group's later runs stand behind this one: it was ended once, and whatever they
    account for they account for with it."""
    if (later := later_run(run)) is not None:
        keeps = all(is_there(run, file) for file in manifest.files)
        raise RefusedError(
            f"{run} has ended before, as run {later} that came after it is in {run.lake.store.uri}: its files are part "
            "of that, and ZooKeeper's data is of an earlier time",
            "--settle keep ends it once more; then --on-disagreement lake goes on where the exports end"
            if keeps
            else ENDED_BEFORE,
        )


def refuse_last_copies(
    run: UnderWay,
    manifest: Manifest,
    ended: Set[TopicPartition],
    how: End,
    *,
    skip_lost: bool,
    had: Held = NONE_HAD,
) -> bool:
    """Raise ``RefusedError`` where files of partitions that are to be ``ended`` hold messages that no log has any more,
    and no other file of the lake, ``UnreachableError`` where nobody tells. With ``skip_lost`` this is only said: then
    True, if there are such messages. Only a run that is taken back loses what is published; of others the files go that
    are not. What is ``had`` is not missed, whoever has it."""
    warn = run.surroundings.warn
    what, gives_up = _WORDS[how]
    files = [file for file in manifest.files if how == "withdraw" or not is_published(run.lake, file)]
    if not files:
        return False
    try:
        logs = _logs(run, ended)
    except ZkgroupError as error:
        if not any(is_there(run, file) for file in files):
            return False
        if not skip_lost:
            raise UnreachableError(
                f"{run} is not {what}, as nobody tells whether the logs still have what its files hold: "
                f"{error.message}",
                f"try again when the brokers answer; {way_back(run, manifest, how)}; "
                f"{gives_up} gives up what may be lost",
            ) from None
        warn(f"{run} is {what}, and what that loses nobody tells: {error.message}")
        return False
    found = [one for one in only_here(files, logs) if is_there(run, one.file)]
    found = list(_nowhere_else(run, manifest, found, had)) if found else []
    if not found:
        return False
    text = listed(words_on(found), "; ", most=3)
    if not skip_lost:
        lost = "is not decided, and holds" if how == "drop" else f"is not {what}: its files hold"
        raise RefusedError(
            f"{run} {lost} what no log has any more ({text})",
            f"{way_back(run, manifest, how)}; {gives_up} gives these messages up",
        )
    warn(f"with {run} messages are given up that no log has any more: {text}")
    return True


def refuse_damaged(run: UnderWay, damage: str, gives_up: str, *, must_tell: bool = False, skip_lost: bool) -> bool:
    """Raise where a run has files that are not published, what tells of them is damaged, and the logs do not have all
    that was planned any more, or nobody tells. With ``skip_lost`` this is only said: then True. ``must_tell``: there is
    more than the plan says."""
    plan = run.plan
    everywhere = {part.partition for part in plan.partitions}
    try:
        logs = _logs(run, everywhere)
    except ZkgroupError as error:
        gone = error.message
    else:
        missing = [(part.partition, _gone(logs[part.partition], (part.start, part.end))) for part in plan.partitions]
        lost = [(partition, *found) for partition, found in missing if found is not None]
        gone = listed([f"{partition} {words_on_offsets(which)}: {why}" for partition, why, which in lost], "; ", most=3)
    if not gone and not must_tell:
        return False
    text = f"{run} has files that are not published, and {damage}"
    if gone:
        text += f"; the logs may not have all of it ({gone})"
    if not skip_lost:
        raise RefusedError(text, f"restore it from a copy, and the same export goes on; {gives_up}")
    run.surroundings.warn(f"{text}: what only these files hold is given up")
    return True


def words_on_offsets(intervals: Iterable[Interval]) -> str:
    """The first and the last of each, as they are told. Pure."""
    return listed([f"{low} to {high - 1}" for low, high in intervals], most=3)


def refuse_untold(
    claim: ExportClaim, lake: Lake, run: str, surroundings: Surroundings, damage: str, gives_up: str, *, skip_lost: bool
) -> bool:
    """As ``refuse_damaged``, of a run of which neither a plan nor a manifest can be read: by what the footers of its
    files tell. Where a manifest was filed all of them have some."""
    told, silent = told_by_footers(lake, claim.group, run)
    if not told.partitions and not silent:
        return False
    whole = bool(filed(lake, claim.group, run))
    if silent and whole:
        damage += f", nor what {listed(silent, most=3)} {'holds' if len(silent) == 1 else 'hold'}"
    left = UnderWay.killed(claim, lake, told, "", surroundings)
    return refuse_damaged(left, damage, gives_up, must_tell=bool(silent) and whole, skip_lost=skip_lost)


def told_by_footers(lake: Lake, group: str, run: str) -> tuple[RunPlan, list[str]]:
    """A plan of what a run's unpublished files hold; and those of which nobody can tell."""
    from zkgroup.export.lake.footer import UnreadableFileError, read_footer  # pyarrow: most exports do without

    topics: dict[str, TopicIdentity] = {}
    parts: list[PartitionPlan] = []
    silent: list[str] = []
    cluster = ""
    for name in works(lake, group, run):
        try:
            footer = read_footer(lake.store, name)
        except UnreadableFileError:
            silent.append(name)
            continue
        topic, log = footer.told.get("topic", ""), decode_log(footer.told.get("log", ""))
        if log is None:
            silent.append(name)
            continue
        cluster, topics[topic] = log
        for one in footer.slices:
            parts.append(PartitionPlan(TopicPartition(topic, one.partition), None, None, one.start, one.end))
    parts.sort(key=lambda one: (one.partition, one.start))
    return plan_of(run, group, cluster, topics, parts), silent


def is_elsewhere(run: UnderWay, manifest: Manifest) -> bool:
    """Whether the lake's other files have all that is in a run's unpublished ones."""
    files = [file for file in manifest.files if is_there(run, file) and not is_published(run.lake, file)]
    everywhere = {part.plan.partition: "" for part in manifest.parts}
    return not any(_nowhere_else(run, manifest, only_here(files, everywhere), {}))


def _nowhere_else(run: UnderWay, manifest: Manifest, found: Iterable[OnlyHere], had: Held) -> Iterator[OnlyHere]:
    """What of this is in no other file either, counted by the rows themselves."""
    gone = dict[TopicPartition, list[OnlyHere]]()
    for one in found:
        gone.setdefault(one.partition, []).append(one)
    own = {file.name for file in manifest.files if is_published(run.lake, file)}
    for partition, ones in gone.items():
        wanted = [piece for one in ones for piece in one.offsets]
        elsewhere = [*had.get(partition, ()), *_held_by_others(run, partition, wanted, own)]
        for one in ones:
            held = _rows(run, one.file)
            rows = one.offsets if held is None else common(held.get(partition.partition, ()), one.offsets)
            if left := difference(rows, elsewhere):
                yield one._replace(rows=min(one.rows, sum(high - low for low, high in left)))


def offsets_held(run: UnderWay, manifest: Manifest) -> Held:
    """The offsets of the rows of a run's files, as far as these can be read."""
    found: dict[TopicPartition, list[Interval]] = {}
    for file in manifest.files:
        for partition, pieces in (_rows(run, file) or {}).items():
            found.setdefault(TopicPartition(file.topic, partition), []).extend(pieces)
    return found


def _rows(run: UnderWay, file: ManifestFile) -> Mapping[int, Sequence[Interval]] | None:
    work = f"{run.folder}/{file.work}"
    return run.lake.exact(work if run.lake.store.size(work) == file.bytes else file.name, file.name)


def _held_by_others(
    run: UnderWay, partition: TopicPartition, wanted: Sequence[Interval], own: Set[str]
) -> Iterator[Interval]:
    """The offsets of a partition that published files hold, but for the run's ``own``; of those files alone that may
    hold any of ``wanted``, as each is read."""
    from zkgroup.export.lake.footer import UnreadableFileError  # pyarrow: most exports do without

    low, high, number = min(wanted)[0], max(end for _, end in wanted), partition.partition
    for file in run.lake.published(*partition):
        if file.told.tag != run.plan.topics[partition.topic].tag or file.name in own:
            continue
        with contextlib.suppress(UnreadableFileError):
            pieces = run.lake.slices(file)
            if any(one.partition == number and one.start < high and low < one.end for one in pieces):
                yield from (run.lake.exact(file.name) or {}).get(number, ())


def away(lake: Lake, group: str, run: str) -> str:
    """How a run that cannot be kept is not lost."""
    return f"move {lake.store.uri}/{lake.folder(group, run)} elsewhere to have what it holds"


def kept_elsewhere(lake: Lake, group: str, run: str) -> str:
    """The same, with where it can be kept then."""
    return f"{away(lake, group, run)}: below _zkgroup/{group} of another destination --settle keep publishes it"


def way_back(run: UnderWay, manifest: Manifest, how: End) -> str:
    """How the messages of a run are not lost."""
    moved = away(run.lake, run.plan.group, run.plan.run)
    if how == "drop" and later_run(run) is not None:
        return moved
    if not all(is_there(run, file) for file in manifest.files):
        return _ADOPT
    in_the_way = beside(run.lake, run.plan, manifest, decided=how != "drop")
    if how == "drop":
        return KEEPS if in_the_way is None else f"it cannot be kept ({in_the_way}): {moved}"
    return _KEEP if in_the_way is None else f"first move away what is in its way ({in_the_way}), then {_KEEP}"


def beside(lake: Lake, plan: RunPlan, manifest: Manifest, *, decided: bool) -> str | None:
    """What is in the way of a run that is to be published: files, or of one that was not ``decided`` what another group
    has exported."""
    try:
        refuse_beside(lake, plan, first_time(manifest.parts), {file.name for file in manifest.files})
        if not decided and plan.kind == "export":
            Book(lake, plan.group).refuse_others(plan.partitions, plan.topics)
    except RefusedError as error:
        return error.message
    return None


def open_partitions(run: UnderWay, manifest: Manifest) -> set[TopicPartition]:
    """The partitions of which nothing is committed."""
    if run.plan.kind == "backfill":
        return {part.plan.partition for part in manifest.parts}
    return run.claim.persist(lambda: run.claim.unmoved(manifest.parts))


def only_here(files: Iterable[ManifestFile], logs: Mapping[TopicPartition, LogRange | str]) -> Iterator[OnlyHere]:
    """What files hold of these partitions that their logs do not have: a range, or why there is none. Pure."""
    for file in files:
        for one in file.slices:
            partition = TopicPartition(file.topic, one.partition)
            if (gone := _gone(logs.get(partition), (one.start, one.end))) is not None:
                why, offsets = gone
                rows = min(one.rows, sum(high - low for low, high in offsets))
                yield OnlyHere(file, partition, rows, why, offsets)


def _gone(log: LogRange | str | None, whole: Interval) -> tuple[str, tuple[Interval, ...]] | None:
    """Why a log does not have all of these offsets, and which are gone; None where it does, or was not asked."""
    if isinstance(log, str):
        return log, (whole,)
    if log is None or not (gone := subtract(whole, [(log.start, max(log.start, log.end))])):
        return None
    why = f"starts at {log.start}" if whole[0] < log.start else f"ends at {log.end}"
    return f"its log {why}", tuple(gone)


def words_on(found: Iterable[OnlyHere]) -> list[str]:
    """Of each partition what is gone, and why."""
    sums: dict[tuple[TopicPartition, str], int] = {}
    for one in found:
        sums[one.partition, one.why] = sums.get((one.partition, one.why), 0) + one.rows
    return [f"{counted(rows, 'message')} of {partition}: {why}" for (partition, why), rows in sorted(sums.items())]


def _logs(run: UnderWay, partitions: Set[TopicPartition]) -> dict[TopicPartition, LogRange | str]:
    """The logs of these partitions, as far as they are the planned ones."""
    plan, registry = run.plan, run.claim.registry
    now = run.claim.persist(lambda: ExportGroup(registry, plan.group, run.surroundings.warn).identities(plan.topics))
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
    told = log_offsets(run.surroundings.kafka(), same, registry.timeout) if same else {}
    for partition, log in told.items():
        if isinstance(log, ZkgroupError):
            raise log
        found[partition] = log
    return found


def is_there(run: UnderWay, file: ManifestFile) -> bool:
    """Whether a run's file is published, or still in the run's own folder as it was written."""
    return _is_whole(run.lake, f"{run.folder}/{file.work}", file) or is_published(run.lake, file)


def _is_whole(lake: Lake, work: str, file: ManifestFile) -> bool:
    """Whether a run's own folder has a file, by its size and its footer. One that may not be read counts as such:
    whoever publishes it tells."""
    from zkgroup.export.lake.footer import UnopenedFileError, UnreadableFileError  # pyarrow: most exports do without

    if lake.store.size(work) != file.bytes:
        return False
    try:
        return _tells_of(lake, work, file)
    except UnopenedFileError:
        return True
    except UnreadableFileError:
        return False


def is_published(lake: Lake, file: ManifestFile) -> bool:
    """Whether the file that has the final name is the run's. One that cannot be read counts as such."""
    from zkgroup.export.lake.footer import UnreadableFileError  # pyarrow: most exports do without

    if lake.store.size(file.name) is None:
        return False
    try:
        return is_written_by(lake, file)
    except UnreadableFileError:
        return True


def is_written_by(lake: Lake, file: ManifestFile) -> bool:
    """Whether the file that has the final name says that it is the run's. Raises ``UnreadableFileError``."""
    return _tells_of(lake, file.name, file)


def _tells_of(lake: Lake, name: str, file: ManifestFile) -> bool:
    from zkgroup.export.lake.footer import read_footer

    return read_footer(lake.store, name).told.get("file") == file.work.rpartition("/")[2].removesuffix(".tmp")
