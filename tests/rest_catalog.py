"""Iceberg's own REST catalog: the server of its project's images, on SQLite.

Ivy fetches its jars at their first use (35 MB, into the cache folder); Hadoop's and Jackson's are those of pyspark.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from object_store_server import serving

from zkgroup.config.setting_files import cache_dir
from zkgroup.java_runtime import QUICK, find_java
from zkgroup.sandbox.kafka_releases import pyspark_class_path, retrieve

RELEASE = "1.10.1"
_ICEBERG = "org.apache.iceberg"
_FIXTURES = [
    (_ICEBERG, "iceberg-open-api", RELEASE, "test-fixtures"),
    (_ICEBERG, "iceberg-core", RELEASE, "tests"),
]
_ALONE = [
    *((_ICEBERG, f"iceberg-{name}", RELEASE) for name in ("core", "api", "common", "bundled-guava", "parquet")),
    ("com.github.ben-manes.caffeine", "caffeine", "2.9.3"),
    ("org.xerial", "sqlite-jdbc", "3.50.3.0"),
]
_WITH_ALL = [
    ("org.eclipse.jetty", "jetty-servlet", "11.0.26"),
    ("org.apache.httpcomponents.client5", "httpclient5", "5.5"),
]


def _jars() -> Path:
    """The folder with what pyspark lacks."""
    folder = cache_dir() / "tests" / f"iceberg-rest-{RELEASE}"
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(dir=folder.parent))
        for modules, alone in ((_FIXTURES, True), (_ALONE, True), (_WITH_ALL, False)):
            assert retrieve(modules, work, work / "ivy", alone=alone) is None
        (work / "jars").rename(folder)
        shutil.rmtree(work)
    return folder


@contextmanager
def rest_catalog(folder: Path) -> Iterator[int]:
    """A running server, which keeps everything in ``folder``; its port."""
    client = pyspark_class_path(
        "hadoop-client-", "slf4j-api-", "log4j-", "jackson-core-", "jackson-databind-", "jackson-a", "avro-1"
    )
    jars = os.pathsep.join([*(str(jar) for jar in sorted(_jars().glob("*.jar"))), client])
    settings = {
        "CATALOG_WAREHOUSE": f"file://{folder}/warehouse",
        "CATALOG_URI": f"jdbc:sqlite:{folder}/catalog.db",
        "CATALOG_IO__IMPL": "org.apache.iceberg.hadoop.HadoopFileIO",
    }

    def answers(port: int) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/config", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def command(port: int) -> list[str]:
        java = [str(find_java()), *QUICK, "-Xmx256m", "-cp", jars, f"{_ICEBERG}.rest.RESTCatalogServer"]
        return ["env", f"CATALOG_REST_PORT={port}", *java]

    folder.mkdir(parents=True)
    with serving(command, folder / "server.log", answers, settings) as port:
        yield port
