"""What a lake's runs have left there, by their manifests: which offsets are held, and which files are to be there.

Pure. Runs are taken in their order: a later one may have filled what an earlier one passed over, or have written again
what was lost of it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Set
from typing import NamedTuple

from zkgroup.export.intervals import Interval
from zkgroup.export.layout import Layout
from zkgroup.export.rundata import Manifest, ManifestFile
from zkgroup.export.words import Lost
from zkgroup.protocol.names import TopicPartition

#: What was passed over for these reasons may still be in the log: a backfill takes it.
FILLABLE = frozenset({"moved", "latest"})


class Incarnation(NamedTuple):
    """One log of a partition: ``tag`` is the mark of its topic's incarnation in file names."""

    topic: str
    partition: int
    tag: str | None


class LiveFile(NamedTuple):
    """A file that is to be there. Of its ranges, those that were not written again elsewhere."""

    file: ManifestFile
    group: str
    run: str
    tag: str | None
    layout: Layout


class Holdings:
    """What decided runs hold; ``add`` them in their order, group by group."""

    def __init__(self) -> None:
        self.files: dict[str, LiveFile] = {}
        self._held: dict[Incarnation, list[Interval]] = {}

    def add(self, manifest: Manifest, withdrawn: Set[TopicPartition]) -> None:
        """A run; what was ``withdrawn`` of it is not there."""
        tags = tags_of(manifest)
        for part in manifest.parts:
            topic, partition = part.plan.partition
            if part.plan.partition in withdrawn:
                continue
            place = self._held.setdefault(Incarnation(topic, partition, tags.get(topic)), [])
            place += [(gap.start, gap.end) for gap in part.plan.skipped if gap.kind not in FILLABLE]
            if part.plan.again:
                for lost in part.plan.again:
                    self._forget(lost, partition)
            else:
                place.append((part.plan.start, part.end))
        for file in manifest.files:
            if not is_taken_back(file, withdrawn):
                self.files[file.name] = LiveFile(
                    file, manifest.group, manifest.run, tags.get(file.topic), manifest.layout
                )

    def _forget(self, lost: Lost, partition: int) -> None:
        live = self.files.get(lost.file)
        if live is None:
            return
        left = tuple(one for one in live.file.slices if (one.partition, one.start) != (partition, lost.start))
        if left:
            self.files[lost.file] = live._replace(file=live.file._replace(slices=left))
        else:
            del self.files[lost.file]

    def held(self, key: Incarnation) -> list[Interval]:
        """The offsets that are accounted for: exported, or gone for good."""
        return self._held.get(key, [])

    def lost(self, there: Collection[str], tags: Mapping[str, str | None]) -> dict[TopicPartition, list[Lost]]:
        """The ranges of files that are not ``there``, of the topics of ``tags`` in these incarnations."""
        found: dict[TopicPartition, list[Lost]] = {}
        for name, live in self.files.items():
            topic = live.file.topic
            if topic in tags and tags[topic] == live.tag and name not in there:
                for one in live.file.slices:
                    lost = Lost(name, one.start, one.end, one.rows)
                    found.setdefault(TopicPartition(topic, one.partition), []).append(lost)
        return found

    def lost_of_earlier(self, there: Collection[str], tags: Mapping[str, str | None]) -> list[str]:
        """Files that are not ``there``, of other incarnations of these topics: their logs are gone."""
        return [
            name
            for name, live in self.files.items()
            if live.file.topic in tags and tags[live.file.topic] != live.tag and name not in there
        ]


def tags_of(manifest: Manifest) -> dict[str, str | None]:
    """The marks of the run's topics."""
    topics = {part.plan.partition.topic for part in manifest.parts}
    known = {topic: found.identity for topic, found in manifest.coverage.items()} | dict(manifest.topics)
    return {topic: identity.tag for topic, identity in known.items() if topic in topics}


def is_taken_back(file: ManifestFile, withdrawn: Set[TopicPartition]) -> bool:
    """Whether the file went with what was taken back."""
    return any(TopicPartition(file.topic, one.partition) in withdrawn for one in file.slices)
