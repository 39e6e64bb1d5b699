"""Spark: started quietly, given tasks, cancelled, stopped.

A SparkContext alone (no SparkSession, no SQL) is up in half the time and is all that is needed. What Spark writes to
its log stays in a file of its own; when Spark fails, that file is kept and named.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.accumulators import AccumulatorParam
from pyspark.conf import SparkConf
from pyspark.core.context import SparkContext
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway

import zkgroup
from zkgroup.errors import UsageError, ZkgroupError
from zkgroup.export.scratch import ScratchFolder
from zkgroup.export.task import Answer, DoneAnswer, TaskSettings, done_or_raise, run_task
from zkgroup.export.words import OffsetRange

#: All cores, and a failed task is tried again: ``local[*]`` never does that.
DEFAULT_MASTER = "local[*,4]"

_LOG4J = """\
rootLogger.level = warn
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{yy/MM/dd HH:mm:ss} %p %c{1}: %m%n%ex
"""
_POLL = 0.1
_STOP = 15.0  # seconds for Spark to cancel or stop


class SparkJobs:
    """A running Spark: a context manager. A SparkContext that this process already has is used, and left running."""

    def __init__(self, master: str, conf: Mapping[str, str]) -> None:
        self._master = master
        self._conf = dict(conf)
        self._context: Any = None
        self._gateway: Any = None
        self._scratch: ScratchFolder | None = None
        self._failure: Exception | None = None
        self._started = threading.Event()

    def __enter__(self) -> Self:
        active = SparkContext._active_spark_context
        if active is not None:
            self._context = active
            return self
        self._scratch = ScratchFolder.make()
        # In a thread of its own, which nothing interrupts: pyspark, interrupted while its JVM starts, forgets that JVM,
        # and the JVM then never ends. It also keeps pyspark from taking SIGINT for itself.
        starter = threading.Thread(
            target=self._start, args=(self._scratch.path,), name="zkgroup-spark-start", daemon=True
        )
        try:
            starter.start()
            # No join: one that a signal interrupts takes the thread for ended from then on (seen with Python 3.11).
            while not self._started.wait(_POLL):
                pass
            if isinstance(self._failure, (PySparkException, Py4JError, OSError)):
                raise self._start_failure(self._failure) from None
            if self._failure is not None:
                raise self._failure
        except BaseException:
            self._started.wait(_STOP)
            self.__exit__()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        scratch, self._scratch = self._scratch, None
        if scratch is None:  # not ours
            return
        try:
            if self._context is not None:
                with contextlib.suppress(Py4JError, OSError):
                    _wake_accumulators(self._context)
                with contextlib.suppress(Py4JError, OSError):
                    self._context.stop()
            if self._gateway is not None:
                with contextlib.suppress(Py4JError, OSError):
                    self._gateway.shutdown()
                _end_process(self._gateway.proc)
                # pyspark keeps the gateway for the next context of the process: this one is gone.
                SparkContext._gateway = SparkContext._jvm = None
        finally:
            self._context = self._gateway = None
            scratch.remove()

    @property
    def _folder(self) -> Path | None:
        return None if self._scratch is None else self._scratch.path

    @property
    def context(self) -> Any:
        """The SparkContext, while open."""
        return self._context

    def _start(self, folder: Path) -> None:
        try:
            settings = _settings(self._master, self._conf, folder)
            with _environment(settings), (folder / "spark.log").open("wb") as log:
                self._gateway = launch_gateway(settings, {"stdout": log, "stderr": log})  # type: ignore[no-untyped-call]
                self._context = SparkContext(conf=settings, gateway=self._gateway)
        except Exception as error:  # noqa: BLE001  # raised again in the caller's thread
            self._failure = error
        finally:
            self._started.set()

    def _start_failure(self, error: Exception) -> ZkgroupError:
        log = self._log_text()
        if "UnsupportedClassVersionError" in log or "Unrecognized option: --add-opens" in log:
            return UsageError("Java is too old for Spark", "install Java 17 or later, or set JAVA_HOME to it")
        said = re.search(r"(?:Exception|Error)[^:\n]*: (.+)", log)
        why = said[1] if said else str(error).splitlines()[0]
        return UsageError(f"Spark does not start on {self._master}: {why}", f"its log: {self._keep_log()}")

    def _log_text(self) -> str:
        if self._folder is None:
            return ""
        try:
            return (self._folder / "spark.log").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return ""

    def _keep_log(self) -> str:
        if self._folder is None:
            return "where this Spark writes it"
        kept = f"{self._folder}.log"
        with contextlib.suppress(OSError):
            shutil.copyfile(self._folder / "spark.log", kept)
        return kept

    def run(
        self,
        settings: TaskSettings,
        tasks: Sequence[Sequence[OffsetRange]],
        done: Callable[[DoneAnswer], None],
    ) -> list[DoneAnswer]:
        """Run ``tasks`` and return what they did, all of it. ``done`` is told of ranges while it goes on.

        The first failure cancels the rest and is raised; so does any exception that interrupts this thread.
        """
        context = self._context
        told = context.accumulator([], _Answers())
        plain = [[(*piece.partition, piece.start, piece.end) for piece in task] for task in tasks]

        def work(dealt: Iterator[list[tuple[str, int, int, int]]]) -> Iterator[Answer]:
            for ranges in dealt:
                for answer in run_task(settings, ranges):
                    told.add([answer])
                    yield answer

        self._ship()
        job = _Job(context, f"zkgroup-{os.getpid()}-{id(plain)}", plain, work)
        seen = 0
        try:
            job.start()
            while not job.finished(_POLL):
                answers = told.value
                for answer in answers[seen:]:
                    done(done_or_raise(answer))
                seen = len(answers)
            answers = job.result()
        except (PySparkException, Py4JError) as error:
            raise self._job_failure(error) from None
        finally:
            job.cancel()
        finished: list[DoneAnswer] = []
        for answer in answers:
            finished.append(done_or_raise(answer))
        return finished

    def _ship(self) -> None:
        """On a cluster nobody has installed zkgroup, or just this version: our code travels with the job."""
        if re.match(r"local(\[|$)", self._context.master):
            return
        folder = self._folder
        if folder is None:  # a context that outlives this object hands the file to every new executor
            folder = Path(tempfile.mkdtemp(prefix="zkgroup-code-"))
            atexit.register(shutil.rmtree, folder, ignore_errors=True)
        self._context.addPyFile(str(pack_code(folder / f"{folder.name}.zip")))

    def _job_failure(self, error: Exception) -> ZkgroupError:
        text = str(error)
        # The last line of a Python traceback from a task, else the first line of what the JVM says.
        raised = re.findall(r"^(?:: |Caused by: )?((?:\w+\.)*\w+(?:Error|Exception): .+)$", text, re.MULTILINE)
        inner = [line for line in raised if not line.startswith(("org.apache.spark", "py4j.", "java."))]
        why = (inner or raised or text.splitlines() or ["no reason was given"])[0]
        return ZkgroupError(f"Spark's job failed: {why[:500]}", f"its log: {self._keep_log()}")


def pack_code(target: Path) -> Path:
    """A zip of what tasks import of zkgroup."""
    root = Path(zkgroup.__file__).parent
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for part in (".", "protocol", "servers", "export"):
            for path in sorted((root / part).glob("*.py")):
                archive.write(path, Path("zkgroup", path.relative_to(root)))
    return target


class _Answers(AccumulatorParam[Any]):
    """Lists of answers, put together as tasks end."""

    def zero(self, value: list[Answer]) -> list[Answer]:
        return []

    def addInPlace(self, value1: list[Answer], value2: list[Answer]) -> list[Answer]:
        return value1 + value2


class _Job:
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
            self._done.wait(_STOP)


def _settings(master: str, conf: Mapping[str, str], folder: Path) -> Any:
    log4j = folder / "log4j2.properties"
    log4j.write_text(_LOG4J, encoding="utf-8")
    # A run of seconds never pays for the JVM's best compiler: half a second less.
    options = f"-XX:TieredStopAtLevel=1 -Dlog4j2.configurationFile=file:{log4j}"
    wanted = {
        "spark.app.name": "zkgroup export",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # Arrow's own allocators keep what they once had: 50 to 100 MB more at a task's peak, and no faster here.
        "spark.executorEnv.ARROW_DEFAULT_MEMORY_POOL": "system",
        # glibc raises this limit once it has freed a large block, and then keeps large blocks for good: with messages
        # of 10 MB a task's peak was 203 MB, and is 147 MB so.
        "spark.executorEnv.MALLOC_MMAP_THRESHOLD_": str(4 << 20),
    }
    if master.startswith("local"):
        # A host that cannot resolve its own name must not matter here.
        wanted |= {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.local.dir": str(folder / "local"),
        }
    wanted |= conf
    given = conf.get("spark.driver.extraJavaOptions", "")
    wanted["spark.driver.extraJavaOptions"] = f"{options} {given}".strip()
    wanted["spark.master"] = master
    settings = SparkConf(loadDefaults=False)
    for key, value in wanted.items():
        settings.set(key, value)
    return settings


@contextlib.contextmanager
def _environment(settings: Any) -> Iterator[None]:
    """Tasks run this very Python unless somebody has said otherwise. pyspark looks for that in the environment only."""
    if "PYSPARK_PYTHON" in os.environ or settings.get("spark.pyspark.python"):
        python = os.environ.get("PYSPARK_PYTHON") or settings.get("spark.pyspark.python")
    else:
        python = sys.executable
    before = os.environ.get("PYSPARK_PYTHON")
    os.environ["PYSPARK_PYTHON"] = python
    try:
        yield
    finally:
        if before is None:
            del os.environ["PYSPARK_PYTHON"]
        else:
            os.environ["PYSPARK_PYTHON"] = before


def _wake_accumulators(context: Any) -> None:
    """Spare the second that the server of accumulators sleeps on its connection before it notices a stop.

    An update wakes it, and one without values changes nothing (pyspark 4.0 to 4.3; without these names it just sleeps).
    """
    server, java = getattr(context, "_accumulatorServer", None), getattr(context, "_javaAccumulator", None)
    if server is not None and java is not None:
        server.server_shutdown = True
        java.merge(java)


def _end_process(process: Any) -> None:
    if process is None:  # a gateway that somebody else started
        return
    if process.stdin is not None:
        with contextlib.suppress(OSError):
            process.stdin.close()
    try:
        process.wait(_STOP)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(_STOP)
