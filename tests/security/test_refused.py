"""What secured servers refuse: each refusal is one line that names the thing and what to do, within seconds, and shows
no secret."""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from cli import run
from lines import names
from secured_sandbox import MESSAGES, TOPIC, WRONG, Secured
from tls_proxy import TlsProxy

from zkgroup.clients.connection_security import ConnectionFailure, FailureCause
from zkgroup.clients.kafka.client import KafkaSettings, topics
from zkgroup.clients.kafka.connection_errors import explain
from zkgroup.clients.zookeeper import ZooKeeperSettings
from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.clients.zookeeper.sasl_login import log_in
from zkgroup.config.connection_settings import TlsSettings
from zkgroup.sandbox.certificates import Certificate, make_authority
from zkgroup.sandbox.local_cluster import Sandbox

#: A refusal waits for no time-out: commands are given a longer one, in seconds, than they have.
PATIENCE, LIMIT = 120, 100.0
#: Nor does it come of many attempts, which are a second apart; ZooKeeper is tried thrice, as a server that restarts
#: refuses like one that does not know the user.
ATTEMPTS = 3
#: The options that a refusal names, in their order: of a client without a user, and of one with other credentials.
WANTS_A_USER = ("--zookeeper-sasl-user", "--zookeeper-sasl-password-file")
REFUSES_CREDENTIALS = ("--zookeeper-auth-file", "--zookeeper-sasl-user")
DAY = datetime.timedelta(days=1)


def of_brokers(address: str, protocol: str, **properties: str) -> ConnectionFailure:
    """The failure of a client of the library."""
    dotted = {name.replace("_", "."): value for name, value in properties.items()}
    with pytest.raises(ConnectionFailure) as failed:
        topics(KafkaSettings(address, {"security.protocol": protocol, **dotted}), LIMIT)
    return failed.value


def of_zookeeper(address: str, tls: TlsSettings | None = None) -> ConnectionFailure:
    """As ``of_brokers``."""
    with pytest.raises(ConnectionFailure) as failed, Registry(ZooKeeperSettings(address, tls=tls), LIMIT):
        pass
    return failed.value


# Refusals by brokers


def bad_server(secured: Secured, kind: str) -> Certificate:
    """A certificate that a server should not have."""
    match kind:
        case "expired":
            return secured.authority.issue("127.0.0.1", ["127.0.0.1"], life=-DAY)
        case "elsewhere":
            return secured.authority.issue("elsewhere", ["elsewhere.example"])
        case _:
            return make_authority("nobody").issue("127.0.0.1", ["127.0.0.1"])


def bad_client(secured: Secured, kind: str) -> Certificate:
    """A certificate that a client should not show."""
    if kind == "expired":
        return secured.authority.issue("zkgroup", life=-DAY)
    return make_authority("nobody").issue("zkgroup")


def refused(secured: Secured, *args: str) -> str:
    """The one line of a command that cannot reach its servers: exit code 3, after few attempts and no time-out (how
    many seconds that takes is the machine's affair), the same with ``-vv`` but for what is logged."""
    line = secured.run(*args, code=3, timeout=LIMIT, ZKGROUP_CONNECT_TIMEOUT=str(PATIENCE))
    loud = run(*args, "-vv", "--connect-timeout", str(PATIENCE), timeout=LIMIT)
    secured.check(loud)
    assert loud.returncode == 3
    assert "Traceback" not in loud.stderr
    assert line.rstrip() in loud.stderr.splitlines()  # kazoo's threads may log behind it
    failed = re.findall(r"Kafka client: .*(?:SASL authentication error|SSL routines)", loud.stderr)
    begun = re.findall(r"kazoo\S*: Connecting to", loud.stderr)
    assert 1 <= len(failed or begun) <= ATTEMPTS, loud.stderr
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
    assert names(line, "broker", "zkgroup", mechanism, "--sasl-user", "--sasl-mechanism")


@pytest.mark.parametrize(
    ("kind", "cause", "facts"),
    [
        ("expired", FailureCause.CERTIFICATE_EXPIRED, ()),
        ("elsewhere", FailureCause.CERTIFICATE_OF_ANOTHER_HOST, ("127.0.0.1", "--no-ssl-check-hostname")),
        ("unknown", FailureCause.UNKNOWN_AUTHORITY, ("--ssl-ca-file",)),
    ],
)
def test_certificates_of_brokers(secured: Secured, kind: str, cause: FailureCause, facts: tuple[str, ...]) -> None:
    """Each defect is a cause of its own, where librdkafka has one for all; without reading hosts another host's will
    do. Nobody hammers at the broker meanwhile."""
    with TlsProxy(secured.sandbox.listener("PLAINTEXT"), bad_server(secured, kind), secured.folder) as proxy:
        args = from_brokers(proxy.address, "SSL", "--ssl-ca-file", str(secured.security.ca))
        line = secured.run(*args, code=3)
        assert (names(line, proxy.address, *facts), "--" in line) == (True, bool(facts)), line
        assert proxy.accepted <= 10
        if kind == "elsewhere":
            assert "--no-ssl-check-hostname" not in run(*args, "--no-ssl-check-hostname").stderr
        failure = of_brokers(proxy.address, "SSL", ssl_ca_location=str(secured.security.ca))
        assert (failure.cause, failure.server) == (cause, proxy.address)


@pytest.mark.parametrize("kind", [None, "expired", "unknown"])
def test_client_certificates_that_brokers_refuse(secured: Secured, kind: str | None) -> None:
    """None, an expired one, one of an authority that the broker does not know."""
    shown = secured.shows(bad_client(secured, kind), "--ssl", f"brokers-{kind}") if kind else []
    address = secured.sandbox.listener("SSL")
    line = refused(secured, *from_brokers(address, "SSL", "--ssl-ca-file", str(secured.security.ca), *shown))
    assert names(line, address, *shown[1:2] or ("--ssl-certificate-file", "--ssl-key-file"))


@pytest.mark.parametrize(
    ("kind", "cause"),
    [(None, FailureCause.CLIENT_CERTIFICATE_REQUIRED), ("unknown", FailureCause.CLIENT_CERTIFICATE_REFUSED)],
)
@pytest.mark.parametrize(
    "said",
    [
        "SSL handshake failed: error:0A0000F4:SSL routines::unexpected message: client SSL authentication might be "
        "required (see ssl.key.location and ssl.certificate.location and consult the broker logs for more information)",
        "error:0A0000F4:SSL routines::unexpected message",
    ],
    ids=["", "bare"],
)
def test_whichever_way_a_refusal_is_reported(
    secured: Secured, said: str, kind: str | None, cause: FailureCause
) -> None:
    """librdkafka (2.16) shows the same refusal in either form, on a busy machine often in the second: that one was
    tried again, until the time was over. A connection that just ended is tried again."""
    shown = secured.shows(bad_client(secured, kind), "--ssl", "told") if kind else []
    properties = {"security.protocol": "SSL", "ssl.ca.location": str(secured.security.ca)}
    if shown:
        properties |= {"ssl.certificate.location": shown[1], "ssl.key.location": shown[3]}
    place = f"ssl://{secured.sandbox.listener('SSL')}/bootstrap: "
    reported = explain(f"{place}{said} (after 7ms in state SSL_HANDSHAKE)", properties)
    assert reported is not None
    assert (reported.cause, reported.server) == (cause, secured.sandbox.listener("SSL"))
    for ended in ("error:0A000126:SSL routines::unexpected eof while reading", "Disconnected"):
        assert explain(f"{place}{ended} (after 7ms in state SSL_HANDSHAKE)", properties) is None


@pytest.mark.parametrize("authorities", ["/", "probe"])
def test_authorities_that_only_librdkafka_reads(authorities: str) -> None:
    """A folder of them, or those that it looks for: a failed hand-shake is told in its words, and is no wrong usage."""
    failure = "ssl://127.0.0.1:1/1: SSL handshake failed: error:0A000086:SSL routines::certificate verify failed"
    found = explain(failure, {"security.protocol": "SSL", "ssl.ca.location": authorities})
    assert found is not None
    assert (found.cause, found.server) == (FailureCause.HANDSHAKE_FAILED, "127.0.0.1:1")


@pytest.mark.parametrize(
    ("listener", "protocol", "cause"),
    [
        ("SSL", "PLAINTEXT", FailureCause.TLS_REQUIRED),
        ("SASL_SSL", "SASL_PLAINTEXT", FailureCause.TLS_REQUIRED),
        ("PLAINTEXT", "SSL", FailureCause.NO_TLS),
        ("CLIENTS", "SASL_SSL", FailureCause.NO_TLS),
        ("PLAINTEXT", "SASL_PLAINTEXT", FailureCause.NO_SASL),
        ("CLIENTS", "PLAINTEXT", FailureCause.LOGIN_REQUIRED),
    ],
)
def test_the_wrong_protocol(secured: Secured, listener: str, protocol: str, cause: FailureCause) -> None:
    """A client that speaks something else than the listener is reported what, and what to choose."""
    security, address = secured.security, secured.sandbox.listener(listener)
    options = ["--ssl-ca-file", str(security.ca)] if protocol.endswith("SSL") else []
    properties = {"ssl_ca_location": str(security.ca)} if protocol.endswith("SSL") else {}
    if protocol.startswith("SASL"):
        properties |= {"sasl_mechanism": "PLAIN", "sasl_username": "zkgroup", "sasl_password": WRONG}
        options += ["--sasl-mechanism", "PLAIN", "--sasl-user", "zkgroup"]
        options += ["--sasl-password-file", str(security.password_file("sasl"))]
    line = secured.run(*from_brokers(address, protocol, *options), code=3)
    assert names(line, address, "--security-protocol")
    failure = of_brokers(address, protocol, **properties)
    assert (failure.cause, failure.server) == (cause, address)


def test_oauthbearer_without_a_token(secured: Secured) -> None:
    """That none can be had is reported before anything is connected, that none was had as soon as that is known."""
    for mechanism in ("sasl.mechanism=OAUTHBEARER", "sasl.mechanisms=oauthbearer"):
        args = from_brokers(secured.sandbox.listener("CLIENTS"), "SASL_PLAINTEXT", "-X", f"kafka.{mechanism}")
        assert names(secured.run(*args, code=2), "OAUTHBEARER", "-X kafka.sasl.oauthbearer.method=oidc")
    login = ("method=oidc", "token.endpoint.url=http://127.0.0.1:1/t", "client.id=u", f"client.secret={WRONG}")
    more = [word for pair in login for word in ("-X", f"kafka.sasl.oauthbearer.{pair}")]
    args = from_brokers(secured.sandbox.listener("CLIENTS"), "SASL_PLAINTEXT", "-X", "kafka.sasl.mechanism=OAUTHBEARER")
    assert names(secured.run(*args, *more, code=3, timeout=LIMIT), "OAUTHBEARER", "sasl.oauthbearer.…")


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
            line = secured.run("owners", "no-such-group", "-c", secured.name, "-z", both, code=4)
            assert names(line, "no-such-group")


# Refusals by ZooKeeper


@pytest.mark.parametrize(
    ("wants", "with_none", "with_credentials"),
    [
        pytest.param(
            "enforce.auth.enabled=true -Dzookeeper.enforce.auth.schemes=sasl",
            WANTS_A_USER,
            REFUSES_CREDENTIALS,
            id="enforced",
        ),
        pytest.param(
            "sessionRequireClientSASLAuth=true",
            WANTS_A_USER,
            REFUSES_CREDENTIALS,
            id="required",
            marks=pytest.mark.long,
        ),
        pytest.param("DigestAuthenticationProvider.enabled=false", None, REFUSES_CREDENTIALS, id="without digest"),
    ],
)
def test_a_zookeeper_that_wants_a_user(
    make_sandbox: Callable[..., Sandbox],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    wants: str,
    with_none: tuple[str, ...] | None,
    with_credentials: tuple[str, ...],
) -> None:
    """A missing one is reported in one line, whatever comes first; nothing is taken for what is there."""
    provider = "-Dzookeeper.authProvider.sasl=org.apache.zookeeper.server.auth.SASLAuthenticationProvider"
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", f"-Dzookeeper.{wants} {provider}")
    sandbox = make_sandbox(brokers=0)
    credentials = tmp_path / "credentials"
    credentials.write_text("ops:hunter2\n")
    credentials.chmod(0o600)
    for options, expected in (((), with_none), (("--zookeeper-auth-file", str(credentials)), with_credentials)):
        for command in (
            ("owners", "g"),
            ("list-groups",),
            ("inspect-group", "--all"),
            ("consume", "t", "-e"),
            ("consume", "t", "--group", "g", "-e"),
            ("delete-group", "g"),
        ):
            result = run(*command, "-z", sandbox.connect, *options)
            if expected is not None:
                assert (result.returncode, result.stdout, result.stderr.count("\n")) == (3, "", 1), (command, result)
                assert names(result.stderr, sandbox.connect, *expected), (command, result.stderr)
            else:
                assert "--zookeeper-" not in result.stderr, (command, result)
            assert "?" not in result.stderr


@pytest.mark.parametrize(
    "command",
    [
        ("owners", "g"),
        ("inspect-group", "g"),
        ("inspect-group", "--all"),
        ("offsets", "g"),
        ("list-groups",),
        ("consume", TOPIC, "--until-end"),
        ("consume", TOPIC, "--group", "g", "--until-end"),
        ("reset-offsets", "g", "--topic", TOPIC, "--to-earliest"),
        ("delete-group", "g"),
        ("assign", "g", "--strategy", "range"),
    ],
    ids=" ".join,
)
def test_wrong_password_for_zookeeper(secured: Secured, command: tuple[str, ...]) -> None:
    """The user is named, the password is not: before anything is read that could be taken for what is there. A
    connection is reported as up before the login has ended (kazoo)."""
    password = secured.file("wrong", WRONG)
    line = refused(secured, *command, "-c", secured.name, "--zookeeper-sasl-password-file", password)
    assert names(line, "ZooKeeper", "zkgroup", "--zookeeper-sasl-user", "--zookeeper-sasl-password-file")


@pytest.mark.parametrize(
    ("kind", "cause", "facts"),
    [
        ("expired", FailureCause.CERTIFICATE_EXPIRED, ()),
        ("elsewhere", FailureCause.CERTIFICATE_OF_ANOTHER_HOST, ("127.0.0.1", "--no-zookeeper-check-hostname")),
        ("unknown", FailureCause.UNKNOWN_AUTHORITY, ("--zookeeper-ca-file",)),
    ],
)
def test_certificates_of_zookeeper(secured: Secured, kind: str, cause: FailureCause, facts: tuple[str, ...]) -> None:
    """As the brokers'; without looking at hosts a session is had."""
    with TlsProxy(secured.sandbox.address, bad_server(secured, kind), secured.folder) as proxy:
        args = ["owners", "no-such-group", "-z", proxy.address, "--zookeeper-ca-file", str(secured.security.ca)]
        line = secured.run(*args, code=3)
        assert (names(line, proxy.address, *facts), "--" in line) == (True, bool(facts)), line
        assert proxy.accepted <= 10
        failure = of_zookeeper(proxy.address, TlsSettings(str(secured.security.ca)))
        assert (failure.cause, failure.server) == (cause, proxy.address)
        if kind == "elsewhere":
            assert names(secured.run(*args, "--no-zookeeper-check-hostname", code=4), "no-such-group")
        else:
            loose = run(*args, "--no-zookeeper-verify")
            assert (loose.returncode, names(loose.stderr, "warning:", "zookeeper-verify")) == (4, True)


@pytest.mark.parametrize("kind", [None, "expired", "unknown"])
def test_client_certificates_that_zookeeper_refuses(secured: Secured, kind: str | None) -> None:
    """As by brokers."""
    shown = secured.shows(bad_client(secured, kind), "--zookeeper", f"zookeeper-{kind}") if kind else []
    address = secured.sandbox.secured_connect
    line = refused(secured, "owners", "g", "-z", address, "--zookeeper-ca-file", str(secured.security.ca), *shown)
    assert names(line, address, *shown[1:2] or ("--zookeeper-certificate-file", "--zookeeper-key-file"))


def test_the_wrong_port_of_zookeeper(secured: Secured) -> None:
    """A plain client at the port for TLS, and the reverse."""
    sandbox = secured.sandbox
    line = refused(secured, "owners", "g", "-z", sandbox.secured_connect)
    assert names(line, sandbox.secured_connect, "--zookeeper-tls", "--zookeeper-ca-file")
    assert of_zookeeper(sandbox.secured_connect).cause is FailureCause.TLS_REQUIRED
    line = refused(secured, "owners", "g", "-z", sandbox.connect, "--zookeeper-tls")
    assert names(line, sandbox.connect, "--zookeeper-certificate-file")
    assert of_zookeeper(sandbox.connect, TlsSettings()).cause is FailureCause.HANDSHAKE_ENDED


def test_a_zookeeper_that_does_not_know_the_password() -> None:
    """Whoever answers in its place cannot prove itself: the login fails, whatever it says."""
    for proof in (b"rspauth=00000000000000000000000000000000", b""):
        login = log_in(("ops", "€uro"), "localhost")
        assert next(login) == b""
        assert b'username="ops"' in login.send(b'realm="r",nonce="n",qop="auth",algorithm=md5-sess')
        with pytest.raises(ConnectionFailure) as failed:
            login.send(proof)
        assert failed.value.cause is FailureCause.SERVER_UNPROVEN
