"""Plan, manifest and pointer as JSON: what a run leaves for whoever goes on with it, and for those who look later.

Documents are UTF-8 JSON with sorted keys. Their hash, by which the pointer in ZooKeeper names them, is SHA-256 of the
bytes as they lie in the store. Times are milliseconds since 1970. Offsets are the next one to read, intervals exclude
their end. Unknown keys are ignored, so that a later release may add some; ``format`` changes when one may not.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple

import orjson

from zkgroup.errors import ZkgroupError
from zkgroup.export.intervals import Interval
from zkgroup.export.layout import Layout, layout_document, read_layout
from zkgroup.export.words import PartitionPlan, Skipped, Slice
from zkgroup.protocol.names import TopicPartition

#: Plans and manifests are of format 2, since files may hold ranges of several partitions; 1 is still read.
FORMAT: Final = 1
RUN_FORMAT: Final = 2

Kind = Literal["export", "backfill"]
State = Literal["planned", "decided", "committed", "withdrawn"]


@dataclass(frozen=True, slots=True)
class TopicIdentity:
    """Which incarnation of a topic this is. ``czxid`` is its znode's, ``topic_id`` that of 2.8 and later.

    ``cleanup``: its ``cleanup.policy``, None where nobody tells. ``tag``: marks the names of its files where the folder
    holds files of an earlier incarnation, None otherwise.
    """

    czxid: int
    topic_id: str | None = None
    cleanup: str | None = None
    tag: str | None = None

    def same(self, other: TopicIdentity) -> bool:
        """Whether both are the same log."""
        if self.topic_id is not None and other.topic_id is not None:
            return self.topic_id == other.topic_id
        return self.czxid == other.czxid


@dataclass(frozen=True, slots=True)
class RunPlan:
    """What a run does, fixed before anything is read. ``max_bytes``: what one partition may take, None: no limit.
    ``compression``: ``CODEC`` or ``CODEC:LEVEL``.

    ``skip_deleted``: what retention takes away while it is read is a recorded gap, not a failure.
    ``record_unexplained``: the same for offsets that are missing and nobody knows why.
    """

    run: str
    group: str
    kind: Kind
    cluster: str
    planned: int
    isolation: str
    compression: str
    target_bytes: int
    range_messages: int
    max_bytes: int | None
    skip_deleted: bool
    record_unexplained: bool
    topics: Mapping[str, TopicIdentity]
    partitions: tuple[PartitionPlan, ...]
    previous: str | None = None
    host: str = ""
    release: str = ""
    layout: Layout = field(default_factory=Layout)


class ManifestFile(NamedTuple):
    """A file: ``work`` below the run's folder, ``name`` below the destination; what it holds of each partition."""

    work: str
    name: str
    topic: str
    rows: int
    bytes: int
    slices: tuple[Slice, ...]


@dataclass(frozen=True, slots=True)
class ManifestPart:
    """What became of one part of the plan. ``end`` may lie below the planned one (a limit of bytes).

    ``end − start = rows + undecodable + sum(gaps)``; ``gaps`` counts offsets by kind, see ``accounting``.
    ``undecodable`` are messages in the files whose key or value is not what it should be. ``late`` (see
    ``punctuality``) and ``undated`` (without a usable time) count among the others.
    """

    plan: PartitionPlan
    end: int
    rows: int
    undecodable: int
    gaps: Mapping[str, int]
    late: int = 0
    undated: int = 0

    @property
    def moves(self) -> bool:
        """Whether the group's offset changes."""
        return self.plan.commits and self.end != self.plan.committed

    @property
    def balanced(self) -> bool:
        """Whether every offset is accounted for."""
        return self.end - self.plan.start == self.rows + self.undecodable + sum(self.gaps.values())


def rows_held(parts: Sequence[ManifestPart], files: Sequence[ManifestFile]) -> list[int]:
    """The rows that ``files`` hold of each part."""
    by_partition: dict[TopicPartition, list[Slice]] = {}
    for file in files:
        for one in file.slices:
            by_partition.setdefault(TopicPartition(file.topic, one.partition), []).append(one)
    return [
        sum(
            one.rows
            for one in by_partition.get(part.plan.partition, ())
            if part.plan.start <= one.start and one.end <= part.end
        )
        for part in parts
    ]


def shares(manifest: Manifest) -> Iterator[tuple[ManifestPart, int, int]]:
    """Each part with its share of the files' bytes, by rows, and the number of files that hold something of it. The
    shares add up to all bytes."""
    sizes: dict[tuple[str, Slice], int] = {}
    by_partition: dict[TopicPartition, list[tuple[str, Slice]]] = {}
    for file in manifest.files:
        rows = given = 0
        for one in file.slices:
            rows += one.rows
            upto = file.bytes * rows // max(1, file.rows)
            sizes[file.name, one] = upto - given
            given = upto
            by_partition.setdefault(TopicPartition(file.topic, one.partition), []).append((file.name, one))
    for part in manifest.parts:
        held = [
            (name, one)
            for name, one in by_partition.get(part.plan.partition, ())
            if part.plan.start <= one.start and one.end <= part.end
        ]
        yield part, sum(sizes[key] for key in held), len({name for name, _ in held})


@dataclass(frozen=True, slots=True)
class TopicCoverage:
    """What the lake accounts for of one incarnation of a topic. ``newest``: the newest day or hour of each partition's
    messages, where folders are of times."""

    identity: TopicIdentity
    partitions: Mapping[int, tuple[Interval, ...]] = field(default_factory=dict)
    newest: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a run has written. ``coverage``: what all the group's runs up to this one account for."""

    run: str
    group: str
    kind: Kind
    cluster: str
    plan: str
    attempt: str
    planned: int
    decided: int
    isolation: str
    parts: tuple[ManifestPart, ...]
    coverage: Mapping[str, TopicCoverage]
    previous: str | None = None
    files: tuple[ManifestFile, ...] = ()
    layout: Layout = field(default_factory=Layout)


@dataclass(frozen=True, slots=True)
class Settled:
    """How a run that could not be committed was ended by hand. ``left``: partitions whose offset was left as it was."""

    how: Literal["keep", "withdraw"]
    when: int
    left: tuple[TopicPartition, ...]
    coverage: Mapping[str, TopicCoverage]


@dataclass(frozen=True, slots=True)
class Pointer:
    """What ``/consumers/G/zkgroup/export`` says. ``plan`` and ``manifest`` are hashes."""

    state: State
    run: str
    output: str
    plan: str
    attempt: str
    manifest: str | None = None


def digest(data: bytes) -> str:
    """The hash by which a document is named."""
    return hashlib.sha256(data).hexdigest()


def _dump(document: Mapping[str, Any]) -> bytes:
    return orjson.dumps(document, option=orjson.OPT_SORT_KEYS | orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS)


def _load(data: bytes, name: str, newest: int = FORMAT) -> dict[str, Any]:
    try:
        document = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise _unreadable(name, f"it is no JSON ({error})") from None
    found = document.get("format") if isinstance(document, dict) else None
    if not isinstance(document, dict) or found not in range(FORMAT, newest + 1):
        raise _unreadable(name, f"its format is {found!r}, this release knows {newest}")
    return document


def _unreadable(name: str, why: str) -> ZkgroupError:
    return ZkgroupError(f"{name} cannot be read: {why}", "restore it from a copy, or use the release that wrote it")


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
    found = _load(data, f"znode {path}")
    try:
        state: State = found["state"]
        run, output, plan, attempt = (str(found[key]) for key in ("run", "output", "plan", "attempt"))
        manifest = found["manifest"]
        if state not in ("planned", "decided", "committed", "withdrawn") or not isinstance(manifest, str | None):
            raise ValueError(state)
    except (KeyError, ValueError) as error:
        raise _unreadable(f"znode {path}", f"what is {error}?") from None
    return Pointer(state, run, output, plan, attempt, manifest)


# --- plan -----------------------------------------------------------------------------------------------------------


def encode_plan(plan: RunPlan) -> bytes:
    """The bytes of ``plan.json``."""
    return _dump(
        {
            "format": RUN_FORMAT,
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
            "topics": {name: _identity(topic) for name, topic in plan.topics.items()},
            "partitions": [_part(part) for part in plan.partitions],
            "previous": plan.previous,
            "host": plan.host,
            "release": plan.release,
            "layout": layout_document(plan.layout),
        }
    )


def decode_plan(name: str, data: bytes) -> RunPlan:
    """Read ``plan.json``; ``name`` is for messages. Raises ``ZkgroupError``."""
    found = _load(data, name, RUN_FORMAT)
    try:
        layout = read_layout(found.pop("layout", None))
        topics = {topic: _read_identity(identity) for topic, identity in found.pop("topics").items()}
        parts = tuple(_read_part(part) for part in found.pop("partitions"))
        known = {key: found[key] for key in RunPlan.__dataclass_fields__ if key in found}
        return RunPlan(topics=topics, partitions=parts, layout=layout, **known)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise _unreadable(name, f"{type(error).__name__} {error}") from None


def _part(part: PartitionPlan) -> dict[str, Any]:
    return {
        "topic": part.partition.topic,
        "partition": part.partition.partition,
        "committed": part.committed,
        "version": part.version,
        "start": part.start,
        "end": part.end,
        "skipped": [{"kind": gap.kind, "start": gap.start, "end": gap.end} for gap in part.skipped],
        "commits": part.commits,
    }


def _read_part(found: Mapping[str, Any]) -> PartitionPlan:
    return PartitionPlan(
        TopicPartition(found["topic"], found["partition"]),
        found["committed"],
        found["version"],
        found["start"],
        found["end"],
        tuple(Skipped(gap["kind"], gap["start"], gap["end"]) for gap in found["skipped"]),
        found["commits"],
    )


def _identity(topic: TopicIdentity) -> dict[str, Any]:
    return {"czxid": topic.czxid, "topic_id": topic.topic_id, "cleanup": topic.cleanup, "tag": topic.tag}


def _read_identity(found: Mapping[str, Any]) -> TopicIdentity:
    return TopicIdentity(int(found["czxid"]), found["topic_id"], found["cleanup"], found["tag"])


# --- manifest -------------------------------------------------------------------------------------------------------


def encode_manifest(manifest: Manifest) -> bytes:
    """The bytes of ``manifest.json``."""
    return _dump(
        {
            "format": RUN_FORMAT,
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
        }
    )


def decode_manifest(name: str, data: bytes) -> Manifest:
    """Read ``manifest.json``. Raises ``ZkgroupError``."""
    found = _load(data, name, RUN_FORMAT)
    try:
        parts = tuple(_read_manifest_part(part) for part in found["partitions"])
        if found["format"] == FORMAT:
            files = tuple(_read_old_file(part, file) for part in found["partitions"] for file in part["files"])
        else:
            files = tuple(_read_file(file) for file in found["files"])
        coverage = _read_coverage(found["coverage"])
        layout = read_layout(found.get("layout"))
        made = ("parts", "files", "coverage", "layout")
        known = {key: found[key] for key in Manifest.__dataclass_fields__ if key in found and key not in made}
        return Manifest(parts=parts, files=files, coverage=coverage, layout=layout, **known)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise _unreadable(name, f"{type(error).__name__} {error}") from None


def _read_manifest_part(found: dict[str, Any]) -> ManifestPart:
    plan = _read_part(found | {"end": found["planned_end"]})
    gaps = {str(kind): int(count) for kind, count in found["gaps"].items()}
    late, undated = found.get("late", 0), found.get("undated", 0)
    return ManifestPart(plan, found["end"], found["rows"], found["undecodable"], gaps, late, undated)


def _read_file(found: dict[str, Any]) -> ManifestFile:
    slices = tuple(Slice(*(one[key] for key in Slice._fields)) for one in found["ranges"])
    return ManifestFile(found["work"], found["name"], found["topic"], found["rows"], found["bytes"], slices)


def _read_old_file(part: dict[str, Any], found: dict[str, Any]) -> ManifestFile:
    one = Slice(part["partition"], found["start"], found["end"], found["rows"])
    return ManifestFile(found["work"], found["name"], part["topic"], found["rows"], found["bytes"], (one,))


def _coverage(coverage: Mapping[str, TopicCoverage]) -> dict[str, Any]:
    return {
        topic: _identity(found.identity)
        | {
            "partitions": {str(p): list(found.partitions[p]) for p in found.partitions},
            "newest": {str(p): period for p, period in found.newest.items()},
        }
        for topic, found in coverage.items()
    }


def _read_coverage(found: Mapping[str, Any]) -> dict[str, TopicCoverage]:
    return {
        topic: TopicCoverage(
            _read_identity(entry),
            {int(p): tuple((low, high) for low, high in pairs) for p, pairs in entry["partitions"].items()},
            {int(p): int(period) for p, period in entry.get("newest", {}).items()},
        )
        for topic, entry in found.items()
    }


def encode_settled(settled: Settled) -> bytes:
    """The bytes of ``settled.json``."""
    left: Sequence[TopicPartition] = settled.left
    return _dump(
        {
            "format": FORMAT,
            "how": settled.how,
            "when": settled.when,
            "left": [list(partition) for partition in left],
            "coverage": _coverage(settled.coverage),
        }
    )


def decode_settled(name: str, data: bytes) -> Settled:
    """Read ``settled.json``. Raises ``ZkgroupError``."""
    found = _load(data, name)
    try:
        left = tuple(TopicPartition(topic, number) for topic, number in found["left"])
        return Settled(found["how"], found["when"], left, _read_coverage(found["coverage"]))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise _unreadable(name, f"{type(error).__name__} {error}") from None
