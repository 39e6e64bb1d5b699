"""What tasks tell, put together to what becomes of each part of a plan; and refused where it is not all. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import PurePath
from typing import Literal, cast

from zkgroup.errors import RefusedError, ZkgroupError
from zkgroup.export.model.accounting import total
from zkgroup.export.model.intervals import overlaps
from zkgroup.export.model.layout import Period
from zkgroup.export.model.rundata import Manifest, ManifestFile, ManifestPart, RunPlan, rows_held
from zkgroup.export.model.words import OffsetRange, PartitionPlan
from zkgroup.export.planning.plan import cut
from zkgroup.export.tasks.punctuality import Found, late_of
from zkgroup.export.tasks.taskdata import DoneAnswer, FileAnswer, RangeAnswer
from zkgroup.protocol.names import TopicPartition
from zkgroup.words import counted, listed


@dataclass(frozen=True, slots=True)
class Written:
    """What tasks have made; ``times``: the newest period of each partition."""

    parts: list[ManifestPart]
    files: list[ManifestFile]
    times: Mapping[TopicPartition, Period]


def ranges_of(plan: RunPlan) -> list[OffsetRange]:
    """What is read, cut into pieces; with a limit of bytes a partition is one piece, since it may end anywhere."""
    return [piece for part in plan.partitions for piece in _pieces(plan, part)]


def _pieces(plan: RunPlan, part: PartitionPlan) -> list[OffsetRange]:
    size = plan.range_messages if plan.max_bytes is None else 1 << 62
    return cut(part.partition, part.start, part.end, size)


def assemble(plan: RunPlan, answers: Sequence[DoneAnswer], newest: Mapping[TopicPartition, Period]) -> Written:
    """What became of each part, and the files; ``newest``: each partition's newest period before. Raises
    ``ZkgroupError`` unless the answers stand for exactly the plan's ranges, and account for every offset."""
    found: dict[OffsetRange, RangeAnswer] = {}
    files: list[FileAnswer] = []
    for answer in answers:
        if answer.kind == "file":
            files.append(cast("FileAnswer", answer))
            continue
        told = cast("RangeAnswer", answer)
        piece = OffsetRange(TopicPartition(told.topic, told.partition), told.start, told.end)
        if piece in found:
            raise ZkgroupError(
                f"offsets {piece.start} to {piece.end - 1} of {piece.partition} came twice", "report this"
            )
        found[piece] = told
    times: dict[TopicPartition, Period] = {}
    parts: list[ManifestPart] = []
    for part in plan.partitions:
        # What is filled in lies before what the lake knows as newest, and is not late for that.
        before = None if plan.kind == "backfill" else times.get(part.partition, newest.get(part.partition))
        made, times[part.partition] = _assembled(plan, part, found, before)
        parts.append(made)
    if found:
        raise ZkgroupError(f"offsets came that nobody asked for: {next(iter(found))}", "report this")
    written = [_named(plan, file) for file in sorted(files, key=lambda file: (file.topic, file.slices, file.folder))]
    _refuse_unbalanced(plan, parts, written)
    return Written(parts, written, times)


def _named(plan: RunPlan, file: FileAnswer) -> ManifestFile:
    work = "/".join(PurePath(file.work).parts[-2:])
    name = f"{file.folder}/{plan.layout.name(file.slices, plan.run, plan.topics[file.topic].tag)}"
    return ManifestFile(work, name, file.topic, file.rows, file.bytes, file.slices)


def _assembled(
    plan: RunPlan, part: PartitionPlan, found: dict[OffsetRange, RangeAnswer], newest: Period
) -> tuple[ManifestPart, Period]:
    told: list[RangeAnswer] = []
    end = part.start
    for piece in _pieces(plan, part):
        answer = found.pop(piece, None)
        if answer is None or piece.start != end or not piece.start <= answer.reached <= piece.end:
            raise ZkgroupError(
                f"offsets {piece.start} to {piece.end - 1} of {piece.partition} are not all there", "report this"
            )
        told.append(answer)
        end = answer.reached
    undecodable = sum(answer.undecodable for answer in told)
    late, newest = late_of((Found(answer.late, answer.fresh) for answer in told), newest)
    made = ManifestPart(
        part,
        end,
        sum(answer.rows for answer in told) - undecodable,
        undecodable,
        total(answer.gaps for answer in told),
        late,
        sum(answer.undated for answer in told),
    )
    if plan.max_bytes is None and end != part.end:
        raise ZkgroupError(f"offsets {end} to {part.end - 1} of {part.partition} are not there", "report this")
    return made, newest


def _refuse_unbalanced(plan: RunPlan, parts: Sequence[ManifestPart], files: Sequence[ManifestFile]) -> None:
    """Every offset of a part is a row, or a gap; and every row is in a file, which stands for that part."""
    held = rows_held(parts, files)
    for part, rows in zip(parts, held, strict=True):
        if not part.balanced or rows != part.rows + part.undecodable:
            start = part.plan.start
            raise ZkgroupError(
                f"{part.plan.partition}: {part.end - start} offsets from {start} on are {part.rows} messages, "
                f"{part.undecodable} undecodable ones and {dict(part.gaps)}, and the files hold {rows}: "
                "these do not add up",
                "report this",
            )
    if sum(held) != sum(file.rows for file in files):
        raise ZkgroupError("files came with offsets that nobody asked for", "report this")
    folders: dict[tuple[str, int], list[tuple[int, int]]] = {}
    for file in files:
        for one in file.slices:
            folders.setdefault((file.name.rpartition("/")[0], one.partition), []).append((one.start, one.end))
    if twice := next((key for key, held in folders.items() if overlaps(held)), None):
        raise ZkgroupError(f"{twice[0]}: two files hold the same offsets of partition {twice[1]}", "report this")
    names = [file.name for file in files]
    if len(set(names)) != len(names):
        raise ZkgroupError("two files have one name", "report this")


_GAPS: Mapping[str, str] = {
    "retention": "were deleted before they were read and are not exported (retention)",
    "unexplained": "are missing from the log, and nothing explains it: that is recorded (unexplained)",
}


def words_on_gaps(parts: Iterable[ManifestPart], kind: Literal["retention", "unexplained"]) -> Iterator[str]:
    """What is to be said of offsets that were not there to be read."""
    for part in parts:
        if count := part.gaps.get(kind):
            where = f"{part.plan.start} to {part.end - 1}"
            yield f"{part.plan.partition}: {counted(count, 'offset')} of {where} {_GAPS[kind]}"


def refuse_unexplained(parts: Iterable[ManifestPart]) -> None:
    """Raise ``RefusedError`` where offsets are missing and nobody knows why."""
    bad = [part for part in parts if part.gaps.get("unexplained")]
    if bad:
        texts = [
            f"{part.plan.partition}: {part.gaps['unexplained']} of {part.plan.start} to {part.end - 1}" for part in bad
        ]
        few = listed(texts, most=3)
        raise RefusedError(
            f"offsets are missing from the log, and neither transactions nor compaction explain it ({few})",
            "look at the brokers' logs; --on-unexplained record exports what is there and notes the gaps",
        )


def refuse_fewer(parts: Iterable[ManifestPart]) -> None:
    """Raise ``RefusedError`` where a lost file would be written again with fewer messages than it held, and nothing but
    that others are in other folders accounts for it: then it was not in its own."""
    for part in parts:
        held = sum(lost.rows for lost in part.plan.again)
        left = held - part.rows - part.undecodable
        gone = sum(count for kind, count in part.gaps.items() if kind != "elsewhere") + part.plan.lost
        if left > gone:
            names = listed(sorted({lost.file for lost in part.plan.again}), most=3)
            where = f"{part.plan.partition} {part.plan.start} to {part.end - 1}"
            raise RefusedError(
                f"{names} held {held} messages of {where}, and of these the log has {held - left} for that folder",
                "restore the file from a copy; --verify tells of files that are not where they were written",
            )


def refuse_shared(manifest: Manifest, taken_back: Set[TopicPartition]) -> None:
    """Raise ``RefusedError`` where a file of what is to be taken back holds what is committed, too."""
    for file in manifest.files:
        partitions = {TopicPartition(file.topic, one.partition) for one in file.slices}
        if kept := sorted(partitions - taken_back):
            if kept == sorted(partitions):
                continue
            raise RefusedError(
                f"{file.name} cannot be taken back: it also holds messages of {kept[0]}, whose offset is committed",
                "--settle keep leaves the files, and the offsets as they are",
            )
