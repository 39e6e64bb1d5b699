"""Spark and DuckDB of other releases, in environments of their own: with their own readers of Delta and Iceberg tables,
which the installed releases have none of yet.

As a script: the Spark that ``foreign_spark`` runs.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

#: Of each release of Spark the connectors, each jar alone.
RELEASES: dict[str, list[tuple[str, ...]]] = {
    "3.5.7": [
        ("org.apache.iceberg", "iceberg-spark-runtime-3.5_2.12", "1.10.1"),
        ("io.delta", "delta-spark_2.12", "3.3.2"),
        ("io.delta", "delta-storage", "3.3.2"),
        ("org.xerial", "sqlite-jdbc", "3.50.3.0"),
    ],
}


def foreign_spark(release: str, catalog: str, statements: Sequence[str]) -> list[list[dict[str, Any]]]:
    """Run SQL, with the SQLite file ``catalog`` as the Iceberg catalog ``zkgroup``: the rows of each statement."""
    python, jars = _environment(release)
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.session.timeZone": "UTC",
        "spark.databricks.delta.retentionDurationCheck.enabled": "false",
        "spark.jars": ",".join(str(jar) for jar in sorted(jars.glob("*.jar"))),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension,"
        "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.catalog.zkgroup": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.zkgroup.type": "jdbc",
        "spark.sql.catalog.zkgroup.uri": f"jdbc:sqlite:{catalog}",
        "spark.sql.catalog.zkgroup.warehouse": str(Path(catalog).parent),
    }
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYSPARK"))}
    command = [str(python), __file__, json.dumps([settings, list(statements)])]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=600, check=False,
        env={**environment, "PYSPARK_PYTHON": str(python)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    answers: list[list[dict[str, Any]]] = json.loads(done.stdout.splitlines()[-1])
    return answers


_DUCKDB = "1.5.5"
_DUCKDB_JOB = """
import json, sys, duckdb
folder, query = sys.argv[1:]
connection = duckdb.connect(config={"allow_unsigned_extensions": "true"})
for name in ("avro", "iceberg", "delta"):
    place = f"{folder}/duckdb_extension_{name}/extensions/v{duckdb.__version__}"
    connection.execute(f"LOAD '{place}/{name}.duckdb_extension'")
print(json.dumps(connection.sql(query).fetchall(), default=bytes.decode))
"""


def foreign_duckdb(query: str) -> list[list[Any]]:
    """The rows of a query, by DuckDB with its extensions for tables (60 MB, into the cache folder)."""
    from zkgroup.config.setting_files import cache_dir

    folder = cache_dir() / "tests" / f"duckdb-{_DUCKDB}"
    if not folder.exists():
        work = Path(tempfile.mkdtemp(dir=folder.parent))
        packages = ["duckdb", *(f"duckdb-extension-{name}" for name in ("avro", "iceberg", "delta"))]
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(work)]
        subprocess.run([*pip, *(f"{name}=={_DUCKDB}" for name in packages)], check=True, timeout=600)
        work.rename(folder)
    done = subprocess.run(
        [sys.executable, "-c", _DUCKDB_JOB, str(folder), query], capture_output=True, text=True, timeout=120,
        check=False, env={**os.environ, "PYTHONPATH": str(folder)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    rows: list[list[Any]] = json.loads(done.stdout)
    return rows


def _environment(release: str) -> tuple[Path, Path]:
    """Its Python and the folder with its connectors, installed at their first use (350 MB, into the cache folder)."""
    from zkgroup.config.setting_files import cache_dir
    from zkgroup.sandbox.kafka_releases import retrieve

    home = cache_dir() / "tests" / f"spark-{release}"
    python = home / "venv" / "bin" / "python"
    if not (home / "jars").exists():
        shutil.rmtree(home, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", str(home / "venv")], check=True, timeout=300)
        pip = [str(python), "-m", "pip", "install", "--quiet", f"pyspark=={release}"]
        subprocess.run(pip, check=True, timeout=1200)
        work = Path(tempfile.mkdtemp(dir=home))
        assert retrieve(RELEASES[release], work, work / "ivy", alone=True) is None
        (work / "jars").rename(home / "jars")
        shutil.rmtree(work)
    return python, home / "jars"


def main(settings: Mapping[str, str], statements: Sequence[str]) -> None:
    """Run the statements and print their rows; binary values as text."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[1]")
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    answers = [[row.asDict(recursive=True) for row in spark.sql(statement).collect()] for statement in statements]
    print(json.dumps(answers, default=lambda value: value.decode() if isinstance(value, bytearray) else str(value)))


if __name__ == "__main__":
    main(*json.loads(sys.argv[1]))
