"""Spark's properties: those that an export sets, those of a file, and the master.

No pyspark here: a wrong address is refused before anything begins.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from zkgroup.config.setting_files import read_properties
from zkgroup.errors import UnreachableError, UsageError

#: All cores of this machine.
DEFAULT_MASTER: Final = "local[*]"
#: The variable in which spark-submit passes the port of the JVM that it has started.
PORT: Final = "PYSPARK_GATEWAY_PORT"

_KNOWN = re.compile(r"local(\[.*\]|-cluster\[.*\])?|spark://.+|yarn|k8s://.+", re.DOTALL)
_LOCAL = re.compile(r"local(?:\[([0-9]+|\*)\])?")
_TRIES: Final = 4
_CONNECT_TIMEOUT: Final = 5.0


def choose_master(named: str | None, conf: Mapping[str, str]) -> str:
    """The master: the one that was named, that of the properties, or all cores of this machine.

    A local one retries failed tasks, which ``local[*]`` alone never does. Raises ``UsageError`` for what
    is no master.
    """
    master = named or conf.get("spark.master") or DEFAULT_MASTER
    if not _KNOWN.fullmatch(master):
        raise UsageError(
            f"{master[:80]!r} is no Spark master",
            "local[*], local[N], spark://HOST:PORT, yarn or k8s://https://HOST:PORT",
        )
    if match := _LOCAL.fullmatch(master):
        return f"local[{match[1] or 1},{_TRIES}]"
    return master


def is_cluster(master: str) -> bool:
    """Whether executors are processes apart from the driver's, on other machines for all we know."""
    return re.match(r"local(\[|$)", master) is None


def refuse_log_elsewhere(log: Path | None, environment: Mapping[str, str]) -> None:
    """Raise ``UsageError`` for a log that is asked for of a JVM that spark-submit has started."""
    if log is not None and PORT in environment:
        raise UsageError(
            "--log: spark-submit has started Spark, and its own settings say where that writes its log",
            "leave it out; spark-submit's --driver-java-options name a log4j2 configuration",
        )


def refuse_if_silent(master: str) -> None:
    """Raise ``UnreachableError`` where no server listens at a standalone master's address; all others are for Spark."""
    if not master.startswith("spark://"):
        return
    whys: list[str] = []
    for address in master.removeprefix("spark://").split(","):
        host, colon, port = address.rpartition(":")
        if not colon or not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
            raise UsageError(f"{master[:80]!r} names no HOST:PORT", "write it like spark://HOST:7077")
        try:
            socket.create_connection((host.strip("[]"), int(port)), _CONNECT_TIMEOUT).close()
        except OSError as error:
            whys.append(error.strerror or str(error))
        else:
            return
    raise UnreachableError(f"no Spark master answers at {master}: {whys[-1]}", "check --master, and that it runs")


def read_spark_properties(path: Path) -> dict[str, str]:
    """A file of Spark's properties, ``KEY VALUE`` or ``KEY=VALUE``; those that do not begin with ``spark.`` are
    left out, as by ``spark-submit``. Raises ``UsageError`` where it cannot be read."""
    return {item.key: item.value for item in read_properties(path) if item.key.startswith("spark.")}


def encode_properties(properties: Mapping[str, str]) -> str:
    """Java's ``.properties`` format."""
    return "".join(f"{_escaped(key)}={_escaped(value)}\n" for key, value in properties.items())


def _escaped(text: str) -> str:
    data = text.encode("utf-16-be", "surrogatepass")
    units = (chr(int.from_bytes(data[place : place + 2])) for place in range(0, len(data), 2))
    return "".join(unit if re.fullmatch(r"[\w./-]", unit, re.ASCII) else f"\\u{ord(unit):04x}" for unit in units)


_OPTIONS: Final = "spark.driver.extraJavaOptions"
_LOG4J: Final = """\
rootLogger.level = {level}
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = {level}
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{{yy/MM/dd HH:mm:ss}} %p %c{{1}}: %m%n%ex
"""


def default_properties(master: str, folder: Path) -> dict[str, str]:
    """The defaults of properties. ``folder``: the run's own, for what is temporary."""
    defaults = {
        "spark.master": master,
        "spark.app.name": "zkgroup export",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # Spark starts workers with -m: modules of the current folder, whatever they are, would come first.
        "spark.executorEnv.PYTHONSAFEPATH": "1",
        # Arrow's own allocators keep what they once had: 50 to 100 MB more at a task's peak, and no faster here.
        "spark.executorEnv.ARROW_DEFAULT_MEMORY_POOL": "system",
        # pyarrow imports numpy, whose threads for matrices spin while they wait for some: a third of a task's imports.
        "spark.executorEnv.OPENBLAS_NUM_THREADS": "1",
        # glibc raises this limit once it has freed a large block, and then keeps large blocks for good: with messages
        # of 10 MB a task's peak was 203 MB, and is 147 MB so. It is above a page of Parquet, which would be had from
        # the system again and again, and below values of megabytes among small ones, which leave holes that nothing
        # fits in: with 4 MB the peak of such a mixture was 282 MB, not 240.
        "spark.executorEnv.MALLOC_MMAP_THRESHOLD_": str(5 << 18),
        # Nor is this limit raised then: all that is freed would go back to the system at once, and be had again for
        # the next row group, page by page.
        "spark.executorEnv.MALLOC_TRIM_THRESHOLD_": str(32 << 20),
    }
    if master.startswith("local"):
        # A host that cannot resolve its own name must not matter here.
        defaults |= {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.local.dir": str(folder / "local"),
        }
    return defaults


def own_properties(
    master: str, conf: Mapping[str, str], folder: Path, *, quiet: bool, java: Sequence[str]
) -> dict[str, str]:
    """What is set in any case, for a JVM that is ours: ``conf``, the master, ``java``'s options, where logs go."""
    log4j = folder / "log4j2.properties"
    log4j.write_text(_LOG4J.format(level="warn" if quiet else "info"), encoding="utf-8")
    # A run of seconds never pays for the JVM's best compiler: half a second less.
    options = ("-XX:TieredStopAtLevel=1", f"-Dlog4j2.configurationFile=file:{log4j}", *java, conf.get(_OPTIONS, ""))
    return {**conf, "spark.master": master, _OPTIONS: " ".join(options).strip()}
