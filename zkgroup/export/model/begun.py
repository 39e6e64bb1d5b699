"""Where runs that came to nothing were to begin: what ``begun.json`` says of a group. Pure.

Where no offset of a group's tells where to begin, a run that is dropped would take that along: the next one begins
where the log does by then, and nobody would know what was there before.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from zkgroup.export.model.encoding import dump, identity_document, load, read_identity, unreadable, why_unreadable
from zkgroup.export.model.intervals import subtract
from zkgroup.export.model.rundata import Kind, Manifest, RunPlan, TopicIdentity
from zkgroup.protocol.names import TopicPartition
from zkgroup.shapes import require

#: As ``PartitionFacts.asked`` says it where it names no time.
EARLIEST = "earliest"
# A job that fails each time may name another time each time.
_TIMES = 100
_ASKED = re.compile(rf"{EARLIEST}|@-?[0-9]{{1,19}}", re.ASCII)


class Begun(NamedTuple):
    """A run of this ``kind`` was to read a partition of a ``cluster``'s log from ``offset`` to ``end``, as it was
    ``asked``."""

    kind: Kind
    cluster: str
    asked: str
    partition: TopicPartition
    identity: TopicIdentity
    offset: int
    end: int

    @property
    def question(self) -> tuple[Kind, TopicPartition, str]:
        """There is one note of each."""
        return self.kind, self.partition, self.asked

    def same_log(self, other: Begun) -> bool:
        """Whether both are of one log."""
        return self.cluster == other.cluster and self.identity.same(other.identity)


def begun_by(plan: RunPlan) -> list[Begun]:
    """Where a plan begins wherever the same command would begin elsewhere later on."""
    found: dict[TopicPartition, Begun] = {}
    for part in plan.partitions:
        if part.asked is None:
            continue
        offset = min([part.start, *(gap.start for gap in part.skipped if gap.kind == "retention")])
        identity = plan.topics[part.partition.topic]
        one = Begun(plan.kind, plan.cluster, part.asked, part.partition, identity, offset, part.end)
        found[part.partition] = _widest(found.get(part.partition, one), one)
    return list(found.values())


def together(known: Iterable[Begun], new: Iterable[Begun]) -> list[Begun]:
    """What is ``known`` with what is ``new``: of the same log, and as the same was asked, the first offset counts. Of
    very many times the latest are kept."""
    found = {one.question: one for one in known}
    for one in new:
        before = found.get(one.question)
        found[one.question] = _widest(before, one) if before is not None and before.same_log(one) else one
    times: dict[tuple[Kind, TopicPartition], list[Begun]] = {}
    for one in found.values():
        if one.asked != EARLIEST:
            times.setdefault((one.kind, one.partition), []).append(one)
    for some in times.values():
        for one in sorted(some, key=lambda one: int(one.asked[1:]))[:-_TIMES]:
            del found[one.question]
    return list(found.values())


def still_begun(known: Iterable[Begun], manifest: Manifest) -> list[Begun]:
    """What is left to tell once a run was carried out: of backfills what no run accounts for, from the first of it
    on; of exports, which move the group, nothing of what this one moved, wherever it began."""
    moved = {part.plan.partition for part in manifest.parts if manifest.kind == "export"}
    found: list[Begun] = []
    for one in known:
        topic = manifest.coverage.get(one.partition.topic)
        if one.kind == "export" or topic is None or not topic.identity.same(one.identity):
            lacking = [] if one.kind == "export" and one.partition in moved else [(one.offset, one.end)]
        else:
            lacking = subtract((one.offset, one.end), topic.partitions.get(one.partition.partition, ()))
        if lacking:
            found.append(one._replace(offset=lacking[0][0]))
    return found


def _widest(one: Begun, other: Begun) -> Begun:
    return other._replace(offset=min(one.offset, other.offset), end=max(one.end, other.end))


def encode_begun(begun: Iterable[Begun]) -> bytes:
    """The bytes of ``begun.json``."""
    return dump({"format": 1, "begun": [_document(one) for one in sorted(begun, key=lambda one: one.question)]})


def _document(one: Begun) -> dict[str, Any]:
    topic, partition = one.partition
    told = {"kind": one.kind, "cluster": one.cluster, "asked": one.asked, "log": identity_document(one.identity)}
    return told | {"topic": topic, "partition": partition, "offset": one.offset, "end": one.end}


def decode_begun(name: str, data: bytes) -> list[Begun]:
    """Read ``begun.json``; ``name`` is for messages. Raises ``DamagedDocumentError``."""
    try:
        return [_read(one) for one in load(data, name)["begun"]]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise unreadable(name, why_unreadable(error)) from None


def _read(found: Mapping[str, Any]) -> Begun:
    partition = TopicPartition(found["topic"], found["partition"])
    identity = read_identity(found["log"])
    one = Begun(found["kind"], found["cluster"], found["asked"], partition, identity, found["offset"], found["end"])
    require(one, Begun)
    if not _ASKED.fullmatch(one.asked) or min(one.offset, partition.partition) < 0:
        raise ValueError("no place in a log")
    return one
