"""Everything against servers with TLS, users and access lists: a sandbox that was started secured.

Each refusal is one line that names the thing and what to do, within seconds, and shows no secret.
"""

from __future__ import annotations

import datetime
import json
import os
import pty
import re
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from cli import ZKGROUP, environment, run
from support import fresh_name, wait_until
from tcp_proxy import TcpProxy
from tls_proxy import TlsProxy

from zkgroup.config.security import TlsSettings
from zkgroup.protocol import znodes
from zkgroup.protocol.acls import CREATOR, CREATOR_READ_WORLD
from zkgroup.protocol.names import TopicPartition
from zkgroup.protocol.ops import OPEN, Acl, Acls, Children, Create, Delete, Ensure, Failure, Get, GetAcl, Node, SetData
from zkgroup.sandbox.certificates import Authority, Certificate
from zkgroup.sandbox.sandbox import Sandbox
from zkgroup.sandbox.security import Security
from zkgroup.sandbox.topics import fill_topic
from zkgroup.servers.registry import Registry
from zkgroup.servers.zookeeper import ZooKeeperSettings

TOPIC, MESSAGES = "orders", 30
WRONG = "hunter2-is-wrong"
#: A refusal may take so long, in seconds, on a machine that has much else to do.
SOON = 12.0
DAY = datetime.timedelta(days=1)


@dataclass
class Secured:
    """The sandbox, and what the tests use of it."""

    sandbox: Sandbox
    folder: Path
    shown: list[str] = field(default_factory=list)  # all that any command has printed

    @property
    def security(self) -> Security:
        assert self.sandbox.security is not None
        return self.sandbox.security

    @property
    def authority(self) -> Authority:
        assert self.sandbox.authority is not None
        return self.sandbox.authority

    @property
    def name(self) -> str:
        return f"sandbox:{self.sandbox.name}"

    @property
    def secrets(self) -> list[str]:
        keys = [self.security.key.read_text(), (self.security.folder / "client.key").read_text()]
        return [
            *(self.security.password(of) for of in ("sasl", "zookeeper", "brokers")),
            *(line for key in keys for line in key.splitlines() if "-" not in line),
            WRONG,
        ]

    def run(self, *args: str, code: int | None = 0, timeout: float = 60.0, **env: str) -> str:
        """Run a command; what it printed to stdout, or to stderr where it fails, of which it has to be one line."""
        result = run(*args, env=env, timeout=timeout)
        self.shown += [result.stdout, result.stderr]
        if code is not None:
            assert result.returncode == code, result.stderr
        if code:
            assert result.stdout == ""
            assert result.stderr.count("\n") == 1, result.stderr
        return result.stderr if result.returncode else result.stdout

    def file(self, name: str, content: bytes | str) -> str:
        """A file that only its owner may read."""
        path = self.folder / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        path.chmod(0o600)
        return str(path)

    def shows(self, certificate: Certificate, prefix: str, stem: str, password: str | None = None) -> list[str]:
        """Options to show a client certificate; ``prefix``: ``--ssl`` or ``--zookeeper``."""
        names = (f"{prefix}-certificate-file", f"{prefix}-key-file")
        contents = (certificate.pem, certificate.key_pem(password))
        pairs = zip(names, contents, ("pem", "key"), strict=True)
        return [word for option, data, end in pairs for word in (option, self.file(f"{stem}.{end}", data))]


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """A secured sandbox with a topic."""
    with Sandbox(fresh_name("secured"), secure=True) as sandbox:
        with sandbox.registry(30.0) as registry:
            fill_topic(registry, TOPIC, MESSAGES)
        yield Secured(sandbox, tmp_path_factory.mktemp("secured"))


def read_all(secured: Secured, *options: str) -> None:
    """Read the topic from its beginning, as nobody's member."""
    read = secured.run("consume", TOPIC, "--from-beginning", "--until-end", *options)
    assert sorted(read.split()[1::2], key=int) == [str(n) for n in range(MESSAGES)]


# What works


@pytest.mark.parametrize(
    "options",
    [
        (),
        ("--listener", "CLIENTS", "--sasl-mechanism", "scram-sha-256"),
        ("--sasl-mechanism", "PLAIN"),
        ("--security-protocol", "SASL_PLAINTEXT"),
    ],
    ids=" ".join,
)
def test_every_kind_of_listener(secured: Secured, options: tuple[str, ...]) -> None:
    """TLS and none, SCRAM and PLAIN; a listener by its name, and one by its protocol though it is called otherwise."""
    read_all(secured, "-c", secured.name, *options)


def test_client_certificates(secured: Secured) -> None:
    """Of the user's own, with an encrypted key; nothing else proves who it is."""
    security = secured.security
    mine = secured.authority.issue("somebody")
    shown = secured.shows(mine, "--ssl", "mine", "key's password")
    password = secured.file("mine.password", "key's password\n")
    address = ("--bootstrap-server", secured.sandbox.listener("SSL"), "--security-protocol", "SSL")
    read_all(secured, *address, "--ssl-ca-file", str(security.ca), *shown, "--ssl-key-password-file", password)
    missing = secured.run("consume", TOPIC, "--until-end", *address, *shown, code=2)
    assert "no password of the key" in missing
    wrong = secured.file("wrong.password", WRONG)
    refused = ("--ssl-ca-file", str(security.ca), *shown, "--ssl-key-password-file", wrong)
    assert "the password of the key is wrong" in secured.run(
        "consume", TOPIC, "--until-end", *address, *refused, code=2
    )


def test_a_group_from_its_first_member_to_a_copy(secured: Secured) -> None:
    """A member reads and commits to both stores; groups are looked at, reset by time and copied; all nodes that are
    made belong to the user, and everybody may read them, as the profile says and as the reference does."""
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


def test_with_a_member_of_the_reference(secured: Secured) -> None:
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
    """What TLS has decrypted and the kernel tells of no more is read at once: answers larger than a record, and
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
DOCS = (Path(__file__).parents[2] / "docs" / "security.md").read_text(encoding="utf-8")


def masked(text: str) -> list[str]:
    """Lines without what differs from run to run."""
    text = re.sub(r"127\.0\.0\.1:\d+", "ADDRESS", re.sub(r"\d{4}-\d\d-\d\dT[\d:.]+Z", "TIME", text))
    return [" ".join(re.sub(r"/ids/\S+:", "/ids/ID:", line).split()) for line in text.splitlines()]


def test_the_examples_of_the_docs(secured: Secured) -> None:
    """What docs/security.md shows is what its commands print."""
    security = secured.security
    (security.folder / "wrong.password").write_text(WRONG)
    (security.folder / "wrong.password").chmod(0o600)
    (security.folder / "other-ca.pem").write_bytes(Authority.make("other").own.pem)
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
            secured.shown += [done.stdout, done.stderr]
            assert masked(done.stdout + done.stderr) == masked(shown), command
            assert done.returncode == int(block["code"] or 0), command
            count += 1
    assert count >= 9


def test_the_profiles_of_the_docs(secured: Secured, tmp_path: Path) -> None:
    """Each profile that docs/security.md shows reads a topic, or looks at a group, of servers that want it so."""
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
    group, stranger = fresh_name("closed"), ("-z", secured.sandbox.connect)
    secured.run("consume", TOPIC, "--group", group, "--from-beginning", "--until-end", "-c", secured.name)
    assert "not authorised" in secured.run("consume", TOPIC, "--group", group, "--until-end", *stranger, code=1)
    for command in (("reset-offsets", group, "--all-topics", "--to-earliest"), ("delete-group", group)):
        result = run(*command, "--execute", *stranger)
        assert result.returncode == 5
        last = result.stderr.splitlines()[-1]
        assert "not authorised; nothing was" in last
        assert "connect with credentials that may change the group's nodes" in last
    rows = json.loads(secured.run("offsets", group, "--output", "json", *stranger))  # which everybody may read
    assert [row["committed"] for row in rows] == [10] * 3


def test_members_that_could_not_commit_to_our_nodes(secured: Secured, over_tls: Registry) -> None:
    """Owners that come as somebody else, or as nobody, are warned of before the group is joined; those with our
    credentials are not."""
    group = fresh_name("strangers")
    topic = znodes.owner_topic(group, TOPIC)
    mine, theirs = (Acl("sasl", "zkgroup", 31), Acl("world", "anyone", 1)), (Acl("sasl", "app", 31),)
    with secured.sandbox.registry(30.0) as registry:
        registry.write(Ensure(topic))
        lists = (("nobody-0", OPEN), ("app-0", (*theirs, *mine[1:])), ("same-0", mine))
        for number, (owner, acl) in enumerate(lists):
            path = znodes.owner(group, TopicPartition(TOPIC, number))
            assert registry.write(Create(path, owner.encode(), ephemeral=True, acl=acl)) is None
        read = (
            "consume",
            TOPIC,
            "--group",
            group,
            "-c",
            secured.name,
            "--timeout-ms",
            "1",
            "-X",
            "rebalance.max.retries=1",
            "-X",
            "rebalance.backoff.ms=100",
        )
        warned = run(*read).stderr
        assert "owners that come to ZooKeeper with other credentials, or none: app-0, nobody-0: they" in warned
        assert "come to ZooKeeper" not in run(*read, "--zookeeper-acl", "open").stderr
        # A registration that they cannot read would stop them all.
        line = secured.run(*read, "--zookeeper-acl", "creator", "--quiet", code=5)
        assert "a registration that they may not read stops the whole group: give --zookeeper-acl" in line


# Refusals by brokers


def bad_server(secured: Secured, kind: str) -> Certificate:
    """A certificate that a server should not have."""
    match kind:
        case "expired":
            return secured.authority.issue("127.0.0.1", ["127.0.0.1"], life=-DAY)
        case "elsewhere":
            return secured.authority.issue("elsewhere", ["elsewhere.example"])
        case _:
            return Authority.make("nobody").issue("127.0.0.1", ["127.0.0.1"])


def bad_client(secured: Secured, kind: str) -> Certificate:
    """A certificate that a client should not show."""
    if kind == "expired":
        return secured.authority.issue("zkgroup", life=-DAY)
    return Authority.make("nobody").issue("zkgroup")


def refused(secured: Secured, *args: str) -> str:
    """The one line of a command that cannot reach its servers: exit code 3, soon, the same with ``-vv`` but for what
    is logged."""
    begun = time.monotonic()
    line = secured.run(*args, code=3)
    assert time.monotonic() - begun < SOON
    loud = run(*args, "-vv")
    secured.shown += [loud.stdout, loud.stderr]
    assert loud.returncode == 3
    assert "Traceback" not in loud.stderr
    return line


def from_brokers(address: str, protocol: str, *options: str) -> list[str]:
    """A look that needs brokers alone."""
    return ["consume", TOPIC, "--until-end", "--bootstrap-server", address, "--security-protocol", protocol, *options]


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
def test_wrong_password(secured: Secured, mechanism: str) -> None:
    """The user is named, and the mechanism; the password is not."""
    password = secured.file("wrong", WRONG)
    login = ("--sasl-mechanism", mechanism, "--sasl-password-file", password)
    line = refused(secured, "consume", TOPIC, "--until-end", "-c", secured.name, *login)
    assert f"refuses the user zkgroup ({mechanism}): check --sasl-user, its password" in line


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("expired", "its certificate has expired: renew it on the server"),
        ("elsewhere", "its certificate is for another host ("),
        ("unknown", "of an authority that is not known here: name the authority with --ssl-ca-file"),
    ],
)
def test_certificates_of_brokers(secured: Secured, kind: str, why: str) -> None:
    """Each defect has its own words, where librdkafka has one for all; without looking at hosts another host's will
    do. Nobody hammers at the broker meanwhile."""
    with TlsProxy(secured.sandbox.listener("PLAINTEXT"), bad_server(secured, kind), secured.folder) as proxy:
        args = from_brokers(proxy.address, "SSL", "--ssl-ca-file", str(secured.security.ca))
        line = secured.run(*args, code=3)
        assert why in line
        assert f"the broker at {proxy.address}" in line
        assert proxy.accepted <= 10
        if kind == "elsewhere":
            assert "elsewhere.example" in line or "127.0.0.1" in line
            refused_no_more = run(*args, "--no-ssl-check-hostname").stderr
            assert "certificate" not in refused_no_more


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        (None, "wants a client certificate: name yours with --ssl-certificate-file"),
        ("expired", "the client certificate {shown} has expired: renew it"),
        ("unknown", "refuses the client certificate {shown}"),
    ],
)
def test_client_certificates_that_brokers_refuse(secured: Secured, kind: str | None, why: str) -> None:
    """None, an expired one, one of an authority that the broker does not know."""
    shown = secured.shows(bad_client(secured, kind), "--ssl", f"brokers-{kind}") if kind else []
    address = secured.sandbox.listener("SSL")
    line = refused(secured, *from_brokers(address, "SSL", "--ssl-ca-file", str(secured.security.ca), *shown))
    assert f"the broker at {address}" in line
    assert why.format(shown=shown[1] if shown else "") in line


@pytest.mark.parametrize(
    ("listener", "protocol", "why"),
    [
        ("SSL", "PLAINTEXT", "speaks TLS at this port, not PLAINTEXT"),
        ("SASL_SSL", "SASL_PLAINTEXT", "speaks TLS at this port, not SASL_PLAINTEXT"),
        ("PLAINTEXT", "SSL", "does not speak TLS at this port"),
        ("CLIENTS", "SASL_SSL", "does not speak TLS at this port"),
        ("PLAINTEXT", "SASL_PLAINTEXT", "has no SASL at this port"),
        ("CLIENTS", "PLAINTEXT", "ends the connection at the first request: does it want a user?"),
    ],
)
def test_the_wrong_protocol(secured: Secured, listener: str, protocol: str, why: str) -> None:
    """A client that speaks something else than the listener is told what, and what to choose."""
    security, address = secured.security, secured.sandbox.listener(listener)
    options = ["--ssl-ca-file", str(security.ca)] if protocol.endswith("SSL") else []
    if protocol.startswith("SASL"):
        options += ["--sasl-mechanism", "PLAIN", "--sasl-user", "zkgroup"]
        options += ["--sasl-password-file", str(security.password_file("sasl"))]
    line = secured.run(*from_brokers(address, protocol, *options), code=3)
    assert f"the broker at {address} {why}" in line
    assert "--security-protocol" in line


def test_one_server_of_several_is_in_trouble(secured: Secured) -> None:
    """One whose certificate has expired does not keep anybody from the others, whichever is tried first."""
    security = secured.security
    with (
        TlsProxy(secured.sandbox.listener("PLAINTEXT"), bad_server(secured, "expired"), secured.folder) as broker,
        TlsProxy(secured.sandbox.address, bad_server(secured, "expired"), secured.folder) as zookeeper,
    ):
        files = ("--ssl-certificate-file", str(security.certificate), "--ssl-key-file", str(security.key))
        both = f"{broker.address},{secured.sandbox.listener('SSL')}"
        args = from_brokers(both, "SSL", "--ssl-ca-file", str(security.ca), *files, "--from-beginning")
        assert len(secured.run(*args).splitlines()) == MESSAGES
        for both in (
            f"{zookeeper.address},{secured.sandbox.secured_connect}",
            f"{secured.sandbox.secured_connect},{zookeeper.address}",
        ):
            assert "no group" in secured.run("owners", "no-such-group", "-c", secured.name, "-z", both, code=4)


# Refusals by ZooKeeper


def test_wrong_password_for_zookeeper(secured: Secured) -> None:
    """The user is named, the password is not."""
    password = secured.file("wrong", WRONG)
    line = refused(secured, "owners", "g", "-c", secured.name, "--zookeeper-sasl-password-file", password)
    assert "refuses the user zkgroup: check name and password (--zookeeper-sasl-user" in line


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("expired", "its certificate has expired: renew it on the server"),
        ("elsewhere", "its certificate is for another host ("),
        ("unknown", "not known here: name the authority with --zookeeper-ca-file"),
    ],
)
def test_certificates_of_zookeeper(secured: Secured, kind: str, why: str) -> None:
    """As the brokers'; without looking at hosts a session is had."""
    with TlsProxy(secured.sandbox.address, bad_server(secured, kind), secured.folder) as proxy:
        args = ["owners", "no-such-group", "-z", proxy.address, "--zookeeper-ca-file", str(secured.security.ca)]
        line = secured.run(*args, code=3)
        assert why in line
        assert f"ZooKeeper at {proxy.address}" in line
        assert proxy.accepted <= 10
        if kind == "elsewhere":
            assert "no group" in secured.run(*args, "--no-zookeeper-check-hostname", code=4)
        else:
            loose = run(*args, "--no-zookeeper-verify")
            assert loose.returncode == 4
            assert "warning: certificates of ZooKeeper are not looked at" in loose.stderr


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        (None, "wants a client certificate"),
        ("expired", "the client certificate {shown} has expired: renew it"),
        ("unknown", "refuses the client certificate {shown}"),
    ],
)
def test_client_certificates_that_zookeeper_refuses(secured: Secured, kind: str | None, why: str) -> None:
    """As by brokers."""
    shown = secured.shows(bad_client(secured, kind), "--zookeeper", f"zookeeper-{kind}") if kind else []
    address = secured.sandbox.secured_connect
    line = refused(secured, "owners", "g", "-z", address, "--zookeeper-ca-file", str(secured.security.ca), *shown)
    assert f"ZooKeeper at {address}" in line
    assert why.format(shown=shown[1] if shown else "") in line


def test_the_wrong_port_of_zookeeper(secured: Secured) -> None:
    """A plain client at the port for TLS, and the reverse."""
    line = refused(secured, "owners", "g", "-z", secured.sandbox.secured_connect)
    assert "speaks TLS at this port: give --zookeeper-tls" in line
    line = refused(secured, "owners", "g", "-z", secured.sandbox.connect, "--zookeeper-tls")
    assert "ends the connection at the TLS hand-shake: is this its port for TLS?" in line


# Nothing is shown


def test_a_password_that_is_asked_for(secured: Secured) -> None:
    """On a terminal, without an echo; the command then goes on."""
    security = secured.security
    command = ["consume", TOPIC, "--max-messages", "1", "--from-beginning", "--bootstrap-server",
               secured.sandbox.listener("CLIENTS"), "--security-protocol", "SASL_PLAINTEXT",
               "--sasl-mechanism", "PLAIN", "--sasl-user", "zkgroup"]  # fmt: skip
    ours, theirs = pty.openpty()
    with subprocess.Popen([ZKGROUP, *command], stdin=theirs, stdout=theirs, stderr=theirs, env=environment(),
                          start_new_session=True) as process:  # fmt: skip
        os.close(theirs)
        shown = b""
        while b"password of zkgroup for the brokers: " not in shown:
            shown += os.read(ours, 1000)
        os.write(ours, security.password("sasl").encode() + b"\n")
        try:
            while data := os.read(ours, 1000):
                shown += data
        except OSError:  # EIO: it has ended
            pass
        os.close(ours)
        assert process.wait(30) == 0, shown
    assert b"message " in shown
    assert security.password("sasl").encode() not in shown


def command_lines() -> set[str]:
    """What ``ps`` would show of all processes now."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found.add(path.read_bytes().replace(b"\0", b" ").decode("utf-8", "replace"))
        except OSError:  # it has ended
            continue
    return found


def test_an_export_shows_no_secret(secured: Secured, tmp_path: Path) -> None:
    """Executors read over TLS with the user's password, and with a client certificate; it is in no process's command
    line, in no log of Spark's, in nothing that is printed, kept or exported."""
    lake, spark_log, events = tmp_path / "lake", tmp_path / "spark.log", tmp_path / "events"
    events.mkdir()
    seen: set[str] = set()
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.05):
            seen.update(command_lines())

    watcher = threading.Thread(target=watch)
    watcher.start()
    security = secured.security
    certificate = ("--ssl-certificate-file", str(security.certificate), "--ssl-key-file", str(security.key))
    try:
        group = fresh_name("export")
        args = (
            "export",
            TOPIC,
            "--group",
            group,
            "--from",
            "earliest",
            "--to",
            str(lake),
            "--log",
            str(spark_log),
            # What Spark's web pages show, its settings too, is what it writes there.
            "--conf",
            "spark.eventLog.enabled=true",
            "--conf",
            f"spark.eventLog.dir=file:{events}",
        )
        result = run(*args, "-c", secured.name, *certificate, "-vv", timeout=200)
    finally:
        over.set()
        watcher.join()
    secured.shown += [result.stdout, result.stderr]
    assert result.returncode == 0, result.stderr
    rows = [line.split() for line in result.stdout.splitlines()[1:]]
    assert sum(int(row[4]) for row in rows) == MESSAGES
    assert any("java" in line for line in seen)
    with secured.sandbox.registry(30.0) as registry:
        (acls,) = registry.read([GetAcl(znodes.offset(group, TopicPartition(TOPIC, 0)))])
    assert isinstance(acls, Acls)
    assert {entry.scheme for entry in acls.acl} == {"sasl", "x509", "world"}
    assert any(path.stat().st_size for path in events.rglob("*") if path.is_file())
    backups = Path(os.environ["ZKGROUP_STATE_DIR"], "backups")
    places = [*lake.rglob("*"), *events.rglob("*"), spark_log, *backups.glob("*")]
    kept = [path.read_bytes().decode("latin-1") for path in places if path.is_file()]
    assert len(kept) > 3
    for secret in secured.secrets:
        assert not any(secret in line for line in seen), "in a command line"
        assert not any(secret in text for text in kept), "in a file"


def test_nothing_of_all_that_shows_a_secret(secured: Secured) -> None:
    """All that commands of this module have printed so far, with -vv and without; and what they made of settings."""
    secured.run("owners", "no-such-group", "-c", secured.name, "-vv", code=None)
    text = "\n".join(secured.shown)
    assert "kazoo" in text  # -vv was heard
    for secret in secured.secrets:
        assert secret not in text
    # What a password is turned into could be tried against dictionaries.
    assert not re.search(r"response=[0-9a-f]{32}", text)
