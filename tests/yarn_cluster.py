"""YARN on this machine: the ResourceManager and a NodeManager of the Hadoop release that pyspark brings the client of.

Their classes are in ``hadoop-client-minicluster``, which Ivy fetches at its first use (55 MB, into the cache folder).
"""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from support import wait_until

from zkgroup.child_processes import Watchdog
from zkgroup.config.setting_files import cache_dir
from zkgroup.java_runtime import QUICK, find_java
from zkgroup.sandbox.kafka_releases import pyspark_class_path, pyspark_jars, retrieve
from zkgroup.sandbox.processes import Process, free_port

_SERVERS = "org.apache.hadoop.yarn.server"


def _jars() -> Path:
    """The folder with what pyspark lacks of YARN's servers."""
    client = next(pyspark_jars().glob("hadoop-client-api-*.jar"))
    release = re.sub(r"hadoop-client-api-(.+)\.jar", r"\1", client.name)
    folder = cache_dir() / "tests" / f"yarn-{release}"
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(dir=folder.parent))
        modules = [("org.apache.hadoop", "hadoop-client-minicluster", release)]
        modules += [("org.bouncycastle", f"{name}-jdk18on", "1.82") for name in ("bcprov", "bcpkix", "bcutil")]
        assert retrieve(modules, work, work / "ivy", alone=True) is None
        (work / "jars").rename(folder)
        shutil.rmtree(work)
    return folder


def _xml(settings: dict[str, str]) -> str:
    lines = [f"<property><name>{name}</name><value>{value}</value></property>" for name, value in settings.items()]
    return "\n".join(["<configuration>", *lines, "</configuration>", ""])


class Yarn:
    """A ResourceManager and a NodeManager with room for some executors. ``conf``: the folder that clients are to have
    as ``HADOOP_CONF_DIR``."""

    def __init__(self, folder: Path, guard: Watchdog) -> None:
        self.conf = folder / "conf"
        self._folder = folder
        self._guard = guard
        self._web = free_port()
        manager, node = "yarn.resourcemanager.", "yarn.nodemanager."
        places = ("address", "scheduler.address", "resource-tracker.address", "admin.address")
        settings = {f"{manager}{place}": f"127.0.0.1:{free_port()}" for place in places}
        settings |= {f"{manager}hostname": "127.0.0.1", f"{manager}webapp.address": f"127.0.0.1:{self._web}"}
        places = ("address", "localizer.address", "webapp.address", "collector-service.address")
        settings |= {f"{node}{place}": "127.0.0.1:0" for place in places}
        settings |= {
            f"{node}hostname": "127.0.0.1",
            f"{node}local-dirs": str(folder / "local"),
            f"{node}log-dirs": str(folder / "logs"),
            f"{node}resource.memory-mb": "4096",
            f"{node}resource.cpu-vcores": "4",
            f"{node}vmem-check-enabled": "false",
            f"{node}pmem-check-enabled": "false",
            f"{node}disk-health-checker.enable": "false",
            "yarn.scheduler.minimum-allocation-mb": "128",
        }
        queues = "yarn.scheduler.capacity."
        self.conf.mkdir(parents=True)
        (self.conf / "core-site.xml").write_text(_xml({}))
        (self.conf / "yarn-site.xml").write_text(_xml(settings))
        (self.conf / "capacity-scheduler.xml").write_text(
            _xml(
                {
                    f"{queues}root.queues": "default",
                    f"{queues}root.default.capacity": "100",
                    f"{queues}maximum-am-resource-percent": "0.9",
                }
            )
        )
        self.manager = self._spawn("resourcemanager.ResourceManager")
        self.node = self._spawn("nodemanager.NodeManager")
        wait_until(self._has_a_node, 120, f"YARN in {folder} has a node")

    def _spawn(self, main: str) -> Process:
        jars = [str(jar) for jar in sorted(_jars().glob("*.jar"))]
        client = pyspark_class_path("hadoop-client-", "slf4j-api-", "log4j-", "jcl-over-slf4j-")
        command = [
            *(str(find_java()), *QUICK, "-Xmx192m", "--add-opens", "java.base/java.lang=ALL-UNNAMED"),
            *("-cp", os.pathsep.join([str(self.conf), *jars, client]), f"{_SERVERS}.{main}"),
        ]
        return Process("server", self._guard).spawn(command, folder=self._folder, log=self._folder / f"{main}.log")

    def _has_a_node(self) -> bool:
        for process in (self.manager, self.node):
            assert process.running, f"a server of YARN has ended: see {self._folder}"
        address = f"http://127.0.0.1:{self._web}/ws/v1/cluster/nodes"
        with suppress(OSError, ValueError), urllib.request.urlopen(address, timeout=5) as answer:
            return "RUNNING" in json.dumps(json.load(answer))
        return False

    def executors(self) -> list[int]:
        """The process ids of the executors that it runs."""
        local, main = str(self._folder / "local"), "org.apache.spark.executor.YarnCoarseGrainedExecutorBackend"
        found: list[int] = []
        for place in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                java, *words = (place / "cmdline").read_text(errors="replace").split("\0")
                if java.endswith("java") and main in words and any(local in word for word in words):
                    found.append(int(place.name))
        return found


@contextmanager
def yarn(folder: Path) -> Iterator[Yarn]:
    """YARN, which ends with the block, or with this process."""
    guard = Watchdog()
    guard.start()
    servers: Yarn | None = None
    try:
        servers = Yarn(folder, guard)
        yield servers
    finally:
        for process in (servers.node, servers.manager) if servers is not None else ():
            process.stop(20)
        guard.close()
