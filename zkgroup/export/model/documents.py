"""Plan, manifest and pointer as JSON: what a run leaves for whoever goes on with it, and for those who look later.

Documents are UTF-8 JSON with sorted keys. Their hash, by which the pointer in ZooKeeper names them, is SHA-256 of the
bytes as they lie in the store. Times are milliseconds since 1970. Offsets are the next one to read, intervals exclude
their end. Unknown keys are ignored, so that a later release may add some; ``format`` changes when one may not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import orjson

from zkgroup.export.model.encoding import (
    FORMAT,
    dump,
    identity_document,
    load,
    read_identity,
    unreadable,
    why_unreadable,
)
from zkgroup.export.model.layout import Layout, layout_document, read_layout
from zkgroup.export.model.rundata import (
    Manifest,
    ManifestFile,
    ManifestPart,
    Pointer,
    Roll,
    RunPlan,
    Settled,
    State,
    TopicCoverage,
    TopicIdentity,
)
from zkgroup.export.model.words import Lost, PartitionPlan, Skipped, Slice
from zkgroup.protocol.jsontext import excerpt
from zkgroup.protocol.names import TopicPartition
from zkgroup.shapes import require

#: Plans and manifests are of format 2, since files may hold ranges of several partitions; 1 is still read. They are of
#: format 3 where a run writes again what was lost, and of format 4 where the layout has a version: a release that does
#: not know of that must not go on with it.
RUN_FORMAT: Final = 2
AGAIN_FORMAT: Final = 3
LAYOUT_FORMAT: Final = 4


def _format(layout: Layout, parts: Iterable[PartitionPlan]) -> int:
    if layout.version > 1:
        return LAYOUT_FORMAT
    return AGAIN_FORMAT if any(part.again for part in parts) else RUN_FORMAT


# --- pointer --------------------------------------------------------------------------------------------------------


def encode_pointer(pointer: Pointer) -> bytes:
    """The znode's data."""
    return orjson.dumps(
        {
            "format": FORMAT,
            "state": pointer.state,
            "run": pointer.run,
            "output": pointer.output,
            "plan": pointer.plan,
            "attempt": pointer.attempt,
            "manifest": pointer.manifest,
        },
        option=orjson.OPT_SORT_KEYS,
    )


def decode_pointer(path: str, data: bytes) -> Pointer | None:
    """None where the node holds no data: nothing is under way."""
    if not data:
        return None
    found = load(data, f"znode {path}")
    try:
        state: State = found["state"]
        run, output, plan, attempt = (str(found[key]) for key in ("run", "output", "plan", "attempt"))
        manifest = found["manifest"]
        if state not in ("planned", "decided", "committed", "withdrawn") or not isinstance(manifest, str | None):
            raise ValueError(state)
    except (KeyError, ValueError) as error:
        raise unreadable(f"znode {path}", f"what is {excerpt(error.args[0])}?") from None
    return Pointer(state, run, output, plan, attempt, manifest)


# --- plan -----------------------------------------------------------------------------------------------------------


def encode_plan(plan: RunPlan) -> bytes:
    """The bytes of ``plan.json``."""
    return dump(
        {
            "format": _format(plan.layout, plan.partitions),
            "run": plan.run,
            "group": plan.group,
            "kind": plan.kind,
            "cluster": plan.cluster,
            "planned": plan.planned,
            "isolation": plan.isolation,
            "compression": plan.compression,
            "target_bytes": plan.target_bytes,
            "range_messages": plan.range_messages,
            "max_bytes": plan.max_bytes,
            "skip_deleted": plan.skip_deleted,
            "record_unexplained": plan.record_unexplained,
            "topics": {name: identity_document(topic) for name, topic in plan.topics.items()},
            "partitions": [_part(part) for part in plan.partitions],
            "previous": plan.previous,
            "host": plan.host,
            "release": plan.release,
            "layout": layout_document(plan.layout),
        }
    )


def decode_plan(name: str, data: bytes) -> RunPlan:
    """Read ``plan.json``; ``name`` is for messages. Raises ``ZkgroupError``."""
    found = load(data, name, LAYOUT_FORMAT)
    try:
        layout = read_layout(found.pop("layout", None))
        topics = {topic: read_identity(identity) for topic, identity in found.pop("topics").items()}
        parts = tuple(_read_part(part) for part in found.pop("partitions"))
        known = {key: found[key] for key in RunPlan.__dataclass_fields__ if key in found}
        plan = RunPlan(topics=topics, partitions=parts, layout=layout, **known)
        require(plan, RunPlan)
        if missing := {part.partition.topic for part in parts} - topics.keys():
            raise ValueError(f"topic {min(missing)} is not among its topics")
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise unreadable(name, why_unreadable(error)) from None
    return plan


def _part(part: PartitionPlan) -> dict[str, Any]:
    told = {
        "topic": part.partition.topic,
        "partition": part.partition.partition,
        "committed": part.committed,
        "version": part.version,
        "start": part.start,
        "end": part.end,
        "skipped": [{"kind": gap.kind, "start": gap.start, "end": gap.end} for gap in part.skipped],
        "commits": part.commits,
    }
    return (
        told
        | ({"again": [lost._asdict() for lost in part.again]} if part.again else {})
        | ({"asked": part.asked} if part.asked else {})
    )


def _read_part(found: Mapping[str, Any]) -> PartitionPlan:
    return PartitionPlan(
        TopicPartition(found["topic"], found["partition"]),
        found["committed"],
        found["version"],
        found["start"],
        found["end"],
        tuple(Skipped(gap["kind"], gap["start"], gap["end"]) for gap in found["skipped"]),
        found["commits"],
        tuple(Lost(*(lost[key] for key in Lost._fields)) for lost in found.get("again", ())),
        found.get("asked"),
    )


def encode_log(cluster: str, topic: TopicIdentity) -> str:
    """What a file's footer says of the log that its messages are of."""
    log = {"cluster": cluster, "czxid": topic.czxid, "topic_id": topic.topic_id, "tag": topic.tag}
    log |= {"before": topic.before} if topic.before else {}
    return orjson.dumps(log, option=orjson.OPT_SORT_KEYS).decode()


def decode_log(text: str) -> tuple[str, TopicIdentity] | None:
    """The cluster and the log that a footer tells of; None where nobody can read that."""
    try:
        found = orjson.loads(text)
        cluster, czxid, topic_id, tag = (found[key] for key in ("cluster", "czxid", "topic_id", "tag"))
        before = tuple(map(int, found.get("before", ())))
    except (KeyError, TypeError, ValueError):
        return None
    texts = isinstance(cluster, str) and isinstance(topic_id, str | None) and isinstance(tag, str | None)
    return (cluster, TopicIdentity(czxid, topic_id, None, tag, before)) if texts and type(czxid) is int else None


# --- layout ---------------------------------------------------------------------------------------------------------


def encode_layout(layout: Layout) -> str:
    """What a file's footer says of the layout that it was written in: the same as a plan."""
    return orjson.dumps(layout_document(layout), option=orjson.OPT_SORT_KEYS).decode()


def decode_layout(name: str, text: str) -> Layout:
    """Read what a footer says. Raises ``ZkgroupError``: who cannot read it must not write beside that file."""
    try:
        found = orjson.loads(text)
        if not isinstance(found, dict):
            raise TypeError  # a plan may have none, a footer has an object
        return read_layout(found)
    except (KeyError, TypeError, ValueError) as error:
        raise unreadable(name, why_unreadable(error)) from None


# --- manifest -------------------------------------------------------------------------------------------------------


def encode_manifest(manifest: Manifest) -> bytes:
    """The bytes of ``manifest.json``."""
    return dump(
        {
            "format": _format(manifest.layout, [part.plan for part in manifest.parts]),
            "run": manifest.run,
            "group": manifest.group,
            "kind": manifest.kind,
            "cluster": manifest.cluster,
            "plan": manifest.plan,
            "attempt": manifest.attempt,
            "planned": manifest.planned,
            "decided": manifest.decided,
            "isolation": manifest.isolation,
            "previous": manifest.previous,
            "joined": manifest.joined,
            "partitions": [
                _part(part.plan)
                | {
                    "planned_end": part.plan.end,
                    "end": part.end,
                    "rows": part.rows,
                    "undecodable": part.undecodable,
                    "gaps": dict(part.gaps),
                    "late": part.late,
                    "undated": part.undated,
                }
                for part in manifest.parts
            ],
            "layout": layout_document(manifest.layout),
            "files": [
                {
                    "work": file.work,
                    "name": file.name,
                    "topic": file.topic,
                    "rows": file.rows,
                    "bytes": file.bytes,
                    "ranges": [one._asdict() for one in file.slices],
                }
                for file in manifest.files
            ],
            "coverage": _coverage(manifest.coverage),
            "roll": _roll(manifest.roll),
        }
        | (
            {"topics": {name: identity_document(topic) for name, topic in manifest.topics.items()}}
            if manifest.topics
            else {}
        )
    )


def decode_manifest(name: str, data: bytes) -> Manifest:
    """Read ``manifest.json``. Raises ``ZkgroupError``."""
    found = load(data, name, LAYOUT_FORMAT)
    try:
        parts = tuple(_read_manifest_part(part) for part in found["partitions"])
        if found["format"] == FORMAT:
            files = tuple(_read_old_file(part, file) for part in found["partitions"] for file in part["files"])
        else:
            files = tuple(_read_file(file) for file in found["files"])
        coverage = _read_coverage(found["coverage"])
        layout = read_layout(found.get("layout"))
        topics = {topic: read_identity(identity) for topic, identity in found.get("topics", {}).items()}
        made = ("parts", "files", "coverage", "layout", "topics", "roll")
        known = {key: found[key] for key in Manifest.__dataclass_fields__ if key in found and key not in made}
        roll = _read_roll(found.get("roll"))
        manifest = Manifest(
            parts=parts, files=files, coverage=coverage, layout=layout, topics=topics, roll=roll, **known
        )
        require(manifest, Manifest)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise unreadable(name, why_unreadable(error)) from None
    return manifest


def _read_manifest_part(found: dict[str, Any]) -> ManifestPart:
    plan = _read_part(found | {"end": found["planned_end"]})
    gaps = {str(kind): int(count) for kind, count in found["gaps"].items()}
    late, undated = found.get("late", 0), found.get("undated", 0)
    return ManifestPart(plan, found["end"], found["rows"], found["undecodable"], gaps, late, undated)


def _read_file(found: dict[str, Any]) -> ManifestFile:
    slices = tuple(Slice(*(one[key] for key in Slice._fields)) for one in found["ranges"])
    if not slices:
        raise ValueError(f"file {found['name']} has no ranges")
    return ManifestFile(found["work"], found["name"], found["topic"], found["rows"], found["bytes"], slices)


def _read_old_file(part: dict[str, Any], found: dict[str, Any]) -> ManifestFile:
    one = Slice(part["partition"], found["start"], found["end"], found["rows"])
    return ManifestFile(found["work"], found["name"], part["topic"], found["rows"], found["bytes"], (one,))


def _coverage(coverage: Mapping[str, TopicCoverage]) -> dict[str, Any]:
    return {
        topic: identity_document(found.identity)
        | {
            "partitions": {str(p): list(found.partitions[p]) for p in found.partitions},
            "newest": {str(p): period for p, period in found.newest.items()},
            "ends": {str(p): end for p, end in found.ends.items()},
        }
        for topic, found in coverage.items()
    }


def _read_coverage(found: Mapping[str, Any]) -> dict[str, TopicCoverage]:
    return {
        topic: TopicCoverage(
            read_identity(entry),
            {int(p): tuple((low, high) for low, high in pairs) for p, pairs in entry["partitions"].items()},
            {int(p): int(period) for p, period in entry.get("newest", {}).items()},
            {int(p): int(end) for p, end in entry.get("ends", _all_exported(entry)).items()},
        )
        for topic, entry in found.items()
    }


def _roll(roll: Roll | None) -> dict[str, Any] | None:
    return None if roll is None else {"names": roll.names, "undecided": list(roll.undecided)}


def _read_roll(found: Mapping[str, Any] | None) -> Roll | None:
    return None if found is None else Roll(found["names"], tuple(found["undecided"]))


def _all_exported(entry: Mapping[str, Any]) -> dict[str, int]:
    """Of manifests that do not tell what were backfills."""
    return {p: pairs[-1][1] for p, pairs in entry["partitions"].items() if pairs}


def encode_settled(settled: Settled) -> bytes:
    """The bytes of ``settled.json``."""
    left: Sequence[TopicPartition] = settled.left
    return dump(
        {
            "format": FORMAT,
            "how": settled.how,
            "when": settled.when,
            "left": [list(partition) for partition in left],
            "coverage": _coverage(settled.coverage),
            "roll": _roll(settled.roll),
        }
    )


def decode_settled(name: str, data: bytes) -> Settled:
    """Read ``settled.json``. Raises ``ZkgroupError``."""
    found = load(data, name)
    try:
        left = tuple(TopicPartition(topic, number) for topic, number in found["left"])
        coverage, roll = _read_coverage(found["coverage"]), _read_roll(found.get("roll"))
        settled = Settled(found["how"], found["when"], left, coverage, roll)
        require(settled, Settled)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise unreadable(name, why_unreadable(error)) from None
    return settled
