"""What secured servers refuse: each refusal is one line that names the thing and what to do, within seconds, and shows
no secret."""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from cli import run
from secured import MESSAGES, TOPIC, WRONG, Secured
from tls_proxy import TlsProxy

from zkgroup.clients.kafka.connection_errors import explain
from zkgroup.sandbox.certificates import Certificate, make_authority
from zkgroup.sandbox.local_cluster import Sandbox

#: A refusal waits for no time-out: commands are given a longer one, in seconds, than they have.
PATIENCE, LIMIT = 120, 100.0
#: Nor does it come of many attempts, which are a second apart; ZooKeeper is tried thrice, as a server that restarts
#: refuses like one that does not know the user.
ATTEMPTS = 3
WANTS_A_USER = "refuses clients without a user: name one with --zookeeper-sasl-user and --zookeeper-sasl-password-file"
REFUSES_CREDENTIALS = (
    "refuses the credentials: check --zookeeper-auth-file; the server may want a user (--zookeeper-sasl-user) instead"
)
DAY = datetime.timedelta(days=1)


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
    assert loud.stderr.splitlines()[-1] == line.rstrip()
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
    assert f"refuses the user zkgroup ({mechanism}): check --sasl-user, its password" in line


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("expired", "its certificate has expired: renew it on the server"),
        (
            "elsewhere",
            "for another host (127.0.0.1 is not among its names): name the server as its certificate does, or --no-",
        ),
        ("unknown", "of an authority that is not known here: name the authority with --ssl-ca-file"),
    ],
)
def test_certificates_of_brokers(secured: Secured, kind: str, why: str) -> None:
    """Each defect has its own words, where librdkafka has one for all; without reading hosts another host's will
    do. Nobody hammers at the broker meanwhile."""
    with TlsProxy(secured.sandbox.listener("PLAINTEXT"), bad_server(secured, kind), secured.folder) as proxy:
        args = from_brokers(proxy.address, "SSL", "--ssl-ca-file", str(secured.security.ca))
        line = secured.run(*args, code=3)
        assert why in line
        assert f"the broker at {proxy.address}" in line
        assert proxy.accepted <= 10
        if kind == "elsewhere":
            refused_no_more = run(*args, "--no-ssl-check-hostname").stderr
            assert "certificate" not in refused_no_more


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        (None, "wants a client certificate: name yours with --ssl-certificate-file"),
        ("expired", "refuses the client certificate {shown}"),
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


@pytest.mark.parametrize(("kind", "why"), [(None, "wants a client certificate"), ("unknown", "refuses the client")])
@pytest.mark.parametrize(
    "said",
    [
        "SSL handshake failed: error:0A0000F4:SSL routines::unexpected message: client SSL authentication might be "
        "required (see ssl.key.location and ssl.certificate.location and consult the broker logs for more information)",
        "error:0A0000F4:SSL routines::unexpected message",
    ],
    ids=["", "bare"],
)
def test_whichever_way_a_refusal_is_reported(secured: Secured, said: str, kind: str | None, why: str) -> None:
    """librdkafka (2.16) shows the same refusal in either form, on a busy machine often in the second: that one was
    tried again, until the time was over. A connection that just ended is tried again."""
    shown = secured.shows(bad_client(secured, kind), "--ssl", "told") if kind else []
    properties = {"security.protocol": "SSL", "ssl.ca.location": str(secured.security.ca)}
    if shown:
        properties |= {"ssl.certificate.location": shown[1], "ssl.key.location": shown[3]}
    place = f"ssl://{secured.sandbox.listener('SSL')}/bootstrap: "
    reported = explain(f"{place}{said} (after 7ms in state SSL_HANDSHAKE)", properties)
    assert reported is not None
    assert why in reported.message
    for ended in ("error:0A000126:SSL routines::unexpected eof while reading", "Disconnected"):
        assert explain(f"{place}{ended} (after 7ms in state SSL_HANDSHAKE)", properties) is None


@pytest.mark.parametrize(
    ("listener", "protocol", "why"),
    [
        ("SSL", "PLAINTEXT", "speaks TLS at this port, not PLAINTEXT"),
        ("SASL_SSL", "SASL_PLAINTEXT", "speaks TLS at this port, not SASL_PLAINTEXT"),
        ("PLAINTEXT", "SSL", "does not speak TLS at this port"),
        ("CLIENTS", "SASL_SSL", "does not speak TLS at this port"),
        ("PLAINTEXT", "SASL_PLAINTEXT", "has no SASL at this port"),
        ("CLIENTS", "PLAINTEXT", "ends the connection at the first request: choose another --security-protocol"),
    ],
)
def test_the_wrong_protocol(secured: Secured, listener: str, protocol: str, why: str) -> None:
    """A client that speaks something else than the listener is reported what, and what to choose."""
    security, address = secured.security, secured.sandbox.listener(listener)
    options = ["--ssl-ca-file", str(security.ca)] if protocol.endswith("SSL") else []
    if protocol.startswith("SASL"):
        options += ["--sasl-mechanism", "PLAIN", "--sasl-user", "zkgroup"]
        options += ["--sasl-password-file", str(security.password_file("sasl"))]
    line = secured.run(*from_brokers(address, protocol, *options), code=3)
    assert f"the broker at {address} {why}" in line
    assert "--security-protocol" in line


def test_oauthbearer_without_a_token(secured: Secured) -> None:
    """That none can be had is reported before anything is connected, that none was had as soon as that is known."""
    for mechanism in ("sasl.mechanism=OAUTHBEARER", "sasl.mechanisms=oauthbearer"):
        args = from_brokers(secured.sandbox.listener("CLIENTS"), "SASL_PLAINTEXT", "-X", f"kafka.{mechanism}")
        assert "OAUTHBEARER has no token, and nothing to get one with: give -X" in secured.run(*args, code=2)
    login = ("method=oidc", "token.endpoint.url=http://127.0.0.1:1/t", "client.id=u", f"client.secret={WRONG}")
    more = [word for pair in login for word in ("-X", f"kafka.sasl.oauthbearer.{pair}")]
    args = from_brokers(secured.sandbox.listener("CLIENTS"), "SASL_PLAINTEXT", "-X", "kafka.sasl.mechanism=OAUTHBEARER")
    assert "no OAUTHBEARER token was had: " in secured.run(*args, *more, code=3, timeout=LIMIT)


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
    with_none: str | None,
    with_credentials: str,
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
                assert (result.returncode, result.stdout) == (3, ""), (command, result.stderr)
                assert result.stderr == f"zkgroup: ZooKeeper at {sandbox.connect} {expected}\n", command
            else:
                assert "refuses" not in result.stderr
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
    assert "refuses the user zkgroup: check name and password (--zookeeper-sasl-user" in line


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("expired", "its certificate has expired: renew it on the server"),
        (
            "elsewhere",
            "for another host (127.0.0.1 is not among its names): name the server as its certificate does, or --no-",
        ),
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
            assert "warning: certificates of ZooKeeper are not verified" in loose.stderr


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        (None, "wants a client certificate"),
        ("expired", "refuses the client certificate {shown}"),
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
