"""What goes wrong around ``consume``: sessions, brokers, malformed znodes, impatient people."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cli import ZKGROUP, environment, run
from consume_processes import committed, into_a_full_pipe, members, nobody_is_left, start_consume
from lines import names
from session_expiry import expire_session
from support import numbered, wait_until

from zkgroup.clients.kafka.client import KafkaSettings
from zkgroup.clients.zookeeper import ZooKeeperSettings
from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.protocol import znodes
from zkgroup.protocol.names import TopicPartition
from zkgroup.protocol.operations import Create, Delete, Ensure, Exists, Get, Node, SetData, Stat
from zkgroup.sandbox.local_cluster import Sandbox
from zkgroup.sandbox.processes import free_port
from zkgroup.sandbox.topic_admin import ProducerRecord, create_topic, fill_topic, produce

MakeTopic = Callable[..., str]
Fill = Callable[..., list[ProducerRecord]]
Unique = Callable[[str], str]


@pytest.fixture
def elsewhere(cluster: Sandbox, unique: Unique) -> Iterator[Registry]:
    """A chroot of its own on the shared ZooKeeper, laid out as a cluster's, with no broker in it."""
    chroot = f"{cluster.address}/{unique('elsewhere')}"
    with Registry(ZooKeeperSettings(chroot), 30.0) as registry:
        registry.read([Ensure(path) for path in ("/", znodes.broker_ids(), znodes.topics(), znodes.consumers())])
        yield registry


def register_topic(registry: Registry, topic: str) -> None:
    """The topic node of a topic with one partition, on broker 1."""
    assert registry.write(Create(znodes.topic(topic), b'{"version":1,"partitions":{"0":[1]}}')) is None


def register_broker(registry: Registry, port: int) -> None:
    """The registration of a broker at a port of this machine."""
    data = (
        '{"listener_security_protocol_map":{"PLAINTEXT":"PLAINTEXT"},"endpoints":["PLAINTEXT://127.0.0.1:%d"],'
        '"jmx_port":-1,"host":"127.0.0.1","timestamp":"1","port":%d,"version":4}'
    )
    assert registry.write(Create(znodes.broker(1), (data % (port, port)).encode())) is None


def test_an_expired_session_is_a_pause(
    cluster: Sandbox, make_topic: MakeTopic, fill: Fill, unique: Unique, registry: Registry, tmp_path: Path
) -> None:
    """A session that the server ends is replaced: the member joins again, says so in a line, and loses nothing."""
    topic, group = make_topic(2), unique("group")
    fill(topic, 100, 2)
    options = ["-g", group, "--from-beginning", "-X", "auto.commit.interval.ms=100"]
    with start_consume(tmp_path, cluster.connect, topic, *options) as run:
        run.wait_for_lines(100)
        wait_until(lambda: sum(committed(registry, group).values()) == 100, what="the commit")
        (member,) = members(registry, group)
        (stat,) = registry.read([Exists(znodes.member_id(group, member))])
        assert isinstance(stat, Stat)
        expired = stat.owner
        expire_session(cluster.address, expired)

        def has_joined_again() -> bool:
            (node,) = registry.read([Exists(znodes.member_id(group, member))])
            return isinstance(node, Stat) and node.owner != expired

        wait_until(has_joined_again, what="it is registered by another session")
        fill(topic, 50, 2)
        printed = run.wait_for_lines(150)
        assert run.stop(signal.SIGINT) == 130, run.stderr
    assert sorted(printed) == sorted([f"m{i:06d}" for i in range(100)] + [f"m{i:06d}" for i in range(50)])
    assert sum(committed(registry, group).values()) == 150
    assert all(names(line, "warning", member) for line in run.stderr.splitlines())
    assert nobody_is_left(registry, group)


@pytest.mark.parametrize("listening", [True, False], ids=["silent", "closed"])
def test_brokers_that_do_not_answer(elsewhere: Registry, listening: bool) -> None:
    """Registered brokers that are silent, or not there: exit 3 in the time given, and nobody has joined the group."""
    register_topic(elsewhere, "t")
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        port = server.getsockname()[1]
        if listening:
            server.listen(50)
        register_broker(elsewhere, port)
        for options in (["-g", "g"], ["-g", "g", "-e"], []):
            began = time.monotonic()
            result = run("-z", elsewhere.settings.hosts, "--connect-timeout", "1", "consume", "t", *options)
            assert (result.returncode, result.stdout) == (3, "")
            assert names(result.stderr, f"127.0.0.1:{port}", "1 s")
            assert result.stderr.count("\n") == 1
            assert time.monotonic() - began < 10
    assert elsewhere.read([Exists(znodes.ids("g"))]) == [None]


@pytest.mark.parametrize("release", ["1.1.1", pytest.param("0.8.2.2", marks=pytest.mark.long)])
def test_a_broker_at_an_address_of_ipv6(make_cluster: Callable[..., Sandbox], release: str) -> None:
    """Its log is read, offsets are shown, by members and by reading commands: by its registration of version 1 and
    4."""
    port = free_port()
    listeners = {"listeners": f"PLAINTEXT://[::]:{port}", "advertised.listeners": f"PLAINTEXT://[::1]:{port}"}
    old = {"host.name": "::", "advertised.host.name": "::1"}
    sandbox = make_cluster(kafka=release, broker_port=port, properties=old if release < "0.9" else listeners)
    with sandbox.registry() as registry:
        fill_topic(registry, "t", 6, partitions=2)
    for options in ((), ("--group", "g")):
        result = run("consume", "t", "--from-beginning", "-e", *options, "-z", sandbox.connect)
        assert (result.returncode, len(result.stdout.splitlines()), result.stderr) == (0, 6, "")
    shown = run("offsets", "g", "-z", sandbox.connect, "--output", "json")
    assert [(row["log_end"], row["lag"]) for row in json.loads(shown.stdout)] == [(3, 0), (3, 0)]
    sandbox.broker().kill()
    away = run("consume", "t", "-z", sandbox.connect, "--connect-timeout", "1")
    assert (away.returncode, away.stderr.count("\n")) == (3, 1)
    assert names(away.stderr, f"[::1]:{port}", "1 s")


def test_the_other_listener_is_named(elsewhere: Registry, cluster: Sandbox) -> None:
    """Of two that speak PLAINTEXT the first cannot be reached from here: the message names the one that answers."""
    register_topic(elsewhere, "t")
    closed, silent = free_port(), socket.create_server(("127.0.0.1", 0))
    places = {
        "INSIDE": f"127.0.0.1:{closed}",
        "SILENT": f"127.0.0.1:{silent.getsockname()[1]}",
        "OUT": cluster.bootstrap,
    }
    registration = {
        "listener_security_protocol_map": dict.fromkeys(places, "PLAINTEXT"),
        "endpoints": [f"{name}://{place}" for name, place in places.items()],
        "version": 4,
    }
    assert elsewhere.write(Create(znodes.broker(1), json.dumps(registration).encode())) is None
    options = ("-z", elsewhere.settings.hosts, "--connect-timeout", "1")
    with silent:
        for command in (("consume", "t"), ("consume", "t", "--group", "g")):
            away = run(*command, *options)
            assert (away.returncode, away.stderr.count("\n"), "SILENT" in away.stderr) == (3, 1, False)
            assert names(away.stderr, places["INSIDE"], "1 s", "OUT", cluster.bootstrap, "--listener")


def test_a_broker_that_sends_clients_elsewhere(make_cluster: Callable[..., Sandbox]) -> None:
    """What it advertises is not there: that is reported, not that the broker is silent."""
    port, gone = free_port(), free_port()
    ports = {"IN": port, "OUT": free_port()}
    properties = {
        "listeners": ",".join(f"{name}://127.0.0.1:{at}" for name, at in ports.items()),
        "advertised.listeners": f"IN://127.0.0.1:{port},OUT://127.0.0.1:{gone}",
        "listener.security.protocol.map": "IN:PLAINTEXT,OUT:PLAINTEXT",
        "inter.broker.listener.name": "IN",
    }
    sandbox = make_cluster(broker_port=port, properties=properties)
    with sandbox.registry() as registry:
        fill_topic(registry, "t", 6)
    at = f"127.0.0.1:{ports['OUT']}"
    result = run("consume", "t", "--from-beginning", "--bootstrap-server", at, "--connect-timeout", "2")
    assert (result.returncode, result.stderr.count("\n")) == (3, 1)
    assert names(result.stderr, at, "2 s", f"127.0.0.1:{gone}")


def test_a_broker_that_comes_back(
    make_cluster: Callable[..., Sandbox], fill: Fill, tmp_path: Path, unique: Unique
) -> None:
    """A broker that dies and starts again is waited for by a member and by a plain reader: a few lines, no more, and
    then everything."""
    sandbox = make_cluster(properties={"zookeeper.session.timeout.ms": "3000"})
    settings, topic = KafkaSettings(sandbox.bootstrap), unique("topic")
    with sandbox.registry() as registry:
        create_topic(registry, topic, 2)
    fill(topic, 100, 2, settings=settings)
    options = [topic, "--from-beginning"]
    with (
        start_consume(tmp_path, sandbox.connect, *options, "-g", "g") as member,
        start_consume(tmp_path, sandbox.connect, *options) as plain,
    ):
        for process in (member, plain):
            process.wait_for_lines(100)
        sandbox.broker().kill()
        for process in (member, plain):
            process.wait_to_hear("Connection refused")
        sandbox.start_broker()
        fill(topic, 50, 2, settings=settings)
        for process in (member, plain):
            assert len(process.wait_for_lines(150)) == 150
            assert process.stop(signal.SIGINT) == 130
            assert process.stderr.count("\n") < 10, process.stderr


def test_a_signal_while_brokers_are_waited_for(elsewhere: Registry, tmp_path: Path) -> None:
    """Before anything has begun a signal ends it at once, though librdkafka would wait for its brokers."""
    register_topic(elsewhere, "t")
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen(50)
        server.settimeout(30)
        register_broker(elsewhere, server.getsockname()[1])
        with start_consume(tmp_path, elsewhere.settings.hosts, "t", "-g", "g", "--connect-timeout", "60") as process:
            connection, _ = server.accept()  # now it waits for an answer
            assert process.stop(signal.SIGINT, timeout=5) == 130
            connection.close()
    assert process.stderr == ""


def test_no_broker_is_waited_for(
    cluster: Sandbox, make_topic: MakeTopic, fill: Fill, elsewhere: Registry, tmp_path: Path
) -> None:
    """Where no broker is registered a member says so, once, waits, and reads when one comes. With -e it does not wait,
    nor does a plain reader."""
    topic = make_topic(1)
    fill(topic, 10)
    register_topic(elsewhere, topic)
    for options in (["-g", "g", "-e"], ["-e"], []):
        ended = run("-z", elsewhere.settings.hosts, "consume", topic, *options)
        assert (ended.returncode, ended.stdout, ended.stderr.count("\n")) == (3, "", 1)
    assert elsewhere.read([Exists(znodes.ids("g"))]) == [None]
    with start_consume(tmp_path, elsewhere.settings.hosts, topic, "-g", "g", "--from-beginning") as process:
        wait_until(lambda: process.stderr.count("\n") == len(members(elsewhere, "g")) == 1, what="a line, and it waits")
        register_broker(elsewhere, int(cluster.bootstrap.rpartition(":")[2]))
        process.wait_for_lines(10)
        assert process.stop(signal.SIGTERM) == 143
    assert process.stderr.count("\n") == 1
    assert committed(elsewhere, "g") == {f"{topic}-0": 10}
    assert nobody_is_left(elsewhere, "g")


def test_a_malformed_topic_node_is_named(elsewhere: Registry) -> None:
    """A topic node that is no JSON: an error that names it, and nobody has joined."""
    assert elsewhere.write(Create(znodes.topic("t"), b"{")) is None
    register_broker(elsewhere, 1)
    result = run("-z", elsewhere.settings.hosts, "consume", "t", "-g", "g")
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr.startswith(f"zkgroup: znode {znodes.topic('t')}: ")
    assert result.stderr.count("\n") == 1
    assert elsewhere.read([Exists(znodes.ids("g"))]) == [None]


def test_a_malformed_offset_node_costs_one_partition(
    cluster: Sandbox, make_topic: MakeTopic, fill: Fill, unique: Unique, registry: Registry
) -> None:
    """An offset that is no number: the others are read and committed, the error names the node and leaves it be."""
    topic, group = make_topic(2), unique("group")
    fill(topic, 10, 2)
    path = znodes.offset(group, TopicPartition(topic, 0))
    registry.read([Ensure(path.rpartition("/")[0])])
    assert registry.write(Create(path, b"twelve")) is None
    arguments = ["-z", cluster.connect, "consume", topic, "-g", group, "--from-beginning", "-e"]
    for limit, printed in ((["-n", "1"], 1), (["--timeout-ms", "500"], 4), (["-e"], 0)):
        result = run(*arguments[:-1], *limit)
        assert (result.returncode, len(result.stdout.splitlines())) == (1, printed)
        assert path in result.stderr
    (node,) = registry.read([Get(path)])
    assert isinstance(node, Node)
    assert node.data == b"twelve"
    assert registry.write(Delete(znodes.offset(group, TopicPartition(topic, 1)))) is None
    assert isinstance(registry.write(SetData(path, b"3")), Stat)
    mended = run(*arguments)
    assert (mended.returncode, len(mended.stdout.splitlines()), mended.stderr) == (0, 2 + 5, "")


@pytest.mark.parametrize("first", [signal.SIGINT, signal.SIGTERM])
def test_a_second_signal_is_obeyed_at_once(
    cluster: Sandbox, make_topic: MakeTopic, kafka: KafkaSettings, unique: Unique, registry: Registry, first: int
) -> None:
    """While it waits for a reader that does not read, a second signal ends it, with its own code and nothing left."""
    topic, group = make_topic(1), unique("group")
    # A pipe is full when the first of the large ones is half written, and not before.
    produce(kafka, topic, [*numbered(100), *[ProducerRecord(b"x" * 100_000, None, 0)] * 5])
    options = ["-g", group, "--from-beginning", "-X", "zkgroup.quiesce.timeout.ms=60000"]
    with into_a_full_pipe("-z", cluster.connect, "consume", topic, *options) as (process, pipe):
        process.send_signal(first)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(1.3)  # a second signal within a second would be taken for the same
        process.send_signal(signal.SIGINT)
        assert process.wait(5) == 130
        assert process.stderr is not None
        assert process.stderr.read().count(b"\n") == 1
        taken = os.read(pipe, 10_000_000)
    assert nobody_is_left(registry, group)
    assert sum(committed(registry, group).values()) <= taken.count(b"\n")


@pytest.mark.parametrize(("signum", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
@pytest.mark.parametrize("module", ["typer", "kazoo.client", "confluent_kafka"])
def test_a_signal_during_imports(cluster: Sandbox, module: str, signum: int, code: int) -> None:
    """While modules are being imported nothing has begun: it ends at once, without a traceback."""
    with subprocess.Popen(
        [ZKGROUP, "-z", cluster.connect, "consume", "nosuch", "-g", "g"],
        stderr=subprocess.PIPE,
        env=environment({"PYTHONPROFILEIMPORTTIME": "1", "PYTHONUNBUFFERED": "1"}),
        text=True,
    ) as process:
        assert process.stderr is not None
        seen = next(line for line in process.stderr if line.rstrip().endswith(f" {module}"))
        process.send_signal(signum)
        rest = process.stderr.read()
        assert process.wait(20) == code, (seen, rest[-500:])
    assert all(line.startswith("import time:") for line in rest.splitlines()), rest[-500:]
