"""A standalone Spark cluster on this machine, from the jars that pip's pyspark has: it lacks the scripts for one."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark
from support import wait_until

from zkgroup.child_processes import Watchdog
from zkgroup.java_runtime import QUICK, find_java
from zkgroup.sandbox.processes import Process

HOME = Path(pyspark.__file__).parent
_LOG4J = """\
rootLogger.level = info
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %p %c{1}: %m%n%ex
"""


class Standalone:
    """A master and its workers, each with one core, in ``folder``."""

    def __init__(self, folder: Path, guard: Watchdog) -> None:
        self._folder = folder
        self._guard = guard
        self._processes: list[Process] = []
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "log4j2.properties").write_text(_LOG4J)
        self._spawn("master", "org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", "--port", "0")
        self.url = self._reported("master", r"Starting Spark master at (spark://\S+)")

    def _spawn(self, name: str, main: str, *arguments: str) -> Process:
        command = [
            *(
                "env",
                f"SPARK_HOME={HOME}",
                "SPARK_LOCAL_IP=127.0.0.1",
                "SPARK_SCALA_VERSION=2.13",
                str(find_java()),
                *QUICK,
                "-Xmx128m",
            ),
            *(f"-Dlog4j2.configurationFile=file:{self._folder}/log4j2.properties", "-cp", f"{HOME}/jars/*"),
            *(main, *arguments, "--webui-port", "0"),
        ]
        process = Process("server", self._guard).spawn(command, folder=self._folder, log=self._log(name))
        self._processes.append(process)
        return process

    def _log(self, name: str) -> Path:
        return self._folder / f"{name}.log"

    def _reported(self, name: str, pattern: str) -> str:
        return wait_until(
            lambda: (found := re.search(pattern, self._log(name).read_text())) and found[1], 90, f"{name}: {pattern}"
        )

    def add_worker(self, name: str) -> Process:
        """A worker that the master has taken."""
        worker = self._spawn(
            name, "org.apache.spark.deploy.worker.Worker", "--host", "127.0.0.1", "--cores", "1", "--memory", "1g",
            "--work-dir", str(self._folder / f"{name}-work"), self.url,
        )  # fmt: skip
        self._reported(name, r"(Successfully registered) with master")
        return worker

    def stop(self) -> None:
        """End all that is left."""
        for process in self._processes:
            process.kill()


def kill_group(process: Process) -> None:
    """SIGKILL a worker and its executors, as when their machine dies."""
    os.killpg(process.process_id.pid, signal.SIGKILL)
    process.wait_gone(30)


@contextmanager
def standalone(folder: Path, workers: int) -> Iterator[tuple[Standalone, list[Process]]]:
    """A cluster with so many workers, which ends with the block, or with this process."""
    guard = Watchdog()
    guard.start()
    try:
        cluster = Standalone(folder, guard)
        yield cluster, [cluster.add_worker(f"worker-{number}") for number in range(1, workers + 1)]
        cluster.stop()
    finally:
        guard.close()


def python_without(folder: Path, *, packages: bool) -> str:
    """A Python as executors elsewhere have it: without zkgroup, and with or without what docs say that they need."""
    path, site = folder / f"python-{packages}", folder / "site-packages"
    site.mkdir(exist_ok=True)
    for name in ("confluent_kafka", "confluent_kafka.libs", "pyarrow", "orjson") if packages else ():
        if (found := HOME.parent / name).exists() and not (site / name).exists():
            (site / name).symlink_to(found)
    # -S: nothing of this environment, in which zkgroup is installed by a .pth file.
    path.write_text(f'#!/bin/sh\nPYTHONPATH="$PYTHONPATH:{site}" exec {sys.executable} -S "$@"\n')
    path.chmod(0o755)
    return str(path)
