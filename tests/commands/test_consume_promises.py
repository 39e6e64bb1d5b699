"""What ``consume`` promises: what it prints is what it commits, however it ends; and plain words for what is wrong."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from cli import ZKGROUP, environment, run
from consume_processes import committed, into_a_full_pipe, members, nobody_is_left, start_consume
from lines import names
from support import wait_until

from zkgroup.clients.kafka.client import KafkaSettings
from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.protocol import znodes
from zkgroup.protocol.operations import Create, Ensure, Exists
from zkgroup.sandbox.local_cluster import Sandbox
from zkgroup.sandbox.topic_admin import ProducerRecord, produce

MESSAGES = 3000
NEVER = ["-X", "auto.commit.interval.ms=60000"]

MakeTopic = Callable[..., str]
Fill = Callable[..., list[ProducerRecord]]
Unique = Callable[[str], str]


@pytest.fixture
def topic(make_topic: MakeTopic, fill: Fill) -> str:
    """A topic of its own, with ``MESSAGES`` messages in three partitions."""
    name = make_topic(3)
    fill(name, MESSAGES, 3)
    return name


def total(registry: Registry, group: str) -> int:
    """The sum of the group's committed offsets, which is how many messages it has consumed."""
    return sum(committed(registry, group).values())


@pytest.mark.parametrize(("signum", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_leaves_cleanly(
    cluster: Sandbox, registry: Registry, topic: str, unique: Unique, tmp_path: Path, signum: int, code: int
) -> None:
    """All that was printed is committed, nothing of the member is left, and the exit code names the signal."""
    group = unique("group")
    with start_consume(tmp_path, cluster.connect, topic, "-g", group, "--from-beginning", *NEVER) as process:
        process.wait_for_lines(MESSAGES)
        assert process.stop(signum) == code
    assert process.stderr == ""
    assert total(registry, group) == MESSAGES
    assert nobody_is_left(registry, group)


def test_a_signal_while_two_handles_deliver(
    cluster: Sandbox, registry: Registry, make_topic: MakeTopic, fill: Fill, unique: Unique
) -> None:
    """SIGTERM amid partitions that different handles of librdkafka read: all that is printed is committed, and the next
    member prints the rest, each message once."""
    topic, group = make_topic(4), unique("group")
    fill(topic, 200_000, 4)
    command = ["-z", cluster.connect, "consume", topic, "-g", group, "--from-beginning", "-f", r"%p %o\n", *NEVER]
    with subprocess.Popen([ZKGROUP, *command], stdout=subprocess.PIPE, env=environment()) as process:
        assert process.stdout is not None
        try:
            printed = process.stdout.readline()
            while not {line.split()[0] for line in printed.splitlines()} > {b"0", b"1"}:
                printed += b"".join(process.stdout.readline() for _ in range(1000))  # it waits for us with the next
            process.send_signal(signal.SIGTERM)
            printed += process.stdout.read()
            assert process.wait(20) == 143
        finally:
            process.kill()
    first = Counter(printed.decode().splitlines())
    stored = {partition: offset for partition, offset in committed(registry, group).items() if offset}
    assert stored == {f"{topic}-{number}": count for number, count in Counter(line[0] for line in first).items()}
    assert 0 < len(first) < 200_000
    rest = Counter(run(*command, "-e").stdout.splitlines())
    assert first + rest == Counter(f"{n % 4} {n // 4}" for n in range(200_000))


def test_a_kill_loses_nothing(cluster: Sandbox, registry: Registry, topic: str, unique: Unique, tmp_path: Path) -> None:
    """After SIGKILL the next member goes on behind the last commit: nothing missing, and no more printed twice than
    what came since."""
    group = unique("group")
    options = [topic, "-g", group, "--from-beginning", *NEVER]
    first = run("-z", cluster.connect, "consume", *options, "-n", "2000").stdout.splitlines()
    with start_consume(tmp_path, cluster.connect, *options, "-X", "zookeeper.session.timeout.ms=2000") as process:
        second = process.wait_for_lines(1000)
        process.stop(signal.SIGKILL)
    assert total(registry, group) == 2000
    wait_until(lambda: nobody_is_left(registry, group), what="the end of the dead member's session")
    third = run("-z", cluster.connect, "consume", *options, "-e").stdout.splitlines()
    assert len(set(first + second)) == len(first + second) == MESSAGES
    assert sorted(third) == sorted(second)
    assert total(registry, group) == MESSAGES


@pytest.mark.parametrize(("count", "limit"), [(60_000, ""), (117, "--filter-value /./"), (60_000, "-e")])
def test_a_reader_that_leaves_is_no_error(
    cluster: Sandbox, registry: Registry, make_topic: MakeTopic, fill: Fill, unique: Unique, count: int, limit: str
) -> None:
    """``| head -1`` ends it with 0; the member is gone, and nothing is committed: who left may have died with all that
    was in the pipe, however little that was. A warning says so, and how to commit some."""
    topic, group = make_topic(1), unique("group")
    fill(topic, count)
    command = f'"{ZKGROUP}" -z {cluster.connect} consume {topic} -g {group} --from-beginning {limit}'
    script = f"set -o pipefail; {command} | head -1"
    done = subprocess.run(["bash", "-c", script], capture_output=True, env=environment(), timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, b"m000000\n")
    said = done.stderr.decode()
    assert names(said, "warning", group, "--max-messages N")
    assert said.count("\n") == (2 if "--filter" in limit else 1)
    assert nobody_is_left(registry, group)
    assert total(registry, group) == 0
    assert registry.read([Exists(znodes.group(group))]) == [None]  # it was new, and nothing is in it
    if limit != "-e":
        assert len(run(*command.split()[1:], "-e").stdout.splitlines()) == count
        assert total(registry, group) == count


def test_a_reader_that_leaves_before_the_first_batch_is_written(
    cluster: Sandbox, kafka: KafkaSettings, registry: Registry, make_topic: MakeTopic, unique: Unique
) -> None:
    """Messages that are larger than the pipe: what was printed of a batch is not committed, and the warning says so."""
    topic, group = make_topic(1), unique("group")
    produce(kafka, topic, [ProducerRecord(b"%d" % number * 200_000, None, 0) for number in range(5)])
    command = f'"{ZKGROUP}" -z {cluster.connect} consume {topic} -g {group} --from-beginning'
    script = f"set -o pipefail; {command} | head -1"
    done = subprocess.run(["bash", "-c", script], capture_output=True, env=environment(), timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, b"0" * 200_000 + b"\n")
    assert names(done.stderr.decode(), "warning", group, "--max-messages N")
    assert total(registry, group) == 0


@pytest.mark.parametrize("group", [True, False], ids=["member", "plain"])
def test_a_reader_that_leaves_an_idle_topic(
    cluster: Sandbox, topic: str, unique: Unique, group: bool, registry: Registry
) -> None:
    """It ends when its reader does, not when the next message comes; what auto-commit had committed by then stays, and
    what came since is left to be read again."""
    name = unique("group")
    member = ["-g", name, "-X", "auto.commit.interval.ms=200"] if group else []
    command = [ZKGROUP, "-z", cluster.connect, "consume", topic, "--from-beginning", *member]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment()) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        for _ in range(MESSAGES):
            process.stdout.readline()
        wait_until(lambda: not group or total(registry, name) == MESSAGES, what="an automatic commit")
        process.stdout.close()
        assert process.wait(10) == 0
        message = process.stderr.read().decode()
        assert names(message, "stdout", name) if group else message == ""
    assert total(registry, name) == (MESSAGES if group else 0)


def test_timeout_commits_as_a_signal_does(
    cluster: Sandbox, registry: Registry, topic: str, unique: Unique, tmp_path: Path
) -> None:
    """timeout(1) sends its signal twice, to the process and to its group: that is one request to leave."""
    group, file = unique("group"), tmp_path / "out"
    member = f'"{ZKGROUP}" -z {cluster.connect} consume {topic} -g {group} --from-beginning {" ".join(NEVER)}'
    script = f'timeout 6 {member} > "{file}"'
    done = subprocess.run(["bash", "-c", script], capture_output=True, env=environment(), timeout=60, check=False)
    assert (done.returncode, done.stderr) == (124, b"")
    assert total(registry, group) == file.read_bytes().count(b"\n") == MESSAGES
    assert nobody_is_left(registry, group)


@pytest.mark.parametrize("group", [True, False], ids=["member", "plain"])
def test_a_closed_stdout(cluster: Sandbox, registry: Registry, topic: str, unique: Unique, group: bool) -> None:
    """What has nowhere to go is neither read nor committed: exit 1 before anything is registered."""
    name = unique("group")
    member = f"-g {name}" if group else ""
    script = f'exec "{ZKGROUP}" -z {cluster.connect} consume {topic} --from-beginning -e {member} >&-'
    done = subprocess.run(["bash", "-c", script], capture_output=True, env=environment(), timeout=60, check=False)
    assert (done.returncode, done.stderr.count(b"\n")) == (1, 1)
    assert names(done.stderr.decode(), "zkgroup", "stdout")
    assert registry.read([Exists(znodes.group(name))]) == [None]


def test_a_full_disk(cluster: Sandbox, registry: Registry, topic: str, unique: Unique) -> None:
    """stdout that cannot be written: exit 1, one line, and nothing committed that was not written."""
    for options in (["-g", unique("group")], []):
        with Path("/dev/full").open("wb") as full:
            done = subprocess.run(
                [ZKGROUP, "-z", cluster.connect, "consume", topic, "--from-beginning", *options],
                stdout=full,
                stderr=subprocess.PIPE,
                env=environment(),
                timeout=60,
                check=False,
            )
        assert done.returncode == 1
        assert names(done.stderr.decode(), "zkgroup", "stdout", os.strerror(errno.ENOSPC))
        assert done.stderr.count(b"\n") == 1
        if options:
            assert total(registry, options[1]) == 0
            assert nobody_is_left(registry, options[1])


def test_a_disk_that_becomes_full(
    cluster: Sandbox, registry: Registry, make_topic: MakeTopic, fill: Fill, unique: Unique, tmp_path: Path
) -> None:
    """A file that may grow no further: what is committed is there, and the next run prints the rest."""
    topic, group, file = make_topic(3), unique("group"), tmp_path / "out"
    messages = 20_000  # more than several batches hold
    fill(topic, messages, 3)
    options = f"-z {cluster.connect} consume {topic} -g {group} --from-beginning -e"
    # ulimit counts blocks of 1024 bytes; SIGXFSZ is what Python ignores, so that the write fails.
    script = f'ulimit -f 100; "{ZKGROUP}" {options} > "{file}"'
    done = subprocess.run(["bash", "-c", script], capture_output=True, env=environment(), timeout=60, check=False)
    assert (done.returncode, done.stderr.count(b"\n")) == (1, 1)
    assert names(done.stderr.decode(), "zkgroup", "stdout", os.strerror(errno.EFBIG))
    written = file.read_bytes().split(b"\n")[:-1]
    counted = total(registry, group)
    assert 0 < counted <= len(written) < messages
    rest = run(*options.split()).stdout.encode().splitlines()
    assert len(rest) == messages - counted
    assert len(set(written + rest)) == messages


def test_until_end_prints_everything_once_over_runs(cluster: Sandbox, topic: str, unique: Unique, fill: Fill) -> None:
    """A second run prints only what is new, and a third nothing."""
    arguments = ["consume", topic, "-g", unique("group"), "--from-beginning", "--until-end", "--streams", "2"]
    first = run("-z", cluster.connect, *arguments).stdout.splitlines()
    fill(topic, 30, 3)
    second, third = run("-z", cluster.connect, *arguments), run("-z", cluster.connect, *arguments)
    assert len(set(first)) == len(first) == MESSAGES
    assert len(second.stdout.splitlines()) == 30
    assert (third.returncode, third.stdout) == (0, "")


@pytest.mark.parametrize(
    ("arguments", "code", "facts"),
    [
        (["nosuch", "-g", "g"], 4, ("nosuch",)),
        (["nosuch"], 4, ("nosuch",)),
        (["TOPIC", "--partition", "9"], 4, (9,)),
        (["TOPIC", "-g", "a b"], 2, ("'a b'",)),
        (["TOPIC", "-g", "a", "-X", "group.id=b"], 2, ("group.id=b", "--group a")),
        (["TOPIC", "-g", ""], 2, ("--group",)),
        (["--whitelist", "("], 2, ("(",)),
        (["--whitelist", ""], 2, ("--whitelist",)),
        (["--blacklist", "", "-g", "g"], 2, ("--blacklist",)),
        (["--whitelist", "a", "--blacklist", "b"], 2, ("--whitelist", "--blacklist")),
        (["TOPIC", "--offset", "99999999"], 1, (99999999,)),
        (["TOPIC", "--offset", "soon"], 2, ("'soon'",)),
        (["TOPIC", "--offset", "1", "--from-beginning"], 2, ("--from-beginning", "--offset")),
        (["TOPIC", "-f", "%q"], 2, ("%q",)),
        (["TOPIC", "-f", "%s", "--output", "json"], 2, ("--format", "--output")),
        (["TOPIC", "--no-commit"], 2, ("--no-commit",)),
        ([], 2, ()),
        (["TOPIC", "-g", "g", "-X", "partition.assignment.strategy=fair"], 2, ("fair",)),
        (["TOPIC", "-g", "g", "-X", "fetch.wait.max.ms=40000"], 2, ("socket.timeout.ms",)),
        (["TOPIC", "-X", "kafka.fetch.wait.max.ms=never"], 2, ("fetch.wait.max.ms",)),
    ],
)
def test_what_is_wrong_is_one_line(
    cluster: Sandbox, registry: Registry, topic: str, arguments: list[str], code: int, facts: tuple[object, ...]
) -> None:
    """The documented exit code, and one line that names the thing; nothing is registered."""
    done = run("-z", cluster.connect, "consume", *[topic if part == "TOPIC" else part for part in arguments])
    assert done.returncode == code, done.stderr
    assert names(done.stderr.replace(topic, "TOPIC"), *facts)
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""
    assert members(registry, "g") == ()


def test_an_unreachable_zookeeper_is_reported_soon(unique: Unique) -> None:
    """Nobody listens: exit 3 within the connect time-out."""
    done = run("-z", "127.0.0.1:1", "--connect-timeout", "1", "consume", "t", "-g", unique("group"), timeout=10)
    assert done.returncode == 3
    assert "127.0.0.1:1" in done.stderr


def test_a_wrong_chroot_is_named(cluster: Sandbox) -> None:
    """A chroot that is not there is a clear line, not an empty cluster."""
    done = run("-z", f"{cluster.address}/nowhere", "consume", "t", "-g", "g")
    assert done.returncode == 2
    assert "/nowhere" in done.stderr


def test_a_malformed_member_node_makes_it_leave_loudly(
    cluster: Sandbox, registry: Registry, topic: str, unique: Unique
) -> None:
    """An id node that stops every member: it tries as long as the Scala consumer would, then leaves, and names the
    node."""
    group = unique("group")
    registry.read([Ensure(znodes.ids(group))])
    bad = znodes.member_id(group, "bad")
    assert registry.write(Create(bad, b"no json")) is None
    done = run("-z", cluster.connect, "consume", topic, "-g", group, "-X", "rebalance.backoff.ms=200", timeout=30)
    assert done.returncode == 1
    assert bad in done.stderr
    assert members(registry, group) == ("bad",)


def test_a_blocked_pipe_does_not_keep_a_signal_waiting(
    cluster: Sandbox, registry: Registry, make_topic: MakeTopic, fill: Fill, unique: Unique
) -> None:
    """Nobody reads the pipe and it is full: SIGTERM still ends the member, and it commits no more than was taken."""
    topic, group = make_topic(3), unique("group")
    fill(topic, 60_000, 3)
    with into_a_full_pipe("-z", cluster.connect, "consume", topic, "-g", group, "--from-beginning") as (process, pipe):
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 143
        taken = os.read(pipe, 10_000_000).count(b"\n")
    assert 0 < total(registry, group) <= taken < 60_000
    assert nobody_is_left(registry, group)
