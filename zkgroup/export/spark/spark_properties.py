"""Spark's properties, as an export sets them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

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
