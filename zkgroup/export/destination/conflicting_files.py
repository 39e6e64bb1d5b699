"""Files in the way of a run: they have offsets that it is to export, and no record names them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from zkgroup.errors import RefusedError
from zkgroup.export.destination.run_log import Destination, PublishedFile
from zkgroup.export.model.plan_types import OffsetRange
from zkgroup.protocol.names import TopicPartition

_REMEDY: Final = (
    "move it out of the destination, or restore the record that names it; export --verify names all such files"
)


def refuse_conflicting_files(
    destination: Destination,
    ranges: Iterable[OffsetRange],
    tags: Mapping[str, str | None],
    *,
    known: Collection[str] = (),
) -> None:
    """Raise ``RefusedError`` where a file, by its name, has offsets of these ``ranges``. ``tags``: the marks of the
    topics' logs; ``known``: files that records name.

    A file whose name does not list all of its ranges is in the way unless its run is in the log: what a run in the log
    has exported lies before what is to be exported now.
    """
    wanted: dict[str, dict[int, list[OffsetRange]]] = {}
    for piece in ranges:
        if piece.start < piece.end:
            wanted.setdefault(piece.partition.topic, {}).setdefault(piece.partition.partition, []).append(piece)
    logged: set[str] | None = None
    for topic, partitions in wanted.items():
        for file in destination.published(topic, list(partitions)):
            if file.parts.tag != tags.get(topic) or file.name in known:
                continue
            if file.parts.more:
                if logged is None:
                    logged = {entry.run for group in destination.groups() for entry in destination.entries(group)}
                if file.parts.run not in logged:
                    raise RefusedError(f"{destination}/{file.name} is of a run that the log does not have", _REMEDY)
                continue
            met = _overlapping(file, partitions.get(file.parts.partition, ()))
            if met is not None:
                raise RefusedError(
                    f"{destination}/{file.name} is in the way: no record names it, and by its name it has "
                    f"offsets {max(file.parts.start, met.start)} to {min(file.parts.end, met.end) - 1} of "
                    f"{TopicPartition(topic, file.parts.partition)}",
                    _REMEDY,
                )


def _overlapping(file: PublishedFile, pieces: Iterable[OffsetRange]) -> OffsetRange | None:
    return next((piece for piece in pieces if piece.start < file.parts.end and file.parts.start < piece.end), None)
