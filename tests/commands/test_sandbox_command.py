"""``zkgroup sandbox`` as people use it: processes, signals, files."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cli import ZKGROUP, environment, run
from lines import names
from support import find, fresh_name, numbered, wait_until

from zkgroup.child_processes import start_token
from zkgroup.clients.kafka.client import KafkaSettings
from zkgroup.clients.zookeeper import ZooKeeperSettings
from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.config.setting_files import STATE_VARIABLE
from zkgroup.sandbox.processes import HOST, port_is_free
from zkgroup.sandbox.sandbox_state import sandbox_folder
from zkgroup.sandbox.sandbox_state import stop as stop_recorded
from zkgroup.sandbox.topic_admin import create_topic, produce


@pytest.fixture(scope="module")
def running() -> Iterator[str]:
    """A sandbox that was started from the command line, with a topic ``t`` of 20 messages in two partitions."""
    name = fresh_name("cli")
    started = run("sandbox", "start", "--name", name, "--chroot", "/k", "--output", "json")
    assert started.returncode == 0, started.stderr
    state = find(name)
    assert state is not None
    with Registry(ZooKeeperSettings(state.connect)) as registry:
        create_topic(registry, "t", 2)
    produce(KafkaSettings(state.bootstrap), "t", numbered(20, 2))
    yield name
    stop_recorded(name)


def status(name: str) -> list[dict[str, Any]]:
    shown = run("sandbox", "status", "--name", name, "--output", "json")
    assert shown.returncode == 0, shown.stderr
    rows: list[dict[str, Any]] = json.loads(shown.stdout)
    return rows


def owners(name: str, group: str) -> list[dict[str, Any]]:
    shown = run("owners", group, "--cluster", f"sandbox:{name}", "--output", "json")
    rows: list[dict[str, Any]] = json.loads(shown.stdout) if shown.returncode == 0 else []
    return rows


def test_status_shows_what_runs(running: str) -> None:
    """One row a process, with the address to connect to; all running and really listening."""
    rows = status(running)
    assert [(row["process"], row["release"], row["state"]) for row in rows] == [
        ("zookeeper", None, "running"),
        ("broker 1", "1.1.1", "running"),
    ]
    assert not any(port_is_free(int(row["address"].rpartition(":")[2])) for row in rows)
    assert all(Path(row["log"]).is_file() for row in rows)


def test_a_second_start_is_refused(running: str) -> None:
    """Starting what runs is refused with exit code 5, in one line that names the way out."""
    again = run("sandbox", "start", "--name", running)
    assert (again.returncode, again.stderr.count("\n"), names(again.stderr, running, "--name")) == (5, 1, True)


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), pytest.param(signal.SIGTERM, 143, marks=pytest.mark.long)]
)
def test_member_prints_and_leaves_cleanly(running: str, unique: Callable[[str], str], number: int, code: int) -> None:
    """A member in the foreground prints what it consumes; Ctrl-C makes it commit and leave, with the signal's code."""
    group = unique("group")
    command = [ZKGROUP, "sandbox", "member", "t", "--group", group, "--from-beginning", "--name", running]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment()
    ) as member:
        assert member.stdout is not None
        assert sorted(member.stdout.readline() for _ in range(20)) == [f"m{i:06d}\n" for i in range(20)]
        assert {row["registered"] for row in owners(running, group)} == {True}
        member.send_signal(number)
        assert member.wait(30) == code
        assert member.stdout.read() == ""
    assert owners(running, group) == []
    again = run(*command[1:], "--property", "consumer.timeout.ms=1500")
    assert (again.returncode, again.stdout) == (0, "")


def test_member_ends_with_its_reader(running: str, unique: Callable[[str], str]) -> None:
    """A reader that has seen enough is no error: the member leaves its group."""
    group = unique("group")
    member = f"{ZKGROUP} sandbox member --whitelist t --group {group} --from-beginning --name {running}"
    shown = subprocess.run(
        ["bash", "-c", f"{member} | head -3; echo ${{PIPESTATUS[0]}}"],
        capture_output=True,
        text=True,
        env=environment(),
        timeout=60,
        check=True,
    )
    assert shown.stdout.splitlines()[-1] == "0"
    assert len(shown.stdout.splitlines()) == 4
    wait_until(lambda: owners(running, group) == [], 15, "the member leaves")


def test_member_ends_when_its_command_is_killed(running: str, unique: Callable[[str], str]) -> None:
    """A SIGKILL of the command leaves no Java behind."""
    group = unique("group")
    command = [ZKGROUP, "sandbox", "member", "t", "--group", group, "--records", "--from-beginning", "--name", running]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment()) as member:
        assert member.stdout is not None
        topic, partition, offset, key, value = member.stdout.readline().rstrip("\n").split("\t")
        assert (topic, offset) == ("t", "0")
        assert (key, value) == (f"k{partition}", f"m00000{partition}")
        member.kill()
        member.stdout.read()  # ends when the Java, which has the other end, is gone


def test_detached_members_are_listed_and_share_the_group(running: str, unique: Callable[[str], str]) -> None:
    """Members in the background show in status and share a group across releases; a second one of a name is refused."""
    group = unique("group")
    join = ("sandbox", "member", "t", "--group", group, "--detach", "--name", running)
    for identity, release in (("a", "1.1.1"), ("b", "0.8.2.2")):
        started = run(*join, "--id", identity, "--release", release, "--strategy", "roundrobin")
        assert started.returncode == 0, started.stderr
    listed = {row["process"]: (row["release"], row["state"]) for row in status(running)}
    assert listed[f"{group}_a"] == ("1.1.1", "running")
    assert listed[f"{group}_b"] == ("0.8.2.2", "running")
    both = [f"{group}_a", f"{group}_b"]
    wait_until(lambda: sorted(str(row["member"]) for row in owners(running, group)) == both, 30, "both own one")
    again = run(*join, "--id", "a")
    assert (again.returncode, again.stderr.count("\n"), names(again.stderr, f"{group}_a", "--id")) == (5, 1, True)
    shown = run(*[word for word in join if word != "--detach"], "--id", "a")
    assert (shown.returncode, shown.stderr) == (5, again.stderr)
    assert [row["state"] for row in status(running) if row["process"] == f"{group}_a"] == ["running"]
    (killed,) = [int(row["pid"]) for row in status(running) if row["process"] == f"{group}_a"]
    os.kill(killed, signal.SIGKILL)
    wait_until(lambda: {row["member"] for row in owners(running, group)} == {f"{group}_b"}, 30, "the other owns all")
    assert run(*join, "--id", "a", "--strategy", "roundrobin").returncode == 0
    assert [row["state"] for row in status(running) if row["process"] == f"{group}_a"] == ["running"]
    stop = ("sandbox", "stop", "--name", running, "--member")
    stopped = run(*stop, f"{group}_a")
    assert (stopped.returncode, stopped.stderr.count("\n"), names(stopped.stderr, f"{group}_a")) == (0, 1, True)
    assert f"{group}_a" not in {row["member"] for row in owners(running, group)}
    assert [row["process"] for row in status(running) if str(row["process"]).startswith(group)] == [f"{group}_b"]
    gone = run(*stop, f"{group}_a")
    assert (gone.returncode, gone.stderr.count("\n")) == (4, 1)
    assert names(gone.stderr, running, f"{group}_a", f"{group}_b")
    assert run(*stop, f"{group}_b", "--all").returncode == 2


def test_a_second_member_of_an_id_in_the_foreground(running: str, unique: Callable[[str], str]) -> None:
    """One that prints is found, too, by its registration; another id is taken."""
    group = unique("group")
    join = ("sandbox", "member", "t", "--group", group, "--name", running, "--id")
    with subprocess.Popen(
        [ZKGROUP, *join, "a"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment()
    ) as member:
        wait_until(lambda: owners(running, group), 60, "it owns something")
        for detach in ((), ("--detach",)):
            again = run(*join, "a", *detach)
            assert (again.returncode, again.stderr.count("\n")) == (5, 1)
            assert names(again.stderr, f"{group}_a", "--id")
        member.send_signal(signal.SIGINT)
        assert member.wait(60) == 130
    for _ in range(2):  # the second one does not take the first one's log for its own
        assert run(*join, "a", "--detach").returncode == 0
        assert owners(running, group), "it is there when the command has ended"
        assert run("sandbox", "stop", "--name", running, "--member", f"{group}_a").returncode == 0


def test_an_id_may_serve_in_a_second_group(running: str, unique: Callable[[str], str]) -> None:
    """Each member has a folder, a log and a line in the state of its own, also where group and id make one name."""
    first = unique("group")
    second, joined = f"{first}-2", f"{first}_b"
    join = ("sandbox", "member", "t", "--name", running, "--from-beginning")
    for group, identity in ((first, "b_a"), (second, "b_a"), (joined, "a")):
        started = run(*join, "--group", group, "--id", identity, "--detach")
        assert started.returncode == 0, started.stderr
    mine = [row for row in status(running) if row["process"] in (f"{first}_b_a", f"{second}_b_a")]
    assert [row["state"] for row in mine] == ["running"] * 3
    assert len({row["log"] for row in mine}) == 3
    shown = run(*join, "--group", unique("group"), "--id", "b_a", "-X", "consumer.timeout.ms=6000")
    assert (shown.returncode, len(shown.stdout.splitlines())) == (0, 20), shown.stderr
    assert all(Path(row["log"]).exists() for row in mine)  # what one in the foreground removes is its own


@pytest.mark.parametrize(
    "key",
    ["listeners", "advertised.listeners", "advertised.port", "port", "broker.id", "host.name", "zookeeper.connect"],
)
def test_what_a_sandbox_finds_its_brokers_by(key: str) -> None:
    """It cannot be set: the sandbox waited two minutes for a broker that was elsewhere."""
    refused = run("sandbox", "start", "--name", "never", "--broker-property", f"{key}=X://127.0.0.1:1", timeout=20)
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
    assert names(refused.stderr, f"--broker-property {key}")


@pytest.mark.parametrize(
    ("arguments", "facts"),
    [
        (["--group", "g"], ["whitelist", "blacklist"]),
        (["t", "--whitelist", "t", "--group", "g"], ["whitelist", "blacklist"]),
        (["t", "--group", "g", "--release", "3.9.1"], ["3.9.1", "1.1.1"]),
        (["t", "--group", "g", "--release", "7"], ["7", "1.1.1"]),
        (["t", "--group", "g", "-X", "novalue"], ["--property 'novalue'", "KEY=VALUE"]),
        (["t", "--group", "g", "-X", "group.id=b"], ["--property group.id", "--group"]),
        (["t"], ["'--group'"]),
        (["t", "--group", "g/h"], ["'g/h'"]),
        (["t", "--group", ""], ["group"]),
        (["t/u", "--group", "g"], ["'t/u'"]),
        (["t", "--group", "g", "--id", "a/b"], ["--id", "consumer.id=a/b"]),
        (["--whitelist", "(", "--group", "g"], ["'('"]),
    ],
)
def test_wrong_members(running: str, arguments: list[str], facts: list[str]) -> None:
    """What makes no member is reported in one line, with exit code 2, before anything starts."""
    wrong = run("sandbox", "member", *arguments, "--name", running)
    assert (wrong.returncode, wrong.stderr.count("\n")) == (2, 1)
    assert names(wrong.stderr, *facts), wrong.stderr


def test_a_topic_is_filled(running: str, unique: Callable[[str], str], tmp_path: Path) -> None:
    """The topic is made with the partitions asked for; numbers go on with the next call, dealt out in turn; sizes are
    kept; values may be the lines of a file; another number of partitions is refused."""
    topic = unique("filled")
    fill = ("sandbox", "fill", topic, "--name", running, "--output", "json")
    first = run(*fill, "--partitions", "2", "--messages", "5")
    assert (first.returncode, first.stderr) == (0, "")
    ends = [{"topic": topic, "partition": p, "log_start": 0, "log_end": end} for p, end in enumerate((3, 2))]
    assert json.loads(first.stdout) == ends
    second = run(*fill, "--messages", "3", "--size", "20")
    assert [row["log_end"] for row in json.loads(second.stdout)] == [4, 4]
    arguments = ("consume", topic, "-c", f"sandbox:{running}", "--from-beginning", "-e", "-f", r"%k %p %s\n")
    printed = sorted(run(*arguments).stdout.splitlines())
    assert printed == [f"key-{n} {n % 2} " + f"message {n}".ljust(20 if n > 4 else 0, ".") for n in range(8)]
    (tmp_path / "values").write_bytes(b"{}\n[8]\n")
    assert [row["log_end"] for row in json.loads(run(*fill, "--values", str(tmp_path / "values")).stdout)] == [5, 5]
    assert sorted(run(*arguments).stdout.splitlines())[-2:] == ["key-8 0 {}", "key-9 1 [8]"]
    unread = run(*fill, "--values", "nowhere")
    assert (unread.returncode, names(unread.stderr, "--values", "nowhere", "No such file")) == (2, True)
    refused = run(*fill, "--partitions", "3")
    assert (refused.returncode, refused.stderr.count("\n"), names(refused.stderr, topic, 2, 3)) == (5, 1, True)
    assert run("sandbox", "fill", "a/b", "--name", running).returncode == 2
    assert run("sandbox", "fill", topic, "--name", "nosuch").returncode == 3


def test_member_that_cannot_start(running: str, unique: Callable[[str], str]) -> None:
    """A member that the Scala consumer refuses: its own words, exit code 1, and no trace in status."""
    group = unique("group")
    refused = run(
        "sandbox", "member", "t", "--group", group, "--detach", "--name", running, "-X", "auto.offset.reset=never"
    )
    assert refused.returncode == 1
    assert "auto.offset.reset" in refused.stderr
    assert refused.stderr.count("\n") == 1
    assert not [row for row in status(running) if row["process"].startswith(group)]


def test_stop_leaves_nothing(unique: Callable[[str], str]) -> None:
    """After stop: no process, no port, no folder; and stopping again says that it does not run, as status does."""
    name = unique("stopped")
    started = run("sandbox", "start", "--name", name, "--output", "json")
    assert started.returncode == 0
    state = find(name)
    assert state is not None
    assert [row["pid"] for row in json.loads(started.stdout)] == [server.process.pid for server in state.servers]
    member = run("sandbox", "member", "--whitelist", ".*", "--group", "g", "--detach", "--name", name)
    assert member.returncode == 0
    member_process = status(name)[-1]["pid"]
    stopped = run("sandbox", "stop", "--name", name)
    assert (stopped.returncode, stopped.stderr.count("\n"), names(stopped.stderr, name)) == (0, 1, True)
    assert not state.is_alive
    assert start_token(member_process) is None
    wait_until(lambda: all(port_is_free(server.port) for server in state.servers), 10, "the ports are free")
    assert not sandbox_folder(name).exists()
    again = run("sandbox", "stop", "--name", name)
    status_of_it = run("sandbox", "status", "--name", name)
    assert (again.returncode, status_of_it.returncode) == (3, 3)
    assert (again.stderr.count("\n"), names(again.stderr, name, "zkgroup sandbox status")) == (1, True)


def test_stop_all_and_status_of_the_dead(tmp_path: Path) -> None:
    """A crashed sandbox is shown as gone with a warning; stop --all removes it and ends the living one."""
    env = {STATE_VARIABLE: str(tmp_path)}
    pids = []
    for name in ("one", "two"):
        started = run("sandbox", "start", "--name", name, "--output", "csv", env=env)
        assert started.returncode == 0
        pids.append([int(line.split(",")[4]) for line in started.stdout.splitlines()[1:]])
    for pid in pids[0]:
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: all(start_token(pid) is None for pid in pids[0]), 10, "the killed are gone")
    shown = run("sandbox", "status", env=env)
    assert [line.split()[0] for line in shown.stdout.splitlines() if " gone " in line] == ["one", "one"]
    assert names(shown.stderr, "warning", "one")
    assert not names(shown.stderr, "two")
    assert run("owners", "g", "--cluster", "sandbox:one", env=env).returncode == 3
    assert run("sandbox", "status", "--name", "one", env=env).returncode == 3
    stopped = run("sandbox", "stop", "--all", env=env)
    first, second = stopped.stderr.splitlines()
    assert (stopped.returncode, names(first, "one"), names(second, "two")) == (0, True, True)
    assert all(start_token(pid) is None for pid in pids[1])
    nothing = run("sandbox", "status", env=env)
    assert (nothing.returncode, nothing.stdout.count("\n")) == (0, 1)


def test_start_on_a_port_that_is_taken(unique: Callable[[str], str]) -> None:
    """A given port that another has: one line, exit code 1, nothing left."""
    name = unique("taken")
    with socket.create_server((HOST, 0)) as other:
        port = other.getsockname()[1]
        refused = run("sandbox", "start", "--name", name, "--zookeeper-port", str(port))
    assert (refused.returncode, refused.stderr.count("\n")) == (1, 1)
    assert names(refused.stderr, "ZooKeeper", port)
    assert not sandbox_folder(name).exists()


def test_start_with_a_java_that_is_too_old(tmp_path: Path, unique: Callable[[str], str]) -> None:
    """With nothing but an old Java: one line that says so and what to type, exit code 2, nothing left."""
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\n")
    java.chmod(0o755)
    (tmp_path / "release").write_text('JAVA_VERSION="11.0.2"\n')
    name = unique("old")
    refused = run("sandbox", "start", "--name", name, env={"JAVA_HOME": str(tmp_path), "PATH": str(java.parent)})
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
    assert names(refused.stderr, "Java 17", java, "Java 11")
    assert not sandbox_folder(name).exists()


@pytest.mark.parametrize("arguments", [["--kafka", "4.0.0"], ["--brokers", "4"], ["--name", "../x"], ["--chroot", "x"]])
def test_wrong_starts(arguments: list[str]) -> None:
    """Wrong options end with exit code 2 and one line."""
    wrong = run("sandbox", "start", *arguments)
    assert wrong.returncode == 2
    assert wrong.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "chroot",
    ["/\x01", "/a//b", "/..", "/a/../b", "/./a", "/n\nl", "/a ", "/a,h:1", "//a"],
)
def test_a_chroot_that_no_command_would_take_starts_nothing(chroot: str, unique: Callable[[str], str]) -> None:
    """Refused at once, with exit code 2 and one line that names it: as a connect string with it is."""
    name = unique("nowhere")
    wrong = run("sandbox", "start", "--name", name, "--chroot", chroot)
    assert (wrong.returncode, wrong.stderr.count("\n")) == (2, 1), wrong.stderr
    assert names(wrong.stderr, name, repr(chroot))
    assert not sandbox_folder(name).exists()


def test_a_damaged_state_hides_no_other_sandbox(running: str, unique: Callable[[str], str]) -> None:
    """``status`` shows the other sandboxes, and names the file; ``start`` and ``stop`` change nothing, and say so."""
    name = unique("malformed")
    folder = sandbox_folder(name)
    folder.mkdir()
    damaged = folder / "state.json"
    damaged.write_text('{"name": "half')
    line = f"pkill -9 -f {folder}/; rm -r {folder}"
    try:
        shown = run("sandbox", "status", "--output", "json")
        assert {row["sandbox"] for row in json.loads(shown.stdout)} >= {running}
        assert (shown.returncode, names(shown.stderr, damaged, line)) == (0, True)
        for command in ("start", "stop"):
            refused = run("sandbox", command, "--name", name)
            assert (refused.returncode, refused.stderr.count("\n")) == (1, 1)
            assert names(refused.stderr, damaged, line)
            assert damaged.exists()
    finally:
        shutil.rmtree(folder)


def test_servers_without_a_state_are_not_forgotten(tmp_path: Path) -> None:
    """Neither a second pair is started nor the folder of what runs removed: refused as for a damaged state, with a line
    that ends it. ``stop --all`` stops the others, and ends with 1."""
    env = {STATE_VARIABLE: str(tmp_path)}
    pids: dict[str, list[int]] = {}
    for name in ("a", "b", "c"):
        started = run("sandbox", "start", "--name", name, "--output", "json", env=env)
        assert started.returncode == 0, started.stderr
        pids[name] = [row["pid"] for row in json.loads(started.stdout)]
    folders = {name: tmp_path / "sandbox" / name for name in pids}
    (folders["a"] / "state.json").unlink()
    (folders["b"] / "state.json").write_text("half")
    line = {name: f"pkill -9 -f {folders[name]}/; rm -r {folders[name]}" for name in ("a", "b")}
    try:
        for command in ("start", "stop"):
            refused = run("sandbox", command, "--name", "a", env=env)
            assert (refused.returncode, refused.stderr.count("\n")) == (1, 1)
            assert names(refused.stderr, folders["a"] / "state.json", line["a"])
        stopped = run("sandbox", "stop", "--all", env=env)
        assert (stopped.returncode, names(stopped.stderr, "c")) == (1, True)
        for name in ("a", "b"):
            assert names(stopped.stderr, folders[name] / "state.json", line[name])
            assert all(start_token(pid) is not None for pid in pids[name])
        assert not folders["c"].exists()
    finally:
        for name in ("a", "b"):
            # The shell's own command line does not name the folder.
            subprocess.run(["sh"], input=line[name], text=True, check=True)
        assert run("sandbox", "stop", "--all", env=env).returncode == 0
    wait_until(lambda: all(start_token(pid) is None for some in pids.values() for pid in some), 10, "all have ended")


def test_a_disk_that_takes_no_more_is_named(unique: Callable[[str], str]) -> None:
    """Where nothing can be written any more (here: no byte to a file) the path is named, and nothing is left."""
    name = unique("full")
    command = f"ulimit -f 0; exec {shlex.quote(ZKGROUP)} sandbox start --name {name}"
    ended = subprocess.run(
        ["sh", "-c", command], env=environment(), capture_output=True, text=True, timeout=60, check=False
    )
    folder = sandbox_folder(name)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert (ended.stderr.count("\n"), f" {folder}" in ended.stderr) == (1, True), ended.stderr
    assert subprocess.run(["pgrep", "-f", f"java.*{folder}/"], check=False).returncode == 1
    assert not folder.exists()
