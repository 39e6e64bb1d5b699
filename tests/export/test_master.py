"""Which Spark is meant, and what its words mean: pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lines import names

from zkgroup.config.setting_files import parse_properties
from zkgroup.errors import UnreachableError, UsageError, ZkgroupError
from zkgroup.export.spark.spark_failures import job_failure, no_executor, start_failure
from zkgroup.export.spark.spark_properties import (
    choose_master,
    encode_properties,
    is_cluster,
    read_spark_properties,
    refuse_if_silent,
)

_TRIMMED = "".join(map(chr, range(33)))  # as java.lang.String.trim


@pytest.mark.parametrize(
    ("named", "conf", "master", "cluster"),
    [
        (None, {}, "local[*,4]", False),
        (None, {"spark.master": "yarn"}, "yarn", True),
        ("local[2]", {"spark.master": "yarn"}, "local[2,4]", False),
        ("local", {}, "local[1,4]", False),
        ("local[2,1]", {}, "local[2,1]", False),
        ("local-cluster[2,1,1024]", {}, "local-cluster[2,1,1024]", True),
        ("spark://a:1,b:2", {}, "spark://a:1,b:2", True),
        ("k8s://https://a:6443", {}, "k8s://https://a:6443", True),
    ],
)
def test_the_master_is_the_named_one_or_that_of_the_properties(
    named: str | None, conf: dict[str, str], master: str, cluster: bool
) -> None:
    """What is said on the command line comes first, this machine last; a local Spark tries failed tasks again."""
    assert choose_master(named, conf) == master
    assert is_cluster(master) == cluster


@pytest.mark.parametrize("master", ["nonsense", "spark:/a", "local[", "mesos://a:1", "local[*]\n"])
def test_what_is_no_master_is_refused(master: str) -> None:
    """Before anything is begun, with what it could be."""
    with pytest.raises(UsageError, match=re.escape(repr(master))):
        choose_master(master, {})


@pytest.mark.parametrize("master", ["spark://host", "spark://:7077", "spark://host:0", "spark://host:x"])
def test_an_address_without_host_or_port_is_refused(master: str) -> None:
    """A standalone master has both."""
    with pytest.raises(UsageError, match="HOST:PORT"):
        refuse_if_silent(master)


#: Names the executors' Python.
PYTHON = "spark.pyspark.python"


@given(st.dictionaries(st.text(min_size=1), st.text(), max_size=5))
def test_properties_are_read_as_they_were_written(properties: dict[str, str]) -> None:
    """Whatever is in a key or a value, Java reads it back (blanks at a value's end aside, which our reader drops)."""
    wanted = {key: value for key, value in properties.items() if value == value.strip(_TRIMMED)}
    data = encode_properties(wanted).encode("ascii")
    assert {item.key: item.value for item in parse_properties(data, "x")} == wanted


def test_a_file_of_spark_properties_is_read_as_spark_submit_reads_it(tmp_path: Path) -> None:
    """Blanks or an equals sign between key and value; what is not Spark's is left out."""
    path = tmp_path / "spark.conf"
    path.write_text("# ours\nspark.master   yarn\nspark.executor.memory=2g\nother 1\n")
    assert read_spark_properties(path) == {"spark.master": "yarn", "spark.executor.memory": "2g"}


@pytest.mark.parametrize(
    ("text", "kind", "said"),
    [
        (
            "PySparkRuntimeError: [PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.12 than that in "
            "driver: 3.11, PySpark cannot run with different minor versions.",
            UsageError, ("3.12", "3.11", PYTHON),
        ),
        ("ModuleNotFoundError: No module named 'confluent_kafka.x'", UsageError, ("confluent-kafka", PYTHON)),
        ("ModuleNotFoundError: No module named 'fastavro'", UsageError, ("fastavro", PYTHON)),
        ("java.io.IOException: Cannot run program \"/opt/py\": error=2, No", UsageError, ("/opt/py", PYTHON)),
        ("Job aborted due to stage failure: Master removed our application: FAILED", ZkgroupError, ("Master removed",)),
        (
            ": org.apache.spark.SparkException: Job aborted\nTraceback\nValueError: odd\n\tat java.lang.Thread",
            ZkgroupError, ("ValueError: odd",),
        ),
        ("", ZkgroupError, ()),
    ],
)  # fmt: skip
def test_a_job_that_fails_is_reported_in_one_line(text: str, kind: type[ZkgroupError], said: Sequence[str]) -> None:
    """What executors lack is named with what to do; the rest in the words of the task, or of Spark."""
    kept: list[str] = []

    def keep() -> str:
        kept.append("/tmp/log")
        return kept[-1]

    error = job_failure(text, "", keep)
    assert type(error) is kind
    # A log is kept where it helps, and then it is named.
    assert len(kept) == str(error.remedy).count("/tmp/log") == (kind is not UsageError)
    assert names(str(error), *said)
    assert "\n" not in error.message


def test_a_reason_behind_a_clients_error_is_found() -> None:
    """As that of Kubernetes, where its server cannot be reached."""
    log = (
        "io.fabric8.kubernetes.client.KubernetesClientException: An error has occurred.\n"
        "\tat io.fabric8.kubernetes.client.KubernetesClientException.launderThrowable(KubernetesClientException.java)\n"
        "Caused by: java.io.IOException: Connection refused: /127.0.0.1:1\n"
        "Caused by: java.net.ConnectException: Connection refused\n"
    )
    error = start_failure("k8s://https://127.0.0.1:1", log, "it ended", lambda: "/tmp/log")
    assert error.message.endswith(" k8s://https://127.0.0.1:1: Connection refused: /127.0.0.1:1")


def test_what_kubernetes_repeats_of_its_answer_is_left_out() -> None:
    """Its client adds the whole object behind the message."""
    log = (
        "io.fabric8.kubernetes.client.KubernetesClientException: Failure executing: POST at: https://a:1/api/v1/pods. "
        'Message: pods is forbidden: User "export" cannot create resource "pods". Received status: Status('
        "apiVersion=v1, code=403, reason=Forbidden, status=Failure, additionalProperties={}).\n"
    )
    error = start_failure("k8s://https://a:1", log, "it ended", lambda: "/tmp/log")
    assert error.message.endswith(
        " k8s://https://a:1: Failure executing: POST at: https://a:1/api/v1/pods. Message: pods is forbidden: User "
        '"export" cannot create resource "pods"'
    )


def test_pods_that_do_not_run_are_inspected_with_kubernetes_own_tool() -> None:
    """Workers are what a standalone master has."""
    late = no_executor("k8s://https://a:1", 5.0, "/tmp/log")
    assert late.exit_code == 3
    assert "kubectl describe pods -l spark-role=executor" in str(late.remedy)
    assert "spark.executor.memory" in str(no_executor("spark://a:1", 5.0, "/tmp/log").remedy)


def test_a_spark_without_a_log_is_reported_by_its_exception() -> None:
    """That of spark-submit writes where its own settings say."""
    why = (
        "An error occurred while calling None.org.apache.spark.api.java.JavaSparkContext.\n"
        ": org.apache.spark.SparkIllegalArgumentException: [INVALID_EXECUTOR_MEMORY] Executor memory is too small.\n"
        "\tat org.apache.spark.memory.UnifiedMemoryManager$.getMaxMemory(UnifiedMemoryManager.scala:1)"
    )
    error = start_failure("spark://a:1", "", why, lambda: "elsewhere")
    assert error.message.endswith(" spark://a:1: [INVALID_EXECUTOR_MEMORY] Executor memory is too small")


@pytest.mark.parametrize(
    ("log", "kind", "said"),
    [
        (
            'Error: A JNI error has occurred, please check your installation and try again\nException in thread "main" '
            "java.lang.UnsupportedClassVersionError: org/apache/spark/launcher/Main has been compiled by a more recent "
            "version of the Java Runtime (class file version 61.0), this version of the Java Runtime only recognizes "
            "class file versions up to 52.0",
            UsageError, "JAVA_HOME",
        ),
        ("Unrecognized option: --add-modules=jdk.incubator.vector\nError: Could not create", UsageError, "JAVA_HOME"),
        ("ERROR StandaloneSchedulerBackend: All masters are unresponsive! Giving up.", UnreachableError, "spark://a:1"),
        ("java.lang.IllegalArgumentException: spark.x is bad", UsageError, "spark.x is bad"),
        ("", UsageError, "it ended"),
        (
            "Invalid maximum heap size: -Xmxabc\nError: Could not create the Java Virtual Machine.", UsageError,
            "spark://a:1: Invalid maximum heap size: -Xmxabc",
        ),
        ("Error occurred during initialization of VM\nToo small maximum heap", UsageError, "Too small maximum heap"),
        (
            "Error occurred during initialization of VM\nCould not reserve enough space for 1048574951KB object heap",
            UsageError, "Could not reserve enough space",
        ),
        (
            "Error occurred during initialization of VM\nCould not allocate compressed class space: 1073741824 bytes",
            UsageError, "Could not allocate compressed class space",
        ),
        (
            "Error opening zip file or JAR manifest missing : /nowhere.jar\nError occurred during initialization of VM",
            UsageError, "Error opening zip file or JAR manifest missing : /nowhere.jar",
        ),
        ("sh: 1: exec: /nowhere/bin/spark-submit: not found", UsageError, "/nowhere/bin/spark-submit: not found"),
        ("Unrecognized option: --load-spark-defaults\n", UsageError, "Unrecognized option: --load-spark-defaults"),
    ],
)  # fmt: skip
def test_a_spark_that_does_not_start_is_reported_in_one_line(log: str, kind: type[ZkgroupError], said: str) -> None:
    """From its log, where that says more than pyspark does."""
    error = start_failure("spark://a:1", log, "it ended", lambda: "/tmp/log")
    assert type(error) is kind
    assert said in str(error)
    assert "\n" not in error.message


def test_options_of_the_environment_are_no_reason() -> None:
    """Both of Spark's JVMs repeat them first."""
    picked = "Picked up JAVA_TOOL_OPTIONS: -Djavax.net.ssl.trustStorePassword=hush\n"
    log = f"{picked}NOTE: {picked}Error occurred during initialization of VM\nToo small maximum heap\n"
    error = start_failure("spark://a:1", log, "it ended", lambda: "/tmp/log")
    assert error.message.endswith(" spark://a:1: Error occurred during initialization of VM Too small maximum heap")


def test_a_master_is_named_as_it_was_written() -> None:
    """How often a task is tried is our own."""
    error = start_failure("local[2,4]", "", "it ended", lambda: "/tmp/log")
    assert "local[2]: " in error.message
