"""``resolve_connection``: the settings of a connection from their layers.

Flags win over the environment, the environment over the cluster's profile, the profile over ``consumer.properties``. A
cluster that a flag names ranks as a flag: ``-c prod`` wins over an exported ``ZKGROUP_ZOOKEEPER``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from zkgroup.config.connection_settings import (
    ConnectionSettings,
    ConnectString,
    KerberosSettings,
    TlsSettings,
    parse_bootstrap,
    parse_connect_string,
)
from zkgroup.config.consumer_config import unknown_keys
from zkgroup.config.profiles import Profile, config_file, read_profiles
from zkgroup.config.setting_files import (
    Property,
    is_encrypted,
    read_auth_file,
    read_properties,
    read_secrets,
    unreadable,
)
from zkgroup.config.settings_table import (
    BY_NAME,
    CONNECT_TIMEOUT,
    KAFKA_PREFIX,
    KERBEROS,
    PASSWORD_MECHANISMS,
    PROTOCOLS,
    SETTINGS,
    Setting,
    has_tls,
)
from zkgroup.errors import Notice, Remedy, UsageError, did_you_mean

#: The options of a command line, before and after the command's name: parameter to values, in their order.
Flags = Mapping[str, Sequence[str]]
MAX_TIMEOUT: Final = 3600  # seconds
_BOOLS: Final = {"true": True, "false": False, "1": True, "0": False, "yes": True, "no": False}


class Value(NamedTuple):
    """A setting's value, and its origin for messages. ``is_file``: the text names a file with a secret."""

    text: str
    origin: str
    is_file: bool = False


@dataclass(frozen=True, slots=True)
class Layers:
    """The values of the settings by name. May hold secrets: not shown.

    ``values``: the strongest first. The weaker ones are there only for choices and bools that no flag gave, and for the
    schema registry.
    ``flagged``: the settings that a flag gave.
    """

    values: Mapping[str, tuple[Value, ...]] = field(repr=False)
    flagged: frozenset[str] = frozenset()
    warnings: tuple[Notice, ...] = ()

    def properties(self, *, flagged: bool) -> list[Property]:
        """The brokers' settings as properties, the strongest last: those of flags, or the others."""
        return [
            Property(setting.key, _as_property(setting, value), value.origin)
            for setting in SETTINGS
            if setting.section == "brokers" and (setting.name in self.flagged) == flagged
            for value in reversed(self.values.get(setting.name, ()))
        ]

    def find(self, name: str) -> Value | None:
        return self.values[name][0] if name in self.values else None

    def text(self, name: str) -> str | None:
        return self.values[name][0].text if name in self.values else None

    def is_true(self, name: str, default: bool) -> bool:
        return parse_bool(name, self.values[name][0]) if name in self.values else default


def read_layers(flags: Flags, environ: Mapping[str, str], profile: Profile, *, profile_first: bool) -> Layers:
    """Read all named settings but those that only a command line has.

    ``profile_first``: a flag has named the profile. Raises ``UsageError`` for values that are contradictory or cannot
    be read; it shows nothing of a file with a secret.
    """
    values: dict[str, tuple[Value, ...]] = {}
    flagged = set()
    warnings: list[Notice] = []
    for setting in SETTINGS:
        if not setting.profile_keys:
            continue
        layers = [_in_environment(setting, environ), _in_profile(setting, profile, environ)]
        if profile_first and not setting.environment_first:
            layers.reverse()
        found = [one for layer in layers for one in layer]
        # Two flags may name the same ZooKeeper in different words.
        typed = None if setting.name == "zookeeper" else single_flag(flags, setting.name)
        if typed is not None:
            flagged.add(setting.name)
            weaker = found if setting.name == "schema-registry" else ()
            found = [Value(typed, setting.option, setting.kind == "secret"), *weaker]
        # Files are read, and warned of, only if they count.
        if setting.kind not in ("choice", "bool") and setting.name != "schema-registry":
            found = found[:1]
        if found:
            values[setting.name] = tuple(_checked(setting, one, warnings) for one in found)
    for servers, verify in (("brokers", "ssl-verify"), ("ZooKeeper", "zookeeper-verify")):
        if verify in values and not parse_bool(verify, values[verify][0]):
            what = f"certificates of {servers} are not verified ({verify}): anybody may answer in its place"
            warnings.append(Notice(what))
    return Layers(values, frozenset(flagged), tuple(warnings))


def single_flag(flags: Flags, name: str) -> str | None:
    """The value of an option that may be given once. Raises ``UsageError``."""
    setting = BY_NAME[name]
    typed = list(dict.fromkeys(map(str, flags.get(setting.parameter, ()))))
    if len(typed) > 1:
        raise UsageError(f"{setting.option} was given twice, as {typed[0]} and {typed[1]}", "give it once")
    if typed and not typed[0]:
        raise UsageError(f"{setting.option} is empty", "give a value or leave it out")
    return typed[0] if typed else None


def _in_environment(setting: Setting, environ: Mapping[str, str]) -> Iterator[Value]:
    if not setting.in_environment:
        return
    if environ.get(setting.variable):
        yield Value(environ[setting.variable], setting.variable)
    in_file = f"{setting.variable}_FILE"
    if setting.kind == "secret" and environ.get(in_file):
        yield Value(environ[in_file], in_file, is_file=True)


def _in_profile(setting: Setting, profile: Profile, environ: Mapping[str, str]) -> Iterator[Value]:
    if setting.option_name in profile.values:
        origin = profile.origin if setting.section == "connection" else f"{profile.origin}, {setting.option_name}"
        yield Value(profile.values[setting.option_name], origin, setting.kind == "secret")
    variable = profile.values.get(f"{setting.name}-env") if setting.kind == "secret" else None
    if variable is not None:
        if not environ.get(variable):
            raise UsageError(f"{profile.origin}: {setting.name}-env names {variable}, which is not set", "set it")
        yield Value(environ[variable], variable)


def _checked(setting: Setting, found: Value, warnings: list[Notice]) -> Value:
    text, origin = found.text, found.origin
    match setting.kind:
        case "secret" if found.is_file:
            content, exposed = read_secrets(text, origin)
            warnings += exposed
            text = (content or "").rstrip("\r\n")
            if not text or "\n" in text or "\0" in text:
                raise UsageError(f"{origin}: {found.text} has no secret", "write it as the only line, in UTF-8")
        case "choice":
            text = text.upper()
            if text not in setting.choices:
                raise UsageError(f"{origin}: {found.text[:40]!r} is none of {', '.join(setting.choices)}", "choose one")
        case "file":
            path = Path(text).expanduser()
            text = str(path)
            try:
                path.open("rb").close()
            except OSError as error:
                raise unreadable(path, error, origin) from None
        case "bool":
            parse_bool(setting.name, found)
        case "seconds":
            parse_seconds(found)
    return Value(text, origin)


def parse_bool(name: str, value: Value) -> bool:
    """A bool's value. Raises ``UsageError``."""
    found = _BOOLS.get(value.text.lower())
    if found is None:
        raise UsageError(f"{value.origin}: {name} is neither true nor false", "write one of the two")
    return found


def parse_seconds(value: Value) -> float:
    """A time-out's value. Raises ``UsageError``."""
    try:
        seconds = float(value.text)
    except ValueError:
        seconds = -1.0
    if not 0 < seconds <= MAX_TIMEOUT:
        raise UsageError(
            f"{value.origin}: {value.text[:40]!r} is no time to wait", "give seconds, more than 0 and at most 3600"
        )
    return seconds


def _as_property(setting: Setting, value: Value) -> str:
    if setting.kind != "bool":
        return value.text
    return setting.true if parse_bool(setting.name, value) else setting.false


SANDBOX: Final = "sandbox"
_COMMAND_LINE: Final = "--property"
_KERBEROS_NAMES: Final = ("keytab", "principal", "service")
#: The connect string of a sandbox, and the file of its profile if it is secured, by the sandbox's name.
FindSandbox = Callable[[str], tuple[str, Path | None]]
#: Asks a person for a secret; None if nobody can be asked.
Ask = Callable[[str], str] | None
#: Properties that are secrets, and the options that take them from a file.
_SECRETS: Final = {one.key: one.option for one in SETTINGS if one.kind == "secret" and one.key} | {
    "kafka.ssl.key.pem": "--ssl-key-file"
}


def resolve_connection(
    flags: Flags, environ: Mapping[str, str], find_sandbox: FindSandbox, ask: Ask = None
) -> ConnectionSettings:
    """Resolve every setting, with its origin. Reads ``config.toml`` and ``consumer.properties``.

    ``find_sandbox`` finds a sandbox by its name (``""``: the default one). ``ask`` asks a person for a missing
    password. Raises ``UsageError`` for what is contradictory, unknown or unreadable.
    """
    by_flag = single_flag(flags, "cluster")
    cluster = by_flag or environ.get(BY_NAME["cluster"].variable) or None
    profile = _profile(cluster, environ, find_sandbox) if cluster else Profile(origin="no profile")
    own = [_parse_assignment(text) for text in flags.get("property", ())]
    layers = read_layers(flags, environ, profile, profile_first=bool(by_flag))
    consumer_config = layers.text("consumer-config")
    properties = [
        *(read_properties(Path(consumer_config).expanduser()) if consumer_config else ()),
        *profile.properties,
        *layers.properties(flagged=False),
        *own,
        *layers.properties(flagged=True),
    ]
    _check_protocol([p for p in properties if p.key == BY_NAME["security-protocol"].key])
    _check_registry(layers)
    exposed = _check_contradictions(layers, own)
    origins = {name: values[0].origin for name, values in layers.values.items()}
    if cluster:
        origins["cluster"] = "--cluster" if by_flag else BY_NAME["cluster"].variable
    zookeeper, zookeeper_origin = _zookeeper(flags, layers, properties)
    if zookeeper:
        origins["zookeeper"] = zookeeper_origin
    warnings = _overruled(flags, zookeeper, zookeeper_origin, properties)
    bootstrap = layers.find("bootstrap-server")
    auth_file = layers.find("zookeeper-auth-file")
    auth, auth_warnings = read_auth_file(auth_file.text, auth_file.origin) if auth_file else ((), [])
    origins |= {name: profile.origin for name in ("protected", "labels") if getattr(profile, name)}
    timeout, origins["connect-timeout"] = _timeout(layers, properties)
    listener = next((p.value for p in reversed(properties) if p.key == BY_NAME["listener"].key), None)
    properties += _missing_passwords(_kafka(properties), listener, ask)
    sasl, tls = _zookeeper_sasl(layers, ask), _zookeeper_tls(layers, ask)
    acl = layers.text("zookeeper-acl")
    if acl is not None and acl.startswith("creator") and not (auth or sasl or (tls and tls.certificate_file)):
        raise UsageError(
            f"zookeeper-acl {acl} needs credentials",
            "give --zookeeper-auth-file, --zookeeper-sasl-user or --zookeeper-sasl-mechanism GSSAPI",
        )
    return ConnectionSettings(
        zookeeper=zookeeper,
        bootstrap=parse_bootstrap(bootstrap.text, bootstrap.origin) if bootstrap else (),
        timeout=timeout,
        kafka=_kafka(properties),
        listener=listener,
        zookeeper_auth=auth,
        zookeeper_tls=tls,
        zookeeper_sasl=sasl,
        zookeeper_acl=acl,
        schema_registry=layers.text("schema-registry"),
        schema_registry_user=layers.text("schema-registry-user"),
        schema_registry_password=layers.text("schema-registry-password"),
        cluster=cluster,
        protected=profile.protected,
        labels=profile.labels,
        properties=tuple(properties),
        origins=origins,
        zookeeper_texts={
            one.name: text.lower() if one.kind == "bool" else text
            for one in SETTINGS
            if one.name in layers.values and one.name.startswith("zookeeper-") and one.kind != "secret"
            for text in (layers.values[one.name][0].text,)
        },
        # A command reads the keys of a file that concern it; a typed key is meant for this command.
        warnings=(*warnings, *auth_warnings, *layers.warnings, *exposed, *unknown_keys(own)),
    )


def _check_protocol(named: Sequence[Property]) -> None:
    """Raise ``UsageError`` if a layer removes the TLS that a weaker one asks for: only the option may."""
    asking = next((prop for prop in named if has_tls(prop.value)), None)
    if asking is None or has_tls(named[-1].value) or named[-1].origin == BY_NAME["security-protocol"].option:
        return
    if named[-1].value.upper() in PROTOCOLS:  # another value may be a secret; it is refused later
        raise UsageError(
            f"{named[-1].origin} asks for {named[-1].value}, and {asking.origin} for {asking.value}",
            f"correct one of them; --security-protocol {named[-1].value} permits to go without encryption",
        )


def _check_registry(layers: Layers) -> None:
    """Raise ``UsageError`` if a layer's schema registry without TLS would get the password of one with it."""
    registries = layers.values.get("schema-registry", ())
    asking = next((one for one in registries if one.text.startswith("https:")), None)
    if asking is None or registries[0].text.startswith("https:") or layers.text("schema-registry-user") is None:
        return
    if "schema-registry-user" not in layers.flagged:
        raise UsageError(
            f"{registries[0].origin} names a schema registry without TLS, and {asking.origin} one with it",
            "write https://, or give --schema-registry-user, which permits to send a password without encryption",
        )


def _kafka(properties: Sequence[Property]) -> dict[str, str]:
    return {p.key.removeprefix(KAFKA_PREFIX): p.value for p in properties if p.key.startswith(KAFKA_PREFIX)}


def _profile(cluster: str, environ: Mapping[str, str], find_sandbox: FindSandbox) -> Profile:
    name, colon, rest = cluster.partition(":")
    if name == SANDBOX:
        if colon and not rest:
            raise UsageError(f"--cluster {cluster} names no sandbox", "write sandbox or sandbox:NAME")
        connect, secured = find_sandbox(rest)
        if secured is None:
            return Profile(origin=cluster, values={"zookeeper": connect})
        return next(iter(read_profiles(secured, must_exist=True).values()))
    path, asked_for = config_file(environ)
    profiles = read_profiles(path, must_exist=asked_for)
    found = profiles.get(cluster)
    if found is None:
        known = [*sorted(profiles), SANDBOX]
        remedy = did_you_mean(cluster, known, f"known: {', '.join(known)}")
        raise UsageError(f"no cluster profile {cluster!r} in {path}", remedy)
    return found


def _parse_assignment(text: str) -> Property:
    key, sign, value = text.partition("=")
    if not sign or not key.strip():
        # The text may be a secret without its key: it is not shown.
        raise UsageError("--property wants KEY=VALUE", "for example -X auto.offset.reset=smallest")
    return Property(key.strip(), value.strip(), _COMMAND_LINE)


def _zookeeper(flags: Flags, layers: Layers, properties: Sequence[Property]) -> tuple[ConnectString | None, str]:
    """The ZooKeeper and its origin. Raises ``UsageError`` if the command line names two."""
    settings = [p for p in properties if p.key == BY_NAME["zookeeper"].key]
    typed = [Value(text, "--zookeeper") for text in flags.get("zookeeper", ())]
    typed += [Value(p.value, f"{_COMMAND_LINE} {p.key}") for p in settings if p.origin == _COMMAND_LINE]
    parsed = [(parse_connect_string(value.text, value.origin), value.origin) for value in typed]
    for value, origin in parsed[1:]:
        if not value.is_same_as(parsed[0][0]):
            raise UsageError(
                f"two different ZooKeepers on one command line, {parsed[0][0]} ({parsed[0][1]}) and {value} ({origin})",
                "give one",
            )
    if parsed:
        return parsed[0]
    found = layers.find("zookeeper") or next((Value(p.value, p.origin) for p in reversed(settings)), None)
    return (parse_connect_string(found.text, found.origin), found.origin) if found else (None, "")


def _overruled(
    flags: Flags, zookeeper: ConnectString | None, origin: str, properties: Sequence[Property]
) -> list[Notice]:
    """A warning if the environment or a profile wins over the ZooKeeper of a file that a flag names."""
    if zookeeper is None or not flags.get("consumer_config") or origin.startswith("--"):
        return []
    return [
        Notice(f"{p.origin}: zookeeper.connect is overruled by {origin} ({zookeeper})")
        for p in properties
        if p.key == "zookeeper.connect"
        and p.origin not in (_COMMAND_LINE, origin)
        and not parse_connect_string(p.value, p.origin).is_same_as(zookeeper)
    ]


def _timeout(layers: Layers, properties: Sequence[Property]) -> tuple[float, str]:
    found = layers.find("connect-timeout")
    if found is not None:
        return parse_seconds(found), found.origin
    for prop in reversed(properties):
        if prop.key == "zookeeper.connection.timeout.ms" and prop.value.isascii() and prop.value.isdigit():
            millis = int(prop.value[:10])  # Python does not read thousands of them
            if not 0 < millis <= 1000 * MAX_TIMEOUT:
                raise UsageError(
                    f"{prop.origin}: {prop.key}={prop.value[:40]} is no time to wait", "give 1 to 3600000 milliseconds"
                )
            return millis / 1000, prop.origin
    return CONNECT_TIMEOUT, "default"


def _missing_passwords(kafka: Mapping[str, str], listener: str | None, ask: Ask) -> list[Property]:
    """Ask for the passwords that librdkafka's properties lack. Raises ``UsageError`` without a terminal."""
    added = []
    speaks_sasl = kafka.get("security.protocol", "").upper().startswith("SASL") or listener is not None
    mechanism = kafka.get("sasl.mechanism") or kafka.get("sasl.mechanisms") or ""
    user, has_password = kafka.get("sasl.username"), kafka.get("sasl.password")
    if user and not has_password and speaks_sasl and mechanism.upper() in PASSWORD_MECHANISMS:
        asked = _ask(ask, f"password of {user} for the brokers", "sasl-password")
        added.append(Property("kafka.sasl.password", asked, "prompt"))
    key = kafka.get("ssl.key.location") or kafka.get("ssl.certificate.location")
    if key and "ssl.key.password" not in kafka and is_encrypted(key):
        asked = _ask(ask, f"password of the key {key}", "ssl-key-password")
        added.append(Property("kafka.ssl.key.password", asked, "prompt"))
    return added


def _zookeeper_tls(layers: Layers, ask: Ask) -> TlsSettings | None:
    """The settings of TLS with ZooKeeper; None without TLS.

    Raises ``UsageError`` if a layer removes the TLS that another one asks for: only a flag may.
    """
    names = ("zookeeper-ca-file", "zookeeper-certificate-file", "zookeeper-key-file")
    ca, certificate, key = map(layers.text, names)
    said = layers.values.get("zookeeper-tls", ())
    asking = [value for value in said if parse_bool("zookeeper-tls", value)]
    asking += [layers.values[name][0] for name in names if name in layers.values]
    if not layers.is_true("zookeeper-tls", bool(asking)):
        if asking and "zookeeper-tls" not in layers.flagged:
            raise UsageError(
                f"{said[0].origin} is false, and {asking[0].origin} asks for TLS with ZooKeeper",
                "correct one of them; --no-zookeeper-tls permits to go without encryption",
            )
        return None
    if key and not certificate:
        raise UsageError("a key without a certificate is shown to nobody", "give --zookeeper-certificate-file")
    password = layers.text("zookeeper-key-password")
    if password is None and certificate and is_encrypted(key or certificate):
        password = _ask(ask, f"password of the key {key or certificate}", "zookeeper-key-password")
    check, verify = layers.is_true("zookeeper-check-hostname", True), layers.is_true("zookeeper-verify", True)
    return TlsSettings(ca, certificate, key, password, check, verify)


def _zookeeper_sasl(layers: Layers, ask: Ask) -> tuple[str, str] | KerberosSettings | None:
    """The user and the password for SASL with ZooKeeper, or Kerberos; None if neither is named.

    Raises ``UsageError`` for settings of another mechanism: a password is not to go where Kerberos was meant.
    """
    mechanism = layers.text("zookeeper-sasl-mechanism")
    user = layers.text("zookeeper-sasl-user")
    keytab, principal, service = (layers.text(f"zookeeper-kerberos-{name}") for name in _KERBEROS_NAMES)
    if mechanism == KERBEROS:
        if user is not None:
            raise UsageError(
                f"zookeeper-sasl-user is for DIGEST-MD5, and zookeeper-sasl-mechanism is {mechanism}",
                "leave one of them out; --zookeeper-kerberos-principal names a principal",
            )
        return KerberosSettings(service or BY_NAME["zookeeper-kerberos-service"].default, keytab, principal)
    if keytab or principal or service:
        raise UsageError(
            "zookeeper-kerberos-… is for Kerberos, which zookeeper-sasl-mechanism does not name",
            f"give --zookeeper-sasl-mechanism {KERBEROS}",
        )
    if user is None:
        if mechanism is not None:
            raise UsageError(f"zookeeper-sasl-mechanism {mechanism} needs a user", "give --zookeeper-sasl-user")
        return None
    password = layers.text("zookeeper-sasl-password")
    if password is None:
        password = _ask(ask, f"password of {user} for ZooKeeper", "zookeeper-sasl-password")
    return user, password


def _check_contradictions(layers: Layers, typed: Sequence[Property]) -> list[Notice]:
    """Raise ``UsageError`` if the command line gives an option and its property with different values. Returns warnings
    of secrets on the command line. ``typed``: its properties."""
    flagged = {prop.key: prop for prop in layers.properties(flagged=True)}
    for prop in typed:
        flag = flagged.get(prop.key)
        if flag is not None and flag.value != prop.value:
            raise UsageError(f"{flag.origin} and {prop.origin} {prop.key} contradict each other", "give one of the two")
    return [
        Notice(
            f"the command line shows {prop.key} to everyone on this machine",
            Remedy(f"give it with {option} or the environment"),
        )
        for prop in typed
        if (option := _SECRETS.get(prop.key)) is not None
    ]


def _ask(ask: Ask, what: str, name: str) -> str:
    found = ask(what) if ask is not None else ""
    if not found:
        setting = BY_NAME[name]
        raise UsageError(f"no {what} was given", f"name a file with it by {setting.option}, or set {setting.variable}")
    return found
