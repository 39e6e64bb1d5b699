"""``consume --coordinator kafka``: a member of a group in Kafka, with the promises of one in ZooKeeper."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from cli import ZKGROUP, environment, run
from consume_processes import ConsumeProcess, into_a_full_pipe, start_consume
from group_nodes import Groups, static
from lines import names
from support import numbered, wait_until

from zkgroup.clients.kafka.client import Consumer, KafkaSettings
from zkgroup.clients.kafka.group_consumers import GroupOffsets
from zkgroup.clients.kafka.group_coordinator import Coordinators
from zkgroup.java_runtime import find_java
from zkgroup.protocol.names import TopicPartition
from zkgroup.sandbox.local_cluster import Sandbox
from zkgroup.sandbox.topic_admin import produce

Unique = Callable[[str], str]
Jars = Callable[[list[str]], list[str]]
JOIN = ["--coordinator", "kafka", "--from-beginning"]
#: The shortest that brokers take by default (group.min.session.timeout.ms).
SOON = ["-X", "kafka.session.timeout.ms=6000"]


def committed(kafka: KafkaSettings, group: str, topic: str, partitions: int = 3) -> list[int | None]:
    """What Kafka keeps for the group, partition by partition."""
    client = GroupOffsets(kafka, group)
    try:
        found = client.fetch([TopicPartition(topic, number) for number in range(partitions)], 30)
    finally:
        client.close()
    return list(found.values())


def share(member: ConsumeProcess) -> str:
    """What a member was assigned last, as it says; "" while it has nothing."""
    steps = re.findall(r"\b(assigned|revoked|lost) (?:(\S+-[0-9.]+)\b)?", member.stderr)
    kind, partitions = steps[-1] if steps else ("", "")
    return partitions if kind == "assigned" else ""


def test_it_reads_commits_and_leaves(cluster: Sandbox, kafka: KafkaSettings, topic: str, unique: Unique) -> None:
    """--max-messages commits what was printed and no more, --until-end the rest; nothing is printed twice; the
    rebalance is shown, unless --quiet. What was joined is left: nobody has to be waited for."""
    group = unique("group")
    first = run("-z", cluster.connect, "consume", topic, "-g", group, *JOIN, "-n", "4")
    assert first.returncode == 0
    assert names(first.stderr, group, "assigned", f"{topic}-0..2", 3)
    assert sum(offset or 0 for offset in committed(kafka, group, topic)) == 4
    second = run("-z", cluster.connect, "consume", topic, "-g", group, *JOIN, "-e", "--quiet", "--streams", "2")
    assert (second.returncode, second.stderr) == (0, "")
    assert sorted(first.stdout.split() + second.stdout.split()) == [f"m{n:06d}" for n in range(30)]
    assert committed(kafka, group, topic) == [10, 10, 10]
    third = run("-z", cluster.connect, "consume", topic, "-g", group, *JOIN, "--timeout-ms", "300", "--no-commit")
    assert (third.returncode, third.stdout) == (0, "")


def test_brokers_that_are_named_need_no_zookeeper(
    cluster: Sandbox, kafka: KafkaSettings, topic: str, unique: Unique
) -> None:
    """--bootstrap-server is enough; --no-commit leaves the group's offsets as they are; formats are as ever."""
    group = unique("group")
    options = [*JOIN, "--format", r"%t %p %o %s\n", "--no-commit", "-e"]
    result = run("--bootstrap-server", cluster.bootstrap, "consume", topic, "-g", group, *options)
    assert result.returncode == 0, result.stderr
    assert sorted(result.stdout.splitlines())[0] == f"{topic} 0 0 m000000"
    assert len(result.stdout.splitlines()) == 30
    assert committed(kafka, group, topic) == [None, None, None]


def test_filters_are_javas_and_follow_topics(
    cluster: Sandbox, make_topic: Callable[..., str], fill: Callable[..., object], unique: Unique, tmp_path: Path
) -> None:
    """A Java expression that librdkafka's (POSIX) would read otherwise; a topic that comes is read."""
    stem, group = unique("filtered"), unique("group")
    expression = rf"{stem}x[^\W\d_q]-\d+-\d+"
    wanted, unwanted = make_topic(1, f"{stem}xa"), make_topic(1, f"{stem}xq")
    fill(wanted, 3)
    fill(unwanted, 3)
    with start_consume(
        tmp_path, cluster.connect, "--whitelist", expression, "-g", group, *JOIN, "--format", "%t %s\\n"
    ) as member:
        member.wait_for_lines(3)
        later = make_topic(1, f"{stem}xb")
        fill(later, 2)
        lines = member.wait_for_lines(5)
        assert Counter(line.split()[0] for line in lines) == {wanted: 3, later: 2}
        assert member.stop(signal.SIGINT) == 130


def test_members_share_and_one_is_killed(
    cluster: Sandbox, kafka: KafkaSettings, topic: str, unique: Unique, tmp_path: Path
) -> None:
    """Two members share. One that is suspended loses its share, says so when it wakes, and joins again. One that is
    killed is replaced: nothing is missing, and what is read again was not committed."""
    group = unique("group")
    options = [topic, "-g", group, *JOIN, *SOON]
    with start_consume(tmp_path, cluster.connect, *options, "-X", "auto.commit.interval.ms=200") as first:
        first.wait_for_lines(30)
        wait_until(lambda: committed(kafka, group, topic) == [10, 10, 10], what="an automatic commit")
        with start_consume(tmp_path, cluster.connect, *options, "-X", "auto.commit.interval.ms=60000") as second:
            wait_until(lambda: share(first) and share(second), what="both have a share")
            assert {share(first), share(second)} in ({f"{topic}-0..1", f"{topic}-2"}, {f"{topic}-1..2", f"{topic}-0"})
            assert names(first.stderr, group, "revoked", f"{topic}-0..2", 3)
            first.process.send_signal(signal.SIGSTOP)
            wait_until(lambda: share(second) == f"{topic}-0..2", what="the suspended member's share is given away")
            first.process.send_signal(signal.SIGCONT)
            wait_until(lambda: names(first.stderr, group, "lost"), what="it says what it has lost")
            wait_until(lambda: share(first) and share(second) != f"{topic}-0..2", what="it has joined again")
            produce(kafka, topic, numbered(30, 3, 30))
            wait_until(lambda: len(first.lines) + len(second.lines) >= 60, what="both have read")
            wait_until(
                lambda: sum(n or 0 for n in committed(kafka, group, topic)) == 30 + len(first.lines[30:]),
                what="the first has committed",
            )
            uncommitted = second.lines
            assert uncommitted, "the second has a share, too"
            second.stop(signal.SIGKILL)
        first.wait_for_lines(60)
        assert first.stop(signal.SIGTERM) == 143
    assert Counter(first.lines) == Counter(f"m{n:06d}" for n in range(60)), "what the second has read is read again"
    assert set(uncommitted) <= {f"m{n:06d}" for n in range(30, 60)}
    assert committed(kafka, group, topic) == [20, 20, 20]


def test_a_reader_that_leaves(cluster: Sandbox, kafka: KafkaSettings, topic: str, unique: Unique) -> None:
    """``| head -1`` ends it with 0; nothing is committed: who left may have died with all that was in the pipe."""
    group = unique("group")
    command = f'"{ZKGROUP}" -z {cluster.connect} --quiet consume {topic} -g {group} {" ".join(JOIN)}'
    script = f"set -o pipefail; {command} | head -1"
    done = subprocess.run(["bash", "-c", script], capture_output=True, env=environment(), timeout=60, check=False)
    assert (done.returncode, done.stdout.count(b"\n"), done.stderr) == (0, 1, b"")
    assert committed(kafka, group, topic) == [None, None, None]


def test_a_full_pipe_keeps_nobody_waiting(
    cluster: Sandbox, kafka: KafkaSettings, make_topic: Callable[..., str], fill: Callable[..., object], unique: Unique
) -> None:
    """A member whose reader has stopped reading gives up its share in a rebalance. What it had not written whole is not
    committed: whoever gets the partition next reads it."""
    topic, group = make_topic(2), unique("group")
    fill(topic, 40_000, 2)
    command = ["-z", cluster.connect, "consume", topic, "-g", group, *JOIN]
    hurried = ["-X", "zkgroup.quiesce.timeout.ms=200", *SOON]
    with into_a_full_pipe(*command, *hurried) as (process, pipe):
        result = run(*command, "-e")
        assert result.returncode == 0
        assert committed(kafka, group, topic, 2).count(20_000) == 1, "of the other partition nothing is read to its end"
        process.kill()
        written = read_all(pipe)
    asking = Coordinators(kafka, 20.0)
    wait_until(lambda: asking.members([group])[group] == (), what="the killed member is taken for dead")
    rest = run(*command, "-e").stdout.split()
    assert len({*written, *result.stdout.split(), *rest}) == 40_000
    assert len(set(rest)) == len(rest)


def read_all(pipe: int) -> list[str]:
    """The whole lines that are in a pipe whose writer is gone."""
    with os.fdopen(os.dup(pipe), "rb") as file:
        return file.read().decode().split("\n")[:-1]


@pytest.mark.parametrize(
    ("options", "fact"),
    [
        ([], "--coordinator kafka"),
        (["-g", "g", "--partition", "1"], "--coordinator kafka"),
        (["-g", "g", "-X", "offsets.storage=zookeeper"], "offsets.storage=zookeeper"),
        (["-g", "g", "-X", "dual.commit.enabled=true"], "dual.commit.enabled=true"),
        (["-g", "g", "--strategy", "sticky"], "--strategy"),
    ],
)
def test_what_means_nothing_there_is_refused(options: list[str], fact: str) -> None:
    """One line that names it, before any server is asked."""
    result = run("-z", "127.0.0.1:1", "consume", "t", "--coordinator", "kafka", *options)
    assert (result.returncode, result.stdout, result.stderr.count("\n")) == (2, "", 1)
    assert names(result.stderr, fact)


def test_the_other_half_of_the_group_is_reported(cluster: Sandbox, groups: Groups, topic: str) -> None:
    """Members of the same name in ZooKeeper would read everything, too; offsets there count for nothing here. Keys that
    only members in ZooKeeper follow are named."""
    group = groups.make({"@_one": static({topic: 1})}, {}, {(topic, 0): 4})
    idle = ["-X", "rebalance.backoff.ms=100", "-X", "zookeeper.sync.time.ms=100"]
    result = run("-z", cluster.connect, "consume", topic, "-g", group, *JOIN, "-e", *idle)
    assert (result.returncode, len(result.stdout.split())) == (0, 30)
    assert names(result.stderr, "warning", group, 1, "zkgroup inspect-group --explain split-group")
    move = f"zkgroup -z {cluster.connect} migrate-group {group} --to kafka"
    assert names(result.stderr, "warning", group, topic, move)
    assert names(result.stderr, "warning", "zookeeper.sync.time.ms", "rebalance.backoff.ms")


@pytest.mark.parametrize("theirs", ["roundrobin", "cooperative-sticky"])
def test_rules_of_sharing(cluster: Sandbox, topic: str, unique: Unique, theirs: str) -> None:
    """Whatever one rule the others follow is taken up if nothing else is asked for; one that is not known here, or not
    theirs, is refused with a line."""
    group = unique("group")
    settings = {"bootstrap.servers": cluster.bootstrap, "group.id": group, "partition.assignment.strategy": theirs}
    client = Consumer(settings)
    client.subscribe([topic])

    def has_share() -> bool:
        client.poll(0.05)
        return bool(client.assignment())

    try:
        wait_until(has_share, what="the other member's share")
        options = ["--strategy", "range"] if theirs == "roundrobin" else []
        refused = run("-z", cluster.connect, "consume", topic, "-g", group, *JOIN, *options)
        assert (refused.returncode, refused.stderr.count("\n")) == (5, 1)
        assert names(refused.stderr, group)
    finally:
        client.close()


@contextmanager
def console(cluster: Sandbox, jars: str, topic: str, group: str, output: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Kafka's own console consumer, the new one; it prints to ``output``."""
    command = [
        str(find_java()),
        "-Xmx96m",
        "-XX:TieredStopAtLevel=1",
        "-cp",
        f"{jars}/*",
        "kafka.tools.ConsoleConsumer",
    ]
    command += ["--bootstrap-server", cluster.bootstrap, "--topic", topic, "--consumer-property", f"group.id={group}"]
    command += ["--consumer-property", "auto.offset.reset=earliest"]
    with output.open("wb") as out, subprocess.Popen(command, stdout=out, stderr=subprocess.DEVNULL) as process:
        try:
            yield process
        finally:
            process.kill()


def test_with_kafkas_own_console_consumer(
    cluster: Sandbox, kafka: KafkaSettings, topic: str, unique: Unique, tmp_path: Path, scala_consumer_jars: Jars
) -> None:
    """One group with kafka-console-consumer of 1.1.1: they share the partitions, each message is read by one of them,
    and when the console leaves its part comes over, from where it was."""
    group, output = unique("group"), tmp_path / "console.txt"
    (jars,) = scala_consumer_jars(["1.1.1"])
    with (
        console(cluster, jars, topic, group, output) as java,
        start_consume(tmp_path, cluster.connect, topic, "-g", group, *JOIN) as ours,
    ):
        wait_until(lambda: share(ours) not in ("", f"{topic}-0..2"), 60, "both are members")
        wait_until(lambda: len(output.read_text().split()) + len(ours.lines) >= 30, what="all is read")
        produce(kafka, topic, numbered(30, 3, 30))
        wait_until(lambda: len(output.read_text().split()) + len(ours.lines) >= 60, what="the new ones are read")
        os.kill(java.pid, signal.SIGTERM)
        wait_until(lambda: share(ours) == f"{topic}-0..2", what="the console's share")
        produce(kafka, topic, numbered(3, 3, 60))
        wait_until(lambda: len(output.read_text().split()) + len(ours.lines) >= 63, what="the last ones are read")
        assert ours.stop(signal.SIGINT) == 130
    assert sorted(output.read_text().split() + ours.lines) == [f"m{n:06d}" for n in range(63)]
    assert committed(kafka, group, topic) == [21, 21, 21]
