"""``--settle forget``: the end of a run whose lake is lost. Where it is not, what would be lost with it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

from zkgroup.errors import RefusedError, ZkgroupError
from zkgroup.export.lake.lake import MANIFEST, Lake
from zkgroup.export.lake.leftovers import remove_attempts, works
from zkgroup.export.model.encoding import DamagedDocumentError
from zkgroup.export.model.intervals import Interval
from zkgroup.export.model.rundata import Manifest, Pointer, RunPlan
from zkgroup.export.model.shell import export_command
from zkgroup.export.runs.claim import ExportClaim
from zkgroup.export.runs.last_copies import (
    is_published,
    is_there,
    open_partitions,
    refuse_damaged,
    refuse_last_copies,
    refuse_untold,
    told_by_footers,
)
from zkgroup.export.runs.surroundings import Surroundings
from zkgroup.export.runs.under_way import UnderWay
from zkgroup.protocol.names import TopicPartition
from zkgroup.words import are, counted, listed

_GIVES_UP = "--settle forget --skip-lost"
_GIVES_UP_FILES = f"{_GIVES_UP} gives up what only its files hold"


def forget(claim: ExportClaim, lake: Lake, pointer: Pointer, surroundings: Surroundings, *, skip_lost: bool) -> None:
    """End what the pointer says, and nothing else. Where the run's folder is there, tell what stays in it, and what
    that means for the next export.

    Raises ``RefusedError`` where the run may be elsewhere, or messages would be in no file that counts, and in no log;
    without ``skip_lost``, with which this is only said.
    """
    told = f"run {pointer.run} of group {claim.group}"
    stays, given_up = "", False
    try:
        stays, given_up = _look(claim, lake, pointer, surroundings, skip_lost=skip_lost)
    except RefusedError:
        raise
    except ZkgroupError as error:
        if not skip_lost:
            raise RefusedError(
                f"{told} is not forgotten, as {lake.store.uri} does not tell what it holds of it: {error.message}",
                f"try again when it can be read; {_GIVES_UP} forgets it all the same",
            ) from None
        stays = f"{told} is forgotten, and nobody knows what {lake.store.uri} holds of it: {error.message}"
    if not claim.drop(pointer):
        return
    if given_up:  # nobody is asked again
        remove_attempts(lake, claim.group, pointer.run)
    if stays:
        surroundings.warn(stays)


def _look(
    claim: ExportClaim, lake: Lake, pointer: Pointer, surroundings: Surroundings, *, skip_lost: bool
) -> tuple[str, bool]:
    """What of the run stays, and what that means, in words; and whether its unpublished files are given up."""
    group, folder = claim.group, lake.folder(claim.group, pointer.run)
    told = f"run {pointer.run} of group {group}"
    names = lake.store.names(folder)
    if not names and lake.store.uri != pointer.output and not skip_lost:
        raise RefusedError(
            f"{told} is in {pointer.output}, and not in {lake.store.uri}",
            f"--settle forget with --to {pointer.output} looks at what is there; {_GIVES_UP} does not",
        )
    planned, damage = None, "its plan is gone"
    try:
        planned = lake.plan(group, pointer.run)
    except DamagedDocumentError as error:
        damage = error.message
    if planned is not None and planned[1] != pointer.plan:  # somebody changed the folder
        planned, damage = None, "its plan is another one"
    if pointer.state == "planned":
        if planned is not None or not names:
            return "", False
        given_up = refuse_untold(claim, lake, pointer.run, surroundings, damage, _GIVES_UP_FILES, skip_lost=skip_lost)
        return f"{told} is forgotten, and where it was to begin may be told nowhere: {damage}", given_up
    manifest = None
    try:
        manifest = lake.named(group, pointer)
        if manifest is None and planned is not None:
            damage = "its manifest is gone"
    except DamagedDocumentError as error:
        damage = error.message
    if planned is None or manifest is None:
        given_up = _refuse_untold(claim, lake, pointer, planned, damage, surroundings, skip_lost=skip_lost)
        if not names and pointer.state == "decided":
            return f"{told} is forgotten, and {lake.store.uri} has nothing of it", False
        plan = told_by_footers(lake, group, pointer.run)[0] if planned is None else planned[0]
        return _words_on(claim, lake, told, list(_published(lake, plan))), given_up
    run = UnderWay(claim, lake, planned[0], pointer, surroundings)
    given_up = False
    if pointer.state == "committed":
        _refuse_committed(run, manifest, skip_lost=skip_lost)
    else:
        given_up = refuse_last_copies(run, manifest, open_partitions(run, manifest), "forget", skip_lost=skip_lost)
    if MANIFEST in names and not run.is_taken_back():
        behind = (
            ", and the group stands behind it: --on-disagreement lake goes on where it ends"
            if open_partitions(run, manifest) and run.plan.kind == "export"
            else ""
        )
        return f"{told} stays among the exports in {lake.store.uri}{behind}", False
    return _words_on(
        claim, lake, told, [file.name for file in manifest.files if is_published(run.lake, file)]
    ), given_up


def _words_on(claim: ExportClaim, lake: Lake, told: str, published: Sequence[str]) -> str:
    """What the files that a forgotten run has published mean for the next export."""
    if not published:
        return ""
    return (
        f"{told} is forgotten, and {counted(len(published), 'file')} of it {are(len(published))} published in "
        f"{lake.store.uri} ({listed(published)}): the next export is refused until "
        f"{export_command(lake.store.destination, '--adopt', claim.group)} enters what is there, --settle keep or "
        "withdraw ends the run after all, or it is moved away"
    )


def _published(lake: Lake, plan: RunPlan) -> Iterator[str]:
    """The published files that say that they are of the plan's run, for want of a manifest: of a lake's thousands those
    alone are asked whose names tell of its offsets, or of many."""
    from zkgroup.export.lake.footer import UnreadableFileError, read_footer  # pyarrow: most exports do without

    ranges: dict[TopicPartition, list[Interval]] = {}
    for part in plan.partitions:
        ranges.setdefault(part.partition, []).append((part.start, part.end))
    for file in (file for topic in plan.topics for file in lake.published(topic)):
        told = file.told
        near = ranges.get(TopicPartition(told.topic, told.partition), ())
        if told.more or any(low < told.end and told.start < high for low, high in near):
            with contextlib.suppress(UnreadableFileError):
                if read_footer(lake.store, file.name).run == plan.run:
                    yield file.name


def _refuse_untold(
    claim: ExportClaim, lake: Lake, pointer: Pointer, planned: tuple[RunPlan, str] | None, damage: str,
    surroundings: Surroundings, *, skip_lost: bool,
) -> bool:  # fmt: skip
    """Of a run without its manifest, or its plan: raise where that loses something. Whether files are given up."""
    files = works(lake, claim.group, pointer.run)
    if pointer.state == "committed":
        _refuse_committed_unknown(lake, pointer, claim.group, damage, surroundings, skip_lost=skip_lost)
        return bool(files)
    if planned is None:
        return refuse_untold(claim, lake, pointer.run, surroundings, damage, _GIVES_UP_FILES, skip_lost=skip_lost)
    run = UnderWay(claim, lake, planned[0], pointer, surroundings)
    return bool(files) and refuse_damaged(run, damage, _GIVES_UP_FILES, skip_lost=skip_lost)


def _refuse_committed_unknown(
    lake: Lake, pointer: Pointer, group: str, damage: str, surroundings: Surroundings, *, skip_lost: bool
) -> None:
    """Raise of a run that is committed, where nothing tells what it has written: nobody exports that again."""
    text = f"the offsets of run {pointer.run} of group {group} are committed, and "
    if files := works(lake, group, pointer.run):
        parts = told_by_footers(lake, group, pointer.run)[0].partitions
        held = listed([f"{one.partition} {one.start} to {one.end - 1}" for one in parts], most=10)
        text += (
            f"{counted(len(files), 'file')} below {lake.store.uri}/{lake.folder(group, pointer.run)} "
            f"{are(len(files))} not known to be published ({held or 'nobody can tell what they hold'}), and {damage}"
        )
    else:
        text += f"its files are not known to be in {lake.store.uri}: its messages may be in none"
    refusal = RefusedError(
        text, f"bring its folder back; {_GIVES_UP} gives it up, and --backfill exports what the logs still have"
    )
    _give_up(refusal, f"{text}: these messages are given up", surroundings, skip_lost=skip_lost)


def _give_up(refusal: RefusedError, warning: str, surroundings: Surroundings, *, skip_lost: bool) -> None:
    """Raise, unless who runs it has said that it is no matter: then it is told what is given up."""
    if not skip_lost:
        raise refusal
    surroundings.warn(warning)


def _refuse_committed(run: UnderWay, manifest: Manifest, *, skip_lost: bool) -> None:
    """Raise as long as files are there that are not published, or are gone, and nobody has given them up."""
    open_files = [file for file in manifest.files if not is_published(run.lake, file)]
    gone = [file.name for file in open_files if not is_there(run, file)]
    if not gone or len(gone) < len(open_files):
        raise RefusedError(
            f"the offsets of {run} are committed, and its files are in {run.lake.store.uri}: forgotten, their messages "
            "would be lost",
            "--settle keep publishes them, as the same command without --settle does",
        )
    text = f"{counted(len(gone), 'file')} of it {are(len(gone))} gone ({listed(gone, most=3)})"
    refusal = RefusedError(
        f"the offsets of {run} are committed, and {text}: its messages are in no file",
        f"restore what is gone; {_GIVES_UP} gives it up, and --backfill exports again what the logs still have",
    )
    warning = f"{run} is forgotten, though its offsets are committed, and {text}"
    _give_up(refusal, warning, run.surroundings, skip_lost=skip_lost)
