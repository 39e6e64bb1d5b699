"""The means of a run: clients, tasks, progress, warnings."""

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

_LINES = 20  # warnings of one kind


class Runner(Protocol):
    """Runs tasks: Spark, or in a test this very process."""

    @property
    def cores(self) -> int:
        """How many tasks it runs at a time."""

    def run(
        self,
        settings: TaskSettings,
        tasks: Sequence[Sequence[OffsetRange]],
        done: Callable[[DoneAnswer], None],
    ) -> list[DoneAnswer]:
        """Run all of ``tasks``; ``done`` gets each answer while it goes on. Raises the first failure."""


def warn_of(lines: Iterable[str], warn: Callable[[str], None]) -> None:
    """Warn of the first of many; the log has the others, which ``-v`` shows."""
    warnings = list(lines)
    for line in warnings[:_LINES]:
        warn(line)
    for line in warnings[_LINES:]:
        log.info("%s", line)
    if len(warnings) > _LINES:
        warn(f"and {len(warnings) - _LINES} more like these, which -v names")


@dataclass(frozen=True, slots=True)
class Progress:
    """How far an export is: ``stage`` in words, offsets done of all, and the bytes of the files written so far."""

    stage: str
    done: int
    total: int
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class RunContext:
    """The means of a run. ``passed`` is called at each point of the protocol. With a ``member`` the run decides only
    about partitions that it owns, and commits them at once."""

    kafka: Callable[[], KafkaSettings]
    runner: Callable[[], AbstractContextManager[Runner]]
    silence_timeout: float
    progress: Callable[[Progress], None]
    warn: Callable[[str], None]
    passed: Callable[[str], None]
    member: ExportMember | None = None
