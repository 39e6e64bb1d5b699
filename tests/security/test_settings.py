"""The settings that secure connections: where each may be said, what wins, and that no secret is shown."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st
from lines import names

from zkgroup.clients.connection_security import ssl_context
from zkgroup.clients.kafka.client import KafkaSettings, check_properties
from zkgroup.clients.kafka.registered_brokers import choose_listener, settings_from_brokers
from zkgroup.clients.schema_registry import registry_settings
from zkgroup.clients.zookeeper import ZooKeeperSettings
from zkgroup.config import ConnectionSettings, ConsumerConfig, load_consumer_config, resolve_connection
from zkgroup.config.connection_settings import KerberosSettings, TlsSettings, shown_settings
from zkgroup.config.settings_table import PROTOCOLS, SETTINGS
from zkgroup.errors import UsageError
from zkgroup.export.tasks.task_data import TaskSettings
from zkgroup.protocol.broker_znodes import BrokerRegistration, Endpoint, decode_broker
from zkgroup.protocol.operations import CREATOR_READ_WORLD, OPEN, Acl, parse_acl
from zkgroup.sandbox.certificates import make_authority

SECRET = "hunter2 and so on"


def no_sandbox(name: str) -> tuple[str, None]:
    raise AssertionError(name)


@pytest.fixture
def secret(tmp_path: Path) -> str:
    """A file that has the secret, and that only its owner may read."""
    path = tmp_path / "secret"
    path.write_text(SECRET + "\n")
    path.chmod(0o600)
    return str(path)


def resolve(
    tmp_path: Path,
    profile: str = "",
    environ: dict[str, str] | None = None,
    ask: object = None,
    **flags: tuple[str, ...],
) -> ConnectionSettings:
    """The settings for a profile, an environment, and flags by the names of their parameters."""
    path = tmp_path / "config.toml"
    path.write_text(f"[clusters.c]\nzookeeper = 'z'\n{profile}\n")
    known = {"ZKGROUP_CONFIG": str(path), **(environ or {})}
    return resolve_connection(flags, known, no_sandbox, ask)  # type: ignore[arg-type]


SASL = "security-protocol = 'SASL_SSL'\nsasl-mechanism = 'PLAIN'\nsasl-user = 'ops'\n"


def test_every_place_for_a_password(tmp_path: Path, secret: str) -> None:
    """A file by option, variable and profile, a variable, a variable that the profile names, a prompt: all alike; it
    is in no repr."""
    places = [
        resolve(tmp_path, SASL, cluster=("c",), sasl_password_file=(secret,)),
        resolve(tmp_path, SASL + f"sasl-password-file = '{secret}'", cluster=("c",)),
        resolve(tmp_path, SASL, {"ZKGROUP_SASL_PASSWORD_FILE": secret}, cluster=("c",)),
        resolve(tmp_path, SASL, {"ZKGROUP_SASL_PASSWORD": SECRET}, cluster=("c",)),
        resolve(tmp_path, SASL + "sasl-password-env = 'MINE'", {"MINE": SECRET}, cluster=("c",)),
        resolve(tmp_path, SASL, ask=lambda what: SECRET if "ops" in what else "", cluster=("c",)),
    ]
    for settings in places:
        assert settings.kafka == {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "ops",
            "sasl.password": SECRET,
        }
        assert load_consumer_config(settings.properties, group="g").config.kafka == settings.kafka
        assert settings.warnings == ()
        assert SECRET not in repr(settings)
    with pytest.raises(UsageError, match=r"\bops\b.*--sasl-password-file\b.*ZKGROUP_SASL_PASSWORD\b"):
        resolve(tmp_path, SASL, cluster=("c",))


def test_kerberos_with_zookeeper(tmp_path: Path, secret: str) -> None:
    """By its mechanism, which the other settings need and a user contradicts; it is a credential for access lists."""
    kerberos, keytab = "zookeeper-sasl-mechanism = 'gssapi'\n", f"zookeeper-kerberos-keytab = '{secret}'\n"
    acl = "zookeeper-acl = 'creator'"
    assert resolve(tmp_path, kerberos + acl, cluster=("c",)).zookeeper_sasl == KerberosSettings("zookeeper", None, None)
    more = "zookeeper-kerberos-principal = 'ops@R'\nzookeeper-kerberos-service = 'zk'\n"
    settings = resolve(tmp_path, kerberos + keytab + more, cluster=("c",))
    assert settings.zookeeper_sasl == KerberosSettings("zk", secret, "ops@R")
    shown = {row.setting: row.value for row in shown_settings(settings)}
    assert shown["zookeeper-sasl-mechanism"] == "GSSAPI"
    assert shown["zookeeper-kerberos-keytab"] == secret
    assert shown["zookeeper-kerberos-service"] == "zk"
    for profile, facts in (
        (
            kerberos + "zookeeper-sasl-user = 'ops'",
            ("zookeeper-sasl-user", "zookeeper-sasl-mechanism", "GSSAPI", "--zookeeper-kerberos-principal"),
        ),
        (keytab, ("zookeeper-kerberos-…", "--zookeeper-sasl-mechanism GSSAPI")),
        ("zookeeper-sasl-mechanism = 'DIGEST-MD5'", ("DIGEST-MD5", "--zookeeper-sasl-user")),
        (kerberos + "zookeeper-kerberos-keytab = '/nowhere'", ("/nowhere", "No such file")),
    ):
        with pytest.raises(UsageError) as refused:
            resolve(tmp_path, profile, cluster=("c",))
        assert names(str(refused.value), *facts), refused.value


def test_what_wins(tmp_path: Path) -> None:
    """A flag over the environment over the profile; the profile over the environment where a flag has named it; -X
    over both, and it may not contradict a flag."""
    listener, variable = "listener = 'FROM_PROFILE'", {"ZKGROUP_LISTENER": "FROM_ENVIRONMENT"}
    assert resolve(tmp_path, listener, variable, cluster=("c",), listener=("FLAG",)).listener == "FLAG"
    assert resolve(tmp_path, listener, variable, cluster=("c",)).listener == "FROM_PROFILE"
    by_variable = {**variable, "ZKGROUP_CLUSTER": "c"}
    assert resolve(tmp_path, listener, by_variable).listener == "FROM_ENVIRONMENT"
    assert resolve(tmp_path, listener, cluster=("c",), property=("zkgroup.listener=X",)).listener == "X"
    with pytest.raises(UsageError, match=r"--listener\b.*--property zkgroup\.listener\b"):
        resolve(tmp_path, listener=("FLAG",), property=("zkgroup.listener=X",))
    with pytest.raises(UsageError, match=r"--listener\b.*\bA\b.*\bB\b"):
        resolve(tmp_path, listener=("A", "B"))


@pytest.mark.parametrize("layer", ["profile", "profile's kafka", "environment", "consumer-config", "property", "flag"])
@pytest.mark.parametrize("protocol", ["SSL", "SASL_SSL"])
@pytest.mark.parametrize("registered", [*PROTOCOLS, "sasl_plaintext", "NONE"])
def test_tls_is_a_floor(tmp_path: Path, secret: str, layer: str, protocol: str, registered: str) -> None:
    """Whichever layer names the protocol, a listener that a flag names is used only with TLS, whatever is registered
    of it. So it is for members, which get their settings another way."""
    file = tmp_path / "consumer.properties"
    file.write_text(f"kafka.security.protocol={protocol}\n")
    login = f"sasl-mechanism = 'PLAIN'\nsasl-user = 'ops'\nsasl-password-file = '{secret}'\n"
    profile = {
        "profile": f"security-protocol = '{protocol}'",
        "profile's kafka": f"kafka = {{'security.protocol' = '{protocol}'}}",
        "consumer-config": f"consumer-config = '{file}'",
    }
    environ = {"ZKGROUP_SECURITY_PROTOCOL": protocol} if layer == "environment" else {}
    flags: dict[str, tuple[str, ...]] = {"listener": ("CLIENTS",)}
    if layer == "property":
        flags["property"] = (f"kafka.security.protocol={protocol}",)
    if layer == "flag":
        flags["security_protocol"] = (protocol,)
    settings = resolve(tmp_path, login + profile.get(layer, ""), environ, cluster=("c",), **flags)
    config = load_consumer_config(settings.properties, group="g").config
    brokers = [broker(1, ("CLIENTS", "SASL_SSL")), broker(2, ("CLIENTS", registered))]
    for order in (brokers, brokers[::-1]):
        for kafka, listener in ((settings.kafka, settings.listener), (config.kafka, config.listener)):
            if registered in ("SSL", "SASL_SSL"):
                assert settings_from_brokers(order, kafka, listener).protocol == order[0].endpoints[0].protocol
            else:
                facts = ("CLIENTS", registered, protocol, f"--security-protocol {registered}")
                if registered not in PROTOCOLS:
                    facts = ("CLIENTS", ", ".join(PROTOCOLS))
                with pytest.raises(UsageError) as refused:
                    settings_from_brokers(order, kafka, listener)
                assert names(str(refused.value), *facts), refused.value
                assert ("--" in str(refused.value)) == (registered in PROTOCOLS)


def test_only_the_command_line_goes_below_the_floor(tmp_path: Path, secret: str) -> None:
    """Its option permits just the protocol that it names, a property none; without any, a listener may not ask for a
    password."""
    login = f"sasl-mechanism = 'PLAIN'\nsasl-user = 'ops'\nsasl-password-file = '{secret}'\nlistener = 'A'\n"
    profile = login + "security-protocol = 'SASL_SSL'"
    clear, plain = [broker(1, ("A", "SASL_PLAINTEXT"))], [broker(1, ("A", "PLAINTEXT"))]
    settings = resolve(tmp_path, profile, cluster=("c",), security_protocol=("sasl_plaintext",))
    assert settings_from_brokers(clear, settings.kafka, "A").properties["sasl.password"] == SECRET
    with pytest.raises(UsageError, match=r"\bA\b.*\bPLAINTEXT\b.*\bSASL_PLAINTEXT\b.*--security-protocol PLAINTEXT\b"):
        settings_from_brokers(plain, settings.kafka, "A")
    for unnamed in (login, login + "security-protocol = 'PLAINTEXT'"):
        settings = resolve(tmp_path, unnamed, cluster=("c",))
        assert "sasl.password" not in settings_from_brokers(plain, settings.kafka, "A").properties
        with pytest.raises(
            UsageError, match=r"\bA\b.*\bSASL_PLAINTEXT\b.*\bPLAINTEXT\b.*--security-protocol SASL_PLAINTEXT\b"
        ):
            settings_from_brokers(clear, settings.kafka, "A")


@pytest.mark.parametrize("spelt", ["sasl_plaintext", "SASL_PLAINTEXT", "Plaintext"])
def test_no_typed_property_goes_below_the_floor(tmp_path: Path, secret: str, spelt: str) -> None:
    """Whatever asks for TLS: a profile, its file, the environment, or another property of the same command line."""
    file = tmp_path / "consumer.properties"
    file.write_text("kafka.security.protocol=SASL_SSL\n")
    login = f"sasl-mechanism = 'PLAIN'\nsasl-user = 'ops'\nsasl-password-file = '{secret}'\n"
    typed = f"kafka.security.protocol={spelt}"
    layers: tuple[tuple[str, dict[str, str], tuple[str, ...]], ...] = (
        ("security-protocol = 'SASL_SSL'", {}, ()),
        ("kafka = {'security.protocol' = 'ssl'}", {}, ()),
        (f"consumer-config = '{file}'", {}, ()),
        ("", {"ZKGROUP_SECURITY_PROTOCOL": "SASL_SSL"}, ()),
        ("", {}, ("kafka.security.protocol=SASL_SSL",)),
    )
    for profile, environ, more in layers:
        with pytest.raises(UsageError, match=rf"--property\b.*\b{spelt}\b.*--security-protocol {spelt}\b"):
            resolve(tmp_path, login + profile, environ, cluster=("c",), property=(*more, typed))
    assert resolve(tmp_path, login, cluster=("c",), property=(typed,)).kafka["security.protocol"] == spelt


@pytest.mark.parametrize("weaker", ["PLAINTEXT", "SASL_PLAINTEXT"])
def test_no_layer_takes_off_anothers_tls(tmp_path: Path, weaker: str) -> None:
    """The environment over a profile, a profile over the environment, either over a file; TLS over TLS is none."""
    file = tmp_path / "consumer.properties"
    file.write_text("kafka.security.protocol=SSL\n")
    low = f"security-protocol = '{weaker}'"
    cases: list[tuple[str, dict[str, str], dict[str, tuple[str, ...]]]] = [
        ("security-protocol = 'SSL'", {"ZKGROUP_SECURITY_PROTOCOL": weaker, "ZKGROUP_CLUSTER": "c"}, {}),
        (low, {"ZKGROUP_SECURITY_PROTOCOL": "SSL"}, {"cluster": ("c",)}),
        (f"consumer-config = '{file}'\n{low}", {}, {"cluster": ("c",)}),
    ]
    for profile, environ, flags in cases:
        with pytest.raises(UsageError, match=rf"\b{weaker}\b.*\bSSL\b.*--security-protocol {weaker}\b"):
            resolve(tmp_path, profile, environ, **flags)
        lowered = resolve(tmp_path, profile, environ, security_protocol=(weaker,), **flags)
        assert lowered.kafka["security.protocol"] == weaker
    other = resolve(tmp_path, "security-protocol = 'SSL'", {"ZKGROUP_SECURITY_PROTOCOL": "SASL_SSL"}, cluster=("c",))
    assert other.kafka["security.protocol"] == "SSL"


def test_no_layer_takes_off_zookeepers_tls(tmp_path: Path) -> None:
    """What asks for it is a truth value, or one of its files."""
    ca = tmp_path / "ca.pem"
    ca.write_text("certificates")
    off = {"ZKGROUP_ZOOKEEPER_TLS": "false", "ZKGROUP_CLUSTER": "c"}
    for asked in ("zookeeper-tls = true", f"zookeeper-ca-file = '{ca}'"):
        with pytest.raises(UsageError, match=r"ZKGROUP_ZOOKEEPER_TLS\b.*\bc\b.*config\.toml.*--no-zookeeper-tls\b"):
            resolve(tmp_path, asked, off)
        assert resolve(tmp_path, asked, off, zookeeper_tls=("False",)).zookeeper_tls is None
    with pytest.raises(UsageError, match=r"zookeeper-tls\b.*ZKGROUP_ZOOKEEPER_TLS\b.*--no-zookeeper-tls\b"):
        resolve(tmp_path, "zookeeper-tls = false", {"ZKGROUP_ZOOKEEPER_TLS": "true"}, cluster=("c",))
    assert resolve(tmp_path, "zookeeper-tls = false", cluster=("c",)).zookeeper_tls is None


def test_no_layer_takes_off_the_registrys_tls(tmp_path: Path, secret: str) -> None:
    """A password goes in clear only where its user is given beside it."""
    login = f"schema-registry-user = 'ops'\nschema-registry-password-file = '{secret}'\n"
    profile, plain = f"{login}schema-registry = 'https://a:8081'", "http://b:8081"
    environ = {"ZKGROUP_SCHEMA_REGISTRY": plain, "ZKGROUP_CLUSTER": "c"}
    for variables, flags in ((environ, {}), ({}, {"cluster": ("c",), "schema_registry": (plain,)})):
        with pytest.raises(UsageError, match=r"config\.toml.*https://.*--schema-registry-user\b"):
            resolve(tmp_path, profile, variables, **flags)
        lowered = resolve(tmp_path, profile, variables, schema_registry_user=("ops",), **flags)
        assert (lowered.schema_registry, lowered.schema_registry_password) == (plain, SECRET)
    other = resolve(tmp_path, profile, cluster=("c",), schema_registry=("https://b:8081",))
    assert (other.schema_registry, other.schema_registry_user) == ("https://b:8081", "ops")
    unnamed = resolve(tmp_path, "schema-registry = 'https://a:8081'", environ)
    assert unnamed.schema_registry == plain


def test_tls_and_a_user_for_zookeeper(tmp_path: Path, secret: str) -> None:
    """Naming a file of TLS's turns it on, unless that is denied; a user comes with a password."""
    ca = tmp_path / "ca.pem"
    ca.write_text("certificates")
    profile = f"zookeeper-ca-file = '{ca}'\nzookeeper-sasl-user = 'ops'\nzookeeper-sasl-password-file = '{secret}'"
    settings = resolve(tmp_path, profile, cluster=("c",))
    assert settings.zookeeper_tls == TlsSettings(str(ca))
    assert settings.zookeeper_sasl == ("ops", SECRET)
    assert SECRET not in repr(settings)
    assert resolve(tmp_path, profile, cluster=("c",), zookeeper_tls=("False",)).zookeeper_tls is None
    assert resolve(tmp_path, "zookeeper-tls = true", cluster=("c",)).zookeeper_tls == TlsSettings()
    loose = resolve(tmp_path, "zookeeper-tls = true\nzookeeper-verify = false", cluster=("c",))
    assert loose.zookeeper_tls == TlsSettings(verify=False)
    assert names(str(loose.warnings[0]), "ZooKeeper", "zookeeper-verify")


@pytest.mark.parametrize(
    ("profile", "facts"),
    [
        ("security-protocol = 'TLS'", ("security-protocol", "TLS", "PLAINTEXT, SSL")),
        ("ssl-ca-file = '/nowhere/ca.pem'", ("ssl-ca-file", "/nowhere/ca.pem", "No such file")),
        ("security-protocol = 'SASL_SSL'\nsasl-user = 'u'", ("SASL_SSL", "--sasl-mechanism")),
        ("security-protocol = 'SASL_SSL'\nsasl-mechanism = 'PLAIN'", ("SASL_SSL", "PLAIN", "--sasl-user")),
        (SASL + "sasl-password-env = 'NOT_SET_AT_ALL'", ("sasl-password-env", "NOT_SET_AT_ALL")),
        (SASL + "sasl-password = 'hunter2'", ("'sasl-password'",)),
        ("zookeeper-tls = 'yes'", ("zookeeper-tls", "true", "false")),
        ("zookeeper-acl = 'creator'", ("zookeeper-acl creator", "--zookeeper-auth-file", "--zookeeper-sasl-user")),
        ("zookeeper-sasl-user = 'u'", ("u", "ZooKeeper", "--zookeeper-sasl-password-file")),
        ("zookeeper-key-file = '/dev/null'", ("--zookeeper-certificate-file",)),
    ],
)
def test_what_is_refused(tmp_path: Path, profile: str, facts: tuple[str, ...]) -> None:
    """Before brokers are connected, naming the setting and showing no secret."""
    with pytest.raises(UsageError) as caught:
        check_properties(resolve(tmp_path, profile, cluster=("c",)).kafka)
    assert names(str(caught.value), *facts), caught.value
    assert "hunter2" not in str(caught.value)


def test_keys_that_need_a_password(tmp_path: Path) -> None:
    """It is asked for, of either kind of server; a key without one needs none."""
    key = tmp_path / "key.pem"
    key.write_text("-----BEGIN ENCRYPTED PRIVATE KEY-----\n")
    profile = f"ssl-key-file = '{key}'\nzookeeper-certificate-file = '{key}'\n"
    settings = resolve(tmp_path, profile, ask=lambda what: SECRET if str(key) in what else "", cluster=("c",))
    assert settings.kafka["ssl.key.password"] == SECRET
    assert settings.zookeeper_tls == TlsSettings(certificate_file=str(key), key_password=SECRET)
    with pytest.raises(UsageError, match=r"--ssl-key-password-file\b.*ZKGROUP_SSL_KEY_PASSWORD\b"):
        resolve(tmp_path, profile, cluster=("c",))
    key.write_text("-----BEGIN PRIVATE KEY-----\n")
    assert resolve(tmp_path, profile, cluster=("c",)).zookeeper_tls == TlsSettings(certificate_file=str(key))


def test_tls_files_that_cannot_be_used(tmp_path: Path) -> None:
    """Each is refused with its name, and what is wrong: no PEM, a key of another certificate, a password."""
    from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, PrivateFormat

    authority = make_authority("tls files")
    mine, other = authority.issue("mine"), authority.issue("other")
    encrypted = mine.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"right"))
    contents = {"mine": mine.pem, "key": mine.key_pem, "other": other.key_pem, "locked": encrypted, "none": b"text"}
    files = {name: str(tmp_path / name) for name in contents}
    for name, content in contents.items():
        Path(files[name]).write_bytes(content)
    ssl_context(TlsSettings(None, files["mine"], files["key"]), "TLS")
    ssl_context(TlsSettings(None, files["mine"], files["locked"], "right"), "TLS")
    for settings, facts in (
        (TlsSettings(files["none"]), (files["none"],)),
        (TlsSettings(None, files["none"], files["key"]), (files["key"], files["none"])),
        (TlsSettings(None, files["mine"], files["other"]), (files["other"], files["mine"], "together")),
        (TlsSettings(None, files["mine"], files["locked"], "wrong"), (files["locked"], "password")),
        (TlsSettings(None, files["mine"], files["locked"]), (files["locked"], "password")),
    ):
        with pytest.raises(UsageError) as refused:
            ssl_context(settings, "TLS")
        assert names(refused.value.message, *facts), refused.value


@pytest.mark.parametrize("url", ["h:8081", "ftp://h", "http://h:99999", "http://h:x", "http://[::1", "http://h?a"])
def test_what_is_no_schema_registry(url: str) -> None:
    """A port that none can be, too."""
    with pytest.raises(UsageError, match=r"http://HOST:8081"):
        registry_settings(ConnectionSettings(schema_registry=url))


@pytest.mark.parametrize("content", [b"", b"\n", b"hunter2\nhunter3\n", b"hunter2\xff", b"hunter2\0", b"h" * 70_000])
def test_a_file_without_a_secret(tmp_path: Path, content: bytes) -> None:
    """It is named, and nothing of it is shown."""
    path = tmp_path / "secret"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=str(path)) as caught:
        resolve(tmp_path, SASL, cluster=("c",), sasl_password_file=(str(path),))
    assert "hunter" not in str(caught.value)


def test_what_exposes_a_secret_is_warned_of(tmp_path: Path, secret: str) -> None:
    """A file that others may read, and one on the command line."""
    Path(secret).chmod(0o644)
    settings = resolve(tmp_path, SASL, cluster=("c",), sasl_password_file=(secret,))
    assert (len(settings.warnings), names(str(settings.warnings[0]), secret, "chmod 600")) == (1, True)
    typed = resolve(tmp_path, SASL, cluster=("c",), property=(f"kafka.sasl.password={SECRET}",))
    assert names(str(typed.warnings[0]), "kafka.sasl.password", "--sasl-password-file")
    assert SECRET not in str(typed.warnings[0])


def test_what_is_made_of_settings_shows_no_secret(tmp_path: Path, secret: str) -> None:
    """No repr of what carries secrets shows one: it would come into logs and tracebacks."""
    tls = TlsSettings("ca", "certificate", "key", SECRET)
    kafka = KafkaSettings("h:1", {"sasl.password": SECRET})
    carriers = [
        tls,
        ZooKeeperSettings("h:1", auth=(("digest", f"u:{SECRET}"),), tls=tls, sasl=("u", SECRET)),
        kafka,
        kafka.portable(),
        TaskSettings(kafka, files=None),  # type: ignore[arg-type]
        resolve(tmp_path, SASL, cluster=("c",), sasl_password_file=(secret,)),
        ConsumerConfig(group_id="g", kafka=kafka.properties),
    ]
    for carrier in carriers:
        assert SECRET not in repr(carrier), type(carrier)
        assert SECRET not in str(carrier), type(carrier)


def test_settings_for_another_machine(tmp_path: Path) -> None:
    """Certificates and keys go along as text; a folder of authorities stays a folder; what cannot be read is
    reported."""
    (tmp_path / "ca.pem").write_text("CA")
    (tmp_path / "key.pem").write_text("KEY")
    here = {"ssl.ca.location": f"{tmp_path}/ca.pem", "ssl.key.location": f"{tmp_path}/key.pem", "a": "b"}
    assert KafkaSettings("h:1", here).portable().properties == {"ssl.ca.pem": "CA", "ssl.key.pem": "KEY", "a": "b"}
    folder = {"ssl.ca.location": str(tmp_path)}
    assert KafkaSettings("h:1", folder).portable().properties == folder
    with pytest.raises(UsageError, match=r"/nowhere/key\b.*No such file"):
        KafkaSettings("h:1", {"ssl.key.location": "/nowhere/key"}).portable()


def test_every_setting_is_an_option(tmp_path: Path) -> None:
    """The table is what the command line offers, and each reaches the settings."""
    from zkgroup.commands import app
    from zkgroup.commands._shared_options import GlobalOptions, connection_parameters

    parameters = {parameter.name: parameter for parameter in connection_parameters()}
    offered = {option for parameter in parameters.values() for option in parameter.opts}
    assert {setting.option for setting in SETTINGS if setting.name} <= offered
    collected = GlobalOptions()
    context = typer.Context(typer.main.get_command(app), obj=collected)
    for name, value in {"zookeeper_tls": False, "listener": ["X"]}.items():
        parameters[name].process_value(context, value)
    assert collected.values == {"zookeeper_tls": [False], "listener": ["X"]}


# Listeners


def broker(number: int, *listeners: tuple[str, str], version: int = 4) -> BrokerRegistration:
    """A broker whose listeners have these names and protocols."""
    ends = tuple(Endpoint(name, spoken, f"h{number}", 1000 + i) for i, (name, spoken) in enumerate(listeners))
    return BrokerRegistration(number, version, ends)


INSIDE, OUTSIDE, PLAIN = ("INSIDE", "SSL"), ("OUTSIDE", "SSL"), ("PLAINTEXT", "PLAINTEXT")


@pytest.mark.parametrize(
    ("brokers", "protocol", "listener", "expected"),
    [
        ([broker(1, PLAIN, INSIDE)], None, None, ["h1:1000"]),
        ([broker(1, PLAIN, INSIDE)], "ssl", None, ["h1:1001"]),
        ([broker(1, PLAIN, INSIDE)], None, "inside", ["h1:1001"]),
        # One that is called as the protocol comes before others that speak it.
        ([broker(1, INSIDE, ("SSL", "SSL"))], "SSL", None, ["h1:1001"]),
        # One name for all brokers: they tell clients of one listener that listener's addresses.
        ([broker(1, INSIDE, OUTSIDE), broker(2, OUTSIDE), broker(3, OUTSIDE, INSIDE)], "SSL", None,
         ["h1:1001", "h2:1000", "h3:1000"]),
        # TLS is more than what was asked for.
        ([broker(1, PLAIN, INSIDE)], "PLAINTEXT", "INSIDE", ["h1:1001"]),
        # A broker that lacks it is reported by the others.
        ([broker(1, OUTSIDE), broker(2, PLAIN)], "SSL", "OUTSIDE", ["h1:1000"]),
    ],
)  # fmt: skip
def test_which_listener(
    brokers: list[BrokerRegistration], protocol: str | None, listener: str | None, expected: list[str]
) -> None:
    """By name, by protocol, and the same one of all brokers."""
    assert [str(endpoint) for endpoint in choose_listener(brokers, protocol, listener)] == expected


@pytest.mark.parametrize(
    ("protocol", "listener", "facts"),
    [
        ("SASL_SSL", None, ("SASL_SSL", "PLAINTEXT, INSIDE: SSL", "--security-protocol")),
        (None, "other", ("other", "PLAINTEXT, INSIDE: SSL")),
        ("SSL", "PLAINTEXT", ("PLAINTEXT", "SSL", "--security-protocol PLAINTEXT")),
    ],
)
def test_no_such_listener(protocol: str | None, listener: str | None, facts: tuple[str, ...]) -> None:
    """What there is instead is named."""
    with pytest.raises(UsageError) as refused:
        choose_listener([broker(1, PLAIN, INSIDE)], protocol, listener)
    assert names(str(refused.value), *facts), refused.value


@pytest.mark.parametrize("protocol", [None, "SASL_SSL", "CLIENTS"])
def test_a_listener_without_a_protocol(protocol: str | None) -> None:
    """Its name is not taken for what it speaks, whether it is asked for or reported of."""
    data = b'{"version":4,"endpoints":["CLIENTS://h:9092"],"listener_security_protocol_map":{"X":"SSL"}}'
    found = decode_broker("/brokers/ids/1", data)
    with pytest.raises(UsageError, match=r"\bCLIENTS\b.*PLAINTEXT, SSL\b") as refused:
        choose_listener([found], protocol, "CLIENTS")
    assert "--security-protocol" not in str(refused.value)
    with pytest.raises(UsageError, match=r"\bSSL\b.*\bCLIENTS: "):
        choose_listener([found], "SSL", None)


_PAIRS = list(itertools.product(["A", "B", "SSL", "PLAINTEXT"], ["SSL", "PLAINTEXT", "SASL_SSL"]))


@given(
    st.lists(st.lists(st.sampled_from(_PAIRS), min_size=1, unique_by=lambda pair: pair[0]), min_size=1, max_size=4),
    st.sampled_from([None, "SSL", "PLAINTEXT"]),
)
def test_whatever_is_registered(listeners: list[list[tuple[str, str]]], protocol: str | None) -> None:
    """What is chosen is one name, one protocol, the one asked for; or it is refused and none speaks it."""
    brokers = [broker(number, *pairs) for number, pairs in enumerate(listeners)]
    try:
        found = choose_listener(brokers, protocol, None)
    except UsageError:
        assert not any((protocol or "PLAINTEXT") == spoken for pairs in listeners for _, spoken in pairs)
        return
    assert {endpoint.protocol for endpoint in found} == {protocol or "PLAINTEXT"}
    assert len({endpoint.listener for endpoint in found}) == 1
    assert len(found) == len({endpoint.host for endpoint in found})


def test_old_brokers_and_sasl() -> None:
    """0.8 has one listener; a broker that registers as one of 0.9 and knows PLAIN is a newer one, and is asked for its
    versions; with TLS alone it is taken at its word."""
    with pytest.raises(UsageError, match=r"\bSSL\b.*\bPLAINTEXT\b.*--security-protocol\b"):
        settings_from_brokers([broker(1, PLAIN, version=1)], {"security.protocol": "SSL"})
    held_back = broker(1, ("SSL", "SSL"), ("SASL_SSL", "SASL_SSL"), version=2)
    assert settings_from_brokers([held_back], {"security.protocol": "SSL"}).legacy_release == "0.9.0.1"
    login = {"sasl.mechanism": "PLAIN", "sasl.username": "u", "sasl.password": "p"}
    assert settings_from_brokers([held_back], {"security.protocol": "SASL_SSL", **login}).legacy_release is None
    with pytest.raises(UsageError, match=r"\bSASL_SSL\b.*--sasl-mechanism\b"):
        settings_from_brokers([held_back], {}, "SASL_SSL")
    found = settings_from_brokers([held_back], login, "SSL")
    assert (found.bootstrap, dict(found.properties)) == ("h1:1000", {"security.protocol": "SSL"})


# Access lists


def test_access_lists_in_words() -> None:
    """Names, and entries as ZooKeeper's shell takes them; digests have colons of their own."""
    assert parse_acl("open") == OPEN
    assert parse_acl("creator-read-world") == CREATOR_READ_WORLD
    assert parse_acl("sasl:app:cdrwa,digest:ops:aGFzaA==:rw, world:anyone:r") == (
        Acl("sasl", "app", 31),
        Acl("digest", "ops:aGFzaA==", 3),
        Acl("world", "anyone", 1),
    )
    assert parse_acl("auth::cdrwa") == CREATOR_READ_WORLD[:1]


@pytest.mark.parametrize(
    "text", ["", "opne", "world:all:r", "sasl:app", "sasl:app:", "sasl::r", "sasl:app:rx", "open,"]
)
def test_no_access_list(text: str) -> None:
    """What is none is refused, with what would be one."""
    with pytest.raises(UsageError, match=r"^zookeeper-acl: .*\bopen\b.*\bcreator\b"):
        parse_acl(text)
