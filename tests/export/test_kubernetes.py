"""An export on Kubernetes: its real API server, executors that are killed, what it refuses."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cli import ZKGROUP, environment, run
from exports import files_in, messages_in, nothing_in
from kubernetes_cluster import GO, Kubernetes, Node, kubernetes
from lines import names
from spark_cluster import python_without
from support import fresh_name, numbered, wait_until

from zkgroup.child_processes import Watchdog
from zkgroup.clients.kafka.client import KafkaSettings
from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.sandbox.local_cluster import Sandbox
from zkgroup.sandbox.topic_admin import create_topic, produce

MESSAGES = 400_000
CONF = ("--conf", "spark.executor.memory=512m", "--conf", "spark.executor.instances=2")
# A driver outside of the cluster is named as pods reach it.
CONF += ("--conf", "spark.driver.host=127.0.0.1", "--conf", "spark.kubernetes.allocation.batch.delay=200ms")
IMAGE = ("--conf", "spark.kubernetes.container.image=spark")

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(1200),  # the first time, the API server is built: some minutes, and 600 MB of sources
    pytest.mark.skipif(GO is None, reason="Kubernetes' API server is built with Go, which is not installed"),
]


@pytest.fixture(scope="module")
def topic(registry: Registry, kafka: KafkaSettings) -> str:
    """A topic that takes executors some seconds."""
    name = fresh_name("kubernetes")
    create_topic(registry, name, 2)
    produce(kafka, name, numbered(MESSAGES, 2))
    return name


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Kubernetes, Watchdog]]:
    with kubernetes(tmp_path_factory.mktemp("kubernetes") / "cluster") as found:
        yield found


@pytest.fixture
def kube(servers: tuple[Kubernetes, Watchdog]) -> Kubernetes:
    return servers[0]


@pytest.fixture
def node(servers: tuple[Kubernetes, Watchdog]) -> Iterator[Node]:
    with Node(*servers) as found:
        yield found


@pytest.fixture
def export(kube: Kubernetes, topic: str, unique: Callable[[str], str], tmp_path: Path) -> list[str]:
    """The arguments of one."""
    wanted = ["export", topic, "--group", unique("group"), "--from", "earliest", "--to", str(tmp_path / "out")]
    return [*wanted, "--master", f"k8s://{kube.url}", *CONF]


@pytest.fixture
def env(cluster: Sandbox, kube: Kubernetes) -> dict[str, str]:
    return {"ZKGROUP_ZOOKEEPER": cluster.connect, "KUBECONFIG": kube.settings()}


def test_an_executor_pod_that_is_killed_changes_nothing(
    kube: Kubernetes, node: Node, export: list[str], env: dict[str, str], tmp_path: Path
) -> None:
    """Pods' Python has no zkgroup: the code travels. One is SIGKILLed while tasks write, and every message is there
    once; pods are gone afterwards."""
    out, python = tmp_path / "out", python_without(tmp_path, packages=True)
    command = [ZKGROUP, *export, *IMAGE, "--conf", f"spark.pyspark.python={python}"]
    with subprocess.Popen(command, env=environment(env), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as driver:
        try:
            wait_until(lambda: list(out.glob("_zkgroup/*/*/*/*.tmp")), 120, "tasks write")
            node.kill_one()
            _, err = driver.communicate(timeout=240)
        finally:
            driver.kill()
    assert driver.returncode == 0, err.decode()
    found = [(row["partition"], row["offset"], row["value"]) for row in messages_in(out)]
    assert found == sorted((record.partition, i // 2, record.value) for i, record in enumerate(numbered(MESSAGES, 2)))
    left = {name.split("/")[1] for name in files_in(out) if name.startswith("_zkgroup/")}
    assert left == {"log", "topics", "layout"}
    wait_until(lambda: not kube.pods(), 30, "no pods are left")


@pytest.mark.usefixtures("node")
def test_the_pods_of_an_export_that_is_killed_end(
    kube: Kubernetes, export: list[str], env: dict[str, str], tmp_path: Path
) -> None:
    """Its JVM ends with it, and executors that have no driver end; their pods are for people to read. The next
    export goes on, and is complete."""
    command = [ZKGROUP, *export, *IMAGE]
    with subprocess.Popen(command, env=environment(env), stdout=subprocess.DEVNULL) as driver:
        try:
            wait_until(lambda: list((tmp_path / "out").glob("_zkgroup/*/*/*/*.tmp")), 120, "tasks write")
        finally:
            driver.kill()
    assert len(kube.pods()) == 2
    wait_until(lambda: {pod["status"]["phase"] for pod in kube.pods()} <= {"Failed", "Succeeded"}, 60, "pods end")
    kube.delete_pods()
    done = run(*export, *IMAGE, env=env, timeout=240)
    assert done.returncode == 0, done.stderr
    assert len(messages_in(tmp_path / "out")) == MESSAGES


@pytest.mark.parametrize(
    ("conf", "said"),
    [
        ("spark.pyspark.python=/nowhere/python", ("/nowhere/python", "spark.pyspark.python")),
        ("spark.pyspark.python={bare}", ("confluent-kafka", "spark.pyspark.python")),
    ],
)
@pytest.mark.usefixtures("node")
def test_what_executors_lack_is_one_line(
    export: list[str], env: dict[str, str], tmp_path: Path, conf: str, said: tuple[str, ...]
) -> None:
    """Exit 2, nothing left."""
    conf = conf.format(bare=python_without(tmp_path, packages=False))
    done = run(*export, *IMAGE, "--conf", conf, env=env, timeout=240)
    assert done.returncode == 2, done.stderr
    (line,) = done.stderr.splitlines()
    assert names(line, *said)
    assert nothing_in(tmp_path / "out")


@pytest.mark.parametrize(
    ("user", "conf", "said"),
    [
        ("admin", (*IMAGE, "--conf", "spark.kubernetes.namespace=nowhere"), 'Message: namespaces "nowhere" not found:'),
        ("guest", IMAGE, 'User "guest" cannot create resource "configmaps" in API group "" in the namespace'),
        ("nobody", IMAGE, "Message: Unauthorized: "),
    ],
)  # fmt: skip
def test_what_kubernetes_refuses_is_one_line(
    kube: Kubernetes, export: list[str], env: dict[str, str], tmp_path: Path,
    user: str, conf: tuple[str, ...], said: str,
) -> None:  # fmt: skip
    """In its words, without the object that comes with them."""
    done = run(*export, *conf, env={**env, "KUBECONFIG": kube.settings(user)}, timeout=240)
    assert done.returncode == 2, done.stderr
    (line,) = done.stderr.splitlines()
    assert said in line
    assert "Received status" not in line
    assert nothing_in(tmp_path / "out")


def test_pods_that_nothing_runs_are_reported(kube: Kubernetes, export: list[str], env: dict[str, str]) -> None:
    """An image that is not there, or nodes that are full: exit 3, and the pods are gone."""
    quick = ("--conf", "spark.scheduler.maxRegisteredResourcesWaitingTime=2s", "--spark-timeout", "10")
    done = run(*export, *IMAGE, *quick, env=env, timeout=240)
    assert done.returncode == 3, done.stderr
    (line,) = done.stderr.splitlines()
    assert names(line, f"k8s://{kube.url}", 10, "kubectl describe pods -l spark-role=executor", "--spark-timeout")
    wait_until(lambda: not kube.pods(), 30, "no pods are left")
