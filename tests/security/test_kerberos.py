"""Kerberos at ZooKeeper: a real KDC, a ZooKeeper that knows users by their tickets, and members of both kinds."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from cli import ZKGROUP, environment, run
from documented_examples import run_examples
from lines import names
from servers import Sandbox
from support import fresh_name, wait_until
from tcp_proxy import TcpProxy

from zkgroup.clients.kafka.client import has_gssapi
from zkgroup.clients.zookeeper import ConnectionFailure, FailureCause, Session, ZooKeeperSettings, sasl_login
from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.config import resolve_connection
from zkgroup.config.connection_settings import KerberosSettings
from zkgroup.errors import UsageError
from zkgroup.protocol import znodes
from zkgroup.protocol.names import TopicPartition
from zkgroup.protocol.operations import (
    CREATOR_READ_WORLD,
    Acl,
    Acls,
    Children,
    Create,
    Failure,
    Get,
    GetAcl,
    Node,
    SetData,
)
from zkgroup.sandbox.processes import HOST, free_port
from zkgroup.sandbox.sandbox_security import USER, KerberosRealm

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "kerberos.md"
OURS = {Acl("sasl", USER, 31), Acl("world", "anyone", 1)}


@pytest.fixture(scope="module")
def sandbox(_own_state: None) -> Iterator[Sandbox]:
    """A KDC, a ZooKeeper and a broker."""
    try:
        sandbox = Sandbox(fresh_name("kerberos"), kerberos=True).start()
    except UsageError as missing:
        if "krb5kdc" not in str(missing):
            raise
        pytest.skip(str(missing))
    yield sandbox
    sandbox.stop()


@pytest.fixture
def realm(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> KerberosRealm:
    """The realm, in which this process is, without a ticket."""
    assert isinstance(sandbox.security, KerberosRealm)
    monkeypatch.setenv("KRB5_CONFIG", str(sandbox.security.config))
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{tmp_path / 'tickets'}")
    return sandbox.security


@pytest.fixture
def keytab(realm: KerberosRealm, tmp_path: Path) -> str:
    """A keytab of the user that nothing has logged in with."""
    return str(shutil.copy(realm.keytab(USER), tmp_path / "own.keytab"))


def get_ticket(realm: KerberosRealm) -> None:
    subprocess.run(["kinit", "-k", "-t", str(realm.keytab(USER)), USER], check=True, timeout=30)


def settings(sandbox: Sandbox, sasl: KerberosSettings) -> ZooKeeperSettings:
    return ZooKeeperSettings(sandbox.connect, sasl=sasl, acl=CREATOR_READ_WORLD)


def creator(settings: ZooKeeperSettings) -> set[Acl]:
    """The access list of a node that a session with these settings creates for itself."""
    path = f"/{fresh_name('mine')}"
    with Registry(settings, 30.0) as registry:
        assert registry.write(Create(path, b"", ephemeral=True, acl=CREATOR_READ_WORLD)) is None
        (found,) = registry.read([GetAcl(path)])
        assert isinstance(found, Acls)
        return set(found.acl)


def test_every_way_to_log_in(
    sandbox: Sandbox, realm: KerberosRealm, keytab: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """By keytab, with and without its principal, which leaves the user's tickets alone; by the keytab of the
    environment; by a ticket. ZooKeeper knows the user by the first part of the principal."""
    for principal in (None, USER):
        assert creator(settings(sandbox, KerberosSettings(keytab=keytab, principal=principal))) == OURS
    assert not (tmp_path / "tickets").exists()
    get_ticket(realm)
    assert creator(settings(sandbox, KerberosSettings())) == OURS
    assert creator(settings(sandbox, KerberosSettings(principal=USER))) == OURS
    (tmp_path / "tickets").unlink()
    monkeypatch.setenv("KRB5_CLIENT_KTNAME", keytab)
    assert creator(settings(sandbox, KerberosSettings())) == OURS


def refuse(settings: ZooKeeperSettings, timeout: float = 30.0) -> ConnectionFailure:
    with pytest.raises(ConnectionFailure) as refused, Registry(settings, timeout):
        pass
    assert "\n" not in str(refused.value)
    return refused.value


def test_logins_that_fail_here_or_at_the_kdc(
    sandbox: Sandbox, realm: KerberosRealm, keytab: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Each is one line that names the remedy: no ticket, a keytab without keys, another principal, an unknown server,
    clocks that differ, a KDC that does not answer."""
    ours = settings(sandbox, KerberosSettings(keytab=keytab))
    failure = refuse(settings(sandbox, KerberosSettings()))
    assert (failure.cause, failure.server) == (FailureCause.NO_TICKET, sandbox.connect)
    assert names(str(failure), sandbox.connect, "kinit USER", "--zookeeper-kerberos-keytab")
    (tmp_path / "bad.keytab").write_text("no keytab")
    for sasl in (KerberosSettings(keytab=str(tmp_path / "bad.keytab")), KerberosSettings("zookeeper", keytab, "other")):
        failure = refuse(replace(ours, sasl=sasl))
        assert failure.cause is FailureCause.NO_KEY
        assert names(str(failure), sandbox.connect, sasl.keytab, f"klist -k {sasl.keytab}")
    failure = refuse(replace(ours, hosts=sandbox.connect.replace("localhost", HOST)))
    assert failure.cause is FailureCause.UNKNOWN_SERVICE
    assert names(str(failure), f"zookeeper/{HOST}", "--zookeeper-kerberos-service")
    with skewed_kdc(sandbox.folder / "kdc", tmp_path) as config:
        monkeypatch.setenv("KRB5_CONFIG", config)
        skewed = KerberosSettings(keytab=f"/{keytab}")  # which has no tickets yet, as another file has none
        assert refuse(replace(ours, sasl=skewed)).cause is FailureCause.CLOCKS_DIFFER
    fresh = replace(ours, sasl=KerberosSettings(keytab=f"//{keytab}"))  # the second KDC has ended
    failure = refuse(fresh, 1.0)
    assert (failure.cause, failure.is_final) == (FailureCause.NO_KDC, False)
    assert names(str(failure), sandbox.connect, "krb5.conf")
    with socket.create_server((HOST, 0)) as silent:
        config = Path(os.environ["KRB5_CONFIG"])
        config.write_text(re.sub(rf"(?<={HOST}:)\d+", str(silent.getsockname()[1]), config.read_text()))
        assert refuse(replace(fresh, connect_timeout=2.0), 2.0).cause is FailureCause.NO_KDC


def test_a_kdc_that_comes_back(
    sandbox: Sandbox, realm: KerberosRealm, keytab: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """While none answers the login is tried again, and succeeds as soon as one does."""
    config = tmp_path / "krb5.conf"
    right = realm.config.read_text()
    config.write_text(re.sub(rf"(?<={HOST}:)\d+", str(free_port()), right))
    monkeypatch.setenv("KRB5_CONFIG", str(config))
    registry = Registry(settings(sandbox, KerberosSettings(keytab=keytab)), 60.0)
    with ThreadPoolExecutor(1) as pool:
        opened = pool.submit(registry.__enter__)
        wait_until(lambda: registry._failure is not None and registry._failure.cause is FailureCause.NO_KDC)
        config.write_text(right)
        opened.result(60)
    registry.close()


@contextmanager
def skewed_kdc(folder: Path, scratch: Path) -> Iterator[str]:
    """A second KDC of the realm, to which all clocks differ too much; its ``krb5.conf``."""
    port = str(free_port())
    for name in ("krb5.conf", "kdc.conf"):
        text = (folder / name if name == "kdc.conf" else folder.parent / "secure" / name).read_text()
        old = text.partition(f"{HOST}:")[2].split()[0]
        (scratch / name).write_text(text.replace(f"{HOST}:{old}", f"{HOST}:{port}"))
    kdcs = scratch / "kdcs.conf"
    kdcs.write_text((scratch / "krb5.conf").read_text().replace("[realms]", " clockskew = -1\n[realms]", 1))
    variables = {"KRB5_CONFIG": str(kdcs), "KRB5_KDC_PROFILE": str(scratch / "kdc.conf")}
    program = shutil.which("krb5kdc", path=f"{os.environ['PATH']}:/usr/sbin")
    with (scratch / "log").open("wb") as log:
        command = [program, "-n", "-r", "ZKGROUP.SANDBOX", "-P", str(scratch / "pid")]
        kdc = subprocess.Popen(command, env=os.environ | variables, stdout=log, stderr=log)
    try:
        wait_until(lambda: "commencing operation" in (scratch / "log").read_text())
        yield str(scratch / "krb5.conf")
    finally:
        kdc.kill()
        kdc.wait(30)


def test_logins_that_zookeeper_refuses(sandbox: Sandbox, realm: KerberosRealm, keytab: str, zookeeper: Sandbox) -> None:
    """A ZooKeeper without SASL, a ticket for another service, and a password where Kerberos is spoken."""
    sasl = KerberosSettings(keytab=keytab)
    plain = replace(settings(sandbox, sasl), hosts=zookeeper.address.replace(HOST, "localhost"))
    ops = replace(plain, sasl=("ops", "secret"))
    for login in (plain, ops):
        failure = refuse(login)
        assert (failure.cause, failure.server) == (FailureCause.NO_SASL, plain.hosts)
        assert ("Kerberos" in str(failure)) == (login is plain)
    for login, who in (
        (settings(sandbox, replace(sasl, service="kafka")), "Kerberos"),
        (replace(ops, hosts=sandbox.connect), "ops"),
    ):
        failure = refuse(login)
        assert (failure.cause, failure.server) == (FailureCause.LOGIN_REFUSED, sandbox.connect)
        assert names(str(failure), sandbox.connect, who)


def test_a_library_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is named before anything is connected, with its packages."""
    monkeypatch.setattr(sasl_login, "LIBRARY", "libgssapi_missing.so.2")
    sasl_login.load_library.cache_clear()
    with pytest.raises(UsageError, match=r"libgssapi_missing\.so\.2.*apt-get install libgssapi-krb5-2"):
        Session(ZooKeeperSettings("localhost:1", sasl=KerberosSettings()), lambda event: None)
    sasl_login.load_library.cache_clear()


def test_a_connection_that_is_lost(sandbox: Sandbox, realm: KerberosRealm, keytab: str) -> None:
    """The session goes on over another, as the same user."""
    with TcpProxy(f"{HOST}:{sandbox.zookeeper.port}") as proxy:
        ours = settings(sandbox, KerberosSettings(keytab=keytab))
        with Registry(replace(ours, hosts=proxy.address.replace(HOST, "localhost")), 30.0) as registry:
            path, session = f"/{fresh_name('mine')}", registry.session_id
            assert registry.write(Create(path, b"1", ephemeral=True, acl=CREATOR_READ_WORLD)) is None
            proxy.drop()
            assert isinstance(registry.read([Get(path)])[0], Node)
            assert not isinstance(registry.write(SetData(path, b"2")), Failure)
            assert registry.session_id == session
        assert proxy.accepted >= 2


def test_the_examples_of_the_docs(
    sandbox: Sandbox, realm: KerberosRealm, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """What docs/how-to/kerberos.md shows is what its commands print, and its profile is what a sandbox would need."""
    fill = ("sandbox", "fill", "orders", "--name", sandbox.name, "--messages", "30")
    assert run(*fill).returncode == 0
    name = f"sandbox:{sandbox.name}"
    reading = run("consume", "orders", "--group", "billing", "--from-beginning", "--until-end", "-c", name)
    assert len(reading.stdout.splitlines()) == 30, reading.stderr
    monkeypatch.setenv("S", str(realm.folder))
    monkeypatch.setenv("KRB", sandbox.connect)
    assert run_examples(PAGE, tmp_path) == 3
    profile = "".join(re.findall(r"```toml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL))
    (tmp_path / "config.toml").write_text(profile.replace("/etc/zkgroup/", f"{realm.folder}/"))
    environ = {"ZKGROUP_CONFIG": str(tmp_path / "config.toml"), "ZKGROUP_CLUSTER": "hdp"}
    found = resolve_connection({}, environ, lambda name: (name, None))
    keytab = str(realm.keytab(USER))
    assert found.zookeeper_sasl == KerberosSettings("zookeeper", keytab, "zkgroup@EXAMPLE.COM")
    assert found.kafka["sasl.mechanism"] == "GSSAPI"
    assert found.kafka["sasl.kerberos.keytab"] == keytab


@pytest.mark.skipif(has_gssapi(), reason="this librdkafka knows Kerberos")
def test_brokers_without_a_librdkafka_that_knows_kerberos() -> None:
    """It is said before anything is connected, with the two ways to get one."""
    args = ("consume", "t", "--until-end", "--bootstrap-server", "localhost:1", "--security-protocol", "SASL_PLAINTEXT")
    done = run(*args, "--sasl-mechanism", "gssapi")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    build = "pip install --no-binary confluent-kafka confluent-kafka"
    assert names(done.stderr, "confluent-kafka", "Kerberos", "LD_PRELOAD=…/librdkafka.so.1", build)


def test_with_a_scala_member(sandbox: Sandbox, realm: KerberosRealm, tmp_path: Path) -> None:
    """From the command line: Kafka's own consumer and zkgroup share a group as the same user, each owns a partition,
    and all that they make belongs to that user. Without a ticket, or with a keytab that cannot be read, a command ends
    with one line."""
    group, topic, name = fresh_name("mixed"), fresh_name("topic"), f"sandbox:{sandbox.name}"
    assert " kdc " in run("sandbox", "status", "--name", sandbox.name).stdout
    fill = ("sandbox", "fill", topic, "--name", sandbox.name, "--partitions", "2", "--messages", "20")
    assert run(*fill).returncode == 0
    owners = [znodes.owner(group, TopicPartition(topic, number)) for number in range(2)]
    with sandbox.registry(30.0) as registry, sandbox.member(group, topic, kind="topics") as theirs:
        theirs.wait_for(20, 60)
        ours = []
        arguments = ("consume", topic, "--group", group, "--max-messages", "5", "-c", name)
        reader = threading.Thread(target=lambda: ours.append(run(*arguments, timeout=180)))
        reader.start()

        def owning() -> set[bytes]:
            return {node.data for node in registry.read([Get(path) for path in owners]) if isinstance(node, Node)}

        wait_until(lambda: len(owning()) == 2, 90)
        lists = registry.read([GetAcl(path) for path in owners])
        assert [set(one.acl) for one in lists if isinstance(one, Acls)] == [OURS, OURS]
        run(*fill)
        reader.join(180)
        assert (ours[0].returncode, len(ours[0].stdout.splitlines())) == (0, 5), ours
        wait_until(lambda: len(owning()) == 1, 90)
        assert isinstance(registry.read([Children(znodes.ids(group))])[0], tuple)
        assert "NoAuth" not in theirs.logged()
    shown = ("owners", group, "-z", sandbox.connect, "--zookeeper-sasl-mechanism", "gssapi")
    for more, code, facts in (
        ((), 3, (sandbox.connect, "kinit USER", "--zookeeper-kerberos-keytab")),
        (("--zookeeper-kerberos-keytab", str(tmp_path)), 2, (tmp_path, "Is a directory")),
    ):
        done = run(*shown, *more)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (code, "", 1), done.stderr
        assert names(done.stderr, *facts), done.stderr


# Brokers


@pytest.fixture(scope="module")
def librdkafka(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A librdkafka that knows Kerberos: the one that GSSAPI_LIBRDKAFKA names, else one that is built."""
    if given := os.environ.get("GSSAPI_LIBRDKAFKA"):
        return given
    folder = tmp_path_factory.mktemp("librdkafka")
    script = PAGE.parents[2] / "scripts" / "build_librdkafka.sh"
    environment = os.environ | {"PYTHON": sys.executable}
    built = subprocess.run([script, folder], env=environment, capture_output=True, text=True, timeout=600, check=False)
    if built.returncode:
        pytest.skip(f"librdkafka was not built: {built.stderr.strip().splitlines()[-1]}")
    return built.stdout.strip().partition("LD_PRELOAD=")[2]


@pytest.mark.long
@pytest.mark.timeout(900)
def test_brokers_with_kerberos(
    sandbox: Sandbox, realm: KerberosRealm, keytab: str, librdkafka: str, tmp_path: Path
) -> None:
    """Messages are read, and offsets committed to Kafka, by ticket and by keytab; an export's tasks log in by the
    keytab; each refusal is one line."""
    topic, group = fresh_name("topic"), fresh_name("group")
    assert run("sandbox", "fill", topic, "--name", sandbox.name, "--messages", "30").returncode == 0
    zookeeper = ("-z", sandbox.connect, "--zookeeper-sasl-mechanism", "GSSAPI", "--zookeeper-kerberos-keytab", keytab)
    secured = (*zookeeper, "--security-protocol", "SASL_PLAINTEXT", "--sasl-mechanism", "GSSAPI")
    by_keytab = (*secured, "--sasl-kerberos-keytab", keytab, "--sasl-kerberos-principal", USER)
    tickets = {"KRB5CCNAME": f"FILE:{tmp_path / 'own'}"}

    def preloaded(*args: str, **env: str) -> subprocess.CompletedProcess[str]:
        """As ``run``, with another librdkafka: in a process that begins with it."""
        words, own = [ZKGROUP, *args], environment({"LD_PRELOAD": librdkafka, **env})
        return subprocess.run(words, env=own, capture_output=True, text=True, timeout=300, check=False)

    read = ("consume", topic, "--from-beginning", "--until-end")

    done = preloaded(*read, *secured)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (3, "", 1), done.stderr
    assert names(done.stderr, "kinit USER", "--sasl-kerberos-keytab"), done.stderr
    get_ticket(realm)
    done = preloaded(*read, *secured)
    assert (done.returncode, len(done.stdout.splitlines())) == (0, 30), done.stderr
    done = preloaded(*read, *secured, "--sasl-kerberos-service", "other")
    assert (done.returncode, done.stderr.count("\n")) == (3, 1), done.stderr
    assert names(done.stderr, "other/HOST", "--sasl-kerberos-service"), done.stderr
    done = preloaded(*read, *secured, "--sasl-kerberos-keytab", keytab)
    assert (done.returncode, names(done.stderr, "--sasl-kerberos-principal")) == (2, True), done.stderr
    bad = tmp_path / "bad.keytab"
    bad.write_text("no keytab")
    login = ("--sasl-kerberos-keytab", str(bad), "--sasl-kerberos-principal", USER)
    done = preloaded(*read, *secured, *login, **tickets)
    assert (done.returncode, done.stderr.count("\n")) == (3, 1), done.stderr
    assert names(done.stderr, bad, USER, f"klist -k {bad}"), done.stderr

    done = preloaded(*read, "--group", group, "--coordinator", "kafka", *by_keytab, **tickets)
    assert (done.returncode, len(done.stdout.splitlines())) == (0, 30), done.stderr
    (tmp_path / "own").unlink()
    export = ("export", topic, "--group", fresh_name("group"), "--to", str(tmp_path / "lake"), "--from", "earliest")
    done = preloaded(*export, "--output", "json", *by_keytab, **tickets)
    assert done.returncode == 0, done.stderr
    assert sum(row["rows"] for row in json.loads(done.stdout)) == 30
