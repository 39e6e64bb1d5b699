"""Plan, manifest and pointer as JSON: what a run leaves for whoever goes on with it, and for those who look later.

Documents are UTF-8 JSON with sorted keys. Their hash, by which the pointer in ZooKeeper names them, is SHA-256 of the
bytes as they lie in the store. Times are milliseconds since 1970. Offsets are the next one to read, intervals exclude
their end. Unknown keys are ignored, so that a later release may add some; ``format`` changes when one may not.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple

import orjson

from zkgroup.errors import ZkgroupError
from zkgroup.export.intervals import Interval
from zkgroup.export.words import PartitionPlan, Skipped
from zkgroup.protocol.names import TopicPartition

FORMAT: Final = 1

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


class ManifestFile(NamedTuple):
    """A file: ``work`` below the run's folder, ``name`` below the destination."""

    work: str
    name: str
    start: int
    end: int
    rows: int
    bytes: int


@dataclass(frozen=True, slots=True)
class ManifestPart:
    """What became of one part of the plan. ``end`` may lie below the planned one (a limit of bytes).

    ``end − start = rows + undecodable + sum(gaps)``; ``gaps`` counts offsets by kind, see ``accounting``.
    """

    plan: PartitionPlan
    end: int
    rows: int
    undecodable: int
    gaps: Mapping[str, int]
    files: tuple[ManifestFile, ...]

    @property
    def moves(self) -> bool:
        """Whether the group's offset changes."""
        return self.plan.commits and self.end != self.plan.committed

    @property
    def balanced(self) -> bool:
        """Whether every offset is accounted for, and the files hold the rows."""
        told = self.rows + self.undecodable + sum(self.gaps.values())
        return self.end - self.plan.start == told and self.rows == sum(file.rows for file in self.files)


@dataclass(frozen=True, slots=True)
class TopicCoverage:
    """What the lake accounts for of one incarnation of a topic."""

    identity: TopicIdentity
    partitions: Mapping[int, tuple[Interval, ...]] = field(default_factory=dict)


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


def _load(data: bytes, name: str) -> dict[str, Any]:
    try:
        document = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise _unreadable(name, f"it is no JSON ({error})") from None
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        found = document.get("format") if isinstance(document, dict) else None
        raise _unreadable(name, f"its format is {found!r}, this release knows {FORMAT}")
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
            "format": FORMAT,
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
        }
    )


def decode_plan(name: str, data: bytes) -> RunPlan:
    """Read ``plan.json``; ``name`` is for messages. Raises ``ZkgroupError``."""
    found = _load(data, name)
    try:
        topics = {topic: _read_identity(identity) for topic, identity in found.pop("topics").items()}
        parts = tuple(_read_part(part) for part in found.pop("partitions"))
        known = {key: found[key] for key in RunPlan.__dataclass_fields__ if key in found}
        return RunPlan(topics=topics, partitions=parts, **known)
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
            "format": FORMAT,
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
                    "files": [file._asdict() for file in part.files],
                }
                for part in manifest.parts
            ],
            "coverage": _coverage(manifest.coverage),
        }
    )


def decode_manifest(name: str, data: bytes) -> Manifest:
    """Read ``manifest.json``. Raises ``ZkgroupError``."""
    found = _load(data, name)
    try:
        parts = tuple(_read_manifest_part(part) for part in found.pop("partitions"))
        coverage = _read_coverage(found.pop("coverage"))
        known = {key: found[key] for key in Manifest.__dataclass_fields__ if key in found}
        return Manifest(parts=parts, coverage=coverage, **known)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise _unreadable(name, f"{type(error).__name__} {error}") from None


def _read_manifest_part(found: dict[str, Any]) -> ManifestPart:
    files = tuple(ManifestFile(*(file[key] for key in ManifestFile._fields)) for file in found["files"])
    plan = _read_part(found | {"end": found["planned_end"]})
    gaps = {str(kind): int(count) for kind, count in found["gaps"].items()}
    return ManifestPart(plan, found["end"], found["rows"], found["undecodable"], gaps, files)


def _coverage(coverage: Mapping[str, TopicCoverage]) -> dict[str, Any]:
    return {
        topic: _identity(found.identity) | {"partitions": {str(p): list(found.partitions[p]) for p in found.partitions}}
        for topic, found in coverage.items()
    }


def _read_coverage(found: Mapping[str, Any]) -> dict[str, TopicCoverage]:
    return {
        topic: TopicCoverage(
            _read_identity(entry),
            {int(p): tuple((low, high) for low, high in pairs) for p, pairs in entry["partitions"].items()},
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
