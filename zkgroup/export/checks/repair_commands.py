"""The commands that mend what ``verify`` has found. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from zkgroup.errors import Remedy
from zkgroup.export.checks.verify import Mend, VerifyRow
from zkgroup.export.model.address import Address
from zkgroup.export.model.export_command import PARTITIONS, backfill_options, export_command
from zkgroup.export.model.intervals import Interval, union
from zkgroup.protocol.names import TopicPartition
from zkgroup.shell_commands import Command

_BY_HAND: Final[Mapping[Mend | None, str]] = {
    "person": "restore what was changed from a copy, then move files that are in no record out of the destination",
    "file": "let this user read the files; restore damaged ones from a copy; without one, move"
    " them out of the destination, and --verify prints the command that writes them again",
    "table": "restore the table to the version before that change, unless the change was intended",
}
_COMMANDS: Final = 3


def remedy_for(problems: Iterable[VerifyRow], address: Address, schemas: Sequence[str] = ()) -> Remedy:
    """What is to be done, in the order in which it has to be: by hand, then commands. ``schemas``: the options that an
    export there needs."""
    fills: dict[tuple[str, str], dict[TopicPartition, list[Interval]]] = {}
    words: list[str] = []
    continuing: dict[Command, None] = {}
    finishing: dict[Command, None] = {}
    for row in problems:
        if (by_hand := _BY_HAND.get(row.mend)) and by_hand not in words:
            words.insert(0, by_hand)
        if row.group is None or row.topic is None or row.partition is None or row.start is None or row.end is None:
            continue
        if row.mend == "backfill":
            ranges = fills.setdefault((row.group, row.topic), {})
            ranges.setdefault(TopicPartition(row.topic, row.partition), []).append((row.start, row.end))
        elif row.mend == "mismatch":
            continuing[export_command(address, "--on-mismatch", "lake", *schemas, group=row.group)] = None
        elif row.mend == "export":
            finishing[export_command(address, group=row.group)] = None
    commands = [
        export_command(
            address, *backfill_options(dict(sorted(ranges.items())[:PARTITIONS])), *schemas, group=group, topics=[topic]
        )
        for (group, topic), partitions in sorted(fills.items())
        for ranges in _separate(partitions)
    ]
    if finishing:
        words.append("finish the run")
    if continuing:
        words.append("continue where the exports end")
    if commands:
        more = f" (the first {_COMMANDS} commands of {len(commands)})" if len(commands) > _COMMANDS else ""
        words.append(f"write what is missing again{more}")
    return Remedy("; ".join(words), *finishing, *continuing, *commands[:_COMMANDS])


def _separate(partitions: Mapping[TopicPartition, Iterable[Interval]]) -> Iterator[dict[TopicPartition, Interval]]:
    """One interval of each partition at a time: what lies between two may have been left out knowingly."""
    merged = {partition: union(intervals) for partition, intervals in partitions.items()}
    for number in range(max(map(len, merged.values()), default=0)):
        yield {partition: found[number] for partition, found in merged.items() if number < len(found)}
