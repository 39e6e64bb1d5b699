"""One group's look at a lake that others export to as well: what their runs account for, and what files tell where no
run does.

One group exports a topic to a lake. Another may go on where that one ends, under a name of its own, and the first one
may come back: what each has exported of a log counts for all of them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import NamedTuple

from zkgroup.errors import RefusedError
from zkgroup.export.lake.ahead import spared
from zkgroup.export.lake.lake import Lake, LastRun, of_log
from zkgroup.export.model.documents import decode_log
from zkgroup.export.model.intervals import Interval, union
from zkgroup.export.model.rundata import TopicIdentity
from zkgroup.export.model.shell import PARTITIONS, export_command, filling
from zkgroup.export.model.words import Disagreement, PartitionFacts, PartitionPlan
from zkgroup.protocol.names import TopicPartition
from zkgroup.words import listed

# Of the files with one mark so many are asked which log they are of.
_FOOTERS = 8


class LakeLog(NamedTuple):
    """How a lake knows a topic's log: by which mark in file names. ``follows``: it holds an earlier one of the topic,
    and nothing of this."""

    tag: str | None
    follows: bool = False


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
        return self._lake.of_groups(self._lake.last, but=self._own)

    # --- logs -------------------------------------------------------------------------------------------------------

    def logs(self, identities: Mapping[str, TopicIdentity], here: Collection[str]) -> dict[str, LakeLog]:
        """How the lake knows each topic's present log, alike for all groups. The mark is none for the first log that it
        has seen, that of the log's birth for others. The topic of this name of another cluster than ``here`` is no
        incarnation: its files are in the way."""
        return {topic: self._log(topic, now, here) for topic, now in identities.items()}

    def _log(self, topic: str, now: TopicIdentity, here: Collection[str]) -> LakeLog:
        known = self.last.coverage.get(topic)
        if known is not None and known.identity.same(now):
            return LakeLog(known.identity.tag)
        theirs = [(one.coverage[topic].identity, one.cluster) for one in self.others.values() if topic in one.coverage]
        ours = {None, *here}
        # Births tell within one cluster alone.
        if same := [found for found, where in theirs if found.same(now) and (where in ours or now.topic_id)]:
            return LakeLog(same[0].tag)
        if known is not None or any(where in ours for _, where in theirs):
            return LakeLog(f"{now.czxid:x}", follows=True)
        return LakeLog(None) if theirs else self._log_by_files(topic, now, here)

    def _log_by_files(self, topic: str, now: TopicIdentity, here: Collection[str]) -> LakeLog:
        """As the files tell, where no manifest does any more; those of older releases by their names alone."""
        names: dict[str | None, list[str]] = {}
        for file in self._lake.published(topic):
            some = names.setdefault(file.told.tag, [])
            if len(some) < _FOOTERS:
                some.append(file.name)
        birth = f"{now.czxid:x}"
        if birth in names:
            return LakeLog(birth)
        others = bool(set(names) - {None})
        for tag, some in names.items():
            found = next(filter(None, map(self._log_of, some)), None)
            if found is None:
                continue
            if found[1].same(now):
                return LakeLog(tag)
            others |= found[0] in here
        return LakeLog(birth, follows=True) if others else LakeLog(None)

    def _log_of(self, name: str) -> tuple[str, TopicIdentity] | None:
        # pyarrow: where there are manifests, or no files, a look does without.
        from zkgroup.export.lake.footer import UnreadableFileError, read_footer

        try:
            return decode_log(read_footer(self._lake.store, name).told.get("log", ""))
        except UnreadableFileError:
            return None

    def as_known(self, identities: Mapping[str, TopicIdentity], *, same: bool) -> dict[str, TopicIdentity]:
        """What is there now, with the births that the lake knows of the same logs; ``same``: all are, whatever their
        births, since their ZooKeeper was copied."""
        found = dict(identities)
        for topic, now in identities.items():
            lasts = [self.last] if topic in self.last.coverage or not same else [*self.others.values()]
            for known in [one.coverage[topic].identity for one in lasts if topic in one.coverage]:
                if same or known.same(now):
                    found[topic] = found[topic].after(known)
        return found

    def copied(self, facts: Iterable[PartitionFacts], identities: Mapping[str, TopicIdentity]) -> list[PartitionFacts]:
        """``facts``, of which none is of a topic that was made again, and those are to be told of whose births are new
        to the group's runs."""
        other = {
            topic
            for topic, found in self.last.coverage.items()
            if topic in identities and found.identity.czxid != identities[topic].czxid
        }
        return [replace(fact, remade=False, copied=fact.remade or fact.partition.topic in other) for fact in facts]

    # --- what is accounted for --------------------------------------------------------------------------------------

    def made_again(
        self, facts: Iterable[PartitionFacts], identities: Mapping[str, TopicIdentity], logs: Mapping[str, LakeLog],
        *, joins: bool,
    ) -> list[PartitionFacts]:  # fmt: skip
        """``facts``, of which those are of a topic that was made again whose offset may be of the log before: a group
        that was renamed, or copied, has offset nodes that are newer than the topic; and a partition may come later,
        which, where the group ``joins``, other members have read."""
        return [
            replace(fact, remade=True)
            if fact.committed is not None
            and (log := logs.get(fact.partition.topic)) is not None
            and (log.follows or (log.tag is not None and not joins and not self._is_known(fact, identities, log.tag)))
            else fact
            for fact in facts
        ]

    def _is_known(self, fact: PartitionFacts, identities: Mapping[str, TopicIdentity], tag: str) -> bool:
        """Whether anybody has exported something of a partition's present log."""
        topic, number = fact.partition
        if fact.coverage:
            return True
        if any(
            number in found.partitions for found in of_log([self.last, *self.others.values()], topic, identities[topic])
        ):
            return True
        return bool(self._lake.intervals(fact.partition, tag, frozenset()))

    def around_backfills(
        self, facts: Iterable[PartitionFacts], identities: Mapping[str, TopicIdentity]
    ) -> list[PartitionFacts]:
        """``facts`` with what backfills hold of what is yet to be exported: that is not in the way. What others hold is
        looked at only where the group does not stand at the end of all that its own runs do."""
        return [
            self._around(fact, identities[fact.partition.topic])
            if not fact.remade and fact.coverage and fact.coverage[-1][1] != fact.committed
            else fact
            for fact in facts
        ]

    def _around(self, fact: PartitionFacts, now: TopicIdentity) -> PartitionFacts:
        found = of_log([self.last, *self.others.values()], fact.partition.topic, now)
        coverage, filled = spared(fact.committed, fact.coverage, found, fact.partition.partition)
        return replace(fact, coverage=coverage, filled=filled)

    def complete(
        self, facts: Iterable[PartitionFacts], identities: Mapping[str, TopicIdentity],
        tags: Mapping[str, str | None], policy: Disagreement,
    ) -> list[PartitionFacts]:  # fmt: skip
        """``facts`` with what others have exported, wherever that matters: where the group stands where their exports
        end, or something is to be done about it if it does not."""
        return [
            fact
            if fact.remade or fact.partition.topic not in identities
            else self._completed(fact, identities[fact.partition.topic], tags.get(fact.partition.topic), policy)
            for fact in facts
        ]

    def _completed(
        self, fact: PartitionFacts, now: TopicIdentity, tag: str | None, policy: Disagreement
    ) -> PartitionFacts:
        topic = fact.partition.topic
        agrees = any(fact.committed == high for _, high in fact.coverage)
        if agrees and (fact.log_end == fact.committed or policy == "fail"):
            return fact
        theirs = of_log(self.others.values(), topic, now)
        held = [interval for found in theirs for interval in found.partitions.get(fact.partition.partition, ())]
        if topic not in self.last.coverage:
            fresh = bool(theirs) and not any(fact.partition.partition in found.partitions for found in theirs)
            fact = replace(fact, fresh=fresh)
            if not theirs:
                return self._by_files(fact, tag)
        fact = replace(fact, fresh=fact.fresh and not held)
        whole = union((*fact.coverage, *held))
        if policy == "fail" and all(fact.committed != high for _, high in whole):
            return fact  # refused by the name of whoever is in the way
        return replace(fact, coverage=whole)

    def _by_files(self, fact: PartitionFacts, tag: str | None) -> PartitionFacts:
        """What no manifest tells of any more files still do: a group that stands behind what they hold is refused by
        their names, one that stands ahead of it was moved."""
        held = union(self._lake.intervals(fact.partition, tag, frozenset()))
        ahead = fact.committed is not None and bool(held) and fact.committed > held[-1][1]
        return replace(fact, coverage=held) if ahead else fact

    def warnings(
        self, parts: Iterable[PartitionPlan], identities: Mapping[str, TopicIdentity], tags: Mapping[str, str | None]
    ) -> Iterator[str]:
        """What is to be said of an export that begins where no run tells what was exported before."""
        destination = self._lake.store.destination
        if untold := self._untold(identities, tags):
            yield (
                f"{self._lake.store.uri}/{untold[0]} is in no run's manifest, nor is any file of its topic: "
                f"{export_command(destination, '--verify')} tells how they are entered"
            )
        if begun := dict(self._begun(parts, identities)):
            where = listed([f"{offset} of {partition}" for partition, offset in begun.items()])
            fill = filling({partition: (0, begun[partition]) for partition in sorted(begun)[:PARTITIONS]})
            command = export_command(destination, fill, self._own, {partition.topic for partition in begun})
            these = "this partition" if len(begun) == 1 else "these partitions"
            yield (
                f"group {self._own} stands at {where}, and no run tells of {these}: if what lies below was exported, "
                f"and is lost, {command} exports it again"
            )

    def _begun(
        self, parts: Iterable[PartitionPlan], identities: Mapping[str, TopicIdentity]
    ) -> Iterator[tuple[TopicPartition, int]]:
        """The partitions that nobody's runs know, of topics whose present logs the group's own know, with the group's
        offset. What a joined group's other members export is in no run."""
        for part in parts:
            topic, number = part.partition
            now, known = identities.get(topic), self.last.coverage.get(topic)
            if now is None or known is None or self.last.joined or not (part.commits and part.committed):
                continue
            if known.identity.same(now) and not any(gap.kind == "recreated" for gap in part.skipped):
                found = of_log([self.last, *self.others.values()], topic, now) if number not in known.partitions else ()
                if found and not any(number in one.partitions for one in found):
                    yield part.partition, part.committed

    def _untold(self, identities: Mapping[str, TopicIdentity], tags: Mapping[str, str | None]) -> list[str]:
        """Of each topic that has files of its present log here, and no run that tells of it: one of them."""
        lasts = [self.last, *self.others.values()]
        firsts = (
            next((file.name for file in self._lake.published(topic) if file.told.tag == tags[topic]), None)
            for topic, now in identities.items()
            if not of_log(lasts, topic, now)
        )
        return [name for name in firsts if name is not None]

    def refuse_others(self, parts: Iterable[PartitionPlan], identities: Mapping[str, TopicIdentity]) -> None:
        """Raise ``RefusedError`` where the group begins a partition that another one has exported here, and not just
        where that one's export ends (as a group that was renamed does): what lies between would be in no run. So where
        it comes to what another group accounts for, whether the files are there or not."""
        for part in parts:
            topic, number = part.partition
            identity = identities.get(topic)
            covered = self._covered(part, identity)
            if part.start == part.end and covered:
                continue
            held = {
                group: known
                for group, theirs in self.others.items()
                if (known := theirs.coverage.get(topic)) is not None
                and identity is not None
                and known.identity.same(identity)
                and known.partitions.get(number)
            }
            ends = {high for known in held.values() for _, high in known.partitions[number]}
            # Where the group stood: what retention took from there on is recorded.
            begin = next((gap.start for gap in part.skipped if gap.kind == "retention"), part.start)
            for group, known in sorted(held.items(), key=lambda one: -one[1].partitions[number][-1][1]):
                intervals = known.partitions[number]
                among = part.start < part.end and any(low < part.end and part.start < high for low, high in intervals)
                if among or (not covered and begin not in ends and known.exported(number)):
                    raise self._taken(part, group, intervals[-1][1])

    def _covered(self, part: PartitionPlan, now: TopicIdentity | None) -> Sequence[Interval]:
        """What the group's own runs account for; nothing of a partition that they do not know, or of another log."""
        known = self.last.coverage.get(part.partition.topic)
        if known is None or now is None or not known.identity.same(now):
            return ()
        return known.partitions.get(part.partition.partition, ())

    def _taken(self, part: PartitionPlan, group: str, end: int) -> RefusedError:
        over = "as --on-disagreement lake does"
        if any(gap.kind == "recreated" for gap in part.skipped):
            over = f"as --on-recreated committed does once reset-offsets has moved group {self._own} there"
        return RefusedError(
            f"group {group} has exported {part.partition} to {self._lake.store.uri} up to offset {end} (run "
            f"{self.others[group].run}), and group {self._own} would begin at {part.start}",
            f"one group exports a topic to a destination: go on with group {group}, choose another --to, or begin at "
            f"{end} to take over from it, {over}",
        )
