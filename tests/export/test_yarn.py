"""An export on YARN: real servers of it, executors that are killed, what it refuses."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cli import ZKGROUP, environment, run
from exports import files_in, messages_in, nothing_in
from lines import names
from spark_cluster import python_without
from support import fresh_name, numbered, wait_until
from yarn_cluster import Yarn, yarn

from zkgroup.clients.kafka.client import KafkaSettings
from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.sandbox.local_cluster import Sandbox
from zkgroup.sandbox.topic_admin import create_topic, produce

MESSAGES = 400_000
CONF = ("--conf", "spark.executor.memory=512m", "--conf", "spark.executor.instances=2")

pytestmark = pytest.mark.long  # 55 MB are downloaded, and each start takes YARN a quarter of a minute


@pytest.fixture(scope="module")
def topic(registry: Registry, kafka: KafkaSettings) -> str:
    """A topic that takes executors some seconds."""
    name = fresh_name("yarn")
    create_topic(registry, name, 2)
    produce(kafka, name, numbered(MESSAGES, 2))
    return name


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yarn]:
    with yarn(tmp_path_factory.mktemp("yarn")) as found:
        yield found


@pytest.fixture
def env(cluster: Sandbox, servers: Yarn) -> dict[str, str]:
    return {"ZKGROUP_ZOOKEEPER": cluster.connect, "HADOOP_CONF_DIR": str(servers.conf)}


def test_an_executor_of_yarn_that_is_killed_changes_nothing(
    servers: Yarn, topic: str, env: dict[str, str], unique: Callable[[str], str], tmp_path: Path
) -> None:
    """Executors are containers whose Python has no zkgroup: the code travels. One is SIGKILLed while tasks write, and
    every message is there once."""
    out, python = tmp_path / "out", python_without(tmp_path, packages=True)
    command = [
        *(ZKGROUP, "export", topic, "--group", unique("group"), "--from", "earliest", "--to", str(out)),
        *("--master", "yarn", *CONF, "--conf", f"spark.pyspark.python={python}"),
    ]
    with subprocess.Popen(command, env=environment(env), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as driver:
        try:
            wait_until(lambda: list(out.glob("_zkgroup/*/*/*/*.tmp")), 120, "tasks write")
            os.kill(servers.executors()[-1], signal.SIGKILL)
            _, err = driver.communicate(timeout=240)
        finally:
            driver.kill()
    assert driver.returncode == 0, err.decode()
    found = [(row["partition"], row["offset"], row["value"]) for row in messages_in(out)]
    assert found == sorted((record.partition, i // 2, record.value) for i, record in enumerate(numbered(MESSAGES, 2)))
    left = {name.split("/")[1] for name in files_in(out) if name.startswith("_zkgroup/")}
    assert left == {"log", "topics", "layout"}


@pytest.mark.parametrize(
    ("conf", "facts"),
    [
        ("spark.yarn.queue=nowhere", ["unknown queue: nowhere"]),  # YARN's own words
        ("spark.executor.memory=20g", ["is above the max threshold"]),
        ("spark.pyspark.python=/nowhere/python", ["/nowhere/python", "spark.pyspark.python=PATH"]),
        ("spark.pyspark.python={bare}", ["confluent-kafka", "spark.pyspark.python=PATH"]),
    ],
)
def test_what_yarn_refuses_is_one_line(
    topic: str, env: dict[str, str], unique: Callable[[str], str], tmp_path: Path, conf: str, facts: list[str]
) -> None:
    """A queue that is not there, more memory than nodes have, a Python without what it needs: exit 2, nothing left."""
    conf = conf.format(bare=python_without(tmp_path, packages=False))
    done = run(
        *("export", topic, "--group", unique("group"), "--from", "earliest", "--to", str(tmp_path / "out")),
        *("--master", "yarn", *CONF, "--conf", conf),
        env=env,
        timeout=240,
    )
    assert done.returncode == 2, done.stderr
    (line,) = done.stderr.splitlines()
    assert names(line, *facts)
    assert nothing_in(tmp_path / "out")


def test_yarn_without_its_settings_is_reported(
    topic: str, cluster: Sandbox, unique: Callable[[str], str], tmp_path: Path
) -> None:
    """Where no HADOOP_CONF_DIR names YARN."""
    done = run(
        *("export", topic, "--group", unique("group"), "--from", "earliest", "--to", str(tmp_path / "out")),
        *("--master", "yarn"),
        env={"ZKGROUP_ZOOKEEPER": cluster.connect},
        timeout=240,
    )
    assert done.returncode == 2
    assert names(done.stderr, "HADOOP_CONF_DIR", "YARN_CONF_DIR")
