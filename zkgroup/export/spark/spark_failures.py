"""Errors from Spark's messages and log. Pure.

The patterns are for Spark 4.0 to 4.3. A message without a pattern is quoted, one line of it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from zkgroup.errors import UnreachableError, UsageError, ZkgroupError

_LINE: Final = 500
_MISSING = re.compile(r"ModuleNotFoundError: No module named '([\w.]+)'")
_NO_PYTHON = re.compile(r'Cannot run program "([^"]+)".*?error=(?:2|13), ')
_OTHER_PYTHON = re.compile(r"different version: ([\d.]+) than that in driver: ([\d.]+)")
_OLD_JAVA = re.compile(r"UnsupportedClassVersionError|Unrecognized option: --add-|Unrecognized VM option 'IgnoreUnrec")
# In a log; that of Kubernetes' client has its reason behind one that says nothing, and repeats it behind the status.
_LOGGED = re.compile(
    r"[\w$]\.\w+(?:Exception|Error): (?!An error has occurred)(.+?)(?= Received status: |$)", re.MULTILINE
)
_RAISED = re.compile(r"^(?:: |Caused by: )?((?:\w+\.)*\w+(?:Error|Exception): .+)$", re.MULTILINE)
_OF_SPARK: Final = ("org.apache.spark", "py4j.", "java.", "pyspark.")
#: What Spark says when a master has not registered it within a minute; it stops the context then.
GAVE_UP: Final = "All masters are unresponsive"


def no_master(master: str, kept: str) -> ZkgroupError:
    """Something takes connections there, and no applications."""
    return UnreachableError(
        f"the Spark master {master} does not take applications",
        f"check its address, that it runs, and that its release is that of pyspark here; Spark's log: {kept}",
    )


def start_failure(master: str, log: str, why: str, keep: Callable[[], str]) -> ZkgroupError:
    """Why Spark does not start. ``log``: what it wrote; ``why``: all that pyspark raised; ``keep`` keeps its log, where
    it tells more, and says where."""
    if _OLD_JAVA.search(log):
        return UsageError("Java is too old for Spark", "install Java 17 or later, or set JAVA_HOME to it")
    if GAVE_UP in log:
        return no_master(master, keep())
    master = re.sub(r"^local\[([^],]+),.*", r"local[\1]", master)  # as it is written; more is our own
    raised = [line.partition(": ")[2] for line in _RAISED.findall(why)]
    # What keeps a JVM from starting is in the first lines, behind options of the environment, which may be secret.
    first = [line for line in log.splitlines() if "Picked up " not in line][:2]
    reasons = [*_LOGGED.findall(log)[:1], *raised, " ".join(first), *why.splitlines()]
    reason = next(filter(None, reasons), "no reason was given")
    return UsageError(f"Spark does not start on {master}: {reason[:_LINE].rstrip('. ')}", f"its log: {keep()}")


def silent_master(master: str, timeout: float, kept: str) -> ZkgroupError:
    """Spark has not started in time."""
    return UnreachableError(
        f"Spark on {master} has not started within {timeout:g} s",
        "check that Java starts (java -version), and that a master runs and can reach this host; or wait longer with "
        f"--spark-timeout; its log: {kept}",
    )


def no_executor(master: str, timeout: float, kept: str) -> ZkgroupError:
    """No executor has taken a task for so long."""
    check = "check that workers run and have cores and memory free (spark.executor.memory, spark.cores.max)"
    if master.startswith("k8s://"):
        check = "see what keeps its pods from running (kubectl describe pods -l spark-role=executor, while it waits)"
    return UnreachableError(
        f"no executor of {master} has worked on the export for {timeout:g} s",
        f"{check}, or wait longer with --spark-timeout; Spark's log: {kept}",
    )


def job_failure(text: str, log: str, keep: Callable[[], str]) -> ZkgroupError:
    """Why a job failed. ``text``: what pyspark raised, the traceback of a task in it; ``keep``: as above."""
    if match := _OTHER_PYTHON.search(text):
        return UsageError(
            f"Spark's executors run Python {match[1]}, and zkgroup runs Python {match[2]} here: both must be the same",
            "give them such a Python with --conf spark.pyspark.python=PATH",
        )
    if match := _MISSING.search(text):
        return UsageError(
            f"Spark's executors have no Python package {match[1].partition('.')[0].replace('_', '-')}",
            "install confluent-kafka, pyarrow and orjson (and fastavro for Avro, msgspec for JSON) in the Python that "
            "they run, or name another one with --conf spark.pyspark.python=PATH",
        )
    if match := _NO_PYTHON.search(text) or _NO_PYTHON.search(log):
        return UsageError(
            f"Spark's executors have no Python at {match[1]}", "name theirs with --conf spark.pyspark.python=PATH"
        )
    # The last line of a Python traceback from a task, else the first line of what the JVM says.
    raised = _RAISED.findall(text)
    inner = [line for line in raised if not line.startswith(_OF_SPARK)]
    why = (inner or raised or text.splitlines() or ["no reason was given"])[0]
    return ZkgroupError(f"Spark's job failed: {why[:_LINE]}", f"its log: {keep()}")
