"""What a run is carried out with, and what it tells meanwhile."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from zkgroup.clients.kafka.client import KafkaSettings
from zkgroup.export.model.plan_types import OffsetRange
from zkgroup.export.tasks.task_data import DoneAnswer, TaskSettings

if TYPE_CHECKING:
    from zkgroup.export.run.export_member import ExportMember


log = logging.getLogger(__name__)

_LINES = 20  # warnings of one kind that are said


class Runner(Protocol):
    """What runs tasks: Spark, or in a test this very process."""

    @property
    def cores(self) -> int:
        """How many tasks it runs at a time."""
        ...

    def run(
        self,
        settings: TaskSettings,
        tasks: Sequence[Sequence[OffsetRange]],
        done: Callable[[DoneAnswer], None],
    ) -> list[DoneAnswer]:
        """Run all of ``tasks``; ``done`` is told of ranges while it goes on. Raises the first failure."""
        ...


def warn_of(lines: Iterable[str], warn: Callable[[str], None]) -> None:
    """Warn of the first of many; the log has the others, which ``-v`` shows."""
    told = list(lines)
    for line in told[:_LINES]:
        warn(line)
    for line in told[_LINES:]:
        log.info("%s", line)
    if len(told) > _LINES:
        warn(f"and {len(told) - _LINES} more like these, which -v names")


@dataclass(frozen=True, slots=True)
class Progress:
    """How far an export is: ``stage`` in words, offsets done of all, and the bytes of the files written so far."""

    stage: str
    done: int
    total: int
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class RunContext:
    """What a run is carried out with. ``passed`` is told of each point as it is passed. ``member``:
    with it only what it holds is decided, and committed at once."""

    kafka: Callable[[], KafkaSettings]
    runner: Callable[[], AbstractContextManager[Runner]]
    patience: float
    progress: Callable[[Progress], None]
    warn: Callable[[str], None]
    passed: Callable[[str], None]
    member: ExportMember | None = None
