"""What tests of runs that came to nothing share: how they do, and what is said of what retention takes then."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest
from members import connector
from resets import drop_messages
from scenes import Scene
from support import wait_until

from zkgroup.errors import RefusedError, UnreachableError
from zkgroup.export.checks.verify import verify
from zkgroup.sandbox.sandbox import Sandbox

EARLIEST: dict[str, Any] = {"begin": "earliest"}


def overtake(scene: Scene, **wish: Any) -> RefusedError:
    """Retention takes five messages behind the plan."""

    def take(point: str) -> None:
        if point == "plan in place":
            drop_messages(scene.kafka, scene.first, 5)

    with pytest.raises(RefusedError, match=rf"{scene.first}: offsets \d to 4 \(\d offsets\) were deleted") as raised:
        scene.told(passed=take, **wish)
    return raised.value


def refused(scene: Scene, **wish: Any) -> None:
    """The same again is refused before anything is read, by the offsets that are gone."""
    points: list[str] = []
    what = rf"{scene.first} (was to begin at 0|from 0 on), its log starts at 5: 5 offsets are lost"
    with pytest.raises(RefusedError, match=what):
        scene.told(passed=points.append, **wish)
    assert points == []


def recorded(scene: Scene, **wish: Any) -> None:
    """With an answer what is left is exported, and what is gone is in the books."""
    scene.told(skip_lost=True, **wish)
    assert ("retention", 0, 5) in scene.skipped()
    sums = {row.partition: (row.start, row.end, row.rows) for row in verify(scene.lake) if row.problem is None}
    assert (sums[0], sums[1]) == ((0, 10, 5), (0, 10, 10))


def hurt(point: str) -> None:
    """Nobody reads anything."""
    if point == "runner started":
        raise UnreachableError("the brokers are away")


def interrupted(scene: Scene, **wish: Any) -> None:
    """With Ctrl-C, before anything is read."""

    def interrupt(passed: str) -> None:
        if passed == "runner started":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        scene.told(passed=interrupt, **{**EARLIEST, **wish})


def left(scene: Scene, **wish: Any) -> None:
    """As a process that is killed leaves it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("zkgroup.export.runs.steps.ExportRun.abandon", lambda run, **_: False)
        interrupted(scene, **wish)


@contextmanager
def all_is_held(scene: Scene, cluster: Sandbox) -> Iterator[None]:
    """A member holds the whole topic, and reads nothing; it comes before any other."""
    with closing(connector(cluster.connect, scene.group, consumer_id="0", auto_commit_enable=False)) as member:
        member.streams({scene.topic: 2})
        wait_until(lambda: len(member.statistics().owned) == 2, 30, "the member owns both partitions")
        yield
