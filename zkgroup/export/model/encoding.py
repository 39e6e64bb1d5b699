"""What all documents of an export have in common: how they are written, read, named and refused. See ``documents``."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, Final

import orjson

from zkgroup.errors import ZkgroupError
from zkgroup.export.model.rundata import TopicIdentity
from zkgroup.protocol.jsontext import excerpt

FORMAT: Final = 1


def digest(data: bytes) -> str:
    """The hash by which a document is named."""
    return hashlib.sha256(data).hexdigest()


def dump(document: Mapping[str, Any]) -> bytes:
    """A document's bytes: one that says the same has the same."""
    return orjson.dumps(document, option=orjson.OPT_SORT_KEYS | orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS)


def load(data: bytes, name: str, newest: int = FORMAT) -> dict[str, Any]:
    """Read a document up to the format ``newest``; ``name`` is for messages. Raises ``DamagedDocumentError``."""
    try:
        document = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise unreadable(name, f"it is no JSON ({error})") from None
    found = document.get("format") if isinstance(document, dict) else None
    if not isinstance(document, dict) or found not in range(FORMAT, newest + 1):
        raise unreadable(name, f"its format is {excerpt(found)}, this release knows {newest}")
    return document


class DamagedDocumentError(ZkgroupError):
    """A document that cannot be read, by this release or at all. ``document``: its name."""

    def __init__(self, message: str, remedy: str | None = None, document: str = "") -> None:
        super().__init__(message, remedy)
        self.document = document


def unreadable(name: str, why: str) -> DamagedDocumentError:
    """The error for a document of this name."""
    if name.startswith("znode "):  # a few bytes of one run: nobody has copies
        return DamagedDocumentError(
            f"{name} cannot be read: {why}",
            "use the release that wrote it; if none did, delete it, then look with export --verify",
        )
    ways = {
        "manifest.json": "; or move it away, and export --adopt enters its files anew",
        "settled.json": "; or move its run's folder away, and export --adopt enters what is there of its files",
        "plan.json": "; or end the run with --settle forget",
        "begun.json": "; or move it away, and what was to be exported and is gone by now is told of nowhere",
    }
    anew = ways.get(name.rpartition("/")[2], "")
    return DamagedDocumentError(
        f"{name} cannot be read: {why}", f"restore it from a copy, or use the release that wrote it{anew}", name
    )


def why_unreadable(error: Exception) -> str:
    """What is wrong with a document, in a line that quotes little of it."""
    told = error.args[0] if error.args else ""
    if isinstance(error, KeyError):
        return f"{excerpt(told)} is missing"
    if isinstance(error, TypeError | AttributeError):
        if isinstance(told, str) and told.endswith("is of the wrong type"):  # as ``require`` says it
            return told
        return "something in it is not of the type that it should be"
    shown = told if isinstance(told, str) and told.isprintable() and len(told) <= 120 else excerpt(told)
    return f"{type(error).__name__}: {shown}"


def identity_document(topic: TopicIdentity) -> dict[str, Any]:
    """Which log this is, as documents say it."""
    told = {"czxid": topic.czxid, "topic_id": topic.topic_id, "cleanup": topic.cleanup, "tag": topic.tag}
    return told | ({"before": topic.before} if topic.before else {})


def read_identity(found: Mapping[str, Any]) -> TopicIdentity:
    """The same, back from a document."""
    before = tuple(map(int, found.get("before", ())))
    return TopicIdentity(int(found["czxid"]), found["topic_id"], found["cleanup"], found["tag"], before)
