"""Whether what is to be exported is in a lake already, whoever wrote it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress

from zkgroup.errors import RefusedError
from zkgroup.export.lake.holdings import offsets_of
from zkgroup.export.lake.lake import ADOPTION, Lake, Published
from zkgroup.export.model.documents import decode_log
from zkgroup.export.model.intervals import Interval
from zkgroup.export.model.rundata import ManifestPart, RunPlan
from zkgroup.export.model.shell import export_command
from zkgroup.export.model.words import OffsetRange, PartitionPlan, Slice
from zkgroup.protocol.names import TopicPartition

# Where so few are asked for, their folders are listed one by one.
_FEW_PARTITIONS = 16


def refuse_overlap(
    lake: Lake, ranges: Iterable[OffsetRange], tags: Mapping[str, str | None], own: str, but: Collection[str] = (),
    *, fills: bool = False,
) -> None:  # fmt: skip
    """Raise ``RefusedError`` if published files, ``but`` for these, already hold an offset of ``ranges``, which
    group ``own`` is to export: it would be there twice. ``fills``: in a backfill."""
    wanted: dict[str, dict[int, list[OffsetRange]]] = {}
    for piece in ranges:
        wanted.setdefault(piece.partition.topic, {}).setdefault(piece.partition.partition, []).append(piece)
    suspects: dict[str, bool] = {}  # runs: whether what their group has exported is in the way
    for topic, pieces in wanted.items():
        for file in _near(lake, topic, pieces):
            told = file.told
            if told.tag != tags.get(topic) or file.name in but:
                continue
            # Manifests tell of most runs: most often it is enough to look there.
            if told.more and not suspects:
                suspects = _suspects(lake, wanted, tags)
            is_suspect = not told.more or suspects.get(file.name, suspects.get(str(told.run), True))
            for one in lake.slices(file) if is_suspect else ():
                for piece in pieces.get(one.partition, ()):
                    low, high = max(one.start, piece.start), min(one.end, piece.end)
                    if low < high and offsets_of(file.name, Slice(one.partition, low, high, 0), lake.exact):
                        raise _overlap(lake, file, one, piece, own, fills=fills)


def refuse_beside(lake: Lake, plan: RunPlan, ranges: Iterable[OffsetRange], but: Collection[str] = ()) -> None:
    """Raise where published files, ``but`` for these, hold any of a run's ``ranges``."""
    tags = {topic: identity.tag for topic, identity in plan.topics.items()}
    refuse_overlap(lake, ranges, tags, plan.group, but, fills=plan.kind == "backfill")


def refuse_returned(lake: Lake, partitions: Iterable[PartitionPlan], but: Collection[str] = ()) -> None:
    """Raise where a file is there again, ``but`` for these, that was to be replaced since it was lost."""
    for name in sorted({lost.file for part in partitions for lost in part.again} - {*but}):
        if lake.store.size(name) is not None:
            raise RefusedError(f"{lake.store.uri}/{name} was missing, and is there again", "run it again")


def first_time(parts: Iterable[ManifestPart]) -> list[OffsetRange]:
    """What was not exported before."""
    return [
        OffsetRange(part.plan.partition, part.plan.start, part.end)
        for part in parts
        if not part.plan.again and part.plan.start < part.end
    ]


def _overlap(lake: Lake, file: Published, held: Slice, piece: OffsetRange, own: str, *, fills: bool) -> RefusedError:
    from zkgroup.export.lake.footer import UnreadableFileError, read_footer

    what = f"{lake.store.uri}/{file.name} already holds offsets {held.start} to {held.end - 1} of {piece.partition}"
    group, run, log = own, "", None
    with suppress(UnreadableFileError):
        footer = read_footer(lake.store, file.name)
        group, run, log = footer.told.get("group", own), footer.run, decode_log(footer.told.get("log", ""))
    last, topic = lake.last(own), piece.partition.topic
    if log is not None and log[0] == last.cluster and topic in last.coverage:
        known = last.coverage[topic].identity
        # Begun while that file was away: nothing marks the names of either.
        if known.tag == file.told.tag and not known.same(log[1]) and log[1].czxid < known.czxid:
            return RefusedError(
                f"{what}, which is of the {topic} that was deleted (run {run} of group {group})",
                "move it elsewhere, and that run's folder with it: the new log's exports began without it, so that "
                "names do not tell the two apart",
            )
    adopt = export_command(lake.store.destination, "--adopt", group)
    if group != own:
        theirs = _told(lake, group, piece.partition, file.told.tag)
        if not any(low < held.end and held.start < high for low, high in theirs):
            return RefusedError(
                f"{what}: group {group} exported them (run {run}), and no manifest tells of it",
                f"finish that run, if it is unfinished (--status), else {adopt} enters them; then go on with that "
                "group, or where its exports end, as --on-disagreement lake does",
            )
        return RefusedError(
            f"{what}: group {group} exported them (run {run})",
            f"one group exports a topic to a destination: go on with group {group}, choose another --to, "
            "or take over where its exports end, as --on-disagreement lake does (of a topic that was made again, "
            "reset-offsets and then --on-recreated committed)",
        )
    if not any(piece.start < high for _, high in _told(lake, own, piece.partition, file.told.tag)):
        return RefusedError(
            f"{what}, and no run accounts for it: {f'its run {run}' if run else 'the run that wrote it'} was "
            "forgotten (--settle forget), or its manifest is gone",
            f"{adopt} enters it, with all others that no manifest names (--verify lists them); to have its "
            "messages read anew move it away",
        )
    if fills:
        return RefusedError(
            f"{what}: a backfill writes nothing twice", "name what is missing alone: --verify tells which offsets"
        )
    return RefusedError(
        f"{what}, which the group has not committed: it stands at {piece.start}",
        "if another export of the group has just ended, run it again; if the group was set back, --on-disagreement "
        "lake goes on where the export ended; to have the messages again choose another --to",
    )


def _told(lake: Lake, group: str, partition: TopicPartition, tag: str | None) -> Sequence[Interval]:
    """What the group's last manifest accounts for of the log with this mark."""
    known = lake.last(group).coverage.get(partition.topic)
    return () if known is None or known.identity.tag != tag else known.partitions.get(partition.partition, ())


def _near(lake: Lake, topic: str, partitions: Collection[int]) -> Iterator[Published]:
    folders = {f"partition={number}" for number in partitions}
    names = lake.store.names(f"topic={topic}") if len(partitions) <= _FEW_PARTITIONS else ()
    if not folders.issubset(names):
        yield from lake.published(topic)
        return
    for partition in sorted(partitions):
        yield from lake.named_below(f"topic={topic}/partition={partition}")


def _suspects(
    lake: Lake, wanted: Mapping[str, Mapping[int, list[OffsetRange]]], tags: Mapping[str, str | None]
) -> dict[str, bool]:
    """Runs that their group's manifests tell of, not those that have lost their own; and files that were adopted, as
    others of their run may not have been. What a group tells of another log than the one with this mark clears
    nothing."""
    found: dict[str, bool] = {"": False}
    for group, last in lake.of_groups(lake.last).items():
        if last.run is None:
            continue
        coverage = last.coverage
        in_the_way = any(coverage[topic].identity.tag != tags.get(topic) for topic in wanted if topic in coverage)
        in_the_way = in_the_way or any(
            low < piece.end and piece.start < high
            for topic, partitions in wanted.items()
            if topic in coverage
            for partition, pieces in partitions.items()
            for piece in pieces
            for low, high in coverage[topic].partitions.get(partition, ())
        )
        runs = list(last.told)
        for adoption in [run for run in runs if run.endswith(ADOPTION)]:
            told = lake.manifest(group, adoption)
            runs += [file.name for file in told[0].files] if told is not None else []
        found |= dict.fromkeys(runs, in_the_way)
    return found
