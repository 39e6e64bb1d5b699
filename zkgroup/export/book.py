"""One group's look at a lake that others export to as well: what their runs account for, and what files tell where no
run does.

One group exports a topic to a lake. Another may go on where that one ends, under a name of its own, and the first one
may come back: what each has exported of a log counts for all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import islice

from zkgroup.errors import RefusedError
from zkgroup.export.documents import decode_log
from zkgroup.export.intervals import Interval, union
from zkgroup.export.lake import Lake, LastRun
from zkgroup.export.rundata import TopicIdentity
from zkgroup.export.words import Disagreement, PartitionFacts, PartitionPlan

# Of the files with one mark so many are asked which log they are of.
_FOOTERS = 8


class Book:
    """The runs of group ``own``, and what it must know of the others'. Read when it is asked for, and only then: a look
    that finds nothing new reads no manifests of others. Raises ``DamagedDocumentError`` for one that cannot be read."""

    def __init__(self, lake: Lake, own: str) -> None:
        self._lake = lake
        self._own = own

    @cached_property
    def last(self) -> LastRun:
        """The group's own."""
        return self._lake.last(self._own)

    @cached_property
    def others(self) -> Mapping[str, LastRun]:
        """The last runs of all other groups."""
        return {group: self._lake.last(group) for group in self._lake.groups() if group != self._own}

    # --- marks ------------------------------------------------------------------------------------------------------

    def tags(self, identities: Mapping[str, TopicIdentity], cluster: Callable[[], str]) -> dict[str, str | None]:
        """The mark of each topic's incarnation in file names, alike for all groups: none for the first that the lake
        has seen, that of the log's birth for others. Another cluster's topic of this name is no incarnation: its files
        are in the way."""
        return {topic: self._tag(topic, now, cluster) for topic, now in identities.items()}

    def _tag(self, topic: str, now: TopicIdentity, cluster: Callable[[], str]) -> str | None:
        known = self.last.coverage.get(topic)
        if known is not None and known.identity.same(now):
            return known.identity.tag
        theirs = [(one.coverage[topic].identity, one.cluster) for one in self.others.values() if topic in one.coverage]
        if same := [found for found, _ in theirs if found.same(now)]:
            return same[0].tag
        if known is not None or any(where in (None, cluster()) for _, where in theirs):
            return f"{now.czxid:x}"
        return None if theirs else self._tag_of_files(topic, now, cluster)

    def _tag_of_files(self, topic: str, now: TopicIdentity, cluster: Callable[[], str]) -> str | None:
        """As the files tell, where no manifest does any more; those of older releases by their names alone."""
        names: dict[str | None, list[str]] = {}
        for file in self._lake.published(topic):
            some = names.setdefault(file.told.tag, [])
            if len(some) < _FOOTERS:
                some.append(file.name)
        birth = f"{now.czxid:x}"
        if birth in names:
            return birth
        others = bool(set(names) - {None})
        for tag, some in names.items():
            found = next(islice(filter(None, map(self._log_of, some)), 1), None)
            if found is None:
                continue
            if found[1].same(now):
                return tag
            others |= found[0] == cluster()
        return birth if others else None

    def _log_of(self, name: str) -> tuple[str, TopicIdentity] | None:
        # pyarrow: where there are manifests, or no files, a look does without.
        from zkgroup.export.footer import UnreadableFileError, read_footer

        try:
            return decode_log(read_footer(self._lake.store, name).told.get("log", ""))
        except UnreadableFileError:
            return None

    # --- what is accounted for --------------------------------------------------------------------------------------

    def complete(
        self, facts: Iterable[PartitionFacts], identities: Mapping[str, TopicIdentity], policy: Disagreement
    ) -> list[PartitionFacts]:
        """``facts`` with what others have exported, wherever that matters: where the group stands where their exports
        end, or something is to be done about it if it does not."""
        return [self._completed(fact, identities.get(fact.partition.topic), policy) for fact in facts]

    def _completed(self, fact: PartitionFacts, now: TopicIdentity | None, policy: Disagreement) -> PartitionFacts:
        topic = fact.partition.topic
        if now is None or fact.remade:
            return fact
        agrees = any(fact.committed == high for _, high in fact.coverage)
        if agrees and (fact.log_end == fact.committed or policy == "fail"):
            return fact
        theirs = [one.coverage[topic] for one in self.others.values() if topic in one.coverage]
        theirs = [found for found in theirs if found.identity.same(now)]
        held = [interval for found in theirs for interval in found.partitions.get(fact.partition.partition, ())]
        if topic not in self.last.coverage:
            fresh = bool(theirs) and not any(fact.partition.partition in found.partitions for found in theirs)
            fact = replace(fact, fresh=fresh)
        fact = replace(fact, fresh=fact.fresh and not held)
        whole = union((*fact.coverage, *held))
        if policy == "fail" and all(fact.committed != high for _, high in whole):
            return fact  # refused by the name of whoever is in the way
        return replace(fact, coverage=whole)

    def refuse_others(self, parts: Iterable[PartitionPlan], identities: Mapping[str, TopicIdentity]) -> None:
        """Raise ``RefusedError`` where the group begins a partition that another one has exported here, and not just
        where that one's export ends (as a group that was renamed does): what lies between would be in no run. So where
        it comes to what another group accounts for, whether the files are there or not."""
        for part in parts:
            covered = self._covered(part)
            if part.start == part.end and covered:
                continue
            topic, number = part.partition
            identity = identities.get(topic)
            held = {
                group: known.partitions[number]
                for group, theirs in self.others.items()
                if (known := theirs.coverage.get(topic)) is not None
                and identity is not None
                and known.identity.same(identity)
                and known.partitions.get(number)
            }
            ends = {high for intervals in held.values() for _, high in intervals}
            for group, intervals in sorted(held.items(), key=lambda one: -one[1][-1][1]):
                among = part.start < part.end and any(low < part.end and part.start < high for low, high in intervals)
                if among or (not covered and part.start not in ends):
                    raise self._taken(part, group, intervals[-1][1])

    def _covered(self, part: PartitionPlan) -> Sequence[Interval]:
        """What the group's own runs account for; nothing of a partition that they do not know."""
        known = self.last.coverage.get(part.partition.topic)
        return () if known is None else known.partitions.get(part.partition.partition, ())

    def _taken(self, part: PartitionPlan, group: str, end: int) -> RefusedError:
        return RefusedError(
            f"group {group} has exported {part.partition} to {self._lake.store.uri} up to offset {end} (run "
            f"{self.others[group].run}), and group {self._own} would begin at {part.start}",
            f"one group exports a topic to a destination: go on with group {group}, choose another --to, or begin at "
            f"{end} to take over from it, as --on-disagreement lake does",
        )
