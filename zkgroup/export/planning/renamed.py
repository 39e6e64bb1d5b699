"""Files that have another name, or lie elsewhere, than their export put them: readers take them for data all the same,
and what they hold is there. It is neither written again nor recorded as lost."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from zkgroup.errors import RefusedError
from zkgroup.export.lake.book import Book
from zkgroup.export.lake.decided import decided
from zkgroup.export.lake.lake import WORK, Lake, Published, of_log
from zkgroup.export.lake.strays import stray_files
from zkgroup.export.model.documents import decode_log
from zkgroup.export.model.encoding import DamagedDocumentError
from zkgroup.export.model.layout import is_read, read_name
from zkgroup.export.model.rundata import TopicCoverage, TopicIdentity
from zkgroup.export.model.words import OffsetRange, PartitionPlan
from zkgroup.export.planning.plan import in_no_file
from zkgroup.export.planning.request import ExportRequest

if TYPE_CHECKING:
    from zkgroup.export.lake.footer import Footer

#: A folder with very many files beside the topics' is none that was moved out of them: so many are named, at most, and
#: so many read, by an export that just goes on.
_NAMES: Final = 10_000
_STRAYS: Final = 100


def refuse_renamed(
    lake: Lake,
    wanted: Sequence[OffsetRange],
    identities: Mapping[str, TopicIdentity],
    named: Mapping[str, int] | None = None,
    of: Collection[str] = (),
) -> None:
    """Raise ``RefusedError`` where such a file, wherever it lies, holds an offset of ``wanted``, of the topics' logs of
    these ``identities``. ``named``: the files that the runs of the groups ``of`` name, with their bytes; the others'
    are read here."""
    if wanted:
        _refuse(lake, wanted, identities, _renamed(lake, wanted, {**(named or {}), **dict(_named(lake, of))}))


def _refuse(
    lake: Lake,
    wanted: Sequence[OffsetRange],
    identities: Mapping[str, TopicIdentity],
    found_elsewhere: Iterable[tuple[str, Footer]],
) -> None:
    for name, footer in found_elsewhere:
        found = decode_log(footer.told.get("log", ""))
        for partition, start, end in wanted:
            now = identities.get(partition.topic)
            if footer.told.get("topic") != partition.topic or (found and now and not found[1].same(now)):
                continue
            for one in footer.slices:
                if one.partition == partition.partition and one.start < end and start < one.end:
                    raise RefusedError(
                        f"{lake.store.uri}/{name} holds offsets {one.start} to {one.end - 1} of {partition}, and was "
                        "renamed or moved: they are not missing",
                        "put it back to where it was, under its name, or move it away, then run this again",
                    )


def refuse_renamed_in_place(
    lake: Lake,
    request: ExportRequest,
    book: Book,
    parts: Sequence[PartitionPlan],
    identities: Mapping[str, TopicIdentity],
) -> None:
    """The same for an export; but where it just goes on from the group's offset in what runs tell of, only for files
    without an export's name, beside the topics' folders and in them. Of a joined one other members have read what lies
    between."""
    if request.backfill:  # looks for itself, at what was lost as well
        return
    lasts = [book.last, *book.others.values()]
    known = {topic: of_log(lasts, topic, now) for topic, now in identities.items()}
    folders = {WORK, *(f"topic={topic}" for one in lasts for topic in one.coverage)}
    # Of a topic that no run tells of files may lie in any folder of which none does.
    untold = not all(known.values()) and any(name not in folders for name in lake.store.names(""))
    wanted: list[OffsetRange] = []
    plain: list[OffsetRange] = []
    for part in parts:
        if request.join:
            part = replace(part, skipped=tuple(gap for gap in part.skipped if gap.kind != "moved"))
        if _is_asked(part, known.get(part.partition.topic, ()), untold=untold):
            wanted += in_no_file([part], fills=False)
        else:
            plain += in_no_file([part], fills=False)
    refuse_renamed(lake, wanted, identities)
    if plain:
        topics = {piece.partition.topic for piece in plain}
        _refuse(lake, plain, identities, stray_files(lake, topics, _NAMES, _STRAYS))


def _is_asked(part: PartitionPlan, known: Sequence[TopicCoverage], *, untold: bool) -> bool:
    if not known:
        return untold
    if part.committed is None:
        return any(found.partitions.get(part.partition.partition) for found in known)
    first = min([part.start, *(gap.start for gap in part.skipped)])
    return first < part.committed or any(gap.kind == "moved" for gap in part.skipped)


def _named(lake: Lake, but: Collection[str]) -> Iterator[tuple[str, int]]:
    for group in lake.groups():
        with suppress(DamagedDocumentError):  # its files are looked at, which are as they were named
            for manifest, _ in decided(lake, group) if group not in but else ():
                yield from ((file.name, file.bytes) for file in manifest.files)


def _renamed(lake: Lake, wanted: Sequence[OffsetRange], named: Mapping[str, int]) -> Iterator[tuple[str, Footer]]:
    """The names and footers of such files, of those that no run has ``named``, with as many bytes. In the folder of
    another topic a name that tells of offsets that nobody wants is believed. Raises ``UnopenedFileError`` for one of
    which nobody knows what it holds."""
    from zkgroup.export.lake.footer import UnopenedFileError, UnreadableFileError, read_footer  # pyarrow
    from zkgroup.export.lake.judging import look_at, wrong_with

    topics = {partition.topic for partition, _, _ in wanted}
    for file in (file for files in lake.contents() for file in files):
        told = read_name(file.name)
        if named.get(file.name) == file.size or not (file.size and is_read(file.name)):
            continue
        if told is not None and told.topic not in topics and not told.more:
            meets = (
                p.partition == told.partition and told.start < end and start < told.end for p, start, end in wanted
            )
            if not any(meets):
                continue
        if told is None:
            try:
                yield file.name, read_footer(lake.store, file.name)
            except UnopenedFileError:
                raise
            except UnreadableFileError:
                pass
            continue
        published = Published(file.name, file.size, told)
        look = look_at(lake, published)
        if look.unopened is not None:
            raise look.unopened
        if look.footer is not None and wrong_with(published, look, None):
            yield file.name, look.footer
