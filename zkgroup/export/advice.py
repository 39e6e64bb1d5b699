"""What mends what ``verify`` finds, in commands that can be pasted; pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from zkgroup.export.destination import Destination
from zkgroup.export.intervals import Interval
from zkgroup.export.layout import Layout
from zkgroup.export.shell import PARTITIONS, export_command, filling
from zkgroup.export.verify import VerifyRow
from zkgroup.protocol.names import TopicPartition
from zkgroup.words import listed

_GROUPS: Final = 3  # more are not named one by one


def remedy_for(problems: Iterable[VerifyRow], destination: Destination, orphaned: Layout | None = None) -> str:
    """What mends these: files and manifests by a backfill of each group that had exported them, where a group stands by
    saying whom the next export is to believe. ``orphaned``: the layout of files that no manifest tells it of any more;
    once they are moved away, the commands have to."""
    layout = "" if orphaned in (None, Layout()) else f" {orphaned.told()}"
    found = list(problems)
    ways = [f"finish what is unfinished ({export_command(destination, '--status')})"]
    if damaged := [row for row in found if row.stands is None]:
        in_the_way = not all(row.gone for row in damaged)
        if in_the_way:
            ways.append("move away what is damaged or in no manifest")
        commands = [_backfill(destination, group, rows, layout) for group, rows in _by_group(damaged).items()]
        if commands:
            then = "then " if in_the_way else ""
            ways.append(
                f"{then}{listed(commands, ' and ', most=_GROUPS)} exports again what is missing; what no log has any "
                "more is refused, and recorded as lost with --skip-lost"
            )
    standing = [row for row in found if row.stands is not None]
    ahead = [row for row in standing if row.stands == "ahead"]
    if standing:
        on = _moved(standing, destination, "lake")
        ways.append(f"if the group was moved: {on} goes on where its exports end")
    if ahead:
        ways.append(f"{_moved(ahead, destination, 'group')} goes on where it stands, and notes the gap")
    if len(ahead) < len(standing):
        ways.append("to have the messages again choose another --to")
    return "; ".join(ways)


def _by_group(rows: Iterable[VerifyRow]) -> Mapping[str, list[VerifyRow]]:
    """What groups are known to have exported."""
    found: dict[str, list[VerifyRow]] = {}
    for row in rows:
        if row.group is not None:
            found.setdefault(row.group, []).append(row)
    return dict(sorted(found.items()))


def _topics(rows: Iterable[VerifyRow]) -> set[str]:
    """The topics that are concerned; none where one row may concern any."""
    topics = {row.topic for row in rows}
    return set() if None in topics else {topic for topic in topics if topic is not None}


def _backfill(destination: Destination, group: str, rows: Iterable[VerifyRow], layout: str) -> str:
    """Of the very offsets where manifests tell of them: --verify then names what is left of very many. Once a file is
    away that none tells of, nobody knows of it any more: then it is all in one command, and no more than the group has
    committed (a run that was forgotten had not)."""
    found = list(rows)
    ranges: dict[TopicPartition, Interval] = {}
    for row in found:
        for key, (low, high) in _concerned(row):
            before = ranges.get(key, (low, high))
            ranges[key] = min(low, before[0]), max(high, before[1])
    known = all(row.listed and row.topic is not None for row in found)
    named = dict(sorted(ranges.items())[:PARTITIONS]) if known or len(ranges) <= PARTITIONS else {}
    topics = {key.topic for key in named}
    exact = export_command(destination, f"{filling(named)}{layout}", group, topics)
    if known:
        return exact
    if any(row.topic is None for row in found):  # a manifest that cannot be read may have told of more
        command = export_command(destination, f"{filling({})}{layout}", group)
    else:
        command = export_command(destination, f"{filling(named, until_committed=True)}{layout}", group, topics)
    return f"{command} (where there is no such group any more {exact})" if named else command


def _concerned(row: VerifyRow) -> Iterable[tuple[TopicPartition, Interval]]:
    """What is to be exported again; nothing where the row does not tell."""
    if row.topic is None:
        return
    if row.held:
        for one in row.held:
            yield TopicPartition(row.topic, one.partition), (one.start, one.end)
    elif row.partition is not None and row.start is not None and row.end is not None:
        yield TopicPartition(row.topic, row.partition), (row.start, row.end)


def _moved(rows: Iterable[VerifyRow], destination: Destination, believed: str) -> str:
    commands = [
        export_command(destination, f"--on-disagreement {believed}", group, _topics(some))
        for group, some in _by_group(rows).items()
    ]
    return listed(commands, " and ", most=_GROUPS)
