"""Is everything there, once? The manifests of all runs, the names and footers of all files, held against each other.

Nothing of a file is read but its footer: what it says of itself, how many rows it has, and the offsets of each row
group. That is enough to see what is missing, doubled, foreign or changed, for every offset that was ever exported.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from zkgroup.export.documents import ManifestFile, ManifestPart, TopicIdentity
from zkgroup.export.history import decided
from zkgroup.export.intervals import Interval, holes, overlaps, subtract, union
from zkgroup.export.lake import Lake, Published
from zkgroup.protocol.names import TopicPartition


@dataclass(frozen=True, slots=True)
class VerifyRow:
    """A partition as a whole, without a ``problem``; or a problem with offsets ``[start, end)`` of it.

    ``gaps``: offsets that are accounted for and are no messages, ``skipped``: those left out knowingly.
    """

    topic: str
    partition: int
    start: int
    end: int
    rows: int | None
    gaps: int | None
    skipped: int | None
    files: int | None
    problem: str | None


class _Key(NamedTuple):
    """One incarnation of a partition."""

    topic: str
    partition: int
    tag: str | None


@dataclass
class _Account:
    """What manifests tell of a partition."""

    by_group: dict[str, list[Interval]] = field(default_factory=dict)
    skipped: list[Interval] = field(default_factory=list)
    rows: int = 0
    gaps: int = 0
    files: dict[str, tuple[ManifestFile, str]] = field(default_factory=dict)  # those that were not seen yet
    seen: int = 0
    problems: list[tuple[Interval, str]] = field(default_factory=list)


def verify(lake: Lake, committed: Mapping[str, Mapping[TopicPartition, int | None]] | None = None) -> list[VerifyRow]:
    """One row for each partition, then its problems. ``committed``: what groups have committed, where that is to be
    held against what was exported, too."""
    accounts = _accounts(lake)
    for partition in lake.partitions():
        for file in lake.published(partition):
            key = _Key(*partition, file.tag)
            account = accounts.setdefault(key, _Account())
            account.problems += _judge_file(lake, partition, file, account)
    for group, offsets in (committed or {}).items():
        _judge_offsets(lake, group, offsets, accounts)
    rows: list[VerifyRow] = []
    for key in sorted(accounts, key=lambda key: (key.topic, key.partition, key.tag or "")):
        rows += _rows(key, accounts[key])
    return rows


def _accounts(lake: Lake) -> dict[_Key, _Account]:
    accounts: dict[_Key, _Account] = {}
    for group in lake.groups():
        for manifest, withdrawn in decided(lake, group):
            tags = _tags(manifest.coverage.items(), manifest.parts)
            for part in manifest.parts:
                if part.plan.partition in withdrawn:
                    continue
                key = _Key(*part.plan.partition, tags.get(part.plan.partition.topic))
                _enter(accounts.setdefault(key, _Account()), group, manifest.run, part)
    return accounts


def _tags(coverage: Iterable[tuple[str, Any]], parts: Iterable[ManifestPart]) -> dict[str, str | None]:
    topics = {part.plan.partition.topic for part in parts}
    identities: dict[str, TopicIdentity] = {topic: found.identity for topic, found in coverage if topic in topics}
    return {topic: identity.tag for topic, identity in identities.items()}


def _enter(account: _Account, group: str, run: str, part: ManifestPart) -> None:
    interval = (part.plan.start, part.end)
    account.by_group.setdefault(group, []).append(interval)
    account.skipped += [(gap.start, gap.end) for gap in part.plan.skipped]
    account.rows += part.rows
    account.gaps += sum(part.gaps.values())
    if not part.balanced:
        account.problems.append((interval, f"run {run} does not account for every offset"))
    if unexplained := part.gaps.get("unexplained"):
        account.problems.append((interval, f"run {run} found {unexplained} offsets missing, and no reason"))
    for file in part.files:
        account.files[file.name] = (file, run)
        if not (part.plan.start <= file.start < file.end <= part.end):
            account.problems.append(((file.start, file.end), f"{file.name} is not of the range of run {run}"))


def _judge_file(
    lake: Lake, partition: TopicPartition, file: Published, account: _Account
) -> Iterator[tuple[Interval, str]]:
    interval = (file.start, file.end)
    expected = account.files.pop(file.name, None)
    account.seen += 1
    try:
        metadata = pq.read_metadata(lake.store.address(file.name))
    except (OSError, pa.ArrowInvalid) as error:
        yield interval, f"{file.name} cannot be read: {str(error).splitlines()[0]}"
        return
    told = {key.decode(): value.decode("utf-8", "replace") for key, value in (metadata.metadata or {}).items()}
    if expected is None:
        run = told.get("zkgroup.run", "")
        if not run:
            yield interval, f"{file.name} was not made by an export"
        elif _is_numbered(run):
            yield interval, f"{file.name} is in no run's manifest (it says: {run})"
        else:  # from before runs left manifests
            account.by_group.setdefault(told.get("zkgroup.group", ""), []).append(interval)
            account.rows += metadata.num_rows
            account.gaps += file.end - file.start - metadata.num_rows
    else:
        planned, run = expected
        size = lake.store.size(file.name)
        if size != planned.bytes:
            yield interval, f"{file.name} has {size} bytes, run {run} wrote {planned.bytes}"
        if metadata.num_rows != planned.rows:
            yield interval, f"{file.name} has {metadata.num_rows} rows, run {run} wrote {planned.rows}"
    says = tuple(told.get(f"zkgroup.{name}") for name in ("topic", "partition", "start", "end"))
    if says != (partition.topic, str(partition.partition), str(file.start), str(file.end)):
        yield interval, f"{file.name} says that it is {says[0]}-{says[1]} {says[2]} to {says[3]}"
    yield from ((interval, f"{file.name}: {why}") for why in _judge_groups(metadata, interval))


def _is_numbered(run: str) -> bool:
    return run.rpartition("@")[2].partition("-")[0].isdecimal() and run.rpartition("@")[2].count("-") == 1


def _judge_groups(metadata: Any, interval: Interval) -> Iterator[str]:
    """What is wrong with the row groups' offsets: they rise, lie in the interval, and leave room for every row."""
    position = interval[0]
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        columns = (group.column(i) for i in range(group.num_columns))
        found = next((c.statistics for c in columns if c.path_in_schema == "offset"), None)
        if found is None or not found.has_min_max:
            yield f"row group {number} does not tell its offsets"
            return
        if found.min < position or found.max >= interval[1] or found.max - found.min + 1 < group.num_rows:
            yield f"row group {number} has {group.num_rows} rows, offsets {found.min} to {found.max}, behind {position}"
        position = found.max + 1


def _judge_offsets(
    lake: Lake, group: str, offsets: Mapping[TopicPartition, int | None], accounts: dict[_Key, _Account]
) -> None:
    for topic, coverage in lake.last(group).coverage.items():
        for number, covered in coverage.partitions.items():
            if not covered:
                continue
            offset, end = offsets.get(TopicPartition(topic, number)), covered[-1][1]
            if offset == end or any(offset == high for _, high in covered):
                continue
            account = accounts.setdefault(_Key(topic, number, coverage.identity.tag), _Account())
            where = "has no offset" if offset is None else f"stands at {offset}"
            low, high = sorted((end if offset is None else offset, end))
            account.problems.append(((low, high), f"group {group} {where}, exported up to {end}"))


def _rows(key: _Key, account: _Account) -> Iterator[VerifyRow]:
    everything = [interval for found in account.by_group.values() for interval in found]
    known = union([*everything, *account.skipped])
    problems = list(account.problems)
    for name, (file, run) in account.files.items():
        problems.append(((file.start, file.end), f"{name} of run {run} is missing"))
    problems += [(twice, "exported twice") for twice in overlaps(i for i in everything if i[0] < i[1])]
    for group, found in account.by_group.items():
        for hole in holes([*found, *account.skipped]):
            others = (i for name, theirs in account.by_group.items() if name != group for i in theirs)
            problems += [(left, f"in no run of group {group}") for left in subtract(hole, others)]
    low, high = (known[0][0], known[-1][1]) if known else (0, 0)
    skipped = sum(end - start for start, end in account.skipped)
    if everything:
        yield VerifyRow(key.topic, key.partition, low, high, account.rows, account.gaps, skipped, account.seen, None)
    for (start, end), why in sorted(problems):
        yield VerifyRow(key.topic, key.partition, start, end, None, None, None, None, why)
