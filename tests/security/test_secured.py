"""Everything against servers with TLS, users and access lists: a sandbox that was started secured."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from cli import ZKGROUP, environment, run
from lines import names
from secured_sandbox import MESSAGES, TOPIC, WRONG, Secured
from support import fresh_name, wait_until
from tcp_proxy import TcpProxy

from zkgroup.clients.zookeeper import ZooKeeperSettings
from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.config.connection_settings import TlsSettings
from zkgroup.groups.assignment.trigger_rebalance import trigger_rebalance
from zkgroup.groups.group_model import GroupSnapshot
from zkgroup.protocol import znodes
from zkgroup.protocol.names import TopicPartition
from zkgroup.protocol.operations import (
    CREATOR,
    CREATOR_READ_WORLD,
    OPEN,
    Acl,
    Acls,
    Children,
    Code,
    Create,
    Delete,
    Ensure,
    Failure,
    Get,
    GetAcl,
    Node,
    SetData,
)
from zkgroup.sandbox.certificates import make_authority
from zkgroup.sandbox.processes import HOST
from zkgroup.sandbox.topic_admin import fill_topic


def read_all(secured: Secured, *options: str) -> None:
    """Read the topic from its beginning, as nobody's member."""
    read = secured.run("consume", TOPIC, "--from-beginning", "--until-end", *options)
    assert sorted(read.split()[1::2], key=int) == [str(n) for n in range(MESSAGES)]


# What works


@pytest.mark.parametrize(
    "options",
    [
        (),
        ("--listener", "CLIENTS", "--sasl-mechanism", "scram-sha-256", "--security-protocol", "SASL_PLAINTEXT"),
        ("--sasl-mechanism", "PLAIN"),
        ("--security-protocol", "SASL_PLAINTEXT"),
    ],
    ids=" ".join,
)
def test_every_kind_of_listener(secured: Secured, options: tuple[str, ...]) -> None:
    """TLS and none, SCRAM and PLAIN; a listener by its name, and one by its protocol though it is called otherwise."""
    read_all(secured, "-c", secured.name, *options)


def test_a_registration_gets_no_password(secured: Secured) -> None:
    """Whoever may write to ZooKeeper registers the listener without TLS, at an address of their own: nothing is sent
    there, neither by who only reads nor by a member nor for offsets in Kafka. No command goes on without the brokers'
    half."""
    # Commands ask coordinators only where this member has made brokers create the topic of offsets.
    secured.run("consume", TOPIC, "--group", "g", "--coordinator", "kafka", "--until-end", "-c", secured.name)
    with socket.create_server((HOST, 0)) as server, secured.sandbox.registry(30.0) as registry:
        host, port = server.getsockname()
        rogue = {
            "version": 4, "host": host, "port": port, "timestamp": "1", "jmx_port": -1,
            "listener_security_protocol_map": {"CLIENTS": "SASL_PLAINTEXT"}, "endpoints": [f"CLIENTS://{host}:{port}"],
        }  # fmt: skip
        path = znodes.broker(0)
        registry.write(Create(path, json.dumps(rogue).encode(), ephemeral=True, acl=OPEN))
        offset = znodes.offset("floor", TopicPartition(TOPIC, 0))
        registry.write(Ensure(offset))
        registry.write(SetData(offset, b"3"))
        try:
            options = ("--listener", "CLIENTS", "--sasl-mechanism", "PLAIN", "-c", secured.name)
            floor = ("CLIENTS", "SASL_PLAINTEXT", "SASL_SSL", "--security-protocol SASL_PLAINTEXT")
            for command in (
                ("consume", TOPIC, "--until-end"),
                ("consume", TOPIC, "--group", "g", "--until-end"),
                ("consume", TOPIC, "--group", "g", "--coordinator", "kafka", "--until-end"),
                ("offsets", "floor", "--store", "kafka"),
                ("offsets", "floor"),
                ("offsets", "floor", "--save", "-"),
                ("owners", "floor"),
                ("list-groups",),
                ("inspect-group", "floor"),
                ("inspect-group", "--all"),
                ("inspect-group", "floor", "--watch"),
                ("reset-offsets", "g", "--topic", TOPIC, "--to-earliest"),
            ):
                line = secured.run(*command, *options, code=2)
                assert names(line, *floor), (command, line)
            check = run("inspect-group", "--all", "--check", *options)
            assert (check.returncode, names(check.stdout, "UNKNOWN", *floor)) == (3, True), check
            server.settimeout(0.0)
            with pytest.raises(BlockingIOError):
                server.accept()
        finally:
            registry.write(Delete(path))
            secured.run("delete-group", "floor", "-c", secured.name, "--execute")


def test_client_certificates(secured: Secured) -> None:
    """Of the user's own, with an encrypted key; nothing else proves who it is."""
    security = secured.security
    mine = secured.authority.issue("somebody")
    shown = secured.shows(mine, "--ssl", "mine", "key's password")
    password = secured.file("mine.password", "key's password\n")
    address = ("--bootstrap-server", secured.sandbox.listener("SSL"), "--security-protocol", "SSL")
    read_all(secured, *address, "--ssl-ca-file", str(security.ca), *shown, "--ssl-key-password-file", password)
    missing = secured.run("consume", TOPIC, "--until-end", *address, *shown, code=2)
    assert names(missing, shown[3], "--ssl-key-password-file")
    wrong = secured.file("wrong.password", WRONG)
    refused = ("--ssl-ca-file", str(security.ca), *shown, "--ssl-key-password-file", wrong)
    line = secured.run("consume", TOPIC, "--until-end", *address, *refused, code=2)
    assert (names(line, shown[3], shown[1]), "--" in line) == (True, False), line


def test_a_group_from_its_first_member_to_a_copy(secured: Secured) -> None:
    """A member reads and commits to both stores; groups are read, reset by time and copied; all nodes that are
    made belong to the user, and everybody may read them, as the profile says and as the Scala consumer does."""
    group, user = fresh_name("group"), ("-c", secured.name)
    member = ("consume", TOPIC, "--group", group, "--from-beginning", "--until-end")
    read = secured.run(*member, "-X", "offsets.storage=kafka", "-X", "dual.commit.enabled=true", *user)
    assert len(read.splitlines()) == MESSAGES
    for store in ("zookeeper", "kafka"):
        rows = json.loads(secured.run("offsets", group, "--store", store, "--output", "json", *user))
        assert [(row["committed"], row["lag"]) for row in rows] == [(10, 0)] * 3
    secured.run("inspect-group", group, "--verify", *user)
    secured.run("reset-offsets", group, "--all-topics", "--store", "zookeeper", "--to-datetime", "2020-01-01",
                "--execute", *user)  # fmt: skip
    copy = fresh_name("copy")
    secured.run("copy-group", group, copy, "--execute", *user)
    wanted = {Acl("sasl", "zkgroup", 31), Acl("x509", "CN=zkgroup", 31), Acl("world", "anyone", 1)}
    with secured.sandbox.registry(30.0) as registry:
        for path, data in (
            (znodes.offset(group, TopicPartition(TOPIC, 1)), b"0"),
            (znodes.owners(group), b""),
            (znodes.ids(group), b""),
            (znodes.offset(copy, TopicPartition(TOPIC, 1)), b"0"),
            (znodes.group(copy), b""),
        ):
            node, acls = registry.read([Get(path), GetAcl(path)])
            assert isinstance(node, Node)
            assert isinstance(acls, Acls)
            assert (node.data, set(acls.acl)) == (data, wanted), path


def test_with_a_scala_member(secured: Secured) -> None:
    """Kafka's own consumer, as the same user, shares a group with ours: each owns, and both write the same offsets."""
    group, topic = fresh_name("mixed"), fresh_name("topic")
    with secured.sandbox.registry(30.0) as registry:
        fill_topic(registry, topic, 20, partitions=2)
        with secured.sandbox.member(group, topic, kind="topics") as theirs:
            theirs.wait_for(20)
            path = znodes.offset(group, TopicPartition(topic, 1))
            wait_until(lambda: isinstance(registry.read([Get(path)])[0], Node), 60)
            ours: list[str] = []
            arguments = ("consume", topic, "--group", group, "--max-messages", "5", "-c", secured.name)
            reader = threading.Thread(target=lambda: ours.append(secured.run(*arguments, code=None, timeout=180)))
            reader.start()
            wait_until(lambda: len(owners(registry, group, topic)) == 2, 90)
            fill_topic(registry, topic, 20)
            reader.join(180)
            assert len(ours[0].splitlines()) == 5, ours
            wait_until(lambda: len(owners(registry, group, topic)) == 1, 90)
            wait_until(lambda: committed(registry, group, topic) == 40, 90)
            log = theirs.logged()
        assert "NoAuth" not in log


def owners(registry: Registry, group: str, topic: str) -> set[bytes]:
    """The owners of a topic of two partitions."""
    nodes = registry.read([Get(znodes.owner(group, TopicPartition(topic, number))) for number in range(2)])
    return {node.data for node in nodes if isinstance(node, Node)}


def committed(registry: Registry, group: str, topic: str) -> int:
    """The sum of the offsets of a topic of two partitions."""
    nodes = registry.read([Get(znodes.offset(group, TopicPartition(topic, number))) for number in range(2)])
    return sum(int(node.data) for node in nodes if isinstance(node, Node))


@pytest.fixture
def over_tls(secured: Secured) -> Iterator[Registry]:
    """A registry over TLS, as the user."""
    security = secured.security
    settings = ZooKeeperSettings(
        secured.sandbox.secured_connect,
        tls=TlsSettings(str(security.ca), str(security.certificate), str(security.key)),
        sasl=("zkgroup", security.password("zookeeper")),
        acl=CREATOR_READ_WORLD,
    )
    with Registry(settings, 30.0) as registry:
        yield registry


def test_answers_of_every_size(over_tls: Registry) -> None:
    """What TLS has decrypted and the kernel reports no more is read at once: answers larger than a record, and
    thousands that share one, in both directions."""
    root = f"/{fresh_name('sizes')}"
    over_tls.write(Ensure(root))
    sizes = [0, 1, 4095, 16383, 16384, 16385, 65536, 65537, 900_000]
    made = [Create(f"{root}/{size}", b"x" * size) for size in sizes]
    started = time.monotonic()
    assert not any(over_tls.read(made))
    for _ in range(3):
        nodes = over_tls.read([Get(one.path) for one in made])
        assert [len(node.data) for node in nodes if isinstance(node, Node)] == sizes
    many = [f"{root}/many-{n}" for n in range(3000)]
    assert not any(over_tls.read([Create(path, b"%d" % n) for n, path in enumerate(many)]))
    nodes = over_tls.read([Get(path) for path in many])
    assert [node.data for node in nodes if isinstance(node, Node)] == [b"%d" % n for n in range(3000)]
    listed = over_tls.read([Children(root)])[0]
    assert isinstance(listed, tuple)
    assert len(listed) == len(many) + len(sizes)
    assert not any(over_tls.read([Delete(f"{root}/{name}") for name in listed]))
    # A wait for what is there already would last until the next ping, seconds each time.
    assert time.monotonic() - started < 20


# The docs


BLOCK = re.compile(r"<!-- run(?:: exit (?P<code>\d))? -->\n```console\n(?P<text>.*?)```", re.DOTALL)
DOCS = (Path(__file__).parents[2] / "docs" / "how-to" / "security.md").read_text(encoding="utf-8")


def masked(text: str) -> list[str]:
    """Lines without what differs from run to run."""
    text = re.sub(r"127\.0\.0\.1:\d+", "ADDRESS", re.sub(r"\d{4}-\d\d-\d\dT[\d:.]+Z", "TIME", text))
    return [" ".join(re.sub(r"/ids/\S+:", "/ids/ID:", line).split()) for line in text.splitlines()]


def test_the_examples_of_the_docs(secured: Secured) -> None:
    """What docs/how-to/security.md shows is what its commands print."""
    security = secured.security
    (security.folder / "wrong.password").write_text(WRONG)
    (security.folder / "wrong.password").chmod(0o600)
    (security.folder / "other-ca.pem").write_bytes(make_authority("other").pem)
    places = {
        "S": str(security.folder),
        "PLAIN": secured.sandbox.connect,
        "TLS": secured.sandbox.secured_connect,
        "PATH": f"{Path(ZKGROUP).parent}{os.pathsep}{os.environ['PATH']}",
    }
    count = 0
    for block in BLOCK.finditer(DOCS):
        for example in re.split(r"^\$ ", block["text"], flags=re.MULTILINE)[1:]:
            command, _, shown = example.partition("\n")
            command = command.replace("sandbox:sec", secured.name)
            done = subprocess.run(
                ["bash", "-c", command],
                env=environment(places),
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )
            secured.check(done)
            assert masked(done.stdout + done.stderr) == masked(shown), command
            assert done.returncode == int(block["code"] or 0), command
            count += 1
    assert count >= 9


def test_the_profiles_of_the_docs(secured: Secured, tmp_path: Path) -> None:
    """Each profile of docs/how-to/security.md reads a topic, or a group, of servers that require it."""
    profiles = re.findall(r"```toml\n(.*?)```", DOCS, re.DOTALL)
    text = "\n".join(profiles).replace("/etc/zkgroup/", f"{secured.security.folder}/")
    text = text.replace("zk1:2181/kafka", secured.sandbox.connect).replace(
        "zk1:2281/kafka", secured.sandbox.secured_connect
    )
    config = tmp_path / "config.toml"
    config.write_text(text)
    names = re.findall(r"^\[clusters\.(\w+)\]", text, re.MULTILINE)
    assert names == ["tls", "users", "zookeeper"]
    for name in names[:2]:
        read = secured.run("-c", name, "consume", TOPIC, "--from-beginning", "--until-end", ZKGROUP_CONFIG=str(config))
        assert len(read.splitlines()) == MESSAGES
    found = secured.run("-c", "zookeeper", "owners", "no-such-group", code=4, ZKGROUP_CONFIG=str(config))
    assert "no group" in found


def test_a_connection_over_tls_that_is_lost(secured: Secured) -> None:
    """The session goes on over another, with its user, its ephemeral node and what it may do."""
    security = secured.security
    host, port = secured.sandbox.secured_connect.split(":")
    with TcpProxy(f"{host}:{port}") as proxy:
        settings = ZooKeeperSettings(
            proxy.address,
            tls=TlsSettings(str(security.ca), str(security.certificate), str(security.key)),
            sasl=("zkgroup", security.password("zookeeper")),
            acl=CREATOR,
        )
        with Registry(settings, 30.0) as registry:
            path = f"/{fresh_name('mine')}"
            assert registry.write(Create(path, b"1", ephemeral=True)) is None
            session = registry.session_id
            for number in range(3):
                proxy.drop()
                node = registry.read([Get(path)])[0]  # waits until the connection is back
                assert isinstance(node, Node)
                assert not isinstance(registry.write(SetData(path, b"%d" % number)), Failure)
            assert registry.session_id == session
        assert proxy.accepted >= 4


# Access lists


def test_whoever_lacks_the_credentials(secured: Secured) -> None:
    """A change is refused and says what to do, for every command, and nothing was changed."""
    group, nobody = fresh_name("closed"), ("-z", secured.sandbox.connect)
    secured.run("consume", TOPIC, "--group", group, "--from-beginning", "--until-end", "-c", secured.name)
    line = secured.run("consume", TOPIC, "--group", group, "--until-end", *nobody, code=1)
    assert names(line, znodes.ids(group), Code.NO_AUTH.value), line
    for command in (("reset-offsets", group, "--all-topics", "--to-earliest"), ("delete-group", group)):
        result = run(*command, "--execute", *nobody)
        last = result.stderr.splitlines()[-1]
        assert (result.returncode, names(last, group, Code.NO_AUTH.value)) == (5, True), last
    rows = json.loads(secured.run("offsets", group, "--output", "json", *nobody))  # which everybody may read
    assert [row["committed"] for row in rows] == [10] * 3


MINE = {Acl("sasl", "zkgroup", 31), Acl("x509", "CN=zkgroup", 31)}


@pytest.mark.parametrize(
    ("options", "acl", "wanted"),
    [
        ((), CREATOR_READ_WORLD, MINE | {Acl("world", "anyone", 1)}),
        (("--zookeeper-acl", "creator"), CREATOR, MINE),
    ],
    ids=["as the profile says", "creator"],
)
def test_ephemeral_nodes_have_the_access_list_too(
    secured: Secured, over_tls: Registry, options: tuple[str, ...], acl: tuple[Acl, ...], wanted: set[Acl]
) -> None:
    """The id and owner nodes of a member active, and the node that makes its group rebalance: whoever could write
    them could stop the group, or take its partitions."""
    group, seen = fresh_name("held"), []
    owned = [znodes.owner(group, TopicPartition(TOPIC, number)) for number in range(3)]

    def lists(*paths: str) -> list[set[Acl]]:
        """The access lists of ephemeral nodes."""
        found = over_tls.read([one(path) for path in paths for one in (Get, GetAcl)])
        assert all(isinstance(node, Node) and node.stat.owner for node in found[::2]), found
        return [set(one.acl) for one in found[1::2] if isinstance(one, Acls)]

    def registered() -> list[str]:
        ids = over_tls.read([Children(znodes.ids(group))])[0]
        return [znodes.member_id(group, name) for name in ids] if isinstance(ids, tuple) else []

    def judge(snapshot: GroupSnapshot) -> list[str]:
        seen.extend(lists(*(path for path in registered() if "zkgroup-assign" in path)))
        return []

    errors = Path(secured.file("held.err", ""))
    with errors.open("wb") as stderr:
        member = subprocess.Popen(
            [ZKGROUP, "consume", TOPIC, "--group", group, "-c", secured.name, *options],
            stdout=subprocess.DEVNULL,
            stderr=stderr,
            env=environment(),
        )
    try:
        wait_until(lambda: all(isinstance(node, Node) for node in over_tls.read([Get(path) for path in owned])), 60)
        (registration,) = registered()
        assert lists(registration, *owned) == [wanted] * 4
        with Registry(replace(over_tls.settings, acl=acl), 30.0) as nudging:
            trigger_rebalance(nudging, group, judge)
        assert seen
        assert all(one == wanted for one in seen), seen
        assert lists(registration, *owned) == [wanted] * 4  # which it has claimed anew
    finally:
        member.terminate()
        member.wait(60)
    assert member.returncode == 143, errors.read_text()
