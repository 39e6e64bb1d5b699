"""What ``consume`` promises: what it prints is what it commits, however it ends; and plain words for what is wrong."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from cli import ZKGROUP, environment, run
from support import wait_until

from zkgroup.protocol import znodes
from zkgroup.protocol.names import TopicPartition
from zkgroup.protocol.ops import Children, Create, Ensure, Get, Node
from zkgroup.sandbox.sandbox import Sandbox
from zkgroup.servers.registry import Registry

MESSAGES = 3000


@pytest.fixture
def topic(make_topic: Callable[..., str], fill: Callable[..., Any]) -> str:
    """A topic of its own, with ``MESSAGES`` messages in three partitions."""
    name = make_topic(3)
    fill(name, MESSAGES, 3)
    return name


@contextmanager
def consuming(
    cluster: Sandbox, topic: str, group: str, output: Path, *options: str
) -> Iterator[subprocess.Popen[bytes]]:
    """``zkgroup consume`` as a member, with a commit every 100 ms, its output appended to a file."""
    command = [ZKGROUP, "-z", cluster.connect, "consume", topic, "-g", group, "--from-beginning"]
    with (
        output.open("ab") as sink,
        subprocess.Popen(
            [*command, "-X", "auto.commit.interval.ms=100", *options],
            stdout=sink,
            stderr=subprocess.PIPE,
            env=environment(),
        ) as process,
    ):
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()


def lines(output: Path) -> list[bytes]:
    """The complete lines of a file."""
    return output.read_bytes().split(b"\n")[:-1]


def committed(registry: Registry, group: str, topic: str) -> int:
    """The sum of the group's committed offsets, which is how many messages it has consumed."""
    nodes = registry.read([Get(znodes.offset(group, TopicPartition(topic, number))) for number in range(3)])
    return sum(int(node.data) for node in nodes if isinstance(node, Node))


def members(registry: Registry, group: str) -> tuple[str, ...]:
    """Who is registered."""
    (listed,) = registry.read([Children(znodes.ids(group))])
    return listed if isinstance(listed, tuple) else ()


@pytest.mark.parametrize(("signum", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_leaves_cleanly(
    cluster: Sandbox,
    registry: Registry,
    topic: str,
    unique: Callable[[str], str],
    tmp_path: Path,
    signum: int,
    code: int,
) -> None:
    """All that was printed is committed, nothing of the member is left, and the exit code names the signal."""
    group, output = unique("group"), tmp_path / "out"
    with consuming(cluster, topic, group, output, "-X", "auto.commit.interval.ms=60000") as process:
        wait_until(lambda: len(lines(output)) == MESSAGES, what="all printed")
        process.send_signal(signum)
        assert process.wait(20) == code
    assert committed(registry, group, topic) == MESSAGES
    assert members(registry, group) == ()
    (owners,) = registry.read([Children(znodes.owner_topic(group, topic))])
    assert owners == ()


def test_a_kill_loses_nothing(
    cluster: Sandbox, registry: Registry, topic: str, unique: Callable[[str], str], tmp_path: Path
) -> None:
    """After SIGKILL the next member goes on behind the last commit: nothing missing, little repeated."""
    group, output = unique("group"), tmp_path / "out"
    slow = ["-X", "zookeeper.session.timeout.ms=2000"]
    with consuming(cluster, topic, group, output, *slow, "--max-messages", "2000") as process:
        assert process.wait(30) == 0
    with consuming(cluster, topic, group, output, *slow, "-X", "auto.commit.interval.ms=60000") as process:
        wait_until(lambda: len(lines(output)) == MESSAGES, what="all printed")
        process.kill()
        process.wait(10)
    assert committed(registry, group, topic) == 2000
    wait_until(lambda: members(registry, group) == (), what="the dead member's session ends")
    with consuming(cluster, topic, group, output, "--until-end") as process:
        assert process.wait(30) == 0
    values = lines(output)
    assert len(set(values)) == MESSAGES
    assert len(values) == MESSAGES + 1000
    assert committed(registry, group, topic) == MESSAGES


def test_a_closed_pipe_is_no_error(
    cluster: Sandbox,
    registry: Registry,
    make_topic: Callable[..., str],
    fill: Callable[..., Any],
    unique: Callable[[str], str],
) -> None:
    """``| head -1`` ends it with 0 and without a word; the member is gone, and what nobody took is not committed."""
    topic = make_topic(3)
    fill(topic, 60_000, 3)
    group = unique("group")
    script = f'set -o pipefail; "{ZKGROUP}" -z {cluster.connect} consume {topic} -g {group} --from-beginning | head -1'
    done = subprocess.run(["bash", "-c", script], capture_output=True, env=environment(), timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"m000000\n", b"") or done.stdout.startswith(b"m")
    assert done.returncode == 0
    assert done.stderr == b""
    assert members(registry, group) == ()
    assert committed(registry, group, topic) < 60_000


def test_a_full_disk_commits_nothing_unwritten(
    cluster: Sandbox, registry: Registry, topic: str, unique: Callable[[str], str]
) -> None:
    """stdout that cannot be written: exit 1, one line, and nothing committed."""
    group = unique("group")
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [ZKGROUP, "-z", cluster.connect, "consume", topic, "-g", group, "--from-beginning"],
            stdout=full,
            stderr=subprocess.PIPE,
            env=environment(),
            timeout=60,
            check=False,
        )
    assert done.returncode == 1
    assert b"No space left" in done.stderr
    assert done.stderr.count(b"\n") == 1
    assert committed(registry, group, topic) == 0


def test_max_messages_is_exact_and_so_is_the_commit(
    cluster: Sandbox, registry: Registry, topic: str, unique: Callable[[str], str]
) -> None:
    """Two runs of 700 print 1,400 different messages and commit just these."""
    group = unique("group")
    command = ["-z", cluster.connect, "consume", topic, "-g", group, "--from-beginning", "--max-messages", "700"]
    printed = [line for _ in range(2) for line in run(*command).stdout.splitlines()]
    assert len(printed) == len(set(printed)) == 1400
    assert committed(registry, group, topic) == 1400


def test_until_end_prints_everything_once_over_runs(
    cluster: Sandbox, topic: str, unique: Callable[[str], str], fill: Callable[..., Any]
) -> None:
    """A second run prints only what is new, and a third nothing."""
    group = unique("group")
    command = [
        "-z",
        cluster.connect,
        "consume",
        topic,
        "-g",
        group,
        "--from-beginning",
        "--until-end",
        "--streams",
        "2",
    ]
    first = run(*command).stdout.splitlines()
    fill(topic, 30, 3)
    second, third = run(*command), run(*command)
    assert len(set(first)) == len(first) == MESSAGES
    assert len(second.stdout.splitlines()) == 30
    assert (third.returncode, third.stdout) == (0, "")


def test_without_a_group_nothing_is_left(cluster: Sandbox, registry: Registry, topic: str) -> None:
    """Plain reading prints what was asked for, and no group appears."""
    before = registry.read([Children(znodes.consumers())])
    done = run("-z", cluster.connect, "consume", topic, "--offset", "-2", "-e", "--format", r"%p %o %s\n")
    assert sorted(done.stdout.splitlines()) == sorted(
        f"{number % 3} {number // 3} m{number:06d}" for number in range(MESSAGES - 6, MESSAGES)
    )
    assert registry.read([Children(znodes.consumers())]) == before


def test_json_lines_have_all_parts(cluster: Sandbox, topic: str) -> None:
    """One object a line, with the documented keys."""
    done = run(
        "-z", cluster.connect, "consume", topic, "--partition", "1", "--offset", "7", "-n", "1", "--output", "json"
    )
    row = json.loads(done.stdout)
    assert list(row) == ["topic", "partition", "offset", "timestamp", "timestamp_type", "key", "value", "headers"]
    assert (row["topic"], row["partition"], row["offset"], row["key"], row["value"]) == (topic, 1, 7, "k22", "m000022")


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["nosuch", "-g", "g"], 4, "no topic nosuch"),
        (["TOPIC", "--partition", "9"], 4, "no partition 9"),
        (["TOPIC", "-g", "a b"], 2, "group name"),
        (["--whitelist", "("], 2, "regular expression"),
        (["TOPIC", "--offset", "99999999"], 1, "out of range"),
        (["TOPIC", "--offset", "soon"], 2, "no place to start"),
        (["TOPIC", "-f", "%q"], 2, "%q"),
        ([], 2, "which topics"),
        (["TOPIC", "-g", "g", "-X", "partition.assignment.strategy=fair"], 2, "fair"),
        (["TOPIC", "-g", "g", "-X", "fetch.wait.max.ms=40000"], 2, "socket.timeout.ms"),
    ],
)
def test_what_is_wrong_is_one_line(
    cluster: Sandbox, registry: Registry, topic: str, arguments: list[str], code: int, words: str
) -> None:
    """The documented exit code, and one line that names the thing; nothing is registered."""
    done = run("-z", cluster.connect, "consume", *[topic if part == "TOPIC" else part for part in arguments])
    assert done.returncode == code, done.stderr
    assert words in done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""
    assert members(registry, "g") == ()


def test_an_unreachable_zookeeper_is_told_soon(unique: Callable[[str], str]) -> None:
    """Nobody listens: exit 3 within the connect time-out."""
    done = run("-z", "127.0.0.1:1", "--connect-timeout", "1", "consume", "t", "-g", unique("group"), timeout=10)
    assert done.returncode == 3
    assert "127.0.0.1:1" in done.stderr


def test_a_wrong_chroot_is_named(cluster: Sandbox) -> None:
    """A chroot that is not there is a clear line, not an empty cluster."""
    done = run("-z", f"{cluster.address}/nowhere", "consume", "t", "-g", "g")
    assert done.returncode == 2
    assert "/nowhere" in done.stderr


def test_a_spoilt_member_node_makes_it_leave_loudly(
    cluster: Sandbox, registry: Registry, topic: str, unique: Callable[[str], str]
) -> None:
    """An id node that stops every member: it tries as long as the reference would, then leaves, and names the node."""
    group = unique("group")
    registry.read([Ensure(znodes.ids(group))])
    bad = znodes.member_id(group, "bad")
    assert registry.write(Create(bad, b"no json")) is None
    done = run("-z", cluster.connect, "consume", topic, "-g", group, "-X", "rebalance.backoff.ms=200", timeout=30)
    assert done.returncode == 1
    assert bad in done.stderr
    assert members(registry, group) == ("bad",)


def test_a_blocked_pipe_does_not_keep_a_signal_waiting(
    cluster: Sandbox,
    registry: Registry,
    make_topic: Callable[..., str],
    fill: Callable[..., Any],
    unique: Callable[[str], str],
) -> None:
    """Nobody reads the pipe and it is full: SIGTERM still ends the member, and it commits no more than was taken."""
    topic, group = make_topic(3), unique("group")
    fill(topic, 60_000, 3)
    reader, writer = os.pipe()
    process = subprocess.Popen(
        [ZKGROUP, "-z", cluster.connect, "consume", topic, "-g", group, "--from-beginning"],
        stdout=writer,
        stderr=subprocess.PIPE,
        env=environment(),
    )
    os.close(writer)
    try:
        wait_until(lambda: members(registry, group), what="the member is there")
        owned = znodes.owner(group, TopicPartition(topic, 0))
        wait_until(lambda: isinstance(registry.read([Get(owned)])[0], Node), what="it owns a partition")
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 143
    finally:
        process.kill()
    with os.fdopen(reader, "rb") as pipe:
        taken = pipe.read().count(b"\n")
    assert committed(registry, group, topic) <= taken < 60_000
    assert members(registry, group) == ()
