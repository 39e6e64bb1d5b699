"""A Spark job, and how long it has had no active executor."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from py4j.protocol import Py4JError  # type: ignore[import-untyped]

from zkgroup.export.tasks.task_data import Answer

#: Seconds for Spark to cancel or stop.
STOP: Final = 15.0


class Job:
    """A Spark job in a thread of its own, so that the caller's thread stays free to hear signals."""

    def __init__(self, context: Any, name: str, tasks: Sequence[Any], work: Callable[[Any], Iterator[Answer]]) -> None:
        self._context = context
        self._name = name
        self._tasks = tasks
        self._work = work
        self._result: list[Answer] = []
        self._error: BaseException | None = None
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, name="zkgroup-export-job", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def _run(self) -> None:
        try:
            self._context.setJobGroup(self._name, "zkgroup export", interruptOnCancel=True)
            data = self._context.parallelize(self._tasks, len(self._tasks))
            self._result = data.mapPartitions(self._work).collect()
        except BaseException as error:  # noqa: BLE001  # raised again in the caller's thread
            self._error = error
        finally:
            self._done.set()

    def tasks(self) -> tuple[int, int]:
        """How many tasks are active, and how many have ended, with success or not."""
        active = ended = 0
        tracker = self._context.statusTracker()
        for job in tracker.getJobIdsForGroup(self._name):
            found = tracker.getJobInfo(job)
            for stage in () if found is None else found.stageIds:
                info = tracker.getStageInfo(stage)
                if info is not None:
                    active += info.numActiveTasks
                    ended += info.numCompletedTasks + info.numFailedTasks
        return active, ended

    def finished(self, timeout: float) -> bool:
        return self._done.wait(timeout)

    def result(self) -> list[Answer]:
        if self._error is not None:
            raise self._error
        return self._result

    def cancel(self) -> None:
        """End the job if it still runs, and wait for its thread."""
        if self._thread.ident is not None and not self._done.is_set():
            with contextlib.suppress(Py4JError, OSError):
                self._context.cancelJobGroup(self._name)
            self._done.wait(STOP)


class Idleness:
    """How long a job has had no active executor: Spark itself waits for one for ever."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._since = self._checked = time.monotonic()
        self._ended = 0

    def seconds(self) -> float:
        """Asks Spark at most once a second."""
        now = time.monotonic()
        if now - self._checked > 1.0:
            self._checked = now
            active, ended = self._job.tasks()
            if active or ended != self._ended:
                self._since, self._ended = now, ended
        return now - self._since
