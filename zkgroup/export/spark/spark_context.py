"""Spark: started quietly, given tasks, cancelled, stopped.

A SparkContext alone (no SparkSession, no SQL) is up in half the time and is all that is needed. Spark's log
stays in a file of its own; when Spark fails, that file is kept and named.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import shutil
import sys
import tempfile
import threading
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from pathlib import Path
from typing import Any, Final, Self

from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]
from pyspark.conf import SparkConf
from pyspark.core.context import SparkContext
from pyspark.errors import PySparkException

import zkgroup
from zkgroup.c_extensions import avro_module, file_name
from zkgroup.clients.kafka.native_reader import native_module
from zkgroup.errors import UsageError, ZkgroupError
from zkgroup.export.model.plan_types import OffsetRange
from zkgroup.export.spark import python_daemon, spark_failures
from zkgroup.export.spark.jvm_gateway import SparkJvm, end_of_jvm, environment_variables, is_spark_of_pyspark
from zkgroup.export.spark.spark_properties import PORT, choose_master, default_properties, is_cluster, own_properties
from zkgroup.export.tasks.task_data import Answer, DoneAnswer, TaskSettings, done_or_raise
from zkgroup.export.tasks.task_results import Answers
from zkgroup.text import error_text

log = logging.getLogger(__name__)

#: What tasks import of the export; see ``zkgroup.export.tasks``.
_TRAVEL: Final = (".", "model", "stores", "tasks")
_POLL: Final = 0.1
_LOG_END: Final = 1 << 20  # bytes
#: Seconds in which a JVM that no longer answers is seen to have ended.
_DYING: Final = 2.0
_FAILURES = (PySparkException, Py4JError, OSError)
#: Whose log it is that spark-submit's JVM writes.
_ELSEWHERE: Final = "where this Spark writes it"


class SparkJobs:
    """A running Spark: a context manager.

    ``timeout``: seconds that it may take to start, and for which a cluster may have no active executor.
    ``log``: the file that Spark's own words are appended to; without it they are kept only if Spark fails.
    """

    def __init__(
        self, master: str | None, conf: Mapping[str, str], *, timeout: float = 120.0, log: Path | None = None
    ) -> None:
        self._master = choose_master(master, conf)
        self._named = master is not None or "spark.master" in conf
        self._conf = dict(conf)
        self._timeout = timeout
        self._log = log
        self._log_start = 0
        self.context: Any = None
        self._scratch: Path
        self._log_file: Path
        self._jvm: SparkJvm

    def __enter__(self) -> Self:
        if self._log is not None:
            try:
                with self._log.open("ab") as file:
                    self._log_start = file.tell()
            except OSError as error:
                what = f"cannot write {self._log}: {error.strerror or error}"
                raise UsageError(what, "check --log") from None
        self._scratch = Path(tempfile.mkdtemp(prefix="zkgroup-spark-"))
        self._log_file = self._log or self._scratch / "spark.log"
        self._jvm = SparkJvm(self._scratch, self._log_file)
        try:
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _start(self) -> None:
        # In a thread of its own, which nothing interrupts; it also keeps pyspark from taking SIGINT for itself.
        started: Future[None] = Future()
        threading.Thread(target=self._start_context, args=(started,), name="zkgroup-spark-start", daemon=True).start()
        try:
            # No join: one that a signal interrupts takes the thread for ended from then on (seen with Python 3.11).
            if not wait([started], self._timeout).done:
                raise spark_failures.silent_master(self._master, self._timeout, self._keep_log())
        except BaseException:
            self._jvm.kill()
            wait([started], STOP)
            raise
        failure = started.exception()
        if failure is None:
            return
        code = self._exit_code(failure)
        if code is not None and code < 0:  # killed by the kernel where memory is short: no wrong usage
            why = f"Spark does not start on {self._master}: {end_of_jvm(code)}"
            raise ZkgroupError(why, f"its log: {self._keep_log()}") from None
        if isinstance(failure, _FAILURES):
            raise spark_failures.start_failure(
                self._master, self._log_text(), error_text(failure), self._keep_log
            ) from None
        raise failure

    def _start_context(self, started: Future[None]) -> None:
        try:
            python = self._conf.get("spark.pyspark.python") or os.environ.get("PYSPARK_PYTHON") or sys.executable
            defaults = default_properties(self._master, self._scratch)
            if self._master.startswith("local") and python == sys.executable and is_spark_of_pyspark():
                defaults["spark.python.daemon.module"] = python_daemon.__name__
            if PORT in os.environ:  # spark-submit's JVM runs already, with its own settings for logs
                wanted = self._conf | ({"spark.master": self._master} if self._named else {})
            else:
                java = self._jvm.options({**defaults, **self._conf})
                wanted = own_properties(self._master, self._conf, self._scratch, quiet=self._log is None, java=java)
            with environment_variables({"PYSPARK_PYTHON": python}):
                gateway = self._jvm.start({**defaults, **wanted})
                # All that spark-submit and the installation's defaults have set is in it.
                settings = SparkConf(_jvm=gateway.jvm)
                for key, value in defaults.items():
                    settings.setIfMissing(key, value)
                for key, value in wanted.items():
                    settings.set(key, value)
                self._master = settings.get("spark.master") or self._master
                SparkContext._ensure_initialized(gateway=gateway)
                self.context = SparkContext(conf=settings, gateway=gateway)
                _quieten_accumulators(self.context)
            started.set_result(None)
        except BaseException as error:  # noqa: BLE001  # raised again in the caller's thread
            started.set_exception(error)

    def __exit__(self, kind: object = None, *_: object) -> None:
        context, self.context = self.context, None
        try:
            if context is not None:
                _stop_context(context, self._jvm)
        finally:
            self._jvm.stop(orderly=kind is None and context is not None)
            # pyspark keeps the gateway for the next context of the process: this one is gone.
            SparkContext._gateway = SparkContext._jvm = None
            shutil.rmtree(self._scratch, ignore_errors=True)

    # --- its log ----------------------------------------------------------------------------------------------------

    def _log_text(self) -> str:
        """The end of the log, of what this run has written."""
        try:
            with self._log_file.open("rb") as file:
                file.seek(max(self._log_start, file.seek(0, os.SEEK_END) - _LOG_END))
                return file.read().decode("utf-8", errors="replace")
        except OSError:
            return ""

    def _keep_log(self) -> str:
        if self._log is not None:
            return str(self._log)
        kept = f"{self._scratch}.log"
        try:
            Path(kept).touch(0o600)
            shutil.copyfile(self._log_file, kept)
        except OSError:  # spark-submit's JVM
            return _ELSEWHERE
        return kept

    @property
    def cores(self) -> int:
        """How many tasks it runs at a time, as far as it knows by now."""
        try:
            return max(1, int(self.context.defaultParallelism))
        except _FAILURES as error:  # the first read of some properties
            raise self._failure_of(error) from None

    # --- jobs -------------------------------------------------------------------------------------------------------

    def run(
        self,
        settings: TaskSettings,
        tasks: Sequence[Sequence[OffsetRange]],
        done: Callable[[DoneAnswer], None],
    ) -> list[DoneAnswer]:
        """Run ``tasks`` and return what they did, all of it. ``done`` gets each answer while it goes on.

        The first failure cancels the rest and is raised; so does any exception that interrupts this thread.
        """
        context = self.context
        try:
            results = context.accumulator([], Answers())
            self._ship()
        except _FAILURES as error:  # of a context that Spark has stopped by itself
            raise self._failure_of(error) from None

        def work(dealt: Iterator[Sequence[OffsetRange]]) -> Iterator[Answer]:
            from zkgroup.export.tasks.export_task import run_task  # with pyarrow, for which only executors have use

            if not gc.get_freeze_count():
                gc.freeze()  # a worker scans all its modules after every task: 30 ms
            for ranges in dealt:
                for answer in run_task(settings, ranges):
                    results.add([answer])
                    yield answer

        job = Job(context, f"zkgroup-{os.getpid()}-{id(tasks)}", tasks, work)
        seen = 0
        try:
            job.start()
            is_finished = False
            while not is_finished:
                is_finished = bool(wait([job.outcome], _POLL).done)
                if not is_finished and is_cluster(context.master) and job.idle_seconds() > self._timeout:
                    raise spark_failures.no_executor(context.master, self._timeout, self._keep_log())
                for answer in results.value[seen:]:
                    done(done_or_raise(answer))
                    seen += 1
            return [done_or_raise(answer) for answer in job.outcome.result()]
        except _FAILURES as error:
            raise self._failure_of(error) from None
        finally:
            job.cancel()

    def _failure_of(self, error: Exception) -> Exception:
        text = self._log_text()
        if spark_failures.GAVE_UP in text:  # after a minute, without an error for the context's user
            return spark_failures.no_master(self._master, self._keep_log())
        if (code := self._exit_code(error)) is not None:
            return ZkgroupError(
                end_of_jvm(code),
                f"run the same command again, which goes on from here; its log: {self._keep_log()}",
            )
        if isinstance(error, OSError):
            return error
        return spark_failures.job_failure(error_text(error), text, self._keep_log)

    def _exit_code(self, error: BaseException) -> int | None:
        """The JVM's exit code if it has ended, hence ``error``: an error that Java has raised came from a live one."""
        return self._jvm.exit_code(0.0 if isinstance(error, Py4JJavaError) else _DYING)

    def _ship(self) -> None:
        """On a cluster nobody has installed zkgroup, or just this version: our code travels with the job, as to another
        Python of this machine."""
        if is_cluster(self.context.master) or self.context.pythonExec != sys.executable:
            self.context.addPyFile(str(pack_code(self._scratch / f"{self._scratch.name}.zip")))


def pack_code(target: Path) -> Path:
    """A zip of what tasks import of zkgroup, with the C extensions where this process may use them: executors that
    cannot load one do its work in Python."""
    root = Path(zkgroup.__file__).parent
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for extension in filter(None, (native_module(), avro_module())):
            archive.write(str(extension.__file__), file_name(extension.__name__))
        for part in (
            ".",
            "config",
            "protocol",
            "schemas",
            "clients",
            "clients/kafka",
            *(f"export/{one}" for one in _TRAVEL),
        ):
            for path in sorted((root / part).glob("*.py")):
                archive.write(path, Path("zkgroup", path.relative_to(root)))
    return target


def _quieten_accumulators(context: Any) -> None:
    """Log the traceback of the server of accumulators for a JVM that ends: zkgroup reports that itself."""
    server = getattr(context, "_accumulatorServer", None)
    if server is not None:
        server.handle_error = lambda *_: log.debug("the server of accumulators", exc_info=True)


def _end_accumulators(context: Any) -> threading.Thread | None:
    """Spare the second that the server of accumulators sleeps on its connection before it notices a stop, and the half
    one that it then waits for another connection.

    An update wakes it, and one without values changes nothing (pyspark 4.0 to 4.3; without these names it just sleeps).
    The server must be shutting down by then. Returns the thread that shuts it down and waits for it.
    """
    server, java = getattr(context, "_accumulatorServer", None), getattr(context, "_javaAccumulator", None)
    if server is None or java is None:
        return None
    ending = threading.Thread(target=server.shutdown, name="zkgroup-spark-accumulators", daemon=True)
    ending.start()
    with contextlib.suppress(Py4JError, OSError):
        java.merge(java)
    return ending


def _stop_context(context: Any, jvm: SparkJvm) -> None:
    """Stop it, by force where it takes too long: a cluster that is gone, a JVM that is stuck."""
    force = threading.Timer(STOP, jvm.kill)
    force.daemon = True
    force.start()
    try:
        ending = _end_accumulators(context)
        with contextlib.suppress(Py4JError, OSError):
            context.stop()
        if ending is not None:
            ending.join(STOP)
    finally:
        force.cancel()
        force.join()


#: Seconds for Spark to cancel or stop.
STOP: Final = 15.0


class Job:
    """A Spark job in a thread of its own, so that the caller's thread stays free to hear signals."""

    def __init__(self, context: Any, name: str, tasks: Sequence[Any], work: Callable[[Any], Iterator[Answer]]) -> None:
        self._context = context
        self._name = name
        self._tasks = tasks
        self._work = work
        self.outcome: Future[list[Answer]] = Future()
        self._since = self._checked = time.monotonic()
        self._ended = 0  # tasks
        self._thread = threading.Thread(target=self._run, name="zkgroup-export-job", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def _run(self) -> None:
        try:
            self._context.setJobGroup(self._name, "zkgroup export", interruptOnCancel=True)
            data = self._context.parallelize(self._tasks, len(self._tasks))
            self.outcome.set_result(data.mapPartitions(self._work).collect())
        except BaseException as error:  # noqa: BLE001  # raised again in the caller's thread
            self.outcome.set_exception(error)

    def idle_seconds(self) -> float:
        """How long it has had no active executor: Spark itself waits for one for ever. Asks Spark at most once a
        second."""
        now = time.monotonic()
        if now - self._checked > 1.0:
            self._checked = now
            tracker = self._context.statusTracker()
            jobs = filter(None, map(tracker.getJobInfo, tracker.getJobIdsForGroup(self._name)))
            stages = list(filter(None, (tracker.getStageInfo(stage) for job in jobs for stage in job.stageIds)))
            ended = sum(stage.numCompletedTasks + stage.numFailedTasks for stage in stages)
            if ended != self._ended or any(stage.numActiveTasks for stage in stages):
                self._since, self._ended = now, ended
        return now - self._since

    def cancel(self) -> None:
        """End the job if it still runs, and wait for its thread."""
        if self._thread.ident is not None and not self.outcome.done():
            with contextlib.suppress(Py4JError, OSError):
                self._context.cancelJobGroup(self._name)
            wait([self.outcome], STOP)
