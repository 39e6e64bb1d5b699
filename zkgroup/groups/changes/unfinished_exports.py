"""Exports of a group that are not finished, from their node ``/consumers/G/zkgroup/export``.

``zkgroup.export`` documents its states. A run that is only ``planned`` binds nothing: its lock shows
that it runs, and a change of the group makes its decision fail. One that is decided goes on from the group's
offsets, and is lost with the node.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from zkgroup.errors import RefusedError, Remedy
from zkgroup.protocol.znode_json import excerpt

_UNKNOWN: Final = "its state cannot be read"


_LONGEST = 1000  # characters of a place


class UnfinishedExportError(RefusedError):
    """Refused because an export of the group was decided and is not finished, though no process may work on it now."""

    def __init__(self, group: str, data: bytes) -> None:
        found = _read(data)
        super().__init__(f"an export of group {group} is unfinished: {_describe(found)}", _remedy(group, found))


def is_unfinished(data: bytes) -> bool:
    """Whether the node ``/consumers/G/zkgroup/export`` has a run that has to be finished, or cannot be read."""
    return bool(data) and _read(data).get("state") != "planned"


def describe_unfinished_export(group: str, data: bytes) -> str | None:
    """The unfinished export in the node ``/consumers/G/zkgroup/export``, as text; None where there is none."""
    return f"an export of group {group} is unfinished: {_describe(_read(data))}" if is_unfinished(data) else None


def _read(data: bytes) -> Mapping[str, Any]:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _describe(found: Mapping[str, Any]) -> str:
    state, run, output = (found.get(key) for key in ("state", "run", "output"))
    if not isinstance(state, str):
        return _UNKNOWN
    return f"{excerpt(state)}, run {excerpt(run)}, to {excerpt(output)}"


def _remedy(group: str, found: Mapping[str, Any]) -> Remedy:
    output = found.get("output")
    place = ("--to", output) if isinstance(output, str) and len(output) < _LONGEST else ()
    return Remedy(
        "run that export again, which finishes it, or give it up with --abandon if its destination is lost; see its"
        " state",
        ("export", "--group", group, *place, "--status"),
    )
