"""The settings of ``security`` out of flags, environment and profile; secrets out of files, variables, a prompt."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from zkgroup.config.java_properties import Property
from zkgroup.config.security_settings import BROKERS, BY_NAME, SETTINGS, Setting, TlsSettings
from zkgroup.config.settings_file import is_encrypted, read_secrets
from zkgroup.errors import UsageError

#: Asks a person for a secret; None where nobody can be asked.
Ask = Callable[[str], str] | None
_TRUTH: Final = {"true": True, "false": False, "1": True, "0": False, "yes": True, "no": False}
_SECRET_PROPERTIES: Final = {
    "kafka.sasl.password": "sasl-password",
    "kafka.ssl.key.password": "ssl-key-password",
    "kafka.ssl.key.pem": "ssl-key",
}


class Value(NamedTuple):
    """What a setting was given, and where."""

    text: str
    origin: str


@dataclass(frozen=True, slots=True)
class Securing:
    """The settings by their names, and those that flags gave. May hold secrets: not shown.

    ``values``: what layers say, the strongest first; the others only of choices and truth values, where no flag did.
    """

    values: Mapping[str, tuple[Value, ...]] = field(repr=False)
    flagged: frozenset[str] = frozenset()
    warnings: tuple[str, ...] = ()

    def properties(self, *, flagged: bool) -> list[Property]:
        """Those for brokers, as properties, the strongest last: those of flags, or the others."""
        return [
            Property(setting.key, _as_property(setting, value), value.origin)
            for setting in BROKERS
            if setting.key is not None and (setting.name in self.flagged) == flagged
            for value in reversed(self.values.get(setting.name, ()))
        ]

    def text(self, name: str) -> str | None:
        """The value of a setting."""
        return self.values[name][0].text if name in self.values else None

    def truth(self, name: str, default: bool) -> bool:
        """As ``text``, of one that is true or false."""
        return _truth(BY_NAME[name], self.values[name][0]) if name in self.values else default


class _Found(NamedTuple):
    """What a layer says. ``is_file``: the name of a file that holds a secret."""

    text: str
    origin: str
    is_file: bool = False


def read_securing(
    flags: Mapping[str, Sequence[str]],
    environ: Mapping[str, str],
    profile: Mapping[str, str],
    profile_origin: str,
    *,
    profile_first: bool,
) -> Securing:
    """Collect all settings. ``flags`` and ``profile`` hold what was given by the names of parameters and of keys.

    ``profile_first``: a flag has named the profile, which then is stronger than the environment. Raises ``UsageError``
    for what is contradictory or cannot be read; it shows nothing of what a file of secrets holds.
    """
    values: dict[str, tuple[Value, ...]] = {}
    flagged = set()
    warnings: list[str] = []
    for setting in SETTINGS:
        typed = list(dict.fromkeys(flags.get(setting.field, ())))
        if len(typed) > 1:
            raise UsageError(f"{setting.option} was given twice, as {typed[0]} and {typed[1]}", "give it once")
        layers = [_of_environment(setting, environ), _of_profile(setting, profile, profile_origin, environ)]
        if profile_first:
            layers.reverse()
        found = [one for layer in layers for one in layer]
        if typed:
            flagged.add(setting.name)
            found = [_Found(typed[0], setting.option, setting.kind == "secret")]
        if setting.kind not in ("choice", "truth"):  # files are read, and warned of, only where they count
            found = found[:1]
        if found:
            values[setting.name] = tuple(_checked(setting, one, warnings) for one in found)
    for of, verify in (("brokers", "ssl-verify"), ("ZooKeeper", "zookeeper-verify")):
        if verify in values and not _truth(BY_NAME[verify], values[verify][0]):
            warnings.append(f"certificates of {of} are not looked at ({verify}): anybody may answer in its place")
    return Securing(values, frozenset(flagged), tuple(warnings))


def _of_environment(setting: Setting, environ: Mapping[str, str]) -> Iterator[_Found]:
    if environ.get(setting.variable):
        yield _Found(environ[setting.variable], setting.variable)
    in_file = f"{setting.variable}_FILE"
    if setting.kind == "secret" and environ.get(in_file):
        yield _Found(environ[in_file], in_file, is_file=True)


def _of_profile(
    setting: Setting, profile: Mapping[str, str], origin: str, environ: Mapping[str, str]
) -> Iterator[_Found]:
    if setting.given_as in profile:
        yield _Found(profile[setting.given_as], f"{origin}, {setting.given_as}", setting.kind == "secret")
    variable = profile.get(f"{setting.name}-env") if setting.kind == "secret" else None
    if variable is not None:
        if not environ.get(variable):
            raise UsageError(f"{origin}: {setting.name}-env names {variable}, which is not set", "set it")
        yield _Found(environ[variable], variable)


def _checked(setting: Setting, found: _Found, warnings: list[str]) -> Value:
    text, origin = found.text, found.origin
    if setting.kind == "secret":
        return Value(_read_secret(found, warnings) if found.is_file else text, origin)
    if not text:
        raise UsageError(f"{origin} is empty", "give a value or leave it out")
    if setting.kind == "choice":
        if text.upper() not in setting.choices:
            raise UsageError(f"{origin}: {text[:40]!r} is none of {', '.join(setting.choices)}", "choose one")
        text = text.upper()
    if setting.kind == "file":
        path = Path(text).expanduser()
        try:
            with path.open("rb"):
                text = str(path)
        except OSError as error:
            why = error.strerror or error
            raise UsageError(f"{origin}: cannot read {path}: {why}", "name a file that can be read") from None
    value = Value(text, origin)
    if setting.kind == "truth":
        _truth(setting, value)
    return value


def _read_secret(found: _Found, warnings: list[str]) -> str:
    path = Path(found.text).expanduser()
    text, exposed = read_secrets(path, found.origin)
    text = (text or "").rstrip("\r\n")
    if not text or "\n" in text or "\0" in text:
        raise UsageError(f"{found.origin}: {path} holds no secret", "write it as the only line, in UTF-8")
    if exposed:
        warnings.append(f"{path} holds a secret, and others may read it: chmod 600")
    return text


def _truth(setting: Setting, value: Value) -> bool:
    found = _TRUTH.get(value.text.lower())
    if found is None:
        raise UsageError(f"{value.origin}: {setting.name} is neither true nor false", "write one of the two")
    return found


def _as_property(setting: Setting, value: Value) -> str:
    if setting.kind != "truth":
        return value.text
    said = _truth(setting, value)
    if setting.name == "ssl-check-hostname":
        return "https" if said else "none"
    return "true" if said else "false"


# What belongs together


def complete_brokers(kafka: Mapping[str, str], listener: str | None, ask: Ask) -> list[Property]:
    """What librdkafka's properties lack: passwords, to be asked for. Raises ``UsageError`` where nobody can be asked,
    and where there is too little for the protocol that was asked for."""
    protocol = kafka.get("security.protocol", "PLAINTEXT").upper()
    added = []
    speaks_sasl = protocol.startswith("SASL")
    mechanism = kafka.get("sasl.mechanism") or kafka.get("sasl.mechanisms")
    user, password = kafka.get("sasl.username"), kafka.get("sasl.password")
    if speaks_sasl and mechanism is None and "sasl.username" in kafka:
        raise UsageError(f"{protocol} needs a mechanism", "give --sasl-mechanism, such as SCRAM-SHA-512")
    if user and not password and (mechanism or "").upper() in BY_NAME["sasl-mechanism"].choices:
        if speaks_sasl or listener is not None:
            asked = _ask(ask, f"password of {user} for the brokers", "--sasl-password-file", "ZKGROUP_SASL_PASSWORD")
            added.append(Property("kafka.sasl.password", asked, "prompt"))
    elif speaks_sasl and not user and (mechanism or "").upper() in BY_NAME["sasl-mechanism"].choices:
        raise UsageError(f"{protocol} with {mechanism} needs a user", "give --sasl-user")
    key = kafka.get("ssl.key.location") or kafka.get("ssl.certificate.location")
    if key and "ssl.key.password" not in kafka and is_encrypted(key):
        asked = _ask(ask, f"password of the key {key}", "--ssl-key-password-file", "ZKGROUP_SSL_KEY_PASSWORD")
        added.append(Property("kafka.ssl.key.password", asked, "prompt"))
    return added


def zookeeper_tls(securing: Securing, ask: Ask) -> TlsSettings | None:
    """How TLS is spoken with ZooKeeper; None where it is not.

    Raises ``UsageError`` where a layer takes off what another asks for: only a flag may.
    """
    names = ("zookeeper-ca-file", "zookeeper-certificate-file", "zookeeper-key-file")
    ca, certificate, key = map(securing.text, names)
    said = securing.values.get("zookeeper-tls", ())
    asking = [value for value in said if _truth(BY_NAME["zookeeper-tls"], value)]
    asking += [securing.values[name][0] for name in names if name in securing.values]
    if not securing.truth("zookeeper-tls", bool(asking)):
        if asking and "zookeeper-tls" not in securing.flagged:
            raise UsageError(
                f"{said[0].origin} is false, and {asking[0].origin} asks for TLS with ZooKeeper",
                "correct one of them; --no-zookeeper-tls permits to go without encryption",
            )
        return None
    if key and not certificate:
        raise UsageError("a key without a certificate is shown to nobody", "give --zookeeper-certificate-file")
    password = securing.text("zookeeper-key-password")
    if password is None and certificate and is_encrypted(key or certificate):
        variable = "ZKGROUP_ZOOKEEPER_KEY_PASSWORD"
        password = _ask(ask, f"password of the key {key or certificate}", "--zookeeper-key-password-file", variable)
    check, verify = securing.truth("zookeeper-check-hostname", True), securing.truth("zookeeper-verify", True)
    return TlsSettings(ca, certificate, key, password, check, verify)


def zookeeper_user(securing: Securing, ask: Ask) -> tuple[str, str] | None:
    """User and password for SASL with ZooKeeper, if a user is named."""
    user = securing.text("zookeeper-sasl-user")
    if user is None:
        return None
    password = securing.text("zookeeper-sasl-password")
    if password is None:
        variable = "ZKGROUP_ZOOKEEPER_SASL_PASSWORD"
        password = _ask(ask, f"password of {user} for ZooKeeper", "--zookeeper-sasl-password-file", variable)
    return user, password


def check_contradictions(securing: Securing, typed: Sequence[Property]) -> list[str]:
    """Raise ``UsageError`` where one command line gives an option and the property that it stands for, and they
    differ. Returns warnings of secrets that stand on it. ``typed``: the command line's properties."""
    flagged = {prop.key: prop for prop in securing.properties(flagged=True)}
    for prop in typed:
        flag = flagged.get(prop.key)
        if flag is not None and flag.value != prop.value:
            raise UsageError(f"{flag.origin} and {prop.origin} {prop.key} contradict each other", "give one of the two")
    return [
        f"the command line shows {prop.key} to everyone on this machine: give it with "
        f"{BY_NAME[name].option if name in BY_NAME else '--ssl-key-file'} or the environment"
        for prop in typed
        if (name := _SECRET_PROPERTIES.get(prop.key)) is not None
    ]


def _ask(ask: Ask, what: str, option: str, variable: str) -> str:
    found = ask(what) if ask is not None else ""
    if not found:
        raise UsageError(f"no {what} was given", f"name a file that holds it with {option}, or set {variable}")
    return found
