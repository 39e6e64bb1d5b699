"""What tasks tell, put together to what becomes of each part of a plan; and refused where it is not all. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING

from zkgroup.errors import RefusedError, ZkgroupError
from zkgroup.export.documents import ManifestFile, ManifestPart, RunPlan
from zkgroup.export.lake import Lake
from zkgroup.export.plan import cut
from zkgroup.export.words import OffsetRange, PartitionPlan
from zkgroup.protocol.names import TopicPartition

if TYPE_CHECKING:
    from zkgroup.export.task import DoneAnswer

_SHOWN = 3


def ranges_of(plan: RunPlan) -> list[OffsetRange]:
    """What is read, cut into pieces; with a limit of bytes a partition is one piece, since it may end anywhere."""
    return [piece for part in plan.partitions for piece in _pieces(plan, part)]


def _pieces(plan: RunPlan, part: PartitionPlan) -> list[OffsetRange]:
    size = plan.range_messages if plan.max_bytes is None else 1 << 62
    return cut(part.partition, part.start, part.end, size)


def assemble(plan: RunPlan, answers: Sequence[DoneAnswer]) -> list[ManifestPart]:
    """What became of each part. Raises ``ZkgroupError`` unless the answers stand for exactly the plan's ranges, and
    account for every offset."""
    found: dict[OffsetRange, DoneAnswer] = {}
    for answer in answers:
        _, topic, partition, start, end, *_ = answer
        piece = OffsetRange(TopicPartition(topic, partition), start, end)
        if piece in found:
            raise ZkgroupError(f"offsets {start} to {end - 1} of {piece.partition} came twice", "report this")
        found[piece] = answer
    parts = [_assembled(plan, part, found) for part in plan.partitions]
    if found:
        raise ZkgroupError(f"offsets came that nobody asked for: {next(iter(found))}", "report this")
    return parts


def _assembled(plan: RunPlan, part: PartitionPlan, found: dict[OffsetRange, DoneAnswer]) -> ManifestPart:
    files: list[ManifestFile] = []
    gaps: dict[str, int] = {}
    end = part.start
    tag = plan.topics[part.partition.topic].tag
    for piece in _pieces(plan, part):
        answer = found.pop(piece, None)
        if answer is None or piece.start != end:
            what = f"offsets {piece.start} to {piece.end - 1} of {piece.partition}"
            raise ZkgroupError(f"{what} are not all there", "report this")
        *_, written, reached, missing, _unexplained = answer
        position = piece.start
        for path, start, stop, rows, size in written:
            if start != position:
                break
            position = stop
            work = "/".join(PurePath(path).parts[-2:])
            files.append(ManifestFile(work, Lake.file(part.partition, start, stop, tag), start, stop, rows, size))
        if not piece.start <= reached <= piece.end or (written and position != reached):
            what = f"offsets {piece.start} to {piece.end - 1} of {piece.partition}"
            raise ZkgroupError(f"{what} are not all there", "report this")
        for kind, count in missing.items():
            gaps[kind] = gaps.get(kind, 0) + count
        end = reached
    made = ManifestPart(part, end, sum(file.rows for file in files), 0, gaps, tuple(files))
    if not made.balanced or (plan.max_bytes is None and end != part.end):
        raise ZkgroupError(
            f"{part.partition}: {end - part.start} offsets from {part.start} on are {made.rows} messages and {gaps}: "
            "these do not add up",
            "report this",
        )
    return made


def refuse_unexplained(parts: Iterable[ManifestPart]) -> None:
    """Raise ``RefusedError`` where offsets are missing and nobody knows why."""
    bad = [part for part in parts if part.gaps.get("unexplained")]
    if bad:
        few = ", ".join(
            f"{part.plan.partition}: {part.gaps['unexplained']} of {part.plan.start} to {part.end - 1}"
            for part in bad[:_SHOWN]
        )
        more = f" and {len(bad) - _SHOWN} more partitions" if len(bad) > _SHOWN else ""
        raise RefusedError(
            f"offsets are missing from the log, and neither transactions nor compaction explain it ({few}{more})",
            "look at the brokers' logs; --on-unexplained record exports what is there and notes the gaps",
        )
