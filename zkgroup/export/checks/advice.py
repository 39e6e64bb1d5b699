"""What mends what ``verify`` finds, in commands that can be pasted; pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from zkgroup.export.checks.verify import VerifyRow
from zkgroup.export.model.destination import Destination
from zkgroup.export.model.intervals import Interval, union
from zkgroup.export.model.shell import PARTITIONS, export_command, filling
from zkgroup.protocol.names import TopicPartition
from zkgroup.words import listed

_GROUPS: Final = 3  # more are not named one by one
_BACKFILLS: Final = 10


def remedy_for(problems: Iterable[VerifyRow], destination: Destination, *, unfinished: bool = True) -> str:
    """What mends these: what is in the way is moved, files that no manifest names are adopted, what is missing is
    filled by a backfill of the group that had exported it; where a group stands elsewhere by saying whom the next
    export is to believe. ``unfinished``: exports may be."""
    found = list(problems)
    ways = [f"finish what is unfinished ({export_command(destination, '--status')})"] if unfinished else []
    if any(row.mend in ("move", "refill", "readopt") for row in found):
        ways.append("restore what is damaged from a copy, put back what was renamed or moved, or move it away")
    if any(row.mend == "open" for row in found):
        ways.append("let this user read what cannot be read, if its store answers, or move it out of the destination")
    if any(row.mend == "undo" for row in found):
        ways.append(
            "of what is there twice move one file away with the folder of the run that wrote it (its footer names it)"
        )
    if orphans := [row for row in found if row.mend in ("adopt", "readopt")]:
        commands = [export_command(destination, "--adopt", group) for group in _by_group(orphans)]
        them = "enters whole files that no manifest names, as their footers tell"
        ways.append(f"{listed(commands, ' and ', most=_GROUPS)} {them}")
    missing = [row for row in found if row.mend in ("fill", "refill")]
    if commands := [one for group, rows in _by_group(missing).items() for one in _backfills(destination, group, rows)]:
        damaged = ", and what is damaged once that is moved away" * any(row.mend == "refill" for row in missing)
        ways.append(
            f"{listed(commands, ' and ', most=_BACKFILLS)} exports again what is missing{damaged}; what no log has any "
            "more is refused, and recorded as lost with --skip-lost, and of a topic that is gone only a copy brings it "
            "back"
        )
    standing = [row for row in found if row.stands is not None]
    behind = {(row.group, row.topic) for row in standing if row.stands == "behind"}
    # Where it stands behind, too, it cannot be believed.
    ahead = [row for row in standing if row.stands == "ahead" and (row.group, row.topic) not in behind]
    if standing:
        on = _moved(standing, destination, "lake")
        ways.append(f"if the group was moved: {on} goes on where its exports end")
    if ahead:
        ways.append(f"{_moved(ahead, destination, 'group')} goes on where it stands, and notes the gap")
    if behind:
        ways.append("to have the messages again choose another --to")
    return "; ".join(ways) or "no log, and nothing in the lake, mends that: restore it from a copy, if there is one"


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


def _backfills(destination: Destination, group: str, rows: Iterable[VerifyRow]) -> Iterator[str]:
    """Of the very offsets, and no others: what lies between them may have been left out knowingly. For each topic
    apart: one that is gone stops none of the others. --verify then names what is left of very many."""
    topics: dict[str, dict[TopicPartition, list[Interval]]] = {}
    for row in rows:
        for key, interval in _concerned(row):
            topics.setdefault(key.topic, {}).setdefault(key, []).append(interval)
    for topic, ranges in sorted(topics.items()):
        whole = {key: union(ranges[key]) for key in sorted(ranges)[:PARTITIONS]}
        for place in range(max(map(len, whole.values()), default=0)):
            named = {key: intervals[place] for key, intervals in whole.items() if place < len(intervals)}
            yield export_command(destination, filling(named), group, (topic,))


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
