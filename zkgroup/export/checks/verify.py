"""Is everything there, once? The manifests of all runs, the names and footers of all files, held against each other.

Of a file with one range nothing is read but its footer: what it says of itself, how many rows it has, and the offsets
and times of each row group. Of one with several, also the offsets of its rows; and of one in a folder of times, where
what lies between the first and the last is in question. That is enough to see what is missing, doubled, foreign or
changed, for every offset that was ever exported: a message has one folder, files of one folder have no offset in
common, and as many rows are there as offsets are accounted for by rows.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import cast

from zkgroup.export.checks.accounts import NO_NUMBERS, NOWHERE, Account, Mend, Problem, VerifyRow, mend_for, rows_of
from zkgroup.export.lake.ahead import spared
from zkgroup.export.lake.asking import at_once
from zkgroup.export.lake.decided import decided_run
from zkgroup.export.lake.footer import Footer, UnopenedFileError, UnreadableFileError, read_footer
from zkgroup.export.lake.holdings import (
    Exact,
    Holdings,
    Incarnation,
    LiveFile,
    held_again,
    is_among_others,
    tags_of,
)
from zkgroup.export.lake.judging import LOOKS, Look, judge_times, look_at, wrong_with
from zkgroup.export.lake.lake import SETTLED, Lake, LastRun, Published, of_log
from zkgroup.export.lake.replacing import follow
from zkgroup.export.model.documents import decode_log
from zkgroup.export.model.encoding import DamagedDocumentError
from zkgroup.export.model.intervals import Interval, subtract, union
from zkgroup.export.model.layout import Calendar, Layout, is_read, read_name
from zkgroup.export.model.rundata import Manifest, ManifestPart, TopicCoverage, TopicIdentity, slices_held
from zkgroup.export.model.words import Slice
from zkgroup.protocol.names import TopicPartition

__all__ = ["VerifyRow", "verify"]


class _Books:
    """All accounts, the files that were named and not seen yet, and problems that are of no account."""

    def __init__(self) -> None:
        self.accounts: dict[Incarnation, Account] = {}
        self.holdings = Holdings()
        self.files: dict[str, LiveFile] = {}
        self.strangers: list[VerifyRow] = []
        self.lasts: list[LastRun] = []  # of all groups

    def is_of_earlier_log(self, topic: str, tag: str | None) -> bool:
        """Whether the topic was made again since, and exported, by whichever group."""
        newest: dict[str | None, TopicIdentity] = {}  # of each cluster: their numbers tell nothing of one another
        for one in self.lasts:
            if topic in one.coverage:
                known, now = newest.get(one.cluster), one.coverage[topic].identity
                newest[one.cluster] = now if known is None or now.czxid > known.czxid else known
        return bool(newest) and all(tag != now.tag for now in newest.values())

    def covered(self, topic: str, partition: int, log: TopicIdentity) -> tuple[Interval, ...]:
        """What all groups' exports of a log account for."""
        known = of_log(self.lasts, topic, log)
        return union(interval for found in known for interval in found.partitions.get(partition, ()))

    def add_renamed(self, footer: Footer | None) -> None:
        """A file that has another name, or lies elsewhere, than its export has put it."""
        if footer is not None and "topic" in footer.told:
            log = decode_log(footer.told.get("log", ""))
            for one in footer.slices:
                key = Incarnation(footer.told["topic"], one.partition, None if log is None else log[1].tag)
                self.account(key).renamed.append((one.start, one.end))

    def account(self, key: Incarnation) -> Account:
        """The one of a partition."""
        return self.accounts.setdefault(key, Account())


def verify(
    lake: Lake,
    committed: Mapping[str, Mapping[TopicPartition, int | None]] | None = None,
    note: Callable[[str], None] = lambda _: None,
) -> list[VerifyRow]:
    """One row for each partition, then its problems. ``committed``: what groups have committed, where that is to be
    held against what was exported, too. ``note`` is told what is no problem and yet worth knowing."""
    books = _read_books(lake)
    calendars: dict[Layout, Calendar] = {}
    with ThreadPoolExecutor(LOOKS, thread_name_prefix="zkgroup-verify") as pool:
        for files in lake.contents(lambda why: note(f"{why}: what may lie there is not looked at")):
            named = [(file, read_name(file.name)) for file in files]
            published = [Published(file.name, file.size, told) for file, told in named if told is not None]
            for one, look in pool.map(lambda file: (file, look_at(lake, file)), published):
                _judge_file(books, one, look, calendars)
            strangers = [file.name for file, told in named if told is None and is_read(file.name)]
            for row, footer in pool.map(partial(_judge_stranger, lake), strangers):
                books.strangers.append(row)
                books.add_renamed(footer)
    follow(books.holdings, books.holdings.files.keys() - books.files.keys())
    for live, one in books.holdings.followed:
        account = books.account(Incarnation(live.file.topic, one.partition, live.tag))
        account.followed.setdefault(live.run, []).append((one.start, one.end))
    for live in books.holdings.files.values():
        for one in live.file.slices:
            books.account(Incarnation(live.file.topic, one.partition, live.tag)).rows += one.rows
    for name, missing in books.holdings.files.items():
        if name not in books.files:
            continue
        why, group = f"{name} of run {missing.run} is missing", cast("str | None", missing.group)
        if books.is_of_earlier_log(missing.file.topic, missing.tag):
            why, group = f"{why}, and the topic was made again: only a copy brings it back", None
        for one in missing.file.slices:
            account = books.account(Incarnation(missing.file.topic, one.partition, missing.tag))
            # What a file holds that can be entered in its place, or was renamed, is not to be written again.
            folder = name.rpartition("/")[0]
            beside = [(held.start, held.end) for other, held in account.orphaned if other.rpartition("/")[0] == folder]
            mend = mend_for((one.start, one.end), account) if subtract((one.start, one.end), beside) else None
            account.problems.append(Problem((one.start, one.end), why, group, mend=mend))
    for group, offsets in (committed or {}).items():
        _judge_offsets(lake.last(group), group, offsets, books, note)
    rows: list[VerifyRow] = []
    for key in sorted(books.accounts, key=lambda key: (key.topic, key.partition, key.tag or "")):
        rows += rows_of(key, books.accounts[key], lake.exact, is_earlier=books.is_of_earlier_log(key.topic, key.tag))
    return rows + books.strangers


def _read_books(lake: Lake) -> _Books:
    books, holdings = _Books(), Holdings(lake.exact)
    for group in lake.groups():
        with contextlib.suppress(DamagedDocumentError):  # told of below
            books.lasts.append(lake.last(group))
        claims: dict[tuple[str, str | None], TopicCoverage] = {}
        runs = lake.runs(group)
        for run, answer in zip(runs, at_once(partial(decided_run, lake, group), runs), strict=True):
            try:
                found = answer.result()
            except DamagedDocumentError as error:
                without = f"; without a copy move {lake.store.uri}/{lake.folder(group, run)} away"
                lost = error.document.endswith(f"/{SETTLED}")  # a manifest without it says what is not so
                books.strangers.append(
                    VerifyRow(
                        *NOWHERE, error.message + without * lost, group=group, mend="adopt" if lost else "readopt"
                    )
                )
                continue
            if found is not None and found[0].group != group:
                here, right = lake.folder(group, run), lake.folder(found[0].group, run)
                why = f"{here} is a run of group {found[0].group}: move it back to {right}"
                if _is_there(lake, found[0]):
                    why = f"{here} is a copy of {right}, a run of group {found[0].group}: remove the copy"
                else:
                    _enter_run(books, holdings, found[0].group, *found, lake.exact)
                books.strangers.append(VerifyRow(*NOWHERE, why, mend="move"))
            elif found is not None:
                _enter_run(books, holdings, group, *found, lake.exact)
                told = lake.accounted(group, run) if found[1] else None
                coverage = found[0].coverage if told is None else told.coverage
                claims |= {(topic, known.identity.tag): known for topic, known in coverage.items()}
        for (topic, tag), known in claims.items():
            for number, intervals in known.partitions.items():
                books.account(Incarnation(topic, number, tag)).claimed.setdefault(group, []).extend(intervals)
    books.holdings, books.files = holdings, dict(holdings.files)
    return books


def _is_there(lake: Lake, manifest: Manifest) -> bool:
    """Whether a run lies where it belongs."""
    try:
        there = lake.manifest(manifest.group, manifest.run)
    except DamagedDocumentError:
        return False
    return there is not None and there[0] == manifest


def _enter_run(
    books: _Books, holdings: Holdings, group: str, manifest: Manifest, withdrawn: set[TopicPartition], exact: Exact
) -> None:
    holdings.add(manifest, withdrawn)
    tags = tags_of(manifest)
    slices = slices_held(manifest.parts, manifest.files)
    for part, held in zip(manifest.parts, slices, strict=True):
        if part.plan.partition not in withdrawn:
            key = Incarnation(*part.plan.partition, tags.get(part.plan.partition.topic))
            account = books.account(key)
            _enter(account, group, manifest, part, [one for _, one in held])
            if is_among_others(part):  # for the rest others account, and in folders of times do so between its messages
                known = [*account.again, *(interval for some in account.by_group.values() for interval in some)]
                account.again += held_again(part, held, known, timed=manifest.layout.timed, exact=exact)


def _enter(account: Account, group: str, manifest: Manifest, part: ManifestPart, held: Sequence[Slice]) -> None:
    interval, run, rows = (part.plan.start, part.end), manifest.run, sum(one.rows for one in held)
    # That backfills hold it explains nothing: their own runs do.
    account.skipped += [(gap.start, gap.end) for gap in part.plan.skipped if gap.kind != "filled"]
    if manifest.kind != "backfill":
        account.passed += part.accounted
    if not is_among_others(part):
        account.by_group.setdefault(group, []).append(interval)
        if manifest.kind != "adoption":  # and without markers of transactions, which several may account for
            account.exported += [(run, one) for one in union((one.start, one.end) for one in held)]
    if not part.balanced or rows != part.rows + part.undecodable:
        account.problems.append(Problem(interval, f"run {run} does not account for every offset", group))
    if unexplained := part.gaps.get("unexplained"):
        why = f"run {run} found {unexplained} offsets missing, and no reason: it recorded that, and nothing fills them"
        account.problems.append(Problem(interval, why, group))


def _judge_stranger(lake: Lake, name: str) -> tuple[VerifyRow, Footer | None]:
    """A file that no export has named so, and that readers of the lake take for data, or stumble over."""
    footer: Footer | None = None
    try:
        footer = read_footer(lake.store, name)
    except UnopenedFileError as error:
        why = error.message.removeprefix(f"{lake.store.uri}/")
        return VerifyRow(*NOWHERE, f"{why}: what it holds is not known", mend="open"), None
    except UnreadableFileError:
        pass
    if footer is None or "topic" not in footer.told or not footer.slices:
        why = "is in no run's manifest, and readers take it for data"
        return VerifyRow(*NOWHERE, f"{name} {why}", mend="move"), None
    told, first = footer.told, footer.slices[0]
    why = f"holds what run {told.get('run', '')} wrote, and is not the file of its manifest: readers count it, too"
    where = (told["topic"], first.partition, first.start, first.end)
    return VerifyRow(*where, *NO_NUMBERS, f"{name} {why}", mend="move"), footer


def _judge_file(books: _Books, file: Published, look: Look, calendars: dict[Layout, Calendar]) -> None:
    told = file.told
    known = books.files.pop(file.name, None)
    slices = known.file.slices if known else look.footer.slices if look.footer else ()
    slices = slices or (Slice(told.partition, told.start, told.end, 0),)
    folder = file.name.rpartition("/")[0]
    for one in slices:
        account = books.account(Incarnation(told.topic, one.partition, told.tag))
        account.folders.setdefault(folder, []).append((one.start, one.end))
    for number in {one.partition for one in slices}:
        books.account(Incarnation(told.topic, number, told.tag)).seen += 1
    if known is None and look.footer is not None:
        _enter_unknown(books, file, look.footer, slices)
    account = books.account(Incarnation(told.topic, slices[0].partition, told.tag))
    interval = (slices[0].start, slices[0].end)
    problems = wrong_with(file, look, known)
    if known is None:
        footer = look.footer
        if problems:
            books.add_renamed(footer)
        run = "" if footer is None else footer.told.get("run", "")
        if footer is not None and _is_numbered(footer.run):
            by = books.holdings.replaced.get(file.name)
            can = by is None and not problems and decode_log(footer.told.get("log", "")) is not None
            why = f"{file.name} is in no run's manifest (it says: {run})"
            if by is not None:
                why = f"{file.name} was missing, run {by} has written again what it held, and it is there again"
            mend: Mend = "adopt" if can else "move"
            account.problems.append(Problem(interval, why, footer.told.get("group") if can else None, mend=mend))
            for one in slices if can else ():
                key = Incarnation(told.topic, one.partition, told.tag)
                books.account(key).orphaned.append((file.name, one))
        amiss: Mend = "move"
        if look.unopened is not None:
            amiss = "open"
            account.renamed.append(interval)  # as its name has it: a backfill takes that for there
        account.problems += [Problem(interval, f"{file.name}{why}", mend=amiss) for why in problems]
        return
    if look.footer is not None and [one[:3] for one in look.footer.slices] != [one[:3] for one in slices]:
        books.add_renamed(look.footer)  # under the name of another one
    if look.footer is not None and known.layout.timed:
        calendar = calendars.get(known.layout) or calendars.setdefault(known.layout, known.layout.calendar())
        problems += judge_times(look.footer, known.layout, calendar, file.name)
    mend = "move" if books.is_of_earlier_log(told.topic, told.tag) else "refill"
    mend = mend if look.unopened is None else "open"
    account.problems += [
        Problem(interval, f"{file.name}{why}", known.group, mend=mend, held=slices) for why in problems
    ]


def _enter_unknown(books: _Books, file: Published, footer: Footer, slices: tuple[Slice, ...]) -> None:
    """A file from before runs left manifests stands for itself."""
    if footer.run and not _is_numbered(footer.run):
        account = books.account(Incarnation(file.told.topic, slices[0].partition, file.told.tag))
        interval = (slices[0].start, slices[0].end)
        account.by_group.setdefault(footer.told.get("group", ""), []).append(interval)
        account.exported.append((footer.run, interval))
        account.passed.append(interval)
        account.rows += footer.metadata.num_rows


def _is_numbered(run: str) -> bool:
    return run.partition("-")[0].isdecimal() and run.count("-") == 1


def _judge_offsets(
    last: LastRun, group: str, offsets: Mapping[TopicPartition, int | None], books: _Books, note: Callable[[str], None]
) -> None:
    """Where a group stands elsewhere than its exports end, or those of a group that has gone on from there, or that
    alone tells of a partition. Ahead of a joined one it is as it should be: its other members have read what
    follows."""
    standing = {key: offset for key, offset in offsets.items() if offset is not None}
    told = {TopicPartition(topic, number) for topic, found in last.coverage.items() for number in found.partitions}
    for topic, number in sorted({*told, *standing}):
        if coverage := last.coverage.get(topic):
            offset = standing.get(TopicPartition(topic, number))
            whole = books.covered(topic, number, coverage.identity)
            covered = coverage.partitions.get(number, whole)
            account = books.account(Incarnation(topic, number, coverage.identity.tag))
            if (topic, number) not in told and not whole and not last.joined:
                _judge_untold(group, coverage.identity.tag, TopicPartition(topic, number), offset or 0, books)
            if not covered:
                continue
            if offset is None or offset != covered[-1][1]:
                # As an export sees it.
                found = of_log(books.lasts, topic, coverage.identity)
                exported, filled = spared(offset, union((*covered, *whole)), found, number)
                end = exported[-1][1] if exported else offset
                if filled and offset is not None and end is not None and offset <= end:
                    account.awaited.add(end)  # what is missing from there on is yet to be exported
                if filled and (not exported or offset == end):
                    if offset is not None:
                        note(
                            f"group {group} stands at {offset} of {topic}-{number}, and backfills hold what lies "
                            "further on: its next export goes on around that"
                        )
                    continue
                if filled:
                    covered = whole = exported
            end = covered[-1][1]
            if any(offset == high for _, high in (*covered, *whole)):
                continue
            if offset is None and any(low <= end < high for low, high in whole):
                continue
            if last.joined and offset is not None and offset > end:
                note(
                    f"group {group} stands at {offset} of {topic}-{number}, exported up to {end}: its last export was "
                    "joined, and other members have read what lies between"
                )
                continue
            where = "has no offset" if offset is None else f"stands at {offset}"
            low, high = sorted((end if offset is None else offset, end))
            ahead = offset is not None and offset > end
            why = f"group {group} {where}, exported up to {end}"
            account.standing.append(Problem((low, high), why, group, "ahead" if ahead else "behind"))


def _judge_untold(group: str, tag: str | None, partition: TopicPartition, offset: int, books: _Books) -> None:
    """The group stands in a partition of which nobody's last run knows anything: an export goes on from there. (Of a
    log that follows another one it asks, as the offset may be of that.)"""
    account = books.account(Incarnation(*partition, tag))
    if offset > 0 and tag is None and not (account.by_group or account.orphaned):
        why = f"group {group} stands at {offset}, and no run tells of this partition"
        account.standing.append(Problem((0, offset), why, group, mend=mend_for((0, offset), account)))
