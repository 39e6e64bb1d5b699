"""Spark as a cluster: code that travels, executors that lack something, masters that are silent, workers that die."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from cli import ZKGROUP, environment, run
from exports import files_in, messages_in, nothing_in, published_in
from lines import names
from spark_cluster import HOME, Standalone, kill_group, python_without, standalone
from support import fresh_name, numbered, wait_until

from zkgroup.c_extensions import READER, file_name
from zkgroup.clients.kafka.client import KafkaSettings
from zkgroup.clients.kafka.native_reader import native_module
from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.sandbox.local_cluster import Sandbox
from zkgroup.sandbox.processes import Process
from zkgroup.sandbox.topic_admin import create_topic, produce

MESSAGES = 40_000
SMALL = ("--conf", "spark.executor.memory=512m", "--conf", "spark.task.maxFailures=1")


@pytest.fixture(scope="module")
def topic(registry: Registry, kafka: KafkaSettings) -> str:
    """A topic with enough messages for many tasks."""
    name = fresh_name("spark")
    create_topic(registry, name, 2)
    produce(kafka, name, numbered(MESSAGES, 2))
    return name


@pytest.fixture(scope="module")
def workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Standalone, list[Process]]]:
    """A real standalone cluster: a master, two workers."""
    with standalone(tmp_path_factory.mktemp("standalone"), 2) as cluster:
        yield cluster


@pytest.fixture
def env(cluster: Sandbox) -> dict[str, str]:
    return {"ZKGROUP_ZOOKEEPER": cluster.connect}


def export(topic: str, group: str, out: Path) -> list[str]:
    return ["export", topic, "--group", group, "--from", "earliest", "--to", str(out)]


def is_everything(out: Path) -> bool:
    """Every message of the topic is in the folder, once."""
    found = [(row["partition"], row["offset"], row["value"]) for row in messages_in(out)]
    return found == sorted((record.partition, i // 2, record.value) for i, record in enumerate(numbered(MESSAGES, 2)))


def jvms_of(word: str) -> list[int]:
    """The processes with ``word`` among their arguments or in their environment."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                message = (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes()
                state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
            except OSError:
                continue
            if word.encode() in message and state != "Z":
                found.append(int(entry.name))
    return found


def has_mapped(session: int, library: str) -> bool:
    """Whether a process of a session has loaded a library from a file that is gone, as those from zips are. pyspark's
    daemon leaves the process group."""
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            if os.getsid(int(entry.name)) == session and f"{library} (deleted)" in (entry / "maps").read_text():
                return True
    return False


@pytest.mark.long
def test_executors_elsewhere_run_the_code_that_travels(
    env: dict[str, str], topic: str, unique: Callable[[str], str], tmp_path: Path
) -> None:
    """``local-cluster``: executors are processes with folders of their own and a Python that has no zkgroup; Spark is
    quiet, and its own words are in the file that was asked for."""
    (tmp_path / "spark.properties").write_text(
        f"spark.master local-cluster[2,1,1024]\nspark.pyspark.python={python_without(tmp_path, packages=True)}\n"
    )
    done = run(
        *export(topic, unique("group"), tmp_path / "out"), "--properties-file", str(tmp_path / "spark.properties"),
        "--log", str(tmp_path / "spark.log"), "--output", "json", env=env, timeout=240,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert [row["rows"] for row in json.loads(done.stdout)] == [MESSAGES // 2] * 2
    assert is_everything(tmp_path / "out")
    assert "INFO SparkContext: Running Spark" in (tmp_path / "spark.log").read_text()


def test_a_log_that_cannot_be_written_is_named(
    env: dict[str, str], topic: str, unique: Callable[[str], str], tmp_path: Path
) -> None:
    """Before Spark starts, which would be for nothing."""
    log = tmp_path / "none" / "spark.log"
    done = run(*export(topic, unique("group"), tmp_path / "out"), "--log", str(log), env=env, timeout=240)
    assert done.returncode == 2
    assert names(done.stderr, str(log), "--log")
    assert published_in(tmp_path / "out") == []


def test_another_python_of_this_machine_runs_the_code_that_travels(
    env: dict[str, str], topic: str, unique: Callable[[str], str], tmp_path: Path
) -> None:
    """A local master's tasks, too, may run where zkgroup is not installed."""
    python = python_without(tmp_path, packages=True)
    done = run(
        *export(topic, unique("group"), tmp_path / "out"), "--master", "local[1]", "--conf",
        f"spark.pyspark.python={python}", env=env, timeout=240,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert is_everything(tmp_path / "out")


@pytest.mark.long
def test_a_worker_that_dies_in_the_middle_changes_nothing(
    workers: tuple[Standalone, list[Process]], cluster: Sandbox, topic: str, unique: Callable[[str], str],
    tmp_path: Path,
) -> None:  # fmt: skip
    """A standalone master with two workers, one of which is SIGKILLed with its executor while tasks write: Spark
    repeats what was lost, and every message is there once. The extension has travelled with the code."""
    master, (_, second) = workers
    request: dict[str, Any] = {
        "group": unique("group"), "topics": [topic], "root": str(tmp_path / "out"), "master": master.url,
        "range_messages": 500, "conf": {"spark.executor.memory": "512m", "spark.cores.max": "2"},
    }  # fmt: skip
    wish = {"connect": cluster.connect, "bootstrap": cluster.bootstrap, "request": request}
    driver = subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("spark_driver.py")), json.dumps(wish)],
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:

        def written() -> int:
            assert driver.poll() is None, driver.communicate()
            return len(list((tmp_path / "out").glob("_zkgroup/*/*/*/*")))

        wait_until(lambda: written() > 8, 180, "tasks write")
        if native_module() is not None:
            wait_until(
                lambda: has_mapped(second.process_id.pid, file_name(READER).rpartition("/")[2]),
                60,
                "a task reads with the native reader",
            )
        kill_group(second)
        assert driver.poll() is None
        out, _ = driver.communicate(timeout=240)
        assert (driver.returncode, out) == (0, f"{MESSAGES}\n")
    finally:
        driver.kill()
        driver.wait(30)
    assert is_everything(tmp_path / "out")
    assert len(published_in(tmp_path / "out")) == MESSAGES // 500
    left = {name.split("/")[1] for name in files_in(tmp_path / "out") if name.startswith("_zkgroup/")}
    assert left == {"log", "topics", "layout"}


@pytest.mark.long
def test_a_cluster_that_loses_its_last_worker_is_reported_in_time(
    cluster: Sandbox, topic: str, unique: Callable[[str], str], tmp_path: Path
) -> None:
    """The only worker dies in the middle and none comes: Spark would wait for ever, the export for its time-out."""
    with standalone(tmp_path / "standalone", 1) as (master, (worker,)):
        request: dict[str, Any] = {
            "group": unique("group"), "topics": [topic], "root": str(tmp_path / "out"), "master": master.url,
            "range_messages": 500, "conf": {"spark.executor.memory": "512m"}, "spark_timeout": 25.0,
        }  # fmt: skip
        wish = {"connect": cluster.connect, "bootstrap": cluster.bootstrap, "request": request}
        with subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("spark_driver.py")), json.dumps(wish)],
            stdout=subprocess.PIPE, text=True,
        ) as driver:  # fmt: skip
            wait_until(lambda: len(list((tmp_path / "out").glob("_zkgroup/*/*/*/*"))) > 4, 120, "tasks write")
            kill_group(worker)
            out, _ = driver.communicate(timeout=120)
    assert (driver.returncode, names(out, master.url, 25, "spark.executor.memory", "--spark-timeout")) == (3, True)
    assert nothing_in(tmp_path / "out")


def test_a_jvm_that_dies_is_reported_and_leaves_nothing(
    cluster: Sandbox, topic: str, unique: Callable[[str], str], tmp_path: Path
) -> None:
    """SIGKILL of the JVM while tasks write, as the kernel does where memory is short: one line, exit 1, no folder.
    While it runs a password in the environment is the driver's alone: neither the JVM's nor its workers'."""
    request: dict[str, Any] = {
        "group": unique("group"), "topics": [topic], "root": str(tmp_path / "out"), "range_messages": 500,
    }  # fmt: skip
    wish = {"connect": cluster.connect, "bootstrap": cluster.bootstrap, "request": request}
    secret = unique("hush")
    with subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("spark_driver.py")), json.dumps(wish)],
        env=environment({"TMPDIR": str(tmp_path), "ZKGROUP_SASL_PASSWORD": secret}),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as driver:  # fmt: skip
        wait_until(lambda: len(list((tmp_path / "out").glob("_zkgroup/*/*/*/*"))) > 4, 120, "tasks write")
        (jvm,) = jvms_of("org.apache.spark.deploy.SparkSubmit\0--properties-file\0" + str(tmp_path))
        assert jvms_of(secret) == [driver.pid]
        os.kill(jvm, signal.SIGKILL)
        out, errors = driver.communicate(timeout=60)
    assert (driver.returncode, errors) == (1, "")
    assert (names(out, "SIGKILL"), out.count("\n")) == (True, 1)
    assert nothing_in(tmp_path / "out")


@pytest.mark.long
def test_what_executors_lack_is_named(
    workers: tuple[Standalone, list[Process]], env: dict[str, str], topic: str, unique: Callable[[str], str],
    tmp_path: Path,
) -> None:  # fmt: skip
    """Executors without our packages, or without that Python: one line, exit 2, and nothing is left."""
    master = workers[0].url
    for python, lacks in (
        (python_without(tmp_path, packages=False), "confluent-kafka"),
        ("/no/python", "/no/python"),
    ):
        done = run(
            *export(topic, unique("group"), tmp_path / "out"), "--master", master, *SMALL, "--conf",
            f"spark.pyspark.python={python}", env=env | {"TMPDIR": str(tmp_path)}, timeout=240,
        )  # fmt: skip
        assert done.returncode == 2, done.stderr
        assert names(done.stderr, lacks, "spark.pyspark.python=PATH")
        assert done.stderr.count("\n") == 1
        assert nothing_in(tmp_path / "out")


def submit(env: dict[str, str], options: Sequence[str], arguments: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """``spark-submit OPTIONS submit.py ARGUMENTS``."""
    import zkgroup.commands

    script = Path(zkgroup.commands.__file__).with_name("submit.py")
    return subprocess.run(
        [str(HOME / "bin" / "spark-submit"), *options, str(script), *arguments],
        env=environment(env | {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}), capture_output=True,
        text=True, timeout=240, check=False,
    )  # fmt: skip


@pytest.mark.parametrize("master", ["local[1]", pytest.param("standalone", marks=pytest.mark.long)])
def test_spark_submit_runs_it(
    request: pytest.FixtureRequest, env: dict[str, str], topic: str, unique: Callable[[str], str], tmp_path: Path,
    master: str,
) -> None:  # fmt: skip
    """``spark-submit submit.py export …``: on the master that spark-submit was given, with its settings."""
    cluster = request.getfixturevalue("workers")[0] if master == "standalone" else None
    options = ["--master", cluster.url if cluster else master, *SMALL, "--conf", "spark.app.name=submitted"]
    done = submit(env, options, [*export(topic, unique("group"), tmp_path / "out"), "--output", "json"])
    assert done.returncode == 0, done.stderr
    assert [row["rows"] for row in json.loads(done.stdout)] == [MESSAGES // 2] * 2
    assert is_everything(tmp_path / "out")
    assert cluster is None or "submitted" in cluster._log("master").read_text()


def test_a_log_that_spark_submit_writes_is_not_ours_to_place(
    env: dict[str, str], topic: str, unique: Callable[[str], str], tmp_path: Path
) -> None:
    """Its JVM runs already; an empty file would say that there was nothing to say."""
    log = tmp_path / "spark.log"
    done = submit(env, ["--master", "local[1]"], [*export(topic, unique("group"), tmp_path), "--log", str(log)])
    assert done.returncode == 2
    assert names(done.stdout + done.stderr, "zkgroup:", "--log", "spark-submit", "--driver-java-options")
    assert not log.exists()


@pytest.mark.long
def test_spark_submit_tells_why_spark_does_not_start(
    workers: tuple[Standalone, list[Process]], env: dict[str, str], topic: str, unique: Callable[[str], str],
    tmp_path: Path,
) -> None:  # fmt: skip
    """In one line of zkgroup's, with the master that it was given; its log is where spark-submit puts it."""
    options = ["--master", workers[0].url, "--conf", "spark.executor.memory=400m"]
    done = submit(env, options, export(topic, unique("group"), tmp_path / "out"))
    # PythonRunner puts what Python says on stderr to its own stdout.
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("zkgroup: ")]
    assert done.returncode == 2
    assert names(line, workers[0].url)
    assert "400m" in line or "419430400" in line
    assert "zkgroup-spark-" not in line  # no log that zkgroup keeps


@pytest.mark.parametrize("idle", [False, pytest.param(True, marks=pytest.mark.long)])
def test_masters_that_do_not_answer_are_reported_in_time(
    request: pytest.FixtureRequest, env: dict[str, str], topic: str, unique: Callable[[str], str], tmp_path: Path,
    idle: bool,
) -> None:  # fmt: skip
    """Nobody at the address, somebody who says nothing, idle workers that have not what is asked for: exit 3 within the
    time-out, one line, and neither a folder nor a process is left."""
    arguments = [*export(topic, unique("group"), tmp_path / "out"), "--spark-timeout"]
    variables = env | {"TMPDIR": str(tmp_path)}
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"spark://127.0.0.1:{silent.getsockname()[1]}"
        mute = run(*arguments, "4", "--master", address, env=variables, timeout=120)
    nobody = run(*arguments, "4", "--master", address, env=variables, timeout=60)
    ended: list[tuple[subprocess.CompletedProcess[str], tuple[object, ...]]] = [
        (mute, (address, 4, "--spark-timeout")),
        (nobody, (address, os.strerror(errno.ECONNREFUSED), "--master")),
    ]
    if idle:  # twenty seconds: to start, too, on a machine that is busy
        large = ("--conf", "spark.executor.memory=64g")
        master = request.getfixturevalue("workers")[0].url
        done = run(*arguments, "20", "--master", master, *large, env=variables, timeout=120)
        ended.append((done, (master, 20, "spark.executor.memory", "--spark-timeout")))
    for done, facts in ended:
        assert done.returncode == 3, done.stderr
        assert names(done.stderr, *facts)
        assert done.stderr.count("\n") == 1
    assert nothing_in(tmp_path / "out")
    wait_until(lambda: not jvms_of(str(tmp_path / "zkgroup-spark-")), 30, "Spark's processes end")


@pytest.mark.long
def test_a_master_that_takes_no_applications_is_reported_when_spark_gives_up(
    env: dict[str, str], topic: str, unique: Callable[[str], str], tmp_path: Path
) -> None:
    """Spark waits a minute for what listens at a wrong port, and stops by itself, within our own time-out; whoever uses
    it next is reported by a JVM that is about to end, or has ended."""
    arguments = export(topic, unique("group"), tmp_path / "out")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        master = f"spark://127.0.0.1:{silent.getsockname()[1]}"
        done = run(*arguments, "--master", master, env=env | {"TMPDIR": str(tmp_path)}, timeout=150)
    assert done.returncode == 3, done.stderr
    assert names(done.stderr, master)
    assert "--spark-timeout" not in done.stderr
    assert done.stderr.count("\n") == 1
    assert nothing_in(tmp_path / "out")


@pytest.mark.parametrize("moment", ["connection", pytest.param("started", marks=pytest.mark.long)])
def test_a_jvm_that_is_killed_before_it_has_started_is_no_wrong_usage(
    env: dict[str, str], topic: str, unique: Callable[[str], str], tmp_path: Path, moment: str
) -> None:
    """As the kernel does where memory is short: exit 1, and the next run goes on; 2 would tell a script to give up."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        master = f"spark://127.0.0.1:{silent.getsockname()[1]}"
        driver = subprocess.Popen(
            [ZKGROUP, *export(topic, unique("group"), tmp_path / "out"), "--master", master],
            env=environment(env | {"TMPDIR": str(tmp_path)}), stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        name = "spark.properties" if moment == "connection" else "connection"
        wait_until(lambda: list(tmp_path.glob(f"zkgroup-spark-*/{name}")), 90, "Spark starts")
        wait_until(lambda: len(jvms_of(str(tmp_path / "zkgroup-spark-"))) > 0, 30, "there is a JVM")
        for jvm in jvms_of(str(tmp_path / "zkgroup-spark-")):
            with contextlib.suppress(ProcessLookupError):  # the launcher of the JVM has just ended
                os.kill(jvm, signal.SIGKILL)
        _, message = driver.communicate(timeout=60)
    assert (driver.returncode, names(message, "SIGKILL")) == (1, True), message


@pytest.mark.parametrize("moment", [pytest.param("connection", marks=pytest.mark.long), "started"])
def test_a_killed_driver_leaves_no_jvm(
    env: dict[str, str], topic: str, unique: Callable[[str], str], tmp_path: Path, moment: str
) -> None:
    """SIGKILL while the JVM starts (its settings are written, nobody is connected), and while it waits for a master
    that is silent: neither the JVM nor its folder stays."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        master = f"spark://127.0.0.1:{silent.getsockname()[1]}"
        driver = subprocess.Popen(
            [ZKGROUP, *export(topic, unique("group"), tmp_path / "out"), "--master", master],
            env=environment(env | {"TMPDIR": str(tmp_path)}), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            name = "spark.properties" if moment == "connection" else "connection"
            wait_until(lambda: list(tmp_path.glob(f"zkgroup-spark-*/{name}")), 90, "Spark starts")
            wait_until(lambda: len(jvms_of(str(tmp_path / "zkgroup-spark-"))) > 0, 30, "there is a JVM")
        finally:
            driver.send_signal(signal.SIGKILL)
            driver.wait(30)
        wait_until(lambda: not jvms_of(str(tmp_path / "zkgroup-spark-")), 20, "Spark's processes end")
        wait_until(lambda: not list(tmp_path.glob("zkgroup-spark-*")), 20, "its folder goes")
