"""Runs that were written to the end, where ZooKeeper does not know that they were decided."""

from __future__ import annotations

from typing import Any

import pytest
from begun import EARLIEST
from exports import messages_in
from scenes import Scene, stop

from zkgroup.export.checks.history import history, status
from zkgroup.export.checks.verify import verify
from zkgroup.export.model.words import Policies
from zkgroup.protocol import znodes
from zkgroup.protocol.ops import Get, Node, SetData

GOES_ON = Policies(expired="earliest")


def rolled_back(scene: Scene, to: str, point: str = "decided", **wish: Any) -> None:
    """A run that was left at ``point``, and ZooKeeper's data is of before its decision: its pointer is ``planned``
    still, or is ``gone``."""
    path = znodes.export_state(scene.group)
    planned: list[bytes] = []

    def passed(found: str) -> None:
        if found == "checked":
            (node,) = scene.registry.read([Get(path)])
            assert isinstance(node, Node)
            planned.append(node.data)
        stop(point)(found)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("zkgroup.export.runs.steps.ExportRun.abandon", lambda run, **_: False)  # as SIGKILL does
        with pytest.raises(KeyboardInterrupt):
            scene.told(passed=passed, **{**EARLIEST, **wish})
    scene.registry.write(SetData(path, planned[0] if to == "planned" else b"", -1))


def works(scene: Scene) -> int:
    """Files that are not published."""
    return len(list(scene.out.rglob("*.tmp")))


def is_kept(scene: Scene, count: int = 20) -> None:
    """All is there once, and says so; the next export goes on from there."""
    assert len(messages_in(scene.out)) == count
    assert works(scene) == 0
    assert [row.problem for row in verify(scene.lake) if row.problem] == []
    assert [row.state for row in history(scene.lake)][-1] == "kept"
    assert status(scene.registry, scene.group, scene.lake) == []
    scene.told()
    assert len(messages_in(scene.out)) == count
