"""Sandboxes: started, hurt, mended and ended, on real servers."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from servers import Sandbox, pause, resume
from support import find, numbered, wait_until
from topic_changes import add_partitions, delete_topic

from zkgroup.clients.kafka.client import KafkaSettings
from zkgroup.clients.kafka.log_offsets import LogRange, log_offsets
from zkgroup.config.setting_files import parse_properties
from zkgroup.errors import RefusedError, UsageError, ZkgroupError
from zkgroup.protocol.names import TopicPartition
from zkgroup.protocol.operations import Children, Exists
from zkgroup.sandbox import processes
from zkgroup.sandbox.local_cluster import START_TIMEOUT
from zkgroup.sandbox.processes import (
    HOST,
    ProcessId,
    metadata_brokers,
    port_is_free,
    telling_line,
    zookeeper_data,
)
from zkgroup.sandbox.sandbox_state import process_rows, read_state, sandbox_folder, write_state
from zkgroup.sandbox.sandbox_state import stop as stop_recorded
from zkgroup.sandbox.server_configuration import properties_file
from zkgroup.sandbox.topic_admin import create_topic, produce

OWNER = """
import sys, time
from zkgroup.sandbox.local_cluster import START_TIMEOUT, Sandbox
Sandbox(sys.argv[1], brokers=int(sys.argv[2])).start()
print("up", flush=True)
time.sleep(600)
"""


def ports_of(name: str) -> list[int]:
    state = read_state(sandbox_folder(name))
    assert state is not None
    return [one.port for one in state.servers]


def all_free(ports: list[int]) -> bool:
    return all(port_is_free(port) for port in ports)


def test_a_cluster_survives_each_kind_of_fault(make_sandbox: Callable[..., Sandbox]) -> None:
    """Servers that were killed, stopped and paused come back on their ports with their data; then all is gone."""
    sandbox = make_sandbox(brokers=2, chroot="/a/b")
    ports = ports_of(sandbox.name)
    assert len(set(ports)) == 3
    assert metadata_brokers(sandbox.broker(1).port) == {1, 2}
    settings = KafkaSettings(sandbox.bootstrap)
    with sandbox.registry() as registry:
        create_topic(registry, "t", 3, replication=2)
        produce(settings, "t", numbered(30, 3))

        sandbox.broker(2).kill()
        assert not sandbox.broker(2).running
        sandbox.start_broker(2)
        sandbox.broker(1).stop()
        sandbox.start_broker(1)
        produce(settings, "t", numbered(30, 3))

        add_partitions(registry, "t", 5)
        produce(settings, "t", numbered(5, 5))
    sandbox.zookeeper.kill()
    assert zookeeper_data(sandbox.zookeeper.port) is None
    sandbox.zookeeper.start(START_TIMEOUT)
    pause(sandbox.zookeeper)
    assert zookeeper_data(sandbox.zookeeper.port) is None
    resume(sandbox.zookeeper)
    wait_until(lambda: zookeeper_data(sandbox.zookeeper.port) is not None, 10, "ZooKeeper answers again")

    # Brokers whose session ended with ZooKeeper's pause are elected anew meanwhile.
    expected = [LogRange(0, 21)] * 3 + [LogRange(0, 1)] * 2
    partitions = [TopicPartition("t", p) for p in range(5)]
    wait_until(
        lambda: list(log_offsets(settings, partitions, 20.0).values()) == expected, 60, "all logs are as they were"
    )
    assert ports_of(sandbox.name) == ports
    sandbox.stop()
    wait_until(lambda: all_free(ports), 10, "all ports are free")
    assert not sandbox.folder.exists()
    assert find(sandbox.name) is None


def test_a_deleted_topic_is_gone_and_can_be_recreated(cluster: Sandbox, unique: Callable[[str], str]) -> None:
    """Deletion is waited for: a topic of the same name is new and empty."""
    topic, settings = unique("topic"), KafkaSettings(cluster.bootstrap)
    with cluster.registry() as registry:
        create_topic(registry, topic)
        produce(settings, topic, numbered(3))
        delete_topic(registry, topic)
        create_topic(registry, topic)
    ends = log_offsets(settings, [TopicPartition(topic, 0)], 10.0)
    assert list(ends.values()) == [LogRange(0, 0)]


@given(st.dictionaries(st.sampled_from(["a", "b.c"]), st.text(st.characters(codec="utf-8", exclude_characters="\0"))))
@example({"a": r"\d\u00e4 \\"})
@example({"a": "/kafka/ü/𝄞"})
@example({"a": "# two\nlines\r\n=:!"})
def test_any_value_of_a_property_is_read_as_it_was_written(properties: dict[str, str]) -> None:
    """By whoever reads Java's format, in ASCII: Java takes the bytes for ISO-8859-1."""
    found = parse_properties(properties_file(properties).encode("ascii"), "test")
    assert {one.key: one.value for one in found} == {key: value.strip(BLANKS) for key, value in properties.items()}


BLANKS = "".join(map(chr, range(33)))  # what our reader drops, as the Scala consumer does


@pytest.mark.parametrize("release", ["0.8.2.2", "1.1.1"])
def test_a_chroot_may_have_any_name(zookeeper: Sandbox, make_sandbox: Callable[..., Sandbox], release: str) -> None:
    """Brokers register where the connect string says that they are, whatever its letters."""
    sandbox = make_sandbox(zookeeper=zookeeper.address, chroot=f"/kafka-ü/{release}", kafka=release)
    assert sandbox.connect.endswith(f"/kafka-ü/{release}")
    with sandbox.registry() as registry:
        assert registry.read([Children("/brokers/ids")]) == [("1",)]
    with zookeeper.registry() as registry:
        assert "kafka-ü" in (registry.read([Children("/")])[0] or ())


def test_two_sandboxes_at_once(make_sandbox: Callable[..., Sandbox]) -> None:
    """Two sandboxes that start in the same moment get ports of their own, and each is found by its name."""
    made: list[Sandbox] = []
    threads = [threading.Thread(target=lambda: made.append(make_sandbox(brokers=0))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    first, second = made
    assert first.connect != second.connect
    for sandbox in made:
        found = find(sandbox.name)
        assert found is not None
        assert found.connect == sandbox.connect


def test_nothing_is_left_when_the_owner_is_killed(unique: Callable[[str], str]) -> None:
    """After a SIGKILL of who started it: no process, no port, no folder."""
    name = unique("crash")
    with subprocess.Popen([sys.executable, "-c", OWNER, name, "1"], stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == "up\n"
        state = find(name)
        assert state is not None
        owner.kill()
    wait_until(lambda: not state.is_alive, 10, "the servers end")
    wait_until(lambda: not sandbox_folder(name).exists(), 10, "the folder is removed")
    wait_until(lambda: all_free([one.port for one in state.servers]), 10, "all ports are free")


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGINT])
def test_nothing_is_left_when_starting_is_interrupted(unique: Callable[[str], str], end: int) -> None:
    """An end in the middle of starting, right after ZooKeeper's launch: no process and no folder remain."""
    name = unique("interrupted")
    with subprocess.Popen([sys.executable, "-c", OWNER, name, "1"], stderr=subprocess.DEVNULL) as owner:
        state = wait_until(lambda: read_state(sandbox_folder(name)), 30, "the ZooKeeper is written down")
        assert not state.ready
        assert find(name) is None
        owner.send_signal(end)
    wait_until(lambda: not state.is_alive, 10, "the servers end")
    wait_until(lambda: not sandbox_folder(name).exists(), 10, "the folder is removed")


def test_a_running_sandbox_is_not_started_again(make_sandbox: Callable[..., Sandbox]) -> None:
    """A second start under the same name is refused, and harms nothing."""
    sandbox = make_sandbox(brokers=0)
    with pytest.raises(RefusedError, match=rf"\b{sandbox.name}\b.*--name"):
        Sandbox(sandbox.name, brokers=0).start()
    assert zookeeper_data(sandbox.zookeeper.port) is not None


def test_a_port_that_is_taken(make_sandbox: Callable[..., Sandbox], unique: Callable[[str], str]) -> None:
    """A given port that another listens on: the line names server and port, and nothing is left of the start."""
    with socket.create_server((HOST, 0)) as other:
        port = other.getsockname()[1]
        sandbox = Sandbox(unique("taken"), brokers=0, zookeeper_port=port)
        with pytest.raises(ZkgroupError, match=rf"ZooKeeper\b.*\b{port}\b"):
            sandbox.start()
    assert not sandbox.folder.exists()


def test_a_port_taken_meanwhile_is_changed(
    make_sandbox: Callable[..., Sandbox], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A chosen port that another takes before the server does: another one is chosen."""
    with socket.create_server((HOST, 0)) as other:
        choose, offered = processes.free_port, [other.getsockname()[1]]
        monkeypatch.setattr(processes, "free_port", lambda: offered.pop() if offered else choose())
        sandbox = make_sandbox(brokers=0)
        assert sandbox.zookeeper.port != other.getsockname()[1]
        assert zookeeper_data(sandbox.zookeeper.port) is not None


def test_a_foreign_zookeeper_is_not_taken_for_ones_own(zookeeper: Sandbox, unique: Callable[[str], str]) -> None:
    """Where a given port belongs to another ZooKeeper, the start fails and leaves nothing in that one."""
    sandbox = Sandbox(unique("foreign"), zookeeper_port=zookeeper.zookeeper.port, chroot="/foreign")
    with pytest.raises(ZkgroupError, match=rf"ZooKeeper\b.*\b{zookeeper.zookeeper.port}\b"):
        sandbox.start()
    assert not sandbox.folder.exists()
    with zookeeper.registry() as registry:
        assert registry.read([Exists("/foreign")]) == [None]


@pytest.mark.parametrize("kind", ["zookeeper", "broker"])
def test_servers_of_others_that_answer_on_a_chosen_port(
    make_sandbox: Callable[..., Sandbox],
    cluster: Sandbox,
    zookeeper: Sandbox,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
) -> None:
    """A ZooKeeper or broker (of the same number, even) that took the port meanwhile and serves there is not ours."""
    foreign = zookeeper.zookeeper.port if kind == "zookeeper" else cluster.broker(1).port
    choose, offered = processes.free_port, [foreign]
    monkeypatch.setattr(processes, "free_port", lambda: offered.pop() if offered else choose())
    if kind == "zookeeper":
        sandbox = make_sandbox(brokers=0)
        ours = sandbox.zookeeper
    else:
        sandbox = make_sandbox(zookeeper=zookeeper.address, chroot="/another")
        ours = sandbox.broker(1)
    assert not offered
    assert ours.port != foreign
    assert ours.running


def test_a_broker_that_ends_while_starting(zookeeper: Sandbox, unique: Callable[[str], str]) -> None:
    """A setting that the broker refuses: its own words, in one line; nothing is left."""
    sandbox = Sandbox(unique("wrong"), zookeeper=zookeeper.address, chroot="/wrong", properties={"num.io.threads": "0"})
    with pytest.raises(ZkgroupError, match=r"broker 1\b.*num\.io\.threads"):
        sandbox.start()
    assert not sandbox.folder.exists()


def test_a_crashed_sandbox_is_noticed_and_replaced(unique: Callable[[str], str]) -> None:
    """Detached servers that died are shown as gone; starting under the name again works, and stopping cleans up."""
    name = unique("detached")
    Sandbox(name, brokers=0, owned=False).start()
    state = find(name)
    assert state is not None
    os.kill(state.servers[0].process.pid, signal.SIGKILL)
    wait_until(lambda: not state.is_alive, 10, "the ZooKeeper is gone")
    assert find(name) is None
    left = read_state(sandbox_folder(name))
    assert left is not None
    assert [row.state for row in process_rows(left)] == ["gone"]
    Sandbox(name, brokers=0, owned=False).start()
    again = stop_recorded(name)
    assert again is not None
    assert not again.is_alive
    assert not sandbox_folder(name).exists()
    assert stop_recorded(name) is None


def test_a_recycled_process_id_is_not_killed(unique: Callable[[str], str]) -> None:
    """Stopping a stale sandbox spares a process that has got the id of one of its servers."""
    name = unique("stale")
    Sandbox(name, brokers=0, owned=False).start()
    state = stop_recorded(name)
    assert state is not None
    with subprocess.Popen(["sleep", "600"]) as other:
        recycled = ProcessId(other.pid, state.servers[0].process.started)
        Path(state.folder).mkdir()
        write_state(replace(state, servers=(replace(state.servers[0], process=recycled),)))
        assert find(name) is None
        stop_recorded(name)
        assert other.poll() is None
        other.kill()


def test_names_and_numbers_that_cannot_be() -> None:
    """Wrong parameters are reported before anything starts."""
    with pytest.raises(UsageError, match=r"'\.\./x'"):
        Sandbox("../x")
    with pytest.raises(UsageError, match="'kafka'"):
        Sandbox("x", chroot="kafka")
    with pytest.raises(UsageError, match="Kerberos"):
        Sandbox("x", secure=True, kerberos=True)
    for options in ({"brokers": 2}, {"chroot": "/a"}, {"zookeeper_port": 2181}):
        with pytest.raises(UsageError, match=r"4\.1\.0\b"):
            Sandbox("x", kafka="4.1.0", **options)


@pytest.mark.parametrize(
    ("log", "line"),
    [
        ("", "nothing"),
        ("a INFO x\nb FATAL broken (KafkaServer)\njava.io.IOException: no\n\tat x.y(Z.java)\nc INFO shut down\n", None),
        ("only\nlines\n", "lines"),
    ],
)
def test_telling_line_of_a_log(log: str, line: str | None) -> None:
    """Of a log the last error is shown, not the stack below it nor the farewell after it."""
    assert telling_line(log) == (line or "java.io.IOException: no")
