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
# Of the shell that is to start it, and of Java itself.
_NO_JVM = re.compile(
    r"^.*(?:spark-submit|spark-class|/java): (?:.*: )?(?:not found|No such file or directory|Permission denied).*"
    r"|^(?:Invalid|Too small|Too large|Could not reserve|Could not allocate|Incompatible|Unrecognized|Conflicting) .*"
    r"(?:heap|option|collector|VM|space).*"
    r"|^Error opening .*JAR.*",
    re.MULTILINE | re.IGNORECASE,
)
_RAISED = re.compile(r"^(?:: |Caused by: )?((?:\w+\.)*\w+(?:Error|Exception): .+)$", re.MULTILINE)
_OF_SPARK: Final = ("org.apache.spark", "py4j.", "java.", "pyspark.")
#: Of a client whose reasons stand behind it (Kubernetes').
_NOTHING_SAID: Final = "An error has occurred"
#: Before what it repeats of them.
_ONCE_MORE: Final = " Received status: "
_CAUSE: Final = re.compile(r"^Caused by: [\w.$]*?(\w+: .+)$", re.MULTILINE)
#: Module → the package to install.
_PACKAGES: Final = {"confluent_kafka": "confluent-kafka", "pyarrow": "pyarrow", "zkgroup": "zkgroup"}


#: What Spark says when a master has not registered it within a minute; it stops the context then.
GAVE_UP: Final = "All masters are unresponsive"


# What Spark's log says, again and again, of a master that speaks as another release does.
_OTHER_RELEASE: Final = "local class incompatible"
# And where Kubernetes is to run nothing.
_NO_IMAGE: Final = "Must specify the executor container image"


def hopeless_start(master: str, log: str, keep: Callable[[], str]) -> ZkgroupError | None:
    """Why Spark, which goes on trying, will not start; None while it may."""
    if _OTHER_RELEASE in log:
        return UsageError(
            f"the Spark master {master} is of another release than pyspark here",
            f"install the pyspark of that release (4.0 or later); Spark's log: {keep()}",
        )
    if _NO_IMAGE in log:
        return UsageError(
            f"{master} has no image for its executors",
            "name one with --conf spark.kubernetes.container.image=IMAGE: with Spark, and with a Python that has "
            "confluent-kafka, pyarrow and orjson",
        )
    return None


def no_master(master: str, kept: str) -> ZkgroupError:
    """Something takes connections there, and no applications."""
    return UnreachableError(
        f"the Spark master {master} does not take applications",
        f"check its address, that it runs, and that its release is that of pyspark here; Spark's log: {kept}",
    )


def start_failure(master: str, log: str, why: str, keep: Callable[[], str]) -> ZkgroupError:
    """Why Spark does not start. ``log``: what it wrote; ``why``: all that pyspark raised; ``keep``: as below."""
    if _OLD_JAVA.search(log):
        return UsageError("Java is too old for Spark", "install Java 17 or later, or set JAVA_HOME to it")
    if GAVE_UP in log:
        return no_master(master, keep())
    if "Unrecognized option: --load-spark-defaults" in log:
        return UsageError(
            "SPARK_HOME is that of a Spark before 4.0, which pyspark here is not",
            "unset it, or let it name one of pyspark's",
        )
    master = re.sub(r"^local\[([^],]+),.*", r"local[\1]", master)  # as it is written; more is our own
    if match := _NO_JVM.search(log):
        return UsageError(
            f"Spark's JVM does not start: {' '.join(match[0].split())[:_LINE]}",
            "check SPARK_HOME, JAVA_HOME, and the options for Java among Spark's properties (spark.driver.memory, …)",
        )
    found = re.search(r"(?:Exception|Error)(?: in thread)?[^:\n]*: (.+)", log)
    raised = [line.partition(": ")[2] for line in _RAISED.findall(why)]
    if found and found[1].rstrip(". ") == _NOTHING_SAID and (cause := _CAUSE.search(log)):
        return UnreachableError(
            f"the Spark master {master} does not answer as one: {cause[1][:_LINE]}",
            f"check its address, and that it runs; Spark's log: {keep()}",
        )
    reason = found[1] if found else (raised or why.splitlines() or ["no reason was given"])[0]
    reason = reason.partition(_ONCE_MORE)[0]
    return UsageError(f"Spark does not start on {master}: {reason[:_LINE].rstrip('. ')}", f"its log: {keep()}")


def silent_master(master: str, timeout: float, kept: str) -> ZkgroupError:
    """Spark has not started in time."""
    if master.startswith("local"):  # there is none
        return UnreachableError(
            f"Spark has not started within {timeout:g} s",
            f"check that Java starts (java -version), or wait longer with --spark-timeout; its log: {kept}",
        )
    return UnreachableError(
        f"Spark on {master} has not started within {timeout:g} s",
        f"check that the master runs and can reach this host, or wait longer with --spark-timeout; its log: {kept}",
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
    """Why a job failed. ``text``: what pyspark raised, the traceback of a task in it; ``keep`` keeps its log, where it
    tells more, and says where."""
    if match := _OTHER_PYTHON.search(text):
        return UsageError(
            f"Spark's executors run Python {match[1]}, and zkgroup runs Python {match[2]} here: both must be the same",
            "give them such a Python with --conf spark.pyspark.python=PATH",
        )
    if match := _MISSING.search(text):
        module = match[1].partition(".")[0]
        package = _PACKAGES.get(module, module)
        return UsageError(
            f"Spark's executors have no Python package {package}",
            "install confluent-kafka, pyarrow and orjson (and fastavro for Avro) in the Python that they run, or name "
            "another one with --conf spark.pyspark.python=PATH",
        )
    if match := _NO_PYTHON.search(text) or _NO_PYTHON.search(log):
        return UsageError(
            f"Spark's executors have no Python at {match[1]}", "name theirs with --conf spark.pyspark.python=PATH"
        )
    if "daemon's stdout" in text:
        return UsageError(
            "the Python that Spark's executors run is none, or does not start",
            f"name one with --conf spark.pyspark.python=PATH, or PYSPARK_PYTHON; Spark's log: {keep()}",
        )
    if "Master removed our application" in text + log:
        return ZkgroupError(
            "Spark's master gave up this export: its executors failed again and again",
            f"read the workers' logs; Spark's own: {keep()}",
        )
    # The last line of a Python traceback from a task, else the first line of what the JVM says.
    raised = _RAISED.findall(text)
    inner = [line for line in raised if not line.startswith(_OF_SPARK)]
    why = (inner or raised or text.splitlines() or ["no reason was given"])[0]
    return ZkgroupError(f"Spark's job failed: {why[:_LINE]}", f"its log: {keep()}")
