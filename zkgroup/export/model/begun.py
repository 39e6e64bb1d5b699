"""Where runs that came to nothing were to begin: what ``begun.json`` says of a group. Pure.

Where no offset of a group's tells where to begin, a run that is dropped would take that along: the next one begins
where the log does by then, and nobody would know what was there before.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from zkgroup.export.model.encoding import dump, identity_document, load, read_identity, unreadable, why_unreadable
from zkgroup.export.model.rundata import Kind, RunPlan, TopicIdentity
from zkgroup.protocol.names import TopicPartition
from zkgroup.shapes import require

#: As ``PartitionFacts.asked`` says it where it names no time.
EARLIEST = "earliest"


class Begun(NamedTuple):
    """A run of this ``kind`` was to read a partition of a ``cluster``'s log from ``offset`` on, as it was ``asked``."""

    kind: Kind
    cluster: str
    asked: str
    partition: TopicPartition
    identity: TopicIdentity
    offset: int

    @property
    def _place(self) -> tuple[Kind, TopicPartition, bool]:
        """What it takes, whatever was said before: of times only the last is kept."""
        return self.kind, self.partition, self.asked == EARLIEST

    def _asks_as(self, other: Begun) -> bool:
        return (self.cluster, self.asked) == (other.cluster, other.asked) and self.identity.same(other.identity)


def begun_by(plan: RunPlan) -> list[Begun]:
    """Where a plan begins wherever the same command would begin elsewhere later on."""
    first: dict[TopicPartition, Begun] = {}
    for part in plan.partitions:
        if part.asked is None:
            continue
        offset = min([part.start, *(gap.start for gap in part.skipped if gap.kind == "retention")])
        if part.partition in first:
            offset = min(offset, first[part.partition].offset)
        identity = plan.topics[part.partition.topic]
        first[part.partition] = Begun(plan.kind, plan.cluster, part.asked, part.partition, identity, offset)
    return list(first.values())


def together(known: Iterable[Begun], new: Iterable[Begun]) -> list[Begun]:
    """What is ``known`` with what is ``new``: of the same log, and as the same was asked, the first offset counts."""
    found = {one._place: one for one in known}
    for one in new:
        before = found.get(one._place)
        if before is not None and before._asks_as(one):
            one = one._replace(offset=min(before.offset, one.offset))
        found[one._place] = one
    return list(found.values())


def encode_begun(begun: Iterable[Begun]) -> bytes:
    """The bytes of ``begun.json``."""
    return dump({"format": 1, "begun": [_document(one) for one in sorted(begun, key=lambda one: one._place)]})


def _document(one: Begun) -> dict[str, Any]:
    topic, partition = one.partition
    told = {"kind": one.kind, "cluster": one.cluster, "asked": one.asked, "log": identity_document(one.identity)}
    return told | {"topic": topic, "partition": partition, "offset": one.offset}


def decode_begun(name: str, data: bytes) -> list[Begun]:
    """Read ``begun.json``; ``name`` is for messages. Raises ``DamagedDocumentError``."""
    try:
        return [_read(one) for one in load(data, name)["begun"]]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise unreadable(name, why_unreadable(error)) from None


def _read(found: Mapping[str, Any]) -> Begun:
    partition = TopicPartition(found["topic"], found["partition"])
    identity = read_identity(found["log"])
    one = Begun(found["kind"], found["cluster"], found["asked"], partition, identity, found["offset"])
    require(one, Begun)
    return one
