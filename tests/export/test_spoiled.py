"""A random walk over runs that were left somewhere, with documents spoilt: whatever is tried then, nothing is there
twice, no export ends well that lacks a message, and as long as the logs have all, what is advised ends it. On real
servers."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
from begun import EARLIEST
from exports import messages_in
from scenes import Scene, left_at, retention
from whole_attempts import rolled_back

from zkgroup.errors import ZkgroupError
from zkgroup.export.checks.history import history, status
from zkgroup.export.checks.verify import verify
from zkgroup.export.model.words import Policies

POINTS: Final = (
    *("files written", "manifest written", "decided", "published 1 of 2", "published for good"),
    *("manifest filed", "committed"),
)
SPOILS: Final[dict[str, Callable[[bytes], bytes | None]]] = {
    "cut": lambda data: data[:100],
    "changed": lambda data: data + b"\n",
    "emptied": lambda data: b"",
    "zeroed": lambda data: bytes(len(data)),
    "of the wrong shape": lambda data: b'{"format": 1}',
    "removed": lambda data: None,
}
LAKE: Final = {"policies": Policies(disagreement="lake")}
WAYS: Final[tuple[tuple[str, dict[str, Any]], ...]] = (
    *(("export", {}), ("keep", {}), ("export", {}), ("forget", {}), ("adopt", {}), ("export", {}), ("export", LAKE)),
)
MOVES_AWAY: Final = "or move it away, and export --adopt enters its files anew"


class Walk:
    """What is done to a scene, and what came of it."""

    def __init__(self, scene: Scene, seed: int) -> None:
        self.scene = scene
        self.random = random.Random(seed)
        self.told: list[object] = []

    def leave(self) -> None:
        """A run somewhere, alone or behind another one, and what ZooKeeper knows of it."""
        scene, choice = self.scene, self.random.choice
        if self.random.random() < 0.4:
            scene.told(**EARLIEST)
            scene.fill(scene.topic, 10, 2)
        point, to = choice(POINTS), choice(("planned", "gone", "left"))
        self.told.append((point, to))
        if to == "left" or point == "files written":
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr("zkgroup.export.runs.steps.ExportRun.abandon", lambda run, **_: False)  # as SIGKILL does
                left_at(scene, point)
        else:
            rolled_back(scene, to, point)

    def spoil(self) -> None:
        folder = self.scene.out / "_zkgroup" / self.scene.group
        runs = [folder] if self.random.random() < 0.2 else [folder / self.scene.lake.runs(self.scene.group)[-1]]
        found = sorted(path for run in runs for path in run.rglob("*.json"))
        for path in self.random.sample(found, min(self.random.choice((1, 1, 1, 2)), len(found))):
            how = self.random.choice(sorted(SPOILS))
            self.told.append((path.relative_to(self.scene.out), how))
            data = SPOILS[how](path.read_bytes())
            if data is None:
                path.unlink()
            else:
                path.write_bytes(data)

    def look(self) -> None:
        """Nothing that only looks fails."""
        verify(self.scene.lake)
        status(self.scene.registry, self.scene.group, self.scene.lake)
        list(history(self.scene.lake))

    def act(self, how: str, wish: dict[str, Any]) -> bool:
        """Whether it ended well. What is advised to be moved away is."""
        scene = self.scene
        try:
            if how in ("export", "backfill"):
                scene.export(scene.group, scene.topic, backfill=how == "backfill", **EARLIEST, **wish)
            elif how == "adopt":
                scene.export(scene.group, adopt=True)
            else:
                scene.export(scene.group, settle=how)
        except ZkgroupError as error:
            self.told.append((how, error.message, error.remedy))
            path = Path(error.message.partition(" cannot be read")[0])
            if str(error.remedy).endswith(MOVES_AWAY) and path.is_absolute():
                path.unlink(missing_ok=True)
            return False
        finally:
            rows = self.rows()
            assert len(rows) == len(set(rows)), (how, self.told)
        self.told.append((how, "ended well"))
        return True

    def rows(self) -> list[tuple[int, int]]:
        return [(row["partition"], row["offset"]) for row in messages_in(self.scene.out)]


@pytest.mark.parametrize("seed", range(40))
def test_whatever_is_spoilt_nothing_is_lost_unsaid(scene: Scene, seed: int) -> None:
    walk = Walk(scene, seed)
    walk.leave()
    walk.spoil()
    end = 15 if len(scene.lake.runs(scene.group)) > 1 else 10
    if lost := walk.random.random() < 0.4:
        retention(scene, end - 3)
    for _ in range(walk.random.randrange(3)):
        walk.look()
        walk.act(walk.random.choice(("export", "keep", "withdraw", "forget", "adopt", "backfill")), {})
    wanted = {(partition, offset) for partition in range(2) for offset in range(end)}
    for how, wish in WAYS * 3:
        if walk.act(how, wish) and how == "export" and (lost or set(walk.rows()) == wanted):
            break
    else:
        assert lost, ("nothing that is advised ends it", walk.told)
        return
    assert set(walk.rows()) == wanted, ("ended well without", sorted(wanted - set(walk.rows())), walk.told)
